//! What a batch of commands changed in a cell, as those who look at the room are told.

use room_cell::{Asked, Cell, Event, LeaveReason, SeatNumber, UserId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::peer::{Departure, PeerView};
use super::snapshot::{SeatView, hosts};
use crate::paths::Owner;

/// The parts of a cell that changed, at the end of a batch.
///
/// One body tells them all; it is sent under the name of each kind of part in it, so that who listens to one
/// kind hears of it, and who follows the versions has everything with the first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delta {
    arrived: BTreeSet<UserId>,
    departed: BTreeMap<UserId, LeaveReason>,
    seats: BTreeSet<SeatNumber>,
    gone_seats: bool,
    people: BTreeSet<UserId>,
    returned: BTreeSet<UserId>,
    roles: bool,
    door: bool,
    requests: BTreeSet<UserId>,
    invites: BTreeSet<UserId>,
    call: bool,
    status: bool,
    closed: Option<Option<Arc<str>>>,
}

impl Delta {
    /// What `events` changed.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut delta = Self::default();
        for event in events {
            delta.note(event);
        }
        delta
    }

    /// With whoever came back as somebody who looks another way: the event does not say what they were.
    #[must_use]
    pub fn with_returns(mut self, before: &Cell, after: &Cell) -> Self {
        for user in std::mem::take(&mut self.returned) {
            let (Some(was), Some(is)) = (before.users.get(&user), after.users.get(&user)) else { continue };
            self.roles |= was.role() != is.role();
            if PeerView::of(was) != PeerView::of(is) {
                self.people.insert(user);
            }
        }
        self
    }

    fn note(&mut self, event: &Event) {
        match event {
            // Somebody back within grace, or on another device instead of this one: mostly the same to others.
            Event::Joined { peer, arrived: false, replaced } if !replaced.is_empty() => {
                self.returned.insert(peer.user.clone());
            }
            Event::Joined { peer, .. } => {
                self.departed.remove(&peer.user);
                self.arrived.insert(peer.user.clone());
                self.roles |= peer.role == room_cell::Role::Host;
            }
            Event::PeerEnded { user, .. } => {
                self.arrived.insert(user.clone());
            }
            Event::Left { user, reason, .. } => {
                self.arrived.remove(user);
                self.departed.insert(user.clone(), *reason);
            }
            Event::PeerUpdated { user, .. } => {
                self.people.insert(user.clone());
            }
            Event::RoleChanged { user, .. } => {
                self.people.insert(user.clone());
                self.roles = true;
            }
            Event::DoorLocked { .. } => self.door = true,
            Event::SeatTaken { seat, .. }
            | Event::SeatFreed { seat, .. }
            | Event::SeatKept { seat, .. }
            | Event::Confirmed { seat, .. }
            | Event::Awaited { seat, .. }
            | Event::SeatLocked { seat, .. }
            | Event::Muted { seat, .. } => {
                self.seats.insert(*seat);
            }
            Event::SeatMoved { from, to, .. } => {
                self.seats.extend([*from, *to]);
            }
            Event::SeatsSet { .. } => self.gone_seats = true,
            Event::Requested { user, .. } | Event::RequestEnded { user, .. } => {
                self.requests.insert(user.clone());
            }
            Event::Invited { user, .. } | Event::InviteEnded { user, .. } => {
                self.invites.insert(user.clone());
            }
            Event::CallStarted { .. }
            | Event::CallAccepted { .. }
            | Event::CallDeclinedBy { .. }
            | Event::CallEnded { .. } => self.call = true,
            Event::Shifted { .. } => self.gone_seats = true,
            Event::Made { .. } | Event::Opened | Event::Reopened { .. } | Event::Failed => self.status = true,
            Event::Closing { reason, .. } | Event::Closed { reason } => {
                self.status = true;
                self.closed.get_or_insert_with(|| reason.clone());
            }
            Event::TokenAllows { .. }
            | Event::Banned { .. }
            | Event::Unbanned { .. }
            | Event::Heard { .. }
            | Event::RouterMade { .. }
            | Event::RouterDropped
            | Event::Owed { .. }
            | Event::DutyDone { .. } => {}
        }
    }

    /// Whether nothing but presence changed: that may be told later, with what follows.
    pub fn is_presence_alone(&self) -> bool {
        let presence = Self {
            arrived: self.arrived.clone(),
            departed: self.departed.clone(),
            roles: self.roles,
            ..Self::default()
        };
        *self == presence && !self.is_empty()
    }

    /// Whether nobody can see a difference.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Users who came, or whose number of devices changed.
    pub const fn arrived(&self) -> &BTreeSet<UserId> {
        &self.arrived
    }

    /// Users who left, and why.
    pub const fn departed(&self) -> &BTreeMap<UserId, LeaveReason> {
        &self.departed
    }

    /// Why the room closed, if it did.
    pub const fn closed(&self) -> Option<&Option<Arc<str>>> {
        self.closed.as_ref()
    }

    /// The names of the events that carry it to members.
    pub fn names(&self) -> impl Iterator<Item = Owner> {
        let presence = !self.arrived.is_empty() || !self.departed.is_empty();
        let seats = !self.seats.is_empty() || self.gone_seats;
        let rest = !self.people.is_empty()
            || (self.roles && !presence)
            || self.door
            || !self.requests.is_empty()
            || !self.invites.is_empty()
            || self.status;
        [
            (seats, Owner::MicUpdate),
            (presence, Owner::RoomPresence),
            (self.call, Owner::CallUpdate),
            (rest, Owner::RoomUpdate),
        ]
        .into_iter()
        .filter_map(|(is_part, name)| is_part.then_some(name))
    }

    /// The parts as members of a JSON object, each with a comma before it: `,"seats":[…],"peerCount":3`.
    pub fn parts(&self, cell: &Cell) -> String {
        let mut out = String::new();
        if !self.arrived.is_empty() || !self.departed.is_empty() {
            let joined: Vec<PeerView> = self.views(&self.arrived, cell);
            let left: Vec<Departure> = self
                .departed
                .iter()
                .map(|(user, reason)| Departure { user: user.shared(), reason: *reason })
                .collect();
            part(&mut out, "joined", &joined);
            part(&mut out, "left", &left);
            part(&mut out, "peerCount", &cell.peers.len());
        }
        if self.gone_seats {
            let all: Vec<SeatView<'_>> =
                cell.seats.iter().map(|(number, seat)| SeatView::of(*number, seat)).collect();
            part(&mut out, "seats", &all);
            part(&mut out, "seatCount", &cell.seats.len());
        } else if !self.seats.is_empty() {
            let seat = |number: &SeatNumber| cell.seats.get(number).map(|seat| SeatView::of(*number, seat));
            part(&mut out, "seats", &self.seats.iter().filter_map(seat).collect::<Vec<_>>());
        }
        if !self.people.is_empty() {
            part(&mut out, "peers", &self.views(&self.people, cell));
        }
        if self.roles {
            part(&mut out, "hosts", &hosts(cell));
        }
        if self.door {
            part(&mut out, "locked", &cell.locked);
        }
        for (name, users, now) in
            [("requests", &self.requests, &cell.requests), ("invites", &self.invites, &cell.invites)]
        {
            if !users.is_empty() {
                let asked: BTreeMap<&UserId, Option<&Asked>> =
                    users.iter().map(|user| (user, now.get(user))).collect();
                part(&mut out, name, &asked);
            }
        }
        if self.call {
            part(&mut out, "call", &cell.call);
        }
        if self.status {
            part(&mut out, "status", &cell.status.word());
        }
        out
    }

    fn views(&self, users: &BTreeSet<UserId>, cell: &Cell) -> Vec<PeerView> {
        users.iter().filter_map(|user| PeerView::of(cell.users.get(user)?)).collect()
    }

    /// What leads from one cell to another, where the events in between are not known.
    pub fn between(old: &Cell, new: &Cell) -> Self {
        let mut delta = Self {
            gone_seats: old.seats != new.seats,
            door: old.locked != new.locked,
            call: old.call != new.call,
            status: old.status.word() != new.status.word(),
            roles: old.users != new.users,
            ..Self::default()
        };
        for user in old.users.keys().chain(new.users.keys()) {
            match (old.users.get(user), new.users.get(user)) {
                (before, Some(now)) if before != Some(now) => _ = delta.arrived.insert(user.clone()),
                (Some(_), None) => _ = delta.departed.insert(user.clone(), LeaveReason::StaleLeft),
                _ => {}
            }
        }
        for (changed, before, now) in [
            (&mut delta.requests, &old.requests, &new.requests),
            (&mut delta.invites, &old.invites, &new.invites),
        ] {
            let users = before.keys().chain(now.keys());
            changed.extend(users.filter(|user| before.get(*user) != now.get(*user)).cloned());
        }
        if delta.status && matches!(new.status, room_cell::Status::Closed) {
            delta.closed = Some(None);
        }
        delta
    }
}

