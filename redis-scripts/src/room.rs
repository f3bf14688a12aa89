//! `pin`, `release`, `read`, `watch`, `unwatch`, `restore`.

use key_prefix::{Incarnation, Instance, KeyKind, Keys, RoomKey, RoomKeys};
use std::time::Duration;

use crate::instance::ms;
use crate::reply::{MalformedReply, Reply};
use crate::script::{Call, PIN, READ, RELEASE, RESTORE, Script, ScriptError, Scripts, UNWATCH, WATCH};
use crate::{CellVersion, FenceToken, RedisMillis, SettingsVersion};

/// A room as Redis holds it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoomState {
    /// `active`; other values come with the room cell.
    pub status: String,
    /// When it was made.
    pub created_at: RedisMillis,
    /// Settings version.
    pub sv: SettingsVersion,
    /// Cell version.
    pub cv: CellVersion,
    /// Settings by name, as JSON.
    pub settings: Vec<(String, String)>,
    /// Guest states by user, as JSON.
    pub guests: Vec<(String, String)>,
    /// Peers by id, as JSON.
    pub peers: Vec<(String, String)>,
    /// Users present, with the time they were last seen.
    pub presence: Vec<(String, RedisMillis)>,
}

impl RoomState {
    fn read(reply: &mut Reply) -> Result<Self, MalformedReply> {
        let mut nested = reply.nested()?;
        let mut state = Self::default();
        for (field, value) in nested.nested()?.pairs()? {
            let number = value.parse().unwrap_or_default();
            match field.as_str() {
                "status" => state.status = value,
                "created_at" => state.created_at = RedisMillis::new(number),
                "sv" => state.sv = SettingsVersion::new(number),
                "cv" => state.cv = CellVersion::new(number),
                _ => {}
            }
        }
        state.settings = nested.nested()?.pairs()?;
        state.guests = nested.nested()?.pairs()?;
        state.peers = nested.nested()?.pairs()?;
        let presence = nested.nested()?.pairs()?.into_iter();
        state.presence =
            presence.map(|(user, at)| (user, RedisMillis::new(at.parse().unwrap_or_default()))).collect();
        Ok(state)
    }
}

/// A peer as a script writes it.
#[derive(Debug, Clone, Copy)]
pub struct RecordedPeer<'a> {
    /// Its id.
    pub peer: &'a str,
    /// Whose it is.
    pub user: &'a str,
    /// All of it, as JSON.
    pub json: &'a str,
}

/// What `pin` is told.
#[derive(Debug)]
pub struct Pin<'a> {
    /// The caller.
    pub me: &'a Instance,
    /// The room.
    pub room: &'a RoomKey,
    /// Time to live of the owner key.
    pub owner_ttl: Duration,
    /// The token will be larger than this: what is known of the room from elsewhere.
    pub floor: FenceToken,
    /// Keep the token if the lease is mine already.
    pub renew: bool,
    /// Settings to make the room with if it is not there; `None`: do not make it.
    pub create: Option<&'a [(&'a str, String)]>,
    /// Not after this by Redis's clock: whoever asks does not wait for longer. A call that a stalled Redis
    /// finds in its sockets when it goes on would else win a room for nobody.
    pub deadline: Option<RedisMillis>,
    /// The first joiner, seated in the same step if the room has no peers.
    pub peer: Option<RecordedPeer<'a>>,
}

/// What `pin` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pinned {
    /// The lease is the caller's.
    Owned {
        /// Its token.
        token: FenceToken,
        /// The token of the lease before; 0 if there was none.
        previous: FenceToken,
        /// Whether the room was made by this call.
        made: bool,
        /// Whether the room's keys are as its record says; if not, something was lost.
        whole: bool,
        /// Redis's time.
        now: RedisMillis,
        /// Number of watching instances.
        watchers: usize,
        /// The room.
        state: Box<RoomState>,
    },
    /// A living instance owns it.
    Other {
        /// `name/incarnation`.
        owner: String,
        /// Its token.
        token: FenceToken,
        /// Its public URL; empty if its record is missing just now.
        url: String,
    },
    /// The room is not there and was not to be made.
    Absent,
    /// The deadline is over; nothing was done.
    Late,
    /// A newer incarnation of the caller's name lives.
    Superseded {
        /// Its incarnation.
        by: Incarnation,
    },
}

