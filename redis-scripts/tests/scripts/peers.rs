//! `join`, `leave` and `touch`: what the owner does with the peers of its room.

use key_prefix::Instance;
use redis_scripts::{
    CellVersion, Changed, FenceToken, Join, Leave, RecordedPeer, ScriptError, Touch, Touched,
};
use serde_json::json;

use crate::listener::Listener;
use crate::world::{World, other_than, peer};

async fn join(
    world: &World,
    me: &Instance,
    token: FenceToken,
    peer: RecordedPeer<'_>,
    replaced: &[&str],
) -> Changed {
    try_join(world, me, token, peer, replaced).await.expect("an answer")
}

async fn try_join(
    world: &World,
    me: &Instance,
    token: FenceToken,
    peer: RecordedPeer<'_>,
    replaced: &[&str],
) -> Result<Changed, ScriptError> {
    let fanout = format!(r#""joined":[{{"user":"{}"}}],"left":[]"#, peer.user);
    let route_json = world.route_json();
    let with =
        Join { me, keys: &world.names, token, peer, replaced, route_json: &route_json, fanout: &fanout };
    world.scripts.join(&world.keys, with).await
}

async fn leave(world: &World, me: &Instance, token: FenceToken, peers: &[&str], users: &[&str]) -> Changed {
    let route_json = world.route_json();
    let fanout = r#""joined":[],"left":[{"user":"ann","reason":"left"}]"#;
    let with = Leave { me, keys: &world.names, token, peers, users, route_json: &route_json, fanout };
    world.scripts.leave(&world.keys, with).await.expect("an answer")
}

fn count(changed: &Changed) -> (u64, usize) {
    match changed {
        Changed::Ok { cv, peer_count, .. } => (cv.as_u64(), *peer_count),
        other => panic!("not committed: {other:?}"),
    }
}

on_both! {
    async fn i_6_the_count_is_the_size_of_the_peer_set(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        assert_eq!(count(&join(world, &me, token, peer("p1", "ann"), &[]).await), (2, 1));
        assert_eq!(count(&join(world, &me, token, peer("p2", "bob"), &[]).await), (3, 2));
        assert_eq!(count(&join(world, &me, token, peer("p2", "bob"), &[]).await), (4, 2), "twice is once");
        assert_eq!(count(&join(world, &me, token, peer("p3", "bob"), &["p2"]).await), (5, 2), "replaced");
        assert_eq!(count(&leave(world, &me, token, &["p1"], &["ann"]).await), (6, 1));
        assert_eq!(count(&leave(world, &me, token, &["p1"], &["ann"]).await), (7, 1), "twice is once");
        let standing = world.standing().await;
        assert!(standing.whole);
        assert_eq!(standing.state.peers.len(), 1);
        assert_eq!(standing.state.presence.iter().map(|(user, _)| user.as_str()).collect::<Vec<_>>(), ["bob"]);
        assert_eq!(standing.state.cv, CellVersion::new(7));
    }

    async fn i_1_a_wrong_token_changes_nothing(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let before = world.keyspace().await;
        let held = format!("{a} {token}");
        for (who, with) in [(&a, other_than(token)), (&b, token)] {
            assert_eq!(join(world, who, with, peer("p1", "ann"), &[]).await, Changed::Lost { held: held.clone() });
            assert_eq!(leave(world, who, with, &["p1"], &["ann"]).await, Changed::Lost { held: held.clone() });
        }
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_1_after_the_lease_ended_nothing_is_accepted(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        assert_eq!(join(world, &a, token, peer("p1", "ann"), &[]).await, Changed::Lost { held: String::new() });
        let newer = world.own(&b).await;
        let before = world.keyspace().await;
        let held = format!("{b} {newer}");
        assert_eq!(join(world, &a, token, peer("p1", "ann"), &[]).await, Changed::Lost { held: held.clone() });
        assert_eq!(leave(world, &a, token, &["p1"], &[]).await, Changed::Lost { held });
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_1_a_superseded_incarnation_changes_nothing(world: &World) {
        let a = world.register("a").await;
        let token = world.own(&a).await;
        let again = world.register("a").await;
        let before = world.keyspace().await;
        let by = again.incarnation();
        assert_eq!(join(world, &a, token, peer("p1", "ann"), &[]).await, Changed::Superseded { by });
        assert_eq!(leave(world, &a, token, &["p1"], &[]).await, Changed::Superseded { by });
        let touch = [Touch { room: &world.room, token, users: &["ann"] }];
        let touched = world.scripts.touch(&world.keys, &a, &touch).await.unwrap();
        assert_eq!(touched, Touched::Superseded { by });
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_3_a_room_that_lost_keys_is_missing(world: &World) {
        let me = world.register("a").await;
        for lost in [&world.names.room, &world.names.peers, &world.names.presence] {
            let token = world.own(&me).await;
            join(world, &me, token, peer("p1", "ann"), &[]).await;
            world.redis(&["DEL", &lost.to_string()]).await;
            let before = world.keyspace().await;
            assert_eq!(join(world, &me, token, peer("p2", "bob"), &[]).await, Changed::Missing, "{lost:?}");
            assert_eq!(leave(world, &me, token, &["p1"], &["ann"]).await, Changed::Missing, "{lost:?}");
            assert_eq!(world.keyspace().await, before);
            world.redis(&["FLUSHALL"]).await;
        }
    }

    async fn a_room_that_is_not_active_takes_nobody_and_lets_everybody_go(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        join(world, &me, token, peer("p1", "ann"), &[]).await;
        world.redis(&["HSET", &world.names.room.to_string(), "status", "closed"]).await;
        let closed = join(world, &me, token, peer("p2", "bob"), &[]).await;
        assert_eq!(closed, Changed::Closed { status: "closed".to_owned() });
        assert_eq!(count(&leave(world, &me, token, &["p1"], &["ann"]).await).1, 0);
    }

    async fn i_5_watchers_are_told_and_nobody_else(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let mut listener = Listener::start(world).await;
        join(world, &a, token, peer("p1", "ann"), &[]).await;
        assert_eq!(listener.published(world).await, [], "nobody watches");

        world.scripts.watch(&world.keys, &b, &world.room).await.unwrap();
        let joined = join(world, &a, token, peer("p2", "bob"), &[]).await;
        assert!(matches!(joined, Changed::Ok { watchers: 1, .. }));
        leave(world, &a, token, &["p1"], &["ann"]).await;
        let channel = world.keys.channel(key_prefix::ChannelKind::Fanout, &b).to_string();
        let message = |from: u64, part: serde_json::Value, count: u64| {
            let mut all = json!({ "room": world.room.route(), "of": "cell", "from": from, "to": from + 1,
                "peerCount": count });
            all.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
            (channel.clone(), all)
        };
        assert_eq!(
            listener.published(world).await,
            [
                message(2, json!({ "joined": [{ "user": "bob" }], "left": [] }), 2),
                message(3, json!({ "joined": [], "left": [{ "user": "ann", "reason": "left" }] }), 1),
            ]
        );
    }

    async fn i_10_a_touch_never_makes_a_presence(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        join(world, &me, token, peer("p1", "ann"), &[]).await;
        world.redis(&["ZADD", &world.names.presence.to_string(), "5", "ann"]).await;
        let touch = [Touch { room: &world.room, token, users: &["ann", "bob"] }];
        assert_eq!(world.scripts.touch(&world.keys, &me, &touch).await.unwrap(), Touched::Ok { users: 2 });
        let presence = world.standing().await.state.presence;
        assert_eq!(presence.len(), 1);
        assert!(presence[0].0 == "ann" && presence[0].1.as_u64() > 5);
    }

    async fn i_10_a_touch_without_the_lease_is_nothing(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        join(world, &a, token, peer("p1", "ann"), &[]).await;
        let before = world.keyspace().await;
        for (who, with) in [(&a, other_than(token)), (&b, token)] {
            let touch = [Touch { room: &world.room, token: with, users: &["ann"] }];
            assert_eq!(world.scripts.touch(&world.keys, who, &touch).await.unwrap(), Touched::Ok { users: 0 });
        }
        assert_eq!(world.scripts.touch(&world.keys, &a, &[]).await.unwrap(), Touched::Ok { users: 0 });
        assert_eq!(world.keyspace().await, before);
    }

    async fn a_script_that_the_server_forgot_is_loaded_again(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        for round in 1..=3 {
            world.redis(&["SCRIPT", "FLUSH"]).await;
            let joined = try_join(world, &me, token, peer(&format!("p{round}"), "ann"), &[]).await;
            assert_eq!(count(&joined.unwrap()).1, round);
        }
    }
}
