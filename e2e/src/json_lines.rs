//! A Node.js driver: commands in, replies out, one JSON object a line.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::process::{ChildStdin, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::place;
use crate::process::Process;

/// Longer than any time-out that a command carries itself.
const ANSWERED: Duration = Duration::from_secs(180);

/// A command that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What went wrong.
    pub message: String,
    /// The whole reply, with the details that the command's row in `e2e/node/README.md` names.
    pub details: Value,
}

impl Failure {
    /// The error code of a refused join or handshake; empty if it was none of ours.
    pub fn code(&self) -> &str {
        let code = self.details.get("code").or_else(|| self.details.pointer("/data/code"));
        code.and_then(Value::as_str).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct Pending(Mutex<HashMap<u64, oneshot::Sender<Value>>>);

impl Pending {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<u64, oneshot::Sender<Value>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
pub(crate) struct JsonLines {
    process: Process,
    input: Mutex<ChildStdin>,
    pending: Arc<Pending>,
    next: AtomicU64,
    pump: JoinHandle<()>,
}

impl JsonLines {
    pub(crate) fn start(script: &str) -> Self {
        let folder = place::repository().join("e2e/node");
        install(&folder);
        let mut command = Command::new("node");
        command.arg(folder.join(script)).current_dir(&folder);
        let (process, input, mut lines) = Process::converse(script, command);
        let pending = Arc::new(Pending::default());
        let waiting = Arc::clone(&pending);
        let pump = tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                // What a driver pushes unasked it also keeps, to be asked for.
                let Ok(reply) = serde_json::from_str::<Value>(&line) else { continue };
                if let Some(asker) = reply["id"].as_u64().and_then(|id| waiting.with(|all| all.remove(&id))) {
                    _ = asker.send(reply);
                }
            }
            waiting.with(HashMap::clear);
        });
        Self { process, input: Mutex::new(input), pending, next: AtomicU64::new(1), pump }
    }

    pub(crate) const fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) async fn ask(&self, op: &str, mut command: Value) -> Result<Value, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        command["id"] = json!(id);
        command["op"] = json!(op);
        let (asker, answer) = oneshot::channel();
        self.pending.with(|all| all.insert(id, asker));
        let written = self
            .input
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(format!("{command}\n").as_bytes());
        let reply = match written {
            Ok(()) => tokio::time::timeout(ANSWERED, answer).await,
            Err(_) => Ok(answer.await),
        };
        let Ok(Ok(reply)) = reply else {
            panic!("{} did not answer {op}:\n{}", self.process.name(), self.process.log_lines().join("\n"));
        };
        if reply["ok"] == true {
            return Ok(reply);
        }
        Err(Failure { message: reply["error"].as_str().unwrap_or("no reason").to_owned(), details: reply })
    }
}

impl Drop for JsonLines {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// Installs the drivers' packages once; tests that start at once wait for the first.
fn install(folder: &std::path::Path) {
    let is_installed = || folder.join("node_modules/.package-lock.json").is_file();
    if is_installed() {
        return;
    }
    let cache = place::profile();
    let lock = fs::create_dir_all(&cache).and_then(|()| File::create(cache.join("e2e-npm.lock")));
    let lock = lock.expect("a file beside the build");
    lock.lock().expect("a lock on an own file");
    if is_installed() {
        return;
    }
    let status = Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(folder).status();
    assert!(status.is_ok_and(|status| status.success()), "`npm ci` in {} failed", folder.display());
}
