//! Making names: the only place where a key or a channel comes from.

use bytes::Bytes;
use std::fmt;

use crate::table::{ChannelKind, KeyKind, Scope};
use crate::{Instance, InstanceName, Prefix, RoomKey, RouterName};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub struct $name(Bytes);

        impl $name {
            /// The name as Redis gets it, shared and not copied.
            pub fn bytes(&self) -> Bytes {
                self.0.clone()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    };
}

name!(
    /// The name of a Redis key.
    Key
);
name!(
    /// The name of a Redis pub/sub channel.
    Channel
);

/// Makes every name under one prefix. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: Prefix,
}

/// All keys of one room, made once for as long as the room is in memory.
#[derive(Clone, Debug)]
pub struct RoomKeys {
    /// [`KeyKind::Owner`]
    pub owner: Key,
    /// [`KeyKind::Fence`]
    pub fence: Key,
    /// [`KeyKind::Room`]
    pub room: Key,
    /// [`KeyKind::Settings`]
    pub settings: Key,
    /// [`KeyKind::Guests`]
    pub guests: Key,
    /// [`KeyKind::Peers`]
    pub peers: Key,
    /// [`KeyKind::Presence`]
    pub presence: Key,
    /// [`KeyKind::Watchers`]
    pub watchers: Key,
    /// [`KeyKind::Rooms`] of the room's app
    pub rooms: Key,
    /// [`KeyKind::Cell`]
    pub cell: Key,
    /// [`KeyKind::Inbox`]
    pub inbox: Key,
    /// [`KeyKind::Aside`]
    pub aside: Key,
    /// [`KeyKind::Lane`] that the room falls on
    pub lane: Key,
}

/// How many lanes there are. Fixed for ever, as is the way to a lane: see [`lane_of`].
pub const LANES: u16 = 64;

/// The way to a lane, in words: a fact that every instance of a cluster must agree on.
pub const LANE_HASH: &str = "blake3-first8-le-mod";

/// The lane of a route key: its BLAKE3, the first 8 bytes read as a little-endian integer, modulo [`LANES`].
pub fn lane_of(route: &str) -> u16 {
    let digest = blake3::hash(route.as_bytes());
    let first = digest.as_bytes().first_chunk().copied().unwrap_or_default();
    u16::try_from(u64::from_le_bytes(first) % u64::from(LANES)).unwrap_or_default()
}

/// The name of a lane's lease.
pub fn lane_lease(lane: u16) -> String {
    format!("lane-{lane}")
}

impl Keys {
    /// Names under `prefix`.
    pub const fn new(prefix: Prefix) -> Self {
        Self { prefix }
    }

    /// The prefix of every name made here.
    pub const fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    fn key(&self, kind: KeyKind, subject: &str) -> Key {
        Key(self.join(kind.segment(), subject))
    }

    fn join(&self, segment: &str, subject: &str) -> Bytes {
        let prefix = self.prefix.as_str();
        let mut name = String::with_capacity(prefix.len() + segment.len() + subject.len() + 2);
        name.push_str(prefix);
        name.push(':');
        name.push_str(segment);
        if !subject.is_empty() {
            name.push(':');
            name.push_str(subject);
        }
        name.into()
    }

    /// [`KeyKind::Instances`]
    pub fn instances(&self) -> Key {
        self.key(KeyKind::Instances, "")
    }

    /// [`KeyKind::Incarnation`] of the instances of this name.
    pub fn incarnation(&self, name: &InstanceName) -> Key {
        self.key(KeyKind::Incarnation, name.as_str())
    }

    /// [`KeyKind::Incarnation`] of an instance.
    pub fn incarnation_of(&self, instance: &Instance) -> Key {
        self.key(KeyKind::Incarnation, instance.name())
    }

    /// [`KeyKind::Instance`]
    pub fn instance(&self, instance: &Instance) -> Key {
        self.key(KeyKind::Instance, instance.as_str())
    }

    /// [`KeyKind::InstanceRooms`]
    pub fn instance_rooms(&self, instance: &Instance) -> Key {
        self.key(KeyKind::InstanceRooms, instance.as_str())
    }

    /// [`KeyKind::InstanceWatches`]
    pub fn instance_watches(&self, instance: &Instance) -> Key {
        self.key(KeyKind::InstanceWatches, instance.as_str())
    }

    /// [`KeyKind::Unheard`]
    pub fn unheard(&self, instance: &Instance) -> Key {
        self.key(KeyKind::Unheard, instance.as_str())
    }

