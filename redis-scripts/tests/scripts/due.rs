//! `due`: rooms that nobody owns and somebody must look after.

use key_prefix::{ChannelKind, Instance};
use redis_scripts::{Acquired, Due, DueRooms, FenceToken, Offer, Offered};
use serde_json::json;
use std::time::Duration;

use crate::listener::Listener;
use crate::world::{OWNER_TTL, World, other_than, room};

const LEASE: &str = "reaper";

async fn lead(world: &World, me: &Instance) -> FenceToken {
    let ttl = Duration::from_secs(30);
    match world.scripts.lease_acquire(&world.keys, LEASE, me, ttl).await.expect("an answer") {
        Acquired::Ok { token, .. } => token,
        held => panic!("{held:?}"),
    }
}

async fn due(world: &World, me: &Instance, token: FenceToken, limit: usize) -> Due {
    let with = DueRooms { lease: LEASE, me, token, owner_ttl: OWNER_TTL, limit };
    world.scripts.due(&world.keys, with).await.expect("an answer")
}

impl World {
    async fn falls_due(&self, at: i64, id: &str) {
        self.redis(&["ZADD", &self.keys.due().to_string(), &at.to_string(), room(id).route()]).await;
    }

    async fn scores(&self) -> Vec<(String, i64)> {
        let found =
            self.redis(&["ZRANGE", &self.keys.due().to_string(), "0", "-1", "WITHSCORES"]).await.texts();
        found.chunks(2).map(|pair| (pair[0].clone(), pair[1].parse().expect("a score"))).collect()
    }
}

on_both! {
    async fn an_unowned_room_is_found_when_it_is_due_and_then_after_a_while(world: &World) {
        let me = world.register("a").await;
        let token = lead(world, &me).await;
        for id in ["unowned", "owned", "later", "gone"] {
            world.own_room(&me, &room(id)).await;
        }
        for id in ["unowned", "later", "gone"] {
            world.redis(&["DEL", &world.keys.room(&room(id)).owner.to_string()]).await;
        }
        world.redis(&["DEL", &world.keys.room(&room("gone")).room.to_string()]).await;
        let now = world.now_ms().await;
        for (id, at) in [("unowned", 5), ("owned", 6), ("gone", 7), ("later", now + 60_000)] {
            world.falls_due(at, id).await;
        }
        let found = Due::Ok { rooms: vec![room("unowned")], instances: vec![] };
        assert_eq!(due(world, &me, token, 10).await, found);
        let scores = world.scores().await;
        assert_eq!(scores.len(), 3, "what is gone is due no more");
        assert!(scores.iter().all(|(_, at)| *at >= now + 15_000), "{scores:?}");
        assert_eq!(due(world, &me, token, 10).await, Due::Ok { rooms: vec![], instances: vec![] }, "twice");
        world.falls_due(world.now_ms().await, "unowned").await;
        assert_eq!(due(world, &me, token, 10).await, found, "again, as long as it is due");
    }

    async fn so_many_are_looked_at_at_once(world: &World) {
        let me = world.register("a").await;
        let token = lead(world, &me).await;
        for n in 0..5 {
            let id = format!("r{n}");
            world.own_room(&me, &room(&id)).await;
            world.redis(&["DEL", &world.keys.room(&room(&id)).owner.to_string()]).await;
            world.falls_due(n, &id).await;
        }
        let mut found = Vec::new();
        for _ in 0..3 {
            let Due::Ok { rooms, .. } = due(world, &me, token, 2).await else { panic!("led") };
            found.push(rooms.len());
        }
        assert_eq!(found, [2, 2, 1]);
    }

    async fn i_18_who_does_not_lead_finds_nothing(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = lead(world, &a).await;
        world.falls_due(1, "r").await;
        let before = world.keyspace().await;
        let held = format!("{a} {token}");
        for (who, with) in [(&a, other_than(token)), (&b, token)] {
            assert_eq!(due(world, who, with, 10).await, Due::NotLeader { held: held.clone() });
        }
        assert_eq!(world.keyspace().await, before);
        world.redis(&["DEL", &world.keys.lease(LEASE).to_string()]).await;
        assert_eq!(due(world, &a, token, 10).await, Due::NotLeader { held: String::new() }, "an expired lease");
    }

    async fn who_takes_rooms_is_found_with_them(world: &World) {
        let me = world.register("a").await;
        let token = lead(world, &me).await;
        world.own_room(&me, &room("r")).await;
        world.redis(&["DEL", &world.keys.room(&room("r")).owner.to_string()]).await;
        let mut expected = Vec::new();
        for (name, roles, other, takes) in [
            ("takes", "callbacks,signaling", "version", true),
            ("draining", "signaling", "draining", false),
            ("gone", "signaling", "gone", false),
            ("stale", "signaling", "version", false),
            ("callbacks", "callbacks,reaper", "version", false),
        ] {
            let instance = world.register(name).await;
            let record = world.keys.instance(&instance).to_string();
            world.redis(&["HSET", &record, "roles", roles, other, "1"]).await;
            if takes {
                expected.push(instance.clone());
            }
            if name == "stale" {
                world.age_heartbeat(&instance, OWNER_TTL).await;
            }
        }
        world.falls_due(1, "r").await;
        let found = Due::Ok { rooms: vec![room("r")], instances: expected };
        assert_eq!(due(world, &me, token, 10).await, found);
    }

    async fn i_18_only_the_leader_offers(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = lead(world, &a).await;
        let mut listener = Listener::start(world).await;
        let offer = async |me: &Instance, token| {
            let offers = [(&world.room, &b)];
            let with = Offer { lease: LEASE, me, token, offers: &offers };
            world.scripts.offer(&world.keys, with).await.expect("an answer")
        };
        let held = format!("{a} {token}");
        for (who, with) in [(&a, other_than(token)), (&b, token)] {
            assert_eq!(offer(who, with).await, Offered::NotLeader { held: held.clone() });
        }
        assert_eq!(listener.published(world).await, []);
        assert_eq!(offer(&a, token).await, Offered::Ok);
        let sync = world.keys.channel(ChannelKind::Sync, &b).to_string();
        let message = json!({ "room": world.room.route(), "adopt": true });
        assert_eq!(listener.published(world).await, [(sync, message)]);
        world.redis(&["DEL", &world.keys.lease(LEASE).to_string()]).await;
        assert_eq!(offer(&a, token).await, Offered::NotLeader { held: String::new() }, "an expired lease");
    }
}
