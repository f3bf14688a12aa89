//! The history of a room, as it is shown.

use key_prefix::RoomKey;
use redis_scripts::{FenceToken, RedisMillis};

use crate::Ledger;
use crate::db::For;
use crate::entry::RoomDigest;
use crate::error::LedgerError;

/// One row of a room's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its number: later rows have higher ones.
    pub seq: u64,
    /// What changed: `cell`, `settings`, `guest` or `state`.
    pub kind: String,
    /// The owner's token.
    pub token: FenceToken,
    /// The version that the change made.
    pub version: u64,
    /// When it was committed.
    pub at: RedisMillis,
    /// `name/incarnation` of the owner.
    pub owner: String,
    /// What was changed, as JSON.
    pub body: String,
    /// It came too late, and had no effect.
    pub superseded: bool,
}

impl Ledger {
    /// The newest rows of a room, newest first; those from just before a number, if there is one.
    ///
    /// # Errors
    ///
    /// The database cannot be used.
    pub async fn timeline(
        &self,
        room: &RoomKey,
        before: Option<u64>,
        limit: u64,
    ) -> Result<Vec<Row>, LedgerError> {
        let key = RoomDigest::of(room.route());
        let read = async {
            let mut tx = self.db.begin(For::Reading).await?;
            let sql = tx.sql(
                "SELECT seq, kind, token, version, at_ms, owner, body, superseded FROM log \
                 WHERE room_key = ? AND seq < ? ORDER BY seq DESC LIMIT ?",
            );
            let sql = sql.text(key.as_str()).number(before.unwrap_or(u64::MAX)).number(limit);
            let mut rows = Vec::new();
            for row in tx.rows(sql).await? {
                rows.push(Row {
                    seq: row.number(0)?,
                    kind: row.text(1)?,
                    token: FenceToken::new(row.number(2)?),
                    version: row.number(3)?,
                    at: RedisMillis::new(row.number(4)?),
                    owner: row.text(5)?,
                    body: row.text(6)?,
                    superseded: row.number(7)? != 0,
                });
            }
            tx.commit().await?;
            Ok(rows)
        };
        self.db.within(read).await
    }
}
