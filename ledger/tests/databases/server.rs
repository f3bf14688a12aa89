//! One private server on a socket in a temporary folder. It is stopped on drop, and killed with the test process.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use e2e::process::Process;
use e2e::wait::{SOON, eventually};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::Connection;
use tempfile::TempDir;

use super::Kind;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    process: Process,
    folder: TempDir,
}

impl Server {
    /// Starts one and waits until it takes connections. Tests have nothing to lose: only one that is durable brings
    /// what was committed to disk.
    pub(crate) async fn start(kind: Kind, is_durable: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Neither server runs as root: what they run as must come in.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("an own folder");
        prepare(kind, folder.path());
        let process = Process::start(&format!("{kind:?}"), command(kind, folder.path(), is_durable));
        let server = Self { kind, process, folder };
        server.wait().await;
        server
    }

    async fn wait(&self) {
        sqlx::any::install_default_drivers();
        let connection =
            eventually(SOON, || async { sqlx::AnyConnection::connect(&self.admin()).await }).await;
        connection.close().await.expect("a connection that closes");
    }

    /// The database that is there from the beginning.
    pub(crate) fn admin(&self) -> String {
        self.url(if self.kind == Kind::Postgres { "postgres" } else { "mysql" })
    }

    /// A database by its name.
    pub(crate) fn url(&self, name: &str) -> String {
        let folder = self.folder.path().display();
        match self.kind {
            Kind::Postgres => format!("postgres://dais@localhost/{name}?host={folder}"),
            _ => format!("mysql://root@localhost/{name}?socket={folder}/socket"),
        }
    }

    /// Freezes it: connections stay, and nothing is answered.
    pub(crate) fn pause(&self) {
        self.process.pause();
        self.signal_workers(Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.signal_workers(Signal::CONT);
        self.process.resume();
    }

    /// PostgreSQL has a process for each connection; a thread has none.
    fn signal_workers(&self, signal: Signal) {
        let pid = self.process.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw)
        {
            // One that has ended meanwhile needs no signal.
            _ = kill_process(child, signal);
        }
    }

    /// Stops it, with all connections.
    pub(crate) async fn stop(&self) {
        self.ask_to_stop();
        self.process.exit(SOON).await;
    }

    fn ask_to_stop(&self) {
        if self.kind != Kind::Postgres {
            return self.process.term();
        }
        // Killed, it would leave its shared memory behind. One that has stopped already cannot be stopped.
        let mut stop = unprivileged(&tool("pg_ctl"));
        stop.args(["stop", "--mode", "immediate", "--pgdata"]).arg(self.folder.path().join("data"));
        _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.kind == Kind::Postgres {
            self.ask_to_stop();
        }
    }
}

fn prepare(kind: Kind, folder: &Path) {
    let data = folder.join("data");
    let mut prepare = match kind {
        Kind::Postgres => {
            let mut initdb = unprivileged(&tool("initdb"));
            initdb.args([
                "--auth",
                "trust",
                "--username",
                "dais",
                "--encoding",
                "UTF8",
                "--no-sync",
                "--no-instructions",
            ]);
            initdb.args(["--locale", "C", "--pgdata"]).arg(&data);
            initdb
        }
        _ => {
            let mut install = Command::new(tool("mariadb-install-db"));
            // Two at once would take each other's temporary tables.
            install.env("TMPDIR", folder);
            install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
            install.args(as_mysql()).arg(format!("--datadir={}", data.display()));
            install
        }
    };
    let done = prepare.stdin(Stdio::null()).output();
    match done {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("{prepare:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("{prepare:?}: {error}; `deploy/setup.sh test` installs what is missing"),
    }
}

fn command(kind: Kind, folder: &Path, is_durable: bool) -> Command {
    let data = folder.join("data");
    match kind {
        Kind::Postgres => {
            let mut postgres = unprivileged(&tool("postgres"));
            postgres.arg("-D").arg(data).arg("-k").arg(folder).args(["-c", "listen_addresses="]);
            postgres.args(["-c", "max_connections=200", "-c", "dynamic_shared_memory_type=mmap"]);
            postgres.args(["-c", if is_durable { "fsync=on" } else { "fsync=off" }]);
            postgres
        }
        _ => {
            let mut mariadbd = Command::new(tool("mariadbd"));
            mariadbd.env("TMPDIR", folder);
            mariadbd.args(["--no-defaults", "--skip-networking", "--max-connections=200"]).args(as_mysql());
            mariadbd
                .arg(format!("--datadir={}", data.display()))
                .arg(format!("--socket={}/socket", folder.display()));
            mariadbd.arg(format!("--pid-file={}/pid", folder.display()));
            mariadbd.arg(format!("--innodb-flush-log-at-trx-commit={}", u8::from(is_durable)));
            mariadbd
        }
    }
}

/// MariaDB becomes another user by itself.
fn as_mysql() -> Option<&'static str> {
    is_root().then_some("--user=mysql")
}

/// PostgreSQL has to be started as one.
fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig", "KILL", "--"])
        .arg(program);
    command
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Debian keeps the programs of each version of PostgreSQL in a folder of their own, and servers outside of PATH.
fn tool(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = versions.map(|version| version.path().join("bin")).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join(name)).filter(|it| it.exists()).max().unwrap_or_else(|| name.into())
}
