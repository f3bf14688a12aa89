//! `report`, `levels`, `router_claim` and `router_find`: what media servers say, and in which names.

use key_prefix::{AppCode, ChannelKind, RoomId, RoomKey, RouterName};
use redis_scripts::{Claimed, LevelsTo, Report, Reported, RouterOf};
use serde_json::{Value, json};
use std::time::Duration;

use crate::listener::Listener;
use crate::world::{APP, OWNER_TTL, World};

const TTL: Duration = Duration::from_secs(60);

async fn report(world: &World, with: Report<'_>) -> Reported {
    world.scripts.report(&world.keys, with).await.expect("an answer")
}

/// Payloads in the inbox.
async fn inbox(world: &World) -> Vec<String> {
    let entries = world.scripts.inbox_read(&world.names, None, 100).await.expect("an answer");
    entries.into_iter().map(|entry| entry.payload).collect()
}

fn ok(appended: usize, owner: &str) -> Reported {
    Reported::Ok { appended, owner: owner.to_owned() }
}

fn name(text: &str) -> RouterName {
    RouterName::new(text).expect("a good name")
}

on_both! {
    async fn i_13_reports_stand_in_the_inbox_in_order_each_once(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        let mut listener = Listener::start(world).await;
        let first = [("e1", "1"), ("e2", "2"), ("e1", "1"), ("e3", "3")];
        assert_eq!(report(world, world.report(&b, &first)).await, ok(3, a.as_str()));
        assert_eq!(inbox(world).await, ["1", "2", "3"]);
        let entries = world.scripts.inbox_read(&world.names, None, 100).await.unwrap();
        assert!(entries.iter().all(|it| it.keep.is_none() && it.reply.is_none() && it.deadline.is_none()));
        let sync = world.keys.channel(ChannelKind::Sync, &a).to_string();
        let message = json!({ "room": world.room.route(), "inbox": entries[2].entry });
        assert_eq!(listener.published(world).await, [(sync, message)], "once for all of them");
        assert!(world.mark(&a).await.is_some());
        for id in ["e1", "e2", "e3"] {
            let seen = world.ttl_ms(&world.keys.seen(&world.room, id)).await;
            assert!((500_000..=600_000).contains(&seen), "{id}: {seen}");
        }
        // Some of them are new, none is, and those of the owner itself.
        assert_eq!(report(world, world.report(&b, &[("e3", "3"), ("e4", "4")])).await, ok(1, a.as_str()));
        assert_eq!(listener.published(world).await.len(), 1);
        let before = world.keyspace().await;
        assert_eq!(report(world, world.report(&b, &first)).await, ok(0, a.as_str()));
        assert_eq!(world.keyspace().await, before);
        assert_eq!(report(world, world.report(&a, &[("e5", "5")])).await, ok(1, a.as_str()));
        assert_eq!(listener.published(world).await, []);
        assert_eq!(inbox(world).await, ["1", "2", "3", "4", "5"]);
    }

    async fn i_13_reports_for_a_room_fall_due_when_nobody_owns_it(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        let before = world.now_ms().await;
        report(world, world.report(&b, &[("e1", "1")])).await;
        let due = world.due().await.unwrap();
        let ttl = i64::try_from(OWNER_TTL.as_millis()).unwrap();
        assert!(due > before && due <= world.now_ms().await + ttl, "when the lease ends");
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        world.redis(&["PEXPIRE", &world.names.room.to_string(), "60000"]).await;
        assert_eq!(report(world, world.report(&b, &[("e2", "2")])).await, ok(1, ""));
        assert!(world.due().await.unwrap() <= world.now_ms().await, "now");
        let life = world.ttl_ms(&world.names.inbox).await;
        assert!((50_000..=60_000).contains(&life), "it ends with the room: {life}");
    }

    async fn a_report_that_is_refused_leaves_nothing(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let before = world.keyspace().await;
        let missing = Reported::Missing { owner: String::new() };
        assert_eq!(report(world, world.report(&b, &[("e1", "1")])).await, missing);
        assert_eq!(world.keyspace().await, before);

        world.own(&a).await;
        report(world, world.report(&b, &[("e1", "1")])).await;
        let before = world.keyspace().await;
        let two = [("e2", "2"), ("e3", "3")];
        let full = Reported::Full { length: 1 };
        assert_eq!(report(world, Report { cap: 2, ..world.report(&b, &two) }).await, full, "not half of it");
        assert_eq!(world.keyspace().await, before);
        assert_eq!(report(world, Report { cap: 3, ..world.report(&b, &two) }).await, ok(2, a.as_str()));

        // A repeat is one, whatever became of the room.
        world.redis(&["DEL", &world.names.room.to_string()]).await;
        assert_eq!(report(world, world.report(&b, &two)).await, ok(0, a.as_str()));
        let missing = Reported::Missing { owner: a.to_string() };
        assert_eq!(report(world, world.report(&b, &[("e4", "4")])).await, missing);
    }

    async fn i_5_levels_go_to_the_owner_and_from_there_to_who_watches(world: &World) {
        let (a, b, c) = (world.register("a").await, world.register("b").await, world.register("c").await);
        let message = r#"{"levels":[]}"#;
        let told = async |to| world.scripts.levels(&world.keys, &world.names, to, message).await.unwrap();
        let before = world.keyspace().await;
        assert_eq!(told(LevelsTo::Owner).await, None);
        assert_eq!(told(LevelsTo::Watchers(&a)).await, None);
        assert_eq!(world.keyspace().await, before);

        world.own(&a).await;
        let mut listener = Listener::start(world).await;
        let channel = |kind, of| world.keys.channel(kind, of).to_string();
        let read: Value = serde_json::from_str(message).unwrap();
        assert_eq!(told(LevelsTo::Owner).await, Some(1));
        assert_eq!(listener.published(world).await, [(channel(ChannelKind::Sync, &a), read.clone())]);
        assert_eq!(told(LevelsTo::Watchers(&a)).await, Some(0));
        for watcher in [&b, &c] {
            world.scripts.watch(&world.keys, watcher, &world.room).await.unwrap();
        }
        let before = world.keyspace().await;
        assert_eq!(told(LevelsTo::Watchers(&a)).await, Some(2));
        let mut published = listener.published(world).await;
        published.sort_by(|a, b| a.0.cmp(&b.0));
        let to = |watcher| (channel(ChannelKind::Fanout, watcher), read.clone());
        assert_eq!(published, [to(&b), to(&c)]);
        assert_eq!(told(LevelsTo::Watchers(&b)).await, None, "who is not the owner says nothing");
        assert_eq!(listener.published(world).await, []);
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_17_a_router_has_its_name_alone_and_for_a_time(world: &World) {
        let other = RoomKey::new(AppCode::new(APP).unwrap(), RoomId::new("12 34").unwrap());
        let claim = async |router: &str, room, generation, ttl| {
            let name = name(router);
            world.scripts.router_claim(&world.keys, &name, room, generation, ttl).await.unwrap()
        };
        let find = async |router: &str| world.scripts.router_find(&world.keys, &name(router)).await.unwrap();
        let key = world.keys.router(&name("r1"));
        assert_eq!(find("r1").await, None);
        assert_eq!(claim("r1", &world.room, 7, TTL).await, Claimed::Mine);
        assert_eq!(claim("r2", &other, u64::MAX, TTL).await, Claimed::Mine);
        let of = |room: &RoomKey, generation| Some(RouterOf { route: room.route().to_owned(), generation });
        assert_eq!((find("r1").await, find("r2").await), (of(&world.room, 7), of(&other, u64::MAX)));

        // The same again renews it; anything else is refused, and changes nothing.
        assert_eq!(claim("r1", &world.room, 7, 2 * TTL).await, Claimed::Mine);
        assert!((110_000..=120_000).contains(&world.ttl_ms(&key).await));
        assert_eq!(claim("r1", &other, 7, TTL).await, Claimed::Taken);
        assert_eq!(claim("r1", &world.room, 8, TTL).await, Claimed::Taken);
        assert_eq!(find("r1").await, of(&world.room, 7));
        assert!((110_000..=120_000).contains(&world.ttl_ms(&key).await));
        world.redis(&["DEL", &key.to_string()]).await;
        assert_eq!(claim("r1", &other, 1, TTL).await, Claimed::Mine);
    }
}
