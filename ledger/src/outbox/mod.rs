//! Events on their way out.
//!
//! ```text
//! open ── delivered ──▶ delivered
//!  │ ▲
//!  │ └── retry, by an operator: out of order ──┐
//!  └── given up, or never wanted ──▶ failed ──▶┴── drop, by an operator ──▶ dropped
//! ```
//!
//! They are appended with what they tell of, in one transaction. Each (sink, room) is a queue: a row that says when its
//! oldest open event is due, and by whom it is claimed until when. So a claim is always of a whole queue, the events of a
//! room come one after the other, and however many wait behind a sink that hangs, nobody looks at them. A sink without
//! order has a queue for each event.
//!
//! A claim is worth something for longer than a try can take, and its result is recorded only if nobody else has claimed
//! the queue since: an event is delivered at least once, and by one worker at a time.

mod append;
mod breaker;
mod claim;
mod dispatcher;
mod event;
mod operate;
mod waits;

pub(crate) use append::{Appended, append};
pub use claim::{Claim, Claimed, Recorded, Tried, TryResult};
pub use dispatcher::{Bell, Clock, Dispatcher, DispatcherOptions, SinkOptions};
pub use event::{Event, Events};
pub use operate::{Backlog, Listed, Operated};
pub use waits::Waits;

/// What became of an event at one sink, as it stands in `outbox.state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Not delivered yet.
    Open = 0,
    /// Delivered.
    Delivered = 1,
    /// Given up: a dead letter.
    Failed = 2,
    /// A dead letter that an operator does not want any more.
    Dropped = 3,
}

impl State {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }

    fn of(number: u64) -> Self {
        let all = [Self::Open, Self::Delivered, Self::Failed];
        all.into_iter().find(|state| *state as u64 == number).unwrap_or(Self::Dropped)
    }
}
