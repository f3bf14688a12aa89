//! `heartbeat`: what is renewed, what it finds lost, what it heals.

use key_prefix::{Instance, RoomKey};
use redis_scripts::{
    Beat, CellVersion, Heartbeat, HeldRoom, OwnedReport, Pinned, SettingsVersion, WatchedReport,
};

use crate::world::{OWNER_TTL, World, other_than, room, token_of};

async fn beat(world: &World, me: &Instance, owned: &[HeldRoom], watched: &[RoomKey]) -> Beat {
    let fields = [("public_url", format!("http://{}", me.name())), ("version", "2".to_owned())];
    let with = Heartbeat { me, owner_ttl: OWNER_TTL, fields: &fields, owned, watched };
    world.scripts.heartbeat(&world.keys, with).await.expect("an answer")
}

async fn reports(
    world: &World,
    me: &Instance,
    owned: &[HeldRoom],
    watched: &[RoomKey],
) -> (Vec<OwnedReport>, Vec<WatchedReport>) {
    match beat(world, me, owned, watched).await {
        Beat::Ok { owned, watched, .. } => (owned, watched),
        superseded => panic!("{superseded:?}"),
    }
}

const fn held(sv: u64, cv: u64) -> OwnedReport {
    OwnedReport::Held { sv: SettingsVersion::new(sv), cv: CellVersion::new(cv), inbox: 0 }
}

impl World {
    fn held(&self, token: redis_scripts::FenceToken, check: bool) -> [HeldRoom; 1] {
        [HeldRoom { room: self.room.clone(), token, check }]
    }
}

