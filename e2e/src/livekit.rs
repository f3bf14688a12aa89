//! A private LiveKit.

use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;

use crate::process::Process;
use crate::servers::free_port;
use crate::{http, place, wait};

/// Its API key.
pub const API_KEY: &str = "devkey";
/// The key's secret; LiveKit wants 32 bytes.
pub const API_SECRET: &str = "the secret of the test's LiveKit";

const NAME: &str = "livekit-server";
const START_ATTEMPTS: usize = 10;
const STARTED: Duration = Duration::from_secs(20);

/// A running LiveKit without Redis: what it knows ends with it.
#[derive(Debug)]
pub struct LiveKit {
    binary: PathBuf,
    port: u16,
    // Before its folder, which is removed when the process is gone.
    process: Process,
    folder: TempDir,
}

impl LiveKit {
    /// Starts it, with webhooks to these URLs, and waits until it answers. Rooms are only made by request.
    ///
    /// `None`, which it says: there is none, and no Go that could have compiled it.
    pub async fn start(webhooks: &[&str]) -> Option<Self> {
        let binary = binary()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        for _ in 0..START_ATTEMPTS {
            let port = free_port();
            let configuration = configuration(port, webhooks).to_string();
            fs::write(file(folder.path()), configuration).expect("the folder can be written to");
            if let Some(process) = launch(&binary, folder.path(), port).await {
                return Some(Self { binary, port, process, folder });
            }
        }
        panic!("{NAME} found no ports in {START_ATTEMPTS} attempts");
    }

    /// `http://127.0.0.1:{port}`, which restarts keep.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The process, for its log and its use of the machine.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// SIGTERM: everybody leaves, and it ends.
    pub async fn stop(&self) -> ExitStatus {
        self.process.term();
        self.process.exit(wait::SOON).await
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// SIGSTOP: connections stay, nothing is answered.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Starts it again on its ports, without its rooms, killing it first if it still runs.
    pub async fn restart(&mut self) {
        if self.process.exit_status().is_none() {
            self.process.kill().await;
        }
        for _ in 0..START_ATTEMPTS {
            if let Some(process) = launch(&self.binary, self.folder.path(), self.port).await {
                self.process = process;
                return;
            }
        }
        panic!("a port of {NAME} has been taken by another process");
    }
}

#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
fn binary() -> Option<PathBuf> {
    let binary = place::cached_binary(NAME).or_else(|| place::on_path(NAME));
    if binary.is_none() {
        let go = place::on_path("go");
        assert!(go.is_none(), "{NAME} is not there; `deploy/setup.sh test` compiles it with Go");
        eprintln!("skipped: no {NAME} (needs Go)");
    }
    binary
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn file(folder: &Path) -> PathBuf {
    folder.join("livekit.yaml")
}

/// As JSON, which YAML contains.
fn configuration(port: u16, webhooks: &[&str]) -> serde_json::Value {
    json!({
        "port": port,
        "bind_addresses": ["127.0.0.1"],
        "keys": { API_KEY: API_SECRET },
        "rtc": {
            "tcp_port": free_port(),
            "udp_port": free_port(),
            "node_ip": "127.0.0.1",
            "use_external_ip": false,
            "enable_loopback_candidate": true,
            "ips": { "includes": ["127.0.0.1/32"] },
        },
        "room": { "auto_create": false },
        "webhook": { "api_key": API_KEY, "urls": webhooks },
    })
}

/// `None` if another process was faster to take a port.
async fn launch(binary: &Path, folder: &Path, port: u16) -> Option<Process> {
    let mut command = Command::new(binary);
    command.arg("--config").arg(file(folder));
    let process = Process::start(&format!("{NAME}-{port}"), command);
    wait::eventually(STARTED, || async {
        if process.exit_status().is_some() {
            return Ok(false);
        }
        match http::get(&url(port)).await {
            Ok(answer) if answer.status == 200 => Ok(true),
            other => Err(other),
        }
    })
    .await
    .then_some(process)
}
