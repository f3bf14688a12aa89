//! `settings_update` and `guest_update`: what any instance may change.

use key_prefix::{ChannelKind, Instance};
use redis_scripts::{GuestUpdate, SettingsUpdate, SettingsVersion, Updated};
use serde_json::json;

use crate::listener::Listener;
use crate::world::{NO_LIMIT, World};

const MAX_BYTES: usize = 4096;
const MAX_GUESTS: usize = 3;

async fn update(world: &World, me: &Instance, patch: &[(&str, &str)]) -> Updated {
    update_if(world, me, patch, None).await
}

async fn update_if(
    world: &World,
    me: &Instance,
    patch: &[(&str, &str)],
    if_version: Option<SettingsVersion>,
) -> Updated {
    let patch: Vec<_> = patch.iter().map(|(field, json)| (*field, (*json).to_owned())).collect();
    let with = SettingsUpdate {
        me,
        room: &world.room,
        by: None,
        keys: &world.names,
        if_version,
        max_bytes: MAX_BYTES,
        patch: &patch,
        route_json: &world.route_json(),
        message: r#""settings":{"custom":{"a":1}},"by":{"user":"ann"}"#,
        lane_limit: NO_LIMIT,
    };
    world.scripts.settings_update(&world.keys, with).await.expect("an answer")
}

async fn update_guest(world: &World, me: &Instance, user: &str, present: bool, patch: &str) -> Updated {
    let with = GuestUpdate {
        me,
        room: &world.room,
        by: None,
        keys: &world.names,
        if_version: None,
        max_bytes: MAX_BYTES,
        max_guests: MAX_GUESTS,
        user,
        present,
        patch,
        route_json: &world.route_json(),
        message: r#""guests":{"ann":{"handRaised":true}},"by":{"user":"ann"}"#,
        lane_limit: NO_LIMIT,
    };
    world.scripts.guest_update(&world.keys, with).await.expect("an answer")
}

async fn setting(world: &World, field: &str) -> String {
    world.redis(&["HGET", &world.names.settings.to_string(), field]).await.text()
}

fn version(number: u64) -> Option<SettingsVersion> {
    Some(SettingsVersion::new(number))
}

