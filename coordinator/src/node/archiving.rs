//! The archiver inside an instance that has the role.

use key_prefix::LANES;
use ledger::archiver::{Archiver, Event, Pace};
use redis_scripts::RedisMillis;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use super::Node;
use crate::clock::Moment;

/// A lane that does not get on for so long is left to others.
const STUCK: Duration = Duration::from_secs(120);
/// What is left in the lanes at the end may take so long.
const FAREWELL: Duration = Duration::from_secs(5);

/// How often what is old is looked for.
const PRUNED: Duration = Duration::from_secs(60);
/// Rows of a kind that go at once.
const PRUNED_ROWS: u64 = 1_000;

/// Archives until `over`, and then what is left.
pub async fn run(node: Arc<Node>, over: CancellationToken) {
    let pruning = tokio::spawn(prune(Arc::clone(&node), over.clone()));
    let (config, lease) = (&node.config.ledger, &node.config.lease);
    let told = Arc::clone(&node);
    let archiver = Archiver {
        ledger: node.books.ledger.clone(),
        scripts: node.store.scripts.clone(),
        keys: node.store.keys.clone(),
        me: node.store.me.clone(),
        pace: Pace {
            heartbeat: lease.heartbeat,
            owner_ttl: lease.owner_ttl(),
            poll: config.poll,
            lane_batch: config.batch,
            batch: config.batch,
            keep: config.keep,
            keep_entries: config.keep_entries,
            stuck: STUCK,
            farewell: FAREWELL,
        },
        subscriptions: Arc::clone(&node.subscriptions),
        clock: Arc::new(|| Duration::from_millis(Moment::now().parts().0)),
        events: Arc::new(move |event: Event| note(&told, event)),
    };
    ledger::archiver::run(archiver, over).await;
    // It has no end but this one, and nothing in it panics.
    _ = pruning.await;
}

/// Deletes what is older than it has to be kept, a little at a time.
async fn prune(node: Arc<Node>, over: CancellationToken) {
    let ledger = &node.config.ledger;
    let mut every = tokio::time::interval(PRUNED);
    while over.run_until_cancelled(every.tick()).await.is_some() {
        let before = |life: Duration| {
            let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
            RedisMillis::new(node.redis_clock.now_ms().saturating_sub(life))
        };
        let (log, done) = (ledger.log_life.map(before), Some(before(ledger.outbox_life)));
        while !over.is_cancelled() {
            match node.books.ledger.prune(log, done, PRUNED_ROWS).await {
                Ok(0) => break,
                Ok(gone) => node.metrics.archived.with_label_values(&["pruned"]).inc_by(gone),
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "the ledger cannot be pruned");
                    break;
                }
            }
        }
    }
}

fn is_well(node: &Node) {
    if node.metrics.ledger_up.get() == 0 {
        tracing::info!("archiving goes on");
        node.metrics.ledger_up.set(1);
    }
}

fn note(node: &Node, event: Event) {
    let metrics = &node.metrics;
    let count = |what, by: u64| metrics.archived.with_label_values(&[what]).inc_by(by);
    match event {
        Event::Holding { lanes } => {
            metrics.lanes_held.set(i64::try_from(lanes.len()).unwrap_or(i64::MAX));
            // What others hold is for them to say; one that was never said is not there.
            for other in (0..LANES).filter(|lane| !lanes.contains(lane)).map(|lane| lane.to_string()) {
                _ = metrics.lane_length.remove_label_values(&[&other]);
                _ = metrics.lane_lag_seconds.remove_label_values(&[&other]);
            }
        }
        Event::Length { lane, entries, lag } => {
            let lane = lane.to_string();
            let entries = i64::try_from(entries).unwrap_or(i64::MAX);
            metrics.lane_length.with_label_values(&[&lane]).set(entries);
            metrics.lane_lag_seconds.with_label_values(&[&lane]).set(lag.as_secs_f64());
        }
        Event::Archived { took, lags, .. } => {
            is_well(node);
            for (what, entries) in [
                ("written", took.written),
                ("repeated", took.repeated),
                ("superseded", took.superseded),
                ("forked", took.forks),
                ("aside", took.aside),
            ] {
                count(what, entries);
            }
            for lag in lags {
                metrics.archive_lag_seconds.observe(lag.as_secs_f64());
            }
            if took.superseded + took.forks + took.aside > 0 {
                tracing::warn!(?took, "the ledger has entries of a dead branch, or set some aside");
            }
            if took.events > 0 {
                node.bell.ring();
            }
        }
        Event::LedgerAnswers => is_well(node),
        Event::Lost { lane } => {
            tracing::debug!(lane, "the lane is another's");
            count("lost_lanes", 1);
        }
        Event::Fenced { lane } => {
            tracing::warn!(lane, "the ledger knows of a later holder of the lane");
            count("fenced_lanes", 1);
        }
        Event::Stuck { lane } => {
            tracing::error!(lane, "the lane does not get on; it is left to others");
            count("stuck_lanes", 1);
        }
        Event::FellBack { lane, batches } => {
            tracing::error!(lane, batches, "the ledger lacks batches that it had: it is fed again");
            count("lost_batches", batches);
        }
        Event::FedAgain { lane, entries } => {
            tracing::warn!(lane, entries, "the ledger was fed again with what Redis had kept");
            count("fed_again", entries as u64);
        }
        Event::Gap { healed } => {
            tracing::error!(healed, "entries of a room are missing in the ledger");
            count(if healed { "gaps_healed" } else { "gaps_open" }, 1);
        }
        Event::Refused { why } => {
            tracing::error!(why, "the ledger refused a batch; it looks for the entry that is at fault");
            count("refused", 1);
        }
        Event::LedgerUnavailable { why, remedy } => {
            if metrics.ledger_up.get() != 0 {
                let url = &node.config.ledger.url;
                tracing::error!(why, remedy, %url, "nothing can be archived; lanes grow");
            }
            metrics.ledger_up.set(0);
            count("ledger_unavailable", 1);
        }
        Event::Unavailable { why } => {
            tracing::debug!(why, "Redis does not answer the archiver");
            count("unavailable", 1);
        }
    }
}