/// What `release` is told.
#[derive(Debug)]
pub struct Release<'a> {
    /// The caller.
    pub me: &'a Instance,
    /// The room.
    pub room: &'a RoomKey,
    /// Its keys.
    pub keys: &'a RoomKeys,
    /// The token of its lease.
    pub token: FenceToken,
    /// How long a room that nobody owns is kept.
    pub life: Duration,
    /// Refuse while it has peers.
    pub only_empty: bool,
}

/// What `release` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The lease is free.
    Ok,
    /// It was not the caller's.
    Lost {
        /// What the owner key holds.
        held: String,
    },
    /// The room has peers.
    Busy {
        /// How many.
        peer_count: usize,
    },
}

/// Where a room stands and who owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whether its keys are as its record says.
    pub whole: bool,
    /// Redis's time.
    pub now: RedisMillis,
    /// `name/incarnation`; empty if nobody owns it.
    pub owner: String,
    /// The owner's token; 0 if nobody owns it.
    pub token: FenceToken,
    /// The owner's public URL.
    pub url: String,
    /// The room.
    pub state: Box<RoomState>,
}

/// What `read` and `watch` answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The room.
    Ok(Standing),
    /// It is not there.
    Missing,
}

/// What `restore` is told.
#[derive(Debug)]
pub struct Restore<'a> {
    /// The caller.
    pub me: &'a Instance,
    /// The room.
    pub room: &'a RoomKey,
    /// Its keys.
    pub keys: &'a RoomKeys,
    /// The token of its lease.
    pub token: FenceToken,
    /// Settings version of the record that the caller read; `None`: it was not there.
    pub seen: Option<SettingsVersion>,
    /// Settings version to go on from.
    pub sv: SettingsVersion,
    /// Cell version to go on from.
    pub cv: CellVersion,
    /// When it was made.
    pub created_at: RedisMillis,
    /// Settings by name, as JSON.
    pub settings: &'a [(&'a str, &'a str)],
    /// Guest states by user, as JSON.
    pub guests: &'a [(&'a str, &'a str)],
    /// Peers.
    pub peers: &'a [RecordedPeer<'a>],
}

/// What `restore` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// Written.
    Ok {
        /// Redis's time.
        now: RedisMillis,
    },
    /// The room was written since the caller read it: read again.
    Changed,
    /// The lease is not the caller's.
    Lost {
        /// What the owner key holds.
        held: String,
    },
    /// A newer incarnation of the caller's name lives.
    Superseded {
        /// Its incarnation.
        by: Incarnation,
    },
}

