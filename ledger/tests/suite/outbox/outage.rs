//! A ledger that does not answer for a while.

use e2e::wait::{SOON, until};
use ledger::outbox::{Event, State};
use sqlx::Executor;

use super::super::life::APP;
use super::hands::{Around, POLL, Told, at_once, delivered};
use super::{HOOK, Outside};
use crate::KIND;
use crate::databases::Database;
use crate::suite::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn i_15_what_was_tried_while_the_ledger_was_away_is_recorded_when_it_is_back() {
    let mut outside = Outside::on(World::on(Database::alone(KIND).await).await, 3);
    outside.happens(0..3, 2).await;
    let (sink, around) = (Told::hanging(), Around::new());
    let running = around.starts(around.dispatcher(&outside, POLL).serve(HOOK, sink.clone(), at_once()));
    until("all rooms are under way", SOON, || async { sink.tries() == 3 }).await;
    let mut beside = outside.world.database.connect().await.expect("a connection");
    match outside.world.database.server() {
        Some(server) => server.pause(),
        None => drop(beside.execute("BEGIN IMMEDIATE").await.unwrap()),
    }
    sink.may.add_permits(100);
    let away = |event: &Event| matches!(event, Event::LedgerFailed { unavailable: true, .. });
    until("it is noticed", SOON, || async { around.events(away) > 0 }).await;
    assert_eq!((sink.tries(), sink.count()), (3, 3), "nothing is begun whose end could not be recorded");
    match outside.world.database.server() {
        Some(server) => server.resume(),
        None => drop(beside.execute("ROLLBACK").await.unwrap()),
    }
    delivered(&sink, 6).await;
    around.stops(running).await;
    assert_eq!(sink.tries(), 6, "each once");
    assert!(sink.by_room().values().all(|versions| *versions == [1, 2]));
    assert_eq!(outside.world.ledger.outbox_list(APP, State::Delivered, None, 10).await.unwrap().len(), 6);
}
