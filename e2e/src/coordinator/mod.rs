//! One coordinator process.

mod config;

pub use config::CoordinatorOptions;

use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use std::{env, fs};
use tempfile::TempDir;

use crate::metrics::Metrics;
use crate::process::{Process, Usage};
use crate::{http, place, wait};

/// A loaded machine starts many of them at once.
const STARTED: Duration = Duration::from_secs(30);

/// A running coordinator.
#[derive(Debug)]
pub struct Coordinator {
    options: CoordinatorOptions,
    // Before its folder, which is removed when the process is gone.
    process: Process,
    folder: TempDir,
    listen: String,
    admin_listen: String,
}

impl CoordinatorOptions {
    /// Starts the process and waits for nothing: for one that is to refuse its work.
    pub fn spawn(&self) -> (Process, TempDir) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        (self.spawn_in(&folder), folder)
    }

    fn spawn_in(&self, folder: &TempDir) -> Process {
        let file = folder.path().join("dais.toml");
        fs::write(&file, self.render()).expect("a file in an own folder");
        let mut words = self.entrance().iter().map(OsString::from).chain([binary().into_os_string()]);
        let mut command = Command::new(words.next().expect("at least the program"));
        command
            .args(words)
            .arg("serve")
            .arg("--config")
            .arg(file)
            .current_dir(folder.path())
            .env("RUST_BACKTRACE", "1");
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("DAIS_") {
                command.env_remove(name);
            }
        }
        command.envs(self.environment().iter().map(|(name, value)| (name, value)));
        Process::start(&format!("coordinator-{}", self.id()), command)
    }

    /// Starts it and waits until it says `ready` and `/readyz` agrees.
    pub async fn start(self) -> Coordinator {
        let coordinator = self.start_unready().await;
        coordinator.ready().await;
        coordinator
    }

    /// Starts it and waits until it says where it listens.
    pub async fn start_unready(self) -> Coordinator {
        self.launch().listening().await
    }

    /// Starts it, so that others can be started before it is waited for.
    pub(crate) fn launch(self) -> Launched {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let process = self.spawn_in(&folder);
        Launched { options: self, process, folder }
    }
}

/// A process that has not yet said where it listens.
pub(crate) struct Launched {
    options: CoordinatorOptions,
    process: Process,
    folder: TempDir,
}

impl Launched {
    pub(crate) async fn listening(self) -> Coordinator {
        let (listen, admin_listen) = listening(&self.process).await;
        Coordinator {
            options: self.options,
            process: self.process,
            folder: self.folder,
            listen,
            admin_listen,
        }
    }
}

impl Coordinator {
    /// Its id.
    pub fn id(&self) -> &str {
        self.options.id()
    }

    /// `http://{listen}`
    pub fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// `http://{admin_listen}`
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin_listen)
    }

    /// The process, for its log, its use of the machine and its signals.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&self) {
        self.readiness(200, STARTED).await;
    }

    /// Waits until `/readyz` answers `status`.
    pub async fn readiness(&self, status: u16, within: Duration) {
        let url = format!("{}/readyz", self.url());
        wait::eventually(within, || async {
            assert!(
                self.process.exit_status().is_none(),
                "{} has ended:\n{:#?}",
                self.id(),
                self.log_lines()
            );
            match http::get(&url).await {
                Ok(answer) if answer.status == status => Ok(()),
                other => Err(other.map(|answer| (answer.status, answer.body))),
            }
        })
        .await;
    }

    /// What `/metrics` says.
    pub async fn metrics(&self) -> Metrics {
        match http::get(&format!("{}/metrics", self.admin_url())).await {
            Ok(answer) if answer.status == 200 => Metrics::parse(&answer.body),
            other => panic!("{}: no metrics: {other:?}", self.id()),
        }
    }

    /// What it has used of processor and memory.
    pub fn usage(&self) -> Usage {
        self.process.usage()
    }

    /// Every line that it said so far.
    pub fn log_lines(&self) -> Vec<String> {
        self.process.log_lines()
    }

    /// Waits for a log line with this message, from line `since` on, and returns its fields.
    pub async fn log_line(&self, message: &str, since: usize, within: Duration) -> Value {
        self.process.line(message, since, within, |line| fields_of(line, message)).await
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// SIGSTOP.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// SIGTERM, and waits for its end.
    pub async fn term(&self, within: Duration) -> ExitStatus {
        self.process.term();
        self.process.exit(within).await
    }

    /// Starts it again with its id and its addresses: to Redis it is the same process, come back.
    pub async fn restart(&mut self) {
        let options = self.options.clone();
        self.restart_with(options.text("instance", "listen", &self.listen.clone()).text(
            "instance",
            "admin_listen",
            &self.admin_listen.clone(),
        ))
        .await;
    }

    /// Starts it again with other options, killing it first if it still runs.
    pub async fn restart_with(&mut self, options: CoordinatorOptions) {
        if self.process.exit_status().is_none() {
            self.process.kill().await;
        }
        self.options = options;
        self.process = self.options.spawn_in(&self.folder);
        (self.listen, self.admin_listen) = listening(&self.process).await;
        self.ready().await;
    }

    /// The options that it was started with.
    pub const fn options(&self) -> &CoordinatorOptions {
        &self.options
    }
}

async fn listening(process: &Process) -> (String, String) {
    let ready = process.line("line saying `ready`", 0, STARTED, |line| fields_of(line, "ready")).await;
    let address = |field: &str| match ready[field].as_str() {
        Some(address) => address.to_owned(),
        None => panic!("{}: `ready` without {field}: {ready}", process.name()),
    };
    (address("listen"), address("admin_listen"))
}

/// The fields of a JSON log line with this message, whether they stand at its root or under `fields`.
fn fields_of(line: &str, message: &str) -> Option<Value> {
    let mut line: Value = serde_json::from_str(line).ok()?;
    if line.get("message").is_none() {
        line = line.get_mut("fields")?.take();
    }
    (line["message"] == message).then_some(line)
}

fn binary() -> PathBuf {
    let chosen = env::var_os("DAIS_COORDINATOR").map(PathBuf::from);
    let binary = chosen.unwrap_or_else(|| place::profile().join("coordinator"));
    assert!(
        binary.is_file(),
        "{} is not there; build it with `cargo build --package coordinator`, or name another in DAIS_COORDINATOR",
        binary.display()
    );
    binary
}
