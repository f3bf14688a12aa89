//! What is old and not needed goes, and what a recovery needs stays.

use redis_scripts::RedisMillis;
use room_cell::{Actor, Command};
use serde_json::json;

use super::life::Life;
use super::world::World;

const CLOSE: Command = Command::Close { reason: None };

/// Prunes until nothing goes any more; how much went.
async fn pruned(world: &World, before: u64) -> u64 {
    let mut all = 0;
    loop {
        match world.ledger.prune(Some(RedisMillis::new(before)), None, 1_000).await.expect("a ledger") {
            0 => return all,
            gone => all += gone,
        }
    }
}

#[tokio::test]
async fn rows_of_rooms_that_are_idle_go_once_they_are_old() {
    let mut world = World::new().await;
    // More than get a snapshot at once.
    let mut idle: Vec<Life> = (0..60).map(|n| Life::open(&format!("idle {n}"), n)).collect();
    idle.iter_mut().for_each(|life| life.lives(5));
    let old = idle.iter().map(|life| life.now).max().expect("some") + 1;
    let mut living = Life::open("living", 7);
    living.lives(20);
    living.now = old;
    let fed = living.entries.len();
    living.lives(10);
    let mut all: Vec<_> = idle.iter().flat_map(|life| life.entries.clone()).collect();
    all.extend(living.entries.clone());
    world.archiver.feeds(&all).await;
    // Few of them were closed, and have one.
    assert!(world.count("SELECT COUNT(*) FROM snapshots").await < 20);

    let early = living.entries[..fed].iter().filter(|entry| entry.at.as_u64() < old).count();
    let expected = idle.iter().map(|life| life.entries.len()).sum::<usize>() + early;
    assert_eq!(pruned(&world, old).await, expected as u64);
    assert_eq!(world.count("SELECT COUNT(*) FROM log").await, i64::try_from(all.len() - expected).unwrap());
    for life in idle.iter().chain([&living]) {
        world.has(life).await;
    }
    // They go on from there.
    for life in idle.iter_mut().chain([&mut living]) {
        let fed = life.entries.len();
        life.changes_hands();
        life.lives(3);
        let archived = world.archiver.feeds(&life.entries[fed..]).await;
        assert_eq!((archived.written, archived.gaps.len()), (3, 0));
        world.has(life).await;
    }
}

#[tokio::test]
async fn a_room_whose_log_has_a_hole_keeps_its_rows() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 5);
    for round in 0..3 {
        life.guests(&serde_json::Map::from_iter([("ann".to_owned(), json!({ "n": round }))]));
    }
    let mut holed = life.entries.clone();
    holed.remove(3);
    world.archiver.feeds(&holed).await;
    assert_eq!(pruned(&world, life.now + 1).await, 0);
    assert_eq!(world.archiver.feeds(&life.entries[3..4]).await.gaps, []);
    world.has(&life).await;
    assert_eq!(pruned(&world, life.now + 1).await, 5);
    world.has(&life).await;
}

#[tokio::test]
async fn prune_keeps_what_a_recovery_needs() {
    let mut world = World::new().await;
    let mut closed = Life::open("closed", 1);
    closed.lives(30);
    closed.does(&Actor::Backend, CLOSE);
    let mut open = Life::open("open", 2);
    open.lives(30);
    for life in [&closed, &open] {
        world.archiver.feeds(&life.entries).await;
    }
    let before = RedisMillis::new(closed.now.max(open.now) + 1);
    assert_eq!(
        world.ledger.prune(Some(before), Some(before), 10).await.unwrap(),
        10,
        "no more than it was told"
    );
    let mut gone = 10;
    loop {
        match world.ledger.prune(Some(before), Some(before), 100).await.unwrap() {
            0 => break,
            more => gone += more,
        }
    }
    assert_eq!(gone, (closed.entries.len() + open.entries.len()) as u64, "all that snapshots have");
    assert_eq!(world.count("SELECT COUNT(*) FROM log").await, 0);
    world.has(&closed).await;
    world.has(&open).await;
    assert!(world.count("SELECT COUNT(*) FROM outbox").await > 0);
    let mut beside = world.database.connect().await.expect("a connection");
    sqlx::Executor::execute(&mut beside, "UPDATE outbox SET state = 1, done_at = 5 WHERE sink = 'tap'")
        .await
        .unwrap();
    assert!(world.ledger.prune(None, Some(RedisMillis::new(6)), 1000).await.unwrap() > 0);
    assert_eq!(world.count("SELECT COUNT(*) FROM outbox WHERE sink = 'tap'").await, 0);
    assert!(world.count("SELECT COUNT(*) FROM outbox WHERE sink = 'hook'").await > 0);
    open.lives(5);
    world.archiver.feeds(&open.entries[32..]).await;
    world.has(&open).await;
}
