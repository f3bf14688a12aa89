//! Private databases for the ledger, on a socket in a temporary folder.

use rustix::process::{Pid, Signal, kill_process};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use tempfile::TempDir;

use crate::process::Process;
use crate::wait::{self, SOON};

const START_ATTEMPTS: usize = 20;
const NAME: &str = "ledger";

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file, which has no server.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mysql,
}

impl Kind {
    /// By its name: `sqlite`, `postgres` or `mysql`.
    pub fn named(name: &str) -> Self {
        match name {
            "sqlite" => Self::Sqlite,
            "postgres" => Self::Postgres,
            "mysql" => Self::Mysql,
            other => panic!("{other:?} is none of sqlite, postgres and mysql"),
        }
    }
}

/// An empty database that nobody else uses. What was committed is on disk.
#[derive(Debug)]
pub struct Database {
    kind: Kind,
    // Before its folder, which is removed when the process is gone.
    server: Option<Process>,
    folder: TempDir,
}

impl Database {
    /// Starts its server, if it has one, and waits until it takes connections.
    pub async fn start(kind: Kind) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Neither server runs as root: what they run as must come in.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("an own folder");
        let mut database = Self { kind, server: None, folder };
        if kind == Kind::Sqlite {
            fs::write(database.folder.path().join(NAME), "").expect("a file in an own folder");
            return database;
        }
        prepare(kind, database.folder.path());
        database.restart().await;
        let mut admin = connect(&database.address(admin_name(kind))).await.expect("the server is up");
        let create = AssertSqlSafe(format!("CREATE DATABASE {NAME}"));
        admin.execute(sqlx::raw_sql(create)).await.expect("a database of its own");
        admin.close().await.expect("a connection that closes");
        database
    }

    /// Its URL, as a ledger takes it.
    pub fn url(&self) -> String {
        self.address(NAME)
    }

    fn address(&self, name: &str) -> String {
        let folder = self.folder.path().display();
        match self.kind {
            Kind::Sqlite => format!("sqlite://{folder}/{name}"),
            Kind::Postgres => format!("postgres://dais@localhost/{name}?host={folder}"),
            Kind::Mysql => format!("mysql://root@localhost/{name}?socket={folder}/socket"),
        }
    }

    /// A connection of the test's own.
    ///
    /// # Errors
    ///
    /// The server does not run, or does not yet.
    pub async fn connect(&self) -> Result<AnyConnection, sqlx::Error> {
        connect(&self.url()).await
    }

    /// Whether there is a server that can be killed.
    pub const fn has_server(&self) -> bool {
        self.server.is_some()
    }

    /// SIGKILL to the server and everything that it has started.
    pub async fn kill(&mut self) {
        let Some(server) = &mut self.server else { return };
        let pid = server.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        server.kill().await;
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw)
        {
            // One that saw its parent end needs no signal.
            _ = kill_process(child, Signal::KILL);
        }
    }

    /// Starts the server again on its data, killing it first if it still runs.
    pub async fn restart(&mut self) {
        if self.kind == Kind::Sqlite {
            return;
        }
        if self.server.as_ref().is_some_and(|server| server.exit_status().is_none()) {
            self.kill().await;
        }
        for _ in 0..START_ATTEMPTS {
            let process = Process::start(&format!("{:?}", self.kind), serve(self.kind, self.folder.path()));
            let address = self.address(admin_name(self.kind));
            // The last of those that were killed may have to go first: then the new one ends by itself.
            let is_up = wait::eventually(SOON, || async {
                match connect(&address).await {
                    Ok(connection) => Ok(connection.close().await.is_ok()),
                    Err(_) if process.exit_status().is_some() => Ok(false),
                    Err(error) => Err(error),
                }
            })
            .await;
            if is_up {
                self.server = Some(process);
                return;
            }
        }
        panic!("{:?} does not start again in {START_ATTEMPTS} attempts", self.kind);
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some(server) = &self.server else { return };
        // Killed, PostgreSQL leaves its shared memory behind.
        if self.kind == Kind::Postgres && server.exit_status().is_none() && !thread::panicking() {
            let mut stop = unprivileged(&tool("pg_ctl"));
            stop.args(["stop", "--silent", "--mode", "immediate", "--pgdata"])
                .arg(self.folder.path().join("data"));
            let stopped = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
            assert!(stopped.is_ok_and(|it| it.success()), "PostgreSQL stops");
        }
    }
}

async fn connect(url: &str) -> Result<AnyConnection, sqlx::Error> {
    sqlx::any::install_default_drivers();
    AnyConnection::connect(url).await
}

/// The database that is there from the beginning.
const fn admin_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres => "postgres",
        Kind::Sqlite | Kind::Mysql => "mysql",
    }
}

fn prepare(kind: Kind, folder: &Path) {
    let data = folder.join("data");
    let mut prepare = if kind == Kind::Postgres {
        let mut initdb = unprivileged(&tool("initdb"));
        initdb.args(["--auth", "trust", "--username", "dais", "--encoding", "UTF8", "--locale", "C"]);
        initdb.args(["--no-sync", "--no-instructions", "--pgdata"]).arg(&data);
        initdb
    } else {
        let mut install = Command::new(tool("mariadb-install-db"));
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.args(as_mysql()).arg(format!("--datadir={}", data.display()));
        install
    };
    match prepare.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("{prepare:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("{prepare:?}: {error}; `deploy/setup.sh test` installs what is missing"),
    }
}

fn serve(kind: Kind, folder: &Path) -> Command {
    let data = folder.join("data");
    if kind == Kind::Postgres {
        let mut postgres = unprivileged(&tool("postgres"));
        postgres.arg("-D").arg(data).arg("-k").arg(folder).args(["-c", "listen_addresses="]);
        postgres.args(["-c", "max_connections=200", "-c", "dynamic_shared_memory_type=mmap"]);
        return postgres;
    }
    let mut mariadbd = Command::new(tool("mariadbd"));
    mariadbd.args(["--no-defaults", "--skip-networking", "--max-connections=200"]).args(as_mysql());
    mariadbd.arg("--innodb-flush-log-at-trx-commit=1").arg(format!("--datadir={}", data.display()));
    mariadbd.arg(format!("--socket={}/socket", folder.display()));
    mariadbd.arg(format!("--pid-file={}/pid", folder.display()));
    mariadbd
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn rows(database: &Database) -> i64 {
        let mut connection = database.connect().await.unwrap();
        let (count,) = sqlx::query_as("SELECT COUNT(*) FROM kept").fetch_one(&mut connection).await.unwrap();
        count
    }

    #[tokio::test]
    async fn what_was_committed_survives_a_kill() {
        for kind in [Kind::Sqlite, Kind::Postgres, Kind::Mysql] {
            let mut database = Database::start(kind).await;
            let mut connection = database.connect().await.unwrap();
            let write = "CREATE TABLE kept (one INTEGER); INSERT INTO kept VALUES (1);";
            connection.execute(sqlx::raw_sql(write)).await.unwrap();
            database.kill().await;
            assert_eq!(database.connect().await.is_err(), database.has_server(), "{kind:?}");
            database.restart().await;
            assert_eq!(rows(&database).await, 1, "{kind:?}");
        }
    }
}
