//! Claims of queues, and what comes of them.

use redis_scripts::RedisMillis;
use std::collections::BTreeMap;
use std::time::Duration;

use super::State;
use crate::Ledger;
use crate::db::{Dialect, For, Sql, Tx, marks};
use crate::error::LedgerError;

/// Whose claim, of what, until when.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    /// The sink.
    pub sink: &'a str,
    /// Names the claim: never used twice.
    pub id: &'a str,
    /// Now.
    pub now: RedisMillis,
    /// When others may claim the same.
    pub until: RedisMillis,
    /// Most queues.
    pub limit: usize,
}

/// The oldest open event of a claimed queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its number in the outbox.
    pub seq: u64,
    /// Its queue.
    pub queue: String,
    /// The claim.
    pub claim: String,
    /// When the claim is over.
    pub until: RedisMillis,
    /// The event's id.
    pub id: String,
    /// Its app.
    pub app: String,
    /// What happened.
    pub kind: String,
    /// All of it, as JSON.
    pub payload: String,
    /// When it happened.
    pub at: RedisMillis,
    /// When an operator opened it again, or it happened.
    pub since: RedisMillis,
    /// Tries that failed so far.
    pub failed: u64,
    /// Whether it was given up before, and comes out of order.
    pub out_of_order: bool,
}

/// What came of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TryResult {
    /// It was delivered.
    Delivered,
    /// It is tried again.
    Again {
        /// After so long.
        after: Duration,
        /// What went wrong.
        why: String,
    },
    /// It is given up.
    Failed {
        /// What went wrong.
        why: String,
    },
}

/// A try whose result is to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// Of what.
    pub claimed: Claimed,
    /// What came of it.
    pub result: TryResult,
}

/// Whether a result was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It was.
    Ok,
    /// The claim was over, and somebody else has the queue.
    Late,
}

const CLAIMED: &str = "SELECT seq, queue_key, event_id, app, kind, payload, at_ms, attempts, out_of_order, done_at \
                       FROM outbox WHERE seq IN ";

impl Ledger {
    /// Claims queues of a sink in which something is due, longest due first, and says what is oldest in each.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn outbox_claim(&self, claim: Claim<'_>) -> Result<Vec<Claimed>, LedgerError> {
        let work = async {
            let mut tx = self.db.begin(For::Writing).await?;
            let claimed = claim_queues(&mut tx, &claim).await?;
            tx.commit().await?;
            Ok(claimed)
        };
        self.db.within(work).await
    }

    /// Records what came of tries at one sink, each under its own claim; in the order of `tried`.
    ///
    /// # Errors
    ///
    /// As every call. None of it is recorded then.
    pub async fn outbox_record(
        &self,
        sink: &str,
        tried: &[Tried],
        now: RedisMillis,
    ) -> Result<Vec<Recorded>, LedgerError> {
        let work = async {
            let mut tx = self.db.begin(For::Writing).await?;
            let recorded = record(&mut tx, sink, tried, now).await?;
            tx.commit().await?;
            Ok(recorded)
        };
        self.db.within(work).await
    }
}

/// Of a queue that has grown too fast for its statistics PostgreSQL would read and sort all of it, where the index has the
/// first few in order.
const IN_ORDER: &str = "SET LOCAL enable_bitmapscan = off";

