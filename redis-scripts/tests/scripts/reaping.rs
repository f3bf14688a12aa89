//! `reap` and `sweep`.

use key_prefix::Instance;
use redis_scripts::{Acquired, Enqueue, FenceToken, Reap, Reaped, RedisMillis, Sweep, Swept};
use std::time::Duration;

use crate::world::{APP, World, other_than, room};

const LEASE: &str = "reaper";
const LIFE: Duration = Duration::from_secs(3600);

async fn lead(world: &World, me: &Instance) -> FenceToken {
    let ttl = Duration::from_secs(30);
    match world.scripts.lease_acquire(&world.keys, LEASE, me, ttl).await.expect("an answer") {
        Acquired::Ok { token, .. } => token,
        held => panic!("{held:?}"),
    }
}

async fn score(world: &World, instance: &Instance) -> RedisMillis {
    let found = world.redis(&["ZSCORE", &world.keys.instances().to_string(), instance.as_str()]).await;
    RedisMillis::new(found.text().parse().expect("an answer"))
}

async fn reap(
    world: &World,
    me: &Instance,
    token: FenceToken,
    dead: &Instance,
    score: RedisMillis,
    chunk: usize,
) -> Reaped {
    let with = Reap { lease: LEASE, me, token, dead, score, chunk, life: LIFE, cleared: 0, apps: &[] };
    world.scripts.reap(&world.keys, with).await.expect("an answer")
}

async fn sweep(world: &World, me: &Instance, token: FenceToken, after: &str, limit: usize) -> Swept {
    let with = Sweep { lease: LEASE, me, token, app: APP, after, limit, life: LIFE };
    world.scripts.sweep(&world.keys, with).await.expect("an answer")
}

