//! Hands raised, invitations to a seat, and the answers to both.

use super::Draft;
use super::right::Right;
use super::seats::{self, Climb};
use crate::event::{AskEnd, Event};
use crate::id::{MicSession, PeerId, SeatNumber, UserId};
use crate::refusal::Refusal;

pub(super) fn request(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    seat: Option<SeatNumber>,
    withdraw: bool,
) -> Result<(), Refusal> {
    let (user, _) = right.member(&draft.cell)?;
    let standing = draft.cell.requests.get(user);
    if withdraw {
        standing.ok_or(Refusal::NothingAsked)?;
        draft.push(Event::RequestEnded { user: user.clone(), how: AskEnd::Withdrawn });
        return Ok(());
    }
    seat_to_ask_for(draft, user, seat)?;
    if standing.is_none_or(|asked| asked.seat != seat) {
        draft.push(Event::Requested { user: user.clone(), seat, at: draft.now });
    }
    Ok(())
}

pub(super) fn invite(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    user: &UserId,
    seat: Option<SeatNumber>,
) -> Result<(), Refusal> {
    right.host()?;
    if !draft.cell.users.contains_key(user) {
        return Err(Refusal::NotPresent);
    }
    seat_to_ask_for(draft, user, seat)?;
    if draft.cell.invites.get(user).is_none_or(|asked| asked.seat != seat) {
        draft.push(Event::Invited { user: user.clone(), seat, at: draft.now });
    }
    Ok(())
}

fn seat_to_ask_for(draft: &Draft<'_>, user: &UserId, seat: Option<SeatNumber>) -> Result<(), Refusal> {
    if draft.cell.seat_of(user.as_str()).is_some() {
        return Err(Refusal::AlreadySeated);
    }
    match seat.filter(|seat| !draft.cell.seats.contains_key(seat)) {
        Some(seat) => Err(Refusal::NoSuchSeat { seat }),
        None => Ok(()),
    }
}

pub(super) fn respond(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    named: Option<&UserId>,
    accept: bool,
    session: &MicSession,
) -> Result<(), Refusal> {
    let (user, peer, of_request) = match named {
        Some(user) => (user.clone(), asker(draft, right, user)?, true),
        None => {
            let (user, peer) = right.member(&draft.cell)?;
            (user.clone(), peer, false)
        }
    };
    let asked = if of_request { &draft.cell.requests } else { &draft.cell.invites };
    let wanted = asked.get(&user).ok_or(Refusal::NothingAsked)?.seat;
    if !accept {
        let how = AskEnd::Declined;
        draft.push(if of_request {
            Event::RequestEnded { user, how }
        } else {
            Event::InviteEnded { user, how }
        });
        return Ok(());
    }
    if seats::session_stands(&draft.cell, session) {
        return Err(Refusal::StaleSession);
    }
    let wanted = wanted.filter(|seat| seats::free_seat(&draft.cell, *seat).is_ok());
    let seat = wanted.map_or_else(|| seats::first_free(&draft.cell), Ok)?;
    let (request, invite) =
        if of_request { (AskEnd::Accepted, AskEnd::Seated) } else { (AskEnd::Seated, AskEnd::Accepted) };
    Climb { user, peer, session, request, invite }.onto(draft, seat);
    Ok(())
}

/// The connection of whoever asked for a seat; only a host may answer.
fn asker(draft: &Draft<'_>, right: &Right<'_>, user: &UserId) -> Result<PeerId, Refusal> {
    right.host()?;
    let newest = draft.cell.users.get(user).and_then(|presence| presence.newest());
    newest.map(|newest| newest.peer.clone()).ok_or(Refusal::NothingAsked)
}
