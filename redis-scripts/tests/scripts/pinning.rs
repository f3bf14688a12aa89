//! `pin`: who gets a room's lease, with which token, and what it loads.

use key_prefix::{Instance, InstanceName};
use redis_scripts::{
    Birth, CellChanges, CellVersion, Committing, FenceToken, Keep, LaneAnswer, Pin, Pinned, Read,
    RedisMillis, ReplyTo, RoomState, SettingsVersion,
};
use std::time::Duration;

use crate::listener::Listener;
use crate::world::{CELL, DEFAULTS, NO_LIMIT, OWNER_TTL, World, token_of};

const FENCE_LIFE_MS: i64 = 7 * 24 * 3_600_000;

async fn owner(world: &World) -> String {
    world.get(&world.names.owner).await
}

/// Hashes have no order.
fn in_order(mut state: RoomState) -> RoomState {
    for pairs in [&mut state.settings, &mut state.guests, &mut state.peers, &mut state.cell] {
        pairs.sort();
    }
    state
}

fn is_other(pinned: &Pinned, owner: &Instance) -> bool {
    matches!(pinned, Pinned::Other { owner: found, url, .. }
        if found == owner.as_str() && *url == format!("http://{}", owner.name()))
}

on_both! {
    async fn rule_1_an_unowned_room_is_made_and_taken(world: &World) {
        let me = world.register("a").await;
        let pinned = world.pin_seated(&me).await.unwrap();
        let Pinned::Owned { token, previous, made, whole, proved, now, watchers, inbox, committed_at, state } = pinned else { panic!("{pinned:?}") };
        assert!(made && whole && proved);
        assert_eq!((previous, watchers, inbox, committed_at), (FenceToken::default(), 0, 0, now));
        assert_eq!(token.as_u64(), now.as_u64());
        assert_eq!(state.status, "active");
        assert_eq!(state.created_at, now);
        let mut settings = state.settings.clone();
        settings.sort_by(|left, right| right.cmp(left));
        assert_eq!(settings, DEFAULTS.map(|(field, json)| (field.to_owned(), json.to_owned())));
        assert_eq!(state.peers, [("p1".to_owned(), r#"{"role":"guest"}"#.to_owned())]);
        assert_eq!(state.presence, [("ann".to_owned(), now)]);
        assert_eq!(state.cell, CELL.map(|(field, json)| (field.to_owned(), json.to_owned())));
        assert_eq!(state.batch, "");
        assert_eq!((state.sv.as_u64(), state.cv.as_u64()), (1, 2));
        assert_eq!(in_order(*state), in_order(*world.standing().await.state), "what Redis has is what it was made of");

        assert_eq!(owner(world).await, format!("{me} {token}"));
        assert!((1..=15_000).contains(&world.ttl_ms(&world.names.owner).await));
        let rooms = world.redis(&["SMEMBERS", &world.keys.instance_rooms(&me).to_string()]).await.texts();
        assert_eq!(rooms, [world.room.route()]);
        let index = world.redis(&["ZRANGE", &world.names.rooms.to_string(), "0", "-1"]).await.texts();
        assert_eq!(index, [world.room.room()]);
    }

    async fn a_room_that_may_not_be_made_is_absent_and_nothing_is_written(world: &World) {
        let me = world.register("a").await;
        let before = world.keyspace().await;
        assert_eq!(world.pin_with(&me, |pin| pin.birth = None).await.unwrap(), Pinned::Absent);
        assert_eq!(world.keyspace().await, before);
    }

    async fn nothing_is_taken_for_somebody_who_waits_no_longer(world: &World) {
        let me = world.register("a").await;
        let before = world.keyspace().await;
        let late = |pin: &mut Pin<'_>| pin.deadline = Some(RedisMillis::new(1));
        assert_eq!(world.pin_with(&me, late).await.unwrap(), Pinned::Late);
        assert_eq!(world.keyspace().await, before);
        let in_time = |pin: &mut Pin<'_>| pin.deadline = Some(RedisMillis::new(u64::pow(2, 52)));
        assert!(matches!(world.pin_with(&me, in_time).await.unwrap(), Pinned::Owned { .. }));
    }

    async fn rule_2_my_own_room_keeps_its_token_unless_i_want_another(world: &World) {
        let me = world.register("a").await;
        let first = world.own(&me).await;
        world.redis(&["PEXPIRE", &world.names.owner.to_string(), "100000"]).await;
        let again = world.pin(&me).await;
        assert!(matches!(&again, Pinned::Owned { token, previous, made: false, whole: true, .. }
            if *token == first && *previous == first));
        assert!(world.ttl_ms(&world.names.owner).await <= 15_000);

        let newer = token_of(&world.pin_with(&me, |pin| pin.renew = false).await.unwrap());
        assert!(newer > first);
    }

    async fn rule_4_a_room_of_the_living_is_not_mine(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let before = world.keyspace().await;
        let pinned = world.pin(&b).await;
        assert!(is_other(&pinned, &a), "{pinned:?}");
        assert!(matches!(pinned, Pinned::Other { token: found, .. } if found == token));
        assert_eq!(world.keyspace().await, before);

        world.redis(&["DEL", &world.keys.instance(&a).to_string()]).await;
        assert!(matches!(world.pin(&b).await, Pinned::Other { url, .. } if url.is_empty()));
    }

    async fn rule_3_a_stale_owner_is_taken_over_and_never_earlier(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let first = world.own(&a).await;
        world.age_heartbeat(&a, OWNER_TTL - Duration::from_secs(5)).await;
        assert!(is_other(&world.pin(&b).await, &a));
        world.age_heartbeat(&a, OWNER_TTL).await;
        let taken = world.pin(&b).await;
        assert!(matches!(&taken, Pinned::Owned { previous, made: false, .. } if *previous == first), "{taken:?}");
        assert!(token_of(&taken) > first);
        assert!(is_other(&world.pin(&a).await, &b));
    }

    async fn rule_3_a_missing_score_is_stale_only_with_the_owner_key(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        world.redis(&["ZREM", &world.keys.instances().to_string(), a.as_str()]).await;
        assert!(is_other(&world.pin(&b).await, &a), "the owner key was renewed just now");
        // An owner key that never ends says nothing of its owner.
        world.redis(&["PERSIST", &world.names.owner.to_string()]).await;
        assert!(matches!(world.pin(&b).await, Pinned::Owned { .. }));
    }

    async fn rule_3_a_deregistered_owner_is_taken_over_at_once(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let first = world.own(&a).await;
        world.scripts.deregister(&world.keys, &a, Duration::from_secs(60)).await.unwrap();
        assert!(token_of(&world.pin(&b).await) > first);
    }

    async fn rule_3_an_earlier_incarnation_of_mine_is_taken_over_at_once(world: &World) {
        let a = world.register("a").await;
        let first = world.own(&a).await;
        let again = world.register("a").await;
        let taken = world.pin(&again).await;
        assert!(matches!(&taken, Pinned::Owned { previous, .. } if *previous == first), "{taken:?}");
        assert!(token_of(&taken) > first);
    }

    async fn i_1_a_superseded_incarnation_gets_nothing(world: &World) {
        let a = world.register("a").await;
        let again = world.register("a").await;
        let before = world.keyspace().await;
        assert_eq!(world.pin(&a).await, Pinned::Superseded { by: again.incarnation() });
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_1_an_expired_lease_is_anyones(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let first = token_of(&world.pin_with(&a, |pin| pin.owner_ttl = Duration::from_millis(30)).await.unwrap());
        e2e::wait::until("the lease ends", e2e::wait::SOON, || async { !world.exists(&world.names.owner).await }).await;
        let taken = world.pin(&b).await;
        assert!(token_of(&taken) > first);
        assert!(is_other(&world.pin(&a).await, &b), "a missing key is never mine");
    }

    async fn i_2_tokens_grow_with_each_owner(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let mut last = FenceToken::default();
        for round in 0..20 {
            let token = world.own(if round % 2 == 0 { &a } else { &b }).await;
            assert!(token > last);
            last = token;
            world.redis(&["DEL", &world.names.owner.to_string()]).await;
        }
    }

    async fn i_2_tokens_grow_over_a_clock_that_stood_ahead(world: &World) {
        let me = world.register("a").await;
        let ahead = u64::try_from(world.now_ms().await).unwrap() + 3_600_000;
        world.redis(&["SET", &world.names.fence.to_string(), &ahead.to_string()]).await;
        assert_eq!(world.own(&me).await.as_u64(), ahead + 1);
        // The fence is lost, the lease is not: its own token is the floor.
        world.redis(&["DEL", &world.names.fence.to_string()]).await;
        let next = token_of(&world.pin_with(&me, |pin| pin.renew = false).await.unwrap());
        assert_eq!(next.as_u64(), ahead + 2);
    }

    async fn i_2_tokens_grow_over_loss_of_the_fence(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let first = world.own(&a).await;
        world.redis(&["DEL", &world.names.owner.to_string(), &world.names.fence.to_string()]).await;
        world.clock_passes(first.as_u64()).await;
        assert!(world.own(&b).await > first);
    }

    async fn i_2_tokens_grow_over_a_wiped_redis_with_a_floor(world: &World) {
        let me = world.register("a").await;
        let first = world.own(&me).await;
        world.redis(&["FLUSHALL"]).await;
        let floor = FenceToken::new(first.as_u64() + 3_600_000);
        let token = token_of(&world.pin_with(&me, |pin| pin.floor = floor).await.unwrap());
        assert_eq!(token.as_u64(), floor.as_u64() + 1);
        // Without one, time stands in.
        world.redis(&["FLUSHALL"]).await;
        world.clock_passes(first.as_u64()).await;
        assert!(world.own(&me).await > first);
    }

    async fn i_17_a_fence_ends_7_days_after_its_last_use(world: &World) {
        let me = world.register("a").await;
        world.own(&me).await;
        let fence = world.ttl_ms(&world.names.fence).await;
        assert!((FENCE_LIFE_MS - 60_000..=FENCE_LIFE_MS).contains(&fence), "{fence}");
        world.redis(&["PEXPIRE", &world.names.fence.to_string(), "5000"]).await;
        world.own(&me).await;
        assert!(world.ttl_ms(&world.names.fence).await > FENCE_LIFE_MS - 60_000);
    }

    async fn a_taken_room_is_loaded_as_it_was_and_ends_no_more(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.pin_seated(&a).await.unwrap();
        for key in [
            &world.names.room, &world.names.settings, &world.names.peers, &world.names.presence, &world.names.cell,
        ] {
            world.redis(&["PEXPIRE", &key.to_string(), "60000"]).await;
        }
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        let before = world.standing().await.state;
        let taken = world.pin_seated(&b).await.unwrap();
        let Pinned::Owned { made: false, whole: true, token, state, .. } = taken else { panic!("{taken:?}") };
        assert!(token > before.token);
        assert_eq!(*state, RoomState { token, ..*before }, "what a room begins with counts only for one that is not there");
        for key in [
            &world.names.room, &world.names.settings, &world.names.peers, &world.names.presence, &world.names.cell,
        ] {
            assert_eq!(world.ttl_ms(key).await, -1);
        }
    }

    async fn a_damaged_room_is_taken_and_said_to_be_damaged(world: &World) {
        let me = world.register("a").await;
        world.own(&me).await;
        world.redis(&["DEL", &world.names.settings.to_string()]).await;
        let pinned = world.pin_seated(&me).await.unwrap();
        let Pinned::Owned { whole: false, state, .. } = pinned else { panic!("{pinned:?}") };
        assert!(state.peers.is_empty());
    }

    async fn leftovers_of_a_lost_record_are_not_part_of_the_new_room(world: &World) {
        let me = world.register("a").await;
        world.pin_seated(&me).await.unwrap();
        world.redis(&["DEL", &world.names.room.to_string()]).await;
        let pinned = world.pin(&me).await;
        let Pinned::Owned { made: true, whole: true, state, .. } = pinned else { panic!("{pinned:?}") };
        assert!(state.peers.is_empty() && state.presence.is_empty());
        assert!(matches!(world.scripts.read_room(&world.keys, &world.room).await, Ok(Read::Ok(it)) if it.whole));
    }

    async fn an_owner_key_that_names_another_name_is_not_mine(world: &World) {
        let me = world.register("a").await;
        let namesake: Instance = format!("aa/{}", me.incarnation()).parse().unwrap();
        assert_ne!(InstanceName::new("a").unwrap().as_str(), namesake.name());
        world.redis(&["SET", &world.names.owner.to_string(), &format!("{namesake} 7"), "PX", "15000"]).await;
        assert!(matches!(world.pin(&me).await, Pinned::Other { .. }));
    }

    async fn a_closed_room_is_not_taken_by_who_wants_an_open_one(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        world.redis(&["HSET", &world.names.room.to_string(), "status", "closed"]).await;
        let open = |pin: &mut Pin<'_>| pin.open_only = true;
        assert!(is_other(&world.pin_with(&b, open).await.unwrap(), &a));
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        let before = world.keyspace().await;
        assert_eq!(world.pin_with(&b, open).await.unwrap(), Pinned::Closed);
        assert_eq!(world.keyspace().await, before);
        let Pinned::Owned { state, .. } = world.pin(&b).await else { panic!("not owned") };
        assert_eq!(state.status, "closed");
        assert!(matches!(world.pin_with(&b, |pin| pin.birth = None).await.unwrap(), Pinned::Owned { made: false, .. }));
    }

    async fn i_14_the_commands_that_make_a_room_are_logged_answered_and_kept(world: &World) {
        let me = world.register("a").await;
        let mut listener = Listener::start(world).await;
        let (changes, settings) = (CellChanges { status: Some("creating"), ..CellChanges::default() }, []);
        let commands = [
            Committing {
                entry: Some(r#"{"events":["made"]}"#),
                answer: r#"{"ok":true}"#,
                keep: Some(Keep { caller: "ann", id: "c1", digest: "d1" }),
                reply: Some(ReplyTo { instance: me.as_str(), number: "5" }),
                ..Committing::default()
            },
            Committing { answer: "{}", ..Committing::default() },
            Committing { entry: Some(r#"{"events":["joined"]}"#), ..Committing::default() },
        ];
        let due = RedisMillis::new(77);
        let with = Pin {
            me: &me,
            room: &world.room,
            owner_ttl: OWNER_TTL,
            floor: FenceToken::default(),
            renew: true,
            birth: Some(Birth { settings: &settings, changes: &changes, commands: &commands, due: Some(due), entry: r#"{"settings":{}}"#, sv: SettingsVersion::new(1), cv: CellVersion::new(0), lane_limit: NO_LIMIT }),
            open_only: true,
            deadline: None,
        };
        let pinned = world.scripts.pin(&world.keys, with).await.unwrap();
        let Pinned::Owned { made: true, token, state, .. } = pinned else { panic!("{pinned:?}") };
        assert_eq!((state.status.as_str(), state.cv.as_u64()), ("creating", 2));
        assert_eq!(world.due().await, Some(77));
        let lane = world.scripts.timeline(&world.keys, &world.room, None, 100, 100).await.unwrap().entries;
        let found: Vec<_> =
            lane.iter().map(|it| (it.kind.as_str(), it.version(), it.token, it.entry.as_str())).collect();
        assert_eq!(found, [
            ("cell", 2, token, r#"{"events":["joined"]}"#),
            ("cell", 1, token, r#"{"events":["made"]}"#),
            ("settings", 1, token, r#"{"settings":{}}"#),
        ], "what it begins with comes first");
        assert!(lane.iter().all(|it| it.owner == me.as_str() && it.at == state.created_at));
        let answer = |text: &str| text.to_owned();
        let keep = LaneAnswer { caller: answer("ann"), id: answer("c1"), digest: answer("d1"), answer: answer(r#"{"ok":true}"#) };
        let answers: Vec<_> = lane.iter().map(|it| it.keep.clone()).collect();
        assert_eq!(answers, [None, Some(keep), None]);
        let kept = world.scripts.answer(&world.keys, &world.room, "ann", "c1").await.unwrap();
        assert_eq!(kept, Some(("d1".to_owned(), r#"{"ok":true}"#.to_owned())));
        let reply = world.keys.channel(key_prefix::ChannelKind::Reply, &me).to_string();
        let answer = serde_json::json!({ "number": "5", "answer": { "ok": true } });
        assert_eq!(listener.published(world).await, [(reply, answer)]);
    }

    async fn i_13_work_that_waits_is_counted_and_survives_a_change_of_owner(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        world.redis(&["PEXPIRE", &world.names.room.to_string(), "60000"]).await;
        world.scripts.enqueue(&world.keys, world.enqueue(&a, 10)).await.unwrap();
        assert!((1..=60_000).contains(&world.ttl_ms(&world.names.inbox).await), "it ends with the room");
        let pinned = world.pin(&b).await;
        assert!(matches!(pinned, Pinned::Owned { inbox: 1, .. }), "{pinned:?}");
        assert_eq!(world.ttl_ms(&world.names.inbox).await, -1);
    }

    async fn i_13_an_empty_inbox_has_no_end_once_somebody_owns_the_room(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        let inbox = world.names.inbox.to_string();
        for gone in [&world.names.owner, &world.names.room] {
            world.redis(&["XADD", &inbox, "1-1", "work", "done"]).await;
            world.redis(&["XDEL", &inbox, "1-1"]).await;
            world.redis(&["PEXPIRE", &inbox, "60000"]).await;
            world.redis(&["DEL", &world.names.owner.to_string(), &gone.to_string()]).await;
            let pinned = world.pin(&b).await;
            assert!(matches!(pinned, Pinned::Owned { inbox: 0, .. }), "{pinned:?}");
            assert_eq!(world.ttl_ms(&world.names.inbox).await, -1, "{gone}");
            world.redis(&["DEL", &inbox]).await;
        }
    }

    async fn i_14_a_full_lane_stops_the_making_of_a_room_and_not_its_finding(world: &World) {
        fn full(pin: &mut Pin<'_>, lane_limit: u64) {
            pin.birth = pin.birth.map(|birth| Birth { lane_limit, ..birth });
        }
        let (a, b) = (world.register("a").await, world.register("b").await);
        let lane = world.names.lane.to_string();
        for _ in 0..3 {
            world.redis(&["XADD", &lane, "*", "entry", "of another room"]).await;
        }
        let before = world.keyspace().await;
        for limit in [0, 2, 3] {
            let refused = world.pin_with(&a, |pin| full(pin, limit)).await.unwrap();
            assert_eq!(refused, Pinned::Full { entries: 3 }, "{limit}");
        }
        assert_eq!(world.pin_with(&a, |pin| pin.birth = None).await.unwrap(), Pinned::Absent);
        assert_eq!(world.keyspace().await, before);
        let made = world.pin_with(&a, |pin| full(pin, 4)).await.unwrap();
        assert!(matches!(made, Pinned::Owned { made: true, .. }), "{made:?}");

        let found = world.pin_with(&a, |pin| full(pin, 0)).await.unwrap();
        assert!(matches!(found, Pinned::Owned { made: false, .. }), "{found:?}");
        assert!(is_other(&world.pin_with(&b, |pin| full(pin, 0)).await.unwrap(), &a));
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        let taken = world.pin_with(&b, |pin| full(pin, 0)).await.unwrap();
        assert!(matches!(taken, Pinned::Owned { made: false, .. }), "{taken:?}");
    }

    async fn i_14_a_room_without_settings_for_the_ledger_begins_with_its_commands(world: &World) {
        let me = world.register("a").await;
        let Pinned::Owned { token, .. } = world.pin_with(&me, |pin| {
            pin.birth = pin.birth.map(|birth| Birth { sv: SettingsVersion::new(5), cv: CellVersion::new(40), ..birth });
        }).await.unwrap() else { panic!("not owned") };
        let lane = world.scripts.timeline(&world.keys, &world.room, None, 100, 100).await.unwrap().entries;
        let found: Vec<_> = lane.iter().map(|it| (it.kind.as_str(), it.cv, it.sv, it.token)).collect();
        assert_eq!(found, [("cell", Some(41), None, token)]);
        let state = world.standing().await.state;
        assert_eq!((state.sv.as_u64(), state.cv.as_u64(), state.token), (5, 41, token));
    }
}
