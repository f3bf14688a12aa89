//! What other instances publish for this one: `router-sync`, fanout, answers, session control, and its own
//! canary.
//!
//! The reader of the subscription never waits for anybody: it hands each message over or drops and
//! counts it. What was dropped is repaired at the next heartbeat, which compares versions.

use fred::clients::SubscriberClient;
use fred::interfaces::{EventInterface as _, PubsubInterface as _};
use fred::types::Message;
use key_prefix::{ChannelKind, RoomKey};
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;

use crate::callbacks::levels::Level;
use crate::node::Node;
use crate::room::gateway;
use crate::room::projection::StateChange;
use crate::room::work::{Refusal, Work};
use crate::store::{StoreError, patiently};

#[derive(Debug, Deserialize)]
struct Routed {
    room: String,
    #[serde(flatten)]
    what: What,
}

/// What a `router-sync` message says.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum What {
    /// Settings or guest states changed.
    Changed(Box<StateChange>),
    /// People are this loud.
    Loud { levels: Vec<Level> },
    /// There is work in the inbox.
    Inbox { inbox: String },
    /// Nobody has the room, and something in it is due.
    Adopt { adopt: bool },
}

/// Subscribes to this instance's channels and reads them until the instance ends.
pub async fn listen(node: Arc<Node>, subscriber: SubscriberClient) -> Result<(), StoreError> {
    let channel = |kind| node.store.keys.channel(kind, &node.store.me);
    let [sync, fanout, canary, reply, control] = ChannelKind::ALL.map(|kind| channel(kind).to_string());
    let mut messages = subscriber.message_rx();
    let names = [&sync, &fanout, &canary, &reply, &control].map(String::as_str);
    let unreachable = |source| StoreError::Unreachable { url: node.config.redis.url.to_string(), source };
    patiently(|| async { subscriber.subscribe(names.to_vec()).await.map_err(unreachable) }).await?;
    tokio::spawn(async move {
        loop {
            let received = tokio::select! {
                () = node.ending.cancelled() => return,
                received = messages.recv() => received,
            };
            match received {
                Ok(message) if *message.channel == *sync => route(&node, &message),
                Ok(message) if *message.channel == *fanout => {
                    if let Some(text) = message.value.as_str() {
                        node.watches.pass_on(&node, &text);
                    }
                }
                Ok(message) if *message.channel == *canary => {
                    if let Some(number) = message.value.as_u64() {
                        node.canary.returned(number);
                    }
                }
                Ok(message) if *message.channel == *reply => {
                    if !message.value.as_str().is_some_and(|text| node.replies.answered(&text)) {
                        node.metrics.replies_unclaimed.inc();
                    }
                }
                Ok(message) if *message.channel == *control => {
                    if let Some(text) = message.value.as_str() {
                        node.sessions.controlled(&node, &text);
                    }
                }
                Ok(_) => node.metrics.skipped.with_label_values(&["foreign_channel"]).inc(),
                Err(RecvError::Lagged(lost)) => {
                    tracing::warn!(
                        lost,
                        "messages were dropped; the next heartbeat repairs what they carried"
                    );
                    node.metrics.skipped.with_label_values(&["subscriber_lagged"]).inc_by(lost);
                }
                Err(RecvError::Closed) => return,
            }
        }
    });
    Ok(())
}

fn route(node: &Arc<Node>, message: &Message) {
    let outcome = |outcome| node.metrics.router_sync.with_label_values(&[outcome]).inc();
    outcome("received");
    let routed = message.value.as_str().and_then(|text| serde_json::from_str::<Routed>(&text).ok());
    let Some((room, what)) = routed.and_then(|it| Some((RoomKey::from_route(&it.room).ok()?, it.what)))
    else {
        outcome("malformed");
        return;
    };
    let work = match what {
        What::Changed(change) => Work::Sync(change),
        What::Loud { levels } => {
            if node.rooms.find(&room).is_some() {
                node.levels.hear(node, &room, levels);
            } else {
                outcome("no_local_room");
            }
            return;
        }
        What::Inbox { inbox } => {
            tracing::trace!(entry = inbox, "work in an inbox");
            Work::Inbox
        }
        What::Adopt { adopt: true } => {
            match node.app(room.app()) {
                Some(app) if !node.is_draining() => {
                    node.metrics.adoptions.inc();
                    gateway::adopt(node, &app, &room);
                }
                _ => outcome("not_adopted"),
            }
            return;
        }
        What::Adopt { adopt: false } => return outcome("malformed"),
    };
    let Some(handle) = node.rooms.find(&room) else {
        outcome("no_local_room");
        return;
    };
    match handle.tell(work) {
        Ok(()) => {}
        Err(Refusal::Gone) => outcome("no_local_room"),
        Err(Refusal::Api(_)) => outcome("queue_full"),
    }
}
