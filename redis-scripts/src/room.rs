//! `release`, `read`, `watch`, `unwatch`, `restore`.

use key_prefix::{Incarnation, Instance, KeyKind, Keys, RoomKey, RoomKeys};
use std::time::Duration;

use crate::commit::CellChanges;
use crate::instance::ms;
use crate::reply::{MalformedReply, Reply};
use crate::script::{Call, READ, RELEASE, RESTORE, Script, ScriptError, Scripts, UNWATCH, WATCH};
use crate::{CellVersion, FenceToken, RedisMillis, SettingsVersion};

/// A room as Redis holds it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoomState {
    /// `rebuilding`, `creating`, `active`, `closing` or `closed`.
    pub status: String,
    /// When it was made.
    pub created_at: RedisMillis,
    /// The token that it was last pinned with.
    pub token: FenceToken,
    /// Settings version.
    pub sv: SettingsVersion,
    /// Cell version.
    pub cv: CellVersion,
    /// Name of the last commit; empty: none yet.
    pub batch: String,
    /// When that was; 0: never.
    pub committed_at: RedisMillis,
    /// Settings by name, as JSON.
    pub settings: Vec<(String, String)>,
    /// Guest states by user, as JSON.
    pub guests: Vec<(String, String)>,
    /// Peers by id, as JSON.
    pub peers: Vec<(String, String)>,
    /// Users present, with the time they were last seen.
    pub presence: Vec<(String, RedisMillis)>,
    /// Fields of the cell, as JSON.
    pub cell: Vec<(String, String)>,
}

impl RoomState {
    pub(crate) fn read(reply: &mut Reply) -> Result<Self, MalformedReply> {
        let mut nested = reply.nested()?;
        let mut state = Self::default();
        for (field, value) in nested.nested()?.pairs()? {
            let number = value.parse().unwrap_or_default();
            match field.as_str() {
                "status" => state.status = value,
                "created_at" => state.created_at = RedisMillis::new(number),
                "token" => state.token = FenceToken::new(number),
                "sv" => state.sv = SettingsVersion::new(number),
                "cv" => state.cv = CellVersion::new(number),
                "batch" => state.batch = value,
                "committed_at" => state.committed_at = RedisMillis::new(number),
                _ => {}
            }
        }
        state.settings = nested.nested()?.pairs()?;
        state.guests = nested.nested()?.pairs()?;
        state.peers = nested.nested()?.pairs()?;
        let presence = nested.nested()?.pairs()?.into_iter();
        state.presence =
            presence.map(|(user, at)| (user, RedisMillis::new(at.parse().unwrap_or_default()))).collect();
        state.cell = nested.nested()?.pairs()?;
        Ok(state)
    }
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
    /// Refuse while it has people, or entries in its inbox.
    pub only_empty: bool,
    /// When something falls due next; `None`: nothing does.
    pub due: Option<RedisMillis>,
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
    /// The room has people, or work waits for its owner.
    Busy {
        /// How many peers.
        peer_count: usize,
        /// How many entries in its inbox.
        inbox: usize,
    },
}

/// Where a room stands and who owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whether its keys are as its record says.
    pub whole: bool,
    /// Whether it was written, or proved, in the history of its data that Redis tells now.
    pub proved: bool,
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
    /// The cell, its peers and who is present, in whole; without a status it is active.
    pub changes: &'a CellChanges<'a>,
    /// Name of the last commit that is in it.
    pub batch: &'a str,
    /// All of it as JSON, for the ledger.
    pub entry: &'a str,
    /// When something falls due next; `None`: nothing does.
    pub due: Option<RedisMillis>,
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
            &room.cell,
            &room.inbox,
            &keys.due(),
        ])
        .text(with.me.as_str())
        .number(with.token.as_u64())
        .text(with.room.route())
        .number(ms(with.life))
        .flag(with.only_empty)
        .moment(with.due);
        self.read(&RELEASE, call, |code, reply| match code {
            "ok" => Ok(Released::Ok),
            "lost" => Ok(Released::Lost { held: reply.text()? }),
            "busy" => Ok(Released::Busy { peer_count: reply.count()?, inbox: reply.count()? }),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Reads a room as one consistent whole.
    pub async fn read_room(&self, keys: &Keys, room: &RoomKey) -> Result<Read, ScriptError> {
        let room = keys.room(room);
        let call = Call::keys([
            &room.room,
            &room.settings,
            &room.guests,
            &room.peers,
            &room.presence,
            &room.cell,
            &room.owner,
        ])
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
            &names.cell,
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
            &room.cell,
            &keys.due(),
            &room.lane,
        ])
        .text(me.as_str())
        .number(me.incarnation().as_u64())
        .number(with.token.as_u64())
        .text(&with.seen.map(|sv| sv.to_string()).unwrap_or_default())
        .number(with.sv.as_u64())
        .number(with.cv.as_u64())
        .number(with.created_at.as_u64())
        .texts([with.room.room(), with.room.route()])
        .texts([with.changes.status.unwrap_or("active"), with.batch])
        .moment(with.due)
        .text(with.entry)
        .count(with.settings.len())
        .count(with.guests.len())
        .texts(with.settings.iter().flat_map(|(field, json)| [*field, *json]))
        .texts(with.guests.iter().flat_map(|(user, json)| [*user, *json]))
        .changes(with.changes);
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
            proved: reply.flag()?,
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