on_both! {
    async fn a_beat_renews_the_score_the_record_and_the_lease(world: &World) {
        let me = world.register("a").await;
        let token = token_of(&world.pin_seated(&me).await.unwrap());
        world.age_heartbeat(&me, OWNER_TTL).await;
        world.redis(&["PEXPIRE", &world.names.owner.to_string(), "5000"]).await;
        let before = world.now_ms().await;
        let Beat::Ok { now, owned, watched } = beat(world, &me, &world.held(token, true), &[]).await else {
            panic!("superseded")
        };
        assert!(i64::try_from(now.as_u64()).unwrap() >= before);
        assert_eq!((owned, watched), (vec![held(1, 2)], vec![]));
        assert!(world.ttl_ms(&world.names.owner).await > 5000);
        let score = world.redis(&["ZSCORE", &world.keys.instances().to_string(), me.as_str()]).await.number();
        assert!(score.unwrap() >= before);
        let record = world.redis(&["HGET", &world.keys.instance(&me).to_string(), "version"]).await;
        assert_eq!(record.text(), "2");
    }

    async fn every_state_of_a_lease_is_reported_and_only_mine_are_renewed(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        assert_eq!(reports(world, &a, &world.held(other_than(token), true), &[]).await.0, [OwnedReport::Taken]);
        assert_eq!(reports(world, &b, &world.held(token, true), &[]).await.0, [OwnedReport::Taken]);
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        assert_eq!(reports(world, &a, &world.held(token, true), &[]).await.0, [OwnedReport::Unowned]);
        assert!(!world.exists(&world.names.owner).await, "a missing key is never mine");
        let token = world.own(&b).await;
        assert_eq!(reports(world, &b, &world.held(token, false), &[]).await.0, [held(1, 1)]);
    }

    async fn i_5_rooms_are_proved_anew_where_another_history_is_told(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        world.begin_another_history().await;
        assert_eq!(reports(world, &me, &world.held(token, false), &[]).await.0, [held(1, 1)], "not its turn");
        assert_eq!(reports(world, &me, &world.held(token, true), &[]).await.0, [OwnedReport::Damaged]);
        assert!(matches!(world.pin(&me).await, Pinned::Owned { whole: true, proved: false, .. }));
        assert!(!world.standing().await.proved, "a pin proves nothing");
    }

    async fn i_6_lost_keys_are_found_by_their_sizes(world: &World) {
        let me = world.register("a").await;
        for lost in [
            &world.names.settings, &world.names.peers, &world.names.presence, &world.names.cell, &world.names.room,
        ] {
            let token = token_of(&world.pin_seated(&me).await.unwrap());
            world.redis(&["DEL", &lost.to_string()]).await;
            let (found, _) = reports(world, &me, &world.held(token, true), &[]).await;
            assert_eq!(found, [OwnedReport::Damaged], "{lost:?}");
            let cheap = reports(world, &me, &world.held(token, false), &[]).await.0;
            let expected = if lost == &world.names.room { OwnedReport::Damaged } else { held(1, 2) };
            assert_eq!(cheap, [expected], "{lost:?}");
            assert!(world.ttl_ms(&world.names.owner).await > 5000, "a damaged room is still owned");
            world.redis(&["FLUSHALL"]).await;
        }
    }

    async fn a_beat_heals_what_it_can(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        world.scripts.watch(&world.keys, &me, &world.room).await.unwrap();
        let before = world.keyspace().await;
        let lost = [
            world.keys.instances(),
            world.keys.incarnation_of(&me),
            world.keys.instance(&me),
            world.keys.instance_rooms(&me),
            world.keys.instance_watches(&me),
            world.names.rooms.clone(),
            world.names.fence.clone(),
            world.names.watchers.clone(),
        ];
        for key in &lost {
            world.redis(&["DEL", &key.to_string()]).await;
        }
        beat(world, &me, &world.held(token, true), std::slice::from_ref(&world.room)).await;
        assert_eq!(world.keyspace().await.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
        assert_eq!(world.get(&world.names.fence).await, token.to_string());
        let record = world.keys.instance(&me);
        assert!(world.ttl_ms(&record).await > 0 && world.ttl_ms(&world.names.fence).await > 0);
    }

    async fn work_that_waits_is_reported_and_an_inbox_of_another_type_is_empty(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        for _ in 0..3 {
            world.scripts.enqueue(&world.keys, world.enqueue(&b, 10)).await.unwrap();
        }
        let found = reports(world, &a, &world.held(token, false), &[]).await.0;
        assert!(matches!(found[..], [OwnedReport::Held { inbox: 3, .. }]), "{found:?}");
        world.redis(&["DEL", &world.names.inbox.to_string()]).await;
        world.redis(&["SET", &world.names.inbox.to_string(), "x"]).await;
        assert_eq!(reports(world, &a, &world.held(token, true), &[]).await.0, [held(1, 1)]);
        world.redis(&["DEL", &world.names.inbox.to_string()]).await;
    }

    async fn watched_rooms_are_reported_with_their_versions(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        let (_, watched) = reports(world, &b, &[], &[world.room.clone(), room("not-there")]).await;
        let standing = |sv, cv| WatchedReport { sv: SettingsVersion::new(sv), cv: CellVersion::new(cv) };
        assert_eq!(watched, [standing(1, 1), standing(0, 0)]);
    }

    async fn i_1_a_superseded_incarnation_renews_nothing(world: &World) {
        let a = world.register("a").await;
        let token = world.own(&a).await;
        let again = world.register("a").await;
        let before = world.keyspace().await;
        let answer = beat(world, &a, &world.held(token, true), std::slice::from_ref(&world.room)).await;
        assert_eq!(answer, Beat::Superseded { by: again.incarnation() });
        assert_eq!(world.keyspace().await, before);
    }

    async fn one_key_of_another_type_costs_its_room_and_no_other(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let other = room("broken");
        let names = world.keys.room(&other);
        let broken = world.own_room(&me, &other).await;
        let both = [
            HeldRoom { room: other.clone(), token: broken, check: true },
            HeldRoom { room: world.room.clone(), token, check: true },
        ];
        for key in [&names.room, &names.settings, &names.guests, &names.peers, &names.presence, &names.cell] {
            let saved = world.redis(&["DUMP", &key.to_string()]).await;
            world.redis(&["DEL", &key.to_string()]).await;
            world.redis(&["SET", &key.to_string(), "x"]).await;
            let (owned, watched) = reports(world, &me, &both, std::slice::from_ref(&other)).await;
            assert_eq!(owned, [OwnedReport::Damaged, held(1, 1)], "{key:?}");
            assert_eq!(watched.len(), 1);
            world.redis(&["DEL", &key.to_string()]).await;
            if let e2e::resp::Value::Bytes(bytes) = saved {
                let key = key.to_string();
                let restore: [&[u8]; 4] = [b"RESTORE", key.as_bytes(), b"0", &bytes];
                world.server.command(&restore).await;
            }
        }
        world.redis(&["DEL", &names.owner.to_string(), &names.watchers.to_string()]).await;
        world.redis(&["SADD", &names.owner.to_string(), "x"]).await;
        world.redis(&["SET", &names.watchers.to_string(), "x"]).await;
        let (owned, _) = reports(world, &me, &both, std::slice::from_ref(&other)).await;
        assert_eq!(owned, [OwnedReport::Taken, held(1, 1)]);
        world.redis(&["DEL", &names.owner.to_string(), &names.watchers.to_string()]).await;
    }
}
