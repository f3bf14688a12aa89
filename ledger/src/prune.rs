//! Forgetting what is old and not needed.

use redis_scripts::RedisMillis;

use crate::Ledger;
use crate::db::{For, Tx, marks, pieces};
use crate::error::LedgerError;
use crate::outbox::State;

impl Ledger {
    /// Deletes what is old, at most `limit` rows of each kind, and says how many went: before `log`, rows of the log that
    /// snapshots cover or that never had an effect, and what was set aside; before `done`, events that were delivered or
    /// dropped. What a recovery needs stays, however old it is.
    ///
    /// # Errors
    ///
    /// The database cannot be used.
    pub async fn prune(
        &self,
        log: Option<RedisMillis>,
        done: Option<RedisMillis>,
        limit: u64,
    ) -> Result<u64, LedgerError> {
        let rows = "SELECT l.seq FROM log l LEFT JOIN snapshots s ON s.room_key = l.room_key WHERE l.at_ms < ? \
            AND (l.superseded = 1 OR l.token < s.token \
            OR (l.token = s.token AND ((l.counter = 0 AND l.version <= s.cv) OR (l.counter = 1 AND l.version <= s.sv)))) \
            ORDER BY l.at_ms LIMIT ?";
        let outbox = format!(
            "SELECT seq FROM outbox WHERE done_at < ? AND state IN ({}, {}) LIMIT ?",
            State::Delivered as u8,
            State::Dropped as u8
        );
        let aside = "SELECT seq FROM aside WHERE at_ms < ? LIMIT ?";
        let mut gone = 0;
        for (table, old, before) in [("log", rows, log), ("outbox", &*outbox, done), ("aside", aside, log)] {
            let Some(before) = before else { continue };
            let delete = async {
                let mut tx = self.db.begin(For::Writing).await?;
                let gone = delete(&mut tx, table, old, before, limit).await?;
                tx.commit().await?;
                Ok(gone)
            };
            gone += self.db.within(delete).await?;
        }
        Ok(gone)
    }
}

async fn delete(
    tx: &mut Tx,
    table: &str,
    old: &str,
    before: RedisMillis,
    limit: u64,
) -> Result<u64, LedgerError> {
    let sql = tx.sql(old).number(before.as_u64()).number(limit);
    let seqs = tx.rows(sql).await?.iter().map(|row| row.number(0)).collect::<Result<Vec<u64>, _>>()?;
    let mut gone = 0;
    for piece in pieces(&seqs, |_| 0) {
        let sql = tx.sql(&format!("DELETE FROM {table} WHERE seq IN ({})", marks(piece.len())));
        gone += tx.execute(piece.iter().fold(sql, |sql, seq| sql.number(*seq))).await?;
    }
    Ok(gone)
}
