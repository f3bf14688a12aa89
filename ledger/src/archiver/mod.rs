//! Moves what was committed from the lanes into the ledger.
//!
//! Every instance with the role runs [`run`]; each lane has one holder at a time, by a lease whose token the ledger
//! proves in the transaction itself. A holder that was paused and superseded therefore archives nothing, and what was
//! archived but not yet taken out of its lane is recognised by its position: each entry takes effect exactly once.

mod event;
mod feed;
mod lanes;
mod renewal;

use key_prefix::{Instance, Keys};
use redis_scripts::{ArchivedLane, HeldLane, RedisMillis, Scripts};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub use event::{Event, Events};
use lanes::Lane;

use crate::{Entry, LaneBatch, LaneOutcome, Ledger, LedgerError, Poison, Subscriptions};

/// Time on the caller's own clock since any fixed moment, which is not set and goes on while the machine sleeps.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// How much, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How often leases are renewed; they live for three.
    pub heartbeat: Duration,
    /// Instances that have not been heard of for so long have no share of the lanes.
    pub owner_ttl: Duration,
    /// Pause between two looks at lanes that are empty.
    pub poll: Duration,
    /// Most entries of one lane in one transaction.
    pub lane_batch: usize,
    /// Most entries of all lanes in one transaction; fewer for a while after one that could not be made.
    pub batch: usize,
    /// What was archived is kept in Redis for so long.
    pub keep: Duration,
    /// And at most so much of each lane.
    pub keep_entries: usize,
    /// A lane that does not get on for so long is left to others.
    pub stuck: Duration,
    /// At the end, what is left may take so long.
    pub farewell: Duration,
}

/// Everything that an archiver needs.
#[derive(Clone)]
pub struct Archiver {
    /// Where entries go.
    pub ledger: Ledger,
    /// Where they come from.
    pub scripts: Scripts,
    /// The names of keys.
    pub keys: Keys,
    /// Who holds lanes.
    pub me: Instance,
    /// How much, and how often.
    pub pace: Pace,
    /// Who is told of what happened in rooms.
    pub subscriptions: Arc<Subscriptions>,
    /// The own clock.
    pub clock: Clock,
    /// Who is told how it goes.
    pub events: Arc<dyn Events>,
}

impl std::fmt::Debug for Archiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archiver").field("me", &self.me).field("pace", &self.pace).finish_non_exhaustive()
    }
}

/// Holds lanes and archives what is in them, until `shutdown`; then archives the rest, within
/// [`Pace::farewell`], and gives the lanes up.
pub async fn run(archiver: Archiver, shutdown: CancellationToken) {
    let mut work = Work {
        at_once: archiver.pace.batch,
        is_well: true,
        has_claimed: false,
        archiver,
        lanes: BTreeMap::new(),
        floor: 0,
        hold_at: Duration::ZERO,
        turns: 0,
        pause: Duration::ZERO,
    };
    let mut until = None;
    loop {
        let now = (work.archiver.clock)();
        if shutdown.is_cancelled() && until.is_none() {
            until = Some(now + work.archiver.pace.farewell);
            work.leave_all();
        }
        if until.is_some_and(|until| work.lanes.is_empty() || now >= until) {
            break;
        }
        if now >= work.hold_at {
            work.hold(until.is_none()).await;
        }
        let turn = work.renewal().during(work.turn());
        let is_more = match until {
            None => turn.await,
            // A database that hangs holds up nobody who wants to end.
            Some(until) => match tokio::time::timeout(until - now, turn).await {
                Ok(is_more) => is_more,
                Err(_) => break,
            },
        };
        if until.is_some() {
            work.release(now).await;
        }
        let pause = if is_more { Duration::ZERO } else { work.rest() };
        let rest = work.renewal().during(tokio::time::sleep(pause));
        if until.is_none() {
            _ = shutdown.run_until_cancelled(rest).await;
        } else {
            rest.await;
        }
    }
    work.release_all().await;
}

struct Work {
    archiver: Archiver,
    lanes: BTreeMap<u16, Lane>,
    /// The highest token that the ledger has shown; new ones are higher.
    floor: u64,
    hold_at: Duration,
    turns: usize,
    /// After a failure, growing.
    pause: Duration,
    /// Entries that are tried at once: what took the ledger too long is never tried again as it is.
    at_once: usize,
    /// Whether the ledger did its part when it was last asked.
    is_well: bool,
    /// Whether it has taken a claim since it failed. That alone proves little: a full one does as well.
    has_claimed: bool,
}

