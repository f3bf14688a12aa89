//! The ledger as rooms ask it: never for long, and not at all for a moment after it failed to answer.

use key_prefix::RoomKey;
use ledger::{Head, Ledger, LedgerError};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

use crate::clock::Moment;

/// After a failure nobody waits for it again for so long.
const PAUSE: Duration = Duration::from_secs(1);
/// Rooms that are asked for at once.
const HEADS: usize = 256;

/// The ledger, and whether it answers.
#[derive(Debug)]
pub struct Books {
    /// The ledger.
    pub ledger: Ledger,
    patience: Duration,
    silent_until: AtomicU64,
    heads: Mutex<Heads>,
}

/// Heads that are wanted: they wait for the query that is under way, and share the next.
#[derive(Debug, Default)]
struct Heads {
    wanted: Vec<Wanted>,
    is_asking: bool,
}

#[derive(Debug)]
struct Wanted {
    room: RoomKey,
    reply: oneshot::Sender<Option<Head>>,
}

impl Books {
    /// A ledger that is waited for so long while somebody waits for a room.
    pub fn new(ledger: Ledger, patience: Duration) -> Self {
        Self { ledger, patience, silent_until: AtomicU64::new(0), heads: Mutex::default() }
    }

    /// Waits for an answer; `None`: there is none just now.
    pub async fn ask<T>(&self, question: impl Future<Output = Result<T, LedgerError>>) -> Option<T> {
        let now = || Moment::now().parts().0;
        if now() < self.silent_until.load(Ordering::Relaxed) {
            return None;
        }
        match tokio::time::timeout(self.patience, question).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the ledger does not answer");
                if !error.is_unavailable() {
                    return None;
                }
            }
            Err(_) => tracing::warn!(patience = ?self.patience, "the ledger does not answer in time"),
        }
        let pause = u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX);
        self.silent_until.store(now().saturating_add(pause), Ordering::Relaxed);
        None
    }

    /// The head of a room, asked for together with those that others want; `None`: there is no answer just now.
    pub async fn head(self: &Arc<Self>, room: &RoomKey) -> Option<Option<Head>> {
        let (reply, answer) = oneshot::channel();
        {
            let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
            heads.wanted.push(Wanted { room: room.clone(), reply });
            if !std::mem::replace(&mut heads.is_asking, true) {
                tokio::spawn(Arc::clone(self).read_heads());
            }
        }
        tokio::time::timeout(self.patience, answer).await.ok()?.ok()
    }

    async fn read_heads(self: Arc<Self>) {
        loop {
            let wanted: Vec<Wanted> = {
                let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
                let some = heads.wanted.len().min(HEADS);
                heads.is_asking = some > 0;
                heads.wanted.drain(..some).collect()
            };
            if wanted.is_empty() {
                return;
            }
            // Whoever is not answered learns by the end of its channel that there is no answer.
            let found = self.ask(self.ledger.heads(wanted.iter().map(|it| &it.room))).await;
            for (Wanted { reply, .. }, head) in wanted.into_iter().zip(found.unwrap_or_default()) {
                _ = reply.send(head);
            }
        }
    }
}
