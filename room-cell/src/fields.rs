//! The cell as it is stored: one hash with a field for each part, one with a field for each peer. What a
//! command costs to store follows from what it changed, not from how large the room is.

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::cell::{Cell, MediaIdentity, Peer, Presence, Seat, Status};
use crate::id::{PeerId, SeatNumber, UserId};
use crate::router::Duty;

const ROOM: &str = "room";
const ROUTER: &str = "router";
const CALL: &str = "call";

/// What must be written to storage for one cell to become another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// The status word of the room's record, if it is another.
    pub status: Option<&'static str>,
    /// Fields of the hash `cell`, with their new JSON.
    pub set: Vec<(String, String)>,
    /// Fields of the hash `cell` that go.
    pub removed: Vec<String>,
    /// Fields of the hash `peers`, with their new JSON.
    pub peers_set: Vec<(PeerId, String)>,
    /// Fields of the hash `peers` that go.
    pub peers_removed: Vec<PeerId>,
    /// Users with a peer that was not there before: they were just seen.
    pub users_in: Vec<UserId>,
    /// Users who had peers and have none.
    pub users_out: Vec<UserId>,
}

/// What is stored is no cell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stored field `{field}`: {why}")]
pub struct Unreadable {
    /// Which field; for a peer, its id.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

/// The part that is always there.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Room {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    creator: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity: Option<u32>,
    auto_close: bool,
    #[serde(default)]
    used: bool,
    locked: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    router_generation: u64,
    #[serde(flatten)]
    status: Status,
}

impl Room {
    fn of(cell: &Cell) -> Self {
        Self {
            creator: cell.creator.clone(),
            capacity: cell.capacity,
            auto_close: cell.auto_close,
            used: cell.used,
            locked: cell.locked,
            router_generation: cell.router_generation,
            status: cell.status.clone(),
        }
    }
}

