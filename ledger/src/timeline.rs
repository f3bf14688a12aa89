//! The history of a room, as it is shown.

use key_prefix::RoomKey;
use redis_scripts::{FenceToken, RedisMillis};

use crate::Ledger;
use crate::db::For;
use crate::entry::{Counter, EntryId, RoomDigest};
use crate::error::LedgerError;

/// One row of a room's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The entry's name.
    pub id: EntryId,
    /// What changed: `cell`, `settings`, `guest` or `state`.
    pub kind: String,
    /// When it was committed.
    pub at: RedisMillis,
    /// `name/incarnation` of the owner.
    pub owner: String,
    /// What was changed, as JSON.
    pub body: String,
    /// It came too late, and had no effect.
    pub superseded: bool,
}

/// Where a page of the history ends, which goes from the newer to the older.
#[derive(Debug, Clone, Copy)]
pub enum Before<'a> {
    /// Nothing: it begins with the newest.
    Everything,
    /// An entry that may be on its way into the ledger: then all that is there is before it.
    Waiting(&'a EntryId),
    /// An entry that was in the ledger: if it was pruned, so was all that is before it.
    Archived(&'a EntryId),
}

impl Ledger {
    /// Rows of a room, newest first.
    ///
    /// # Errors
    ///
    /// The database cannot be used.
    pub async fn timeline(
        &self,
        room: &RoomKey,
        before: Before<'_>,
        limit: u64,
    ) -> Result<Vec<Row>, LedgerError> {
        let key = RoomDigest::of(room.route());
        let (id, otherwise) = match before {
            Before::Everything => (None, u64::MAX),
            Before::Waiting(id) => (Some(id), u64::MAX),
            Before::Archived(id) => (Some(id), 0),
        };
        let read = async {
            let mut tx = self.db.begin(For::Reading).await?;
            // One statement, because what waits goes on arriving.
            let sql = tx.sql(
                "SELECT counter, token, version, digest, kind, at_ms, owner, body, superseded FROM log \
                 WHERE room_key = ? AND seq < COALESCE((SELECT seq FROM log WHERE room_key = ? AND counter = ? \
                 AND token = ? AND version = ? AND digest = ?), ?) ORDER BY seq DESC LIMIT ?",
            );
            let sql = sql.text(key.as_str()).text(key.as_str());
            let sql =
                sql.number(id.map_or(0, |id| id.counter as u64)).number(id.map_or(0, |id| id.token.as_u64()));
            let sql = sql.number(id.map_or(0, |id| id.version)).text(id.map_or("", |id| &id.digest));
            let sql = sql.number(otherwise).number(limit);
            let mut rows = Vec::new();
            for row in tx.rows(sql).await? {
                let counter = match row.number(0)? {
                    0 => Counter::Cell,
                    1 => Counter::Settings,
                    _ => Counter::Instance,
                };
                rows.push(Row {
                    id: EntryId {
                        counter,
                        token: FenceToken::new(row.number(1)?),
                        version: row.number(2)?,
                        digest: row.text(3)?,
                    },
                    kind: row.text(4)?,
                    at: RedisMillis::new(row.number(5)?),
                    owner: row.text(6)?,
                    body: row.text(7)?,
                    superseded: row.number(8)? != 0,
                });
            }
            tx.commit().await?;
            Ok(rows)
        };
        self.db.within(read).await
    }
}