impl Scripts {
    /// Takes a room's lease and loads the room.
    pub async fn pin(&self, keys: &Keys, with: Pin<'_>) -> Result<Pinned, ScriptError> {
        let (me, room) = (with.me, keys.room(with.room));
        let defaults = with.create.unwrap_or_default();
        let mut call = Call::keys([
            &keys.incarnation_of(me),
            &keys.instances(),
            &keys.instance_rooms(me),
            &room.owner,
            &room.fence,
            &room.room,
            &room.settings,
            &room.guests,
            &room.peers,
            &room.presence,
            &room.watchers,
            &room.rooms,
        ])
        .text(me.as_str())
        .number(me.incarnation().as_u64())
        .number(ms(with.owner_ttl))
        .number(with.floor.as_u64())
        .flag(with.renew)
        .flag(with.create.is_some())
        .text(with.room.room())
        .text(with.room.route())
        .bytes(keys.base(KeyKind::Instance).bytes())
        .number(with.deadline.map_or(0, RedisMillis::as_u64))
        .count(defaults.len())
        .texts(defaults.iter().flat_map(|(field, json)| [*field, json.as_str()]));
        if let Some(peer) = with.peer {
            call = call.texts([peer.peer, peer.user, peer.json]);
        }
        self.read(&PIN, call, |code, reply| match code {
            "owned" => Ok(Pinned::Owned {
                token: reply.token()?,
                previous: reply.token()?,
                made: reply.flag()?,
                whole: reply.flag()?,
                now: reply.millis()?,
                watchers: reply.count()?,
                state: Box::new(RoomState::read(reply)?),
            }),
            "other" => Ok(Pinned::Other { owner: reply.text()?, token: reply.token()?, url: reply.text()? }),
            "absent" => Ok(Pinned::Absent),
            "late" => Ok(Pinned::Late),
            "superseded" => Ok(Pinned::Superseded { by: superseded(reply)? }),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Gives up a room's lease.
    pub async fn release(&self, keys: &Keys, with: Release<'_>) -> Result<Released, ScriptError> {
        let room = with.keys;
        let call = Call::keys([
            &keys.instance_rooms(with.me),
            &room.owner,
            &room.room,
            &room.settings,
            &room.guests,
            &room.peers,
            &room.presence,
        ])
        .text(with.me.as_str())
        .number(with.token.as_u64())
        .text(with.room.route())
        .number(ms(with.life))
        .flag(with.only_empty);
        self.read(&RELEASE, call, |code, reply| match code {
            "ok" => Ok(Released::Ok),
            "lost" => Ok(Released::Lost { held: reply.text()? }),
            "busy" => Ok(Released::Busy { peer_count: reply.count()? }),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Reads a room as one consistent whole.
    pub async fn read_room(&self, keys: &Keys, room: &RoomKey) -> Result<Read, ScriptError> {
        let room = keys.room(room);
        let call =
            Call::keys([&room.room, &room.settings, &room.guests, &room.peers, &room.presence, &room.owner])
                .bytes(keys.base(KeyKind::Instance).bytes());
        self.read(&READ, call, read_standing).await
    }

    /// Notes that the caller watches a room, and reads it.
    pub async fn watch(&self, keys: &Keys, me: &Instance, room: &RoomKey) -> Result<Read, ScriptError> {
        let names = keys.room(room);
        let call = Call::keys([
            &names.watchers,
            &keys.instance_watches(me),
            &names.room,
            &names.settings,
            &names.guests,
            &names.peers,
            &names.presence,
            &names.owner,
        ])
        .texts([me.as_str(), room.route()])
        .bytes(keys.base(KeyKind::Instance).bytes());
        self.read(&WATCH, call, read_standing).await
    }

    /// Notes that the caller watches a room no more.
    pub async fn unwatch(&self, keys: &Keys, me: &Instance, room: &RoomKey) -> Result<(), ScriptError> {
        let call = Call::keys([&keys.room(room).watchers, &keys.instance_watches(me)])
            .texts([me.as_str(), room.route()]);
        self.read(&UNWATCH, call, |code, _| match code {
            "ok" => Ok(()),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Writes a room that Redis lost anew.
    pub async fn restore(&self, keys: &Keys, with: Restore<'_>) -> Result<Restored, ScriptError> {
        let (me, room) = (with.me, with.keys);
        let call = Call::keys([
            &keys.incarnation_of(me),
            &room.owner,
            &room.room,
            &room.settings,
            &room.guests,
            &room.peers,
            &room.presence,
            &room.rooms,
        ])
        .text(me.as_str())
        .number(me.incarnation().as_u64())
        .number(with.token.as_u64())
        .text(&with.seen.map(|sv| sv.to_string()).unwrap_or_default())
        .number(with.sv.as_u64())
        .number(with.cv.as_u64())
        .number(with.created_at.as_u64())
        .text(with.room.room())
        .count(with.settings.len())
        .count(with.guests.len())
        .count(with.peers.len())
        .texts(with.settings.iter().flat_map(|(field, json)| [*field, *json]))
        .texts(with.guests.iter().flat_map(|(user, json)| [*user, *json]))
        .texts(with.peers.iter().flat_map(|peer| [peer.peer, peer.user, peer.json]));
        self.read(&RESTORE, call, |code, reply| match code {
            "ok" => Ok(Restored::Ok { now: reply.millis()? }),
            "changed" => Ok(Restored::Changed),
            "lost" => Ok(Restored::Lost { held: reply.text()? }),
            "superseded" => Ok(Restored::Superseded { by: superseded(reply)? }),
            code => MalformedReply::code(code),
        })
        .await
    }

    pub(crate) async fn read<T>(
        &self,
        script: &'static Script,
        call: Call,
        read: impl FnOnce(&str, &mut Reply) -> Result<T, MalformedReply>,
    ) -> Result<T, ScriptError> {
        let mut reply = self.call(script, call).await?;
        let answer = reply.text().and_then(|code| read(&code, &mut reply));
        answer.map_err(|source| script.malformed(source))
    }
}

pub(crate) fn superseded(reply: &mut Reply) -> Result<Incarnation, MalformedReply> {
    reply.number().map(Incarnation::new)
}

fn read_standing(code: &str, reply: &mut Reply) -> Result<Read, MalformedReply> {
    match code {
        "ok" => Ok(Read::Ok(Standing {
            whole: reply.flag()?,
            now: reply.millis()?,
            owner: reply.text()?,
            token: reply.token()?,
            url: reply.text()?,
            state: Box::new(RoomState::read(reply)?),
        })),
        "missing" => Ok(Read::Missing),
        code => MalformedReply::code(code),
    }
}