    /// [`KeyKind::Lease`] of a lease that is not a room's.
    pub fn lease(&self, name: &str) -> Key {
        self.key(KeyKind::Lease, name)
    }

    /// [`KeyKind::LeaseFence`]
    pub fn lease_fence(&self, name: &str) -> Key {
        self.key(KeyKind::LeaseFence, name)
    }

    /// [`KeyKind::Rooms`] of an app.
    pub fn rooms(&self, app: &str) -> Key {
        self.key(KeyKind::Rooms, app)
    }

    /// Every key of a room.
    pub fn room(&self, room: &RoomKey) -> RoomKeys {
        let key = |kind| self.key(kind, room.route());
        RoomKeys {
            owner: key(KeyKind::Owner),
            fence: key(KeyKind::Fence),
            room: key(KeyKind::Room),
            settings: key(KeyKind::Settings),
            guests: key(KeyKind::Guests),
            peers: key(KeyKind::Peers),
            presence: key(KeyKind::Presence),
            watchers: key(KeyKind::Watchers),
            rooms: self.rooms(room.app()),
            cell: key(KeyKind::Cell),
            inbox: key(KeyKind::Inbox),
            aside: key(KeyKind::Aside),
            lane: self.lane(room),
        }
    }

    /// [`KeyKind::Lane`] of a room.
    pub fn lane(&self, room: &RoomKey) -> Key {
        self.lane_at(lane_of(room.route()))
    }

    /// [`KeyKind::Lane`] of this number.
    pub fn lane_at(&self, lane: u16) -> Key {
        self.key(KeyKind::Lane, &lane.to_string())
    }

    /// [`KeyKind::LaneKept`] of this number.
    pub fn lane_kept(&self, lane: u16) -> Key {
        self.key(KeyKind::LaneKept, &lane.to_string())
    }

    /// [`KeyKind::Checkpoints`]
    pub fn checkpoints(&self) -> Key {
        self.key(KeyKind::Checkpoints, "")
    }

    /// [`KeyKind::Facts`]
    pub fn facts(&self) -> Key {
        self.key(KeyKind::Facts, "")
    }

    /// [`KeyKind::Events`] of an app.
    pub fn events(&self, app: &str) -> Key {
        self.key(KeyKind::Events, app)
    }

    /// [`KeyKind::Answer`] to a caller's command. Neither `caller` nor `id` may hold a zero byte.
    pub fn answer(&self, room: &RoomKey, caller: &str, id: &str) -> Key {
        self.key(KeyKind::Answer, &format!("{}\0{caller}\0{id}", room.route()))
    }

    /// [`KeyKind::Seen`]
    pub fn seen(&self, room: &RoomKey, event: &str) -> Key {
        self.key(KeyKind::Seen, &format!("{}\0{event}", room.route()))
    }

    /// [`KeyKind::Router`] of this name.
    pub fn router(&self, name: &RouterName) -> Key {
        self.key(KeyKind::Router, name.as_str())
    }

    /// [`KeyKind::Due`]
    pub fn due(&self) -> Key {
        self.key(KeyKind::Due, "")
    }

    /// [`KeyKind::Sessions`] of a user of an app.
    pub fn sessions(&self, app: &str, user: &str) -> Key {
        self.key(KeyKind::Sessions, &format!("{app}\0{user}"))
    }

    /// What stands before the subject in every key of this kind, with its separator: for scripts that
    /// learn the subject from Redis itself.
    pub fn base(&self, kind: KeyKind) -> Key {
        Key(self.base_of(kind.segment()))
    }

    /// The channel of this kind that `instance` listens to.
    pub fn channel(&self, kind: ChannelKind, instance: &Instance) -> Channel {
        Channel(self.join(kind.segment(), instance.as_str()))
    }

    /// What stands before the instance in every channel of this kind, with its separator.
    pub fn channel_base(&self, kind: ChannelKind) -> Channel {
        Channel(self.base_of(kind.segment()))
    }

    fn base_of(&self, segment: &str) -> Bytes {
        format!("{}:{segment}:", self.prefix).into()
    }

