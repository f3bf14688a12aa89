//! The schema and its versions: every opener brings it to the newest, one at a time.

use std::time::Duration;

use crate::db::{Db, Dialect, For, Tx};
use crate::error::{Cause, LedgerError, OpenError};

/// One step of the schema. Statements can be repeated: MySQL commits each by itself, so a step that was broken off in
/// the middle is done again from its beginning.
struct Migration {
    sqlite: &'static str,
    postgres: &'static str,
    mysql: &'static str,
}

macro_rules! migrations {
    ($($file:literal),*) => {
        &[$(Migration {
            sqlite: include_str!(concat!("../migrations/sqlite/", $file)),
            postgres: include_str!(concat!("../migrations/postgres/", $file)),
            mysql: include_str!(concat!("../migrations/mysql/", $file)),
        }),*]
    };
}

/// In order; the version of a schema is how many of them it has seen.
const MIGRATIONS: &[Migration] = migrations!["0001_log.sql", "0002_outbox.sql"];

/// The schema that this program makes and knows.
pub const SCHEMA: u64 = MIGRATIONS.len() as u64;

const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS ledger_schema (version BIGINT NOT NULL PRIMARY KEY)";

/// Any number that nothing else in the same database locks.
const LOCK: u64 = 0x6461_6973;

/// Longest time that somebody else may take to bring the schema up to date, and that one step may take.
const PATIENCE_S: u64 = 600;

/// Brings the schema to version `to`.
pub(crate) async fn migrate(db: &Db, to: u64) -> Result<(), OpenError> {
    let patience = Duration::from_secs(PATIENCE_S);
    match tokio::time::timeout(patience, migrate_in_turn(db, to)).await {
        Ok(migrated) => migrated,
        Err(_) => Err(LedgerError::Unavailable(Cause::Deadline(patience)).into()),
    }
}

async fn migrate_in_turn(db: &Db, to: u64) -> Result<(), OpenError> {
    // Whoever holds the lock may be frozen: an instance that finds nothing to do does not wait for it.
    match standing(db).await {
        Ok(Some(found)) if found > SCHEMA => return Err(OpenError::Newer { found, known: SCHEMA }),
        Ok(Some(found)) if found >= to => return Ok(()),
        // There may be no schema yet; whatever else is wrong is met again.
        Ok(_) | Err(_) => {}
    }
    let mut tx = db.begin(For::Writing).await?;
    lock(&mut tx).await?;
    let migrated = steps(&mut tx, to).await;
    unlock(&mut tx).await?;
    migrated?;
    Ok(tx.commit().await?)
}

async fn standing(db: &Db) -> Result<Option<u64>, LedgerError> {
    let mut tx = db.begin(For::Reading).await?;
    let found = newest(&mut tx).await?;
    tx.commit().await?;
    Ok(found)
}

async fn newest(tx: &mut Tx) -> Result<Option<u64>, LedgerError> {
    let newest = tx.sql("SELECT MAX(version) FROM ledger_schema");
    Ok(tx.row(newest).await?.map(|row| row.maybe_number(0)).transpose()?.flatten())
}

async fn steps(tx: &mut Tx, to: u64) -> Result<(), OpenError> {
    tx.raw(VERSIONS).await?;
    let found = newest(tx).await?.unwrap_or_default();
    if found > SCHEMA {
        return Err(OpenError::Newer { found, known: SCHEMA });
    }
    for (version, migration) in (1..=to).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
        let script = match tx.dialect() {
            Dialect::Sqlite => migration.sqlite,
            Dialect::Postgres => migration.postgres,
            Dialect::Mysql => migration.mysql,
        };
        for statement in script.split(';').map(str::trim).filter(|it| !it.is_empty()) {
            tx.raw(statement).await?;
        }
        let done = tx.sql("INSERT INTO ledger_schema (version) VALUES (?)").number(version);
        tx.execute(done).await?;
    }
    Ok(())
}

/// `BEGIN IMMEDIATE` is SQLite's lock. MySQL's is the session's: what is not unlocked goes with the connection.
async fn lock(tx: &mut Tx) -> Result<(), LedgerError> {
    match tx.dialect() {
        Dialect::Sqlite => Ok(()),
        Dialect::Postgres => {
            tx.raw(&format!(
                "SET LOCAL lock_timeout = '{PATIENCE_S}s'; SET LOCAL statement_timeout = '{PATIENCE_S}s'"
            ))
            .await?;
            tx.raw(&format!("SELECT pg_advisory_xact_lock({LOCK})")).await
        }
        Dialect::Mysql => {
            let lock =
                tx.sql("SELECT GET_LOCK(MD5(CONCAT('dais ledger ', DATABASE())), ?)").number(PATIENCE_S);
            match tx.row(lock).await?.map(|row| row.maybe_number(0)).transpose()?.flatten() {
                Some(1) => Ok(()),
                _ => Err(LedgerError::Unavailable(Cause::Deadline(Duration::from_secs(PATIENCE_S)))),
            }
        }
    }
}

async fn unlock(tx: &mut Tx) -> Result<(), LedgerError> {
    match tx.dialect() {
        Dialect::Sqlite | Dialect::Postgres => Ok(()),
        Dialect::Mysql => tx.raw("DO RELEASE_LOCK(MD5(CONCAT('dais ledger ', DATABASE())))").await,
    }
}
