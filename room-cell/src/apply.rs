//! What an event does to a cell. Every event can be applied to every cell: one that does not fit changes
//! nothing, so a log can be replayed whatever it holds.

use std::ops::Bound;
use std::sync::Arc;

use crate::cell::{Asked, CallState, Cell, Heard, MediaIdentity, Peer, Role, Seat, Sitter, Speaking, Status};
use crate::event::{Event, MicEnd};
use crate::id::{Millis, PeerId, SeatNumber, UserId};
use crate::router::{Duty, Owed};

impl Cell {
    /// Takes in the events of one command, and raises the version by one if there are any.
    pub fn advance(&mut self, events: &[Event]) {
        for event in events {
            apply(self, event);
        }
        if !events.is_empty() {
            self.version = self.version.saturating_add(1);
        }
    }
}

/// Does one event to a cell. It leaves the version alone: that counts commands.
pub fn apply(cell: &mut Cell, event: &Event) {
    match event {
        Event::Made { creator, seats, capacity, auto_close, deadline } => {
            *cell = Cell {
                status: opening(*deadline, false),
                creator: creator.clone(),
                capacity: *capacity,
                auto_close: *auto_close,
                ..anew(cell)
            };
            set_seats(cell, *seats);
        }
        Event::Opened => cell.status = Status::Active,
        Event::Failed => *cell = anew(cell),
        Event::Closing { deadline, reason } => {
            cell.status = Status::Closing { deadline: *deadline, reason: reason.clone() };
            // With the router goes everybody in it.
            drop_duties(cell);
        }
        Event::Closed { .. } => {
            cell.status = Status::Closed;
            drop_router(cell);
        }
        Event::Reopened { capacity, auto_close, deadline } => {
            cell.status = opening(*deadline, true);
            cell.capacity = *capacity;
            cell.auto_close = *auto_close;
            cell.used = false;
        }
        Event::Shifted { by_ms } => shift(cell, *by_ms),
        Event::Joined { .. }
        | Event::PeerEnded { .. }
        | Event::Left { .. }
        | Event::PeerUpdated { .. }
        | Event::TokenAllows { .. }
        | Event::RoleChanged { .. } => presence(cell, event),
        Event::DoorLocked { locked } => cell.locked = *locked,
        Event::Banned { user, ban } => {
            cell.bans.insert(user.clone(), ban.clone());
        }
        Event::Unbanned { user } => {
            cell.bans.remove(user);
        }
        Event::Requested { user, seat, at } => {
            cell.requests.insert(user.clone(), Asked { seat: *seat, at: *at });
        }
        Event::RequestEnded { user, .. } => {
            cell.requests.remove(user);
        }
        Event::Invited { user, seat, at } => {
            cell.invites.insert(user.clone(), Asked { seat: *seat, at: *at });
        }
        Event::InviteEnded { user, .. } => {
            cell.invites.remove(user);
        }
        Event::CallStarted { .. }
        | Event::CallAccepted { .. }
        | Event::CallDeclinedBy { .. }
        | Event::CallEnded { .. } => call(cell, event),
        Event::Heard { who, heard, session } => {
            cell.media.insert(who.clone(), heard.clone());
            let sitter = cell.seat_of(who.user.as_str());
            let seat = sitter.filter(|(_, sitter)| Some(&sitter.session) == session.as_ref());
            if let Some((number, _)) = seat {
                with_sitter(cell, number, |sitter| sitter.heard = Some(heard.clone()));
            }
        }
        Event::RouterMade { .. } | Event::RouterDropped | Event::Owed { .. } | Event::DutyDone { .. } => {
            router(cell, event);
        }
        Event::Awaited { seat, deadline, heard_ms, .. } => with_sitter(cell, *seat, |sitter| {
            sitter.speaking = Speaking::PendingPublish { deadline: *deadline };
            sitter.heard_ms = *heard_ms;
        }),
        Event::SeatTaken { .. }
        | Event::SeatFreed { .. }
        | Event::SeatMoved { .. }
        | Event::SeatKept { .. }
        | Event::Confirmed { .. }
        | Event::SeatLocked { .. }
        | Event::Muted { .. }
        | Event::SeatsSet { .. } => seats(cell, event),
    }
}

