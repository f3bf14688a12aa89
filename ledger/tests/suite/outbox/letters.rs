//! Dead letters.

use ledger::outbox::{Operated, Recorded, State, TryResult};
use serde_json::Value;

use super::super::life::APP;
use super::{HOOK, Outside, at, versions};

fn no() -> TryResult {
    TryResult::Failed { why: "the receiver is gone for good (410)".to_owned() }
}

#[tokio::test]
async fn i_15_a_dead_letter_blocks_nothing_and_is_never_lost() {
    let mut outside = Outside::new(1).await;
    outside.happens(0..1, 3).await;
    let first = outside.claims(HOOK, 1, 100, 10).await.remove(0);
    assert_eq!(outside.records(HOOK, 2, &first, no()).await, Recorded::Ok);
    let ledger = outside.world.ledger.clone();
    let listed = ledger.outbox_list(APP, State::Failed, None, 10).await.unwrap();
    let [letter] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((letter.seq, &letter.id, letter.sink.as_str()), (first.seq, &first.id, HOOK));
    assert_eq!((letter.attempts, letter.done_at), (1, Some(at(2))));
    assert_eq!(letter.last_error.as_deref(), Some("the receiver is gone for good (410)"));
    assert_eq!(
        ledger.outbox_list(APP, State::Failed, Some(letter.seq), 10).await.unwrap(),
        [],
        "the page below"
    );

    let second = outside.claims(HOOK, 3, 100, 10).await.remove(0);
    assert_eq!(versions(std::slice::from_ref(&second)), [("room 0".to_owned(), 2)], "the room goes on");

    // An operator opens it again while the next one is under way: it comes between that and the one after.
    assert_eq!(ledger.outbox_retry(APP, first.seq, at(4)).await.unwrap(), Operated::Done);
    assert_eq!(ledger.outbox_retry(APP, first.seq, at(4)).await.unwrap(), Operated::Stands(State::Open));
    assert_eq!(outside.claims(HOOK, 4, 100, 10).await, [], "one at a time");
    assert_eq!(outside.records(HOOK, 5, &second, TryResult::Delivered).await, Recorded::Ok);
    let again = outside.claims(HOOK, 6, 100, 10).await.remove(0);
    assert_eq!((again.seq, again.failed, again.out_of_order), (first.seq, 0, true));
    assert_eq!((again.at, again.since), (first.at, at(4)), "its time to be given up begins anew");
    assert_eq!(outside.records(HOOK, 7, &again, TryResult::Delivered).await, Recorded::Ok);
    let third = outside.claims(HOOK, 8, 100, 10).await.remove(0);
    assert_eq!(
        (versions(std::slice::from_ref(&third)), third.out_of_order),
        (vec![("room 0".to_owned(), 3)], false)
    );
    assert_eq!(outside.records(HOOK, 9, &third, TryResult::Delivered).await, Recorded::Ok);
    let delivered = ledger.outbox_list(APP, State::Delivered, None, 10).await.unwrap();
    assert_eq!(delivered.len(), 3);
    assert!(delivered.iter().all(|it| serde_json::from_str::<Value>(&it.payload).is_ok()));
}

#[tokio::test]
async fn a_dead_letter_of_an_empty_queue_opens_it_again() {
    let mut outside = Outside::new(1).await;
    outside.happens(0..1, 1).await;
    let first = outside.claims(HOOK, 1, 100, 10).await.remove(0);
    outside.records(HOOK, 2, &first, no()).await;
    assert_eq!(outside.claims(HOOK, 3, 100, 10).await, []);
    assert_eq!(outside.world.ledger.outbox_retry(APP, first.seq, at(3)).await.unwrap(), Operated::Done);
    assert_eq!(outside.claims(HOOK, 3, 100, 10).await[0].seq, first.seq);
}

#[tokio::test]
async fn a_dead_letter_is_dropped_only_by_an_operator_and_stays_known() {
    let mut outside = Outside::new(1).await;
    outside.happens(0..1, 2).await;
    let ledger = outside.world.ledger.clone();
    let first = outside.claims(HOOK, 1, 100, 10).await.remove(0);
    assert_eq!(ledger.outbox_drop(APP, first.seq, at(2)).await.unwrap(), Operated::Stands(State::Open));
    outside.records(HOOK, 2, &first, no()).await;
    assert_eq!(ledger.outbox_drop(APP, first.seq, at(3)).await.unwrap(), Operated::Done);
    assert_eq!(ledger.outbox_drop(APP, first.seq, at(3)).await.unwrap(), Operated::Stands(State::Dropped));
    assert_eq!(ledger.outbox_retry(APP, first.seq, at(3)).await.unwrap(), Operated::Stands(State::Dropped));
    assert_eq!(ledger.outbox_drop(APP, 999_999, at(3)).await.unwrap(), Operated::Missing);
    assert_eq!(ledger.outbox_retry(APP, 999_999, at(3)).await.unwrap(), Operated::Missing);
    let entries = outside.rooms[0].entries.clone();
    outside.world.archiver.feeds(&entries).await;
    let next = outside.claims(HOOK, 4, 100, 10).await;
    assert_eq!(versions(&next), [("room 0".to_owned(), 2)], "fed again it is not sent again");
}

#[tokio::test]
async fn an_operator_gives_up_what_holds_a_room_back() {
    let mut outside = Outside::new(1).await;
    outside.happens(0..1, 3).await;
    let ledger = outside.world.ledger.clone();
    let first = outside.claims(HOOK, 1, 100, 10).await.remove(0);
    let hour = TryResult::Again { after: std::time::Duration::from_secs(3600), why: "500".to_owned() };
    outside.records(HOOK, 2, &first, hour).await;
    assert_eq!(outside.claims(HOOK, 3, 100, 10).await, []);
    assert_eq!(ledger.outbox_fail(APP, first.seq, "by ann", at(3)).await.unwrap(), Operated::Done);
    assert_eq!(
        ledger.outbox_fail(APP, first.seq, "by ann", at(3)).await.unwrap(),
        Operated::Stands(State::Failed)
    );
    let second = outside.claims(HOOK, 4, 100, 10).await.remove(0);
    assert_eq!(versions(std::slice::from_ref(&second)), [("room 0".to_owned(), 2)]);

    // While it is under way: what comes of it is of no consequence, and the queue goes on.
    assert_eq!(ledger.outbox_fail(APP, second.seq, "by ann", at(5)).await.unwrap(), Operated::Done);
    assert_eq!(outside.claims(HOOK, 6, 100, 10).await, [], "one at a time all the same");
    assert_eq!(outside.records(HOOK, 7, &second, TryResult::Delivered).await, Recorded::Ok);
    assert_eq!(versions(&outside.claims(HOOK, 8, 100, 10).await), [("room 0".to_owned(), 3)]);
    let failed = ledger.outbox_list(APP, State::Failed, None, 10).await.unwrap();
    assert_eq!(failed.iter().map(|it| it.seq).collect::<Vec<_>>(), [second.seq, first.seq]);
    assert!(failed.iter().all(|it| it.last_error.as_deref() == Some("by ann")));
}
