//! Snapshots: what a room's log came to, so that a recovery need not begin with its first row.

use redis_scripts::{CellVersion, RedisMillis};

use super::plan::{Effect, Plan, Snapshot};
use crate::db::{Tx, pieces, tuples};
use crate::entry::{Counter, Entry, RoomDigest};
use crate::error::{Cause, LedgerError};
use crate::events::{self, BusinessEvent};
use crate::state::{Fold, RoomState, Step, What};

/// What the ledger has of a room: its snapshot, and the rows of the log that it does not cover, folded in by the caller.
pub(crate) async fn load(tx: &mut Tx, room: &RoomDigest) -> Result<(Fold, Vec<Step>), LedgerError> {
    let sql = tx.sql("SELECT token, cv, sv, state FROM snapshots WHERE room_key = ?").text(room.as_str());
    let mut fold = Fold::new();
    if let Some(row) = tx.row(sql).await? {
        let state = RoomState::read(&row.text(3)?, CellVersion::new(row.number(1)?))
            .map_err(|why| LedgerError::Failed(Cause::Stored { room: room.as_str().to_owned(), why }))?;
        fold = Fold::from(state, row.number(0)?, row.number(2)?);
    }
    let mut steps = Vec::new();
    for (counter, covered) in [(Counter::Cell, fold.state.cell.version), (Counter::Settings, fold.sv)] {
        let sql = tx.sql(
            "SELECT token, version, kind, at_ms, body FROM log WHERE room_key = ? AND counter = ? AND superseded = 0 \
             AND (token > ? OR (token = ? AND version > ?))",
        );
        let sql = sql.text(room.as_str()).number(counter as u64);
        let sql = sql.number(fold.token).number(fold.token).number(covered);
        for row in tx.rows(sql).await? {
            match What::read(&row.text(2)?, &row.text(4)?) {
                Ok(Some(what)) => steps.push(Step {
                    counter,
                    token: row.number(0)?,
                    version: row.number(1)?,
                    at: RedisMillis::new(row.number(3)?),
                    what,
                }),
                Ok(None) => {}
                // It was read when it was archived; who cannot read it now has a hole there.
                Err(_) => fold.is_whole = false,
            }
        }
    }
    Ok((fold, steps))
}

/// Folds the rooms of a plan that need it: those with many rows, closed ones, those that got what was missing, and
/// those that a whole state was written of.
pub(crate) async fn fold<'a>(tx: &mut Tx, plan: &mut Plan<'a>) -> Result<(), LedgerError> {
    let mut told: Vec<(&'a Entry, Vec<BusinessEvent>)> = Vec::new();
    for (key, room) in plan.folding() {
        let (mut fold, mut steps) = load(tx, key).await?;
        for effect in std::mem::take(&mut room.effects) {
            match effect {
                Effect::Step(step) => steps.push(step),
                Effect::State { entry, state, sv } => {
                    fold.take_in(std::mem::take(&mut steps));
                    told.push((entry, events::between(entry, &fold.state, &state)));
                    fold = Fold::from(*state, entry.token.as_u64(), sv);
                }
            }
        }
        fold.take_in(steps);
        room.folded(fold.is_whole);
        if fold.is_whole {
            room.snapshot(&fold.state, fold.sv);
        }
    }
    for (entry, events) in told {
        plan.tell(entry, events);
    }
    Ok(())
}

pub(crate) async fn write(tx: &mut Tx, snapshots: Vec<(&RoomDigest, &Snapshot)>) -> Result<(), LedgerError> {
    let update = tx.dialect().or_update(&["room_key"], &["token", "cv", "sv", "state"]);
    for piece in pieces(&snapshots, |(_, snapshot)| snapshot.body.len()) {
        let rows = tuples(piece.len(), 5);
        let text = format!("INSERT INTO snapshots (room_key, token, cv, sv, state) VALUES {rows}{update}");
        let mut sql = tx.sql(&text);
        for (room, snapshot) in piece {
            sql = sql.text(room.as_str()).number(snapshot.token).number(snapshot.cv).number(snapshot.sv);
            sql = sql.text(&snapshot.body);
        }
        tx.execute(sql).await?;
    }
    Ok(())
}