/// What outlasts a room that is made again: versions, generations, and what media servers are owed.
fn anew(cell: &Cell) -> Cell {
    Cell {
        version: cell.version,
        router_generation: cell.router_generation,
        duties: cell.duties.clone(),
        ..Cell::default()
    }
}

fn router(cell: &mut Cell, event: &Event) {
    match event {
        Event::RouterMade { router } => {
            drop_router(cell);
            cell.router_generation = cell.router_generation.max(router.generation);
            cell.router = Some(router.clone());
        }
        Event::RouterDropped => drop_router(cell),
        Event::Owed { duty, version, at } => {
            let since = cell.duties.get(duty).map_or(*at, |owed| owed.since);
            cell.duties.insert(duty.clone(), Owed { since, version: *version });
        }
        Event::DutyDone { duty } => {
            cell.duties.remove(duty);
        }
        _ => {}
    }
}

/// With a router goes everybody in it, and what was heard of them.
fn drop_router(cell: &mut Cell) {
    cell.router = None;
    drop_duties(cell);
    cell.media.clear();
    let heard =
        cell.seats.iter().filter(|(_, seat)| seat.sitter.as_ref().is_some_and(|it| it.heard.is_some()));
    let heard: Vec<SeatNumber> = heard.map(|(number, _)| *number).collect();
    for number in heard {
        with_sitter(cell, number, |sitter| sitter.heard = None);
    }
}

fn drop_duties(cell: &mut Cell) {
    let of_people: Vec<Duty> = cell.duties.keys().filter(|duty| duty.is_of_people()).cloned().collect();
    for duty in of_people {
        cell.duties.remove(&duty);
    }
}

fn opening(deadline: Option<Millis>, reopened: bool) -> Status {
    deadline.map_or(Status::Active, |deadline| Status::Creating { deadline, reopened })
}

fn shift(cell: &mut Cell, by_ms: u64) {
    if let Status::Creating { deadline, .. } | Status::Closing { deadline, .. } = &mut cell.status {
        *deadline = deadline.after(by_ms);
    }
    let pending = cell.seats.iter().filter(|(_, seat)| {
        seat.sitter.as_ref().is_some_and(|it| matches!(it.speaking, Speaking::PendingPublish { .. }))
    });
    let pending: Vec<SeatNumber> = pending.map(|(number, _)| *number).collect();
    for number in pending {
        with_sitter(cell, number, |sitter| {
            if let Speaking::PendingPublish { deadline } = &mut sitter.speaking {
                *deadline = deadline.after(by_ms);
            }
        });
    }
    if let Some(deadline) = cell.call.as_mut().and_then(|call| call.deadline.as_mut()) {
        *deadline = deadline.after(by_ms);
    }
}

fn presence(cell: &mut Cell, event: &Event) {
    match event {
        Event::Joined { peer, replaced, .. } => {
            cell.used = true;
            joined(cell, peer, replaced);
        }
        Event::PeerEnded { peer, user, .. } => end_peer(cell, peer, user),
        Event::Left { user, .. } => left(cell, user),
        Event::PeerUpdated { peer, attributes, .. } => {
            with_peer(cell, peer, |peer| peer.attributes = attributes.clone());
        }
        Event::TokenAllows { peer, max_role } => with_peer(cell, peer, |peer| peer.max_role = *max_role),
        Event::RoleChanged { user, role, given } => {
            if *given {
                cell.roles.insert(user.clone(), *role);
            }
            set_role(cell, user, *role);
        }
        _ => {}
    }
}

