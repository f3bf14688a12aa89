//! Dispatchers at work.

use e2e::wait::{SOON, until};
use ledger::outbox::{Event, SinkOptions, State, Waits};
use ledger::sink::{Delivery, Outcome};
use redis_scripts::RedisMillis;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::life::APP;
use super::hands::{Around, HOUR, POLL, Told, at_once, delivered};
use super::{HOOK, Outside, TAP};

#[tokio::test]
async fn i_22_a_sink_that_hangs_delays_no_other_and_takes_no_more_than_it_may() {
    let mut outside = Outside::new(10).await;
    outside.happens(0..10, 3).await;
    let (hung, well) = (Told::hanging(), Told::willing());
    let around = Around::new();
    let options = SinkOptions { concurrency: 4, ..at_once() };
    let dispatcher = around.dispatcher(&outside, POLL).serve(HOOK, hung.clone(), options);
    let running = around.starts(dispatcher.serve(TAP, well.clone(), at_once()));
    delivered(&well, 30).await;
    until("as many as may", SOON, || async { hung.tries() == 4 }).await;
    outside.happens(0..10, 1).await;
    delivered(&well, 40).await;
    assert_eq!((hung.tries(), hung.most_under_way.load(Ordering::SeqCst)), (4, 4));
    running.abort();
}

#[tokio::test]
async fn i_15_a_sink_that_fails_now_and_then_has_every_room_in_order() {
    let mut outside = Outside::new(6).await;
    outside.happens(0..6, 10).await;
    let flaky = Told::new(|number, _| {
        if number % 3 == 1 {
            Outcome::Again { why: "no".to_owned(), after: None }
        } else {
            Outcome::Delivered
        }
    });
    let around = Around::new();
    let running = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, flaky.clone(), at_once()));
    delivered(&flaky, 60).await;
    around.stops(running).await;
    let rooms = flaky.by_room();
    assert_eq!(rooms.len(), 6);
    assert!(rooms.values().all(|versions| *versions == (1..=10).collect::<Vec<u64>>()), "{rooms:?}");
    assert_eq!(around.events(|event| matches!(event, Event::Delivered { .. })), 60);
    assert!(around.events(|event| matches!(event, Event::Retrying { .. })) > 20);
}

#[tokio::test]
async fn the_bell_wakes_it() {
    let mut outside = Outside::new(1).await;
    let (sink, around) = (Told::willing(), Around::new());
    let running = around.starts(around.dispatcher(&outside, HOUR).serve(TAP, sink.clone(), at_once()));
    for count in 1..4 {
        outside.happens(0..1, 1).await;
        around.bell.ring();
        delivered(&sink, count).await;
    }
    around.stops(running).await;
}

#[tokio::test]
async fn i_15_two_of_them_share_the_work() {
    let mut outside = Outside::new(8).await;
    outside.happens(0..8, 8).await;
    let (sink, around) = (Told::willing(), Around::new());
    let one = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, sink.clone(), at_once()));
    let two = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, sink.clone(), at_once()));
    delivered(&sink, 64).await;
    around.stops(one).await;
    around.stops(two).await;
    assert_eq!(sink.tries(), 64, "nobody failed, so nothing came twice");
    assert!(sink.by_room().values().all(|versions| *versions == (1..=8).collect::<Vec<u64>>()));
}

#[tokio::test]
async fn a_sink_that_only_fails_is_left_alone_until_one_try_succeeds() {
    let mut outside = Outside::new(30).await;
    outside.happens(0..30, 1).await;
    let well = Arc::new(AtomicBool::new(false));
    let sink = Told::new({
        let well = Arc::clone(&well);
        move |_, _| {
            if well.load(Ordering::SeqCst) {
                return Outcome::Delivered;
            }
            Outcome::Again { why: "the receiver answered 503".to_owned(), after: None }
        }
    });
    let around = Around::new();
    let waits = Waits { first: Duration::from_secs(10), ..Waits::default() };
    let options = SinkOptions { concurrency: 1, waits, breaker: 5 };
    let running = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, sink.clone(), options));
    let opened = |around: &Around| around.events(|event| matches!(event, Event::Opened { .. }));
    until("it is left alone", SOON, || async { opened(&around) == 1 }).await;
    assert_eq!(sink.tries(), 5);

    // Time passes: one try at a time, and each makes the pause longer.
    around.passes(10_001);
    until("one try", SOON, || async { sink.tries() == 6 }).await;
    well.store(true, Ordering::SeqCst);
    around.passes(60_001);
    delivered(&sink, 30).await;
    assert_eq!((opened(&around), around.events(|event| matches!(event, Event::Closed { .. }))), (1, 1));
    around.stops(running).await;
}

