//! The connection to the database, and the few ways in which the three kinds differ.
//!
//! SQL is written once, with `?`. A [`Tx`] is one transaction: what is not committed is undone, and takes its
//! connection with it, so whatever a cancelled call left on the wire is never met by the next.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::{Arc, Once};
use std::time::Duration;

use sqlx::any::{Any, AnyArguments, AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::pool::PoolConnection;
use sqlx::{Arguments, AssertSqlSafe, ConnectOptions, Encode, Executor, Row, Type};

use crate::error::{Cause, LedgerError};
use crate::url::Address;

/// Kinds of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// One local file.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL 8 or MariaDB 10.6, or newer.
    Mysql,
}

impl Dialect {
    /// Ends an `INSERT`: a row whose key is there already is left out. `key` is any column of the primary key.
    pub(crate) fn or_ignore(self, key: &str) -> String {
        match self {
            Self::Sqlite | Self::Postgres => " ON CONFLICT DO NOTHING".to_owned(),
            Self::Mysql => format!(" ON DUPLICATE KEY UPDATE {key} = {key}"),
        }
    }

    /// Ends an `INSERT`: a row whose key is there already takes `columns` from the new one.
    pub(crate) fn or_update(self, keys: &[&str], columns: &[&str]) -> String {
        let (head, new) = match self {
            Self::Sqlite | Self::Postgres => {
                (format!(" ON CONFLICT ({}) DO UPDATE SET ", keys.join(", ")), "excluded.")
            }
            Self::Mysql => (" ON DUPLICATE KEY UPDATE ".to_owned(), ""),
        };
        let set = columns.iter().map(|column| match self {
            Self::Mysql => format!("{column} = VALUES({column})"),
            _ => format!("{column} = {new}{column}"),
        });
        head + &set.collect::<Vec<_>>().join(", ")
    }

    /// Ends an `INSERT`: a row whose key is there already is locked, and keeps what it holds in `column`.
    pub(crate) fn or_lock(self, table: &str, keys: &[&str], column: &str) -> String {
        match self {
            Self::Sqlite | Self::Postgres => {
                format!(" ON CONFLICT ({}) DO UPDATE SET {column} = {table}.{column}", keys.join(", "))
            }
            Self::Mysql => format!(" ON DUPLICATE KEY UPDATE {column} = {table}.{column}"),
        }
    }

    /// Ends a `SELECT` that locks its rows. SQLite has one writer at a time and needs nothing.
    pub(crate) const fn for_update(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres | Self::Mysql => " FOR UPDATE",
        }
    }

    /// Ends a `SELECT` that locks its rows and passes over those that somebody else has locked.
    pub(crate) const fn skip_locked(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres | Self::Mysql => " FOR UPDATE SKIP LOCKED",
        }
    }
}

/// How the ledger uses its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Longest time that one call may take.
    pub deadline: Duration,
    /// Most connections at a time.
    pub connections: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(5), connections: 8 }
    }
}

/// Connections to one database.
#[derive(Debug, Clone)]
pub(crate) struct Db {
    pool: sqlx::Pool<Any>,
    dialect: Dialect,
    deadline: Duration,
}

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Writing,
}

impl Db {
    /// Makes the pool. Nothing is connected yet.
    pub(crate) fn new(address: &Address, options: &Options) -> Result<Self, LedgerError> {
        static DRIVERS: Once = Once::new();
        DRIVERS.call_once(sqlx::any::install_default_drivers);
        let dialect = address.dialect;
        let on_connect: Arc<[String]> = on_connect(dialect, options.deadline).into();
        let connect = AnyConnectOptions::from_url(&address.url)?.disable_statement_logging();
        let pool = AnyPoolOptions::new()
            .max_connections(options.connections.max(1))
            .acquire_timeout(options.deadline)
            .after_connect(move |connection, _| {
                let on_connect = Arc::clone(&on_connect);
                Box::pin(async move {
                    for statement in &*on_connect {
                        connection.execute(sqlx::raw_sql(AssertSqlSafe(statement.as_str()))).await?;
                    }
                    Ok(())
                })
            })
            .connect_lazy_with(connect);
        Ok(Self { pool, dialect, deadline: options.deadline })
    }

    /// Does `work` within the deadline. What is not done by then is dropped, and its transaction with it.
    pub(crate) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, LedgerError>>,
    ) -> Result<T, LedgerError> {
        match tokio::time::timeout(self.deadline, work).await {
            Ok(done) => done,
            Err(_) => Err(LedgerError::Unavailable(Cause::Deadline(self.deadline))),
        }
    }

    pub(crate) async fn begin(&self, purpose: For) -> Result<Tx, LedgerError> {
        let begin = match (self.dialect, purpose) {
            (Dialect::Sqlite, For::Writing) => "BEGIN IMMEDIATE",
            (Dialect::Mysql, For::Reading) => {
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
            }
            (Dialect::Postgres, For::Reading) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            _ => "BEGIN",
        };
        let mut tx = Tx { dialect: self.dialect, connection: Some(self.pool.acquire().await?) };
        tx.raw(begin).await?;
        Ok(tx)
    }

    /// Closes all connections, once they are idle.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