async fn claim_queues(tx: &mut Tx, claim: &Claim<'_>) -> Result<Vec<Claimed>, LedgerError> {
    let (sink, now) = (claim.sink, claim.now.as_u64());
    if tx.dialect() == Dialect::Postgres {
        tx.raw(IN_ORDER).await?;
    }
    let text = format!(
        "SELECT queue_key FROM outbox_queue WHERE sink = ? AND due_at <= ? AND lock_until < ? ORDER BY due_at LIMIT ?{}",
        tx.dialect().skip_locked()
    );
    let due = tx.sql(&text).text(sink).number(now).number(now).number(claim.limit as u64);
    let queues: Vec<String> = tx.rows(due).await?.iter().map(|row| row.text(0)).collect::<Result<_, _>>()?;
    if queues.is_empty() {
        return Ok(Vec::new());
    }
    let oldest = oldest(tx, sink, &queues).await?;
    let (full, empty): (Vec<&str>, Vec<&str>) =
        queues.iter().map(String::as_str).partition(|queue| oldest.contains_key(*queue));
    delete(tx, sink, &empty).await?;
    if full.is_empty() {
        return Ok(Vec::new());
    }
    let text = format!(
        "UPDATE outbox_queue SET claim = ?, lock_until = ? WHERE sink = ? AND queue_key IN ({})",
        marks(padded(&full).len())
    );
    let set = tx.sql(&text).text(claim.id).number(claim.until.as_u64()).text(sink);
    tx.execute(texts(set, &full)).await?;
    let seqs: Vec<u64> = oldest.values().copied().collect();
    let text = format!("{CLAIMED}({}) ORDER BY seq", marks(padded(&seqs).len()));
    let events = padded(&seqs).into_iter().fold(tx.sql(&text), |sql, seq| sql.number(*seq));
    let mut claimed = Vec::with_capacity(full.len());
    for row in tx.rows(events).await? {
        let at = row.number(6)?;
        claimed.push(Claimed {
            seq: row.number(0)?,
            queue: row.text(1)?,
            claim: claim.id.to_owned(),
            until: claim.until,
            id: row.text(2)?,
            app: row.text(3)?,
            kind: row.text(4)?,
            payload: row.text(5)?,
            at: RedisMillis::new(at),
            since: RedisMillis::new(row.maybe_number(9)?.unwrap_or(at)),
            failed: row.number(7)?,
            out_of_order: row.number(8)? == 1,
        });
    }
    Ok(claimed)
}

/// The oldest open event of each of some queues; those that are empty are left out. One step in the index for each, however
/// many wait.
async fn oldest<Q: AsRef<str>>(
    tx: &mut Tx,
    sink: &str,
    queues: &[Q],
) -> Result<BTreeMap<String, u64>, LedgerError> {
    let text = format!(
        "SELECT q.queue_key, (SELECT o.seq FROM outbox o WHERE o.sink = q.sink AND o.open = 1 AND o.queue_key = q.queue_key \
         ORDER BY o.seq LIMIT 1) FROM outbox_queue q WHERE q.sink = ? AND q.queue_key IN ({})",
        marks(padded(queues).len())
    );
    let sql = texts(tx.sql(&text).text(sink), queues);
    let mut oldest = BTreeMap::new();
    for row in tx.rows(sql).await? {
        if let Some(seq) = row.maybe_number(1)? {
            oldest.insert(row.text(0)?, seq);
        }
    }
    Ok(oldest)
}

async fn delete(tx: &mut Tx, sink: &str, queues: &[&str]) -> Result<(), LedgerError> {
    if queues.is_empty() {
        return Ok(());
    }
    let text =
        format!("DELETE FROM outbox_queue WHERE sink = ? AND queue_key IN ({})", marks(padded(queues).len()));
    let sql = texts(tx.sql(&text).text(sink), queues);
    tx.execute(sql).await?;
    Ok(())
}

