//! The router at an external media server: made, left behind, and what is owed to it.
//!
//! What a command owes to the media server is found by comparing the cell before and after it, in one place, so
//! that no way of ending a peer or changing what somebody may say can be forgotten.

use std::sync::Arc;

use super::Draft;
use crate::cell::{Cell, Presence, Speaking, Status};
use crate::command::MediaFact;
use crate::event::Event;
use crate::id::{PeerId, UserId};
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
        waits.then(|| (*number, sitter.user.clone(), sitter.session.clone()))
    });
    let awaited: Vec<_> = sitters.collect();
    for (seat, user, session) in awaited {
        draft.push(Event::Awaited { seat, user, session, deadline });
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
        owe(draft, duty);
    }
}

pub(super) fn done(draft: &mut Draft<'_>, done: &[(Duty, u64)]) {
    for (duty, version) in done {
        if draft.cell.duties.get(duty).is_some_and(|owed| owed.version == *version) {
            draft.push(Event::DutyDone { duty: duty.clone() });
        }
    }
}

fn owe(draft: &mut Draft<'_>, duty: Duty) {
    let (version, at) = (draft.cell.version + 1, draft.now);
    draft.push(Event::Owed { duty, version, at });
}

/// What the command of `draft` owes to the media server, `before` being the cell without it.
pub(super) fn follow(draft: &mut Draft<'_>, before: &Cell) {
    let has_router = draft.cell.router.is_some() && draft.cell.status == Status::Active;
    if !draft.rules.external_media || !has_router || draft.events.is_empty() {
        return;
    }
    let mut permits: Vec<UserId> = Vec::new();
    for event in &draft.events {
        match event {
            Event::RoleChanged { user, .. } => permits.push(user.clone()),
            // Who joins again with another role has it on every device.
            Event::Joined { peer, arrived: false, .. } => {
                let was = before.users.get(&peer.user).map(Presence::role);
                permits.extend((was != Some(peer.role)).then(|| peer.user.clone()));
            }
            // What it was granted may be older than its seat.
            Event::Heard { who, heard, .. } if heard.what == MediaFact::ParticipantJoined => {
                permits.push(who.user.clone());
            }
            _ => {}
        }
    }
    if !before.seats.ptr_eq(&draft.cell.seats) {
        let seated = |cell: &Cell| -> Vec<(UserId, PeerId, bool)> {
            let sitters = cell.seats.values().filter_map(|seat| seat.sitter.as_ref());
            let mut seated: Vec<_> = sitters.map(|it| (it.user.clone(), it.peer.clone(), it.muted)).collect();
            seated.sort();
            seated
        };
        let (was, is) = (seated(before), seated(&draft.cell));
        let differ = was.iter().filter(|it| !is.contains(it)).chain(is.iter().filter(|it| !was.contains(it)));
        permits.extend(differ.map(|(user, _, _)| user.clone()));
    }
    permits.sort();
    permits.dedup();
    if !before.peers.ptr_eq(&draft.cell.peers) {
        let ended = before.peers.iter().filter(|(peer, _)| !draft.cell.peers.contains_key(*peer));
        let ended: Vec<_> = ended.map(|(peer, user)| (user.clone(), peer.clone())).collect();
        for (user, peer) in ended {
            owe(draft, Duty::Remove { user, peer });
        }
    }
    for user in permits {
        let peers = draft.cell.users.get(&user).map(|presence| presence.peers.clone()).unwrap_or_default();
        for peer in peers {
            owe(draft, Duty::Permit { user: user.clone(), peer: peer.peer.clone() });
        }
    }
}