/// What is said to each new connection. A process that is stopped in the middle of a transaction cannot drop it, and
/// would hold its locks against whoever takes its work over: the server ends it.
fn on_connect(dialect: Dialect, deadline: Duration) -> Vec<String> {
    let (ms, seconds) = (deadline.as_millis(), deadline.as_secs().max(1));
    match dialect {
        Dialect::Sqlite => vec![
            format!("PRAGMA busy_timeout = {ms}"),
            "PRAGMA journal_mode = WAL".to_owned(),
            "PRAGMA synchronous = FULL".to_owned(),
        ],
        Dialect::Postgres => vec![format!(
            "SET statement_timeout = {ms}; SET lock_timeout = {ms}; SET idle_in_transaction_session_timeout = {ms}; \
             SET client_min_messages = warning"
        )],
        Dialect::Mysql => vec![
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            format!(
                "SET SESSION innodb_lock_wait_timeout = {seconds} /*M!100301 , SESSION idle_transaction_timeout = {seconds} */"
            ),
        ],
    }
}

/// One transaction.
#[derive(Debug)]
pub(crate) struct Tx {
    dialect: Dialect,
    /// None once it is committed.
    connection: Option<PoolConnection<Any>>,
}

impl Tx {
    pub(crate) const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// A statement with `?` for each value.
    pub(crate) fn sql(&self, text: &str) -> Sql {
        Sql::new(self.dialect, text)
    }

    /// Executes a statement, and says how many rows it changed.
    pub(crate) async fn execute(&mut self, sql: Sql) -> Result<u64, LedgerError> {
        let query = sqlx::query_with(AssertSqlSafe(sql.text), sql.arguments?);
        Ok(self.connection()?.execute(query).await?.rows_affected())
    }

    pub(crate) async fn rows(&mut self, sql: Sql) -> Result<Vec<Found>, LedgerError> {
        let query = sqlx::query_with(AssertSqlSafe(sql.text), sql.arguments?);
        Ok(self.connection()?.fetch_all(query).await?.into_iter().map(Found).collect())
    }

    pub(crate) async fn row(&mut self, sql: Sql) -> Result<Option<Found>, LedgerError> {
        let query = sqlx::query_with(AssertSqlSafe(sql.text), sql.arguments?);
        Ok(self.connection()?.fetch_optional(query).await?.map(Found))
    }

    /// Executes text as it is, outside of prepared statements.
    pub(crate) async fn raw(&mut self, text: &str) -> Result<(), LedgerError> {
        self.connection()?.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
        Ok(())
    }

    pub(crate) async fn commit(mut self) -> Result<(), LedgerError> {
        self.raw("COMMIT").await?;
        // Only what was ended in order goes back to the pool.
        drop(self.connection.take());
        Ok(())
    }

    /// Ends it as if it had not been, with this for an answer. One that is dropped closes its connection, which the
    /// server may notice late: until then it holds its locks.
    pub(crate) async fn roll_back<T>(mut self, answer: T) -> Result<T, LedgerError> {
        self.raw("ROLLBACK").await?;
        drop(self.connection.take());
        Ok(answer)
    }

    fn connection(&mut self) -> Result<&mut sqlx::AnyConnection, LedgerError> {
        match &mut self.connection {
            Some(connection) => Ok(&mut *connection),
            None => Err(sqlx::Error::PoolClosed.into()),
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.close_on_drop();
        }
    }
}

/// A statement and its values.
pub(crate) struct Sql {
    text: String,
    arguments: Result<AnyArguments, sqlx::Error>,
}

impl Sql {
    pub(crate) fn new(dialect: Dialect, text: &str) -> Self {
        Self { text: numbered(dialect, text), arguments: Ok(AnyArguments::default()) }
    }

    #[must_use]
    pub(crate) fn text(self, value: &str) -> Self {
        self.any(printable(value))
    }

    #[must_use]
    pub(crate) fn maybe_text(self, value: Option<&str>) -> Self {
        self.any(value.map(printable))
    }

    #[must_use]
    pub(crate) fn number(self, value: u64) -> Self {
        self.any(signed(value))
    }

    fn any<'t, T: Encode<'t, Any> + Type<Any>>(mut self, value: T) -> Self {
        if let Ok(arguments) = &mut self.arguments
            && let Err(error) = arguments.add(value)
        {
            self.arguments = Err(sqlx::Error::Encode(error));
        }
        self
    }
}

