//! A private Janus, and plain clients of it.

mod client;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;

pub use client::{Client, Flow};

use crate::process::Process;
use crate::servers::free_port;
use crate::{http, place, wait};

/// What coordinators say to its API.
pub const API_SECRET: &str = "the secret of the test's Janus API";
/// What signs the tokens that clients say to it.
pub const TOKEN_SECRET: &str = "the secret of the test's Janus tokens";
/// What opens its Admin API.
pub const ADMIN_SECRET: &str = "the secret of the test's Janus administration";
/// What a plugin asks of who makes rooms.
pub const ADMIN_KEY: &str = "the key of the test's Janus rooms";

const START_ATTEMPTS: usize = 10;
const STARTED: Duration = Duration::from_secs(20);
/// Ports of media, more than a test has connections.
const MEDIA_PORTS: u16 = 100;
/// Where Debian puts it; elsewhere `JANUS_LIBRARIES` says it.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu/janus";

/// Where Janus's events go.
#[derive(Debug, Clone)]
pub enum Events {
    /// By `sampleevh`: one POST after another, lost after some attempts.
    Http {
        /// `http://…`
        url: String,
        /// For HTTP Basic.
        username: String,
        /// For HTTP Basic.
        password: String,
    },
    /// By `wsevh`: over one WebSocket, kept while it is away.
    WebSocket {
        /// `ws://…`
        url: String,
        /// What it asks for, and is proved by.
        subprotocol: String,
    },
}

/// How to start a Janus.
#[derive(Debug, Clone)]
pub struct JanusOptions {
    events: Option<Events>,
    http: bool,
    session_timeout_s: u32,
}

impl Default for JanusOptions {
    fn default() -> Self {
        Self { events: None, http: false, session_timeout_s: 60 }
    }
}

impl JanusOptions {
    /// With an event handler.
    #[must_use]
    pub fn events(mut self, events: Events) -> Self {
        self.events = Some(events);
        self
    }

    /// With the Janus API over HTTP too.
    #[must_use]
    pub fn http(mut self) -> Self {
        self.http = true;
        self
    }

    /// With sessions that end after so many seconds of silence.
    #[must_use]
    pub fn session_timeout_s(mut self, seconds: u32) -> Self {
        self.session_timeout_s = seconds;
        self
    }

    /// Starts it, and waits until its APIs answer.
    pub async fn start(self) -> Janus {
        let binary = place::on_path("janus")
            .expect("janus is not there; `apt-get install --no-install-recommends janus` installs it");
        let folder = tempfile::tempdir().expect("a temporary folder");
        for _ in 0..START_ATTEMPTS {
            let ports = Ports::free();
            self.write(folder.path(), &ports);
            if let Some(process) = launch(&binary, folder.path(), &ports).await {
                return Janus { binary, ports, process, folder };
            }
        }
        panic!("{} found no ports in {START_ATTEMPTS} attempts", binary.display());
    }