#[tokio::test]
async fn what_was_tried_often_enough_is_a_dead_letter_and_comes_out_of_order_when_it_is_retried() {
    let mut outside = Outside::new(1).await;
    outside.happens(0..1, 3).await;
    let first_fails = Told::new(|number, _| match number {
        0..3 => Outcome::Again { why: "the receiver answered 422".to_owned(), after: None },
        _ => Outcome::Delivered,
    });
    let around = Around::new();
    let waits = Waits { first: Duration::ZERO, attempts: 3, ..Waits::default() };
    let options = SinkOptions { waits, ..at_once() };
    let running = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, first_fails.clone(), options));
    delivered(&first_fails, 2).await;
    assert_eq!(first_fails.by_room()["room 0"], [2, 3]);
    let failed = outside.world.ledger.outbox_list(APP, State::Failed, None, 10).await.unwrap();
    assert_eq!((failed.len(), failed[0].attempts), (1, 3));
    assert_eq!(around.events(|event| matches!(event, Event::Failed { .. })), 1);
    let now = RedisMillis::new(around.clock.load(Ordering::SeqCst));
    outside.world.ledger.outbox_retry(APP, failed[0].seq, now).await.unwrap();
    delivered(&first_fails, 3).await;
    around.stops(running).await;
    let delivered = first_fails.delivered.lock().unwrap();
    let out_of_order = |delivery: &Delivery| {
        let payload: serde_json::Value = serde_json::from_str(&delivery.payload).expect("JSON");
        payload["outOfOrder"].as_bool()
    };
    assert_eq!(delivered.iter().map(out_of_order).collect::<Vec<_>>(), [None, None, Some(true)]);
    assert_eq!(delivered[2].id, failed[0].id);
}

#[tokio::test]
async fn after_a_day_an_event_is_given_up() {
    let mut outside = Outside::new(1).await;
    outside.happens(0..1, 1).await;
    let sink = Told::new(|_, _| Outcome::Again { why: "no".to_owned(), after: None });
    let around = Around::new();
    around.passes(86_400_000);
    let running = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, sink.clone(), at_once()));
    let given_up = |around: &Around| around.events(|event| matches!(event, Event::Failed { .. }));
    until("it is given up", SOON, || async { given_up(&around) == 1 }).await;
    around.stops(running).await;
    assert_eq!(sink.tries(), 1, "not without a try");
}

#[tokio::test]
async fn what_is_under_way_is_finished_and_recorded_before_it_ends() {
    let mut outside = Outside::new(3).await;
    outside.happens(0..3, 2).await;
    let (sink, around) = (Told::hanging(), Around::new());
    let running = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, sink.clone(), at_once()));
    until("all rooms are under way", SOON, || async { sink.tries() == 3 }).await;
    around.stop.cancel();
    sink.may.add_permits(100);
    tokio::time::timeout(SOON, running).await.expect("it stops").expect("it does not panic");
    assert_eq!((sink.tries(), sink.count()), (3, 3), "and nothing new is begun");
    let done = outside.world.ledger.outbox_list(APP, State::Delivered, None, 10).await.unwrap();
    assert_eq!(done.len(), 3);
}

#[tokio::test]
async fn i_15_what_a_killed_one_had_in_hand_comes_again_when_its_claim_is_over() {
    let mut outside = Outside::new(3).await;
    outside.happens(0..3, 1).await;
    let (hung, around) = (Told::hanging(), Around::new());
    let killed = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, hung.clone(), at_once()));
    until("all rooms are under way", SOON, || async { hung.tries() == 3 }).await;
    killed.abort();
    assert!(killed.await.is_err_and(|error| error.is_cancelled()));
    let well = Told::willing();
    let running = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, well.clone(), at_once()));
    outside.happens(0..3, 1).await;
    around.passes(64_999);
    let other = Told::willing();
    let others = around.starts(around.dispatcher(&outside, POLL).serve(TAP, other.clone(), at_once()));
    delivered(&other, 6).await;
    assert_eq!(well.tries(), 0, "the dead one's claims stand");
    around.passes(2);
    delivered(&well, 6).await;
    around.stops(running).await;
    around.stops(others).await;
    assert!(well.by_room().values().all(|versions| *versions == [1, 2]));
}

#[tokio::test]
async fn a_sink_that_panics_costs_nobody_else_anything() {
    let mut outside = Outside::new(2).await;
    outside.happens(0..2, 1).await;
    let panics = Told::new(|number, _| {
        assert!(number > 0, "the first try of all");
        Outcome::Delivered
    });
    let around = Around::new();
    let running = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, panics.clone(), at_once()));
    delivered(&panics, 1).await;
    around.passes(65_001);
    delivered(&panics, 2).await;
    around.stops(running).await;
}
