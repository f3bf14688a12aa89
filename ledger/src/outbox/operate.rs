//! What operators see of the outbox, and do to it.

use redis_scripts::RedisMillis;

use super::State;
use super::claim::next;
use crate::Ledger;
use crate::db::{For, Tx};
use crate::error::LedgerError;

/// An event at one sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its number: newer ones have higher ones.
    pub seq: u64,
    /// The event's id.
    pub id: String,
    /// The sink.
    pub sink: String,
    /// Its app.
    pub app: String,
    /// What happened.
    pub kind: String,
    /// All of it, as JSON.
    pub payload: String,
    /// When it happened.
    pub at: RedisMillis,
    /// What became of it.
    pub state: State,
    /// Tries so far, since it was last opened.
    pub attempts: u64,
    /// What went wrong, last.
    pub last_error: Option<String>,
    /// When it came to its state; of an open one, when it was opened again.
    pub done_at: Option<RedisMillis>,
    /// Whether it comes out of order.
    pub out_of_order: bool,
}

/// What waits at one sink, or was given up there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backlog {
    /// The sink.
    pub sink: String,
    /// [`State::Open`] or [`State::Failed`].
    pub state: State,
    /// How many.
    pub events: u64,
    /// When the oldest of them happened.
    pub oldest: RedisMillis,
}

/// What came of an operator's wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operated {
    /// It is so now.
    Done,
    /// The app has no such event.
    Missing,
    /// It is in a state in which that cannot be.
    Stands(State),
}

const LISTED: &str = "SELECT seq, event_id, sink, app, kind, payload, at_ms, state, attempts, last_error, done_at, \
                      out_of_order FROM outbox WHERE state = ? AND app = ?";

impl Ledger {
    /// Events of an app in a state, newest first, from just below a number or from the newest.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn outbox_list(
        &self,
        app: &str,
        state: State,
        below: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Listed>, LedgerError> {
        let work = async {
            let mut tx = self.db.begin(For::Reading).await?;
            let sql = tx
                .sql(&format!("{LISTED} AND seq < ? ORDER BY seq DESC LIMIT ?"))
                .number(state as u64)
                .text(app)
                .number(below.unwrap_or(u64::MAX))
                .number(limit as u64);
            let mut listed = Vec::new();
            for row in tx.rows(sql).await? {
                listed.push(Listed {
                    seq: row.number(0)?,
                    id: row.text(1)?,
                    sink: row.text(2)?,
                    app: row.text(3)?,
                    kind: row.text(4)?,
                    payload: row.text(5)?,
                    at: RedisMillis::new(row.number(6)?),
                    state: State::of(row.number(7)?),
                    attempts: row.number(8)?,
                    last_error: row.maybe_text(9)?,
                    done_at: row.maybe_number(10)?.map(RedisMillis::new),
                    out_of_order: row.number(11)? == 1,
                });
            }
            tx.commit().await?;
            Ok(listed)
        };
        self.db.within(work).await
    }

