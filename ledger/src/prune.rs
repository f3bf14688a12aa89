//! Forgetting what is old and not needed.

use redis_scripts::RedisMillis;

use std::collections::BTreeSet;

use crate::Ledger;
use crate::archive::{self, Snapshot, lanes};
use crate::db::{For, Tx, marks, pieces};
use crate::entry::RoomDigest;
use crate::error::LedgerError;
use crate::outbox::State;

/// Rows of the log that snapshots do not cover, from which rooms are found that want one.
const LOOKED_AT: u64 = 1_000;
/// Rooms that get a snapshot at once.
const FOLDED: usize = 50;

/// That the snapshot `s` of its room covers the row `l` of the log.
const COVERED: &str = "(l.token < s.token OR (l.token = s.token \
    AND ((l.counter = 0 AND l.version <= s.cv) OR (l.counter = 1 AND l.version <= s.sv))))";

impl Ledger {
    /// Deletes what is old, at most `limit` rows of each kind, and says how many went: before `log`, rows of the log that
    /// snapshots cover or that never had an effect, and what was set aside; before `done`, events that were delivered or
    /// dropped. What a recovery needs stays, however old it is; rooms with few rows, which have no snapshot of them yet,
    /// get one first, some of them with each call.
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
        if let Some(before) = log {
            for room in self.unfolded(before).await? {
                if let Err(error) = self.fold(&room).await {
                    // It keeps its rows; the others are not kept with it.
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        room = room.as_str(),
                        "the room cannot be folded"
                    );
                }
            }
        }
        let rows = format!(
            "SELECT l.seq FROM log l LEFT JOIN snapshots s ON s.room_key = l.room_key WHERE l.at_ms < ? \
            AND (l.superseded = 1 OR l.counter = 2 OR {COVERED}) ORDER BY l.at_ms LIMIT ?"
        );
        let outbox = format!(
            "SELECT seq FROM outbox WHERE done_at < ? AND state IN ({}, {}) LIMIT ?",
            State::Delivered as u8,
            State::Dropped as u8
        );
        let aside = "SELECT seq FROM aside WHERE at_ms < ? LIMIT ?";
        let mut gone = 0;
        for (table, old, before) in [("log", &*rows, log), ("outbox", &*outbox, done), ("aside", aside, log)]
        {
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

    /// Rooms whose snapshots lack rows from before then, oldest first. Those whose log has a hole are left to their owners.
    async fn unfolded(&self, before: RedisMillis) -> Result<BTreeSet<RoomDigest>, LedgerError> {
        let read = async {
            let mut tx = self.db.begin(For::Reading).await?;
            let sql = tx.sql(&format!(
                "SELECT r.app, r.room FROM log l JOIN rooms r ON r.room_key = l.room_key \
                 LEFT JOIN snapshots s ON s.room_key = l.room_key \
                 WHERE l.at_ms < ? AND l.superseded = 0 AND l.counter < 2 AND r.gap = 0 \
                 AND (s.room_key IS NULL OR NOT {COVERED}) ORDER BY l.at_ms LIMIT ?"
            ));
            let mut rooms = BTreeSet::new();
            for row in tx.rows(sql.number(before.as_u64()).number(LOOKED_AT)).await? {
                rooms.insert(RoomDigest::of(&format!("{}\0{}", row.text(0)?, row.text(1)?)));
                if rooms.len() == FOLDED {
                    break;
                }
            }
            tx.commit().await?;
            Ok(rooms)
        };
        self.db.within(read).await
    }

    /// Gives a room a snapshot of everything that the log has of it.
    async fn fold(&self, room: &RoomDigest) -> Result<(), LedgerError> {
        let fold = async {
            let mut tx = self.db.begin(For::Writing).await?;
            // The lane's row is the lock of its rooms: what is read before it is held may be old.
            let Some(found) = archive::read_heads(&mut tx, &[room]).await?.remove(room) else {
                return tx.commit().await;
            };
            lanes::lock(&mut tx, &[key_prefix::lane_of(found.room.route())]).await?;
            let Some(mut head) = archive::read_heads(&mut tx, &[room]).await?.remove(room) else {
                return tx.commit().await;
            };
            let (mut fold, steps) = archive::load(&mut tx, room).await?;
            fold.take_in(steps);
            head.gap |= !fold.is_whole || (fold.state.cell.version, fold.sv) != (head.cv, head.sv);
            if !head.gap {
                head.unfolded = 0;
                let body = fold.state.to_body();
                let snapshot = Snapshot { token: head.token, cv: head.cv, sv: head.sv, body };
                archive::write_snapshots(&mut tx, vec![(room, &snapshot)]).await?;
            }
            archive::write_heads(&mut tx, vec![(room, &head)]).await?;
            tx.commit().await
        };
        self.db.within(fold).await
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
