//! Events in a stream of Redis.

use e2e::servers::{Flavor, ServerOptions};
use key_prefix::{Keys, Prefix};
use ledger::sink::{Delivery, Outcome, STREAM_LIFE, Sink, StreamSink};
use redis_scripts::{RedisMillis, Scripts};
use std::time::Duration;

fn delivery(app: &str, payload: &str) -> Delivery {
    Delivery {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        app: app.to_owned(),
        kind: "mic.ended".to_owned(),
        payload: payload.to_owned(),
        at: RedisMillis::new(1),
    }
}

#[tokio::test]
async fn i_15_an_event_stands_in_the_stream_of_its_app() {
    let server = ServerOptions::new(Flavor::Redis).start().await;
    let keys = Keys::new(Prefix::dev());
    let scripts = Scripts::new(server.client().await);
    let deadline = Duration::from_secs(10);
    let sink = StreamSink::new(scripts, keys.clone(), 1_000, deadline);
    let (ours, theirs) = (r#"{"data":{"app":"a","room":"maths-1"}}"#, r#"{"data":{"app":"b"}}"#);
    assert_eq!(sink.deliver(&delivery("a", ours)).await, Outcome::Delivered);
    assert_eq!(sink.deliver(&delivery("b", theirs)).await, Outcome::Delivered);
    for (app, room, payload) in [("a", "maths-1", ours), ("b", "", theirs)] {
        let key = keys.events(app).to_string();
        let found = server.command(&["XRANGE", &key, "-", "+"]).await;
        let fields: Vec<Vec<String>> = found.items().iter().map(|entry| entry.items()[1].texts()).collect();
        let expected =
            ["id", "0123456789abcdef0123456789abcdef", "type", "mic.ended", "room", room, "payload", payload];
        assert_eq!(fields, [expected]);
        let left = server.command(&["PTTL", &key]).await.number().unwrap();
        assert!(left > 0 && i128::from(left) <= i128::try_from(STREAM_LIFE.as_millis()).unwrap());
    }
}

#[tokio::test]
async fn a_redis_that_does_not_answer_is_tried_again() {
    let server = ServerOptions::new(Flavor::Redis).start().await;
    let scripts = Scripts::new(server.client().await);
    let sink = StreamSink::new(scripts, Keys::new(Prefix::dev()), 1_000, Duration::from_millis(300));
    server.pause();
    let outcome = sink.deliver(&delivery("a", "{}")).await;
    server.resume();
    assert!(matches!(outcome, Outcome::Again { after: None, .. }), "{outcome:?}");
}
