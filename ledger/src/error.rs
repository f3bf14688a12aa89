//! What can go wrong, sorted by whether trying again can help.

use std::time::Duration;

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
}

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
        sqlx::Error::Database(error) => {
            if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
                return mysql(error.number());
            }
            let Some(code) = error.code() else { return false };
            if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
                code.parse().is_ok_and(sqlite)
            } else {
                postgres(&code)
            }
        }
        _ => false,
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

/// Connections (1040, 1053, 1158 to 1161, 1203, 1927, 2006, 2013), disk full (1021, 1030, 1114), locks and deadlocks (1020,
/// 1205, 1213), read-only servers (1290, 1792, 1836), a commit or statement that was broken off (1180, 1317).
const fn mysql(number: u16) -> bool {
    matches!(
        number,
        1020 | 1021 | 1030 | 1040 | 1053 | 1114 | 1158
            ..=1161 | 1180 | 1203 | 1205 | 1213 | 1290 | 1317 | 1792 | 1836 | 1927 | 2006 | 2013
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for busy in [1021, 1205, 1213, 1290, 1836, 1053] {
            assert!(mysql(busy), "{busy}");
        }
        for wrong in [1045, 1049, 1062, 1064, 1146] {
            assert!(!mysql(wrong), "{wrong}");
        }
    }
}
