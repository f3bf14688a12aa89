//! What can go wrong, sorted by whether trying again can help.

use std::borrow::Cow;
use std::time::Duration;

use sqlx::error::DatabaseError;

use crate::url::AddressError;

/// Why the ledger did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The database is away, busy, full or read-only: the same call may succeed later.
    #[error("the ledger is unavailable")]
    Unavailable(#[source] Cause),
    /// The same call would fail again.
    #[error("the ledger refused")]
    Failed(#[source] Cause),
}

impl LedgerError {
    /// Whether trying again can help.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// Whether what was to be written may be at fault, and not the database or who may use it.
    pub(crate) fn may_be_of_the_entries(&self) -> bool {
        match self {
            Self::Unavailable(_) => false,
            Self::Failed(Cause::Database(sqlx::Error::Database(error))) => Said::by(&**error).is_of_data(),
            Self::Failed(_) => true,
        }
    }

    /// What whoever looks after the database can do about it.
    pub fn remedy(&self) -> &'static str {
        if matches!(self, Self::Failed(_)) {
            return "correct ledger.url, or what the database complains of";
        }
        let Self::Unavailable(Cause::Database(error)) = self else { return REACHABLE };
        match lacks(error) {
            Some(Lack::Space) => "make room on the disk of the database",
            Some(Lack::Writing) => "let the database be written",
            None => REACHABLE,
        }
    }
}

const REACHABLE: &str = "start the database, or correct ledger.url";

/// What is behind a [`LedgerError`].
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// It took too long.
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    /// The database or its driver said so.
    #[error(transparent)]
    Database(sqlx::Error),
    /// What is stored of a room cannot be read.
    #[error("what is stored of room {room}: {why}")]
    Stored {
        /// Which room, by its key or its name.
        room: String,
        /// What is wrong.
        why: String,
    },
}

/// Why the ledger could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The schema was made by a later version of this program.
    #[error("the ledger's schema is version {found}, this program knows versions up to {known}")]
    Newer {
        /// What stands in the database.
        found: u64,
        /// What this program knows.
        known: u64,
    },
    /// The database could not be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl OpenError {
    /// What whoever looks after the database can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Address(_) => "correct ledger.url",
            Self::Newer { .. } => "run the version that made it, or a later one",
            Self::Ledger(error) => error.remedy(),
        }
    }
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        if may_pass(&error) {
            Self::Unavailable(Cause::Database(error))
        } else {
            Self::Failed(Cause::Database(error))
        }
    }
}

fn may_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        sqlx::Error::Database(error) => match Said::by(&**error) {
            Said::Sqlite(code) => sqlite(code),
            Said::Postgres(code) => postgres(&code),
            Said::Mysql(number) => mysql(number),
            Said::Nothing => false,
        },
        _ => false,
    }
}

/// The code that a database gave its error.
enum Said<'a> {
    Sqlite(u32),
    Postgres(Cow<'a, str>),
    Mysql(u16),
    Nothing,
}

impl<'a> Said<'a> {
    fn by(error: &'a dyn DatabaseError) -> Self {
        if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
            return Self::Mysql(error.number());
        }
        let Some(code) = error.code() else { return Self::Nothing };
        if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_none() {
            return Self::Postgres(code);
        }
        code.parse().map_or(Self::Nothing, Self::Sqlite)
    }
}

impl Said<'_> {
    /// Too large, of another type, against a constraint, or refused by a trigger.
    fn is_of_data(&self) -> bool {
        match self {
            Self::Sqlite(code) => matches!(code & 0xff, 18 | 19 | 20 | 25),
            Self::Postgres(code) => ["22", "23", "54", "P0"].iter().any(|class| code.starts_with(class)),
            Self::Mysql(number) => matches!(
                number,
                1048 | 1062
                    | 1118
                    | 1153
                    | 1264
                    | 1292
                    | 1300
                    | 1366
                    | 1406
                    | 1452
                    | 1644
                    | 3140
                    | 3819
                    | 4025
            ),
            Self::Nothing => false,
        }
    }
}

/// What a database that answers may lack.
enum Lack {
    Space,
    Writing,
}

fn lacks(error: &sqlx::Error) -> Option<Lack> {
    let sqlx::Error::Database(error) = error else { return None };
    match Said::by(&**error) {
        Said::Sqlite(code) if code & 0xff == 13 => Some(Lack::Space),
        Said::Sqlite(code) if code & 0xff == 8 => Some(Lack::Writing),
        Said::Postgres(code) if code == "53100" => Some(Lack::Space),
        Said::Postgres(code) if code == "25006" => Some(Lack::Writing),
        Said::Mysql(1021 | 1026 | 1114) => Some(Lack::Space),
        Said::Mysql(1036 | 1290 | 1792 | 1836 | 1874) => Some(Lack::Writing),
        _ => None,
    }
}

/// By the primary part of a result code: busy, locked, out of memory, read-only, interrupted, input or output failed,
/// full, cannot be opened, locking protocol.
const fn sqlite(code: u32) -> bool {
    matches!(code & 0xff, 5 | 6 | 7 | 8 | 9 | 10 | 13 | 14 | 15)
}

/// By class: connections, rolled back, resources (disk full, too many connections), an operator, the system itself;
/// and a lock not got, and a server that is read-only.
fn postgres(code: &str) -> bool {
    ["08", "40", "53", "57", "58"].iter().any(|class| code.starts_with(class))
        || matches!(code, "55P03" | "25006")
}

/// Connections (1040, 1053, 1158 to 1161, 1203, 1927, 2006, 2013), disk full (1021, 1026, 1030, 1114), locks and deadlocks
/// (1020, 1205, 1213), read-only servers (1036, 1290, 1792, 1836, 1874), a commit or statement that was broken off (1180, 1317).
const fn mysql(number: u16) -> bool {
    matches!(
        number,
        1020 | 1021 | 1026 | 1030 | 1036 | 1040 | 1053 | 1114 | 1158
            ..=1161 | 1180 | 1203 | 1205 | 1213 | 1290 | 1317 | 1792 | 1836 | 1874 | 1927 | 2006 | 2013
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_at_fault_only_where_the_database_says_so() {
        for data in [Said::Sqlite(19 | 7 << 8), Said::Postgres("22021".into()), Said::Mysql(1406)] {
            assert!(data.is_of_data());
        }
        // No such table, no right to write, a wrong password, a syntax error.
        for other in [
            Said::Sqlite(1),
            Said::Postgres("42P01".into()),
            Said::Postgres("42501".into()),
            Said::Mysql(1142),
        ] {
            assert!(!other.is_of_data());
        }
    }

    #[test]
    fn codes_are_sorted_by_whether_trying_again_can_help() {
        for busy in [5, 5 | 1 << 8, 8, 13, 10 | 3 << 8] {
            assert!(sqlite(busy), "{busy}");
        }
        for wrong in [1, 11, 19, 26] {
            assert!(!sqlite(wrong), "{wrong}");
        }
        for busy in ["08006", "40P01", "40001", "53100", "57P01", "25006", "55P03"] {
            assert!(postgres(busy), "{busy}");
        }
        for wrong in ["23505", "28P01", "3D000", "42P01", "42601"] {
            assert!(!postgres(wrong), "{wrong}");
        }
        for busy in [1021, 1026, 1036, 1205, 1213, 1290, 1836, 1053] {
            assert!(mysql(busy), "{busy}");
        }
        for wrong in [1045, 1049, 1062, 1064, 1146] {
            assert!(!mysql(wrong), "{wrong}");
        }
    }
}