async fn record(
    tx: &mut Tx,
    sink: &str,
    tried: &[Tried],
    now: RedisMillis,
) -> Result<Vec<Recorded>, LedgerError> {
    let held = held(tx, sink, tried).await?;
    let recorded: Vec<Recorded> = tried
        .iter()
        .map(|it| match held.get(&it.claimed.queue) {
            Some(claim) if *claim == it.claimed.claim => Recorded::Ok,
            _ => Recorded::Late,
        })
        .collect();
    let ours = || tried.iter().zip(&recorded).filter(|(_, it)| **it == Recorded::Ok).map(|(tried, _)| tried);
    let delivered: Vec<u64> =
        ours().filter(|it| it.result == TryResult::Delivered).map(|it| it.claimed.seq).collect();
    if !delivered.is_empty() {
        let text = format!(
            "UPDATE outbox SET state = ?, open = NULL, done_at = ?, attempts = attempts + 1 WHERE open = 1 AND seq IN ({})",
            marks(padded(&delivered).len())
        );
        let sql = tx.sql(&text).number(State::Delivered as u64).number(now.as_u64());
        let sql = padded(&delivered).into_iter().fold(sql, |sql, seq| sql.number(*seq));
        tx.execute(sql).await?;
    }
    for it in ours() {
        match &it.result {
            TryResult::Delivered => {}
            TryResult::Again { after, why } => {
                let sql = tx
                    .sql("UPDATE outbox SET attempts = attempts + 1, last_error = ? WHERE open = 1 AND seq = ?")
                    .text(why)
                    .number(it.claimed.seq);
                tx.execute(sql).await?;
                let due = now.as_u64().saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
                release(tx, sink, &[&it.claimed.queue], due).await?;
            }
            TryResult::Failed { why } => {
                let sql = tx
                    .sql(
                        "UPDATE outbox SET state = ?, open = NULL, done_at = ?, attempts = attempts + 1, last_error = ? \
                         WHERE open = 1 AND seq = ?",
                    )
                    .number(State::Failed as u64)
                    .number(now.as_u64())
                    .text(why)
                    .number(it.claimed.seq);
                tx.execute(sql).await?;
            }
        }
    }
    let gone_on = |it: &&Tried| !matches!(it.result, TryResult::Again { .. });
    let queues: Vec<&str> = ours().filter(gone_on).map(|it| it.claimed.queue.as_str()).collect();
    next(tx, sink, &queues, now.as_u64()).await?;
    Ok(recorded)
}

/// Whose the queues are, which stay locked.
async fn held(tx: &mut Tx, sink: &str, tried: &[Tried]) -> Result<BTreeMap<String, String>, LedgerError> {
    if tried.is_empty() {
        return Ok(BTreeMap::new());
    }
    let text = format!(
        "SELECT queue_key, claim FROM outbox_queue WHERE sink = ? AND queue_key IN ({}) ORDER BY queue_key{}",
        marks(padded(tried).len()),
        tx.dialect().for_update()
    );
    let queues: Vec<&str> = tried.iter().map(|it| it.claimed.queue.as_str()).collect();
    let sql = texts(tx.sql(&text).text(sink), &queues);
    let mut held = BTreeMap::new();
    for row in tx.rows(sql).await? {
        if let Some(claim) = row.maybe_text(1)? {
            held.insert(row.text(0)?, claim);
        }
    }
    Ok(held)
}

/// Queues, which are locked, go on: with what is next in them, or not at all.
pub(super) async fn next(tx: &mut Tx, sink: &str, queues: &[&str], now: u64) -> Result<(), LedgerError> {
    if queues.is_empty() {
        return Ok(());
    }
    let oldest = oldest(tx, sink, queues).await?;
    let (full, empty): (Vec<&str>, Vec<&str>) = queues.iter().partition(|queue| oldest.contains_key(**queue));
    delete(tx, sink, &empty).await?;
    release(tx, sink, &full, now).await
}

async fn release(tx: &mut Tx, sink: &str, queues: &[&str], due: u64) -> Result<(), LedgerError> {
    if queues.is_empty() {
        return Ok(());
    }
    let text = format!(
        "UPDATE outbox_queue SET claim = NULL, lock_until = 0, due_at = ? WHERE sink = ? AND queue_key IN ({})",
        marks(padded(queues).len())
    );
    let sql = texts(tx.sql(&text).number(due).text(sink), queues);
    tx.execute(sql).await?;
    Ok(())
}

/// A list in few sizes, its last element repeated, so that statements are prepared once and used again.
fn padded<T>(list: &[T]) -> Vec<&T> {
    let Some(last) = list.last() else { return Vec::new() };
    let missing = list.len().next_power_of_two() - list.len();
    list.iter().chain(std::iter::repeat_n(last, missing)).collect()
}

fn texts<T: AsRef<str>>(sql: Sql, list: &[T]) -> Sql {
    padded(list).into_iter().fold(sql, |sql, text| sql.text(text.as_ref()))
}
