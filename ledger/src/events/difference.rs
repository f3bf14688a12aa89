//! What lies between two states of a room where the log has a hole: each beginning and each ending once, and what
//! else is different.

use std::collections::BTreeMap;

use room_cell::{
    Call, CallState, Cell, MicSession, Millis, Presence, SeatNumber, Sitter, Status, UserId, patch,
};

use super::change::{
    banned, call_ending, call_over, call_started, closed, joined, left, mic_ended, mic_started,
};
use super::payload::{
    CallAccepted, CallEnding, Closing, GuestUpdated, Leaving, MicEnding, RoomCreated, RoomReopened,
    SettingsUpdated, UserUnbanned, What,
};
use crate::state::RoomState;

/// Endings, then beginnings; of those, the room first and what is in it afterwards; settings and guests last.
pub(super) fn between(before: &RoomState, after: &RoomState, at: Millis) -> Vec<What> {
    let mut told = of_cells(&before.cell, &after.cell, at);
    let patch = patch::between(&before.settings, &after.settings);
    if !patch.is_empty() {
        told.push(What::SettingsUpdated(SettingsUpdated { patch }));
    }
    let guests = patch::between(&before.guests, &after.guests).into_iter();
    told.extend(guests.map(|(user, patch)| What::GuestUpdated(GuestUpdated { user, patch })));
    told
}

fn of_cells(before: &Cell, after: &Cell, at: Millis) -> Vec<What> {
    let mut told = Vec::new();
    mics_ended(before, after, at, &mut told);
    let goes_on = call_ended(before, after, &mut told);
    people_left(before, after, &mut told);
    room(before, after, &mut told);
    bans(before, after, &mut told);
    people_joined(before, after, &mut told);
    if let Some(call) = after.call.as_ref().filter(|_| !goes_on) {
        told.push(call_started(call));
        told.extend(stands(call));
    }
    mics_started(before, after, at, &mut told);
    told
}

const fn is_open(status: &Status) -> bool {
    matches!(status, Status::Creating { .. } | Status::Active | Status::Closing { .. })
}

fn room(before: &Cell, after: &Cell, told: &mut Vec<What>) {
    match (is_open(&before.status), is_open(&after.status)) {
        (true, false) => told.push(closed(Closing::StoreLost, None)),
        (false, true) if before.status == Status::Closed => {
            let (capacity, auto_close) = (after.capacity, after.auto_close);
            told.push(What::RoomReopened(RoomReopened { capacity, auto_close }));
        }
        (false, true) => told.push(What::RoomCreated(RoomCreated {
            creator: after.creator.as_ref().map(ToString::to_string),
            seats: after.seats.len(),
            capacity: after.capacity,
            auto_close: after.auto_close,
        })),
        (true, true) | (false, false) => {}
    }
}

/// A stay has its beginning from the first of its connections to the last.
fn stay(presence: &Presence) -> Option<Millis> {
    presence.peers.iter().map(|peer| peer.joined_at).min()
}

fn stays(cell: &Cell, user: &UserId, presence: &Presence) -> bool {
    cell.users.get(user).is_some_and(|other| stay(other) == stay(presence))
}

fn people_left(before: &Cell, after: &Cell, told: &mut Vec<What>) {
    let gone = before.users.iter().filter(|(user, presence)| !stays(after, user, presence));
    told.extend(gone.map(|(user, _)| left(user.as_str(), Leaving::StoreLost)));
}

fn people_joined(before: &Cell, after: &Cell, told: &mut Vec<What>) {
    let came = after.users.iter().filter(|(user, presence)| !stays(before, user, presence));
    told.extend(came.filter_map(|(_, presence)| presence.peers.first()).map(|peer| joined(peer)));
}

/// Mic sessions that were heard, with their seats.
fn heard(cell: &Cell, at: Millis) -> BTreeMap<(&MicSession, &UserId), (SeatNumber, &Sitter, u64)> {
    let sitters = cell.seats.iter().filter_map(|(number, seat)| {
        let sitter = seat.sitter.as_ref()?;
        Some(((&sitter.session, &sitter.user), (*number, sitter, sitter.heard_by(at)?)))
    });
    sitters.collect()
}

fn mics_ended(before: &Cell, after: &Cell, at: Millis, told: &mut Vec<What>) {
    let still = heard(after, at);
    for (key, (seat, sitter, heard_ms)) in heard(before, at) {
        if !still.contains_key(&key) {
            let (user, session) = (sitter.user.as_str(), sitter.session.as_str());
            told.push(mic_ended(seat, user, session, MicEnding::StoreLost, heard_ms));
        }
    }
}

fn mics_started(before: &Cell, after: &Cell, at: Millis, told: &mut Vec<What>) {
    let known = heard(before, at);
    for (key, (seat, sitter, _)) in heard(after, at) {
        if !known.contains_key(&key) {
            told.push(mic_started(seat, sitter.user.as_str(), sitter.session.as_str()));
        }
    }
}

fn bans(before: &Cell, after: &Cell, told: &mut Vec<What>) {
    let lifted = before.bans.keys().filter(|user| !after.bans.contains_key(*user));
    told.extend(lifted.map(|user| What::UserUnbanned(UserUnbanned { user: user.to_string() })));
    let new = after.bans.iter().filter(|(user, ban)| before.bans.get(*user) != Some(ban));
    told.extend(new.map(|(user, ban)| banned(user.as_str(), ban)));
}

/// Ends the call that was, or says how it went on; whether the one that is now is the same.
fn call_ended(before: &Cell, after: &Cell, told: &mut Vec<What>) -> bool {
    let Some(was) = &before.call else { return false };
    if let Some(is) = after.call.as_ref().filter(|is| is.id == was.id) {
        if is.state != was.state && !was.state.is_over() {
            told.extend(stands(is));
        }
        return true;
    }
    let state = match was.state {
        CallState::Started => CallState::Missed,
        CallState::Accepted => CallState::Disconnected,
        _ => return false,
    };
    told.extend(call_over(state, was.id.as_str(), None, Some(CallEnding::StoreLost)));
    false
}

/// What became of a call that rang.
fn stands(call: &Call) -> Option<What> {
    match (call.state, &call.accepted_by) {
        (CallState::Accepted, Some(user)) => {
            Some(What::CallAccepted(CallAccepted { call: call.id.to_string(), user: user.to_string() }))
        }
        (state, _) => call_over(state, call.id.as_str(), None, call.reason.map(call_ending)),
    }
}
