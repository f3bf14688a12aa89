//! A private TURN server.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

use crate::process::Process;
use crate::servers::free_port;
use crate::{place, wait};

const STARTED: Duration = Duration::from_secs(20);
/// More than a test has connections, each with some addresses.
const RELAY_PORTS: u16 = 100;

/// A running coturn, which takes credentials that are made with its secret.
#[derive(Debug)]
pub struct Coturn {
    address: IpAddr,
    port: u16,
    // Before its folder, which is removed when the process is gone.
    process: Process,
    _folder: TempDir,
}

impl Coturn {
    /// Starts it on the machine's own address, as media servers take nothing from loopback, and waits until it
    /// listens.
    pub async fn start(secret: &str) -> Self {
        let binary = place::on_path("turnserver")
            .expect("turnserver is not there; `apt-get install --no-install-recommends coturn` installs it");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (address, port) = (own_address(), free_port());
        let relay = free_port().min(u16::MAX - RELAY_PORTS);
        let mut command = Command::new(binary);
        // Nothing of the machine's own configuration, and no files outside the folder.
        command
            .args(["-n", "--no-cli", "--no-tls", "--no-dtls", "--log-file", "stdout", "--verbose"])
            .args(["--use-auth-secret", "--static-auth-secret", secret, "--realm", "dais.test"])
            .args(["--listening-ip", &address.to_string(), "--relay-ip", &address.to_string()])
            .args(["--listening-port", &port.to_string(), "--min-port", &relay.to_string()])
            .args(["--max-port", &(relay + RELAY_PORTS).to_string(), "--userdb"])
            .arg(folder.path().join("turndb"))
            .arg("--pidfile")
            .arg(folder.path().join("pid"))
            .current_dir(folder.path());
        let process = Process::start(&format!("coturn-{port}"), command);
        // It shares a port that another took meanwhile, and says nothing.
        let opened = format!("UDP listener opened on: {address}:{port}");
        let listens = |line: &str| line.contains(&opened).then_some(());
        process.line("line saying that it listens", 0, STARTED, listens).await;
        Self { address, port, process, _folder: folder }
    }

    /// For clients that reach it over UDP.
    pub fn url(&self) -> String {
        format!("turn:{}:{}?transport=udp", self.address, self.port)
    }

    /// Waits until it has refused somebody's credentials.
    pub async fn has_refused(&self) {
        let refused = |line: &str| line.contains("401: Unauthorized").then_some(());
        let wrong = |line: &str| line.contains("check_stun_auth").then_some(());
        self.process.line("challenge", 0, wait::SOON, refused).await;
        self.process.line("wrong credentials", 0, wait::SOON, wrong).await;
    }

    /// The process, for its log and its use of the machine.
    pub const fn process(&self) -> &Process {
        &self.process
    }
}

/// What this machine is called where it sends to others; nothing is sent.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
    socket.connect("198.51.100.1:9").expect("a route to other machines");
    socket.local_addr().expect("a bound port").ip()
}
