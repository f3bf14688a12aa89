//! The ledger as rooms ask it: never for long, and not at all for a moment after it failed to answer.

use ledger::{Ledger, LedgerError};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;

/// After a failure nobody waits for it again for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// The ledger, and whether it answers.
#[derive(Debug)]
pub struct Books {
    /// The ledger.
    pub ledger: Ledger,
    patience: Duration,
    silent_until: AtomicU64,
}

impl Books {
    /// A ledger that is waited for so long while somebody waits for a room.
    pub const fn new(ledger: Ledger, patience: Duration) -> Self {
        Self { ledger, patience, silent_until: AtomicU64::new(0) }
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
}