/// What was read of one lane.
struct Load {
    batch: LaneBatch,
    /// Stream ids in the order of the lane, whatever they hold.
    ids: Vec<String>,
    times: Vec<RedisMillis>,
}

impl Work {
    fn rest(&self) -> Duration {
        self.archiver.pace.poll.max(self.pause)
    }

    fn failed(&mut self, event: Event) {
        if matches!(event, Event::LedgerUnavailable { .. }) {
            (self.is_well, self.has_claimed) = (false, false);
        }
        self.archiver.events.on(event);
        self.pause = (self.pause * 2).clamp(self.archiver.pace.poll, Duration::from_secs(1));
    }

    /// Archives what is in the lanes, once; whether there is more.
    async fn turn(&mut self) -> bool {
        let claimed = self.lanes.iter().filter(|(_, lane)| lane.batches.is_some());
        let mut numbers: Vec<u16> = claimed.map(|(number, _)| *number).collect();
        if numbers.is_empty() {
            return false;
        }
        // Where not all is read at once, each lane comes first in its turn.
        self.turns = self.turns.wrapping_add(1);
        let first = self.turns % numbers.len();
        numbers.rotate_left(first);
        let Archiver { scripts, keys, pace, .. } = &self.archiver;
        let (now, read) =
            match scripts.lanes_read(keys, &numbers, pace.lane_batch.min(self.at_once), self.at_once).await {
                Ok(read) => read,
                Err(error) => {
                    self.failed(Event::Unavailable { why: error.to_string() });
                    return false;
                }
            };
        let mut loads = Vec::new();
        let mut is_more = false;
        for (number, read) in numbers.into_iter().zip(read) {
            let Some(lane) = self.lanes.get_mut(&number) else { continue };
            lane.length = read.length;
            is_more |= read.length > read.entries.len() as u64;
            let oldest = read.entries.first().map(|entry| entry.at);
            let lag = oldest.map_or(Duration::ZERO, |at| since(at, now));
            self.archiver.events.on(Event::Length { lane: number, entries: read.length, lag });
            if read.length == 0 {
                lane.moved((self.archiver.clock)());
            } else if read.entries.is_empty() {
                // Another time: others came first.
            } else if let Some(batches) = lane.batches {
                loads.push(load_of(lane.held, batches, read.entries));
            }
        }
        if loads.is_empty() {
            if !self.is_well && self.has_claimed && self.lanes.values().all(|lane| lane.length == 0) {
                self.is_well = true;
                self.archiver.events.on(Event::LedgerAnswers);
            }
            self.pause = Duration::ZERO;
            return false;
        }
        let archived = self.archive(loads, (now, (self.archiver.clock)())).await;
        if archived {
            self.pause = Duration::ZERO;
        }
        archived && is_more
    }

    /// Archives loads and takes them out of their lanes; whether nothing failed. `read_at` is when they were read, by
    /// Redis's clock and the own.
    async fn archive(&mut self, loads: Vec<Load>, read_at: (RedisMillis, Duration)) -> bool {
        let batches: Vec<LaneBatch> = loads.iter().map(|load| load.batch.clone()).collect();
        let Archiver { ledger, subscriptions, .. } = &self.archiver;
        match ledger.archive(&batches, subscriptions, read_at.0).await {
            Ok(outcomes) => self.take_out(loads, outcomes, read_at).await,
            Err(error) if !error.may_be_of_the_entries() => {
                self.at_once = (self.at_once / 2).max(1);
                self.failed(unavailable(&error));
                false
            }
            Err(error) => {
                self.archiver.events.on(Event::Refused { why: told(&error) });
                self.isolate(loads, read_at).await
            }
        }
    }

