//! `timeline`, `lanes_hold`, `lanes_read`, `lanes_archived`, `lanes_kept`, `facts`: what was committed, on its way to
//! the ledger.

use key_prefix::{Instance, KeyKind, Keys, LANES, RoomKey};
use std::collections::BTreeMap;
use std::time::Duration;

use crate::instance::ms;
use crate::reply::{MalformedReply, Reply};
use crate::script::{
    ANSWERS_RESTORE, Call, FACTS, LANES_ARCHIVED, LANES_HOLD, LANES_KEPT, LANES_READ, ScriptError, Scripts,
    TIMELINE,
};
use crate::{FenceToken, RedisMillis};

/// A committed change as it stands in its lane. What a field lacks is empty or 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneEntry {
    /// Its stream id.
    pub id: String,
    /// Route key of the room.
    pub route: String,
    /// `cell`, `settings`, `guest`, `state` or `instance`.
    pub kind: String,
    /// When it was committed.
    pub at: RedisMillis,
    /// `name/incarnation` of the owner at that time; empty: nobody owned the room.
    pub owner: String,
    /// The owner's token, or the last one before.
    pub token: FenceToken,
    /// Cell version that it made, if it made one.
    pub cv: Option<u64>,
    /// Settings version that it made, if it made one.
    pub sv: Option<u64>,
    /// What was changed, as JSON: what the owner wrote, or `{"settings":{…},"by":…}`, `{"guests":{…},"by":…}`.
    pub entry: String,
    /// Who may repeat the command, if its answer is kept.
    pub keep: Option<LaneAnswer>,
}

/// The kept answer of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneAnswer {
    /// Who asked.
    pub caller: String,
    /// The command's id.
    pub id: String,
    /// Digest of its body.
    pub digest: String,
    /// What its caller got, as JSON.
    pub answer: String,
}

impl LaneEntry {
    /// The version of the counter that it moves; of a whole state, the cell's.
    pub fn version(&self) -> u64 {
        self.cv.or(self.sv).unwrap_or_default()
    }

    fn read(reply: &mut Reply) -> Result<Self, MalformedReply> {
        let mut found = reply.nested()?;
        let mut entry = Self { id: found.text()?, ..Self::default() };
        for (field, value) in found.nested()?.any_pairs()? {
            let number = || value.parse().unwrap_or_default();
            match field.as_str() {
                "room" => entry.route = value,
                "kind" => entry.kind = value,
                "at" => entry.at = RedisMillis::new(number()),
                "owner" => entry.owner = value,
                "token" => entry.token = FenceToken::new(number()),
                "cv" => entry.cv = Some(number()),
                "sv" => entry.sv = Some(number()),
                "entry" => entry.entry = value,
                "caller" => entry.keep.get_or_insert_default().caller = value,
                "id" => entry.keep.get_or_insert_default().id = value,
                "digest" => entry.keep.get_or_insert_default().digest = value,
                "answer" => entry.keep.get_or_insert_default().answer = value,
                _ => {}
            }
        }
        Ok(entry)
    }

    fn read_all(mut reply: Reply) -> Result<Vec<Self>, MalformedReply> {
        let mut entries = Vec::new();
        while !reply.is_empty() {
            entries.push(Self::read(&mut reply)?);
        }
        Ok(entries)
    }
}

/// A page of what was committed to a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// Newest first.
    pub entries: Vec<LaneEntry>,
    /// Where the next page begins; `None`: the lane reaches no further back.
    pub next: Option<String>,
}

/// A lane that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLane {
    /// Which.
    pub lane: u16,
    /// The token of its lease.
    pub token: FenceToken,
}

/// What `lanes_hold` is told.
#[derive(Debug)]
pub struct HoldLanes<'a> {
    /// The caller.
    pub me: &'a Instance,
    /// Time to live of the leases.
    pub ttl: Duration,
    /// Instances that have not been heard of for so long have no share.
    pub owner_ttl: Duration,
    /// New tokens are larger than this.
    pub floor: FenceToken,
    /// Whether free lanes are taken.
    pub takes: bool,
    /// Lanes whose leases are renewed.
    pub held: &'a [HeldLane],
}

/// What `lanes_hold` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanesHeld {
    /// How many lanes are the caller's share.
    pub share: usize,
    /// Lanes whose leases are not the caller's any more.
    pub lost: Vec<u16>,
    /// Lanes that it took, with new tokens. What was lost may be among them.
    pub taken: Vec<HeldLane>,
}

/// The oldest entries of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRead {
    /// How many entries it has.
    pub length: u64,
    /// Oldest first.
    pub entries: Vec<LaneEntry>,
}

/// What the ledger has of a lane.
#[derive(Debug)]
pub struct ArchivedLane<'a> {
    /// The lane, by the lease that was proved to the ledger.
    pub held: HeldLane,
    /// Batches of it that the ledger took, ever.
    pub batches: u64,
    /// Stream ids that go, in the lane's order.
    pub entries: Vec<&'a str>,
}

