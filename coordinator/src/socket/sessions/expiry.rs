//! The end of tokens: a warning before it, and the end of the connection with it. One task for all of them.

use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

use super::book::Notice;
use crate::clock::{instant, unix_millis};
use crate::node::Node;
use crate::paths::Connection;
use crate::socket::{Client, Delivery};

/// Longest time to wait on the clock of timers, which stands still while the machine sleeps.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Clients told in one go.
const AT_ONCE: usize = 256;

/// Warns of and ends tokens until the instance ends.
pub async fn watch(node: Arc<Node>) {
    loop {
        let due = node.sessions.lock().book.take_due(unix_millis(), AT_ONCE);
        let is_more = due.len() == AT_ONCE;
        for (client, notice) in due {
            tell(&node, &client, notice);
        }
        if is_more {
            tokio::task::yield_now().await;
            continue;
        }
        let next = node.sessions.lock().book.next_due();
        let pause = next.map_or(LOOK_EVERY, |at| Duration::from_millis(at.saturating_sub(unix_millis())));
        tokio::select! {
            () = node.ending.cancelled() => return,
            () = node.sessions.earlier.notified() => {}
            () = tokio::time::sleep_until(instant() + pause.min(LOOK_EVERY)) => {}
        }
    }
}

fn tell(node: &Node, client: &Client, notice: Notice) {
    let (class, body) = match notice {
        Notice::Expiring { in_ms } => (Connection::TokenExpiring, format!(r#"{{"expiresInMs":{in_ms}}}"#)),
        Notice::Expired => {
            // Another token may have come in between.
            if client.connection.identity().expires_at_s.saturating_mul(1_000) > unix_millis() {
                return;
            }
            (Connection::TokenExpired, r#"{"reason":"token_expired"}"#.to_owned())
        }
    };
    let Ok(body) = RawValue::from_string(body) else { return };
    let is_full = client.send(class, &body) == Delivery::QueueFull;
    if is_full {
        node.metrics.skipped.with_label_values(&["queue_full"]).inc();
    }
    if is_full || notice == Notice::Expired {
        client.disconnect();
    }
}