/// What makes `before` into `after`.
pub fn changes(before: &Cell, after: &Cell) -> Changes {
    let mut changes = Changes::default();
    if before.status.word() != after.status.word() {
        changes.status = Some(after.status.word());
    }
    if before.status != after.status
        || before.creator != after.creator
        || before.capacity != after.capacity
        || before.auto_close != after.auto_close
        || before.used != after.used
        || before.locked != after.locked
        || before.router_generation != after.router_generation
    {
        changes.set(ROOM.into(), &Room::of(after));
    }
    if before.call != after.call {
        match &after.call {
            Some(call) => changes.set(CALL.into(), call),
            None => changes.removed.push(CALL.into()),
        }
    }
    if before.router != after.router {
        match &after.router {
            Some(router) => changes.set(ROUTER.into(), router),
            None => changes.removed.push(ROUTER.into()),
        }
    }
    changes.differ(&before.duties, &after.duties, |duty| format!("duty:{}", json(duty)));
    changes.differ(&before.seats, &after.seats, seat_field);
    changes.differ(&before.bans, &after.bans, |user| format!("ban:{user}"));
    changes.differ(&before.roles, &after.roles, |user| format!("role:{user}"));
    changes.differ(&before.requests, &after.requests, |user| format!("request:{user}"));
    changes.differ(&before.invites, &after.invites, |user| format!("invite:{user}"));
    changes.differ(&before.freed, &after.freed, |user| format!("freed:{user}"));
    changes.differ(&before.media, &after.media, |who| format!("media:{}", json(who)));
    for item in before.users.diff(&after.users) {
        match item {
            DiffItem::Add(user, presence) => changes.present(user, None, Some(presence)),
            DiffItem::Update { old: (_, old), new: (user, new) } => {
                changes.present(user, Some(old), Some(new));
            }
            DiffItem::Remove(user, presence) => changes.present(user, Some(presence), None),
        }
    }
    changes
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn seat_field(number: &SeatNumber) -> String {
    format!("seat:{number}")
}

/// Nothing in a cell fails to become JSON: its keys are text and its numbers are finite.
fn json<T: Serialize>(part: &T) -> String {
    serde_json::to_string(part).unwrap_or_default()
}

impl Changes {
    fn set<T: Serialize>(&mut self, field: String, part: &T) {
        self.set.push((field, json(part)));
    }

    fn differ<K, V>(&mut self, before: &OrdMap<K, V>, after: &OrdMap<K, V>, field: impl Fn(&K) -> String)
    where
        K: Ord,
        V: PartialEq + Serialize,
    {
        for item in before.diff(after) {
            match item {
                DiffItem::Add(key, value) | DiffItem::Update { new: (key, value), .. } => {
                    self.set(field(key), value);
                }
                DiffItem::Remove(key, _) => self.removed.push(field(key)),
            }
        }
    }

    fn present(&mut self, user: &UserId, before: Option<&Presence>, after: Option<&Presence>) {
        let before = before.map_or(&[][..], |presence| &presence.peers);
        let after = after.map_or(&[][..], |presence| &presence.peers);
        let find = |among: &[Arc<Peer>], peer: &Peer| among.iter().find(|it| it.peer == peer.peer).cloned();
        let mut came = false;
        for peer in after {
            let known = find(before, peer);
            came |= known.is_none();
            if known.is_none_or(|known| known != *peer) {
                self.peers_set.push((peer.peer.clone(), json(peer)));
            }
        }
        for peer in before.iter().filter(|peer| find(after, peer).is_none()) {
            self.peers_removed.push(peer.peer.clone());
        }
        if came {
            self.users_in.push(user.clone());
        }
        if after.is_empty() {
            self.users_out.push(user.clone());
        }
    }
}

impl Cell {
    /// All that must be written where nothing is stored.
    pub fn stored(&self) -> Changes {
        let mut all = changes(&Self::default(), self);
        all.status = Some(self.status.word());
        if !all.set.iter().any(|(field, _)| field == ROOM) {
            all.set(ROOM.into(), &Room::of(self));
        }
        all
    }

    /// A cell from what is stored: the version and the status word of its record, and the two hashes.
    ///
    /// # Errors
    ///
    /// Which field is missing or wrong. An empty hash is no cell.
    pub fn read(
        version: u64,
        status: &str,
        cell: &[(String, String)],
        peers: &[(String, String)],
    ) -> Result<Self, Unreadable> {
        let mut read = Self { version, ..Self::default() };
        let mut found = false;
        for (field, value) in cell {
            found |= field == ROOM;
            read.take_in(field, value)?;
        }
        if !found {
            return Err(unreadable(ROOM, "missing".into()));
        }
        if read.status.word() != status {
            let why = format!("`{}`, where the record says `{status}`", read.status.word());
            return Err(unreadable(ROOM, why));
        }
        for (id, value) in peers {
            let peer: Arc<Peer> = parse(id, value)?;
            if peer.peer.as_str() != id {
                return Err(unreadable(id, format!("it is peer `{}`", peer.peer)));
            }
            read.peers.insert(peer.peer.clone(), peer.user.clone());
            read.users.entry(peer.user.clone()).or_default().peers.push(peer);
        }
        let several = read.users.iter().filter(|(_, presence)| presence.peers.len() > 1);
        let several: Vec<UserId> = several.map(|(user, _)| user.clone()).collect();
        for user in several {
            if let Some(presence) = read.users.get_mut(&user) {
                presence.peers.sort_by(|a, b| (a.since, &a.peer).cmp(&(b.since, &b.peer)));
            }
        }
        Ok(read)
    }

    fn take_in(&mut self, field: &str, value: &str) -> Result<(), Unreadable> {
        let (part, name) = field.split_once(':').unwrap_or((field, ""));
        match part {
            ROOM => {
                let room: Room = parse(field, value)?;
                self.creator = room.creator;
                self.capacity = room.capacity;
                self.auto_close = room.auto_close;
                self.used = room.used;
                self.locked = room.locked;
                self.router_generation = room.router_generation;
                self.status = room.status;
            }
            CALL => self.call = Some(parse(field, value)?),
            ROUTER => self.router = Some(parse(field, value)?),
            "seat" => {
                let number: SeatNumber =
                    name.parse().map_err(|_| unreadable(field, "no seat number".into()))?;
                self.seats.insert(number, parse::<Seat>(field, value)?);
            }
            "ban" => put(&mut self.bans, name.into(), field, value)?,
            "role" => put(&mut self.roles, name.into(), field, value)?,
            "request" => put(&mut self.requests, name.into(), field, value)?,
            "invite" => put(&mut self.invites, name.into(), field, value)?,
            "freed" => put(&mut self.freed, name.into(), field, value)?,
            "media" => {
                let who: MediaIdentity = parse(field, name)?;
                put(&mut self.media, who, field, value)?;
            }
            "duty" => {
                let duty: Duty = parse(field, name)?;
                put(&mut self.duties, duty, field, value)?;
            }
            _ => return Err(unreadable(field, "no such part".into())),
        }
        Ok(())
    }
}

fn put<K, V>(parts: &mut OrdMap<K, V>, key: K, field: &str, value: &str) -> Result<(), Unreadable>
where
    K: Ord + Clone,
    V: Clone + DeserializeOwned,
{
    parts.insert(key, parse(field, value)?);
    Ok(())
}

fn parse<T: DeserializeOwned>(field: &str, value: &str) -> Result<T, Unreadable> {
    serde_json::from_str(value).map_err(|error| unreadable(field, error.to_string()))
}

fn unreadable(field: &str, why: String) -> Unreadable {
    Unreadable { field: field.to_owned(), why }
}
