//! The beginning of an event's way.

use std::collections::BTreeSet;

use redis_scripts::RedisMillis;

use super::State;
use crate::db::{Tx, pieces, tuples};
use crate::error::LedgerError;
use crate::events::BusinessEvent;
use crate::subscription::Subscriptions;

/// Events of one entry, and where they belong.
#[derive(Debug)]
pub(crate) struct Appended<'a> {
    pub(crate) app: &'a str,
    /// The room, as a digest: what an ordered sink is told of one after the other.
    pub(crate) room_key: &'a str,
    pub(crate) at: RedisMillis,
    pub(crate) events: Vec<BusinessEvent>,
}

struct Row<'a> {
    of: &'a Appended<'a>,
    event: &'a BusinessEvent,
    sink: &'a str,
    queue_key: &'a str,
}

const COLUMNS: usize = 12;

/// Appends events for each sink that is told of them, and says how many. What is there already stays as it is.
///
/// The queue's rows are locked until the transaction ends, also those that stand: whoever finds a queue empty and
/// deletes its row holds the same lock, so an event is never left in a queue without a row.
pub(crate) async fn append(
    tx: &mut Tx,
    appended: &[Appended<'_>],
    subscriptions: &Subscriptions,
) -> Result<u64, LedgerError> {
    let rows = appended.iter().flat_map(|of| {
        of.events.iter().flat_map(move |event| {
            subscriptions.of(of.app, event.kind).map(move |subscription| Row {
                of,
                event,
                sink: &subscription.sink,
                queue_key: if subscription.ordered { of.room_key } else { event.id.as_str() },
            })
        })
    });
    let rows: Vec<Row<'_>> = rows.collect();
    // In one order everywhere: two that lock the same rows wait for each other, and not for ever.
    let queues: BTreeSet<(&str, &str, u64)> =
        rows.iter().map(|row| (row.sink, row.queue_key, row.of.at.as_u64())).collect();
    let mut queues: Vec<(&str, &str, u64)> = queues.into_iter().collect();
    queues.dedup_by_key(|(sink, queue, _)| (*sink, *queue));
    let lock = tx.dialect().or_lock("outbox_queue", &["sink", "queue_key"], "due_at");
    for piece in pieces(&queues, |_| 128) {
        let text = format!(
            "INSERT INTO outbox_queue (sink, queue_key, due_at, lock_until) VALUES {}{lock}",
            tuples(piece.len(), 4)
        );
        let mut sql = tx.sql(&text);
        for (sink, queue_key, at) in piece {
            sql = sql.text(sink).text(queue_key).number(*at).number(0);
        }
        tx.execute(sql).await?;
    }
    let ignore = tx.dialect().or_ignore("seq");
    for piece in pieces(&rows, |row| row.event.payload.len() + 512) {
        let text = format!(
            "INSERT INTO outbox (event_id, sink, app, room_key, queue_key, kind, payload, at_ms, state, attempts, \
             out_of_order, open) VALUES {}{ignore}",
            tuples(piece.len(), COLUMNS)
        );
        let mut sql = tx.sql(&text);
        for row in piece {
            sql = sql.text(row.event.id.as_str()).text(row.sink).text(row.of.app).text(row.of.room_key);
            sql = sql.text(row.queue_key).text(row.event.kind).text(&row.event.payload);
            sql = sql.number(row.of.at.as_u64()).number(State::Open as u64).number(0).number(0).number(1);
        }
        tx.execute(sql).await?;
    }
    Ok(rows.len() as u64)
}
