//! `lease_acquire`, `lease_renew`, `lease_release`.

use key_prefix::Instance;
use redis_scripts::{Acquired, FenceToken, Renewed};
use std::time::Duration;

use crate::world::{World, other_than};

const NAME: &str = "reaper";
const TTL: Duration = Duration::from_secs(10);

async fn acquire(world: &World, me: &Instance) -> Acquired {
    world.scripts.lease_acquire(&world.keys, NAME, me, TTL).await.expect("an answer")
}

async fn hold(world: &World, me: &Instance) -> FenceToken {
    match acquire(world, me).await {
        Acquired::Ok { token, .. } => token,
        held => panic!("{held:?}"),
    }
}

on_both! {
    async fn i_18_a_lease_has_one_holder_until_it_ends(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = hold(world, &a).await;
        let before = world.keyspace().await;
        let Acquired::Held { holder, remaining } = acquire(world, &b).await else { panic!("two holders") };
        assert_eq!(holder, a.as_str());
        assert!(remaining <= TTL && remaining > Duration::ZERO);
        assert_eq!(world.keyspace().await, before);

        world.redis(&["PEXPIRE", &world.keys.lease(NAME).to_string(), "20"]).await;
        e2e::wait::until("the lease ends", e2e::wait::SOON, || async { matches!(acquire(world, &b).await, Acquired::Ok { .. }) }).await;
        let newer = hold(world, &b).await;
        assert!(newer > token);
        let renewed = world.scripts.lease_renew(&world.keys, NAME, &a, token, TTL).await.unwrap();
        assert_eq!(renewed, Renewed::Lost { held: format!("{b} {newer}") });
    }

    async fn a_lease_without_an_end_is_still_held(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        hold(world, &a).await;
        world.redis(&["PERSIST", &world.keys.lease(NAME).to_string()]).await;
        assert!(matches!(acquire(world, &b).await, Acquired::Held { remaining: Duration::ZERO, .. }));
    }

    async fn acquiring_again_gives_a_new_token(world: &World) {
        let a = world.register("a").await;
        let token = hold(world, &a).await;
        assert!(hold(world, &a).await > token);
        let renewed = world.scripts.lease_renew(&world.keys, NAME, &a, token, TTL).await.unwrap();
        assert!(matches!(renewed, Renewed::Lost { .. }), "the older token is no proof any more");
    }

    async fn a_renewal_lengthens_what_is_mine_and_nothing_else(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = hold(world, &a).await;
        let lease = world.keys.lease(NAME);
        world.redis(&["PEXPIRE", &lease.to_string(), "5000"]).await;
        for _twice in 0..2 {
            let renewed = world.scripts.lease_renew(&world.keys, NAME, &a, token, TTL).await.unwrap();
            assert_eq!(renewed, Renewed::Ok);
            assert!(world.ttl_ms(&lease).await > 5000);
        }
        let before = world.keyspace().await;
        let held = format!("{a} {token}");
        for (who, with) in [(&a, other_than(token)), (&b, token)] {
            let renewed = world.scripts.lease_renew(&world.keys, NAME, who, with, TTL).await.unwrap();
            assert_eq!(renewed, Renewed::Lost { held: held.clone() });
            let released = world.scripts.lease_release(&world.keys, NAME, who, with).await.unwrap();
            assert_eq!(released, Renewed::Lost { held: held.clone() });
        }
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_2_tokens_grow_over_release_and_loss_of_the_fence(world: &World) {
        let a = world.register("a").await;
        let first = hold(world, &a).await;
        let fence = world.keys.lease_fence(NAME);
        assert!(world.ttl_ms(&fence).await > 6 * 24 * 3_600_000);
        assert_eq!(world.scripts.lease_release(&world.keys, NAME, &a, first).await.unwrap(), Renewed::Ok);
        let twice = world.scripts.lease_release(&world.keys, NAME, &a, first).await.unwrap();
        assert_eq!(twice, Renewed::Lost { held: String::new() });
        let second = hold(world, &a).await;
        assert!(second > first);

        let ahead = second.as_u64() + 3_600_000;
        world.redis(&["SET", &fence.to_string(), &ahead.to_string()]).await;
        assert_eq!(hold(world, &a).await.as_u64(), ahead + 1);
        world.redis(&["DEL", &fence.to_string()]).await;
        assert_eq!(hold(world, &a).await.as_u64(), ahead + 2, "the lease's own token is the floor");
        world.redis(&["FLUSHALL"]).await;
        world.clock_passes(second.as_u64()).await;
        assert!(hold(world, &a).await > second);
    }
}
