//! Into a stream of Redis, one for each app.

use async_trait::async_trait;
use key_prefix::Keys;
use redis_scripts::{EventAppend, Scripts};
use serde::Deserialize;
use std::time::Duration;

use super::{Delivery, Outcome, Sink};

/// A stream ends so long after its newest event.
pub const STREAM_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Appends events to the stream of their app. Fields: `id`, `type`, `room` (empty: about none), `payload`.
#[derive(Debug)]
pub struct StreamSink {
    scripts: Scripts,
    keys: Keys,
    cap: usize,
    deadline: Duration,
}

impl StreamSink {
    /// Keeps about `cap` events of each app.
    pub const fn new(scripts: Scripts, keys: Keys, cap: usize, deadline: Duration) -> Self {
        Self { scripts, keys, cap, deadline }
    }
}

#[derive(Deserialize)]
struct Placed {
    data: Place,
}

#[derive(Deserialize)]
struct Place {
    #[serde(default)]
    room: String,
}

#[async_trait]
impl Sink for StreamSink {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let room =
            serde_json::from_str(&delivery.payload).map_or_else(|_| String::new(), |it: Placed| it.data.room);
        let with = EventAppend {
            app: &delivery.app,
            id: &delivery.id,
            kind: &delivery.kind,
            room: &room,
            payload: &delivery.payload,
            cap: self.cap,
            life: STREAM_LIFE,
        };
        match tokio::time::timeout(self.deadline, self.scripts.event_append(&self.keys, with)).await {
            Ok(Ok(_)) => Outcome::Delivered,
            Ok(Err(error)) => Outcome::again(error.to_string()),
            Err(_) => Outcome::again(format!("Redis did not answer within {:?}", self.deadline)),
        }
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }
}
