//! Private databases for the ledger: a file, or a server on a socket in a temporary folder, with a database for each
//! test. A server is stopped on drop, and killed with the test process.

use rustix::process::{Pid, Signal, kill_process};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::process::{Process, until_frozen};
use crate::small_disk::SmallDisk;
use crate::wait::{self, SOON};

const START_ATTEMPTS: usize = 20;

/// Room for an empty database and its journals, and for some megabytes more.
const fn small(kind: Kind) -> u64 {
    match kind {
        Kind::Sqlite => 16 << 20,
        Kind::Postgres => 24 << 20,
        Kind::Mysql => 128 << 20,
    }
}

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

/// An empty database of its own.
#[derive(Debug)]
pub struct Database {
    /// Its address, as a ledger takes it.
    pub url: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Folder { disk: Option<SmallDisk>, folder: TempDir },
    Server(Arc<Server>),
}

impl Database {
    /// A new one, on the server that the tests of this process share.
    pub async fn new(kind: Kind) -> Self {
        static SHARED: Mutex<Weak<Server>> = Mutex::const_new(Weak::new());
        if kind == Kind::Sqlite {
            return Self::in_file();
        }
        let mut shared = SHARED.lock().await;
        let server = match shared.upgrade().filter(|server| server.kind == kind) {
            Some(server) => server,
            None => {
                let server = Arc::new(Server::start(kind, false).await);
                *shared = Arc::downgrade(&server);
                server
            }
        };
        drop(shared);
        Self::on(server).await
    }

    /// A new one, on a server that nobody else uses.
    pub async fn alone(kind: Kind) -> Self {
        Self::start(kind, false).await
    }

    /// The same, with everything that was committed on disk.
    pub async fn durable(kind: Kind) -> Self {
        Self::start(kind, true).await
    }

    /// A new one whose tables lie on a small disk. What is to see a file there is started inside.
    pub async fn on_small_disk(kind: Kind) -> Self {
        if kind != Kind::Sqlite {
            return Self::on(Arc::new(Server::on_small_disk(kind).await)).await;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let space = folder.path().join("space");
        fs::create_dir(&space).expect("an own folder");
        let disk = SmallDisk::on(&space, small(kind)).await;
        let url = format!("sqlite://{}/ledger.db", space.display());
        Self { url, place: Place::Folder { disk: Some(disk), folder } }
    }

    async fn start(kind: Kind, is_durable: bool) -> Self {
        if kind == Kind::Sqlite {
            return Self::in_file();
        }
        Self::on(Arc::new(Server::start(kind, is_durable).await)).await
    }

    fn in_file() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("ledger.db");
        let url = format!("sqlite://{}", file.display());
        fs::write(file, "").expect("a file in an own folder");
        Self { url, place: Place::Folder { disk: None, folder } }
    }

    async fn on(server: Arc<Server>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("ledger_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut admin = connect(&server.admin()).await.expect("the server is up");
        let place = if server.kind == Kind::Postgres { server.tablespace(&mut admin).await } else { "" };
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}{place}"));
        admin.execute(sqlx::raw_sql(create)).await.expect("a database of its own");
        admin.close().await.expect("a connection that closes");
        Self { url: server.url(&name), place: Place::Server(server) }
    }

    /// Its server; there is none behind a file.
    pub fn server(&self) -> Option<&Server> {
        match &self.place {
            Place::Folder { .. } => None,
            Place::Server(server) => Some(server),
        }
    }

    fn server_alone(&mut self) -> Option<&mut Server> {
        match &mut self.place {
            Place::Folder { .. } => None,
            Place::Server(server) => Some(Arc::get_mut(server).expect("a server that nobody else uses")),
        }
    }

    /// SIGKILL to the server and everything that it has started. Nobody else may use it.
    pub async fn kill(&mut self) {
        if let Some(server) = self.server_alone() {
            server.kill().await;
        }
    }

    /// Starts the server again on its data, killing it first if it still runs. Nobody else may use it.
    pub async fn restart(&mut self) {
        if let Some(server) = self.server_alone() {
            server.restart().await;
        }
    }

    /// The small disk that it lies on.
    pub fn disk(&self) -> Option<&SmallDisk> {
        match &self.place {
            Place::Folder { disk, .. } => disk.as_ref(),
            Place::Server(server) => server.disk.as_ref(),
        }
    }

    /// A connection of the test's own; to a file on a small disk, to a copy of it.
    ///
    /// # Errors
    ///
    /// The server does not run, or does not yet.
    pub async fn connect(&self) -> Result<AnyConnection, sqlx::Error> {
        let Place::Folder { disk: Some(disk), folder } = &self.place else { return connect(&self.url).await };
        for name in ["ledger.db", "ledger.db-wal"] {
            fs::copy(disk.outside().join(name), folder.path().join(name))?;
        }
        connect(&address(Kind::Sqlite, folder.path(), "ledger.db")).await
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    is_durable: bool,
    process: Process,
    // After its process, which they outlive.
    disk: Option<SmallDisk>,
    folder: TempDir,
}

impl Server {
    /// Starts one and waits until it takes connections. Tests have nothing to lose: only one that is durable brings
    /// what was committed to disk.
    async fn start(kind: Kind, is_durable: bool) -> Self {
        Self::start_in(own_folder(), kind, is_durable, None).await
    }

    /// MariaDB keeps everything on the disk; PostgreSQL the tables alone, since it stops where its own journal does not fit.
    async fn on_small_disk(kind: Kind) -> Self {
        let folder = own_folder();
        let space = folder.path().join(if kind == Kind::Postgres { "space" } else { "data" });
        fs::create_dir(&space).expect("an own folder");
        let disk = SmallDisk::on(&space, small(kind)).await;
        Self::start_in(folder, kind, false, Some(disk)).await
    }

