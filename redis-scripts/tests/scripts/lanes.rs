//! What stands in a lane, and how a room's part of it is read.

use key_prefix::Instance;
use redis_scripts::{
    CellChanges, Commit, Committed, Committing, GuestUpdate, SettingsUpdate, Timeline, Updated,
};

use crate::world::{World, room};

async fn update(world: &World, me: &Instance, by: Option<&str>) -> Updated {
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
    };
    world.scripts.settings_update(&world.keys, with).await.expect("an answer")
}

async fn update_guest(world: &World, me: &Instance, by: Option<&str>) -> Updated {
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
            .map(|it| (it.kind.as_str(), it.version, it.token, it.owner.as_str(), it.entry.as_str()))
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

        let versions = |page: &Timeline| page.entries.iter().map(|it| it.version).collect::<Vec<_>>();
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

    async fn a_lane_is_bounded(world: &World) {
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
        let length = world.redis(&["XLEN", &world.names.lane.to_string()]).await.number().unwrap();
        assert!((100_000..101_000).contains(&length), "{length}");
        let newest = timeline(world, None, 10, 1).await.entries;
        assert_eq!(newest[0].version, cv);
    }
}
