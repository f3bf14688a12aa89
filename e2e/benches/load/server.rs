//! One server under load, and its Redis.

use e2e::coordinator::{Coordinator, CoordinatorOptions};
use e2e::process::Process;
use e2e::servers::{Flavor, RedisServer};
use e2e::{http, token, wait};
use std::env;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

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

#[derive(Debug)]
enum Program {
    Dais(Coordinator),
    Peer(Process),
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    program: Program,
    address: String,
    // After the server, which would complain.
    pub(crate) redis: RedisServer,
}

/// Where the peer is, if there is one.
pub(crate) fn peer_folder() -> Option<PathBuf> {
    env::var_os("DAIS_PEER_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

impl Server {
    /// Starts it on an empty Redis that syncs its file every second, with heartbeats of 5 s and no limits in the way.
    pub(crate) async fn start(kind: Kind) -> Self {
        let redis = RedisServer::start(Flavor::Redis).await;
        match kind {
            Kind::Dais => {
                let coordinator = options(&redis).start().await;
                let address = coordinator.url().trim_start_matches("http://").to_owned();
                Self { program: Program::Dais(coordinator), address, redis }
            }
            Kind::Peer => {
                let (process, address) = start_peer(&redis).await;
                Self { program: Program::Peer(process), address, redis }
            }
        }
    }

    /// `host:port`
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Its process.
    pub(crate) const fn process(&self) -> &Process {
        match &self.program {
            Program::Dais(coordinator) => coordinator.process(),
            Program::Peer(process) => process,
        }
    }
}

fn options(redis: &RedisServer) -> CoordinatorOptions {
    CoordinatorOptions::new("load", &redis.url())
        .heartbeat(Duration::from_secs(5))
        .value("limits", "connections", 100_000)
        .value("limits", "events_per_second", 100_000)
        .value("limits", "joins_per_second", 1_000_000)
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
