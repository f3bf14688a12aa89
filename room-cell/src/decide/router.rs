//! The router at an external media server: made, and left behind.

use std::sync::Arc;

use super::{Draft, duties};
use crate::cell::{Speaking, Status};
use crate::event::Event;
use crate::refusal::Refusal;
use crate::router::{Duty, RouterRecord};

pub(super) fn made(
    draft: &mut Draft<'_>,
    node: &Arc<str>,
    name: &Arc<str>,
    generation: u64,
) -> Result<(), Refusal> {
    takes_routers(draft)?;
    if generation <= draft.cell.router_generation {
        return Err(Refusal::StaleRouter);
    }
    leave(draft);
    let (node, name, since) = (Arc::clone(node), Arc::clone(name), draft.now);
    draft.push(Event::RouterMade { router: RouterRecord { node, name, generation, since } });
    // Nobody is heard in the new router yet; whoever sat stays, and has the whole time to be.
    let deadline = draft.now.after(draft.rules.publish_deadline_ms);
    let sitters = draft.cell.seats.iter().filter_map(|(number, seat)| {
        let sitter = seat.sitter.as_ref()?;
        let waits = match sitter.speaking {
            Speaking::Publishing { .. } => true,
            Speaking::PendingPublish { deadline: earlier } => earlier < deadline,
        };
        let (user, session) = (sitter.user.clone(), sitter.session.clone());
        let heard_ms = sitter.heard_by(draft.now);
        waits.then_some(Event::Awaited { seat: *number, user, session, deadline, heard_ms })
    });
    let awaited: Vec<_> = sitters.collect();
    for event in awaited {
        draft.push(event);
    }
    Ok(())
}

fn takes_routers(draft: &Draft<'_>) -> Result<(), Refusal> {
    match draft.cell.status {
        Status::Creating { .. } | Status::Active => Ok(()),
        Status::Absent => Err(Refusal::NoRoom),
        Status::Closing { .. } | Status::Closed => Err(Refusal::RoomClosed),
    }
}

pub(super) fn dropped(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    takes_routers(draft)?;
    leave(draft);
    Ok(())
}

/// Gives up the present router, if there is one: it is to be ended.
pub(super) fn leave(draft: &mut Draft<'_>) {
    if let Some(duty) = draft.cell.router.as_ref().map(Duty::close) {
        draft.push(Event::RouterDropped);
        duties::owe(draft, duty);
    }
}
