//! Seats: up, down, moved, confirmed, locked, muted, more and fewer of them.

use super::Draft;
use super::media;
use super::right::Right;
use crate::cell::{Cell, Seat, Sitter, Speaking};
use crate::command::MediaFact;
use crate::event::{AskEnd, ConfirmedBy, Event, MicEnd};
use crate::id::{MicSession, PeerId, SeatNumber, UserId};
use crate::refusal::Refusal;

/// Numbers of the seats that somebody sits on.
pub(super) fn taken(cell: &Cell) -> Vec<SeatNumber> {
    cell.seats.iter().filter(|(_, seat)| seat.sitter.is_some()).map(|(number, _)| *number).collect()
}

/// Ends a mic session, if there is one on that seat.
pub(super) fn free(draft: &mut Draft<'_>, seat: SeatNumber, reason: MicEnd) {
    let sitter = draft.cell.seats.get(&seat).and_then(|seat| seat.sitter.as_ref());
    let Some(sitter) = sitter else { return };
    let (user, session, at) = (sitter.user.clone(), sitter.session.clone(), draft.now);
    let heard_ms = sitter.heard_by(at);
    draft.push(Event::SeatFreed { seat, user, session, reason, at, heard_ms });
}

/// Somebody who goes up, and how that ends what they asked for or were asked.
pub(super) struct Climb<'a> {
    pub(super) user: UserId,
    pub(super) peer: PeerId,
    pub(super) session: &'a MicSession,
    pub(super) request: AskEnd,
    pub(super) invite: AskEnd,
}

impl Climb<'_> {
    /// Takes `seat`, which is free. Audio that flows already confirms it at once.
    pub(super) fn onto(self, draft: &mut Draft<'_>, seat: SeatNumber) {
        let Self { user, peer, session, request, invite } = self;
        let flowing = media::flows(&draft.cell, &user, &peer);
        let event = Event::SeatTaken {
            seat,
            user: user.clone(),
            peer,
            session: session.clone(),
            version: draft.cell.version.saturating_add(1),
            at: draft.now,
            deadline: draft.now.after(draft.rules.publish_deadline_ms),
        };
        draft.push(event);
        if draft.cell.requests.contains_key(&user) {
            draft.push(Event::RequestEnded { user: user.clone(), how: request });
        }
        if draft.cell.invites.contains_key(&user) {
            draft.push(Event::InviteEnded { user, how: invite });
        }
        if flowing {
            heard_on(draft, seat, ConfirmedBy::Media);
        }
    }
}

/// Confirms whoever waits on a seat.
pub(super) fn heard_on(draft: &mut Draft<'_>, seat: SeatNumber, by: ConfirmedBy) {
    let sitter = draft.cell.seats.get(&seat).and_then(|seat| seat.sitter.as_ref());
    let Some(sitter) = sitter.filter(|it| matches!(it.speaking, Speaking::PendingPublish { .. })) else {
        return;
    };
    let (user, session, at) = (sitter.user.clone(), sitter.session.clone(), draft.now);
    let heard_ms = sitter.heard_ms;
    draft.push(Event::Confirmed { seat, user, session, by, at, heard_ms });
}

pub(super) fn up(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    named: Option<&UserId>,
    seat: Option<SeatNumber>,
    session: &MicSession,
) -> Result<(), Refusal> {
    let (user, peer) = right.target(&draft.cell, named)?;
    if draft.cell.seat_of(user.as_str()).is_some() {
        return Err(Refusal::AlreadySeated);
    }
    if session_stands(&draft.cell, session) {
        return Err(Refusal::StaleSession);
    }
    let seat = match seat {
        Some(seat) => free_seat(&draft.cell, seat).map(|()| seat)?,
        None => first_free(&draft.cell)?,
    };
    let climb = Climb { user, peer, session, request: AskEnd::Seated, invite: AskEnd::Accepted };
    climb.onto(draft, seat);
    Ok(())
}

/// Whether somebody sits with this session already: a session is one use of one seat.
pub(super) fn session_stands(cell: &Cell, session: &MicSession) -> bool {
    cell.seats.values().filter_map(|seat| seat.sitter.as_ref()).any(|sitter| sitter.session == *session)
}

/// Refuses a seat that cannot be taken.
pub(super) fn free_seat(cell: &Cell, number: SeatNumber) -> Result<(), Refusal> {
    match cell.seats.get(&number) {
        None => Err(Refusal::NoSuchSeat { seat: number }),
        Some(Seat { sitter: Some(_), .. }) => Err(Refusal::SeatTaken),
        Some(Seat { locked: true, .. }) => Err(Refusal::SeatLocked),
        Some(_) => Ok(()),
    }
}

pub(super) fn first_free(cell: &Cell) -> Result<SeatNumber, Refusal> {
    let mut free = cell.seats.iter().filter(|(_, seat)| !seat.locked && seat.sitter.is_none());
    free.next().map(|(number, _)| *number).ok_or(Refusal::NoFreeSeat)
}

fn seat_of(cell: &Cell, user: &UserId) -> Result<(SeatNumber, Sitter), Refusal> {
    let seat = cell.seat_of(user.as_str()).map(|(number, sitter)| (number, sitter.clone()));
    seat.ok_or(Refusal::NotSeated)
}

