//! What a reaper tells the process around it.

use key_prefix::{AppCode, Instance};
use redis_scripts::FenceToken;

/// Something that happened, for metrics and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// This instance leads.
    Elected {
        /// Its token.
        token: FenceToken,
    },
    /// It leads no more.
    Deposed {
        /// The token that is worth nothing now.
        token: FenceToken,
    },
    /// What a dead instance held is cleared.
    Reaped {
        /// The dead one.
        instance: Instance,
        /// Owner keys cleared.
        rooms: usize,
        /// Watches cleared.
        watches: usize,
    },
    /// One page of an app's index was walked.
    Swept {
        /// The app.
        app: AppCode,
        /// Rooms that were given an end.
        ended: usize,
        /// Rooms dropped from the index.
        dropped: usize,
    },
    /// Rooms that nobody owns, and in which something is due, were offered to instances.
    Offered {
        /// How many.
        rooms: usize,
    },
    /// Redis did not answer.
    Unavailable,
    /// A script failed in a way that repeating does not mend; the round went on without it.
    Failed,
    /// The observer counts anew.
    Disturbed {
        /// Why.
        cause: Cause,
    },
}

/// Why the observer counts anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Redis did not answer.
    Outage,
    /// Redis's clock and the own one moved apart by more than a second.
    ClockStep,
    /// The caller said so.
    Told,
}

/// Who is told. Called from the reaper's own tasks: it must not block.
pub trait Events: Send + Sync {
    /// Takes note of `event`.
    fn on(&self, event: Event);
}

impl<F: Fn(Event) + Send + Sync> Events for F {
    fn on(&self, event: Event) {
        self(event);
    }
}
