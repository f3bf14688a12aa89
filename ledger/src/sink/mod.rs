//! Where events are delivered to.

mod signature;
mod stream;
mod webhook;

use async_trait::async_trait;
use redis_scripts::RedisMillis;
use std::time::Duration;

pub use signature::{Secret, SecretError};
pub use stream::{STREAM_LIFE, StreamSink};
pub use webhook::{WebhookError, WebhookOptions, WebhookSink};

/// One try to deliver one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The event's id: the same in each try.
    pub id: String,
    /// Its app.
    pub app: String,
    /// What happened.
    pub kind: String,
    /// All of it, as JSON.
    pub payload: String,
    /// When this try is made.
    pub at: RedisMillis,
}

/// What became of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The sink has it.
    Delivered,
    /// The sink does not have it, or nobody knows.
    Again {
        /// What went wrong.
        why: String,
        /// When the sink wants it again, if it said so.
        after: Option<Duration>,
    },
    /// The sink never wants it.
    Never {
        /// What it said.
        why: String,
    },
}

impl Outcome {
    pub(crate) fn again(why: impl Into<String>) -> Self {
        Self::Again { why: why.into(), after: None }
    }
}

/// Delivers events.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Tries once. It is dropped when it takes longer than its [`deadline`](Sink::deadline) by far.
    async fn deliver(&self, delivery: &Delivery) -> Outcome;

    /// Longest time that a try may take.
    fn deadline(&self) -> Duration;
}
