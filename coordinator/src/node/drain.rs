//! The graceful end: no new rooms, every room handed back and its people told to move, then the instance.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Node;
use crate::room::work::{Refusal, Work};

/// Rooms that are handed back at the same time.
const AT_ONCE: usize = 32;
/// Pauses of clients are spread over this at most, and over a millisecond for each of them at least.
const SPREAD: Duration = Duration::from_secs(2);
/// Others may ask so long whether the instance is gone.
const GONE_LIFE: Duration = Duration::from_secs(600);

/// What a drain did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Rooms handed back.
    pub rooms: usize,
    /// Members told to move.
    pub members: usize,
    /// Rooms that were not handed back in time; their leases end by themselves.
    pub left_behind: usize,
}

/// Hands every room back, by the deadline, and deregisters.
pub async fn drain(node: &Arc<Node>, deadline: Instant) -> Drained {
    node.draining.store(true, Ordering::SeqCst);
    node.metrics.ready.set(0);
    let mut done = Drained { rooms: 0, members: 0, left_behind: 0 };
    let rooms = node.rooms.all();
    tracing::info!(rooms = rooms.len(), "draining");
    let members = u64::try_from(node.metrics.peers.get()).unwrap_or(0);
    let spread = Duration::from_millis(members).min(SPREAD);
    for chunk in rooms.chunks(AT_ONCE) {
        let mut answers = Vec::with_capacity(chunk.len());
        for (_, handle) in chunk {
            let (reply, answer) = oneshot::channel();
            match handle.tell(Work::Drain { spread, done: reply }) {
                Ok(()) => answers.push(answer),
                Err(Refusal::Gone) => {}
                Err(Refusal::Api(_)) => done.left_behind += 1,
            }
        }
        for answer in answers {
            match tokio::time::timeout_at(deadline, answer).await {
                Ok(Ok(told)) => {
                    done.rooms += 1;
                    done.members += told;
                }
                Ok(Err(_)) => {}
                Err(_) => done.left_behind += 1,
            }
        }
    }
    node.leaving.cancel();
    let store = &node.store;
    for chunk in node.watches.rooms().chunks(AT_ONCE) {
        let ending = chunk.iter().map(|room| store.scripts.unwatch(&store.keys, &store.me, room));
        _ = tokio::time::timeout_at(deadline, futures_util::future::join_all(ending)).await;
    }
    // A chunk of leases that is on its way would register the instance again.
    _ = tokio::time::timeout_at(deadline, node.still.cancelled()).await;
    let ended = store.scripts.deregister(&store.keys, &store.me, GONE_LIFE);
    if let Ok(Err(error)) = tokio::time::timeout_at(deadline, ended).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "not deregistered; others wait for its time to live"
        );
    }
    done
}