impl Scripts {
    /// Reads what was committed to a room and is not in the ledger yet, newest first, from just `before` a stream id
    /// or from the lane's end: at most `limit` entries, out of at most `scan` that all rooms of the lane have. A page
    /// may be empty and not the last.
    pub async fn timeline(
        &self,
        keys: &Keys,
        room: &RoomKey,
        before: Option<&str>,
        scan: usize,
        limit: usize,
    ) -> Result<Timeline, ScriptError> {
        let call = Call::keys([&keys.lane(room)])
            .text(room.route())
            .text(before.unwrap_or_default())
            .count(scan.max(1))
            .count(limit.max(1));
        self.read(&TIMELINE, call, |code, reply| match code {
            "ok" => Ok(Timeline {
                next: Some(reply.text()?).filter(|next| !next.is_empty()),
                entries: LaneEntry::read_all(reply.nested()?)?,
            }),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Renews the leases of lanes, and takes free ones up to the caller's share.
    pub async fn lanes_hold(&self, keys: &Keys, with: HoldLanes<'_>) -> Result<LanesHeld, ScriptError> {
        let mut call = Call::keys([&keys.instances()])
            .text(with.me.as_str())
            .number(ms(with.ttl))
            .number(ms(with.owner_ttl))
            .number(with.floor.as_u64())
            .flag(with.takes)
            .number(LANES.into())
            .bases(keys, [KeyKind::Instance, KeyKind::Lease, KeyKind::LeaseFence]);
        for HeldLane { lane, token } in with.held {
            call = call.text(&key_prefix::lane_lease(*lane)).number(token.as_u64());
        }
        self.read(&LANES_HOLD, call, |code, reply| match code {
            "ok" => read_held(reply),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Reads the oldest entries of lanes, in the order of `lanes`: at most `limit` of each, and `total` of all, so that
    /// the last ones may get none. Says what Redis's clock shows, too.
    pub async fn lanes_read(
        &self,
        keys: &Keys,
        lanes: &[u16],
        limit: usize,
        total: usize,
    ) -> Result<(RedisMillis, Vec<LaneRead>), ScriptError> {
        let mut call = Call::keys([]).bytes(keys.base(KeyKind::Lane).bytes()).count(limit).count(total);
        for lane in lanes {
            call = call.number((*lane).into());
        }
        self.read(&LANES_READ, call, |code, reply| match code {
            "ok" => {
                let now = reply.millis()?;
                let mut found = reply.nested()?;
                let mut lanes = Vec::new();
                while !found.is_empty() {
                    let length = found.number()?;
                    lanes.push(LaneRead { length, entries: LaneEntry::read_all(found.nested()?)? });
                }
                Ok((now, lanes))
            }
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Takes out of lanes what the ledger has, and keeps it for a while. Lanes whose leases are not the caller's any
    /// more stay as they are, and come back.
    pub async fn lanes_archived(
        &self,
        keys: &Keys,
        me: &Instance,
        keep: (Duration, usize),
        lanes: &[ArchivedLane<'_>],
    ) -> Result<Vec<u16>, ScriptError> {
        let mut call = Call::keys([&keys.checkpoints()])
            .text(me.as_str())
            .number(ms(keep.0))
            .count(keep.1)
            .bases(keys, [KeyKind::Lease, KeyKind::Lane, KeyKind::LaneKept]);
        for ArchivedLane { held, batches, entries } in lanes {
            call = call
                .number(held.lane.into())
                .number(held.token.as_u64())
                .number(*batches)
                .count(entries.len())
                .texts(entries.iter().copied());
        }
        self.read(&LANES_ARCHIVED, call, |code, reply| match code {
            "ok" => {
                let mut found = reply.nested()?;
                let mut lost = Vec::new();
                while !found.is_empty() {
                    lost.push(u16::try_from(found.number()?).unwrap_or(LANES));
                }
                Ok(lost)
            }
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Reads what is kept of a lane after the ledger took it, oldest first, and how many batches the ledger had taken.
    pub async fn lanes_kept(
        &self,
        keys: &Keys,
        lane: u16,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(u64, Vec<LaneEntry>), ScriptError> {
        let call = Call::keys([&keys.lane_kept(lane), &keys.checkpoints()])
            .number(lane.into())
            .text(after.unwrap_or_default())
            .count(limit.max(1));
        self.read(&LANES_KEPT, call, |code, reply| match code {
            "ok" => Ok((reply.number()?, LaneEntry::read_all(reply.nested()?)?)),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Puts back answers that Redis lost; each with when its command was committed. Returns how many were not there.
    pub async fn answers_restore<'a>(
        &self,
        keys: &Keys,
        room: &RoomKey,
        answers: impl IntoIterator<Item = (&'a LaneAnswer, RedisMillis)>,
    ) -> Result<usize, ScriptError> {
        let mut call = Call::keys([]).text(room.route()).bytes(keys.base(KeyKind::Answer).bytes());
        for (kept, at) in answers {
            let LaneAnswer { caller, id, digest, answer } = kept;
            call = call.texts([&**caller, id, digest, answer]).number(at.as_u64());
        }
        self.read(&ANSWERS_RESTORE, call, |code, reply| match code {
            "ok" => reply.count(),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Writes those of the facts that are not there yet, and reads them all.
    pub async fn facts(
        &self,
        keys: &Keys,
        facts: &[(&str, &str)],
    ) -> Result<BTreeMap<String, String>, ScriptError> {
        let call = Call::keys([&keys.facts()]).texts(facts.iter().flat_map(|(name, value)| [*name, *value]));
        self.read(&FACTS, call, |code, reply| match code {
            "ok" => Ok(reply.nested()?.pairs()?.into_iter().collect()),
            code => MalformedReply::code(code),
        })
        .await
    }
}

fn read_held(reply: &mut Reply) -> Result<LanesHeld, MalformedReply> {
    let lane = |name: &str| name.strip_prefix("lane-").and_then(|lane| lane.parse().ok()).unwrap_or(LANES);
    let share = reply.count()?;
    let (mut found, mut lost) = (reply.nested()?, Vec::new());
    while !found.is_empty() {
        lost.push(lane(&found.text()?));
    }
    let (mut found, mut taken) = (reply.nested()?, Vec::new());
    while !found.is_empty() {
        taken.push(HeldLane { lane: lane(&found.text()?), token: found.token()? });
    }
    Ok(LanesHeld { share, lost, taken })
}
