//! The log, folded, is what the room was.

use ledger::{Before, Change, Entry, RoomState};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis_scripts::{CellVersion, FenceToken, SettingsVersion};
use room_cell::{Actor, Command};
use serde_json::json;

use super::life::Life;
use super::world::{NOW, World};

const CLOSE: Command = Command::Close { reason: None };

/// What happens to a room between two of its batches.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Lives(usize),
    ChangesHands,
    IsRestored,
    IsFedAgain,
    Closes,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        6 => (1..120_usize).prop_map(Turn::Lives),
        2 => Just(Turn::ChangesHands),
        1 => Just(Turn::IsRestored),
        2 => Just(Turn::IsFedAgain),
        1 => Just(Turn::Closes),
    ];
    prop::collection::vec(turn, 1..14)
}

#[test]
fn i_14_folding_the_log_gives_what_the_owner_had_in_every_life() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let world = runtime.block_on(World::new());
    let number = std::cell::Cell::new(0);
    let config = Config { cases: 16, failure_persistence: None, max_shrink_iters: 40, ..Config::default() };
    let outcome = TestRunner::new(config).run(&(any::<u64>(), turns()), |(seed, turns)| {
        number.set(number.get() + 1);
        let mut life = Life::open(&format!("room {}", number.get()), seed);
        runtime.block_on(lives(&world, &mut life, &turns));
        Ok(())
    });
    outcome.expect("the same state");
    runtime.block_on(async {
        assert!(world.count("SELECT COUNT(*) FROM snapshots").await > 3);
    });
}

async fn lives(world: &World, life: &mut Life, turns: &[Turn]) {
    let mut archiver = world.archiver.clone();
    archiver.claims(key_prefix::lane_of(life.room.route())).await;
    archiver.feeds(&life.entries).await;
    let mut fed = life.entries.len();
    for turn in turns {
        match turn {
            Turn::Lives(entries) => life.lives(*entries),
            Turn::ChangesHands => life.changes_hands(),
            Turn::IsRestored => life.is_restored(),
            Turn::IsFedAgain => fed = fed.saturating_sub(30),
            Turn::Closes => drop(life.does(&Actor::Backend, CLOSE)),
        }
        // A token alone is no entry.
        if fed < life.entries.len() {
            archiver.feeds(&life.entries[fed..]).await;
            fed = life.entries.len();
        }
    }
    life.token = life.entries.last().map_or(life.token, |entry| entry.token.as_u64());
    world.has(life).await;
}

#[tokio::test]
async fn a_snapshot_is_made_every_200_rows_and_when_a_room_closes() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 5);
    while life.entries.len() < 199 {
        life.guests(&serde_json::Map::from_iter([("ann".to_owned(), json!({ "n": life.sv }))]));
    }
    world.archiver.feeds(&life.entries).await;
    assert_eq!(world.count("SELECT COUNT(*) FROM snapshots").await, 0);
    life.guests(&serde_json::Map::from_iter([("bob".to_owned(), json!({}))]));
    world.archiver.feeds(&life.entries[199..]).await;
    assert_eq!(world.count("SELECT cv * 1000 + sv FROM snapshots").await, 1199);
    assert_eq!(world.count("SELECT unfolded FROM rooms").await, 0);
    assert!(life.does(&Actor::Backend, CLOSE));
    world.archiver.feeds(&life.entries[200..]).await;
    assert_eq!(world.count("SELECT cv * 1000 + sv FROM snapshots").await, 2199);
    world.has(&life).await;
}

#[tokio::test]
async fn a_version_that_was_skipped_is_said_at_once() {
    let mut world = World::new().await;
    for (number, skipped) in [(0, 2..3), (1, 3..4)] {
        let mut life = Life::open(&format!("room {number}"), 5);
        for round in 0..3 {
            life.does(&Actor::Backend, Command::SetSeats { count: 5 + round });
            life.guests(&serde_json::Map::from_iter([("ann".to_owned(), json!({ "n": round }))]));
        }
        let mut entries = life.entries.clone();
        entries.drain(skipped);
        assert_eq!(world.archiver.feeds(&entries[..2]).await.gaps, []);
        assert_eq!(world.archiver.feeds(&entries[2..]).await.gaps, [life.room.clone()]);
        assert!(world.ledger.head(&life.room).await.unwrap().unwrap().gap);
    }
}

