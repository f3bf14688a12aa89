//! Each entry takes effect once, whoever feeds it, how often, and in which order.

use ledger::{Archived, Before, Claimed, LaneOutcome};
use redis_scripts::FenceToken;
use room_cell::{Actor, Command};

use super::life::Life;
use super::world::{Archiver, NOW, World};

#[tokio::test]
async fn i_14_what_is_fed_again_changes_nothing() {
    let mut world = World::new().await;
    let mut lives: Vec<Life> = (0..6).map(|n| Life::open(&format!("room {n}"), n)).collect();
    lives.iter_mut().for_each(|life| life.lives(60));
    let entries: Vec<_> =
        (0..62).flat_map(|n| lives.iter().filter_map(move |life| life.entries.get(n).cloned())).collect();
    for batch in entries.chunks(50) {
        let archived = world.archiver.feeds(batch).await;
        assert_eq!((archived.written, archived.repeated), (batch.len() as u64, 0));
        assert_eq!((archived.superseded, archived.forks, archived.aside, archived.gaps.len()), (0, 0, 0, 0));
    }
    let rows = world.count("SELECT COUNT(*) FROM log").await;
    let events = world.count("SELECT COUNT(*) FROM outbox").await;
    let queued = world.count("SELECT COUNT(*) FROM outbox_queue WHERE sink = 'hook'").await;
    assert_eq!(rows, i64::try_from(entries.len()).unwrap());
    assert!(events > 100 && queued == 6, "{events} {queued}");
    let heads = world.count("SELECT COUNT(*) FROM rooms WHERE gap = 0").await;
    assert_eq!(heads, 6);

    // All at once, backwards by batches, and twice in one batch.
    let mut again = entries.clone();
    again.extend(entries.iter().rev().cloned());
    let backwards = entries.chunks(7).rev().flatten().cloned().collect::<Vec<_>>();
    for entries in [&again, &backwards] {
        let archived = world.archiver.feeds(entries).await;
        let batches = archived.batches;
        let expected = Archived { batches, repeated: entries.len() as u64, ..Archived::default() };
        assert_eq!(archived, expected);
    }
    assert_eq!(world.count("SELECT COUNT(*) FROM log").await, rows);
    assert_eq!(world.count("SELECT COUNT(*) FROM outbox").await, events);
    for life in &lives {
        world.has(life).await;
    }
}

#[tokio::test]
async fn i_14_the_holder_of_an_older_token_writes_nothing() {
    let mut world = World::new().await;
    let life = Life::open("room", 1);
    let lane = key_prefix::lane_of(life.room.route());
    let stalled = world.archiver.batches(&life.entries).await;
    let mut successor = Archiver::new(&world.ledger, 2);
    assert_eq!(successor.claims(lane).await, Claimed::Ok { batches: 0 });
    let fenced = LaneOutcome::Fenced { token: FenceToken::new(2) };
    let outcome = world.ledger.archive(&stalled, &world.archiver.subscriptions, NOW).await.unwrap();
    assert_eq!(outcome, [fenced]);
    assert_eq!(world.archiver.claims(lane).await, Claimed::Fenced { token: FenceToken::new(2) });
    assert_eq!(world.count("SELECT COUNT(*) FROM log").await, 0);
    assert_eq!(world.ledger.head(&life.room).await.unwrap(), None);

    // Other lanes of the same call are not held up.
    let other = (0..64).map(|n| Life::open(&format!("other {n}"), 1));
    let other = other.into_iter().find(|it| key_prefix::lane_of(it.room.route()) != lane).unwrap();
    let mut both = stalled.clone();
    both.extend(world.archiver.batches(&other.entries).await);
    let outcomes = world.ledger.archive(&both, &world.archiver.subscriptions, NOW).await.unwrap();
    assert!(matches!(outcomes[..], [LaneOutcome::Fenced { .. }, LaneOutcome::Archived(_)]), "{outcomes:?}");
    world.has(&other).await;
    assert_eq!(successor.feeds(&life.entries).await.written, 2);
    world.has(&life).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i_14_of_two_that_archive_a_lane_at_once_one_wins() {
    let mut world = World::new().await;
    for round in 0..10 {
        let mut life = Life::open(&format!("room {round}"), round);
        life.lives(20);
        let batches = world.archiver.batches(&life.entries).await;
        let archive = || world.ledger.archive(&batches, &world.archiver.subscriptions, NOW);
        let (one, other) = tokio::join!(archive(), archive());
        let outcomes = [one.unwrap().remove(0), other.unwrap().remove(0)];
        let won =
            outcomes.iter().filter(|it| matches!(it, LaneOutcome::Archived(it) if it.written == 22)).count();
        let lost = outcomes.iter().filter(|it| matches!(it, LaneOutcome::Moved { .. })).count();
        assert_eq!((won, lost), (1, 1), "{outcomes:?}");
        world.has(&life).await;
        world.archiver.claims(batches[0].lane).await;
    }
}

#[tokio::test]
async fn a_ledger_that_fell_back_says_where_it_stands() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 1);
    world.archiver.feeds(&life.entries).await;
    let kept = life.entries.clone();
    life.lives(5);
    let mut ahead = world.archiver.batches(&life.entries[2..]).await;
    ahead[0].batches = 7;
    let outcome = world.ledger.archive(&ahead, &world.archiver.subscriptions, NOW).await.unwrap();
    assert_eq!(outcome, [LaneOutcome::Moved { batches: 1 }]);
    // A lane that the ledger forgot altogether.
    ahead[0].token = FenceToken::new(9);
    let outcome = world.ledger.archive(&ahead, &world.archiver.subscriptions, NOW).await.unwrap();
    assert_eq!(outcome, [LaneOutcome::Moved { batches: 1 }]);
    assert_eq!(world.archiver.feeds(&kept).await.repeated, 2);
}

#[tokio::test]
async fn i_14_entries_of_an_owner_whose_time_was_over_are_kept_and_never_replayed() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 3);
    life.lives(10);
    let mut stalled = life.clone();
    stalled.lives(4);
    life.changes_hands();
    life.lives(10);
    world.archiver.feeds(&life.entries).await;
    let events = world.count("SELECT COUNT(*) FROM outbox").await;
    let archived = world.archiver.feeds(&stalled.entries[12..]).await;
    assert_eq!((archived.superseded, archived.written, archived.forks), (4, 0, 0));
    assert_eq!(world.archiver.feeds(&stalled.entries).await.repeated, 16);
    assert_eq!(world.count("SELECT COUNT(*) FROM log WHERE superseded = 1").await, 4);
    assert_eq!(world.count("SELECT COUNT(*) FROM outbox").await, events);
    world.has(&life).await;
    let rows = world.ledger.timeline(&life.room, Before::Everything, 100).await.unwrap();
    assert_eq!(rows.iter().filter(|row| row.superseded).count(), 4);
}

#[tokio::test]
async fn i_14_two_entries_of_one_position_are_a_fork_and_the_first_stands() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 3);
    let mut other = life.clone();
    life.lives(3);
    other.does(&Actor::Backend, Command::SetSeats { count: 9 });
    let fork: Vec<_> = other.entries[2..].to_vec();
    let archived = world.archiver.feeds(&life.entries).await;
    assert_eq!((archived.written, archived.forks), (5, 0));
    let archived = world.archiver.feeds(&fork).await;
    assert_eq!((archived.written, archived.forks, archived.superseded), (0, 1, 0));
    assert_eq!(world.archiver.feeds(&fork).await.repeated, 1);
    world.has(&life).await;
}
