//! `event_append`: a stream for each app, with an end.

use redis_scripts::EventAppend;
use std::time::Duration;

use crate::world::{APP, World};

const LIFE: Duration = Duration::from_secs(60);

const fn mic_ended(id: &str, cap: usize) -> EventAppend<'_> {
    EventAppend { app: APP, id, kind: "mic.ended", room: "math-101", payload: r#"{"a":1}"#, cap, life: LIFE }
}

on_both! {
    async fn i_15_events_stand_in_the_order_in_which_they_came(world: &World) {
        let key = world.keys.events(APP).to_string();
        let mut entries = Vec::new();
        for id in ["e1", "e2", "e2"] {
            entries.push(world.scripts.event_append(&world.keys, mic_ended(id, 100)).await.unwrap());
        }
        let nowhere = EventAppend { room: "", kind: "instance.lost", ..mic_ended("e3", 100) };
        entries.push(world.scripts.event_append(&world.keys, nowhere).await.unwrap());
        let found = world.redis(&["XRANGE", &key, "-", "+"]).await;
        let fields = |id: &str, kind: &str, room: &str| {
            ["id", id, "type", kind, "room", room, "payload", r#"{"a":1}"#].map(str::to_owned)
        };
        let expected = [
            fields("e1", "mic.ended", "math-101"),
            fields("e2", "mic.ended", "math-101"),
            fields("e2", "mic.ended", "math-101"),
            fields("e3", "instance.lost", ""),
        ];
        let found: Vec<(String, Vec<String>)> =
            found.items().iter().map(|entry| (entry.items()[0].text(), entry.items()[1].texts())).collect();
        let expected: Vec<(String, Vec<String>)> =
            entries.into_iter().zip(expected.map(Vec::from)).collect();
        assert_eq!(found, expected);
        let ttl = world.ttl_ms(&world.keys.events(APP)).await;
        assert!((50_000..=60_000).contains(&ttl), "{ttl}");
    }

    async fn i_17_the_oldest_go_when_there_are_too_many(world: &World) {
        let key = world.keys.events(APP).to_string();
        for n in 0..1_000 {
            world.scripts.event_append(&world.keys, mic_ended(&n.to_string(), 100)).await.unwrap();
        }
        let length = world.redis(&["XLEN", &key]).await.number().unwrap();
        assert!((100..400).contains(&length), "about as many: {length}");
    }
}