fn joined(cell: &mut Cell, peer: &Arc<Peer>, replaced: &[PeerId]) {
    for ended in replaced {
        let heard = cell.media.remove(&MediaIdentity { user: peer.user.clone(), peer: Some(ended.clone()) });
        let goes_on =
            peer.media.is_some() && cell.peer(ended.as_str()).is_some_and(|it| it.media == peer.media);
        if let Some(heard) = heard.filter(|_| goes_on) {
            cell.media
                .insert(MediaIdentity { user: peer.user.clone(), peer: Some(peer.peer.clone()) }, heard);
        }
        forget_peer(cell, &peer.user, ended);
    }
    let presence = cell.users.entry(peer.user.clone()).or_default();
    presence.peers.retain(|it| !replaced.contains(&it.peer));
    let place = presence.peers.partition_point(|it| (it.since, &it.peer) < (peer.since, &peer.peer));
    presence.peers.insert(place, Arc::clone(peer));
    cell.peers.insert(peer.peer.clone(), peer.user.clone());
    if let Some(name) = &peer.media {
        cell.duties.remove(&Duty::Remove { name: Arc::clone(name) });
    }
    set_role(cell, &peer.user, peer.role);
}

fn forget_peer(cell: &mut Cell, user: &UserId, peer: &PeerId) {
    cell.peers.remove(peer);
    cell.duties.remove(&Duty::Permit { user: user.clone(), peer: peer.clone() });
}

fn end_peer(cell: &mut Cell, peer: &PeerId, user: &UserId) {
    forget_peer(cell, user, peer);
    let Some(presence) = cell.users.get_mut(user) else { return };
    presence.peers.retain(|it| it.peer != *peer);
    if presence.peers.is_empty() {
        left(cell, user);
        return;
    }
    cell.media.remove(&MediaIdentity { user: user.clone(), peer: Some(peer.clone()) });
}

fn left(cell: &mut Cell, user: &UserId) {
    for peer in cell.users.remove(user).into_iter().flat_map(|presence| presence.peers) {
        forget_peer(cell, user, &peer.peer);
    }
    for identity in identities(cell, user) {
        cell.media.remove(&identity);
    }
    cell.freed.remove(user);
}

/// All that the media server calls a user.
fn identities(cell: &Cell, user: &UserId) -> Vec<MediaIdentity> {
    let first = MediaIdentity { user: user.clone(), peer: None };
    let of_user = cell.media.range(first..).take_while(|(who, _)| who.user == *user);
    of_user.map(|(who, _)| who.clone()).collect()
}

fn set_role(cell: &mut Cell, user: &UserId, role: Role) {
    let Some(presence) = cell.users.get_mut(user) else { return };
    for peer in presence.peers.iter_mut().filter(|peer| peer.role != role) {
        Arc::make_mut(peer).role = role;
    }
}

fn with_peer(cell: &mut Cell, peer: &PeerId, change: impl FnOnce(&mut Peer)) {
    let Some(user) = cell.peers.get(peer) else { return };
    let Some(presence) = cell.users.get_mut(user) else { return };
    if let Some(found) = presence.peers.iter_mut().find(|it| it.peer == *peer) {
        change(Arc::make_mut(found));
    }
}

