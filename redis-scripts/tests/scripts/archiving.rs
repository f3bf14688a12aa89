//! `lanes_read`, `lanes_archived`, `lanes_kept`, `facts`: the way of a lane's entries to the ledger, and back.

use e2e::resp::Value;
use key_prefix::{Instance, lane_lease, lane_of};
use redis_scripts::{
    Acquired, ArchivedLane, CellChanges, Commit, Committed, Committing, FenceToken, HeldLane, LaneAnswer,
    LaneEntry, LaneRead, RedisMillis,
};
use std::time::Duration;

use crate::world::{World, other_than};

const LEASE_TTL: Duration = Duration::from_secs(600);
const KEEP: (Duration, usize) = (Duration::from_secs(60), 1000);
const ROUTE: &str = "school\0math-101";

/// Appends entries with the versions `first` and on, as the scripts write them.
async fn fill(world: &World, lane: u16, versions: std::ops::RangeInclusive<u64>) {
    let key = world.keys.lane_at(lane).to_string();
    for cv in versions {
        let entry =
            ["XADD", &key, "*", "room", ROUTE, "kind", "cell", "token", "7", "owner", "a/1", "at", "99"];
        let (cv, body) = (cv.to_string(), format!(r#"{{"n":{cv}}}"#));
        let kept = ["caller", "ann", "id", &body, "digest", "d1", "answer", "{}"];
        world.redis(&[&entry[..], &["entry", &body, "cv", &cv], &kept].concat()).await;
    }
}

/// What `fill` appended under this version.
fn filled(id: &str, cv: u64) -> LaneEntry {
    let body = format!(r#"{{"n":{cv}}}"#);
    let text = str::to_owned;
    LaneEntry {
        id: text(id),
        route: text(ROUTE),
        kind: text("cell"),
        at: RedisMillis::new(99),
        owner: text("a/1"),
        token: FenceToken::new(7),
        cv: Some(cv),
        sv: None,
        entry: body.clone(),
        keep: Some(LaneAnswer { caller: text("ann"), id: body, digest: text("d1"), answer: text("{}") }),
    }
}

async fn read(world: &World, lanes: &[u16], limit: usize, total: usize) -> Vec<LaneRead> {
    world.scripts.lanes_read(&world.keys, lanes, limit, total).await.expect("an answer").1
}

async fn read_lane(world: &World, lane: u16) -> Vec<LaneEntry> {
    read(world, &[lane], 100_000, 100_000).await.remove(0).entries
}

fn versions(entries: &[LaneEntry]) -> Vec<u64> {
    entries.iter().map(LaneEntry::version).collect()
}

fn ids(entries: &[LaneEntry]) -> Vec<&str> {
    entries.iter().map(|it| it.id.as_str()).collect()
}

async fn take(world: &World, me: &Instance, lane: u16) -> HeldLane {
    let acquired = world.scripts.lease_acquire(&world.keys, &lane_lease(lane), me, LEASE_TTL).await;
    let Ok(Acquired::Ok { token, .. }) = acquired else { panic!("{acquired:?}") };
    HeldLane { lane, token }
}

const fn took(held: HeldLane, batches: u64, entries: Vec<&str>) -> ArchivedLane<'_> {
    ArchivedLane { held, batches, entries }
}

async fn archive(
    world: &World,
    me: &Instance,
    keep: (Duration, usize),
    lanes: &[ArchivedLane<'_>],
) -> Vec<u16> {
    world.scripts.lanes_archived(&world.keys, me, keep, lanes).await.expect("an answer")
}

async fn kept(world: &World, lane: u16) -> (u64, Vec<LaneEntry>) {
    world.scripts.lanes_kept(&world.keys, lane, None, 100_000).await.expect("an answer")
}

async fn facts(world: &World, facts: &[(&str, &str)]) -> Vec<(String, String)> {
    world.scripts.facts(&world.keys, facts).await.expect("an answer").into_iter().collect()
}

on_both! {
    async fn i_13_answers_that_were_lost_are_put_back_for_what_is_left_of_their_day(world: &World) {
        let now = u64::try_from(world.now_ms().await).unwrap();
        let kept = |id: &str, answer: &str| LaneAnswer {
            caller: "ann".into(), id: id.into(), digest: "d".into(), answer: answer.into(),
        };
        let hour = 3_600_000;
        let (there, lost, old) = (kept("there", "1"), kept("lost", "2"), kept("old", "3"));
        let restore = async |answers: &[(&LaneAnswer, u64)]| {
            let answers = answers.iter().map(|(kept, at)| (*kept, RedisMillis::new(*at)));
            world.scripts.answers_restore(&world.keys, &world.room, answers).await.expect("an answer")
        };
        assert_eq!(restore(&[(&there, now)]).await, 1);
        let other = kept("there", "another");
        assert_eq!(restore(&[(&other, now), (&lost, now - 20 * hour), (&old, now - 25 * hour)]).await, 1);
        let answer = async |id: &str| world.scripts.answer(&world.keys, &world.room, "ann", id).await.unwrap();
        assert_eq!(answer("there").await, Some(("d".to_owned(), "1".to_owned())), "what is there stays");
        assert_eq!(answer("lost").await, Some(("d".to_owned(), "2".to_owned())));
        assert_eq!(answer("old").await, None);
        let left = world.ttl_ms(&world.keys.answer(&world.room, "ann", "lost")).await;
        assert!(left > 0 && left <= 4 * 3_600_000, "{left}");
    }

    async fn i_14_the_oldest_entries_of_lanes_are_read_in_the_order_asked_for(world: &World) {
        fill(world, 3, 1..=5).await;
        fill(world, 7, 11..=13).await;
        let before = world.keyspace().await;
        let found = |read: Vec<LaneRead>| {
            read.iter().map(|it| (it.length, versions(&it.entries))).collect::<Vec<_>>()
        };
        let lanes = [7, 9, 3];
        assert_eq!(found(read(world, &lanes, 10, 10).await), [
            (3, vec![11, 12, 13]),
            (0, vec![]),
            (5, vec![1, 2, 3, 4, 5]),
        ]);
        assert_eq!(found(read(world, &lanes, 2, 10).await), [(3, vec![11, 12]), (0, vec![]), (5, vec![1, 2])]);
        assert_eq!(found(read(world, &lanes, 10, 4).await), [(3, vec![11, 12, 13]), (0, vec![]), (5, vec![1])]);
        assert_eq!(found(read(world, &lanes, 2, 3).await), [(3, vec![11, 12]), (0, vec![]), (5, vec![1])]);
        assert_eq!(found(read(world, &lanes, 10, 0).await), [(3, vec![]), (0, vec![]), (5, vec![])]);
        assert_eq!(found(read(world, &lanes, 0, 10).await), [(3, vec![]), (0, vec![]), (5, vec![])]);
        assert_eq!(found(read(world, &[], 10, 10).await), []);
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_14_an_entry_is_read_with_all_that_was_written_and_redis_says_its_time(world: &World) {
        fill(world, 3, 1..=1).await;
        let earliest = world.now_ms().await;
        let (now, lanes) = world.scripts.lanes_read(&world.keys, &[3], 10, 10).await.unwrap();
        let now = i64::try_from(now.as_u64()).unwrap();
        assert!((earliest..=world.now_ms().await).contains(&now));
        let id = world.redis(&["XRANGE", &world.keys.lane_at(3).to_string(), "-", "+"]).await.items()[0].items()[0].text();
        assert_eq!(lanes, [LaneRead { length: 1, entries: vec![filled(&id, 1)] }]);
    }

    async fn i_14_what_the_ledger_has_leaves_its_lane_and_is_kept_and_nothing_else_does(world: &World) {
        let me = world.register("a").await;
        let held = take(world, &me, 3).await;
        fill(world, 3, 1..=5).await;
        fill(world, 4, 1..=2).await;
        let entries = read_lane(world, 3).await;
        let id = |at: usize| entries[at].id.as_str();
        for _twice in 0..2 {
            let lost = archive(world, &me, KEEP, &[took(held, 17, vec![id(0), id(1), id(3)])]).await;
            assert_eq!(lost, [0_u16; 0]);
            assert_eq!(versions(&read_lane(world, 3).await), [3, 5]);
            assert_eq!(read_lane(world, 4).await.len(), 2);
            let (batches, copies) = kept(world, 3).await;
            assert_eq!((batches, versions(&copies)), (17, vec![1, 2, 4]));
            assert_eq!(copies[2], filled(&copies[2].id, 4));
            let life = world.ttl_ms(&world.keys.lane_kept(3)).await;
            assert!((1..=60_000).contains(&life), "{life}");
        }
        // A batch of which nothing was left in the lane.
        assert_eq!(archive(world, &me, KEEP, &[took(held, 18, vec![])]).await, [0_u16; 0]);
        assert_eq!((kept(world, 3).await.0, read_lane(world, 3).await.len()), (18, 2));
        let checkpoints = world.redis(&["HGETALL", &world.keys.checkpoints().to_string()]).await.texts();
        assert_eq!(checkpoints, ["3", "18"]);
    }

    async fn i_14_a_lost_lease_costs_its_lane_and_no_other(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let mut lanes = Vec::new();
        for lane in 0..5 {
            fill(world, lane, 1..=2).await;
            let held = take(world, if lane == 2 { &b } else { &a }, lane).await;
            lanes.push((held, read_lane(world, lane).await));
        }
        lanes[1].0.token = other_than(lanes[1].0.token);
        world.redis(&["PEXPIRE", &world.keys.lease(&lane_lease(3)).to_string(), "20"]).await;
        e2e::wait::until("the lease ends", e2e::wait::SOON, || async {
            !world.exists(&world.keys.lease(&lane_lease(3))).await
        }).await;
        let all: Vec<_> = lanes.iter().map(|(held, entries)| took(*held, 5, ids(entries))).collect();
        let before = world.keyspace().await;
        assert_eq!(archive(world, &a, KEEP, &all[1..4]).await, [1, 2, 3]);
        assert_eq!(world.keyspace().await, before, "a wrong token, another's lease, an ended one");

        assert_eq!(archive(world, &a, KEEP, &all).await, [1, 2, 3]);
        for lane in 0..5 {
            let goes = lane == 0 || lane == 4;
            assert_eq!(read_lane(world, lane).await.is_empty(), goes, "{lane}");
            let (batches, copies) = kept(world, lane).await;
            assert_eq!((batches, copies.len()), if goes { (5, 2) } else { (0, 0) }, "{lane}");
        }
    }

    async fn i_17_what_is_kept_is_bounded_by_number_and_by_time_and_has_an_end(world: &World) {
        let me = world.register("a").await;
        let held = take(world, &me, 3).await;
        let name = world.keys.lane_kept(3);
        let key = name.to_string();
        // Old as the clock goes, and a whole piece of the stream each hundred.
        for n in 1..=300 {
            world.redis(&["XADD", &key, &format!("1-{n}"), "entry", "old"]).await;
        }
        fill(world, 3, 1..=1).await;
        let entries = read_lane(world, 3).await;
        archive(world, &me, KEEP, &[took(held, 1, ids(&entries))]).await;
        let copies = kept(world, 3).await.1;
        assert!(copies.len() <= 101, "{} are kept, only the last piece may hold older ones", copies.len());
        assert_eq!(copies.last().map(LaneEntry::version), Some(1));

        fill(world, 3, 2..=451).await;
        let entries = read_lane(world, 3).await;
        archive(world, &me, (KEEP.0, 50), &[took(held, 2, ids(&entries))]).await;
        let copies = kept(world, 3).await.1;
        assert!((50..=150).contains(&copies.len()), "{}", copies.len());
        assert_eq!(copies.last().map(LaneEntry::version), Some(451), "the newest stay");

        fill(world, 3, 452..=452).await;
        world.redis(&["PEXPIRE", &key, "5000"]).await;
        let entries = read_lane(world, 3).await;
        archive(world, &me, KEEP, &[took(held, 3, ids(&entries))]).await;
        assert!((5001..=60_000).contains(&world.ttl_ms(&name).await), "the newest copy counts");

        world.redis(&["DEL", &key]).await;
        fill(world, 3, 453..=453).await;
        let entries = read_lane(world, 3).await;
        archive(world, &me, (KEEP.0, 0), &[took(held, 4, ids(&entries))]).await;
        assert!(read_lane(world, 3).await.is_empty() && !world.exists(&name).await, "nothing is to be kept");
    }

    async fn i_14_thousands_of_entries_go_at_once(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        world.redis(&["PERSIST", &world.names.owner.to_string()]).await;
        let commands = vec![Committing { entry: Some("1"), ..Committing::default() }; 3000];
        let none = CellChanges::default();
        for batch in 0..3 {
            let (name, cv) = (batch.to_string(), 1 + 3000 * batch);
            let with = Commit { batch: &name, ..world.commit(&me, token, cv, &commands, &none) };
            let committed = world.scripts.commit(&world.keys, with).await;
            assert!(matches!(committed, Ok(Committed::Ok { .. })), "{committed:?}");
        }
        let lane = lane_of(world.room.route());
        let other = (lane + 1) % 64;
        fill(world, other, 1..=1).await;
        let (first, second) = (take(world, &me, lane).await, take(world, &me, other).await);
        let (many, one) = (read_lane(world, lane).await, read_lane(world, other).await);
        assert_eq!(versions(&many), (1..=9001).collect::<Vec<_>>());
        let keep = (KEEP.0, 100_000);
        let lost = archive(world, &me, keep, &[took(first, 1, ids(&many)), took(second, 2, ids(&one))]).await;
        assert_eq!(lost, [0_u16; 0]);
        for (lane, batches, count) in [(lane, 1, 9001), (other, 2, 1)] {
            assert_eq!(read(world, &[lane], 1, 1).await, [LaneRead { length: 0, entries: vec![] }]);
            let (found, copies) = kept(world, lane).await;
            assert_eq!((found, copies.len()), (batches, count));
        }
    }

    async fn i_14_what_is_kept_is_read_page_by_page(world: &World) {
        let me = world.register("a").await;
        let held = take(world, &me, 3).await;
        fill(world, 3, 1..=5).await;
        let entries = read_lane(world, 3).await;
        archive(world, &me, KEEP, &[took(held, 9, ids(&entries))]).await;
        let before = world.keyspace().await;
        let (mut after, mut pages) = (None, Vec::new());
        loop {
            let page = world.scripts.lanes_kept(&world.keys, 3, after.as_deref(), 2).await.unwrap();
            assert_eq!(page.0, 9);
            let Some(last) = page.1.last() else { break };
            after = Some(last.id.clone());
            pages.push(versions(&page.1));
        }
        assert_eq!(pages, [vec![1, 2], vec![3, 4], vec![5]]);
        assert_eq!(world.scripts.lanes_kept(&world.keys, 4, None, 2).await.unwrap(), (0, vec![]));
        assert_eq!(world.keyspace().await, before);
    }

    async fn one_key_of_another_type_costs_its_lane_and_no_other(world: &World) {
        let me = world.register("a").await;
        let mut lanes = Vec::new();
        for lane in 0..4 {
            fill(world, lane, 1..=2).await;
            lanes.push((take(world, &me, lane).await, read_lane(world, lane).await));
        }
        let all: Vec<_> = lanes.iter().map(|(held, entries)| took(*held, 5, ids(entries))).collect();
        let keys = [world.keys.lease(&lane_lease(0)), world.keys.lane_at(1), world.keys.lane_kept(2)];
        for (key, write) in keys.iter().zip(["SADD", "SET", "SET"]) {
            world.redis(&["DEL", &key.to_string()]).await;
            world.redis(&[write, &key.to_string(), "x"]).await;
        }
        let lengths = async || {
            let read = read(world, &[0, 1, 2, 3], 1, 10).await;
            read.iter().map(|it| (it.length, it.entries.len())).collect::<Vec<_>>()
        };
        assert_eq!(lengths().await, [(2, 1), (0, 0), (2, 1), (2, 1)]);
        assert_eq!(archive(world, &me, KEEP, &all).await, [0]);
        assert_eq!(lengths().await, [(2, 1), (0, 0), (0, 0), (0, 0)]);
        assert_eq!(kept(world, 3).await.1.len(), 2);
        assert_eq!(world.get(&keys[2]).await, "x");
        for key in keys {
            world.redis(&["DEL", &key.to_string()]).await;
        }
    }

    async fn i_14_a_fact_is_what_its_first_writer_said(world: &World) {
        let pairs = |facts: &[(&str, &str)]| {
            facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(facts(world, &[]).await, []);
        let first = [("lanes", "64"), ("ledger", "one")];
        assert_eq!(facts(world, &first).await, pairs(&first));
        let stands = [("hash", "b"), ("lanes", "64"), ("ledger", "one")];
        for _twice in 0..2 {
            assert_eq!(facts(world, &[("ledger", "two"), ("lanes", "128"), ("hash", "b")]).await, pairs(&stands));
        }
        assert_eq!(facts(world, &[]).await, pairs(&stands));
        assert_eq!(world.redis(&["PTTL", &world.keys.facts().to_string()]).await, Value::Integer(-1));
    }
}
