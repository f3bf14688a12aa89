//! One server under load, and its Redis.

use e2e::cluster::Cluster;
use e2e::coordinator::{Coordinator, CoordinatorOptions};
use e2e::process::Process;
use e2e::servers::{Flavor, RedisServer};
use e2e::{http, token, wait};
use std::env;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What callbacks of the generic form are signed with.
pub(crate) const CALLBACK_SECRET: &str = "a secret of the media server, long enough";

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ours.
    Dais,
    /// The Node.js server that it is compared with.
    Peer,
}

impl Kind {
    /// As it is called in the tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dais => "dais",
            Self::Peer => "peer",
        }
    }
}

/// What a workload needs of a server beside the usual; the peer is as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Instances on the same Redis.
    pub(crate) instances: usize,
    /// Seats of a room.
    pub(crate) seats: u32,
    /// How long a room without people stays loaded.
    pub(crate) idle: Duration,
}

impl Default for Needs {
    fn default() -> Self {
        Self { instances: 1, seats: 8, idle: Duration::from_secs(30) }
    }
}

/// A running server with its Redis.
#[derive(Debug)]
pub(crate) enum Server {
    Dais(Cluster),
    // Redis ends after the process, which would complain.
    Peer { process: Process, address: String, redis: RedisServer },
}

/// Where the peer is, if there is one.
pub(crate) fn peer_folder() -> Option<PathBuf> {
    env::var_os("DAIS_PEER_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

impl Server {
    /// Starts it on an empty Redis that syncs its file every second, with heartbeats of 5 s and no limits in the way.
    pub(crate) async fn start(kind: Kind, needs: Needs) -> Self {
        let redis = RedisServer::start(Flavor::Redis).await;
        match kind {
            Kind::Dais => {
                let change = |options| configure(options, needs);
                Self::Dais(Cluster::start_on(redis, needs.instances, change).await)
            }
            Kind::Peer => {
                let (process, address) = start_peer(&redis).await;
                Self::Peer { process, address, redis }
            }
        }
    }

    /// `host:port` of its first instance.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Dais(cluster) => address_of(&cluster[0]),
            Self::Peer { address, .. } => address.clone(),
        }
    }

    /// `host:port` of its last instance.
    pub(crate) fn other_address(&self) -> String {
        self.instances().last().map_or_else(|| self.address(), address_of)
    }

    /// `host:port` of each instance.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = String> {
        self.instances().iter().map(address_of)
    }

    /// Its instances, where they are ours.
    pub(crate) fn instances(&self) -> &[Coordinator] {
        match self {
            Self::Dais(cluster) => &cluster.coordinators,
            Self::Peer { .. } => &[],
        }
    }

    /// Its processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        let peer = match self {
            Self::Dais(_) => None,
            Self::Peer { process, .. } => Some(process),
        };
        self.instances().iter().map(Coordinator::process).chain(peer)
    }

    /// Its Redis.
    pub(crate) const fn redis(&self) -> &RedisServer {
        match self {
            Self::Dais(cluster) => &cluster.redis,
            Self::Peer { redis, .. } => redis,
        }
    }
}

fn address_of(coordinator: &Coordinator) -> String {
    coordinator.url().trim_start_matches("http://").to_owned()
}

fn configure(options: CoordinatorOptions, needs: Needs) -> CoordinatorOptions {
    options
        .heartbeat(Duration::from_secs(5))
        // A machine that stalls gives a bad figure, not a failed bench.
        .value("redis", "command_timeout_ms", 3_000)
        .value("limits", "connections", 100_000)
        .value("limits", "events_per_second", 100_000)
        .value("limits", "joins_per_second", 1_000_000)
        .value("app", "seats", needs.seats)
        .text("app", "callbacks.generic.secret", CALLBACK_SECRET)
        .idle(needs.idle)
}

async fn start_peer(redis: &RedisServer) -> (Process, String) {
    let folder = peer_folder().expect("a folder of the peer");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound port");
    drop(listener);
    let mut command = Command::new("node");
    command
        .arg("server.mjs")
        .current_dir(folder)
        .env("PEER_SECRET", token::SECRET)
        .env("PORT", address.port().to_string())
        .env("REDIS_URL", redis.url())
        // Its cheaper profile: no Redis message for each broadcast, and a heap that collects less often.
        .env("PEER_LOCAL", "1")
        .env("NODE_OPTIONS", "--max-semi-space-size=64");
    let process = Process::start("peer", command);
    let url = format!("http://{address}/healthz");
    wait::eventually(wait::SOON, || async {
        match http::get(&url).await {
            Ok(answer) if answer.status == 200 => Ok(()),
            other => Err(other.map(|answer| answer.status)),
        }
    })
    .await;
    (process, address.to_string())
}
