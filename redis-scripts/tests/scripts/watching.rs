//! `read`, `watch` and `unwatch`.

use redis_scripts::Read;

use crate::world::{CELL, World};

async fn members(world: &World, key: &key_prefix::Key) -> Vec<String> {
    world.redis(&["SMEMBERS", &key.to_string()]).await.texts()
}

on_both! {
    async fn a_room_is_read_whole_with_its_owner(world: &World) {
        let a = world.register("a").await;
        assert_eq!(world.scripts.read_room(&world.keys, &world.room).await.unwrap(), Read::Missing);
        let pinned = world.pin_seated(&a).await.unwrap();
        let before = world.keyspace().await;
        let standing = world.standing().await;
        assert!(standing.whole);
        assert_eq!((standing.owner.as_str(), standing.url.as_str()), (a.as_str(), "http://a"));
        assert_eq!(standing.token, crate::world::token_of(&pinned));
        assert_eq!(standing.state.peers.len(), 1);
        assert_eq!(standing.state.cell.len(), CELL.len());
        assert_eq!(world.keyspace().await, before, "reading writes nothing");

        world.redis(&["DEL", &world.names.owner.to_string(), &world.names.peers.to_string()]).await;
        let standing = world.standing().await;
        assert!(!standing.whole && standing.owner.is_empty() && standing.url.is_empty());
        assert_eq!(standing.token.as_u64(), 0);
    }

    async fn i_5_a_watch_is_noted_on_both_sides_and_taken_back(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        for _twice in 0..2 {
            let watched = world.scripts.watch(&world.keys, &b, &world.room).await.unwrap();
            assert!(matches!(watched, Read::Ok(standing) if standing.owner == a.as_str()));
            assert_eq!(members(world, &world.names.watchers).await, [b.as_str()]);
            assert_eq!(members(world, &world.keys.instance_watches(&b)).await, [world.room.route()]);
        }
        for _twice in 0..2 {
            world.scripts.unwatch(&world.keys, &b, &world.room).await.unwrap();
            assert!(!world.exists(&world.names.watchers).await);
            assert!(!world.exists(&world.keys.instance_watches(&b)).await);
        }
    }

    async fn a_room_that_is_not_there_is_not_watched(world: &World) {
        let b = world.register("b").await;
        let before = world.keyspace().await;
        assert_eq!(world.scripts.watch(&world.keys, &b, &world.room).await.unwrap(), Read::Missing);
        assert_eq!(world.keyspace().await, before);
    }
}
