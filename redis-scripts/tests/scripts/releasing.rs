//! `release` and `restore`: giving a room up, and writing one that Redis lost anew.

use key_prefix::Instance;
use redis_scripts::{
    CellChanges, CellVersion, FenceToken, LaneEntry, Pinned, RedisMillis, Release, Released, Restore,
    Restored, SettingsVersion,
};
use std::time::Duration;

use crate::world::{MADE, PEER, World, other_than};

/// What the ledger gets of the room that `restore` writes.
const WHOLE: &str = r#"{"cell":{"ban:eve":"{}"},"status":"closing"}"#;
const LIFE: Duration = Duration::from_secs(3600);

async fn release(world: &World, me: &Instance, token: FenceToken, only_empty: bool) -> Released {
    let with =
        Release { me, room: &world.room, keys: &world.names, token, life: LIFE, only_empty, due: None };
    world.scripts.release(&world.keys, with).await.expect("an answer")
}

async fn restore(world: &World, me: &Instance, token: FenceToken, seen: Option<SettingsVersion>) -> Restored {
    let changes = CellChanges {
        status: Some("closing"),
        set: vec![("ban:eve", "{}")],
        peers_set: vec![("p1", PEER), ("p2", PEER), ("p3", PEER)],
        users_in: vec!["ann", "bob"],
        ..CellChanges::default()
    };
    let with = Restore {
        me,
        entry: WHOLE,
        room: &world.room,
        keys: &world.names,
        token,
        seen,
        sv: SettingsVersion::new(1_000_005),
        cv: CellVersion::new(1_000_009),
        created_at: RedisMillis::new(77),
        settings: &[("vad", "1"), ("custom", "{}")],
        guests: &[("ann", r#"{"handRaised":true}"#)],
        changes: &changes,
        batch: "b9",
        due: Some(RedisMillis::new(88)),
    };
    world.scripts.restore(&world.keys, with).await.expect("an answer")
}

on_both! {
    async fn i_1_a_released_room_is_anyones_at_once_and_has_an_end(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        assert_eq!(release(world, &a, token, true).await, Released::Ok);
        assert!(!world.exists(&world.names.owner).await);
        assert!(!world.exists(&world.keys.instance_rooms(&a)).await);
        for key in [&world.names.room, &world.names.settings] {
            assert!((1..=3_600_000).contains(&world.ttl_ms(key).await), "{key:?}");
        }
        assert_eq!(release(world, &a, token, true).await, Released::Lost { held: String::new() }, "twice");
        let taken = world.pin(&b).await;
        assert!(matches!(taken, Pinned::Owned { made: false, token: newer, .. } if newer > token));
        assert_eq!(world.ttl_ms(&world.names.room).await, -1);
    }

    async fn i_1_only_the_holder_of_the_token_releases(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let before = world.keyspace().await;
        let held = format!("{a} {token}");
        for (who, with) in [(&a, other_than(token)), (&b, token)] {
            assert_eq!(release(world, who, with, false).await, Released::Lost { held: held.clone() });
        }
        assert_eq!(world.keyspace().await, before);
    }

    async fn a_room_with_peers_is_busy_unless_it_is_released_all_the_same(world: &World) {
        let me = world.register("a").await;
        let pinned = world.pin_seated(&me).await.unwrap();
        let token = crate::world::token_of(&pinned);
        let before = world.keyspace().await;
        assert_eq!(release(world, &me, token, true).await, Released::Busy { peer_count: 1, inbox: 0 });
        assert_eq!(world.keyspace().await, before);
        assert_eq!(release(world, &me, token, false).await, Released::Ok);
        assert!(world.ttl_ms(&world.names.peers).await > 0);
        assert!(world.due().await.is_some_and(|due| due > 0), "somebody must look after those in it");
    }

    async fn i_13_a_room_with_work_is_busy_and_falls_due_when_it_is_released_all_the_same(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        world.scripts.enqueue(&world.keys, world.enqueue(&me, 10)).await.unwrap();
        let before = world.keyspace().await;
        assert_eq!(release(world, &me, token, true).await, Released::Busy { peer_count: 0, inbox: 1 });
        assert_eq!(world.keyspace().await, before);
        assert_eq!(release(world, &me, token, false).await, Released::Ok);
        assert!(world.due().await.is_some_and(|due| due > 0));
        assert!(world.ttl_ms(&world.names.inbox).await > 0);
    }

    async fn an_empty_room_stays_due_for_what_still_falls_due_in_it(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let due = Some(RedisMillis::new(99));
        let with = Release { me: &me, room: &world.room, keys: &world.names, token, life: LIFE, only_empty: true, due };
        assert_eq!(world.scripts.release(&world.keys, with).await.unwrap(), Released::Ok);
        assert_eq!(world.due().await, Some(99));
    }

    async fn a_room_half_way_stays_due_and_one_at_rest_does_not(world: &World) {
        let me = world.register("a").await;
        for (status, is_due) in [("active", false), ("closed", false), ("creating", true), ("closing", true)] {
            let token = world.own(&me).await;
            let changes = CellChanges { status: Some(status), ..CellChanges::default() };
            let due = Some(RedisMillis::new(7));
            let with = redis_scripts::Commit { due, ..world.commit(&me, token, 1, &[MADE], &changes) };
            world.scripts.commit(&world.keys, with).await.unwrap();
            assert_eq!(release(world, &me, token, true).await, Released::Ok, "{status}");
            assert_eq!(world.due().await.is_some(), is_due, "{status}");
            world.redis(&["DEL", &world.names.room.to_string(), &world.keys.due().to_string()]).await;
        }
    }

    async fn a_lost_room_is_written_anew_as_its_owner_knows_it(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        for lost in [&world.names.room, &world.names.rooms, &world.names.settings] {
            world.redis(&["DEL", &lost.to_string()]).await;
        }
        world.begin_another_history().await;
        assert!(matches!(restore(world, &me, token, None).await, Restored::Ok { .. }));
        let standing = world.standing().await;
        assert!(standing.proved);
        assert!(standing.whole);
        let state = &standing.state;
        assert_eq!((state.sv.as_u64(), state.cv.as_u64(), state.created_at.as_u64()), (1_000_005, 1_000_009, 77));
        assert_eq!((state.settings.len(), state.guests.len(), state.peers.len()), (2, 1, 3));
        assert_eq!((state.status.as_str(), state.batch.as_str()), ("closing", "b9"));
        assert_eq!(state.cell, [("ban:eve".to_owned(), "{}".to_owned())]);
        assert_eq!(world.due().await, Some(88));
        assert_eq!(state.presence.len(), 2, "two users, one of them with two peers");
        let index = world.redis(&["ZRANGE", &world.names.rooms.to_string(), "0", "-1"]).await.texts();
        assert_eq!(index, [world.room.room()]);
    }

    async fn i_14_a_room_that_is_written_anew_is_logged_as_a_whole(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let seen = Some(SettingsVersion::new(1));
        let Restored::Ok { now } = restore(world, &me, token, seen).await else { panic!("not restored") };
        let before = world.keyspace().await;
        assert_eq!(restore(world, &me, token, seen).await, Restored::Changed, "twice");
        assert_eq!(world.keyspace().await, before);
        let lane = world.scripts.timeline(&world.keys, &world.room, None, 100, 100).await.unwrap().entries;
        assert_eq!(lane.len(), 2, "the command that made the room, and then");
        assert_eq!(lane[0], LaneEntry {
            id: lane[0].id.clone(),
            route: world.room.route().to_owned(),
            kind: "state".to_owned(),
            at: now,
            owner: me.to_string(),
            token,
            cv: Some(1_000_009),
            sv: Some(1_000_005),
            entry: WHOLE.to_owned(),
            keep: None,
        });
        assert_eq!(world.standing().await.state.token, token);
    }

    async fn what_was_written_since_is_not_overwritten(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let before = world.keyspace().await;
        assert_eq!(restore(world, &me, token, None).await, Restored::Changed, "the record is there");
        assert_eq!(restore(world, &me, token, Some(SettingsVersion::new(7))).await, Restored::Changed);
        assert_eq!(world.keyspace().await, before);
        let seen = Some(SettingsVersion::new(1));
        assert!(matches!(restore(world, &me, token, seen).await, Restored::Ok { .. }));
        assert_eq!(restore(world, &me, token, seen).await, Restored::Changed, "twice");
    }

    async fn i_1_only_the_owner_restores(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        world.redis(&["DEL", &world.names.room.to_string()]).await;
        let before = world.keyspace().await;
        let held = format!("{a} {token}");
        for (who, with) in [(&a, other_than(token)), (&b, token)] {
            assert_eq!(restore(world, who, with, None).await, Restored::Lost { held: held.clone() });
        }
        assert_eq!(world.keyspace().await, before);
        let again = world.register("a").await;
        assert_eq!(restore(world, &a, token, None).await, Restored::Superseded { by: again.incarnation() });
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        let lost = restore(world, &again, token, None).await;
        assert_eq!(lost, Restored::Lost { held: String::new() }, "an expired lease");
    }
}
