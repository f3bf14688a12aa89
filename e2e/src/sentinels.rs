//! A primary with two replicas, and three Sentinels that watch them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

use crate::process::Process;
use crate::resp::{self, Value};
use crate::servers::{Flavor, RedisServer, ServerOptions, free_port};
use crate::{place, wait};

/// The Sentinels' name for the primary.
const SERVICE: &str = "dais";
/// Whom replicas and Sentinels come as: without these users a server is cut off from them, and from nobody else.
const USERS: [(&str, &str); 2] = [
    ("replica", "on >secret +psync +replconf +ping"),
    (
        "sentinel",
        "on >secret allchannels +multi +exec +replicaof +slaveof +ping +subscribe +publish +info +role \
         +config|rewrite +client|setname +client|kill +script|kill +hello",
    ),
];
/// Sentinels that must agree.
const QUORUM: usize = 2;
const SENTINELS: usize = 3;
/// How long a server must be silent to count as down.
const DOWN_AFTER: Duration = Duration::from_millis(1_500);
/// A failover takes some seconds of votes and pauses.
pub const FAILOVER: Duration = Duration::from_secs(60);

/// The servers, of whom the first began as primary, and who watches them.
#[derive(Debug)]
pub struct Sentinels {
    /// In the order that they were started in.
    pub servers: Vec<RedisServer>,
    sentinels: Vec<(u16, Process)>,
    // After the processes that write into it.
    _folder: TempDir,
}

/// A server that stops taking writes when it hears of no replica for a second.
pub fn guarded() -> ServerOptions {
    let users = USERS.iter().fold(ServerOptions::new(Flavor::Redis), |options, (name, rules)| {
        let rules: Vec<_> = rules.split_whitespace().collect();
        options.arguments("--user", [*name].into_iter().chain(rules))
    });
    users
        .argument("--masteruser", "replica")
        .argument("--masterauth", "secret")
        .argument("--min-replicas-to-write", "1")
        .argument("--min-replicas-max-lag", "1")
        .argument("--repl-diskless-sync-delay", "0")
}

impl Sentinels {
    /// Starts all of them, and waits until everybody knows everybody.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut servers = vec![guarded().start().await];
        let primary = servers[0].port();
        for _ in 0..2 {
            let replica = guarded().arguments("--replicaof", ["127.0.0.1", &primary.to_string()]);
            servers.push(replica.start().await);
        }
        let mut sentinels = Vec::new();
        for n in 0..SENTINELS {
            sentinels.push(start_sentinel(folder.path().join(format!("sentinel-{n}.conf")), primary).await);
        }
        let all = Self { servers, sentinels, _folder: folder };
        place::cluster_folder(&all.url(), all.servers[0].folder());
        all.know_each_other().await;
        all
    }

    /// The URL that a coordinator takes.
    pub fn url(&self) -> String {
        let [first, others @ ..] = self.sentinels.as_slice() else { unreachable!("three were started") };
        let others: String = others.iter().map(|(port, _)| format!("&node=127.0.0.1:{port}")).collect();
        format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName={SERVICE}{others}", first.0)
    }

    /// Which server most Sentinels say is the primary.
    pub async fn primary(&self) -> Option<usize> {
        let mut votes = vec![0; self.servers.len()];
        for (port, _) in &self.sentinels {
            let said = resp::command(*port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).await;
            let said = said.ok().and_then(|said| said.items().get(1)?.number());
            let named = |server: &RedisServer| Some(i64::from(server.port())) == said;
            if let Some(at) = self.servers.iter().position(named) {
                votes[at] += 1;
            }
        }
        votes.iter().position(|votes| *votes >= QUORUM)
    }

    /// Waits until another than this one is primary, and says so itself.
    pub async fn failed_over(&self, from: usize) -> usize {
        wait::eventually(FAILOVER, || async {
            let primary = self.primary().await.filter(|at| *at != from).ok_or("no other is named")?;
            let role = self.servers[primary].command(&["ROLE"]).await;
            let is_primary = role.items().first().is_some_and(|role| role.text() == "master");
            is_primary.then_some(primary).ok_or("it is none yet")
        })
        .await
    }

    /// Cuts a server off from replicas and Sentinels; whoever else is connected stays so.
    pub async fn isolate(&self, at: usize) {
        for (name, _) in USERS {
            self.servers[at].command(&["ACL", "DELUSER", name]).await;
        }
        // Who may not come as themselves would be anybody, and anybody's server answers.
        self.servers[at].command(&["ACL", "SETUSER", "default", "-ping"]).await;
    }

    /// Takes that back.
    pub async fn reunite(&self, at: usize) {
        for (name, rules) in USERS {
            let command: Vec<_> =
                ["ACL", "SETUSER", name].into_iter().chain(rules.split_whitespace()).collect();
            let set = self.servers[at].command(&command).await;
            assert_eq!(set.text(), "OK", "{name}");
        }
        self.servers[at].command(&["ACL", "SETUSER", "default", "+ping"]).await;
    }

    /// Waits until every Sentinel knows both replicas and both others, and the primary both replicas.
    pub async fn know_each_other(&self) {
        for (port, _) in &self.sentinels {
            wait::eventually(FAILOVER, || async {
                let said = resp::command(*port, &["SENTINEL", "MASTER", SERVICE]).await;
                let said = said.map_err(|error| error.to_string())?.texts();
                let field = |name: &str| {
                    let at = said.iter().position(|field| field == name)?;
                    said.get(at + 1).cloned()
                };
                let known = ["flags", "num-slaves", "num-other-sentinels"].map(field);
                let wanted = ["master", "2", "2"].map(|value| Some(value.to_owned()));
                if known == wanted { Ok(()) } else { Err(format!("{known:?}")) }
            })
            .await;
        }
        self.replicated(2).await;
    }

    /// Waits until the primary has so many good replicas, and takes writes.
    pub async fn replicated(&self, replicas: usize) {
        wait::eventually(FAILOVER, || async {
            let primary = self.primary().await.ok_or("no primary")?;
            let info = self.servers[primary].command(&["INFO", "replication"]).await.text();
            let wanted = format!("min_slaves_good_slaves:{replicas}\r");
            if info.contains(&wanted) { Ok(()) } else { Err("its replicas are not in touch") }
        })
        .await;
    }
}

async fn start_sentinel(file: PathBuf, primary: u16) -> (u16, Process) {
    let port = free_port();
    let config = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\n\
         sentinel monitor {SERVICE} 127.0.0.1 {primary} {QUORUM}\n\
         sentinel auth-user {SERVICE} sentinel\nsentinel auth-pass {SERVICE} secret\n\
         sentinel down-after-milliseconds {SERVICE} {}\n\
         sentinel failover-timeout {SERVICE} 5000\nsentinel parallel-syncs {SERVICE} 2\n",
        file.parent().expect("a folder").display(),
        DOWN_AFTER.as_millis(),
    );
    fs::write(&file, config).expect("an own folder");
    let mut command = Command::new(Flavor::Redis.binary());
    command.arg(file).arg("--sentinel");
    let process = Process::start(&format!("sentinel-{port}"), command);
    let answers = || async {
        matches!(resp::command(port, &["PING"]).await, Ok(Value::Status(pong)) if pong == "PONG")
    };
    wait::until("the Sentinel answers", wait::SOON, answers).await;
    (port, process)
}