    /// One of these cannot be archived: it is looked for, and after a few tries set aside, so that it holds up nobody.
    async fn isolate(&mut self, mut loads: Vec<Load>, read_at: (RedisMillis, Duration)) -> bool {
        if loads.len() > 1 {
            let mut well = true;
            for load in loads {
                well &= Box::pin(self.archive(vec![load], read_at)).await;
            }
            return well;
        }
        let Some(mut load) = loads.pop() else { return true };
        let entries = load.batch.entries.len();
        if entries > 1 {
            // The first half alone; the rest is read again.
            load.batch.entries.truncate(entries / 2);
            let last = load.batch.entries.last().map(|entry| entry.entry.clone());
            let kept = load.ids.iter().position(|id| Some(id) == last.as_ref()).map_or(0, |at| at + 1);
            load.ids.truncate(kept);
            load.times.truncate(kept);
            load.batch.poison.retain(|poison| load.ids.contains(&poison.entry));
            return Box::pin(self.archive(vec![load], read_at)).await;
        }
        let Some(entry) = load.batch.entries.pop() else { return true };
        let Some(lane) = self.lanes.get_mut(&load.batch.lane) else { return true };
        if lane.strike(&entry.entry) {
            load.batch.poison.push(Poison::refused(&entry));
        } else {
            return false;
        }
        Box::pin(self.archive(vec![load], read_at)).await
    }

    async fn take_out(
        &mut self,
        loads: Vec<Load>,
        outcomes: Vec<LaneOutcome>,
        (now, read_at): (RedisMillis, Duration),
    ) -> bool {
        self.at_once = (self.at_once * 2).min(self.archiver.pace.batch);
        self.is_well = true;
        let since_read = (self.archiver.clock)().saturating_sub(read_at);
        let mut well = true;
        let mut gaps = Vec::new();
        let mut done = Vec::new();
        for (load, outcome) in loads.iter().zip(outcomes) {
            let number = load.batch.lane;
            let Some(lane) = self.lanes.get_mut(&number) else { continue };
            match outcome {
                LaneOutcome::Archived(mut took) => {
                    lane.batches = Some(took.batches);
                    lane.moved((self.archiver.clock)());
                    gaps.append(&mut took.gaps);
                    done.push((lane.held, took.batches, load));
                    let lags = load.times.iter().map(|at| since(*at, now) + since_read).collect();
                    self.archiver.events.on(Event::Archived { lane: number, took, lags });
                }
                LaneOutcome::Fenced { token } => {
                    well = false;
                    self.floor = self.floor.max(token.as_u64());
                    self.lanes.remove(&number);
                    self.archiver.events.on(Event::Fenced { lane: number });
                }
                LaneOutcome::Moved { .. } => {
                    well = false;
                    // The ledger fell back, or this lane's last batch went unanswered: it is claimed anew.
                    lane.batches = None;
                    self.hold_at = Duration::ZERO;
                }
            }
        }
        let lanes: Vec<ArchivedLane<'_>> = done
            .iter()
            .map(|(held, batches, load)| ArchivedLane {
                held: *held,
                batches: *batches,
                entries: load.ids.iter().map(String::as_str).collect(),
            })
            .collect();
        let Archiver { scripts, keys, me, pace, .. } = &self.archiver;
        match scripts.lanes_archived(keys, me, (pace.keep, pace.keep_entries), &lanes).await {
            Ok(lost) => self.lose(lost),
            Err(error) => {
                self.failed(Event::Unavailable { why: error.to_string() });
                well = false;
            }
        }
        for room in gaps {
            self.heal(&room).await;
        }
        well
    }
}

fn unavailable(error: &LedgerError) -> Event {
    Event::LedgerUnavailable { why: told(error), remedy: error.remedy() }
}

/// An error and what is behind it, in one line.
fn told(error: &LedgerError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // An error may hold what is behind it in its own text.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn since(at: RedisMillis, now: RedisMillis) -> Duration {
    Duration::from_millis(now.as_u64().saturating_sub(at.as_u64()))
}

fn load_of(held: HeldLane, batches: u64, found: Vec<redis_scripts::LaneEntry>) -> Load {
    let (mut ids, mut times) = (Vec::with_capacity(found.len()), Vec::with_capacity(found.len()));
    let (mut entries, mut poison) = (Vec::with_capacity(found.len()), Vec::new());
    for entry in found {
        ids.push(entry.id.clone());
        times.push(entry.at);
        match Entry::read(entry) {
            Ok(entry) => entries.push(entry),
            Err(bad) => poison.push(bad),
        }
    }
    Load { batch: LaneBatch { lane: held.lane, token: held.token, batches, entries, poison }, ids, times }
}
