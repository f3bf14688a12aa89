//! Where the ledger stands with each lane. A lane's row is the one lock for all of its rooms.

use std::collections::HashMap;

use redis_scripts::{FenceToken, RedisMillis};

use super::LaneBatch;
use crate::db::{Tx, marks, pieces, tuples};
use crate::error::LedgerError;

/// What stands of a lane.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lane {
    pub(crate) token: FenceToken,
    pub(crate) batches: u64,
    entries: u64,
}

/// Makes rows of lanes that have none.
pub(crate) async fn make(tx: &mut Tx, lanes: &[u16], at: RedisMillis) -> Result<(), LedgerError> {
    let ignore = tx.dialect().or_ignore("lane");
    for piece in pieces(lanes, |_| 0) {
        let rows = tuples(piece.len(), 5);
        let mut sql = tx
            .sql(&format!("INSERT INTO lanes (lane, token, batches, entries, at_ms) VALUES {rows}{ignore}"));
        for lane in piece {
            sql = sql.number((*lane).into()).number(0).number(0).number(0).number(at.as_u64());
        }
        tx.execute(sql).await?;
    }
    Ok(())
}

/// Locks lanes and reads them, in one order: two that lock the same ones wait for each other, and not for ever.
pub(crate) async fn lock(tx: &mut Tx, lanes: &[u16]) -> Result<HashMap<u16, Lane>, LedgerError> {
    let mut lanes = lanes.to_vec();
    lanes.sort_unstable();
    let mut found = HashMap::new();
    for piece in pieces(&lanes, |_| 0) {
        let text = format!(
            "SELECT lane, token, batches, entries FROM lanes WHERE lane IN ({}) ORDER BY lane{}",
            marks(piece.len()),
            tx.dialect().for_update()
        );
        let sql = piece.iter().fold(tx.sql(&text), |sql, lane| sql.number((*lane).into()));
        for row in tx.rows(sql).await? {
            let lane = u16::try_from(row.number(0)?).unwrap_or_default();
            let token = FenceToken::new(row.number(1)?);
            found.insert(lane, Lane { token, batches: row.number(2)?, entries: row.number(3)? });
        }
    }
    Ok(found)
}

pub(crate) async fn claim(
    tx: &mut Tx,
    lane: u16,
    token: FenceToken,
    at: RedisMillis,
) -> Result<(), LedgerError> {
    let sql = tx.sql("UPDATE lanes SET token = ?, at_ms = ? WHERE lane = ?");
    tx.execute(sql.number(token.as_u64()).number(at.as_u64()).number(lane.into())).await?;
    Ok(())
}

/// Counts a batch of each; what stands of them is locked.
pub(crate) async fn advance(
    tx: &mut Tx,
    batches: &[(&LaneBatch, Lane)],
    at: RedisMillis,
) -> Result<(), LedgerError> {
    let update = tx.dialect().or_update(&["lane"], &["batches", "entries", "at_ms"]);
    for piece in pieces(batches, |_| 0) {
        let rows = tuples(piece.len(), 5);
        let text = format!("INSERT INTO lanes (lane, token, batches, entries, at_ms) VALUES {rows}{update}");
        let mut sql = tx.sql(&text);
        for (batch, lane) in piece {
            let entries = lane.entries + batch.entries.len() as u64;
            sql = sql.number(batch.lane.into()).number(lane.token.as_u64()).number(lane.batches + 1);
            sql = sql.number(entries).number(at.as_u64());
        }
        tx.execute(sql).await?;
    }
    Ok(())
}