    async fn start_in(folder: TempDir, kind: Kind, is_durable: bool, disk: Option<SmallDisk>) -> Self {
        prepare(kind, folder.path(), disk.as_ref());
        let process = launch(kind, folder.path(), is_durable, disk.as_ref()).await;
        Self { kind, is_durable, process, disk, folder }
    }

    /// Where PostgreSQL is to make a database, if its disk is small.
    async fn tablespace(&self, admin: &mut AnyConnection) -> &'static str {
        let Some(disk) = &self.disk else { return "" };
        let path = self.folder.path().join("space/tables");
        let mut make = unprivileged(Path::new("mkdir"));
        let made = disk.inside(make.arg(&path)).status();
        assert!(made.is_ok_and(|made| made.success()), "{}", path.display());
        let create = AssertSqlSafe(format!("CREATE TABLESPACE small LOCATION '{}'", path.display()));
        admin.execute(sqlx::raw_sql(create)).await.expect("a tablespace of its own");
        " TABLESPACE small"
    }

    fn admin(&self) -> String {
        self.url(admin_name(self.kind))
    }

    /// A database by its name.
    fn url(&self, name: &str) -> String {
        address(self.kind, self.folder.path(), name)
    }

    /// Freezes it: connections stay, and nothing is answered.
    pub fn pause(&self) {
        self.process.pause();
        let children = self.children();
        self.signal(&children, Signal::STOP);
        children.into_iter().for_each(until_frozen);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(&self.children(), Signal::CONT);
        self.process.resume();
    }

    /// PostgreSQL has a process for each connection; a thread has none.
    fn children(&self) -> Vec<Pid> {
        let pid = self.process.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let numbers = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        numbers.filter_map(Pid::from_raw).collect()
    }

    fn signal(&self, children: &[Pid], signal: Signal) {
        for child in children {
            // One that has ended meanwhile needs no signal.
            _ = kill_process(*child, signal);
        }
    }

    /// Stops it, with all connections.
    pub async fn stop(&self) {
        self.ask_to_stop();
        self.process.exit(SOON).await;
    }

    async fn kill(&mut self) {
        let children = self.children();
        self.process.kill().await;
        self.signal(&children, Signal::KILL);
    }

    async fn restart(&mut self) {
        if self.process.exit_status().is_none() {
            self.kill().await;
        }
        self.process = launch(self.kind, self.folder.path(), self.is_durable, self.disk.as_ref()).await;
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

/// Starts the server on its data, and waits until it takes connections.
async fn launch(kind: Kind, folder: &Path, is_durable: bool, disk: Option<&SmallDisk>) -> Process {
    let admin = address(kind, folder, admin_name(kind));
    for _ in 0..START_ATTEMPTS {
        let command = inside(disk, command(kind, folder, is_durable));
        let process = Process::start(&format!("{kind:?}"), command);
        // The last of those that were killed may have to go first: then the new one ends by itself.
        let is_up = wait::eventually(SOON, || async {
            match connect(&admin).await {
                Ok(connection) => Ok(connection.close().await.is_ok()),
                Err(_) if process.exit_status().is_some() => Ok(false),
                Err(error) => Err(error),
            }
        })
        .await;
        if is_up {
            return process;
        }
    }
    panic!("{kind:?} does not start in {START_ATTEMPTS} attempts");
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

fn address(kind: Kind, folder: &Path, name: &str) -> String {
    let folder = folder.display();
    match kind {
        Kind::Sqlite => format!("sqlite://{folder}/{name}"),
        Kind::Postgres => format!("postgres://dais@localhost/{name}?host={folder}"),
        Kind::Mysql => format!("mysql://root@localhost/{name}?socket={folder}/socket"),
    }
}

/// Neither server runs as root: what they run as must come in.
fn own_folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("an own folder");
    folder
}

fn inside(disk: Option<&SmallDisk>, command: Command) -> Command {
    match disk {
        Some(disk) => disk.inside(&command),
        None => command,
    }
}

fn prepare(kind: Kind, folder: &Path, disk: Option<&SmallDisk>) {
    let data = folder.join("data");
    let prepare = match kind {
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
            install.arg(FRUGAL);
            install.args(as_mysql()).arg(format!("--datadir={}", data.display()));
            install
        }
    };
    let mut prepare = inside(disk, prepare);
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
            mariadbd.args(["--no-defaults", "--skip-networking", "--max-connections=200", FRUGAL]);
            mariadbd.args(as_mysql());
            mariadbd
                .arg(format!("--datadir={}", data.display()))
                .arg(format!("--socket={}/socket", folder.display()));
            mariadbd.arg(format!("--pid-file={}/pid", folder.display()));
            mariadbd.arg(format!("--innodb-flush-log-at-trx-commit={}", u8::from(is_durable)));
            mariadbd
        }
    }
}

/// Its journal takes no more of a small disk than it must.
const FRUGAL: &str = "--innodb-log-file-size=8M";

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
            let mut database = Database::durable(kind).await;
            let mut connection = database.connect().await.unwrap();
            let write = "CREATE TABLE kept (one INTEGER); INSERT INTO kept VALUES (1);";
            connection.execute(sqlx::raw_sql(write)).await.unwrap();
            database.kill().await;
            assert_eq!(database.connect().await.is_err(), database.server().is_some(), "{kind:?}");
            database.restart().await;
            assert_eq!(rows(&database).await, 1, "{kind:?}");
        }
    }
}
