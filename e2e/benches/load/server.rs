//! One server under load, and its Redis.

use e2e::cluster::Cluster;
use e2e::coordinator::{Coordinator, CoordinatorOptions};
use e2e::process::Process;
use e2e::servers::{Flavor, RedisServer};
use e2e::{http, token, wait};
use std::env;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
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

/// What a workload needs of a server beside the usual; the peer has its eight seats, and forgets empty rooms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Instances on the same Redis.
    pub(crate) instances: usize,
    /// Seats of a room.
    pub(crate) seats: u32,
    /// How long a room without people stays loaded.
    pub(crate) idle: Duration,
    /// Between two heartbeats.
    pub(crate) heartbeat: Duration,
}

impl Needs {
    /// Of most workloads.
    pub(crate) const USUAL: Self =
        Self { instances: 1, seats: 8, idle: Duration::from_secs(30), heartbeat: Duration::from_secs(5) };
}

/// A running server with its Redis.
#[derive(Debug)]
pub(crate) enum Server {
    Dais(Cluster),
    // Redis ends after the processes, which would complain.
    Peer { instances: Vec<PeerInstance>, redis: RedisServer },
}

/// One process of the peer.
#[derive(Debug)]
pub(crate) struct PeerInstance {
    process: Process,
    address: String,
}

/// Where the peer is: in the folder that is named, or in the repository's own, where its packages are installed.
pub(crate) fn peer_folder() -> Option<PathBuf> {
    let named = env::var_os("DAIS_PEER_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("peer");
    named.or_else(|| Some(own()).filter(|folder| folder.join("node_modules").is_dir()))
}

impl Server {
    /// Starts it on an empty Redis that syncs its file every second, with no limits in the way.
    pub(crate) async fn start(kind: Kind, needs: Needs) -> Self {
        let redis = RedisServer::start(Flavor::Redis).await;
        match kind {
            Kind::Dais => {
                let change = |options| configure(options, needs);
                Self::Dais(Cluster::start_on(redis, needs.instances, change).await)
            }
            Kind::Peer => {
                let mut instances = Vec::new();
                for at in 0..needs.instances {
                    instances.push(PeerInstance::start(at, &redis, needs.heartbeat).await);
                }
                Self::Peer { instances, redis }
            }
        }
    }

    /// Which it is.
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Dais(_) => Kind::Dais,
            Self::Peer { .. } => Kind::Peer,
        }
    }

    /// `host:port` of its first instance.
    pub(crate) fn address(&self) -> String {
        self.addresses().swap_remove(0)
    }

    /// `host:port` of its last instance.
    pub(crate) fn other_address(&self) -> String {
        self.addresses().pop().expect("an instance")
    }

    /// `host:port` of each instance.
    pub(crate) fn addresses(&self) -> Vec<String> {
        match self {
            Self::Dais(cluster) => {
                cluster.urls().iter().map(|url| url.trim_start_matches("http://").to_owned()).collect()
            }
            Self::Peer { instances, .. } => instances.iter().map(|each| each.address.clone()).collect(),
        }
    }

    /// Its instances that run, where they are ours.
    pub(crate) fn running(&self) -> impl Iterator<Item = &Coordinator> {
        let all = match self {
            Self::Dais(cluster) => cluster.coordinators.as_slice(),
            Self::Peer { .. } => &[],
        };
        all.iter().filter(|instance| instance.process().exit_status().is_none())
    }

    /// Its processes that run.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        let peers = match self {
            Self::Dais(_) => &[],
            Self::Peer { instances, .. } => instances.as_slice(),
        };
        let peers = peers.iter().map(|each| &each.process).filter(|it| it.exit_status().is_none());
        self.running().map(Coordinator::process).chain(peers)
    }

    /// Kills the first instance.
    pub(crate) async fn kill_first(&mut self) {
        match self {
            Self::Dais(cluster) => cluster[0].kill().await,
            Self::Peer { instances, .. } => instances[0].process.kill().await,
        }
    }

    /// Its Redis.
    pub(crate) const fn redis(&self) -> &RedisServer {
        match self {
            Self::Dais(cluster) => &cluster.redis,
            Self::Peer { redis, .. } => redis,
        }
    }
}

fn configure(options: CoordinatorOptions, needs: Needs) -> CoordinatorOptions {
    let patience = u64::try_from(needs.heartbeat.as_millis()).unwrap_or(u64::MAX) * 3 / 5;
    options
        .heartbeat(needs.heartbeat)
        // The longest that this heartbeat allows: a machine that stalls gives a bad figure, not a failed bench.
        .value("redis", "command_timeout_ms", patience)
        .value("limits", "connections", 100_000)
        .value("limits", "events_per_second", 100_000)
        .value("limits", "joins_per_second", 1_000_000)
        .value("app", "seats", needs.seats)
        .text("app", "callbacks.generic.secret", CALLBACK_SECRET)
        .idle(needs.idle)
}

impl PeerInstance {
    async fn start(at: usize, redis: &RedisServer, heartbeat: Duration) -> Self {
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
            .env("INSTANCE_ID", format!("peer-{at}"))
            .env("PUBLIC_URL", format!("http://{address}"))
            .env("HEARTBEAT_MS", heartbeat.as_millis().to_string())
            .env("REDIS_URL", redis.url())
            // Its cheaper profile: no Redis message for each broadcast, and a heap that collects less often.
            .env("PEER_LOCAL", "1")
            .env("NODE_OPTIONS", "--max-semi-space-size=64");
        let process = Process::start(&format!("peer-{at}"), command);
        let url = format!("http://{address}/healthz");
        wait::eventually(wait::SOON, || async {
            match http::get(&url).await {
                Ok(answer) if answer.status == 200 => Ok(()),
                other => Err(other.map(|answer| answer.status)),
            }
        })
        .await;
        Self { process, address: address.to_string() }
    }
}
