//! What a workload cost: the difference of two readings.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

use crate::client::Client;
use crate::meter::{Commits, Reading};
use crate::server::Server;

/// What a workload cost.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    /// How many operations it was.
    pub(crate) operations: u64,
    /// From the first request to the last delivery.
    pub(crate) wall: Duration,
    /// Processor time of the server.
    pub(crate) server: Duration,
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
    /// Events that clients were sent.
    pub(crate) events: u64,
    /// How long each request waited for its answer, shortest first.
    pub(crate) acks: Vec<Duration>,
    /// Commits of cells.
    pub(crate) commits: Commits,
    /// Memory of the server.
    pub(crate) resident: Resident,
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

    /// Ends with the last delivery at `end`.
    pub(crate) async fn end(
        self,
        server: &Server,
        end: Instant,
        mut acks: Vec<Duration>,
        clients: &[Client],
    ) -> Figures {
        let after = Reading::take(server).await;
        let before = self.before;
        acks.sort_unstable();
        let since = |name: &str, count: u64| count - before.commands.get(name).copied().unwrap_or(0);
        let commands: BTreeMap<_, _> =
            after.commands.iter().map(|(name, count)| (name.clone(), since(name, *count))).collect();
        let (on_server, redis, own) = (
            after.server.saturating_sub(before.server),
            after.redis.saturating_sub(before.redis),
            after.own - before.own,
        );
        Figures {
            operations: acks.len() as u64,
            wall: end - self.at,
            server: on_server,
            redis,
            own,
            others: (after.machine - before.machine).saturating_sub(on_server + redis + own),
            scripts: Reading::scripts(&commands),
            commands: commands.into_iter().filter(|(_, count)| *count > 0).collect(),
            events: clients.iter().map(|client| client.seen().events.get()).sum(),
            acks,
            resident: Resident { begin: self.resident, end: resident(server), rested: None },
            commits: Commits::read(server).await.since(&self.commits),
        }
    }
}

/// Resident set of all its processes, in bytes.
pub(crate) fn resident(server: &Server) -> u64 {
    server.processes().map(|process| process.usage().resident_bytes).sum()
}
