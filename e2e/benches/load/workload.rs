//! What is done to a server, and what it cost.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::crowd::{change_settings, connect, delivered, join, leave, tokens};
use crate::meter::Reading;
use crate::server::{Kind, Server};

/// How long idle connections are left alone before memory is read again.
const SETTLE: Duration = Duration::from_secs(5);
const WARM_ROOMS: usize = 300;
const WARM_CHANGES: usize = 2_000;

/// One workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// 3,000 connections that do nothing.
    Idle,
    /// 5,000 joins, each into a room of its own.
    JoinOwn,
    /// 5,000 joins into 500 rooms.
    JoinTen,
    /// 1,000 joins into one room.
    JoinOne,
    /// 10,000 changes in 200 rooms of ten.
    Settings,
}

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

impl Workload {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::Idle, Self::JoinOwn, Self::JoinTen, Self::JoinOne, Self::Settings];

    /// As it is called in the tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::JoinOwn => "join_own",
            Self::JoinTen => "join_ten",
            Self::JoinOne => "join_one",
            Self::Settings => "settings",
        }
    }

    /// Measures it on a fresh server.
    pub(crate) async fn run(self, kind: Kind) -> Figures {
        let server = Server::start(kind).await;
        match self {
            Self::Idle => idle(&server, 3_000).await,
            Self::JoinOwn => joins(&server, 5_000, 5_000).await,
            Self::JoinTen => joins(&server, 5_000, 500).await,
            Self::JoinOne => joins(&server, 1_000, 1).await,
            Self::Settings => settings(&server, 200, 10, 10_000).await,
        }
    }
}

/// Lets a server compile, allocate and cache what it will.
async fn warm(server: &Server) {
    let clients = connect(server.address(), &tokens("warm", WARM_ROOMS * 2)).await;
    join(&clients, "warm", WARM_ROOMS).await;
    change_settings(&clients, "warm", WARM_ROOMS, WARM_CHANGES).await;
    leave(&clients, "warm", WARM_ROOMS).await;
}

/// A measurement that has begun.
struct Begun {
    before: Reading,
    resident: u64,
    at: Instant,
}

impl Begun {
    async fn now(server: &Server) -> Self {
        Self { resident: resident(server), before: Reading::take(server).await, at: Instant::now() }
    }

    async fn end(
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
        }
    }
}

fn resident(server: &Server) -> u64 {
    server.process().usage().resident_bytes
}

async fn idle(server: &Server, count: usize) -> Figures {
    let tokens = tokens("idle", count);
    let begun = Begun::now(server).await;
    let clients = connect(server.address(), &tokens).await;
    let waits = clients.iter().map(Client::opened_in).collect();
    let mut figures = begun.end(server, Instant::now(), waits, &clients).await;
    sleep(SETTLE).await;
    figures.resident.rested = Some(resident(server));
    figures
}

async fn joins(server: &Server, count: usize, rooms: usize) -> Figures {
    warm(server).await;
    let clients = connect(server.address(), &tokens("user", count)).await;
    let begun = Begun::now(server).await;
    let acks = join(&clients, "room", rooms).await;
    let acked = Instant::now();
    let in_room = |at: usize| (count - at % rooms).div_ceil(rooms);
    let last = delivered("everybody sees everybody", &clients, |at, client| {
        client.seen().peers.get() == in_room(at) as u64
    })
    .await;
    begun.end(server, last.map_or(acked, |last| last.max(acked)), acks, &clients).await
}

async fn settings(server: &Server, rooms: usize, members: usize, changes: usize) -> Figures {
    warm(server).await;
    let clients = connect(server.address(), &tokens("user", rooms * members)).await;
    join(&clients, "room", rooms).await;
    delivered("everybody sees everybody", &clients, |_, client| client.seen().peers.get() == members as u64)
        .await;
    for client in &clients {
        client.seen().events.set(0);
    }
    let begun = Begun::now(server).await;
    let acks = change_settings(&clients, "room", rooms, changes).await;
    let acked = Instant::now();
    let version = |at: usize| clients[at].seen().version.get();
    let last = delivered("everybody has the last settings", &clients, |at, client| {
        client.seen().version.get() == version(at % rooms)
    })
    .await;
    begun.end(server, last.map_or(acked, |last| last.max(acked)), acks, &clients).await
}
