//! Who has what, and whose word counts.

use ledger::outbox::{Recorded, State, TryResult};
use std::time::Duration;

use super::super::life::APP;
use super::{HOOK, Outside, TAP, at, versions};

#[tokio::test]
async fn i_15_events_of_a_room_are_claimed_one_after_the_other() {
    let mut outside = Outside::new(2).await;
    outside.happens(0..2, 2).await;
    let first = outside.claims(HOOK, 1, 100, 10).await;
    assert_eq!(versions(&first), [("room 0".to_owned(), 1), ("room 1".to_owned(), 1)]);
    assert_eq!(outside.claims(HOOK, 1, 100, 10).await, [], "both rooms are claimed");
    assert_eq!(outside.records(HOOK, 2, &first[0], TryResult::Delivered).await, Recorded::Ok);
    let second = outside.claims(HOOK, 2, 100, 10).await;
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].queue, first[0].queue, "the other room is under way");
    assert!(second[0].seq > first[0].seq);
    for claimed in [&second[0], &first[1]] {
        assert_eq!(outside.records(HOOK, 3, claimed, TryResult::Delivered).await, Recorded::Ok);
    }
    let third = outside.claims(HOOK, 3, 100, 10).await;
    assert_eq!(outside.records(HOOK, 4, &third[0], TryResult::Delivered).await, Recorded::Ok);
    let queues = "SELECT COUNT(*) FROM outbox_queue WHERE sink = 'hook'";
    assert_eq!(outside.world.count(queues).await, 0, "what is empty is gone");
    outside.happens(0..1, 1).await;
    assert_eq!(
        versions(&outside.claims(HOOK, 5, 100, 10).await),
        [("room 0".to_owned(), 3)],
        "and comes again"
    );
}

#[tokio::test]
async fn a_sink_without_order_has_all_at_once() {
    let mut outside = Outside::new(2).await;
    outside.happens(0..2, 3).await;
    let all = outside.claims(TAP, 1, 100, 100).await;
    assert_eq!(all.len(), 6);
    assert_eq!(outside.claims(HOOK, 1, 100, 1).await.len(), 1, "as many as wanted, for each sink");
    assert_eq!(outside.claims(HOOK, 1, 100, 5).await.len(), 1);
}

#[tokio::test]
async fn i_15_a_claim_that_is_over_is_worth_nothing() {
    let mut outside = Outside::new(1).await;
    outside.happens(0..1, 2).await;
    let first = outside.claims(HOOK, 1, 100, 10).await;
    assert_eq!(outside.claims(HOOK, 100, 200, 10).await, [], "it is over when its time has passed");
    let second = outside.claims(HOOK, 101, 200, 10).await;
    assert_eq!((&second[0].id, second[0].failed), (&first[0].id, 0), "nobody knows what came of it");
    let again = || TryResult::Again { after: Duration::ZERO, why: "no".to_owned() };
    for result in [TryResult::Delivered, again(), TryResult::Failed { why: "no".to_owned() }] {
        assert_eq!(outside.records(HOOK, 102, &first[0], result).await, Recorded::Late);
    }
    assert_eq!(outside.claims(HOOK, 102, 200, 10).await, [], "the second one stands");
    assert_eq!(outside.world.ledger.outbox_list(APP, State::Failed, None, 10).await.unwrap(), []);
    assert_eq!(outside.records(HOOK, 103, &second[0], TryResult::Delivered).await, Recorded::Ok);
    assert_eq!(
        outside.records(HOOK, 104, &second[0], TryResult::Delivered).await,
        Recorded::Late,
        "it was recorded"
    );
    let third = outside.claims(HOOK, 104, 200, 10).await;
    assert_eq!(versions(&third), [("room 0".to_owned(), 2)]);
    assert_eq!(outside.records(HOOK, 105, &second[0], TryResult::Delivered).await, Recorded::Late);
    assert_eq!(outside.records(HOOK, 106, &third[0], TryResult::Delivered).await, Recorded::Ok);
}

#[tokio::test]
async fn a_failed_try_waits_and_holds_its_room_back() {
    let mut outside = Outside::new(2).await;
    outside.happens(0..2, 2).await;
    let first = outside.claims(HOOK, 1, 100, 10).await;
    let again = |ms| TryResult::Again {
        after: Duration::from_millis(ms),
        why: "the receiver answered 500".to_owned(),
    };
    let (a, b) = (&first[0], &first[1]);
    assert_eq!(outside.records(HOOK, 2, a, again(50)).await, Recorded::Ok);
    assert_eq!(outside.records(HOOK, 2, b, TryResult::Delivered).await, Recorded::Ok);
    let next = outside.claims(HOOK, 2, 100, 10).await;
    assert_eq!(next.iter().map(|it| &it.queue).collect::<Vec<_>>(), [&b.queue], "the other room goes on");
    assert_eq!(outside.claims(HOOK, 51, 100, 10).await, []);
    let retried = outside.claims(HOOK, 52, 100, 10).await;
    assert_eq!((&retried[0].id, retried[0].failed), (&a.id, 1));
    let listed = outside.world.ledger.outbox_list(APP, State::Open, None, 100).await.unwrap();
    let listed = listed.iter().find(|it| it.seq == a.seq).unwrap();
    assert_eq!((listed.attempts, listed.last_error.as_deref()), (1, Some("the receiver answered 500")));
}

#[tokio::test]
async fn what_was_archived_again_is_not_sent_again() {
    let mut outside = Outside::new(1).await;
    outside.happens(0..1, 1).await;
    let claimed = outside.claims(HOOK, 1, 100, 10).await;
    assert_eq!(outside.records(HOOK, 2, &claimed[0], TryResult::Delivered).await, Recorded::Ok);
    let entries = outside.rooms[0].entries.clone();
    outside.world.archiver.feeds(&entries).await;
    assert_eq!(outside.claims(HOOK, 3, 100, 10).await, []);
}

#[tokio::test]
async fn the_backlog_says_what_waits_where_and_since_when() {
    let mut outside = Outside::new(2).await;
    assert_eq!(outside.world.ledger.outbox_backlog().await.unwrap(), []);
    outside.happens(0..2, 3).await;
    let claimed = outside.claims(HOOK, 1, 100, 10).await;
    outside.records(HOOK, 2, &claimed[0], TryResult::Delivered).await;
    outside.records(HOOK, 2, &claimed[1], TryResult::Failed { why: "no".to_owned() }).await;
    let backlog = outside.world.ledger.outbox_backlog().await.unwrap();
    let found: Vec<_> = backlog.iter().map(|it| (it.sink.as_str(), it.state, it.events)).collect();
    assert_eq!(found, [(HOOK, State::Open, 4), (TAP, State::Open, 6), (HOOK, State::Failed, 1)]);
    assert!(backlog.iter().all(|it| it.oldest >= at(0) && it.oldest < at(60_000)));
}
