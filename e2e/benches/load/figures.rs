//! What a workload cost: the difference of two readings.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

use crate::client::Client;
use crate::meter::{Commits, Reading};
use crate::server::Server;
use crate::watch::Watched;

/// What a workload cost.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    /// Where a workload has several results, which of them this is.
    pub(crate) part: Option<String>,
    /// How many operations it was.
    pub(crate) operations: u64,
    /// Whether something else went on, so that what it cost is not of these operations.
    pub(crate) is_mixed: bool,
    /// From the first request to the last delivery.
    pub(crate) wall: Duration,
    /// Processor time of each instance.
    pub(crate) instances: Vec<Duration>,
    /// Processor time of Redis.
    pub(crate) redis: Duration,
    /// Processor time of the load generator.
    pub(crate) own: Duration,
    /// Processor time of the machine that went to none of these.
    pub(crate) others: Duration,
    /// Script calls.
    pub(crate) scripts: u64,
    /// All commands that Redis ran, by name.
    pub(crate) commands: BTreeMap<String, u64>,
    /// What clients were sent.
    pub(crate) sent: Sent,
    /// How long each request waited for its answer, shortest first.
    pub(crate) acks: Vec<Duration>,
    /// How long each delivery took, shortest first; empty where that is not measured.
    pub(crate) deliveries: Vec<Duration>,
    /// Commits of cells.
    pub(crate) commits: Commits,
    /// Memory of the server.
    pub(crate) resident: Resident,
    /// How long Redis was blocked, where that was watched.
    pub(crate) watched: Option<Watched>,
    /// What the machine would allow, where that is known.
    pub(crate) limit: Option<Limit>,
}

/// What was sent to the clients of a workload.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    /// Frames of any kind.
    pub(crate) frames: u64,
    /// Events.
    pub(crate) events: u64,
    /// Bytes of these events.
    pub(crate) bytes: u64,
}

/// Resident set, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resident {
    /// Before the first operation.
    pub(crate) begin: u64,
    /// After the last delivery.
    pub(crate) end: u64,
    /// After a while of rest, where that was measured.
    pub(crate) rested: Option<u64>,
}

/// A limit that was measured in the same round.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// Processor time of one frame to one socket.
    Frame(Duration),
    /// Calls of a minimal script in a second.
    ScriptRate(f64),
}

/// A measurement that has begun.
pub(crate) struct Begun {
    commits: Commits,
    before: Reading,
    resident: u64,
    at: Instant,
}

impl Begun {
    /// Begins.
    pub(crate) async fn now(server: &Server) -> Self {
        Self {
            // First here and last at the end: to be asked for metrics is none of the work.
            commits: Commits::read(server).await,
            resident: resident(server),
            before: Reading::take(server).await,
            at: Instant::now(),
        }
    }

    /// Ends with the last delivery at `end`. An operation is what `acks` has the wait of.
    pub(crate) async fn end(
        self,
        server: &Server,
        end: Instant,
        acks: Vec<Duration>,
        clients: &[Client],
    ) -> Figures {
        let after = Reading::take(server).await;
        let before = self.before;
        let since = |name: &str, count: u64| count - before.commands.get(name).copied().unwrap_or(0);
        let commands: BTreeMap<_, _> =
            after.commands.iter().map(|(name, count)| (name.clone(), since(name, *count))).collect();
        let pairs = after.instances.iter().zip(&before.instances);
        let instances: Vec<Duration> = pairs.map(|(after, before)| after.saturating_sub(*before)).collect();
        let (redis, own) = (after.redis.saturating_sub(before.redis), after.own - before.own);
        let ours = instances.iter().sum::<Duration>() + redis + own;
        Figures {
            part: None,
            operations: acks.len() as u64,
            is_mixed: false,
            wall: end - self.at,
            instances,
            redis,
            own,
            others: (after.machine - before.machine).saturating_sub(ours),
            scripts: Reading::scripts(&commands),
            commands: commands.into_iter().filter(|(_, count)| *count > 0).collect(),
            sent: Sent::to(clients),
            acks: sorted(acks),
            deliveries: Vec::new(),
            resident: Resident { begin: self.resident, end: resident(server), rested: None },
            commits: Commits::read(server).await.since(&self.commits),
            watched: None,
            limit: None,
        }
    }
}

impl Figures {
    /// Of this part of a workload.
    pub(crate) fn of(mut self, part: impl Into<String>) -> Self {
        self.part = Some(part.into());
        self
    }

    /// Of other operations than those that the cost is of, and how long each waited.
    pub(crate) fn meanwhile(mut self, acks: Vec<Duration>) -> Self {
        self.is_mixed = true;
        self.operations = acks.len() as u64;
        self.acks = sorted(acks);
        self
    }

    /// With so many operations.
    pub(crate) const fn counted(mut self, operations: u64) -> Self {
        self.operations = operations;
        self
    }

    /// With the deliveries that an operation each is.
    pub(crate) fn delivered(mut self, deliveries: Vec<Duration>) -> Self {
        self.deliveries = sorted(deliveries);
        self
    }

    /// With the memory that is left after a rest.
    pub(crate) fn rested(mut self, server: &Server) -> Self {
        self.resident.rested = Some(resident(server));
        self
    }

    /// With what was seen of Redis meanwhile.
    pub(crate) fn watched(mut self, watched: Watched) -> Self {
        self.watched = Some(watched);
        self
    }

    /// Processor time of all instances.
    pub(crate) fn server(&self) -> Duration {
        self.instances.iter().sum()
    }
}

impl Sent {
    fn to(clients: &[Client]) -> Self {
        let mut all = Self::default();
        for seen in clients.iter().map(Client::seen) {
            all.frames += seen.frames.get();
            all.events += seen.events.get();
            all.bytes += seen.bytes.get();
        }
        all
    }
}

fn sorted(mut waits: Vec<Duration>) -> Vec<Duration> {
    waits.sort_unstable();
    waits
}

/// Resident set of all its processes, in bytes.
pub(crate) fn resident(server: &Server) -> u64 {
    server.processes().map(|process| process.usage().resident_bytes).sum()
}