on_both! {
    async fn a_patch_is_merged_by_any_instance_and_raises_the_version(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        let updated = update(world, &b, &[("custom", r#"{"a":{"b":1}}"#), ("vad", r#"{"x":[]}"#)]).await;
        assert_eq!(updated, Updated::Ok { sv: SettingsVersion::new(2), owner: a.to_string() });
        update(world, &a, &[("custom", r#"{"a":{"c":2}}"#), ("fresh", "1")]).await;
        assert_eq!(setting(world, "custom").await, r#"{"a":{"b":1,"c":2}}"#);
        assert_eq!(setting(world, "vad").await, r#"{"threshold":0.5,"x":[]}"#);
        let standing = world.standing().await;
        assert!(standing.whole, "the record counts the new setting");
        assert_eq!(standing.state.sv, SettingsVersion::new(3));
    }

    async fn i_5_nothing_is_added_to_what_a_failover_may_have_cut_off(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        update_guest(world, &b, "ann", false, "{}").await;
        assert!(world.standing().await.proved);
        world.begin_another_history().await;
        assert!(!world.standing().await.proved);
        let before = world.keyspace().await;
        for me in [&a, &b] {
            let damaged = Updated::Damaged { owner: a.to_string() };
            assert_eq!(update(world, me, &[("custom", "1")]).await, damaged);
            assert_eq!(update_guest(world, me, "ann", false, r#"{"x":1}"#).await, damaged);
        }
        assert_eq!(world.keyspace().await, before);
    }

    async fn every_refusal_of_settings_leaves_everything_as_it_was(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let owner = a.to_string();
        assert_eq!(update(world, &b, &[("custom", "{}")]).await, Updated::Missing { owner: String::new() });
        world.own(&a).await;
        let large = format!("{:?}", "x".repeat(MAX_BYTES));
        let bytes = large.len();
        let before = world.keyspace().await;
        let conflict = update_if(world, &b, &[("custom", "{}")], version(2)).await;
        assert_eq!(conflict, Updated::Conflict { sv: SettingsVersion::new(1) });
        let too_large = update(world, &b, &[("vad", "{}"), ("custom", &large)]).await;
        assert_eq!(too_large, Updated::TooLarge { field: "custom".to_owned(), bytes });
        assert_eq!(world.keyspace().await, before);

        world.redis(&["HSET", &world.names.room.to_string(), "status", "closed"]).await;
        let closed = Updated::Closed { status: "closed".to_owned() };
        assert_eq!(update(world, &b, &[("custom", "{}")]).await, closed);
        assert_eq!(update_guest(world, &b, "ann", false, "{}").await, closed);
        world.redis(&["DEL", &world.names.settings.to_string()]).await;
        let damaged = update(world, &b, &[("custom", "{}")]).await;
        assert_eq!(damaged, Updated::Damaged { owner: owner.clone() });
        assert!(!world.exists(&world.names.settings).await, "it never creates");
        world.redis(&["DEL", &world.names.room.to_string()]).await;
        assert_eq!(update(world, &b, &[("custom", "{}")]).await, Updated::Missing { owner });
        assert!(!world.exists(&world.names.room).await, "it never creates");
    }

    async fn the_version_that_the_caller_wants_is_the_version(world: &World) {
        let a = world.register("a").await;
        world.own(&a).await;
        for expected in 1..=3 {
            let updated = update_if(world, &a, &[("custom", "{}")], version(expected)).await;
            assert!(matches!(updated, Updated::Ok { sv, .. } if sv.as_u64() == expected + 1));
        }
        let repeated = update_if(world, &a, &[("custom", "{}")], version(3)).await;
        assert_eq!(repeated, Updated::Conflict { sv: SettingsVersion::new(4) });
    }

    async fn i_5_the_owner_is_told_on_its_own_channel_and_watchers_on_theirs(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let c = world.register("c").await;
        world.own(&a).await;
        world.scripts.watch(&world.keys, &c, &world.room).await.unwrap();
        let mut listener = Listener::start(world).await;
        let sync = world.keys.channel(ChannelKind::Sync, &a).to_string();
        let fanout = world.keys.channel(ChannelKind::Fanout, &c).to_string();
        let message = |from: u64, part: serde_json::Value| {
            let mut all = json!({ "room": world.room.route(), "of": "settings", "from": from, "to": from + 1,
                "by": { "user": "ann" } });
            all.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
            all
        };

        update(world, &b, &[("custom", r#"{"a":1}"#)]).await;
        let settings = message(1, json!({ "settings": { "custom": { "a": 1 } } }));
        let expected = [(sync.clone(), settings.clone()), (fanout.clone(), settings)];
        assert_eq!(listener.published(world).await, expected);
        let lasts = world.ttl_ms(&world.keys.unheard(&a)).await;
        assert!(world.mark(&a).await.is_some() && (1..=3_600_000).contains(&lasts), "it may not hear it: {lasts}");
        world.unmark(&a).await;

        update_guest(world, &b, "ann", false, r#"{"handRaised":true}"#).await;
        let guests = message(2, json!({ "guests": { "ann": { "handRaised": true } } }));
        assert_eq!(listener.published(world).await, [(sync, guests.clone()), (fanout.clone(), guests)]);
        assert!(world.mark(&a).await.is_some());
        world.unmark(&a).await;

        update(world, &a, &[("custom", r#"{"a":1}"#)]).await;
        let own = message(3, json!({ "settings": { "custom": { "a": 1 } } }));
        assert_eq!(listener.published(world).await, [(fanout, own)], "an owner is not told what it did itself");
        assert!(world.mark(&a).await.is_some(), "but may get no answer");
        world.unmark(&a).await;

        world.redis(&["DEL", &world.names.owner.to_string(), &world.names.watchers.to_string()]).await;
        assert!(matches!(update(world, &b, &[("custom", "{}")]).await, Updated::Ok { owner, .. } if owner.is_empty()));
        assert_eq!(listener.published(world).await, [], "nobody owns it, nobody watches");
        assert_eq!(world.mark(&a).await, None);
    }

    async fn guest_states_are_merged_counted_and_bounded(world: &World) {
        let a = world.register("a").await;
        let token = world.own(&a).await;
        for user in ["ann", "bob", "cat"] {
            let updated = update_guest(world, &a, user, false, r#"{"handRaised":true,"custom":{"x":1}}"#).await;
            assert!(matches!(updated, Updated::Ok { .. }), "{updated:?}");
        }
        let updated = update_guest(world, &a, "ann", false, r#"{"custom":{"x":null,"y":2}}"#).await;
        assert_eq!(updated, Updated::Ok { sv: SettingsVersion::new(5), owner: a.to_string() });
        let state = world.redis(&["HGET", &world.names.guests.to_string(), "ann"]).await.text();
        assert_eq!(state, r#"{"handRaised":true,"custom":{"y":2}}"#);
        assert!(world.standing().await.whole);

        let before = world.keyspace().await;
        assert_eq!(update_guest(world, &a, "dan", false, "{}").await, Updated::TooMany { guests: 3 });
        assert_eq!(update_guest(world, &a, "ann", true, "{}").await, Updated::NotPresent);
        let large = format!(r#"{{"custom":"{}"}}"#, "x".repeat(MAX_BYTES));
        let refused = update_guest(world, &a, "bob", false, &large).await;
        assert!(matches!(refused, Updated::TooLarge { field, bytes } if field == "bob" && bytes > MAX_BYTES));
        assert_eq!(world.keyspace().await, before);

        world.join(&a, token, 1, "ann").await;
        assert!(matches!(update_guest(world, &a, "ann", true, "{}").await, Updated::Ok { .. }));
        world.redis(&["DEL", &world.names.guests.to_string()]).await;
        let damaged = update_guest(world, &a, "ann", false, "{}").await;
        assert_eq!(damaged, Updated::Damaged { owner: a.to_string() });
        world.redis(&["DEL", &world.names.room.to_string()]).await;
        let missing = update_guest(world, &a, "ann", false, "{}").await;
        assert_eq!(missing, Updated::Missing { owner: a.to_string() });
    }

    async fn a_guest_update_can_demand_a_version(world: &World) {
        let a = world.register("a").await;
        world.own(&a).await;
        let route_json = world.route_json();
        let with = |if_version| GuestUpdate {
            me: &a,
            room: &world.room,
            by: None,
            keys: &world.names,
            if_version,
            max_bytes: MAX_BYTES,
            max_guests: MAX_GUESTS,
            user: "ann",
            present: false,
            patch: "{}",
            route_json: &route_json,
            message: r#""guests":{},"by":null"#, lane_limit: NO_LIMIT,
        };
        let refused = world.scripts.guest_update(&world.keys, with(version(7))).await.unwrap();
        assert_eq!(refused, Updated::Conflict { sv: SettingsVersion::new(1) });
        let updated = world.scripts.guest_update(&world.keys, with(version(1))).await.unwrap();
        assert!(matches!(updated, Updated::Ok { .. }));
    }

    async fn i_4_concurrent_patches_of_one_setting_are_all_kept(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        let patches: Vec<_> = (0..200).map(|n| format!(r#"{{"k{n}":{n}}}"#)).collect();
        let updates = patches.iter().enumerate().map(|(n, patch)| {
            let me = if n % 2 == 0 { &a } else { &b };
            async move { update(world, me, &[("custom", patch)]).await }
        });
        let mut versions = Vec::new();
        for update in futures_in_order(updates).await {
            let Updated::Ok { sv, .. } = update else { panic!("{update:?}") };
            versions.push(sv.as_u64());
        }
        versions.sort_unstable();
        assert_eq!(versions, (2..=201).collect::<Vec<_>>());
        let merged: serde_json::Value = serde_json::from_str(&setting(world, "custom").await).unwrap();
        assert_eq!(merged.as_object().unwrap().len(), 200);
    }
}

/// All at once on this thread, answers in order.
async fn futures_in_order<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, answer) in &mut running {
            if answer.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *answer = Some(value);
            }
        }
        if running.iter().all(|(_, answer)| answer.is_some()) {
            return std::task::Poll::Ready(());
        }
        std::task::Poll::Pending
    })
    .await;
    running.into_iter().filter_map(|(_, answer)| answer).collect()
}
