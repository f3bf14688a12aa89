//! `register` and `deregister`.

use key_prefix::{Incarnation, Instance, InstanceName};
use redis_scripts::Registered;
use std::time::Duration;

use crate::world::{OWNER_TTL, World};

fn next(instance: &Instance) -> Incarnation {
    Incarnation::new(instance.incarnation().as_u64() + 1)
}

on_both! {
    async fn an_incarnation_is_redis_time_and_grows_also_when_the_clock_does_not(world: &World) {
        let before = world.now_ms().await;
        let first = world.register("a").await;
        let number = i64::try_from(first.incarnation().as_u64()).unwrap();
        assert!((before..=world.now_ms().await).contains(&number), "{first}");

        // As if the clock had been an hour ahead then.
        let ahead = first.incarnation().as_u64() + 3_600_000;
        let key = world.keys.incarnation(&InstanceName::new("a").unwrap());
        world.redis(&["SET", &key.to_string(), &ahead.to_string()]).await;
        assert_eq!(world.register("a").await.incarnation().as_u64(), ahead + 1);
        assert!(world.ttl_ms(&key).await > 6 * 24 * 3_600_000);
    }

    async fn a_record_holds_the_address_and_the_fields_and_ends(world: &World) {
        let me = world.register("a").await;
        let record = world.keys.instance(&me);
        let fields = world.redis(&["HMGET", &record.to_string(), "address", "public_url"]).await.texts();
        assert_eq!(fields, ["a:1", "http://a"]);
        assert!((1..=3_600_000).contains(&world.ttl_ms(&record).await));
    }

    async fn a_name_is_held_while_its_heartbeat_is_fresh_under_another_address(world: &World) {
        let first = world.register("a").await;
        let Registered::Held { incarnation, address, age } = world.register_at("a", "b:1").await else {
            panic!("not held")
        };
        assert_eq!((incarnation, address.as_str()), (first.incarnation(), "a:1"));
        assert!(age < OWNER_TTL);

        world.age_heartbeat(&first, OWNER_TTL).await;
        assert!(matches!(world.register_at("a", "b:1").await, Registered::Ok { .. }));
    }

    async fn a_heartbeat_from_the_future_is_fresh(world: &World) {
        let first = world.register("a").await;
        let then = (world.now_ms().await + 60_000).to_string();
        world.redis(&["ZADD", &world.keys.instances().to_string(), &then, first.as_str()]).await;
        let Registered::Held { age, .. } = world.register_at("a", "b:1").await else { panic!("not held") };
        assert_eq!(age, Duration::ZERO);
    }

    async fn a_restart_at_the_same_address_waits_for_nothing(world: &World) {
        let first = world.register("a").await;
        let second = world.register("a").await;
        assert!(second.incarnation() >= next(&first));
        assert_eq!(second.name(), "a");
    }

    async fn a_name_is_free_when_its_holder_has_deregistered(world: &World) {
        let first = world.register("a").await;
        world.redis(&["ZADD", &world.keys.unheard(&first).to_string(), "1", world.room.route()]).await;
        world.scripts.deregister(&world.keys, &first, Duration::from_secs(60)).await.unwrap();
        assert!(!world.exists(&world.keys.unheard(&first)).await);
        let record = world.keys.instance(&first);
        assert_eq!(world.redis(&["HGET", &record.to_string(), "gone"]).await.text(), "1");
        assert!((1..=60_000).contains(&world.ttl_ms(&record).await));
        let heartbeats = world.scripts.instances(&world.keys).await.unwrap();
        assert!(heartbeats.instances.is_empty());
        assert!(matches!(world.register_at("a", "b:1").await, Registered::Ok { .. }));
    }

    async fn deregistering_twice_is_as_once(world: &World) {
        let first = world.register("a").await;
        world.scripts.deregister(&world.keys, &first, Duration::from_secs(60)).await.unwrap();
        let once = world.keyspace().await.keys().cloned().collect::<Vec<_>>();
        world.scripts.deregister(&world.keys, &first, Duration::from_secs(60)).await.unwrap();
        assert_eq!(world.keyspace().await.keys().cloned().collect::<Vec<_>>(), once);
    }

    async fn a_lost_incarnation_key_costs_nothing(world: &World) {
        let first = world.register("a").await;
        world.redis(&["DEL", &world.keys.incarnation_of(&first).to_string()]).await;
        world.clock_passes(first.incarnation().as_u64()).await;
        let second = world.register("a").await;
        assert!(second.incarnation() > first.incarnation());
    }

    async fn instances_lists_heartbeats_and_what_is_none(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.redis(&["ZADD", &world.keys.instances().to_string(), "1", "no instance"]).await;
        let heartbeats = world.scripts.instances(&world.keys).await.unwrap();
        let mut found: Vec<_> = heartbeats.instances.iter().map(|(instance, _)| instance.clone()).collect();
        found.sort();
        assert_eq!(found, [a, b]);
        assert_eq!(heartbeats.foreign, ["no instance"]);
        assert!(heartbeats.instances.iter().all(|(_, score)| *score <= heartbeats.now && score.as_u64() > 0));
    }
}