fn seats(cell: &mut Cell, event: &Event) {
    match event {
        Event::SeatTaken { seat, user, peer, session, version, at, deadline } => {
            let sitter = Sitter {
                user: user.clone(),
                peer: peer.clone(),
                session: session.clone(),
                version: *version,
                started_at: *at,
                speaking: Speaking::PendingPublish { deadline: *deadline },
                muted: false,
                heard: None,
                heard_ms: None,
            };
            with_seat(cell, *seat, |seat| seat.sitter = Some(sitter));
        }
        Event::SeatFreed { seat, user, reason, at, .. } => {
            with_seat(cell, *seat, |seat| seat.sitter = None);
            silent(cell, user, *reason, *at);
        }
        Event::SeatMoved { from, to, speaking, heard_ms, .. } => {
            if !cell.seats.contains_key(to) {
                return;
            }
            let sitter = cell.seats.get_mut(from).and_then(|seat| seat.sitter.take());
            if let Some(sitter) = sitter {
                // Heard on without a break it goes on from where it began.
                let heard_ms = match speaking {
                    Speaking::Publishing { .. } => sitter.heard_ms,
                    Speaking::PendingPublish { .. } => *heard_ms,
                };
                let sitter = Sitter { speaking: *speaking, heard_ms, ..sitter };
                with_seat(cell, *to, |seat| seat.sitter = Some(sitter));
            }
        }
        Event::SeatKept { seat, peer, .. } => {
            with_sitter(cell, *seat, |sitter| sitter.peer = peer.clone());
        }
        Event::Confirmed { seat, at, .. } => {
            with_sitter(cell, *seat, |sitter| sitter.speaking = Speaking::Publishing { since: *at });
        }
        Event::SeatLocked { seat, locked } => with_seat(cell, *seat, |seat| seat.locked = *locked),
        Event::Muted { seat, muted, .. } => with_sitter(cell, *seat, |sitter| sitter.muted = *muted),
        Event::SeatsSet { count } => set_seats(cell, *count),
        _ => {}
    }
}

/// After a mic session nothing of what the media server said before counts as audio for the next.
fn silent(cell: &mut Cell, user: &UserId, reason: MicEnd, at: Millis) {
    let identities = identities(cell, user);
    // What the media server ended was over when it happened, not when the report came.
    let said = identities.iter().filter_map(|who| cell.media.get(who)).map(|heard| heard.from).max();
    let said = said.filter(|_| matches!(reason, MicEnd::AudioStopped | MicEnd::RoomExited));
    if cell.users.contains_key(user) {
        cell.freed.insert(user.clone(), said.map_or(at, |said| said.min(at)));
    }
    for identity in identities {
        if cell.media.get(&identity).is_some_and(|heard| heard.flowing)
            && let Some(heard) = cell.media.get_mut(&identity)
        {
            *heard = Heard { flowing: false, ..heard.clone() };
        }
    }
}

fn set_seats(cell: &mut Cell, count: u16) {
    let beyond = cell.seats.range((Bound::Excluded(count), Bound::Unbounded));
    let beyond: Vec<SeatNumber> = beyond.map(|(number, _)| *number).collect();
    for number in beyond {
        cell.seats.remove(&number);
    }
    for number in 1..=count {
        if !cell.seats.contains_key(&number) {
            cell.seats.insert(number, Seat::default());
        }
    }
}

fn with_seat(cell: &mut Cell, number: SeatNumber, change: impl FnOnce(&mut Seat)) {
    if let Some(seat) = cell.seats.get_mut(&number) {
        change(seat);
    }
}

fn with_sitter(cell: &mut Cell, number: SeatNumber, change: impl FnOnce(&mut Sitter)) {
    with_seat(cell, number, |seat| {
        if let Some(sitter) = seat.sitter.as_mut() {
            change(sitter);
        }
    });
}

fn call(cell: &mut Cell, event: &Event) {
    if let Event::CallStarted { call } = event {
        cell.call = Some(call.clone());
        return;
    }
    let Some(standing) = cell.call.as_mut() else { return };
    match event {
        Event::CallAccepted { call, by, at } if standing.id == *call => {
            standing.state = CallState::Accepted;
            standing.accepted_by = Some(by.clone());
            standing.at = *at;
            standing.deadline = None;
        }
        Event::CallDeclinedBy { call, by } if standing.id == *call => standing.declined_by.push(by.clone()),
        Event::CallEnded { call, state, by, reason, at } if standing.id == *call => {
            if *state == CallState::Declined {
                standing.declined_by.extend(by.clone());
            }
            standing.state = *state;
            standing.reason = *reason;
            standing.at = *at;
            standing.deadline = None;
        }
        _ => {}
    }
}