on_both! {
    async fn the_dead_lose_their_leases_and_watches_and_their_peers_stay(world: &World) {
        let (leader, dead) = (world.register("l").await, world.register("d").await);
        let token = lead(world, &leader).await;
        world.pin_seated(&dead).await.unwrap();
        world.scripts.watch(&world.keys, &dead, &world.room).await.unwrap();
        world.scripts.watch(&world.keys, &leader, &world.room).await.unwrap();
        world.redis(&["ZADD", &world.keys.unheard(&dead).to_string(), "1", world.room.route()]).await;
        let seen = score(world, &dead).await;
        let answer = reap(world, &leader, token, &dead, seen, 100).await;
        assert_eq!(answer, Reaped::Done { rooms: 1, watches: 1 });
        assert!(!world.exists(&world.names.owner).await);
        for key in [
            world.keys.instance(&dead),
            world.keys.instance_rooms(&dead),
            world.keys.instance_watches(&dead),
            world.keys.unheard(&dead),
        ] {
            assert!(!world.exists(&key).await, "{key:?}");
        }
        let watchers = world.redis(&["SMEMBERS", &world.names.watchers.to_string()]).await.texts();
        assert_eq!(watchers, [leader.as_str()]);
        let standing = world.standing().await;
        assert!(standing.whole);
        assert_eq!(standing.state.peers.len(), 1, "its next owner ends them");
        for key in [&world.names.room, &world.names.peers, &world.names.presence, &world.names.cell] {
            assert!(world.ttl_ms(key).await > 0, "what nobody owns has an end");
        }
        assert!(world.due().await.unwrap() <= world.now_ms().await, "somebody must adopt it, now");
        let left = world.scripts.instances(&world.keys).await.unwrap().instances;
        assert_eq!(left.len(), 1);
        assert_eq!(reap(world, &leader, token, &dead, seen, 100).await, Reaped::Done { rooms: 0, watches: 0 }, "twice");
    }

    async fn i_18_who_does_not_lead_clears_nothing(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let dead = world.register("d").await;
        world.own(&dead).await;
        let token = lead(world, &a).await;
        let seen = score(world, &dead).await;
        let before = world.keyspace().await;
        let held = format!("{a} {token}");
        for (who, with) in [(&a, other_than(token)), (&b, token)] {
            let expected = Reaped::NotLeader { held: held.clone() };
            assert_eq!(reap(world, who, with, &dead, seen, 100).await, expected);
            assert_eq!(sweep(world, who, with, "", 10).await, Swept::NotLeader { held: held.clone() });
        }
        assert_eq!(world.keyspace().await, before);
        world.redis(&["DEL", &world.keys.lease(LEASE).to_string()]).await;
        let expired = Reaped::NotLeader { held: String::new() };
        assert_eq!(reap(world, &a, token, &dead, seen, 100).await, expired);
        assert_eq!(sweep(world, &a, token, "", 10).await, Swept::NotLeader { held: String::new() });
    }

    async fn who_was_heard_of_since_is_alive(world: &World) {
        let (leader, dead) = (world.register("l").await, world.register("d").await);
        world.own(&dead).await;
        let token = lead(world, &leader).await;
        let seen = score(world, &dead).await;
        let before = world.keyspace().await;
        let older = RedisMillis::new(seen.as_u64() - 1);
        assert_eq!(reap(world, &leader, token, &dead, older, 100).await, Reaped::Alive);
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_1_rooms_that_others_took_over_stay_theirs(world: &World) {
        let (leader, dead) = (world.register("l").await, world.register("d").await);
        let token = lead(world, &leader).await;
        world.own(&dead).await;
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        let newer = world.own(&leader).await;
        let seen = score(world, &dead).await;
        let answer = reap(world, &leader, token, &dead, seen, 100).await;
        assert_eq!(answer, Reaped::Done { rooms: 0, watches: 0 });
        assert_eq!(world.get(&world.names.owner).await, format!("{leader} {newer}"));
        assert_eq!(world.ttl_ms(&world.names.room).await, -1);
        // A restarted process is another instance: its rooms are not those of the dead one.
        let again = world.register("d").await;
        let other = room("again");
        world.own_room(&again, &other).await;
        reap(world, &leader, token, &dead, seen, 100).await;
        assert!(world.exists(&world.keys.room(&other).owner).await);
    }

    async fn the_dead_are_cleared_in_chunks(world: &World) {
        let (leader, dead) = (world.register("l").await, world.register("d").await);
        let token = lead(world, &leader).await;
        for n in 0..25 {
            let room = room(&format!("r{n}"));
            world.own_room(&dead, &room).await;
            world.scripts.watch(&world.keys, &dead, &room).await.unwrap();
        }
        let seen = score(world, &dead).await;
        for _ in 0..2 {
            let answer = reap(world, &leader, token, &dead, seen, 10).await;
            assert_eq!(answer, Reaped::More { rooms: 10, watches: 10 });
            assert_eq!(score(world, &dead).await, seen, "it is listed until all of it is gone");
        }
        assert_eq!(reap(world, &leader, token, &dead, seen, 10).await, Reaped::Done { rooms: 5, watches: 5 });
    }

    async fn a_key_of_another_type_stops_nothing(world: &World) {
        let (leader, dead) = (world.register("l").await, world.register("d").await);
        let token = lead(world, &leader).await;
        world.own(&dead).await;
        let other = room("broken");
        world.own_room(&dead, &other).await;
        world.scripts.watch(&world.keys, &dead, &other).await.unwrap();
        let names = world.keys.room(&other);
        for (key, command) in [(&names.owner, "SADD"), (&names.watchers, "SET")] {
            world.redis(&["DEL", &key.to_string()]).await;
            world.redis(&[command, &key.to_string(), "x"]).await;
        }
        let seen = score(world, &dead).await;
        let answer = reap(world, &leader, token, &dead, seen, 100).await;
        assert_eq!(answer, Reaped::Done { rooms: 1, watches: 1 });
        world.redis(&["DEL", &names.owner.to_string(), &names.watchers.to_string()]).await;
    }

    async fn i_17_a_sweep_gives_unowned_rooms_an_end_and_drops_what_is_gone(world: &World) {
        let leader = world.register("l").await;
        let token = lead(world, &leader).await;
        for id in ["owned", "unowned", "ending", "gone"] {
            let room = room(id);
            world.own_room(&leader, &room).await;
        }
        let names = |id: &str| world.keys.room(&room(id));
        for id in ["unowned", "ending", "gone"] {
            world.redis(&["DEL", &names(id).owner.to_string()]).await;
        }
        world.redis(&["PEXPIRE", &names("ending").room.to_string(), "60000"]).await;
        world.redis(&["DEL", &names("gone").room.to_string(), &names("gone").settings.to_string()]).await;
        let work = Enqueue { room: &room("unowned"), keys: &names("unowned"), ..world.enqueue(&leader, 10) };
        world.scripts.enqueue(&world.keys, work).await.unwrap();
        let swept = sweep(world, &leader, token, "", 100).await;
        assert_eq!(swept, Swept::Ok { next: String::new(), ended: 1, dropped: 1 });
        assert!(world.ttl_ms(&names("unowned").inbox).await > 60_000);
        assert!(world.ttl_ms(&names("gone").cell).await > 60_000, "what is left of a lost room ends too");
        assert_eq!(world.ttl_ms(&names("owned").room).await, -1);
        assert!(world.ttl_ms(&names("unowned").settings).await > 60_000);
        assert!(world.ttl_ms(&names("ending").room).await <= 60_000);
        let index = world.redis(&["ZRANGE", &world.names.rooms.to_string(), "0", "-1"]).await.texts();
        assert_eq!(index, ["ending", "owned", "unowned"]);
        let twice = sweep(world, &leader, token, "", 100).await;
        assert_eq!(twice, Swept::Ok { next: String::new(), ended: 0, dropped: 0 });
    }

    async fn a_sweep_goes_page_by_page(world: &World) {
        let leader = world.register("l").await;
        let token = lead(world, &leader).await;
        for n in 0..5 {
            world.redis(&["ZADD", &world.names.rooms.to_string(), "0", &format!("r{n}")]).await;
        }
        let mut after = String::new();
        let mut pages = Vec::new();
        loop {
            let Swept::Ok { next, dropped, .. } = sweep(world, &leader, token, &after, 2).await else { panic!("led") };
            pages.push(dropped);
            if next.is_empty() {
                break;
            }
            after = next;
        }
        assert_eq!(pages, [2, 2, 1]);
        assert!(!world.exists(&world.names.rooms).await);
    }
}
