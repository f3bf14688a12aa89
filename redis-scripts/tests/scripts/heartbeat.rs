//! `heartbeat`: what is renewed, what it finds lost, what it heals.

use key_prefix::{Instance, RoomKey};
use redis_scripts::{
    Beat, CellVersion, FenceToken, Heartbeat, HeldRoom, Look, OwnedReport, Pinned, RedisMillis,
    SettingsVersion, WatchedReport,
};

use crate::world::{OWNER_TTL, World, other_than, room, token_of};

async fn beat(world: &World, me: &Instance, owned: &[HeldRoom], watched: &[RoomKey]) -> Beat {
    let history = world.history().await;
    beat_after(world, me, &history, owned, watched).await
}

/// A beat that follows one which was told of this history.
async fn beat_after(
    world: &World,
    me: &Instance,
    history: &str,
    owned: &[HeldRoom],
    watched: &[RoomKey],
) -> Beat {
    let fields = [("public_url", format!("http://{}", me.name())), ("version", "2".to_owned())];
    let in_all = owned.len();
    let with = Heartbeat { me, owner_ttl: OWNER_TTL, fields: &fields, history, owned, in_all, watched };
    world.scripts.heartbeat(&world.keys, with).await.expect("an answer")
}

fn reported(beat: Beat) -> (Vec<OwnedReport>, Vec<WatchedReport>) {
    match beat {
        Beat::Ok { owned, watched, .. } => (owned, watched),
        superseded @ Beat::Superseded { .. } => panic!("{superseded:?}"),
    }
}

async fn reports(
    world: &World,
    me: &Instance,
    owned: &[HeldRoom],
    watched: &[RoomKey],
) -> (Vec<OwnedReport>, Vec<WatchedReport>) {
    reported(beat(world, me, owned, watched).await)
}

const fn stands_at(sv: u64, cv: u64) -> OwnedReport {
    let (sv, cv) = (SettingsVersion::new(sv), CellVersion::new(cv));
    OwnedReport::StandsAt { sv, cv, inbox: 0, mark: None }
}

/// The mark for which the only room was looked at.
fn mark_of(found: &[OwnedReport]) -> Option<RedisMillis> {
    match found {
        [OwnedReport::StandsAt { mark, .. }] => *mark,
        other => panic!("{other:?}"),
    }
}

/// How often a command was executed since the counts were last reset.
async fn executed(world: &World, command: &str) -> u64 {
    let stats = world.redis(&["INFO", "commandstats"]).await.text();
    let calls = format!("cmdstat_{command}:calls=");
    let count = stats.lines().find_map(|line| line.strip_prefix(&calls)?.split(',').next()?.parse().ok());
    count.unwrap_or_default()
}

impl World {
    fn held(&self, token: FenceToken, look: Look) -> [HeldRoom; 1] {
        self.heard(token, look, None)
    }

    fn heard(&self, token: FenceToken, look: Look, heard: Option<RedisMillis>) -> [HeldRoom; 1] {
        [HeldRoom { room: self.room.clone(), token, look, heard }]
    }
}