    fn write(&self, folder: &Path, ports: &Ports) {
        let write = |name: &str, text: String| {
            fs::write(folder.join(format!("janus{name}.jcfg")), text).expect("the folder can be written to");
        };
        let libraries = std::env::var("JANUS_LIBRARIES").unwrap_or_else(|_| LIBRARIES.to_owned());
        let (here, session_timeout_s) = (folder.display(), self.session_timeout_s);
        let Ports { ws, http, admin, media, rtp } = *ports;
        write(
            "",
            format!(
                "general: {{
                    configs_folder = \"{here}\"
                    plugins_folder = \"{libraries}/plugins\"
                    transports_folder = \"{libraries}/transports\"
                    events_folder = \"{libraries}/events\"
                    loggers_folder = \"{libraries}/loggers\"
                    debug_colors = false
                    server_name = \"dais-test\"
                    interface = \"127.0.0.1\"
                    api_secret = \"{API_SECRET}\"
                    token_auth = true
                    token_auth_secret = \"{TOKEN_SECRET}\"
                    admin_secret = \"{ADMIN_SECRET}\"
                    session_timeout = {session_timeout_s}
                }}
                media: {{ no_media_timer = 1, rtp_port_range = \"{media}-{}\" }}
                plugins: {{ disable = \"{}\" }}
                transports: {{ disable = \"{}\" }}
                events: {{ broadcast = {}, stats_period = 0 }}\n",
                media + MEDIA_PORTS,
                unused(&[
                    "duktape",
                    "echotest",
                    "lua",
                    "nosip",
                    "recordplay",
                    "sip",
                    "streaming",
                    "textroom",
                    "videocall",
                    "voicemail",
                ]),
                unused(&["mqtt", "nanomsg", "pfunix", "rabbitmq"]),
                self.events.is_some(),
            ),
        );
        write(
            ".transport.websockets",
            format!("general: {{ json = \"compact\", ws = true, ws_port = {ws}, ws_ip = \"127.0.0.1\" }}\n"),
        );
        write(
            ".transport.http",
            format!(
                "general: {{ json = \"compact\", http = {}, port = {http}, ip = \"127.0.0.1\", base_path = \"/janus\" }}
                admin: {{ admin_http = true, admin_port = {admin}, admin_ip = \"127.0.0.1\", admin_base_path = \"/admin\" }}\n",
                self.http
            ),
        );
        write(
            ".plugin.videoroom",
            format!("general: {{ admin_key = \"{ADMIN_KEY}\", string_ids = true }}\n"),
        );
        write(
            ".plugin.audiobridge",
            format!(
                "general: {{ admin_key = \"{ADMIN_KEY}\", string_ids = true, local_ip = \"127.0.0.1\",
                    rtp_port_range = \"{rtp}-{}\" }}\n",
                rtp + MEDIA_PORTS
            ),
        );
        let mask = "events = \"media,plugins\", grouping = true, json = \"compact\"";
        match &self.events {
            None => {}
            Some(Events::Http { url, username, password }) => write(
                ".eventhandler.sampleevh",
                format!(
                    "general: {{ enabled = true, {mask}, backend = \"{url}\", backend_user = \"{username}\",
                        backend_pwd = \"{password}\", max_retransmissions = 5, retransmissions_backoff = 100 }}\n"
                ),
            ),
            Some(Events::WebSocket { url, subprotocol }) => write(
                ".eventhandler.wsevh",
                format!(
                    "general: {{ enabled = true, {mask}, backend = \"{url}\", subprotocol = \"{subprotocol}\" }}\n"
                ),
            ),
        }
    }
}

fn unused(names: &[&str]) -> String {
    names.iter().map(|name| format!("libjanus_{name}.so")).collect::<Vec<_>>().join(",")
}

#[derive(Debug)]
struct Ports {
    ws: u16,
    http: u16,
    admin: u16,
    /// The first of those for WebRTC, and for plain RTP.
    media: u16,
    rtp: u16,
}

impl Ports {
    fn free() -> Self {
        let range = || free_port().min(u16::MAX - MEDIA_PORTS);
        Self { ws: free_port(), http: free_port(), admin: free_port(), media: range(), rtp: range() }
    }
}

/// A running Janus with a configuration of its own.
#[derive(Debug)]
pub struct Janus {
    binary: PathBuf,
    ports: Ports,
    // Before its folder, which is removed when the process is gone.
    process: Process,
    folder: TempDir,
}

impl Janus {
    /// One without events, with the Admin API, and the Janus API over WebSocket.
    pub async fn start() -> Self {
        JanusOptions::default().start().await
    }

    /// Its Janus API over WebSocket.
    pub fn url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.ports.ws)
    }

    /// Its Janus API over HTTP, if it has that.
    pub fn http_url(&self) -> String {
        format!("http://127.0.0.1:{}/janus", self.ports.http)
    }

    /// Its Admin API.
    pub fn admin_url(&self) -> String {
        admin_url(&self.ports)
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

    /// SIGSTOP, and waits until each of its threads has stopped: connections stay, nothing is answered.
    pub async fn pause(&self) {
        self.process.pause();
        let threads = format!("/proc/{}/task", self.process.pid());
        wait::until("Janus has stopped", wait::SOON, async || {
            let threads = fs::read_dir(&threads).expect("a running process");
            threads.flatten().all(|thread| is_stopped(&thread.path()))
        })
        .await;
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
            if let Some(process) = launch(&self.binary, self.folder.path(), &self.ports).await {
                self.process = process;
                return;
            }
        }
        panic!("a port of {} has been taken by another process", self.url());
    }
}

fn is_stopped(thread: &Path) -> bool {
    let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
    // The state follows the name, which stands in parentheses.
    stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
}

fn admin_url(ports: &Ports) -> String {
    format!("http://127.0.0.1:{}/admin", ports.admin)
}

/// `None` if another process was faster to take a port.
async fn launch(binary: &Path, folder: &Path, ports: &Ports) -> Option<Process> {
    let mut command = Command::new(binary);
    command.arg("--configs-folder").arg(folder);
    let process = Process::start(&format!("janus-{}", ports.ws), command);
    let is_bound = |line: &str| {
        let failed = line.contains("Error creating vhost") || line.contains("Couldn't start");
        if failed { Some(false) } else { line.contains("ebsockets server started").then_some(true) }
    };
    if !process.line("line saying that it takes WebSockets", 0, STARTED, is_bound).await {
        return None;
    }
    let url = admin_url(ports);
    wait::eventually(STARTED, || async {
        if process.exit_status().is_some() {
            return Ok(false);
        }
        let ping = r#"{ "janus": "ping", "transaction": "ping" }"#;
        match http::request("POST", &url, &[("content-type", "application/json")], ping).await {
            Ok(answer) if answer.status == 200 => Ok(true),
            other => Err(other.map(|answer| answer.status)),
        }
    })
    .await
    .then_some(process)
}
