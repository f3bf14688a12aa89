//! Private Redis and Valkey servers.

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::Builder;
use fred::types::config::{Config, ReconnectPolicy};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;

use crate::process::Process;
use crate::resp::{self, Value};
use crate::{place, wait};

const START_ATTEMPTS: usize = 10;
const STARTED: Duration = Duration::from_secs(20);

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// `redis-server` on PATH: 7.0 or newer.
    Redis,
    /// `valkey-server` of the cache, or on PATH.
    Valkey,
    /// `redis-server-6.2` of the cache: too old on purpose.
    Redis62,
}

impl Flavor {
    /// Those that a coordinator accepts.
    pub const ACCEPTED: [Self; 2] = [Self::Redis, Self::Valkey];

    pub(crate) fn binary(self) -> PathBuf {
        let name = match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
            Self::Redis62 => "redis-server-6.2",
        };
        let cached = if self == Self::Redis { None } else { place::cached_binary(name) };
        cached.or_else(|| place::on_path(name)).unwrap_or_else(|| {
            panic!("{name} is not there; `deploy/setup.sh test` puts it into the cache of test servers")
        })
    }
}

/// When the append-only file is brought to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before each answer.
    Always,
    /// Once a second.
    EverySecond,
}

/// How to start a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    flavor: Flavor,
    aof: Option<Fsync>,
    maxmemory_policy: String,
    cluster: bool,
    arguments: Vec<String>,
}

impl ServerOptions {
    /// As a coordinator wants it: AOF with `everysec`, `noeviction`, no cluster.
    pub fn new(flavor: Flavor) -> Self {
        Self {
            flavor,
            aof: Some(Fsync::EverySecond),
            maxmemory_policy: "noeviction".to_owned(),
            cluster: false,
            arguments: Vec::new(),
        }
    }

    /// With an append-only file, or without: then a restart forgets everything.
    #[must_use]
    pub fn aof(mut self, fsync: Option<Fsync>) -> Self {
        self.aof = fsync;
        self
    }

    /// With another `maxmemory-policy`.
    #[must_use]
    pub fn maxmemory_policy(mut self, policy: &str) -> Self {
        policy.clone_into(&mut self.maxmemory_policy);
        self
    }

    /// With `cluster-enabled yes`.
    #[must_use]
    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// With one more argument and its value, such as `--requirepass`.
    #[must_use]
    pub fn argument(self, name: &str, value: &str) -> Self {
        self.arguments(name, [value])
    }

    /// With one more argument and its values, such as `--replicaof`.
    #[must_use]
    pub fn arguments<'a>(mut self, name: &str, values: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.push(name.to_owned());
        self.arguments.extend(values.into_iter().map(str::to_owned));
        self
    }

    /// Starts it and waits until it takes connections.
    pub async fn start(self) -> RedisServer {
        let binary = self.flavor.binary();
        let folder = tempfile::tempdir().expect("a temporary folder");
        for _ in 0..START_ATTEMPTS {
            let port = free_port();
            if let Some(process) = launch(&self, &binary, folder.path(), port).await {
                let server = RedisServer { options: self, binary, port, process, folder };
                place::cluster_folder(&server.url(), server.folder());
                return server;
            }
        }
        panic!("{} found no port in {START_ATTEMPTS} attempts", binary.display());
    }

    fn command(&self, binary: &Path, folder: &Path, port: u16) -> Command {
        let yes_no = |yes| if yes { "yes" } else { "no" };
        let mut command = Command::new(binary);
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
            .arg("--dir")
            .arg(folder);
        command.args([
            "--maxmemory-policy",
            &self.maxmemory_policy,
            "--appendonly",
            yes_no(self.aof.is_some()),
        ]);
        if let Some(fsync) = self.aof {
            let fsync = if fsync == Fsync::Always { "always" } else { "everysec" };
            command.args(["--appendfsync", fsync]);
        }
        if self.flavor != Flavor::Redis62 {
            command.args(["--enable-debug-command", "local"]);
        }
        if self.cluster {
            command.args(["--cluster-enabled", "yes", "--cluster-port", &free_port().to_string()]);
        }
        command.args(&self.arguments);
        command
    }
}

/// A running server, with data of its own that ends with it.
#[derive(Debug)]
pub struct RedisServer {
    options: ServerOptions,
    binary: PathBuf,
    port: u16,
    // Before its folder, which is removed when the process is gone.
    process: Process,
    folder: TempDir,
}