#[tokio::test]
async fn a_gap_is_said_until_what_was_missing_comes() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 5);
    life.lives(40);
    world.archiver.feeds(&life.entries[..10]).await;
    let archived = world.archiver.feeds(&life.entries[12..30]).await;
    assert_eq!((archived.written, archived.gaps), (18, vec![life.room.clone()]));
    let archived = world.archiver.feeds(&life.entries[30..]).await;
    assert_eq!(archived.gaps, [life.room.clone()]);
    assert!(world.ledger.head(&life.room).await.unwrap().unwrap().gap);
    assert!(world.ledger.room(&life.room).await.unwrap().unwrap().head.gap);
    assert_eq!(world.archiver.feeds(&life.entries[10..11]).await.gaps, [life.room.clone()]);
    let archived = world.archiver.feeds(&life.entries[11..12]).await;
    assert_eq!((archived.written, archived.gaps.len()), (1, 0));
    world.has(&life).await;
    assert_eq!(world.archiver.feeds(&life.entries).await.repeated, 42);
}

#[tokio::test]
async fn a_gap_is_said_until_the_owner_gives_a_snapshot() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 5);
    life.lives(40);
    world.archiver.feeds(&life.entries[2..20]).await;
    let put = async |token: u64, life: &Life| {
        let (cv, sv) = (CellVersion::new(life.cv()), SettingsVersion::new(life.sv));
        let put = world.ledger.put_snapshot(&life.room, FenceToken::new(token), &life.state, cv, sv, NOW);
        put.await.expect("a ledger")
    };
    assert!(put(1, &life).await, "ahead of what was archived");
    world.has(&life).await;
    let behind = Life::open("room", 5);
    assert!(!put(1, &behind).await && !put(0, &life).await);
    // What the lane still had.
    let told = world.count("SELECT COUNT(*) FROM outbox").await;
    let archived = world.archiver.feeds(&life.entries[20..30]).await;
    assert_eq!((archived.written, archived.forks, archived.gaps.len()), (10, 0, 0));
    assert!(world.count("SELECT COUNT(*) FROM outbox").await > told);
    // The rest of it, together with what came after.
    life.lives(10);
    let archived = world.archiver.feeds(&life.entries[30..]).await;
    assert_eq!((archived.written, archived.forks, archived.gaps.len()), (22, 0, 0));
    world.has(&life).await;
}

#[tokio::test]
async fn an_owner_that_went_on_from_an_earlier_state_leaves_a_gap() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 5);
    let mut fell_back = life.clone();
    life.lives(20);
    fell_back.changes_hands();
    fell_back.lives(3);
    world.archiver.feeds(&life.entries).await;
    let archived = world.archiver.feeds(&fell_back.entries[2..]).await;
    assert_eq!((archived.written, archived.gaps), (3, vec![life.room.clone()]));
    fell_back.does(&Actor::Backend, CLOSE);
    let archived = world.archiver.feeds(&fell_back.entries[5..]).await;
    assert_eq!(archived.gaps, [life.room.clone()], "a closed room is folded, and still lacks something");
    fell_back.is_restored();
    assert_eq!(world.archiver.feeds(&fell_back.entries[6..]).await.gaps, []);
    world.has(&fell_back).await;
}

/// What a ban does to the room's state.
fn ban(user: &str) -> Command {
    Command::Kick { user: user.into(), reason: None, ban_seconds: None }
}

