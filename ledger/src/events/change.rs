//! What the body of one entry tells.

use std::collections::BTreeMap;

use room_cell::{Actor, Ban, Call, CallReason, CallState, Event, LeaveReason, MicEnd, Peer, Role, Speaking};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::payload::{
    By, ByKind, CallAccepted, CallEnding, CallOver, CallStarted, Closing, GuestUpdated, InstanceLost,
    Leaving, MicEnded, MicEnding, MicStarted, RoomClosed, RoomCreated, RoomReopened, SettingsUpdated,
    UserBanned, UserJoined, UserKicked, UserLeft, UserUnbanned, What,
};
use super::timestamp::rfc3339;
use super::{MalformedBody, Told};

#[derive(Deserialize)]
struct CellBody {
    id: String,
    actor: Actor,
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct SettingsBody {
    settings: Map<String, Value>,
    by: Option<String>,
}

#[derive(Deserialize)]
struct GuestsBody {
    guests: BTreeMap<String, Value>,
    by: Option<String>,
}

#[derive(Deserialize)]
struct InstanceBody {
    instance: String,
    rooms: u64,
}

pub(super) fn cell(body: &str) -> Result<Told, MalformedBody> {
    let CellBody { id, actor, events } = serde_json::from_str(body)?;
    let by = match actor {
        Actor::User { user, .. } => By { kind: ByKind::User, user: Some(user.as_str().to_owned()) },
        Actor::Backend => By { kind: ByKind::Backend, user: None },
        Actor::Media => By { kind: ByKind::Media, user: None },
        Actor::Owner => By { kind: ByKind::Owner, user: None },
    };
    let mut what = Vec::new();
    for event in &events {
        tell(event, &events, &mut what);
    }
    Ok(Told { command: Some(id).filter(|id| !id.is_empty()), by: Some(by), recovered: false, what })
}

pub(super) fn settings(body: &str) -> Result<Told, MalformedBody> {
    let SettingsBody { settings, by } = serde_json::from_str(body)?;
    let what = vec![What::SettingsUpdated(SettingsUpdated { patch: settings })];
    Ok(Told { command: None, by: Some(somebody(by)), recovered: false, what })
}

pub(super) fn guests(body: &str) -> Result<Told, MalformedBody> {
    let GuestsBody { guests, by } = serde_json::from_str(body)?;
    let what = guests.into_iter().map(|(user, patch)| What::GuestUpdated(GuestUpdated { user, patch }));
    Ok(Told { command: None, by: Some(somebody(by)), recovered: false, what: what.collect() })
}

pub(super) fn instance(body: &str) -> Result<Told, MalformedBody> {
    let InstanceBody { instance, rooms } = serde_json::from_str(body)?;
    let what = vec![What::InstanceLost(InstanceLost { instance, rooms })];
    Ok(Told { what, ..Told::default() })
}

/// Without a user it is the app's back end.
fn somebody(user: Option<String>) -> By {
    By { kind: if user.is_some() { ByKind::User } else { ByKind::Backend }, user }
}

fn tell(event: &Event, all: &[Event], told: &mut Vec<What>) {
    match event {
        Event::Made { creator, seats, capacity, auto_close, .. } => {
            told.push(What::RoomCreated(RoomCreated {
                creator: creator.as_ref().map(ToString::to_string),
                seats: usize::from(*seats),
                capacity: *capacity,
                auto_close: *auto_close,
            }));
        }
        Event::Failed => told.push(closed(Closing::CreateFailed, None)),
        Event::Closed { reason } => told.push(closed(Closing::Closed, reason.as_deref())),
        Event::Reopened { capacity, auto_close, .. } => {
            told.push(What::RoomReopened(RoomReopened { capacity: *capacity, auto_close: *auto_close }));
        }
        Event::Joined { peer, arrived: true, .. } => told.push(joined(peer)),
        Event::Left { user, reason, .. } => {
            if *reason == LeaveReason::Kicked {
                let ban = all.iter().find_map(|event| match event {
                    Event::Banned { user: banned, ban } if banned == user => Some(ban),
                    _ => None,
                });
                let reason = ban.and_then(|ban| ban.reason.as_deref()).map(str::to_owned);
                told.push(What::UserKicked(UserKicked { user: user.to_string(), reason }));
            }
            told.push(left(user.as_str(), leaving(*reason)));
        }
        Event::Banned { user, ban } => told.push(banned(user.as_str(), ban)),
        Event::Unbanned { user } => told.push(What::UserUnbanned(UserUnbanned { user: user.to_string() })),
        Event::Confirmed { seat, user, session, heard_ms: None, .. }
        | Event::SeatMoved {
            to: seat,
            user,
            session,
            speaking: Speaking::Publishing { .. },
            heard_ms: None,
            ..
        } => told.push(mic_started(*seat, user.as_str(), session.as_str())),
        Event::SeatFreed { seat, user, session, reason, heard_ms: Some(heard_ms), .. } => {
            let (user, session) = (user.as_str(), session.as_str());
            told.push(mic_ended(*seat, user, session, mic_ending(*reason), *heard_ms));
        }
        Event::CallStarted { call } => told.push(call_started(call)),
        Event::CallAccepted { call, by, .. } => {
            told.push(What::CallAccepted(CallAccepted { call: call.to_string(), user: by.to_string() }));
        }
        Event::CallEnded { call, state, by, reason, .. } => {
            let user = by.as_ref().map(ToString::to_string);
            told.extend(call_over(*state, call.as_str(), user, reason.map(call_ending)));
        }
        // Nothing begins or ends with these, or nothing that the outside keeps account of.
        Event::Joined { arrived: false, .. }
        | Event::Confirmed { heard_ms: Some(_), .. }
        | Event::SeatMoved { .. }
        | Event::SeatFreed { heard_ms: None, .. }
        | Event::Opened
        | Event::Closing { .. }
        | Event::PeerEnded { .. }
        | Event::PeerUpdated { .. }
        | Event::TokenAllows { .. }
        | Event::RoleChanged { .. }
        | Event::DoorLocked { .. }
        | Event::SeatTaken { .. }
        | Event::SeatKept { .. }
        | Event::SeatLocked { .. }
        | Event::Muted { .. }
        | Event::SeatsSet { .. }
        | Event::Requested { .. }
        | Event::RequestEnded { .. }
        | Event::Invited { .. }
        | Event::InviteEnded { .. }
        | Event::CallDeclinedBy { .. }
        | Event::Heard { .. }
        | Event::RouterMade { .. }
        | Event::RouterDropped
        | Event::Awaited { .. }
        | Event::Owed { .. }
        | Event::DutyDone { .. }
        | Event::Shifted { .. } => {}
    }
}

pub(super) fn closed(how: Closing, reason: Option<&str>) -> What {
    What::RoomClosed(RoomClosed { how, reason: reason.map(str::to_owned) })
}

pub(super) fn joined(peer: &Peer) -> What {
    What::UserJoined(UserJoined {
        user: peer.user.to_string(),
        peer: peer.peer.to_string(),
        role: match peer.role {
            Role::Guest => "guest",
            Role::Host => "host",
        },
        name: peer.name.as_deref().map(str::to_owned),
    })
}

pub(super) fn left(user: &str, reason: Leaving) -> What {
    What::UserLeft(UserLeft { user: user.to_owned(), reason })
}

pub(super) fn banned(user: &str, ban: &Ban) -> What {
    What::UserBanned(UserBanned {
        user: user.to_owned(),
        until: ban.until.map(|until| rfc3339(until.0)),
        reason: ban.reason.as_deref().map(str::to_owned),
    })
}

pub(super) fn mic_started(seat: u16, user: &str, session: &str) -> What {
    What::MicStarted(MicStarted { user: user.to_owned(), seat, session: session.to_owned() })
}

pub(super) fn mic_ended(seat: u16, user: &str, session: &str, reason: MicEnding, duration_ms: u64) -> What {
    let (user, session) = (user.to_owned(), session.to_owned());
    What::MicEnded(MicEnded { user, seat, session, reason, duration_ms })
}

pub(super) fn call_started(call: &Call) -> What {
    What::CallStarted(CallStarted {
        call: call.id.to_string(),
        from: call.from.to_string(),
        to: call.to.iter().map(ToString::to_string).collect(),
    })
}

/// How a call ended; nothing if it has not.
pub(super) fn call_over(
    state: CallState,
    call: &str,
    user: Option<String>,
    reason: Option<CallEnding>,
) -> Option<What> {
    let over = CallOver { call: call.to_owned(), user, reason };
    Some(match state {
        CallState::Started | CallState::Accepted => return None,
        CallState::Finished => What::CallFinished(over),
        CallState::Disconnected => What::CallDisconnected(over),
        CallState::Missed => What::CallMissed(over),
        CallState::Declined => What::CallDeclined(over),
    })
}

const fn leaving(reason: LeaveReason) -> Leaving {
    match reason {
        LeaveReason::Left => Leaving::Left,
        LeaveReason::StaleLeft => Leaving::StaleLeft,
        LeaveReason::InstanceLost => Leaving::InstanceLost,
        LeaveReason::Kicked => Leaving::Kicked,
        LeaveReason::ClosedLeft => Leaving::ClosedLeft,
    }
}

const fn mic_ending(reason: MicEnd) -> MicEnding {
    match reason {
        MicEnd::Down => MicEnding::Down,
        MicEnd::TakenDown => MicEnding::TakenDown,
        MicEnd::PublishTimeout => MicEnding::PublishTimeout,
        MicEnd::AudioStopped => MicEnding::AudioStopped,
        MicEnd::RoomExited => MicEnding::RoomExited,
        MicEnd::Left => MicEnding::Left,
        MicEnd::StaleLeft => MicEnding::StaleLeft,
        MicEnd::InstanceLost => MicEnding::InstanceLost,
        MicEnd::Kicked => MicEnding::Kicked,
        MicEnd::SeatLocked => MicEnding::SeatLocked,
        MicEnd::SeatRemoved => MicEnding::SeatRemoved,
        MicEnd::RoomClosed => MicEnding::RoomClosed,
    }
}

pub(super) const fn call_ending(reason: CallReason) -> CallEnding {
    match reason {
        CallReason::Cancelled => CallEnding::Cancelled,
        CallReason::Timeout => CallEnding::Timeout,
        CallReason::PartyLeft => CallEnding::PartyLeft,
        CallReason::RoomClosed => CallEnding::RoomClosed,
    }
}
