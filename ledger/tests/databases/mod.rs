//! Private databases: one server for a test binary, one database for each test.

mod server;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use sqlx::{AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;
use tokio::sync::Mutex;

pub(crate) use server::Server;

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mysql,
}

/// An empty database of its own.
#[derive(Debug)]
pub(crate) struct Database {
    /// What [`ledger::Ledger::open`] takes.
    pub(crate) url: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Folder { _folder: TempDir },
    Server(Arc<Server>),
}

impl Database {
    /// A new one, on the server that the tests of this binary share.
    pub(crate) async fn new(kind: Kind) -> Self {
        static SHARED: Mutex<Weak<Server>> = Mutex::const_new(Weak::new());
        if kind == Kind::Sqlite {
            return Self::in_file();
        }
        let mut shared = SHARED.lock().await;
        let server = match shared.upgrade() {
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
    pub(crate) async fn alone(kind: Kind) -> Self {
        Self::start(kind, false).await
    }

    /// The same, with everything that was committed on disk.
    pub(crate) async fn durable(kind: Kind) -> Self {
        Self::start(kind, true).await
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
        Self { url: format!("sqlite://{}", file.display()), place: Place::Folder { _folder: folder } }
    }

    async fn on(server: Arc<Server>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("ledger_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        sqlx::any::install_default_drivers();
        let mut admin = sqlx::AnyConnection::connect(&server.admin()).await.expect("the server is up");
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        admin.execute(sqlx::raw_sql(create)).await.expect("a database of its own");
        admin.close().await.expect("a connection that closes");
        Self { url: server.url(&name), place: Place::Server(server) }
    }

    /// Its server; there is none behind a file.
    pub(crate) fn server(&self) -> Option<&Server> {
        match &self.place {
            Place::Folder { .. } => None,
            Place::Server(server) => Some(server),
        }
    }

    /// A connection beside the ledger's.
    pub(crate) async fn connect(&self) -> sqlx::AnyConnection {
        sqlx::any::install_default_drivers();
        sqlx::AnyConnection::connect(&self.url).await.expect("a connection")
    }
}