pub(super) fn down(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    named: Option<&UserId>,
    session: Option<&MicSession>,
) -> Result<(), Refusal> {
    let (user, _) = right.target(&draft.cell, named)?;
    let (number, sitter) = seat_of(&draft.cell, &user)?;
    if session.is_some_and(|session| *session != sitter.session) {
        return Err(Refusal::StaleSession);
    }
    free(draft, number, if right.is(&user) { MicEnd::Down } else { MicEnd::TakenDown });
    Ok(())
}

pub(super) fn change(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    named: Option<&UserId>,
    to: SeatNumber,
    flowing: bool,
) -> Result<(), Refusal> {
    let (user, _) = right.target(&draft.cell, named)?;
    let (from, sitter) = seat_of(&draft.cell, &user)?;
    if from == to {
        return Ok(());
    }
    free_seat(&draft.cell, to)?;
    // A server that cannot say who is heard just now would leave somebody who speaks unconfirmed for good.
    let speaking = match sitter.speaking {
        Speaking::Publishing { since } if flowing || !draft.rules.live_list => Speaking::Publishing { since },
        _ if flowing => Speaking::Publishing { since: draft.now },
        _ => Speaking::PendingPublish { deadline: draft.now.after(draft.rules.publish_deadline_ms) },
    };
    let heard_ms = sitter.heard_by(draft.now);
    draft.push(Event::SeatMoved { from, to, user, session: sitter.session, speaking, heard_ms });
    Ok(())
}

pub(super) fn confirm(draft: &mut Draft<'_>, right: &Right<'_>, session: &MicSession) -> Result<(), Refusal> {
    let (user, _) = right.member(&draft.cell)?;
    let (number, sitter) = seat_of(&draft.cell, user)?;
    if sitter.session != *session {
        return Err(Refusal::StaleSession);
    }
    heard_on(draft, number, ConfirmedBy::Client);
    Ok(())
}

pub(super) fn lock(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    number: SeatNumber,
    locked: bool,
    force: bool,
) -> Result<(), Refusal> {
    right.host()?;
    let seat = draft.cell.seats.get(&number).ok_or(Refusal::NoSuchSeat { seat: number })?;
    if seat.locked == locked {
        return Ok(());
    }
    if locked && seat.sitter.is_some() {
        if !force {
            return Err(Refusal::SeatTaken);
        }
        free(draft, number, MicEnd::SeatLocked);
    }
    draft.push(Event::SeatLocked { seat: number, locked });
    Ok(())
}

pub(super) fn mute(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    named: Option<&UserId>,
    muted: bool,
) -> Result<(), Refusal> {
    let (user, _) = right.target(&draft.cell, named)?;
    let (seat, sitter) = seat_of(&draft.cell, &user)?;
    if sitter.muted != muted {
        draft.push(Event::Muted { seat, user, muted });
        await_unmuted(draft, seat);
    }
    Ok(())
}

/// An external media server was told to let nothing through of who was muted: they have to be heard again.
fn await_unmuted(draft: &mut Draft<'_>, seat: SeatNumber) {
    let sitter = draft.cell.seats.get(&seat).and_then(|seat| seat.sitter.as_ref());
    let Some(sitter) = sitter.filter(|sitter| !sitter.muted) else { return };
    let stopped = sitter.heard.as_ref().is_some_and(|heard| heard.what == MediaFact::AudioStopped);
    if draft.rules.live_list || stopped {
        await_again(draft, seat);
    }
}

/// Whoever was heard through an external media server has the whole time to be heard there again.
pub(super) fn await_again(draft: &mut Draft<'_>, seat: SeatNumber) {
    let sitter = draft.cell.seats.get(&seat).and_then(|seat| seat.sitter.as_ref());
    let is_heard = |sitter: &&Sitter| matches!(sitter.speaking, Speaking::Publishing { .. });
    let Some(sitter) = sitter.filter(is_heard).filter(|_| draft.rules.external_media) else { return };
    let (user, session) = (sitter.user.clone(), sitter.session.clone());
    let (deadline, heard_ms) = (draft.now.after(draft.rules.publish_deadline_ms), sitter.heard_by(draft.now));
    draft.push(Event::Awaited { seat, user, session, deadline, heard_ms });
}

pub(super) fn mute_all(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    muted: bool,
    except: &[UserId],
) -> Result<(), Refusal> {
    right.host()?;
    for seat in taken(&draft.cell) {
        let sitter = draft.cell.seats.get(&seat).and_then(|seat| seat.sitter.as_ref());
        let differs = sitter.filter(|sitter| sitter.muted != muted && !except.contains(&sitter.user));
        if let Some(user) = differs.map(|sitter| sitter.user.clone()) {
            draft.push(Event::Muted { seat, user, muted });
            await_unmuted(draft, seat);
        }
    }
    Ok(())
}

pub(super) fn set_count(draft: &mut Draft<'_>, right: &Right<'_>, count: u16) -> Result<(), Refusal> {
    right.host()?;
    if draft.cell.seats.len() == usize::from(count) {
        return Ok(());
    }
    for number in taken(&draft.cell).into_iter().filter(|number| *number > count) {
        free(draft, number, MicEnd::SeatRemoved);
    }
    draft.push(Event::SeatsSet { count });
    Ok(())
}
