//! `instances`, `remains`, `reap`, `sweep`: what the reaper's leader does, proving its token each time.

use key_prefix::{AppCode, Instance, KeyKind, Keys};
use std::time::Duration;

use crate::instance::ms;
use crate::reply::MalformedReply;
use crate::script::{Call, INSTANCES, REAP, REMAINS, SWEEP, ScriptError, Scripts};
use crate::{FenceToken, RedisMillis};

/// What `instances` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeats {
    /// Redis's time.
    pub now: RedisMillis,
    /// Each registered instance with its last heartbeat.
    pub instances: Vec<(Instance, RedisMillis)>,
    /// Members that are no instance: something else wrote them.
    pub foreign: Vec<String>,
}

/// What `remains` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remains {
    /// Rooms in the instance's set.
    pub rooms: usize,
    /// Rooms that it watches.
    pub watches: usize,
}

/// What `reap` is told.
#[derive(Debug)]
pub struct Reap<'a> {
    /// The key name of the reaper's lease.
    pub lease: &'static str,
    /// The leader.
    pub me: &'a Instance,
    /// Its token.
    pub token: FenceToken,
    /// Whom it found dead.
    pub dead: &'a Instance,
    /// The heartbeat that it saw unchanged.
    pub score: RedisMillis,
    /// At most so many rooms, and so many watches.
    pub chunk: usize,
    /// How long a room that nobody owns is kept.
    pub life: Duration,
    /// Owner keys that earlier chunks cleared.
    pub cleared: usize,
    /// Apps that are told of its end.
    pub apps: &'a [AppCode],
}

/// What `reap` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reaped {
    /// Nothing of the dead instance is left.
    Done {
        /// Owner keys cleared.
        rooms: usize,
        /// Watches cleared.
        watches: usize,
    },
    /// Call again.
    More {
        /// Owner keys cleared.
        rooms: usize,
        /// Watches cleared.
        watches: usize,
    },
    /// The caller's leadership is over.
    NotLeader {
        /// What the lease holds.
        held: String,
    },
    /// The instance has been heard of since.
    Alive,
}

/// What `sweep` is told.
#[derive(Debug)]
pub struct Sweep<'a> {
    /// The key name of the reaper's lease.
    pub lease: &'static str,
    /// The leader.
    pub me: &'a Instance,
    /// Its token.
    pub token: FenceToken,
    /// The app whose index is walked.
    pub app: &'a str,
    /// Room id to go on from; empty: the first.
    pub after: &'a str,
    /// Rooms in a page.
    pub limit: usize,
    /// How long a room that nobody owns is kept.
    pub life: Duration,
}

/// What `sweep` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swept {
    /// One page.
    Ok {
        /// Where the next page begins; empty: this was the last.
        next: String,
        /// Rooms that were given an end.
        ended: usize,
        /// Rooms dropped from the index.
        dropped: usize,
    },
    /// The caller's leadership is over.
    NotLeader {
        /// What the lease holds.
        held: String,
    },
}

impl Scripts {
    /// Lists every instance with its last heartbeat.
    pub async fn instances(&self, keys: &Keys) -> Result<Heartbeats, ScriptError> {
        self.read(&INSTANCES, Call::keys([&keys.instances()]), |code, reply| match code {
            "ok" => {
                let now = reply.millis()?;
                let (mut instances, mut foreign) = (Vec::new(), Vec::new());
                for (member, score) in reply.nested()?.pairs()? {
                    match (member.parse(), score.parse()) {
                        (Ok(instance), Ok(score)) => instances.push((instance, RedisMillis::new(score))),
                        _ => foreign.push(member),
                    }
                }
                Ok(Heartbeats { now, instances, foreign })
            }
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Counts what an instance holds.
    pub async fn remains(&self, keys: &Keys, instance: &Instance) -> Result<Remains, ScriptError> {
        let call = Call::keys([&keys.instance_rooms(instance), &keys.instance_watches(instance)]);
        self.read(&REMAINS, call, |code, reply| match code {
            "ok" => Ok(Remains { rooms: reply.count()?, watches: reply.count()? }),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Clears a chunk of what a dead instance left behind.
    pub async fn reap(&self, keys: &Keys, with: Reap<'_>) -> Result<Reaped, ScriptError> {
        use KeyKind::{Cell, Guests, Inbox, Owner, Peers, Presence, Room, Settings, Watchers};
        let mut call = Call::keys([
            &keys.lease(with.lease),
            &keys.instances(),
            &keys.instance(with.dead),
            &keys.instance_rooms(with.dead),
            &keys.instance_watches(with.dead),
            &keys.due(),
            &keys.unheard(with.dead),
        ])
        .text(with.me.as_str())
        .number(with.token.as_u64())
        .text(with.dead.as_str())
        .number(with.score.as_u64())
        .count(with.chunk)
        .number(ms(with.life))
        .bases(keys, [Owner, Watchers, Room, Settings, Guests, Peers, Presence, Cell, Inbox])
        .count(with.cleared)
        .bytes(keys.base(KeyKind::Lane).bytes());
        for app in with.apps {
            let route = format!("{app}\0{}", with.dead);
            call = call.number(key_prefix::lane_of(&route).into()).text(&route);
        }
        self.read(&REAP, call, |code, reply| match code {
            "done" => Ok(Reaped::Done { rooms: reply.count()?, watches: reply.count()? }),
            "more" => Ok(Reaped::More { rooms: reply.count()?, watches: reply.count()? }),
            "not_leader" => Ok(Reaped::NotLeader { held: reply.text()? }),
            "alive" => Ok(Reaped::Alive),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Walks one page of an app's index.
    pub async fn sweep(&self, keys: &Keys, with: Sweep<'_>) -> Result<Swept, ScriptError> {
        use KeyKind::{Cell, Guests, Inbox, Owner, Peers, Presence, Room, Settings};
        let call = Call::keys([&keys.lease(with.lease), &keys.rooms(with.app)])
            .text(with.me.as_str())
            .number(with.token.as_u64())
            .texts([with.app, with.after])
            .count(with.limit)
            .number(ms(with.life))
            .bases(keys, [Owner, Room, Settings, Guests, Peers, Presence, Cell, Inbox]);
        self.read(&SWEEP, call, |code, reply| match code {
            "ok" => Ok(Swept::Ok { next: reply.text()?, ended: reply.count()?, dropped: reply.count()? }),
            "not_leader" => Ok(Swept::NotLeader { held: reply.text()? }),
            code => MalformedReply::code(code),
        })
        .await
    }
}
