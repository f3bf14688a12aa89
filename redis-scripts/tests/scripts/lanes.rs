//! What stands in a lane, and how a room's part of it is read.

use key_prefix::{Instance, lane_of};
use redis_scripts::{
    CellChanges, Commit, Committed, Committing, FenceToken, GuestUpdate, Keep, LaneAnswer, LaneEntry, Repeat,
    SettingsUpdate, Timeline, Updated,
};

use crate::world::{MADE, NO_LIMIT, World, room};

async fn update(world: &World, me: &Instance, by: Option<&str>) -> Updated {
    update_within(world, me, by, NO_LIMIT).await
}

async fn update_within(world: &World, me: &Instance, by: Option<&str>, lane_limit: u64) -> Updated {
    let patch = [("custom", r#"{"a":1}"#.to_owned())];
    let with = SettingsUpdate {
        me,
        room: &world.room,
        by,
        keys: &world.names,
        if_version: None,
        max_bytes: 100,
        patch: &patch,
        route_json: &world.route_json(),
        message: r#""settings":{"custom":{"a":1}},"by":"ann""#,
        lane_limit,
    };
    world.scripts.settings_update(&world.keys, with).await.expect("an answer")
}

async fn update_guest(world: &World, me: &Instance, by: Option<&str>) -> Updated {
    update_guest_within(world, me, by, NO_LIMIT).await
}

async fn update_guest_within(world: &World, me: &Instance, by: Option<&str>, lane_limit: u64) -> Updated {
    let with = GuestUpdate {
        me,
        room: &world.room,
        by,
        keys: &world.names,
        if_version: None,
        max_bytes: 100,
        max_guests: 10,
        user: "ann",
        present: false,
        patch: r#"{"handRaised":true}"#,
        route_json: &world.route_json(),
        message: r#""guests":{"ann":{"handRaised":true}},"by":null"#,
        lane_limit,
    };
    world.scripts.guest_update(&world.keys, with).await.expect("an answer")
}

async fn timeline(world: &World, before: Option<&str>, scan: usize, limit: usize) -> Timeline {
    world.scripts.timeline(&world.keys, &world.room, before, scan, limit).await.expect("an answer")
}

on_both! {
    async fn i_14_settings_and_guest_states_are_logged_with_owner_and_token(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        update(world, &b, Some("ann")).await;
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        update_guest(world, &b, None).await;
        let entries = timeline(world, None, 100, 100).await.entries;
        let found: Vec<_> = entries
            .iter()
            .map(|it| (it.kind.as_str(), it.version(), it.token, it.owner.as_str(), it.entry.as_str()))
            .collect();
        assert_eq!(found, [
            ("guest", 3, token, "", r#"{"guests":{"ann":{"handRaised":true}},"by":null}"#),
            ("settings", 2, token, a.as_str(), r#"{"settings":{"custom":{"a":1}},"by":"ann"}"#),
            ("cell", 1, token, a.as_str(), r#"{"events":[]}"#),
        ]);
        let now = u64::try_from(world.now_ms().await).unwrap();
        assert!(entries.iter().all(|it| it.at.as_u64() <= now && it.at.as_u64() > now - 60_000));
    }

    async fn i_14_a_refused_update_is_not_logged(world: &World) {
        let a = world.register("a").await;
        world.own(&a).await;
        world.redis(&["HSET", &world.names.room.to_string(), "status", "closed"]).await;
        assert!(matches!(update(world, &a, None).await, Updated::Closed { .. }));
        assert!(matches!(update_guest(world, &a, None).await, Updated::Closed { .. }));
        assert_eq!(timeline(world, None, 100, 100).await.entries.len(), 1);
    }

    async fn i_11_who_is_banned_changes_nothing(world: &World) {
        let a = world.register("a").await;
        let token = world.own(&a).await;
        let later = format!(r#"{{"until":{},"at":1}}"#, world.now_ms().await + 60_000);
        let bans = [("ban:good", r#"{"at":1,"reason":"x"}"#), ("ban:later", &later), ("ban:strange", "what")];
        let over = ("ban:over", r#"{"until":5,"at":1}"#);
        let changes = CellChanges { set: [&bans[..], &[over]].concat(), ..CellChanges::default() };
        world.scripts.commit(&world.keys, world.commit(&a, token, 1, &[], &changes)).await.unwrap();
        let before = world.keyspace().await;
        for user in ["good", "later", "strange"] {
            assert_eq!(update(world, &a, Some(user)).await, Updated::Banned, "{user}");
            assert_eq!(update_guest(world, &a, Some(user)).await, Updated::Banned, "{user}");
        }
        assert_eq!(world.keyspace().await, before);
        for user in [Some("over"), Some("ann"), None] {
            assert!(matches!(update(world, &a, user).await, Updated::Ok { .. }), "{user:?}");
        }
    }

    async fn who_was_made_a_guest_changes_nothing_as_a_host(world: &World) {
        let a = world.register("a").await;
        let token = world.own(&a).await;
        let changes =
            CellChanges { set: vec![("role:eve", r#""guest""#), ("role:cem", r#""host""#)], ..CellChanges::default() };
        world.scripts.commit(&world.keys, world.commit(&a, token, 1, &[], &changes)).await.unwrap();
        let before = world.keyspace().await;
        assert_eq!(update(world, &a, Some("eve")).await, Updated::Demoted);
        assert_eq!(update_guest(world, &a, Some("eve")).await, Updated::Demoted);
        assert_eq!(world.keyspace().await, before);
        for user in [Some("cem"), Some("ann"), None] {
            assert!(matches!(update(world, &a, user).await, Updated::Ok { .. }), "{user:?}");
            assert!(matches!(update_guest(world, &a, user).await, Updated::Ok { .. }), "{user:?}");
        }
    }

    async fn a_timeline_goes_page_by_page_and_looks_at_so_much_at_once(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        // Another room on the same lane.
        let lane = world.names.lane.to_string();
        let shares = |id: &String| world.keys.lane(&room(id)).to_string() == lane;
        let other = (0..).map(|n| format!("r{n}")).find(shares).expect("one of the first few hundred");
        world.own_room(&me, &room(&other)).await;
        let names: Vec<String> = (0..5).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
        let commands: Vec<_> =
            names.iter().map(|entry| Committing { entry: Some(entry), ..Committing::default() }).collect();
        let none = CellChanges::default();
        world.scripts.commit(&world.keys, world.commit(&me, token, 1, &commands, &none)).await.unwrap();

        let versions = |page: &Timeline| page.entries.iter().map(LaneEntry::version).collect::<Vec<_>>();
        let first = timeline(world, None, 100, 2).await;
        assert_eq!(versions(&first), [6, 5]);
        let second = timeline(world, first.next.as_deref(), 3, 100).await;
        assert_eq!(versions(&second), [4, 3, 2]);
        let third = timeline(world, second.next.as_deref(), 1, 100).await;
        assert_eq!(versions(&third), [0_u64; 0], "the one it looked at is another room's");
        let fourth = timeline(world, third.next.as_deref(), 100, 100).await;
        assert_eq!((versions(&fourth), fourth.next), (vec![1], None));

        let whole = timeline(world, None, 100, 6).await;
        assert_eq!((whole.entries.len(), whole.next), (6, None), "the last one is the lane's first");

        world.redis(&["DEL", &lane]).await;
        assert_eq!(timeline(world, None, 100, 100).await, Timeline { entries: vec![], next: None });
    }

    async fn i_14_nothing_leaves_a_lane_by_its_length(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        // However slow the machine is.
        world.redis(&["PERSIST", &world.names.owner.to_string()]).await;
        let commands = vec![Committing { entry: Some("1"), ..Committing::default() }; 4000];
        let none = CellChanges::default();
        let mut cv = 1;
        for batch in 0..26 {
            let batch = batch.to_string();
            let with = Commit { batch: &batch, ..world.commit(&me, token, cv, &commands, &none) };
            let committed = world.scripts.commit(&world.keys, with).await;
            assert!(matches!(committed, Ok(Committed::Ok { .. })), "{committed:?}");
            cv += 4000;
        }
        let (_, lanes) = world.scripts.lanes_read(&world.keys, &[lane_of(world.room.route())], 1, 1).await.unwrap();
        assert_eq!((lanes[0].length, lanes[0].entries[0].version()), (cv, 1));
        assert_eq!(world.ttl_ms(&world.names.lane).await, -1);
        let newest = timeline(world, None, 10, 1).await.entries;
        assert_eq!(newest[0].version(), cv);
    }

    async fn i_14_a_full_lane_takes_no_commit_with_events(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let changes = CellChanges { set: vec![("x", "1")], ..CellChanges::default() };
        let keep = Keep { caller: "ann", id: "c1", digest: "d1" };
        let silent = Committing { answer: "{}", ..Committing::default() };
        let mixed = [silent, Committing { keep: Some(keep), answer: "7", ..MADE }];
        let commit = async |batch, cv, commands: &[Committing<'_>], lane_limit| {
            let with = Commit { batch, lane_limit, ..world.commit(&me, token, cv, commands, &changes) };
            world.scripts.commit(&world.keys, with).await.unwrap()
        };
        let before = world.keyspace().await;
        for limit in [0, 1] {
            assert_eq!(commit("b1", 1, &mixed, limit).await, Committed::Full { entries: 1 }, "{limit}");
        }
        assert_eq!(world.keyspace().await, before);
        let first = commit("b1", 1, &mixed, 2).await;
        assert!(matches!(first, Committed::Ok { cv, .. } if cv.as_u64() == 2), "{first:?}");

        // What was done is answered, and what needs no entry is done.
        assert_eq!(commit("b1", 1, &mixed, 2).await, first);
        let answered = Repeat::Answered { digest: "d1".to_owned(), answer: "7".to_owned() };
        assert_eq!(commit("b2", 2, &mixed, 2).await, Committed::Again { repeats: vec![(1, answered)] });
        let quiet = commit("b3", 2, &[silent], 0).await;
        assert!(matches!(quiet, Committed::Ok { cv, .. } if cv.as_u64() == 2), "{quiet:?}");
        assert_eq!(timeline(world, None, 100, 100).await.entries.len(), 2);
    }

    async fn i_14_a_full_lane_takes_no_update(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        let before = world.keyspace().await;
        for limit in [0, 1] {
            for me in [&a, &b] {
                assert_eq!(update_within(world, me, Some("ann"), limit).await, Updated::Full { entries: 1 });
                assert_eq!(update_guest_within(world, me, None, limit).await, Updated::Full { entries: 1 });
            }
        }
        assert_eq!(world.keyspace().await, before);
        assert!(matches!(update_within(world, &b, None, 2).await, Updated::Ok { .. }));
        assert_eq!(update_guest_within(world, &b, None, 2).await, Updated::Full { entries: 2 });
        assert!(matches!(update_guest_within(world, &b, None, 3).await, Updated::Ok { .. }));
    }

    async fn i_14_an_update_without_owner_and_fence_has_the_token_of_the_record(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        world.redis(&["DEL", &world.names.owner.to_string(), &world.names.fence.to_string()]).await;
        update(world, &me, None).await;
        update_guest(world, &me, None).await;
        let newer = FenceToken::new(token.as_u64() + 5);
        world.redis(&["SET", &world.names.fence.to_string(), &newer.to_string()]).await;
        update(world, &me, None).await;
        update_guest(world, &me, None).await;
        let entries = timeline(world, None, 4, 4).await.entries;
        let found: Vec<_> = entries.iter().map(|it| (it.kind.as_str(), it.token, it.owner.as_str())).collect();
        assert_eq!(found, [
            ("guest", newer, ""),
            ("settings", newer, ""),
            ("guest", token, ""),
            ("settings", token, ""),
        ], "the higher of the two");
        world.redis(&["DEL", &world.names.fence.to_string()]).await;
    }

    async fn i_14_a_room_that_is_being_rebuilt_is_missing_to_updates(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        world.redis(&["HSET", &world.names.room.to_string(), "status", "rebuilding"]).await;
        for owner in [a.to_string(), String::new()] {
            let before = world.keyspace().await;
            assert_eq!(update(world, &b, Some("ann")).await, Updated::Missing { owner: owner.clone() });
            assert_eq!(update_guest(world, &b, None).await, Updated::Missing { owner });
            assert_eq!(world.keyspace().await, before);
            world.redis(&["DEL", &world.names.owner.to_string()]).await;
        }
    }

    async fn i_14_an_answer_that_is_kept_stands_with_its_command(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let keep = |id, digest| Some(Keep { caller: "ann", id, digest });
        let commands = [
            Committing { keep: keep("c1", "d1"), answer: "{\"n\":\n1}", ..MADE },
            Committing { keep: keep("c2", ""), answer: "{}", ..MADE },
            Committing { answer: "{}", ..MADE },
            Committing { keep: keep("c3", "d3"), answer: "", ..MADE },
            Committing { keep: keep("c4", "d4"), answer: "{}", ..Committing::default() },
        ];
        let none = CellChanges::default();
        world.scripts.commit(&world.keys, world.commit(&me, token, 1, &commands, &none)).await.unwrap();
        let mut entries = timeline(world, None, 100, 4).await.entries;
        entries.reverse();
        let kept = |id: &str, digest: &str, answer: &str| Some(LaneAnswer {
            caller: "ann".to_owned(),
            id: id.to_owned(),
            digest: digest.to_owned(),
            answer: answer.to_owned(),
        });
        let found: Vec<_> = entries.into_iter().map(|it| (it.cv, it.keep)).collect();
        assert_eq!(found, [
            (Some(2), kept("c1", "d1", "{\"n\":\n1}")),
            (Some(3), None),
            (Some(4), None),
            (Some(5), kept("c3", "d3", "")),
        ], "one without events has no entry");
    }
}