#[tokio::test]
async fn what_an_owner_did_who_went_on_from_less_comes_on_top_of_what_was_known() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 5);
    let mut fell_back = life.clone();
    life.does(&Actor::Backend, ban("eve"));
    life.does(&Actor::Backend, Command::SetSeats { count: 5 });
    life.settings(&json!({ "custom": { "of": "first", "first": 1 } }));
    fell_back.changes_hands();
    fell_back.does(&Actor::Backend, ban("mallory"));
    fell_back.settings(&json!({ "custom": { "of": "second", "second": 1 } }));
    for count in [7, 6] {
        fell_back.does(&Actor::Backend, Command::SetSeats { count });
    }
    world.archiver.feeds(&life.entries).await;
    let (lane, token) = (&fell_back.entries[2..], FenceToken::new(fell_back.token));
    // However much of it the archiver has taken out of the lane meanwhile.
    for archived in 0..=lane.len() {
        world.archiver.feeds(&fell_back.entries[..2 + archived]).await;
        let before = world.ledger.before(&life.room, token).await.unwrap();
        assert_eq!(before, (CellVersion::new(life.cv()), SettingsVersion::new(life.sv)));
        let head = world.ledger.head(&life.room).await.unwrap().unwrap();
        assert_eq!(head.went_back, archived > 0, "{head:?}");
        let mut recovered = world.ledger.room(&life.room).await.unwrap().unwrap();
        assert_eq!(recovered.take_in(lane.to_vec()), 0);
        let RoomState { cell, settings, .. } = &recovered.state;
        let bans: Vec<&str> = cell.bans.keys().map(room_cell::UserId::as_str).collect();
        assert_eq!((bans, cell.seats.len(), cell.version), (vec!["eve", "mallory"], 6, 4), "{archived}");
        assert_eq!(settings["custom"], json!({ "of": "second", "first": 1, "second": 1 }), "{archived}");
    }
    // Of the owner who knew less nothing is taken that would hide what it did not know.
    let (cv, sv) = (CellVersion::new(fell_back.cv()), SettingsVersion::new(fell_back.sv + 9));
    let put = world.ledger.put_snapshot(&life.room, token, &fell_back.state, cv, sv, NOW);
    assert!(!put.await.unwrap());
    fell_back.is_restored();
    world.archiver.feeds(&fell_back.entries[6..]).await;
    assert!(!world.ledger.head(&life.room).await.unwrap().unwrap().went_back);
    world.has(&fell_back).await;
}

#[tokio::test]
async fn of_two_owners_who_did_not_know_of_each_other_comes_a_sound_room() {
    let mut world = World::new().await;
    for seed in 0..40 {
        let mut life = Life::open(&format!("room {seed}"), seed);
        life.lives(20);
        let mut fell_back = life.clone();
        let common = life.entries.len();
        life.lives(10);
        fell_back.changes_hands();
        fell_back.lives(1 + usize::try_from(seed).unwrap() % 20);
        world.archiver.feeds(&life.entries).await;
        let mut recovered = world.ledger.room(&life.room).await.unwrap().unwrap();
        recovered.take_in(fell_back.entries[common..].to_vec());
        let cell = &recovered.state.cell;
        let sitters: Vec<_> = cell.seats.values().filter_map(|seat| seat.sitter.as_ref()).collect();
        let users: std::collections::BTreeSet<_> = sitters.iter().map(|it| &it.user).collect();
        assert_eq!(users.len(), sitters.len(), "{seed}: {sitters:?}");
        assert!(users.iter().all(|user| cell.users.contains_key(*user)), "{seed}: {sitters:?}");
    }
}

#[tokio::test]
async fn i_25_a_whole_state_tells_what_nobody_logged() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 5);
    while life.state.cell.users.is_empty() {
        life.step();
    }
    world.archiver.feeds(&life.entries).await;
    let fed = life.entries.len();
    // What Redis lost: everybody left, and it is in no lane.
    let mut lost = life.clone();
    lost.does(&Actor::Backend, CLOSE);
    life.state = RoomState { settings: life.state.settings, guests: life.state.guests, ..lost.state };
    life.is_restored();
    let left = "SELECT COUNT(*) FROM outbox WHERE sink = 'hook' AND kind = 'user.left'";
    let before = world.count(left).await;
    world.archiver.feeds(&life.entries[fed..]).await;
    assert!(world.count(left).await > before);
    world.has(&life).await;
    let told = world.count("SELECT COUNT(*) FROM outbox").await;
    assert_eq!(world.archiver.feeds(&life.entries[fed..]).await.repeated, 1);
    assert_eq!(world.count("SELECT COUNT(*) FROM outbox").await, told);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_set_aside_and_blocks_nothing() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 5);
    life.lives(5);
    life.entries[3].body =
        r#"{"id":"x","actor":{"kind":"nobody"},"events":[{"event":"unheard_of"}]}"#.to_owned();
    life.entries[3].change = Change::Cell { cv: CellVersion::new(2) };
    let poison =
        ledger::Poison { entry: "7-0".to_owned(), fields: "{}".to_owned(), why: "no\0room".to_owned() };
    for _ in 0..2 {
        let archived = world.archiver.feeds_with(&life.entries, vec![poison.clone()]).await;
        assert_eq!((archived.written + archived.repeated, archived.aside), (6, 1));
    }
    assert_eq!(world.count("SELECT COUNT(*) FROM aside").await, 2);
}