on_both! {
    async fn a_beat_renews_the_score_the_record_and_the_lease(world: &World) {
        let me = world.register("a").await;
        let token = token_of(&world.pin_seated(&me).await.unwrap());
        world.age_heartbeat(&me, OWNER_TTL).await;
        world.redis(&["PEXPIRE", &world.names.owner.to_string(), "5000"]).await;
        let before = world.now_ms().await;
        let Beat::Ok { now, owned, watched, .. } = beat(world, &me, &world.held(token, Look::Whole), &[]).await else {
            panic!("superseded")
        };
        assert!(i64::try_from(now.as_u64()).unwrap() >= before);
        assert_eq!((owned, watched), (vec![stands_at(1, 2)], vec![]));
        assert!(world.ttl_ms(&world.names.owner).await > 5000);
        let score = world.redis(&["ZSCORE", &world.keys.instances().to_string(), me.as_str()]).await.number();
        assert!(score.unwrap() >= before);
        let record = world.redis(&["HGET", &world.keys.instance(&me).to_string(), "version"]).await;
        assert_eq!(record.text(), "2");
    }

    async fn every_state_of_a_lease_is_reported_and_only_mine_are_renewed(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        assert_eq!(reports(world, &a, &world.held(other_than(token), Look::Whole), &[]).await.0, [OwnedReport::Taken]);
        assert_eq!(reports(world, &b, &world.held(token, Look::Whole), &[]).await.0, [OwnedReport::Taken]);
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        assert_eq!(reports(world, &a, &world.held(token, Look::Whole), &[]).await.0, [OwnedReport::Unowned]);
        assert!(!world.exists(&world.names.owner).await, "a missing key is never mine");
        let token = world.own(&b).await;
        assert_eq!(reports(world, &b, &world.held(token, Look::IfMarked), &[]).await.0, [OwnedReport::Held]);
        assert_eq!(reports(world, &b, &world.held(token, Look::Versions), &[]).await.0, [stands_at(1, 1)]);
    }

    async fn i_5_rooms_are_proved_anew_where_another_history_is_told(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let before = world.history().await;
        world.begin_another_history().await;
        let held = world.held(token, Look::IfMarked);
        let found = beat_after(world, &me, &before, &held, &[]).await;
        let now = world.history().await;
        assert!(matches!(&found, Beat::Ok { history, .. } if *history == now && now != before), "{found:?}");
        assert_eq!(reported(found).0, [stands_at(1, 1)], "not its turn, but where it stands is looked at");
        assert_eq!(reports(world, &me, &held, &[]).await.0, [OwnedReport::Held], "once");
        assert_eq!(reports(world, &me, &world.held(token, Look::Whole), &[]).await.0, [OwnedReport::Damaged]);
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
            let (found, _) = reports(world, &me, &world.held(token, Look::Whole), &[]).await;
            assert_eq!(found, [OwnedReport::Damaged], "{lost:?}");
            let versions = reports(world, &me, &world.held(token, Look::Versions), &[]).await.0;
            let expected = if lost == &world.names.room { OwnedReport::Damaged } else { stands_at(1, 2) };
            assert_eq!(versions, [expected], "{lost:?}");
            let unmarked = reports(world, &me, &world.held(token, Look::IfMarked), &[]).await.0;
            assert_eq!(unmarked, [OwnedReport::Held], "{lost:?}: when its turn comes");
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
        beat(world, &me, &world.held(token, Look::Whole), std::slice::from_ref(&world.room)).await;
        assert_eq!(world.keyspace().await.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
        assert_eq!(world.get(&world.names.fence).await, token.to_string());
        let record = world.keys.instance(&me);
        assert!(world.ttl_ms(&record).await > 0 && world.ttl_ms(&world.names.fence).await > 0);
        let rooms = world.keys.instance_rooms(&me);
        world.redis(&["DEL", &rooms.to_string()]).await;
        beat(world, &me, &world.held(token, Look::IfMarked), &[]).await;
        assert!(world.exists(&rooms).await, "whoever's turn it is");
    }

    async fn only_a_room_to_which_something_was_done_is_looked_at(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let quiet = room("quiet");
        let quiet = HeldRoom { token: world.own_room(&a, &quiet).await, room: quiet, look: Look::IfMarked, heard: None };
        let [marked] = world.held(token, Look::IfMarked);
        let both = [quiet, marked];
        world.redis(&["CONFIG", "RESETSTAT"]).await;
        assert_eq!(reports(world, &a, &both, &[]).await.0, [OwnedReport::Held; 2]);
        assert_eq!((executed(world, "hmget").await, executed(world, "xlen").await), (0, 0));
        assert_eq!((executed(world, "get").await, executed(world, "mget").await), (1, 1), "one for all rooms");
        world.scripts.enqueue(&world.keys, world.enqueue(&b, 10)).await.unwrap();
        world.redis(&["CONFIG", "RESETSTAT"]).await;
        let found = reports(world, &a, &both, &[]).await.0;
        assert!(matches!(found[..], [OwnedReport::Held, OwnedReport::StandsAt { inbox: 1, .. }]), "{found:?}");
        assert_eq!((executed(world, "hmget").await, executed(world, "xlen").await), (1, 1));
    }

    async fn a_mark_is_told_until_it_is_said_to_be_heard(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let notify = async || {
            world.scripts.enqueue(&world.keys, world.enqueue(&b, 10)).await.unwrap();
            let mark = u64::try_from(world.mark(&a).await.unwrap()).unwrap();
            world.clock_passes(mark).await;
            RedisMillis::new(mark)
        };
        let first = notify().await;
        for look in [Look::IfMarked, Look::Versions, Look::Whole, Look::IfMarked] {
            let found = reports(world, &a, &world.held(token, look), &[]).await.0;
            assert_eq!(mark_of(&found), Some(first), "the answer may be lost: {look:?}");
        }
        let second = notify().await;
        let heard = world.heard(token, Look::IfMarked, Some(first));
        assert_eq!(mark_of(&reports(world, &a, &heard, &[]).await.0), Some(second), "something was done since");
        let heard = world.heard(token, Look::IfMarked, Some(second));
        for _twice in 0..2 {
            assert_eq!(reports(world, &a, &heard, &[]).await.0, [OwnedReport::Held]);
            assert_eq!(world.mark(&a).await, None);
        }
    }

    async fn a_mark_of_the_very_moment_is_told_again(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        // As where more is done to the room in the same millisecond, or Redis's clock was set back.
        let ahead = (world.now_ms().await + 60_000).to_string();
        world.redis(&["ZADD", &world.keys.unheard(&me).to_string(), &ahead, world.room.route()]).await;
        let found = reports(world, &me, &world.held(token, Look::IfMarked), &[]).await.0;
        assert_eq!(found, [stands_at(1, 1)], "looked at, and not to be heard yet");
    }

    async fn marks_of_rooms_that_are_gone_end(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let key = world.keys.unheard(&me).to_string();
        let fresh = (world.now_ms().await - 3_000_000).to_string();
        world.redis(&["ZADD", &key, "1", "school\0gone", &fresh, world.room.route()]).await;
        beat(world, &me, &world.held(token, Look::IfMarked), &[]).await;
        assert_eq!(world.redis(&["ZRANGE", &key, "0", "-1"]).await.texts(), [world.room.route()]);
    }

    async fn marks_of_another_type_cost_a_look_and_nothing_else(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let key = world.keys.unheard(&a);
        world.redis(&["SET", &key.to_string(), "x"]).await;
        world.scripts.enqueue(&world.keys, world.enqueue(&b, 10)).await.unwrap();
        let found = reports(world, &a, &world.heard(token, Look::IfMarked, Some(RedisMillis::new(1))), &[]).await.0;
        assert!(matches!(found[..], [OwnedReport::StandsAt { inbox: 1, mark: None, .. }]), "{found:?}");
        assert!(world.ttl_ms(&key).await > 0, "it ends");
        world.redis(&["DEL", &key.to_string()]).await;
    }

    async fn work_that_waits_is_reported_and_an_inbox_of_another_type_is_empty(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        for _ in 0..3 {
            world.scripts.enqueue(&world.keys, world.enqueue(&b, 10)).await.unwrap();
        }
        let found = reports(world, &a, &world.held(token, Look::IfMarked), &[]).await.0;
        assert!(matches!(found[..], [OwnedReport::StandsAt { inbox: 3, .. }]), "{found:?}");
        world.redis(&["DEL", &world.names.inbox.to_string()]).await;
        world.redis(&["SET", &world.names.inbox.to_string(), "x"]).await;
        world.unmark(&a).await;
        assert_eq!(reports(world, &a, &world.held(token, Look::Whole), &[]).await.0, [stands_at(1, 1)]);
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
        let answer = beat(world, &a, &world.held(token, Look::Whole), std::slice::from_ref(&world.room)).await;
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
            HeldRoom { room: other.clone(), token: broken, look: Look::Whole, heard: None },
            HeldRoom { room: world.room.clone(), token, look: Look::Whole, heard: None },
        ];
        for key in [&names.room, &names.settings, &names.guests, &names.peers, &names.presence, &names.cell] {
            let saved = world.redis(&["DUMP", &key.to_string()]).await;
            world.redis(&["DEL", &key.to_string()]).await;
            world.redis(&["SET", &key.to_string(), "x"]).await;
            let (owned, watched) = reports(world, &me, &both, std::slice::from_ref(&other)).await;
            assert_eq!(owned, [OwnedReport::Damaged, stands_at(1, 1)], "{key:?}");
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
        assert_eq!(owned, [OwnedReport::Unowned, stands_at(1, 1)], "what is no lease is nobody's");
        world.redis(&["DEL", &names.owner.to_string(), &names.watchers.to_string()]).await;
    }
}