/// No database holds larger numbers, and nothing counts that far.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// PostgreSQL refuses zero bytes in text; what holds one was never an id and never JSON.
fn printable(value: &str) -> String {
    if value.contains('\0') { value.replace('\0', "\u{fffd}") } else { value.to_owned() }
}

/// PostgreSQL numbers its parameters.
fn numbered(dialect: Dialect, text: &str) -> String {
    if dialect != Dialect::Postgres {
        return text.to_owned();
    }
    let mut numbered = String::with_capacity(text.len() + 64);
    for (index, part) in text.split('?').enumerate() {
        if index > 0 {
            let _ = write!(numbered, "${index}");
        }
        numbered.push_str(part);
    }
    numbered
}

/// `rows` times `(?, …)` with `columns` values each, for a `VALUES` clause.
pub(crate) fn tuples(rows: usize, columns: usize) -> String {
    let tuple = format!("({})", marks(columns));
    vec![tuple; rows].join(", ")
}

/// `?, ?, …`
pub(crate) fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

/// How many rows or keys one statement takes. Few sizes, so that each is prepared once and used again.
const SIZES: [usize; 5] = [256, 64, 16, 4, 1];

/// Most bytes of text in one statement: well below what a server takes in one packet.
const STATEMENT_BYTES: usize = 1 << 20;

/// Splits `rows` into pieces of a few sizes, each of at most a megabyte by `bytes` (but at least one row).
pub(crate) fn pieces<T>(rows: &[T], bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut pieces = Vec::new();
    let mut rest = rows;
    while !rest.is_empty() {
        let fits = |size: &&usize| {
            **size == 1
                || (**size <= rest.len()
                    && rest[..**size].iter().map(&bytes).sum::<usize>() <= STATEMENT_BYTES)
        };
        let size = SIZES.iter().find(fits).copied().unwrap_or(1);
        let (piece, others) = rest.split_at(size);
        pieces.push(piece);
        rest = others;
    }
    pieces
}

/// One row of an answer; columns by position.
pub(crate) struct Found(AnyRow);

impl Found {
    pub(crate) fn text(&self, column: usize) -> Result<String, LedgerError> {
        Ok(self.0.try_get(column)?)
    }

    pub(crate) fn maybe_text(&self, column: usize) -> Result<Option<String>, LedgerError> {
        Ok(self.0.try_get(column)?)
    }

    pub(crate) fn number(&self, column: usize) -> Result<u64, LedgerError> {
        let number: i64 = self.0.try_get(column)?;
        Ok(u64::try_from(number).unwrap_or_default())
    }

    pub(crate) fn maybe_number(&self, column: usize) -> Result<Option<u64>, LedgerError> {
        let number: Option<i64> = self.0.try_get(column)?;
        Ok(number.map(|number| u64::try_from(number).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_where_they_must_be() {
        let text = "SELECT a FROM b WHERE c = ? AND d IN (?, ?)";
        assert_eq!(numbered(Dialect::Sqlite, text), text);
        assert_eq!(numbered(Dialect::Postgres, text), "SELECT a FROM b WHERE c = $1 AND d IN ($2, $3)");
    }

    #[test]
    fn rows_are_taken_in_few_sizes_and_no_more_than_a_megabyte_at_a_time() {
        let sizes = |rows: &[usize]| -> Vec<usize> {
            pieces(rows, |bytes| *bytes).iter().map(|piece| piece.len()).collect()
        };
        assert_eq!(sizes(&[300; 343]), [256, 64, 16, 4, 1, 1, 1]);
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1 << 18; 6]), [4, 1, 1]);
        assert_eq!(sizes(&[1 << 22; 2]), [1, 1]);
    }

    async fn fails_for_now(pragma: &str) {
        let folder = tempfile::tempdir().expect("a folder");
        let address = Address::of_file(&folder.path().join("ledger.db")).expect("a path");
        let db = Db::new(&address, &Options { connections: 1, ..Options::default() }).expect("a pool");
        let write = async || {
            let mut tx = db.begin(For::Writing).await?;
            tx.raw("CREATE TABLE IF NOT EXISTS t (v TEXT)").await?;
            let insert = tx.sql("INSERT INTO t (v) VALUES (?)").text(&"x".repeat(100_000));
            tx.execute(insert).await?;
            tx.commit().await
        };
        write().await.expect("there is room");
        let mut tx = db.begin(For::Reading).await.expect("the one connection");
        tx.raw(pragma).await.expect("a pragma");
        tx.commit().await.expect("nothing to write");
        let error = write().await.expect_err("the pragma forbids it");
        assert!(error.is_unavailable(), "{error:?}");
        // The connection is another one now: there is room again.
        write().await.expect("there is room");
    }

    #[tokio::test]
    async fn a_full_or_read_only_file_is_unavailable() {
        fails_for_now("PRAGMA max_page_count = 1").await;
        fails_for_now("PRAGMA query_only = ON").await;
    }
}