#[tokio::test]
async fn a_room_is_recovered_with_what_waits_in_its_lane() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 5);
    life.lives(20);
    world.archiver.feeds(&life.entries).await;
    life.changes_hands();
    life.lives(20);
    let mut recovered = world.ledger.room(&life.room).await.unwrap().unwrap();
    assert_eq!(recovered.take_in(life.entries[10..].to_vec()), 0);
    world.archiver.feeds(&life.entries[22..]).await;
    assert_eq!(recovered.state, life.state);
    assert_eq!(recovered.head, world.ledger.head(&life.room).await.unwrap().unwrap());
}

#[tokio::test]
async fn answers_come_back_with_their_room_and_its_history_in_pages() {
    let mut world = World::new().await;
    let mut life = Life::open("room", 5);
    life.lives(30);
    world.archiver.feeds(&life.entries).await;
    let recovered = world.ledger.room(&life.room).await.unwrap().unwrap();
    let kept: Vec<_> = life.entries.iter().filter_map(|entry| entry.answer.clone()).collect();
    assert_eq!(recovered.answers.iter().map(|answer| answer.kept.clone()).collect::<Vec<_>>(), kept);

    let page = |before| world.ledger.timeline(&life.room, before, 20);
    let newest = page(Before::Everything).await.unwrap();
    let rest = page(Before::Archived(&newest[19].id)).await.unwrap();
    let ids: Vec<_> = newest.iter().chain(&rest).map(|row| row.id.clone()).collect();
    assert_eq!(ids, life.entries.iter().rev().map(Entry::id).collect::<Vec<_>>());
    let bodies: Vec<_> = newest.iter().chain(&rest).map(|row| &row.body).collect();
    assert_eq!(bodies, life.entries.iter().rev().map(|entry| &entry.body).collect::<Vec<_>>());
    // What is on its way is behind everything that is there; what was pruned is before it.
    assert_eq!(page(Before::Waiting(&newest[19].id)).await.unwrap(), rest);
    life.lives(1);
    let unknown = life.entries.last().unwrap().id();
    assert_eq!(world.ledger.timeline(&life.room, Before::Waiting(&unknown), 20).await.unwrap(), newest);
    assert_eq!(world.ledger.timeline(&life.room, Before::Archived(&unknown), 20).await.unwrap(), []);
    assert_eq!(world.ledger.room(&super::life::room("nowhere")).await.unwrap(), None);
}

#[tokio::test]
async fn heads_come_in_the_order_in_which_they_are_asked_for() {
    let mut world = World::new().await;
    let (mut one, mut two) = (Life::open("one", 5), Life::open("two", 7));
    one.lives(3);
    two.lives(1);
    world.archiver.feeds(&[one.entries.as_slice(), &two.entries].concat()).await;
    let nowhere = super::life::room("nowhere");
    let found = world.ledger.heads([&two.room, &nowhere, &one.room, &two.room]).await.unwrap();
    let alone = async |room| world.ledger.head(room).await.unwrap();
    let (one, two) = (alone(&one.room).await, alone(&two.room).await);
    assert!(one.is_some() && two.is_some() && one != two);
    assert_eq!(found, [two.clone(), None, one, two]);
}
