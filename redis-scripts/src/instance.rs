//! `register`, `deregister`, `heartbeat`.

use key_prefix::{Incarnation, Instance, InstanceName, KeyKind, Keys, RoomKey};
use std::time::Duration;

use crate::reply::{MalformedReply, Reply};
use crate::script::{Call, DEREGISTER, HEARTBEAT, REGISTER, ScriptError, Scripts};
use crate::{CellVersion, FenceToken, RedisMillis, SettingsVersion};

/// A record ends so long after the last heartbeat: others may still ask for its URL.
const RECORD_LIFE: Duration = Duration::from_secs(3600);
/// A name's last incarnation is remembered so long.
const INCARNATION_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// What `register` is told.
#[derive(Debug)]
pub struct Register<'a> {
    /// The instance's name.
    pub name: &'a InstanceName,
    /// Where this process listens; another address is another process.
    pub address: &'a str,
    /// A heartbeat younger than this is fresh.
    pub owner_ttl: Duration,
    /// Other fields of the record.
    pub fields: &'a [(&'a str, String)],
}

/// What `register` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// This process is the instance now.
    Ok {
        /// The instance, with its new incarnation.
        instance: Instance,
        /// Redis's time.
        now: RedisMillis,
    },
    /// Another process has the name, and lives.
    Held {
        /// Its incarnation.
        incarnation: Incarnation,
        /// Where it listens.
        address: String,
        /// Age of its last heartbeat.
        age: Duration,
    },
}

/// A room whose lease `heartbeat` renews.
#[derive(Debug, Clone)]
pub struct HeldRoom {
    /// The room.
    pub room: RoomKey,
    /// The token of the lease.
    pub token: FenceToken,
    /// What to find out about it.
    pub look: Look,
    /// A mark of it that was told, and need not be told again.
    pub heard: Option<RedisMillis>,
}

/// What `heartbeat` finds out about a room beside its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Where it stands, if something was done to it that was not heard yet.
    IfMarked,
    /// Where it stands.
    Versions,
    /// Where it stands, whether all its keys are there and of this history; its place in the index and its fence are healed.
    Whole,
}

impl Look {
    const fn as_number(self) -> u64 {
        match self {
            Self::IfMarked => 0,
            Self::Versions => 1,
            Self::Whole => 2,
        }
    }
}

/// What `heartbeat` is told: one chunk of leases.
#[derive(Debug)]
pub struct Heartbeat<'a> {
    /// The caller.
    pub me: &'a Instance,
    /// Time to live of an owner key.
    pub owner_ttl: Duration,
    /// The record's fields, in a beat's first chunk; empty in others.
    pub fields: &'a [(&'a str, String)],
    /// The history of its data that Redis told of at the last whole beat; empty: none yet. In another one every room is
    /// looked at.
    pub history: &'a str,
    /// Rooms to renew.
    pub owned: &'a [HeldRoom],
    /// How many rooms all chunks of the beat renew.
    pub in_all: usize,
    /// Rooms to watch.
    pub watched: &'a [RoomKey],
}

/// What became of one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnedReport {
    /// Renewed; where the room stands was not looked at, there being no reason to.
    Held,
    /// Renewed; the room stands at these versions.
    StandsAt {
        /// Settings version.
        sv: SettingsVersion,
        /// Cell version.
        cv: CellVersion,
        /// Number of entries in its inbox.
        inbox: usize,
        /// The mark for which it was looked at: [`HeldRoom::heard`] of the next beat, if nothing is left to do about it.
        mark: Option<RedisMillis>,
    },
    /// The owner key is gone.
    Unowned,
    /// The owner key names another holder or token.
    Taken,
    /// Renewed, but other keys of the room are lost, or the last of what was acknowledged may be.
    Damaged,
}

/// Where a watched room stands; zeros if it is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedReport {
    /// Settings version.
    pub sv: SettingsVersion,
    /// Cell version.
    pub cv: CellVersion,
}

/// What `heartbeat` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beat {
    /// Renewed what could be.
    Ok {
        /// Redis's time.
        now: RedisMillis,
        /// Which history of its data Redis tells.
        history: String,
        /// One for each room of [`Heartbeat::owned`].
        owned: Vec<OwnedReport>,
        /// One for each room of [`Heartbeat::watched`].
        watched: Vec<WatchedReport>,
    },
    /// A newer incarnation of this name lives: end.
    Superseded {
        /// Its incarnation.
        by: Incarnation,
    },
}

pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Scripts {
    /// Starts an incarnation of an instance, unless another process holds its name.
    pub async fn register(&self, keys: &Keys, with: Register<'_>) -> Result<Registered, ScriptError> {
        let call = Call::keys([&keys.instances(), &keys.incarnation(with.name)])
            .text(with.name.as_str())
            .text(with.address)
            .number(ms(with.owner_ttl))
            .number(ms(RECORD_LIFE))
            .number(ms(INCARNATION_LIFE))
            .bytes(keys.base(KeyKind::Instance).bytes())
            .texts(with.fields.iter().flat_map(|(field, value)| [*field, value.as_str()]));
        let mut reply = self.call(&REGISTER, call).await?;
        let read = |reply: &mut Reply| match reply.text()?.as_str() {
            "ok" => Ok(Registered::Ok {
                instance: Instance::new(with.name.clone(), Incarnation::new(reply.number()?)),
                now: reply.millis()?,
            }),
            "held" => Ok(Registered::Held {
                incarnation: Incarnation::new(reply.number()?),
                address: reply.text()?,
                age: Duration::from_millis(reply.number()?),
            }),
            code => MalformedReply::code(code),
        };
        read(&mut reply).map_err(|source| REGISTER.malformed(source))
    }

    /// Ends an incarnation that has released its rooms. Others learn of it for `gone_life`.
    pub async fn deregister(
        &self,
        keys: &Keys,
        me: &Instance,
        gone_life: Duration,
    ) -> Result<(), ScriptError> {
        let call = Call::keys([&keys.instances(), &keys.instance(me), &keys.unheard(me)])
            .text(me.as_str())
            .number(ms(gone_life));
        let mut reply = self.call(&DEREGISTER, call).await?;
        match reply.text().as_deref() {
            Ok("ok") => Ok(()),
            Ok(code) => Err(DEREGISTER.malformed(MalformedReply::Code { code: code.to_owned() })),
            Err(source) => Err(DEREGISTER.malformed(source.clone())),
        }
    }

    /// Renews an instance's score and a chunk of its leases. At most 2,000 rooms in a call.
    pub async fn heartbeat(&self, keys: &Keys, with: Heartbeat<'_>) -> Result<Beat, ScriptError> {
        use KeyKind::{Cell, Fence, Guests, Inbox, Owner, Peers, Presence, Room, Rooms, Settings, Watchers};
        let me = with.me;
        let mut call = Call::keys([
            &keys.instances(),
            &keys.incarnation_of(me),
            &keys.instance(me),
            &keys.instance_rooms(me),
            &keys.instance_watches(me),
            &keys.unheard(me),
        ])
        .text(me.as_str())
        .number(me.incarnation().as_u64())
        .number(ms(with.owner_ttl))
        .number(ms(RECORD_LIFE))
        .number(ms(INCARNATION_LIFE))
        .bases(keys, [Owner, Fence, Room, Settings, Guests, Peers, Presence, Cell, Watchers, Rooms, Inbox])
        .count(2 * with.fields.len())
        .count(with.owned.len())
        .count(with.owned.iter().filter(|held| held.heard.is_some()).count())
        .count(with.in_all)
        .text(with.history)
        .texts(with.fields.iter().flat_map(|(field, value)| [*field, value.as_str()]));
        for held in with.owned {
            call = call.text(held.room.route()).number(held.token.as_u64()).number(held.look.as_number());
        }
        for held in with.owned {
            if let Some(mark) = held.heard {
                call = call.text(held.room.route()).number(mark.as_u64());
            }
        }
        call = call.texts(with.watched.iter().map(RoomKey::route));
        let mut reply = self.call(&HEARTBEAT, call).await?;
        read_beat(&mut reply, with.owned.len()).map_err(|source| HEARTBEAT.malformed(source))
    }
}

fn read_beat(reply: &mut Reply, rooms: usize) -> Result<Beat, MalformedReply> {
    match reply.text()?.as_str() {
        "ok" => {
            let now = reply.millis()?;
            let history = reply.text()?;
            let (mut news, mut versions) = (reply.nested()?, reply.nested()?);
            let (mut owned, mut watched) = (vec![OwnedReport::Held; rooms], Vec::new());
            while !news.is_empty() {
                let (place, state) = (news.count()?, news.number()?);
                let (sv, cv, inbox) = (news.settings()?, news.cell()?, news.count()?);
                let mark = Some(news.millis()?).filter(|mark| mark.as_u64() > 0);
                let report = match state {
                    0 => OwnedReport::StandsAt { sv, cv, inbox, mark },
                    1 => OwnedReport::Unowned,
                    2 => OwnedReport::Taken,
                    3 => OwnedReport::Damaged,
                    other => return MalformedReply::code(&other.to_string()),
                };
                match place.checked_sub(1).and_then(|at| owned.get_mut(at)) {
                    Some(room) => *room = report,
                    None => return MalformedReply::code(&place.to_string()),
                }
            }
            while !versions.is_empty() {
                watched.push(WatchedReport { sv: versions.settings()?, cv: versions.cell()? });
            }
            Ok(Beat::Ok { now, history, owned, watched })
        }
        "superseded" => Ok(Beat::Superseded { by: Incarnation::new(reply.number()?) }),
        code => MalformedReply::code(code),
    }
}
