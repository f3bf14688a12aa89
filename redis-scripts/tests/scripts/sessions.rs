//! Where a user's sessions are, and how they are told something.

use key_prefix::{ChannelKind, Instance};
use redis_scripts::{Notify, Session, SessionOpen};
use serde_json::json;
use std::time::Duration;

use crate::listener::Listener;
use crate::world::{APP, World};

const LIFE: Duration = Duration::from_secs(60);

async fn open(world: &World, me: &Instance, user: &str, socket: &str) {
    let session = SessionOpen { app: APP, user, socket, json: r#"{"device":"phone"}"# };
    world.scripts.sessions_open(&world.keys, me, &[session]).await.expect("an answer");
}

async fn of(world: &World, user: &str) -> Vec<(String, String)> {
    let sessions = world.scripts.sessions_of(&world.keys, APP, user).await.expect("an answer");
    let mut found: Vec<_> =
        sessions.into_iter().map(|Session { instance, socket, .. }| (instance, socket)).collect();
    found.sort_unstable();
    found
}

async fn notify(world: &World, users: &[&str]) -> usize {
    let with =
        Notify { app: APP, users, event: "call:\"incoming\"", body: r#"{"call":"c/1"}"#, except: None };
    world.scripts.notify(&world.keys, with).await.expect("an answer")
}

fn at(instance: &Instance, socket: &str) -> (String, String) {
    (instance.to_string(), socket.to_owned())
}

on_both! {
    async fn a_session_is_found_from_its_begin_to_its_end(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        assert_eq!(of(world, "ann").await, []);
        for _twice in 0..2 {
            open(world, &a, "ann", "s|1").await;
        }
        open(world, &b, "ann", "s2").await;
        open(world, &b, "bob", "s3").await;
        assert_eq!(of(world, "ann").await, [at(&a, "s|1"), at(&b, "s2")]);
        let sessions = world.scripts.sessions_of(&world.keys, APP, "bob").await.unwrap();
        let json = r#"{"device":"phone"}"#.to_owned();
        assert_eq!(sessions, [Session { instance: b.to_string(), socket: "s3".to_owned(), json }]);
        for _twice in 0..2 {
            let ended = [(APP, "ann", "s|1"), (APP, "nobody", "s9")];
            world.scripts.sessions_close(&world.keys, &a, &ended).await.unwrap();
        }
        assert_eq!(of(world, "ann").await, [at(&b, "s2")]);
        world.scripts.sessions_close(&world.keys, &b, &[(APP, "ann", "s2")]).await.unwrap();
        assert!(!world.exists(&world.keys.sessions(APP, "ann")).await);
    }

    async fn i_17_sessions_end_by_themselves_unless_they_are_touched(world: &World) {
        let me = world.register("a").await;
        open(world, &me, "ann", "s1").await;
        let sessions = world.keys.sessions(APP, "ann");
        assert!((3_500_000..=3_600_000).contains(&world.ttl_ms(&sessions).await));
        world.scripts.sessions_touch(&world.keys, &[(APP, "ann"), (APP, "nobody")], LIFE).await.unwrap();
        assert!((1..=60_000).contains(&world.ttl_ms(&sessions).await));
        assert!(!world.exists(&world.keys.sessions(APP, "nobody")).await, "a touch makes none");
    }

    async fn each_living_instance_is_told_once_for_each_user(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let (dead, quiet) = (world.register("d").await, world.register("q").await);
        for (me, user, socket) in
            [(&a, "ann", "1"), (&a, "ann", "2"), (&b, "ann", "3"), (&b, "bob", "4"), (&dead, "ann", "5"), (&quiet, "ann", "6")]
        {
            open(world, me, user, socket).await;
        }
        world.scripts.deregister(&world.keys, &dead, LIFE).await.unwrap();
        // A score that is missing for a moment says nothing for good.
        world.redis(&["ZREM", &world.keys.instances().to_string(), quiet.as_str()]).await;
        let mut listener = Listener::start(world).await;
        assert_eq!(notify(world, &["ann", "bob", "nobody"]).await, 3);
        let told = |instance: &Instance, user: &str| {
            let body = json!({ "app": APP, "user": user, "event": "call:\"incoming\"", "body": { "call": "c/1" } });
            (world.keys.channel(ChannelKind::Control, instance).to_string(), body)
        };
        let mut published = listener.published(world).await;
        published.sort_by_key(|(channel, body)| (channel.clone(), body.to_string()));
        assert_eq!(published, [told(&a, "ann"), told(&b, "ann"), told(&b, "bob")]);
        assert_eq!(of(world, "ann").await.len(), 3);
        let fields = world.redis(&["HLEN", &world.keys.sessions(APP, "ann").to_string()]).await.number();
        assert_eq!(fields, Some(4), "those of the dead one are forgotten");
        world.register("q").await;
        assert_eq!(notify(world, &[]).await, 0);
    }

    async fn a_key_of_another_type_costs_its_user_and_no_other(world: &World) {
        let me = world.register("a").await;
        let broken = world.keys.sessions(APP, "broken").to_string();
        world.redis(&["SET", &broken, "x"]).await;
        let session = |user| SessionOpen { app: APP, user, socket: "s", json: "{}" };
        world.scripts.sessions_open(&world.keys, &me, &[session("broken"), session("ann")]).await.unwrap();
        assert_eq!(notify(world, &["broken", "ann"]).await, 1);
        let ended = [(APP, "broken", "s"), (APP, "ann", "s")];
        world.scripts.sessions_close(&world.keys, &me, &ended).await.unwrap();
        assert_eq!(of(world, "ann").await, []);
        world.redis(&["DEL", &broken]).await;
    }

    async fn many_sessions_begin_at_once(world: &World) {
        let me = world.register("a").await;
        let users: Vec<String> = (0..3000).map(|n| format!("u{n}")).collect();
        let sessions: Vec<_> =
            users.iter().map(|user| SessionOpen { app: APP, user, socket: "s", json: "{}" }).collect();
        world.scripts.sessions_open(&world.keys, &me, &sessions).await.unwrap();
        let users: Vec<&str> = users.iter().map(String::as_str).collect();
        assert_eq!(notify(world, &users).await, 3000);
    }
}