    /// What is open and what was given up, by sink: also of sinks that nobody delivers to any more.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn outbox_backlog(&self) -> Result<Vec<Backlog>, LedgerError> {
        let work = async {
            let mut tx = self.db.begin(For::Reading).await?;
            let mut backlog = Vec::new();
            for state in [State::Open, State::Failed] {
                let sql = tx
                    .sql("SELECT sink, COUNT(*), MIN(at_ms) FROM outbox WHERE state = ? GROUP BY sink ORDER BY sink")
                    .number(state as u64);
                for row in tx.rows(sql).await? {
                    let (sink, events, oldest) =
                        (row.text(0)?, row.number(1)?, RedisMillis::new(row.number(2)?));
                    backlog.push(Backlog { sink, state, events, oldest });
                }
            }
            tx.commit().await?;
            Ok(backlog)
        };
        self.db.within(work).await
    }

    /// Opens a dead letter again. It says of itself that it comes out of order.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn outbox_retry(&self, app: &str, seq: u64, now: RedisMillis) -> Result<Operated, LedgerError> {
        let work = async {
            let mut tx = self.db.begin(For::Writing).await?;
            let Some(found) = find(&mut tx, app, seq).await? else {
                return tx.roll_back(Operated::Missing).await;
            };
            enqueue(&mut tx, &found, now).await?;
            let sql = tx
                .sql(
                    "UPDATE outbox SET state = ?, open = 1, out_of_order = 1, attempts = 0, done_at = ? \
                     WHERE seq = ? AND state = ?",
                )
                .number(State::Open as u64)
                .number(now.as_u64())
                .number(seq)
                .number(State::Failed as u64);
            operated(tx, sql, &found).await
        };
        self.db.within(work).await
    }

    /// Gives up an open event: what comes after it goes on. A try that is under way is not held back.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn outbox_fail(
        &self,
        app: &str,
        seq: u64,
        why: &str,
        now: RedisMillis,
    ) -> Result<Operated, LedgerError> {
        let work = async {
            let mut tx = self.db.begin(For::Writing).await?;
            let Some(found) = find(&mut tx, app, seq).await? else {
                return tx.roll_back(Operated::Missing).await;
            };
            enqueue(&mut tx, &found, now).await?;
            let sql = tx
                .sql("UPDATE outbox SET state = ?, open = NULL, done_at = ?, last_error = ? WHERE seq = ? AND open = 1")
                .number(State::Failed as u64)
                .number(now.as_u64())
                .text(why)
                .number(seq);
            let changed = tx.execute(sql).await?;
            if changed == 0 {
                return tx.roll_back(Operated::Stands(found.state)).await;
            }
            // Whoever has the queue goes on with it as soon as their own try is over.
            if !is_claimed(&mut tx, &found, now).await? {
                next(&mut tx, &found.sink, &[&found.queue], now.as_u64()).await?;
            }
            tx.commit().await?;
            Ok(Operated::Done)
        };
        self.db.within(work).await
    }

    /// Puts a dead letter away for good. It stays known for as long as what was delivered.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn outbox_drop(&self, app: &str, seq: u64, now: RedisMillis) -> Result<Operated, LedgerError> {
        let work = async {
            let mut tx = self.db.begin(For::Writing).await?;
            let Some(found) = find(&mut tx, app, seq).await? else {
                return tx.roll_back(Operated::Missing).await;
            };
            let sql = tx
                .sql("UPDATE outbox SET state = ?, done_at = ? WHERE seq = ? AND state = ?")
                .number(State::Dropped as u64)
                .number(now.as_u64())
                .number(seq)
                .number(State::Failed as u64);
            operated(tx, sql, &found).await
        };
        self.db.within(work).await
    }
}

struct Found {
    sink: String,
    queue: String,
    state: State,
}

async fn find(tx: &mut Tx, app: &str, seq: u64) -> Result<Option<Found>, LedgerError> {
    let sql =
        tx.sql("SELECT sink, queue_key, state FROM outbox WHERE seq = ? AND app = ?").number(seq).text(app);
    let Some(row) = tx.row(sql).await? else { return Ok(None) };
    Ok(Some(Found { sink: row.text(0)?, queue: row.text(1)?, state: State::of(row.number(2)?) }))
}

/// Locks the event's queue, which may have to be made for that.
async fn enqueue(tx: &mut Tx, found: &Found, now: RedisMillis) -> Result<(), LedgerError> {
    let lock = tx.dialect().or_lock("outbox_queue", &["sink", "queue_key"], "due_at");
    let text =
        format!("INSERT INTO outbox_queue (sink, queue_key, due_at, lock_until) VALUES (?, ?, ?, 0){lock}");
    let sql = tx.sql(&text).text(&found.sink).text(&found.queue).number(now.as_u64());
    tx.execute(sql).await?;
    Ok(())
}

async fn is_claimed(tx: &mut Tx, found: &Found, now: RedisMillis) -> Result<bool, LedgerError> {
    let sql = tx
        .sql("SELECT lock_until FROM outbox_queue WHERE sink = ? AND queue_key = ?")
        .text(&found.sink)
        .text(&found.queue);
    let until = tx.row(sql).await?.map(|row| row.number(0)).transpose()?;
    Ok(until.is_some_and(|until| until >= now.as_u64()))
}

async fn operated(mut tx: Tx, sql: crate::db::Sql, found: &Found) -> Result<Operated, LedgerError> {
    let changed = tx.execute(sql).await?;
    if changed == 0 {
        return tx.roll_back(Operated::Stands(found.state)).await;
    }
    tx.commit().await?;
    Ok(Operated::Done)
}
