//! Calls that take too long, and calls that are broken off.

use std::time::Duration;

use ledger::{Before, Ledger, LedgerError, Options};
use sqlx::Executor;

use super::life::Life;
use super::world::{Archiver, NOW, World};
use crate::KIND;
use crate::databases::Kind;

pub(crate) const QUICK: Options = Options { deadline: Duration::from_millis(500), connections: 4 };

/// Asserts that writing fails, and may not for long.
pub(crate) async fn cannot_write(ledger: &Ledger, life: &Life) {
    let archiver = Archiver::new(ledger, 1);
    let batch = ledger::LaneBatch {
        lane: key_prefix::lane_of(life.room.route()),
        token: archiver.token,
        batches: 1,
        entries: life.entries.clone(),
        poison: Vec::new(),
    };
    let outcome = ledger.archive(&[batch], &archiver.subscriptions, NOW).await;
    assert!(matches!(outcome, Err(LedgerError::Unavailable(_))), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_longer_than_the_deadline_for_a_lane_is_told_so() {
    let mut world = World::new().await;
    let ledger = Ledger::open(&world.database.url, &QUICK).await.unwrap();
    let life = Life::open("room", 1);
    world.archiver.feeds(&life.entries).await;
    let mut beside = world.database.connect().await.expect("a connection");
    let begin = if KIND == Kind::Sqlite { "BEGIN IMMEDIATE" } else { "BEGIN" };
    beside.execute(begin).await.unwrap();
    beside.execute("UPDATE lanes SET at_ms = at_ms + 1").await.unwrap();
    cannot_write(&ledger, &life).await;
    // Reading goes on, and so does everything once the lock is gone.
    assert!(ledger.head(&life.room).await.unwrap().is_some());
    beside.execute("ROLLBACK").await.unwrap();
    assert_eq!(world.archiver.feeds(&life.entries).await.repeated, 2);
    world.has(&life).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i_14_an_archive_that_is_cancelled_anywhere_takes_effect_wholly_or_not_at_all() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 1);
    life.lives(150);
    let batches = world.archiver.batches(&life.entries).await;
    for ms in 0..40 {
        let archive = world.ledger.archive(&batches, &world.archiver.subscriptions, NOW);
        drop(tokio::time::timeout(Duration::from_millis(ms), archive).await);
        // What was broken off is in nobody's way.
        let rows = world.ledger.timeline(&life.room, Before::Everything, 500).await.unwrap().len();
        assert!(rows == 0 || rows == life.entries.len(), "{rows} rows");
    }
    world.archiver.claims(batches[0].lane).await;
    world.archiver.feeds(&life.entries).await;
    world.has(&life).await;
}
