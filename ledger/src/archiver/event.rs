//! What an archiver tells the process around it.

use std::time::Duration;

use crate::Archived;

/// Something that happened, for metrics and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// These lanes are held, and no others.
    Holding {
        /// Which.
        lanes: Vec<u16>,
    },
    /// A lane's lease is another's.
    Lost {
        /// Which.
        lane: u16,
    },
    /// The ledger knows of a later holder of the lane.
    Fenced {
        /// Which.
        lane: u16,
    },
    /// A lane did not get on, and is left to others.
    Stuck {
        /// Which.
        lane: u16,
    },
    /// A lane was looked at.
    Length {
        /// Which.
        lane: u16,
        /// What waits in it.
        entries: u64,
        /// How long the oldest has waited.
        lag: Duration,
    },
    /// A batch is in the ledger.
    Archived {
        /// Of this lane.
        lane: u16,
        /// What became of its entries; the gaps are told for themselves.
        took: Archived,
        /// How long each had waited until it was.
        lags: Vec<Duration>,
    },
    /// The ledger had lost batches that it had taken.
    FellBack {
        /// Of this lane.
        lane: u16,
        /// How many.
        batches: u64,
    },
    /// What Redis had kept was given to it again.
    FedAgain {
        /// Of this lane.
        lane: u16,
        /// How much.
        entries: usize,
    },
    /// Entries of a room are missing in the ledger.
    Gap {
        /// Whether its state as Redis has it took their place.
        healed: bool,
    },
    /// The ledger refused something in a batch.
    Refused {
        /// Why.
        why: String,
    },
    /// The ledger did not answer, or takes nothing at present.
    LedgerUnavailable {
        /// Why.
        why: String,
        /// What can be done about it.
        remedy: &'static str,
    },
    /// The ledger takes claims again after it failed, and nothing waits for it.
    LedgerAnswers,
    /// Redis did not answer.
    Unavailable {
        /// Why.
        why: String,
    },
}

/// Who is told. Called from the archiver's own task: it must not block.
pub trait Events: Send + Sync {
    /// Takes note of `event`.
    fn on(&self, event: Event);
}

impl<F: Fn(Event) + Send + Sync> Events for F {
    fn on(&self, event: Event) {
        self(event);
    }
}
