//! What other instances publish for this one: `router-sync`, fanout, and its own canary.
//!
//! The reader of the subscription never waits for anybody: it hands each message over or drops and
//! counts it. What was dropped is repaired at the next heartbeat, which compares versions.

use fred::clients::SubscriberClient;
use fred::error::Error;
use fred::interfaces::{EventInterface as _, PubsubInterface as _};
use fred::types::Message;
use key_prefix::{Channel, ChannelKind, RoomKey};
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;

use crate::node::Node;
use crate::room::projection::StateChange;
use crate::room::work::{Refusal, Work};

#[derive(Debug, Deserialize)]
struct Routed {
    room: String,
    #[serde(flatten)]
    change: StateChange,
}

/// Subscribes to this instance's three channels and reads them until the instance ends.
pub async fn listen(node: Arc<Node>, subscriber: SubscriberClient) -> Result<(), Error> {
    let channel = |kind| node.store.keys.channel(kind, &node.store.me);
    let [sync, fanout, canary] = ChannelKind::ALL.map(channel);
    let mut messages = subscriber.message_rx();
    subscriber.subscribe(vec![name(&sync), name(&fanout), name(&canary)]).await?;
    let (sync, fanout, canary) = (sync.to_string(), fanout.to_string(), canary.to_string());
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

fn name(channel: &Channel) -> String {
    channel.to_string()
}

fn route(node: &Node, message: &Message) {
    let outcome = |outcome| node.metrics.router_sync.with_label_values(&[outcome]).inc();
    outcome("received");
    let routed = message.value.as_str().and_then(|text| serde_json::from_str::<Routed>(&text).ok());
    let Some((room, change)) = routed.and_then(|it| Some((RoomKey::from_route(&it.room).ok()?, it.change)))
    else {
        outcome("malformed");
        return;
    };
    let Some(handle) = node.rooms.find(&room) else {
        outcome("no_local_room");
        return;
    };
    match handle.tell(Work::Sync(Box::new(change))) {
        Ok(()) => {}
        Err(Refusal::Gone) => outcome("no_local_room"),
        Err(Refusal::Api(_)) => outcome("queue_full"),
    }
}
