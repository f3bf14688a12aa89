//! What a dispatcher tells the process around it.

use std::sync::Arc;

/// Something that happened at one sink, for metrics and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An event was delivered.
    Delivered {
        /// The sink.
        sink: Arc<str>,
        /// Milliseconds since it happened.
        age_ms: u64,
        /// Which try it was, from 1.
        attempt: u64,
    },
    /// A try failed; there will be another.
    Retrying {
        /// The sink.
        sink: Arc<str>,
        /// What went wrong.
        why: String,
    },
    /// An event was given up: it is a dead letter now.
    Failed {
        /// The sink.
        sink: Arc<str>,
        /// What went wrong, last.
        why: String,
    },
    /// A result came after its claim was over; another worker has the event.
    Late {
        /// The sink.
        sink: Arc<str>,
    },
    /// The sink failed so often that it is left alone for a while.
    Opened {
        /// The sink.
        sink: Arc<str>,
    },
    /// It answers again.
    Closed {
        /// The sink.
        sink: Arc<str>,
    },
    /// The ledger did not do its part; it is asked again.
    LedgerFailed {
        /// The sink.
        sink: Arc<str>,
        /// Whether it is only away.
        unavailable: bool,
        /// Whether it did its part before.
        first: bool,
    },
}

/// Who is told. Called from the dispatcher's own tasks: it must not block.
pub trait Events: Send + Sync {
    /// Takes note of `event`.
    fn on(&self, event: Event);
}

impl<F: Fn(Event) + Send + Sync> Events for F {
    fn on(&self, event: Event) {
        self(event);
    }
}
