//! What the scripts publish.

use e2e::resp::Value;
use fred::clients::SubscriberClient;
use fred::interfaces::{ClientLike, EventInterface, PubsubInterface};
use fred::types::Builder;
use fred::types::config::Config;

use crate::world::World;

const END: &str = "the end";

/// Hears every channel.
pub(crate) struct Listener {
    _client: SubscriberClient,
    messages: tokio::sync::broadcast::Receiver<fred::types::Message>,
}

impl Listener {
    pub(crate) async fn start(world: &World) -> Self {
        let config = Config::from_url(&world.server.url()).expect("a good URL");
        let client = Builder::from_config(config).build_subscriber_client().expect("a good configuration");
        client.init().await.expect("a running server");
        let messages = client.message_rx();
        client.psubscribe("*").await.expect("a subscription");
        Self { _client: client, messages }
    }

    /// Channel and JSON of everything published since the last call.
    pub(crate) async fn published(&mut self, world: &World) -> Vec<(String, serde_json::Value)> {
        assert_eq!(world.redis(&["PUBLISH", END, ""]).await, Value::Integer(1));
        let mut all = Vec::new();
        loop {
            let message = self.messages.recv().await.expect("a subscription that lives");
            if message.channel == END {
                return all;
            }
            let text = message.value.as_str().expect("text").into_owned();
            let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            all.push((message.channel.to_string(), json));
        }
    }
}
