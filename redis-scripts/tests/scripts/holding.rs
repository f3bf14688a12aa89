//! `lanes_hold`: which lanes an archiver holds, how many, and with which tokens.

use key_prefix::{Instance, LANES, lane_lease};
use redis_scripts::{FenceToken, HeldLane, HoldLanes, LanesHeld, ScriptError};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::world::{OWNER_TTL, World, other_than};

const TTL: Duration = Duration::from_secs(30);
const ALL: usize = LANES as usize;

async fn set(world: &World, instance: &Instance, field: &str, value: &str) {
    world.redis(&["HSET", &world.keys.instance(instance).to_string(), field, value]).await;
}

async fn archiver(world: &World, name: &str) -> Instance {
    let me = world.register(name).await;
    set(world, &me, "roles", "media,archiver").await;
    me
}

/// Holds lanes as an archiver does, or with something changed.
async fn hold_with(
    world: &World,
    me: &Instance,
    held: &[HeldLane],
    change: impl FnOnce(&mut HoldLanes<'_>),
) -> Result<LanesHeld, ScriptError> {
    let floor = FenceToken::default();
    let mut with = HoldLanes { me, ttl: TTL, owner_ttl: OWNER_TTL, floor, takes: true, held };
    change(&mut with);
    world.scripts.lanes_hold(&world.keys, with).await
}

async fn hold(world: &World, me: &Instance, held: &[HeldLane]) -> LanesHeld {
    hold_with(world, me, held, |_| {}).await.expect("an answer")
}

async fn renew(world: &World, me: &Instance, held: &[HeldLane]) -> LanesHeld {
    hold_with(world, me, held, |with| with.takes = false).await.expect("an answer")
}

async fn share(world: &World, me: &Instance) -> usize {
    let LanesHeld { share, lost, taken } = renew(world, me, &[]).await;
    assert_eq!((lost, taken), (vec![], vec![]), "who takes nothing has nothing");
    share
}

fn lanes(held: &[HeldLane]) -> Vec<u16> {
    held.iter().map(|it| it.lane).collect()
}

/// The one lane that was taken.
fn only(held: &LanesHeld) -> HeldLane {
    assert_eq!((held.taken.len(), &held.lost[..]), (1, &[][..]), "{held:?}");
    held.taken[0]
}

fn lease(world: &World, lane: u16) -> String {
    world.keys.lease(&lane_lease(lane)).to_string()
}

fn fence(world: &World, lane: u16) -> String {
    world.keys.lease_fence(&lane_lease(lane)).to_string()
}

on_both! {
    async fn i_18_the_lanes_are_shared_evenly_and_each_has_one_holder(world: &World) {
        for count in [1, 2, 3, 5] {
            world.redis(&["FLUSHALL"]).await;
            let mut archivers = Vec::new();
            for n in 0..count {
                archivers.push(archiver(world, &format!("a{n}")).await);
            }
            let (mut shares, mut taken) = (Vec::new(), BTreeSet::new());
            for me in &archivers {
                let held = hold(world, me, &[]).await;
                assert_eq!((held.taken.len(), &held.lost[..]), (held.share, &[][..]));
                for HeldLane { lane, token } in held.taken {
                    assert!(taken.insert(lane), "two hold {lane}");
                    assert_eq!(world.redis(&["GET", &lease(world, lane)]).await.text(), format!("{me} {token}"));
                }
                shares.push(held.share);
            }
            assert_eq!(shares.iter().sum::<usize>(), ALL, "{shares:?}");
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
            assert_eq!(taken, (0..LANES).collect());
        }
    }

    async fn i_18_who_drains_or_is_gone_or_silent_or_has_not_the_role_has_no_share(world: &World) {
        let a = archiver(world, "a").await;
        let (draining, gone, left) =
            (archiver(world, "b").await, archiver(world, "c").await, archiver(world, "d").await);
        let (silent, unknown, other) =
            (archiver(world, "e").await, archiver(world, "f").await, archiver(world, "g").await);
        assert_eq!(share(world, &a).await, 10);
        set(world, &draining, "draining", "1").await;
        set(world, &gone, "gone", "1").await;
        world.scripts.deregister(&world.keys, &left, TTL).await.unwrap();
        world.age_heartbeat(&silent, OWNER_TTL).await;
        world.redis(&["DEL", &world.keys.instance(&unknown).to_string()]).await;
        set(world, &other, "roles", "media,archivers,no-archiver").await;
        let without = world.register("h").await;
        assert_eq!(share(world, &a).await, ALL);
        for me in [&draining, &gone, &left, &silent, &unknown, &other, &without] {
            let held = hold(world, me, &[]).await;
            assert_eq!(held, LanesHeld { share: 0, lost: vec![], taken: vec![] }, "{me}");
        }

        world.age_heartbeat(&silent, OWNER_TTL - Duration::from_secs(5)).await;
        assert_eq!(share(world, &a).await, ALL / 2, "not heard of for a while is not silent");
        set(world, &draining, "draining", "0").await;
        assert_eq!((share(world, &a).await, share(world, &draining).await), (22, 21));
        set(world, &other, "roles", "archiver").await;
        assert_eq!(share(world, &other).await, ALL / 4);
    }

    async fn who_drains_keeps_what_it_has(world: &World) {
        let a = archiver(world, "a").await;
        let held = hold(world, &a, &[]).await.taken;
        set(world, &a, "draining", "1").await;
        world.redis(&["PEXPIRE", &lease(world, 5), "5000"]).await;
        assert_eq!(hold(world, &a, &held).await, LanesHeld { share: 0, lost: vec![], taken: vec![] });
        assert!(world.ttl_ms(&world.keys.lease(&lane_lease(5))).await > 5000);
    }

    async fn i_18_a_lost_lane_is_said_and_a_free_one_is_taken_by_one(world: &World) {
        let a = archiver(world, "a").await;
        let held = hold(world, &a, &[]).await.taken;
        assert_eq!(lanes(&held), (0..LANES).collect::<Vec<_>>());
        let (b, c) = (archiver(world, "b").await, archiver(world, "c").await);
        let before = world.keyspace().await;
        assert_eq!(hold(world, &b, &[]).await, LanesHeld { share: 21, lost: vec![], taken: vec![] });
        assert_eq!(world.keyspace().await, before, "none is free");

        world.redis(&["PEXPIRE", &lease(world, 7), "20"]).await;
        e2e::wait::until("the lease ends", e2e::wait::SOON, || async {
            !world.exists(&world.keys.lease(&lane_lease(7))).await
        }).await;
        let taken = only(&hold(world, &b, &[]).await);
        assert!(taken.lane == 7 && taken.token > held[7].token);
        assert_eq!(hold(world, &c, &[]).await.taken, []);
        assert_eq!(hold(world, &a, &held).await, LanesHeld { share: 22, lost: vec![7], taken: vec![] });
        assert_eq!(hold(world, &b, &[taken]).await, LanesHeld { share: 21, lost: vec![], taken: vec![] });
        world.redis(&["DEL", &lease(world, 9)]).await;
        let lost = renew(world, &a, &held).await.lost;
        assert_eq!(lost, [7, 9], "a missing key is never mine");
    }

    async fn a_renewal_lengthens_what_is_held_and_nothing_else(world: &World) {
        let (a, b) = (archiver(world, "a").await, archiver(world, "b").await);
        let held = hold(world, &a, &[]).await.taken;
        for lane in [0, 31] {
            world.redis(&["PEXPIRE", &lease(world, lane), "5000"]).await;
        }
        for _twice in 0..2 {
            assert_eq!(renew(world, &a, &held[1..]).await, LanesHeld { share: 32, lost: vec![], taken: vec![] });
            assert!(world.ttl_ms(&world.keys.lease(&lane_lease(31))).await > 5000);
            assert!(world.ttl_ms(&world.keys.lease(&lane_lease(0))).await <= 5000, "it was not named");
        }
        let before = world.keyspace().await;
        let wrong = HeldLane { token: other_than(held[3].token), ..held[3] };
        assert_eq!(renew(world, &a, &[wrong]).await.lost, [3]);
        assert_eq!(renew(world, &b, &held[..2]).await.lost, [0, 1]);
        assert_eq!(world.keyspace().await, before);
        assert!(world.ttl_ms(&world.keys.lease(&lane_lease(31))).await <= 30_000);
    }

    async fn nothing_is_taken_by_who_only_renews_or_holds_its_share(world: &World) {
        let (a, _b) = (archiver(world, "a").await, archiver(world, "b").await);
        let held = hold(world, &a, &[]).await.taken;
        world.redis(&["DEL", &lease(world, 4)]).await;
        assert_eq!(renew(world, &a, &held).await, LanesHeld { share: 32, lost: vec![4], taken: vec![] });
        assert!(!world.exists(&world.keys.lease(&lane_lease(4))).await);
        let rest = [&held[..4], &held[5..]].concat();
        let four = only(&hold(world, &a, &rest).await);
        assert_eq!(four.lane, 4);
        let whole = [&rest[..], &[four]].concat();
        assert_eq!(hold(world, &a, &whole).await.taken, [], "free ones are the other's");
    }

    async fn i_18_lanes_taken_by_an_answer_that_was_lost_are_taken_anew(world: &World) {
        let (a, _b) = (archiver(world, "a").await, archiver(world, "b").await);
        let unheard = hold(world, &a, &[]).await.taken;
        let heard = hold(world, &a, &[]).await;
        assert_eq!((lanes(&heard.taken), &heard.lost[..]), (lanes(&unheard), &[][..]), "no others than those");
        assert!(unheard.iter().zip(&heard.taken).all(|(old, new)| new.token > old.token));

        let stale = [&unheard[..1], &heard.taken[1..]].concat();
        let again = hold(world, &a, &stale).await;
        assert_eq!((lanes(&again.taken), &again.lost[..]), (vec![0], &[0][..]));
        assert!(again.taken[0].token > heard.taken[0].token, "the older token is no proof any more");
    }

    async fn i_2_tokens_of_lanes_grow_over_loss_of_lease_and_fence(world: &World) {
        let a = archiver(world, "a").await;
        let held = hold(world, &a, &[]).await.taken;
        let rest = &held[1..];
        let life = world.ttl_ms(&world.keys.lease_fence(&lane_lease(0))).await;
        assert!(life > 6 * 24 * 3_600_000, "{life}");
        world.redis(&["DEL", &lease(world, 0)]).await;
        let second = only(&hold(world, &a, rest).await);
        assert!(second.lane == 0 && second.token > held[0].token);

        world.redis(&["DEL", &lease(world, 0), &fence(world, 0)]).await;
        world.clock_passes(second.token.as_u64()).await;
        let third = only(&hold(world, &a, rest).await);
        assert!(third.token > second.token, "time stands in for the fence");

        let ahead = third.token.as_u64() + 3_600_000;
        world.redis(&["DEL", &lease(world, 0)]).await;
        world.redis(&["SET", &fence(world, 0), &ahead.to_string()]).await;
        let fourth = only(&hold(world, &a, rest).await);
        assert_eq!(fourth.token.as_u64(), ahead + 1);
        world.redis(&["DEL", &fence(world, 0)]).await;
        let fifth = only(&hold(world, &a, rest).await);
        assert_eq!(fifth.token.as_u64(), ahead + 2, "the lease's own token is the floor");

        world.redis(&["DEL", &lease(world, 0), &fence(world, 0)]).await;
        let floor = FenceToken::new(ahead + 1000);
        let above = only(&hold_with(world, &a, rest, |with| with.floor = floor).await.unwrap());
        assert_eq!(above.token.as_u64(), ahead + 1001, "what the ledger saw is the floor");
        assert_eq!(world.redis(&["GET", &fence(world, 0)]).await.text(), above.token.to_string());
    }

    async fn one_key_of_another_type_costs_its_lane_and_no_other(world: &World) {
        let (a, b) = (archiver(world, "a").await, archiver(world, "b").await);
        let record = world.keys.instance(&b).to_string();
        let broken = [lease(world, 3), fence(world, 5), record.clone()];
        world.redis(&["SADD", &broken[0], "x"]).await;
        world.redis(&["SADD", &broken[1], "x"]).await;
        world.redis(&["DEL", &record]).await;
        world.redis(&["SET", &record, "x"]).await;
        let held = hold(world, &a, &[]).await;
        let rest: Vec<_> = (0..LANES).filter(|lane| ![3, 5].contains(lane)).collect();
        assert_eq!((held.share, lanes(&held.taken)), (ALL, rest));
        world.redis(&["PEXPIRE", &lease(world, 63), "5000"]).await;
        let with_broken = [&held.taken[..], &[HeldLane { lane: 3, token: held.taken[0].token }]].concat();
        assert_eq!(hold(world, &a, &with_broken).await, LanesHeld { share: ALL, lost: vec![3], taken: vec![] });
        assert!(world.ttl_ms(&world.keys.lease(&lane_lease(63))).await > 5000);
        for key in broken {
            world.redis(&["DEL", &key]).await;
        }
    }
}
