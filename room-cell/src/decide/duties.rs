//! What is owed to an external media server.
//!
//! What a command owes is found by comparing the cell before and after it, in one place, so that no way of ending a
//! peer or of changing what somebody may publish can be forgotten.

use imbl::ordmap::DiffItem;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::Draft;
use crate::cell::{Cell, Heard, MediaIdentity, Peer, Seat, Status};
use crate::command::MediaFact;
use crate::event::Event;
use crate::id::UserId;
use crate::router::Duty;

pub(super) fn done(draft: &mut Draft<'_>, done: &[(Duty, u64)]) {
    for (duty, version) in done {
        if draft.cell.duties.get(duty).is_some_and(|owed| owed.version == *version) {
            draft.push(Event::DutyDone { duty: duty.clone() });
        }
    }
}

pub(super) fn owe(draft: &mut Draft<'_>, duty: Duty) {
    let (version, at) = (draft.cell.version.saturating_add(1), draft.now);
    draft.push(Event::Owed { duty, version, at });
}

/// What the command of `draft` owes to the media server, `before` being the cell without it.
pub(super) fn follow(draft: &mut Draft<'_>, before: &Cell) {
    let has_router = draft.cell.router.is_some() && draft.cell.status == Status::Active;
    if !draft.rules.external_media || !has_router || draft.events.is_empty() {
        return;
    }
    let mut owed = BTreeSet::new();
    for item in before.peers.diff(&draft.cell.peers) {
        match item {
            DiffItem::Remove(peer, user) => {
                let name = before.peer(peer.as_str()).and_then(|it| it.media.clone());
                let stays =
                    |name: &Arc<str>| peers(&draft.cell, user).any(|it| it.media.as_ref() == Some(name));
                owed.extend(name.filter(|name| !stays(name)).map(|name| Duty::Remove { name }));
            }
            DiffItem::Add(peer, _) => {
                let came = draft.cell.peer(peer.as_str()).filter(|peer| continues(before, &draft.cell, peer));
                owed.extend(came.map(|it| Duty::Permit { user: it.user.clone(), peer: it.peer.clone() }));
            }
            DiffItem::Update { .. } => {}
        }
    }
    let after = &draft.cell;
    let others = concerned(before, after).into_iter().flat_map(|user| peers(after, user));
    let others = others.filter(|peer| differs(before, after, peer));
    let came = arrivals(before, after).flat_map(|who| {
        let is_meant = |peer: &&Arc<Peer>| {
            // What was heard of whoever is resumed goes on under the new connection.
            let is_known = before.peers.contains_key(&peer.peer);
            is_known && who.peer.as_ref().is_none_or(|meant| *meant == peer.peer)
        };
        peers(after, &who.user).filter(is_meant)
    });
    let permits = others.chain(came);
    owed.extend(permits.map(|peer| Duty::Permit { user: peer.user.clone(), peer: peer.peer.clone() }));
    for duty in owed {
        owe(draft, duty);
    }
}

/// Whether somebody who comes may be at the media server already, with what they were allowed there before.
fn continues(before: &Cell, after: &Cell, peer: &Peer) -> bool {
    let Some(name) = &peer.media else { return false };
    let was = peers(before, &peer.user).find(|was| was.media.as_ref() == Some(name));
    before.duties.contains_key(&Duty::Remove { name: Arc::clone(name) })
        || was.is_some_and(|was| {
            let owed = Duty::Permit { user: was.user.clone(), peer: was.peer.clone() };
            was.role != peer.role
                || before.may_speak(was) != after.may_speak(peer)
                || before.duties.contains_key(&owed)
        })
}

fn peers<'a>(cell: &'a Cell, user: &UserId) -> impl Iterator<Item = &'a Arc<Peer>> + use<'a> {
    cell.users.get(user).into_iter().flat_map(|presence| &presence.peers)
}

/// Whether a peer that was there before may publish something else now. One that is new is granted what it may.
fn differs(before: &Cell, after: &Cell, peer: &Peer) -> bool {
    before
        .peer(peer.peer.as_str())
        .is_some_and(|was| was.role != peer.role || before.may_speak(was) != after.may_speak(peer))
}

/// Users whose presence or seat is another.
fn concerned<'a>(before: &'a Cell, after: &'a Cell) -> BTreeSet<&'a UserId> {
    if before.seats.is_empty() != after.seats.is_empty() {
        return after.users.keys().collect();
    }
    let people = before.users.diff(&after.users).filter_map(|item| match item {
        DiffItem::Update { new: (user, _), .. } => Some(user),
        DiffItem::Add(..) | DiffItem::Remove(..) => None,
    });
    let seats = before.seats.diff(&after.seats).flat_map(|item| match item {
        DiffItem::Update { old: (_, was), new: (_, is) } => [sitter(was), sitter(is)],
        DiffItem::Add(_, seat) | DiffItem::Remove(_, seat) => [sitter(seat), None],
    });
    people.chain(seats.flatten()).collect()
}

fn sitter(seat: &Seat) -> Option<&UserId> {
    seat.sitter.as_ref().map(|sitter| &sitter.user)
}

/// Who was just heard to have come to the media server: what they were granted may be older than their seats.
fn arrivals<'a>(before: &'a Cell, after: &'a Cell) -> impl Iterator<Item = &'a MediaIdentity> {
    before.media.diff(&after.media).filter_map(|item| match item {
        DiffItem::Add(who, said) => comes(None, said).then_some(who),
        DiffItem::Update { old: (_, known), new: (who, said) } => comes(Some(known), said).then_some(who),
        DiffItem::Remove(..) => None,
    })
}

/// Whether this begins a stay. A first report that is overtaken is stale when it arrives: the one before it counts.
fn comes(known: Option<&Heard>, said: &Heard) -> bool {
    let is_other = |known: &Heard| {
        let incarnations = known.incarnation.as_ref().zip(said.incarnation.as_ref());
        known.what == MediaFact::RoomExited || incarnations.is_some_and(|(known, said)| known != said)
    };
    match said.what {
        MediaFact::ParticipantJoined => true,
        MediaFact::AudioStarted | MediaFact::AudioStopped => known.is_none_or(is_other),
        MediaFact::RoomExited | MediaFact::RoomFinished => false,
    }
}