impl RedisServer {
    /// A server as a coordinator wants it.
    pub async fn start(flavor: Flavor) -> Self {
        ServerOptions::new(flavor).start().await
    }

    /// Its port on 127.0.0.1, which restarts keep.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:{port}`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its folder of data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process, for its log and its use of the machine.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Sends one command over a connection of its own.
    pub async fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Value {
        match resp::command(self.port, arguments).await {
            Ok(value) => value,
            Err(error) => panic!("redis on port {}: {error}", self.port),
        }
    }

    /// A client that repeats nothing by itself and reconnects within 100 ms.
    pub async fn client(&self) -> Client {
        let config = Config::from_url(&self.url()).expect("a good URL");
        let client = Builder::from_config(config)
            .with_connection_config(|connection| connection.max_command_attempts = 1)
            .with_performance_config(|config| config.default_command_timeout = Duration::from_secs(10))
            .set_policy(ReconnectPolicy::new_constant(0, 50))
            .build()
            .expect("a good configuration");
        client.init().await.expect("a running server");
        client
    }

    /// SIGTERM: writes what it must and ends.
    pub async fn stop(&self) -> ExitStatus {
        self.process.term();
        self.process.exit(wait::SOON).await
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// Takes out of the append-only file what the last kill left half-written, as its operator should before each start.
    /// A server whose package has no tool for that needs none.
    pub fn repair(&self) {
        let manifest = self.folder.path().join("appendonlydir/appendonly.aof.manifest");
        let mut command = Command::new("redis-check-aof");
        command.arg("--fix").arg(manifest).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut tool) = command.spawn() else { return };
        // It asks only where there is something to take out.
        _ = tool.stdin.take().expect("it is piped").write_all(b"y\n");
        let output = tool.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// SIGSTOP: connections stay, nothing is answered.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Starts it again on its port and its data, killing it first if it still runs.
    pub async fn restart(&mut self) {
        if self.process.exit_status().is_none() {
            self.process.kill().await;
        }
        for _ in 0..START_ATTEMPTS {
            if let Some(process) = launch(&self.options, &self.binary, self.folder.path(), self.port).await {
                self.process = process;
                return;
            }
        }
        panic!("port {} has been taken by another process", self.port);
    }
}

/// `None` if another process was faster to take the port.
async fn launch(options: &ServerOptions, binary: &Path, folder: &Path, port: u16) -> Option<Process> {
    let name = binary.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let process = Process::start(&format!("{name}-{port}"), options.command(binary, folder, port));
    let ready = process.line("line saying that it is ready", 0, STARTED, |line| {
        if line.contains("eady to accept connections") {
            return Some(true);
        }
        line.contains("ddress already in use").then_some(false)
    });
    ready.await.then_some(process)
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound port").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_written_survives_a_kill_where_the_file_is_synced_always() {
        for flavor in Flavor::ACCEPTED {
            let mut server = ServerOptions::new(flavor).aof(Some(Fsync::Always)).start().await;
            assert_eq!(server.command(&["SET", "a", "1"]).await, Value::Status("OK".to_owned()));
            server.kill().await;
            assert!(resp::command(server.port(), &["PING"]).await.is_err());
            server.restart().await;
            assert_eq!(server.command(&["GET", "a"]).await.text(), "1");
            assert!(server.stop().await.success());
        }
    }

    #[tokio::test]
    async fn a_paused_server_answers_when_it_goes_on() {
        let server = RedisServer::start(Flavor::Redis).await;
        server.pause();
        let port = server.port();
        let asked = tokio::spawn(async move { resp::command(port, &["PING"]).await });
        tokio::task::yield_now().await;
        assert!(!asked.is_finished());
        server.resume();
        assert_eq!(asked.await.unwrap().unwrap().text(), "PONG");
    }

    #[tokio::test]
    async fn servers_that_a_coordinator_refuses_can_be_started() {
        let info = async |server: &RedisServer| server.command(&["INFO"]).await.text();
        let old = RedisServer::start(Flavor::Redis62).await;
        assert!(info(&old).await.contains("redis_version:6.2"));
        let cluster = ServerOptions::new(Flavor::Redis).cluster().start().await;
        assert!(info(&cluster).await.contains("cluster_enabled:1"));
        let options = ServerOptions::new(Flavor::Redis).maxmemory_policy("allkeys-lru").aof(None);
        let evicting = options.argument("--requirepass", "secret").start().await;
        assert_eq!(evicting.command(&["PING"]).await.text(), "NOAUTH Authentication required.");
    }
}