    /// Which row of the table a key found in Redis belongs to; `None` for one that is not ours.
    pub fn kind_of(&self, found: &[u8]) -> Option<KeyKind> {
        let rest = std::str::from_utf8(found).ok()?.strip_prefix(self.prefix.as_str())?.strip_prefix(':')?;
        KeyKind::ALL.into_iter().find(|kind| {
            let Some(tail) = rest.strip_prefix(kind.segment()) else { return false };
            match kind.row().scope {
                Scope::Cluster => tail.is_empty(),
                scope => tail.strip_prefix(':').is_some_and(|subject| scope.admits(subject)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AppCode, Incarnation, RoomId};

    fn room(app: &str, room: &str) -> RoomKey {
        RoomKey::new(AppCode::new(app).unwrap(), RoomId::new(room).unwrap())
    }

    fn every_key(keys: &Keys) -> Vec<(KeyKind, Key)> {
        let name = InstanceName::new("a").unwrap();
        let me = Instance::new(name.clone(), Incarnation::new(3));
        let colons = room("app", "room:with:colons");
        let r = keys.room(&colons);
        vec![
            (KeyKind::Instances, keys.instances()),
            (KeyKind::Incarnation, keys.incarnation(&name)),
            (KeyKind::Instance, keys.instance(&me)),
            (KeyKind::InstanceRooms, keys.instance_rooms(&me)),
            (KeyKind::InstanceWatches, keys.instance_watches(&me)),
            (KeyKind::Unheard, keys.unheard(&me)),
            (KeyKind::Lease, keys.lease("reaper")),
            (KeyKind::LeaseFence, keys.lease_fence("reaper")),
            (KeyKind::Rooms, r.rooms),
            (KeyKind::Owner, r.owner),
            (KeyKind::Fence, r.fence),
            (KeyKind::Room, r.room),
            (KeyKind::Settings, r.settings),
            (KeyKind::Guests, r.guests),
            (KeyKind::Peers, r.peers),
            (KeyKind::Presence, r.presence),
            (KeyKind::Watchers, r.watchers),
            (KeyKind::Cell, r.cell),
            (KeyKind::Inbox, r.inbox),
            (KeyKind::Aside, r.aside),
            (KeyKind::Answer, keys.answer(&colons, "ann", "a:b")),
            (KeyKind::Seen, keys.seen(&colons, "janus/7")),
            (KeyKind::Router, keys.router(&RouterName::new("abc234").unwrap())),
            (KeyKind::Lane, r.lane),
            (KeyKind::LaneKept, keys.lane_kept(63)),
            (KeyKind::Checkpoints, keys.checkpoints()),
            (KeyKind::Facts, keys.facts()),
            (KeyKind::Events, keys.events("app")),
            (KeyKind::Lease, keys.lease(&lane_lease(12))),
            (KeyKind::Due, keys.due()),
            (KeyKind::Sessions, keys.sessions("app", "ann:2")),
        ]
    }

    #[test]
    fn i_17_every_key_is_found_in_the_table() {
        let keys = Keys::new(Prefix::dev());
        let all = every_key(&keys);
        for (kind, key) in &all {
            assert_eq!(keys.kind_of(&key.bytes()), Some(*kind), "{key:?}");
        }
        for kind in KeyKind::ALL {
            assert!(all.iter().any(|(made, _)| *made == kind), "{kind:?} is never made");
        }
        for foreign in [
            "dev",
            "dev:",
            "dev:owner",
            "dev:owner:",
            "dev:owner:norooms",
            "prod:instances",
            "dev:instances:x",
            "dev:lane:64",
            "dev:lane:+1",
            "dev:answer:app\0room\0caller",
            "dev:seen:app\0room",
            "dev:sessions:app",
            "dev:router:",
            "dev:router:Room-1",
        ] {
            assert_eq!(keys.kind_of(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn i_16_no_name_of_one_prefix_is_one_of_another() {
        let ours = Keys::new(Prefix::parse("dev/a").unwrap());
        let theirs = Keys::new(Prefix::parse("dev/a-b").unwrap());
        for (_, key) in every_key(&ours) {
            assert_eq!(theirs.kind_of(&key.bytes()), None);
            assert_eq!(Keys::new(Prefix::dev()).kind_of(&key.bytes()), None);
        }
    }

    #[test]
    fn rooms_of_two_apps_differ() {
        let keys = Keys::new(Prefix::dev());
        assert_ne!(keys.room(&room("a", "b\u{a0}c")).owner, keys.room(&room("a\u{a0}b", "c")).owner);
    }

    #[test]
    fn a_room_keeps_its_lane_for_ever() {
        let keys = Keys::new(Prefix::dev());
        let lane = |id: &str| keys.lane(&room("school", id)).to_string();
        assert_eq!(lane("math-101"), "dev:lane:36");
        let all: std::collections::HashSet<_> = (0..2000).map(|n| lane(&format!("r{n}"))).collect();
        assert_eq!(all.len(), usize::from(LANES));
    }
}
