//! The room itself: made, opened, closed, opened again.

use std::sync::Arc;

use super::right::Right;
use super::{Draft, active, call, router, seats};
use crate::cell::{CallReason, Status};
use crate::command::Actor;
use crate::event::{AskEnd, Event, LeaveReason, MicEnd};
use crate::id::Millis;
use crate::refusal::Refusal;

pub(super) fn create(
    draft: &mut Draft<'_>,
    actor: &Actor,
    seats: u16,
    capacity: Option<u32>,
    auto_close: bool,
) -> Result<(), Refusal> {
    let creator = match actor {
        Actor::User { user, .. } => Some(user.clone()),
        Actor::Backend => None,
        Actor::Media | Actor::Owner => return Err(Refusal::HostsOnly),
    };
    match draft.cell.status {
        Status::Absent => {}
        Status::Creating { .. } | Status::Active => return Err(Refusal::AlreadyMade),
        Status::Closing { .. } | Status::Closed => return Err(Refusal::RoomClosed),
    }
    let deadline = transition(draft);
    draft.push(Event::Made { creator, seats, capacity, auto_close, deadline });
    Ok(())
}

/// When the media server must be done, where there is one to wait for.
fn transition(draft: &Draft<'_>) -> Option<Millis> {
    draft.rules.external_media.then(|| draft.now.after(draft.rules.transition_ms))
}

pub(super) fn created(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    match draft.cell.status {
        Status::Creating { .. } => draft.push(Event::Opened),
        Status::Active => {}
        Status::Absent => return Err(Refusal::NoRoom),
        Status::Closing { .. } | Status::Closed => return Err(Refusal::RoomClosed),
    }
    Ok(())
}

pub(super) fn create_failed(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    if matches!(draft.cell.status, Status::Creating { .. }) {
        router::leave(draft);
    }
    match draft.cell.status {
        Status::Creating { reopened: false, .. } => draft.push(Event::Failed),
        Status::Creating { reopened: true, .. } => draft.push(Event::Closed { reason: None }),
        Status::Active => return Err(Refusal::NotDue),
        Status::Absent => return Err(Refusal::NoRoom),
        Status::Closing { .. } | Status::Closed => return Err(Refusal::RoomClosed),
    }
    Ok(())
}

pub(super) fn close(draft: &mut Draft<'_>, actor: &Actor, reason: Option<Arc<str>>) -> Result<(), Refusal> {
    if *actor != Actor::Owner {
        Right::of(&draft.cell, actor, draft.now)?.host()?;
    }
    match draft.cell.status {
        Status::Absent => return Err(Refusal::NoRoom),
        Status::Creating { .. } | Status::Active => end(draft, reason),
        Status::Closing { .. } | Status::Closed => {}
    }
    Ok(())
}

/// Ends everything in the room, and the room: at once, or when its media router is gone.
pub(super) fn end(draft: &mut Draft<'_>, reason: Option<Arc<str>>) {
    for number in seats::taken(&draft.cell) {
        seats::free(draft, number, MicEnd::RoomClosed);
    }
    let asking: Vec<_> = draft.cell.requests.keys().cloned().collect();
    for user in asking {
        draft.push(Event::RequestEnded { user, how: AskEnd::RoomClosed });
    }
    let invited: Vec<_> = draft.cell.invites.keys().cloned().collect();
    for user in invited {
        draft.push(Event::InviteEnded { user, how: AskEnd::RoomClosed });
    }
    call::cut(draft, None, CallReason::RoomClosed);
    let present: Vec<_> =
        draft.cell.users.iter().map(|(user, it)| (user.clone(), it.peers.clone())).collect();
    for (user, peers) in present {
        let peers = peers.iter().map(|peer| peer.peer.clone()).collect();
        draft.push(Event::Left { user, peers, reason: LeaveReason::ClosedLeft });
    }
    let deadline = transition(draft).filter(|_| draft.cell.router.is_some());
    let event = match deadline {
        Some(deadline) => Event::Closing { deadline, reason },
        None => {
            router::leave(draft);
            Event::Closed { reason }
        }
    };
    draft.push(event);
}

/// Closing took too long: the room closes, and its router is left to be ended.
pub(super) fn closed_late(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    router::leave(draft);
    ended(draft)
}

pub(super) fn ended(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    match &draft.cell.status {
        Status::Closing { reason, .. } => {
            let reason = reason.clone();
            draft.push(Event::Closed { reason });
            Ok(())
        }
        Status::Closed => Ok(()),
        _ => active(&draft.cell).and(Err(Refusal::NotDue)),
    }
}

pub(super) fn reopen(
    draft: &mut Draft<'_>,
    actor: &Actor,
    seats: Option<u16>,
    capacity: Option<u32>,
    auto_close: Option<bool>,
) -> Result<(), Refusal> {
    Right::of(&draft.cell, actor, draft.now)?.host()?;
    match draft.cell.status {
        Status::Closed => {}
        Status::Absent => return Err(Refusal::NoRoom),
        Status::Creating { .. } | Status::Active => return Err(Refusal::AlreadyMade),
        Status::Closing { .. } => return Err(Refusal::RoomClosed),
    }
    let event = Event::Reopened {
        capacity: capacity.or(draft.cell.capacity),
        auto_close: auto_close.unwrap_or(draft.cell.auto_close),
        deadline: transition(draft),
    };
    draft.push(event);
    if let Some(count) = seats.filter(|count| usize::from(*count) != draft.cell.seats.len()) {
        draft.push(Event::SeatsSet { count });
    }
    Ok(())
}