/// Nothing that is told of a cell fails to become JSON.
fn part<T: Serialize>(out: &mut String, name: &str, value: &T) {
    let json = serde_json::to_string(value).unwrap_or_default();
    _ = write!(out, r#","{name}":{json}"#);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_leave_from_a_seat_is_told_under_both_names() {
        let left = Event::Left { user: "ann".into(), peers: vec!["p".into()], reason: LeaveReason::Left };
        let delta = Delta::of([&left, &Event::SeatLocked { seat: 1, locked: true }]);
        assert!(!delta.is_presence_alone());
        assert_eq!(delta.names().collect::<Vec<_>>(), [Owner::MicUpdate, Owner::RoomPresence]);
        assert!(Delta::of([&left]).is_presence_alone());
    }

    #[test]
    fn the_parts_say_how_things_stand_at_the_end() {
        let mut cell = Cell::default();
        cell.seats.insert(1, room_cell::Seat { locked: true, sitter: None });
        let delta = Delta::of([
            &Event::SeatLocked { seat: 1, locked: false },
            &Event::SeatLocked { seat: 1, locked: true },
            &Event::DoorLocked { locked: true },
        ]);
        let parts: Value = serde_json::from_str(&format!("{{\"to\":3{}}}", delta.parts(&cell))).unwrap();
        assert_eq!(parts, json!({ "to": 3, "seats": [{ "seat": 1, "state": "locked" }], "locked": false }));
        assert_eq!(delta.names().collect::<Vec<_>>(), [Owner::MicUpdate, Owner::RoomUpdate]);
    }

    #[test]
    fn bans_are_nobody_elses_business() {
        let delta = Delta::of([&Event::Unbanned { user: "ann".into() }]);
        assert!(delta.is_empty() && delta.parts(&Cell::default()).is_empty());
    }
}
