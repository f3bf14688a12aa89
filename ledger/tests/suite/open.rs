//! Opening: migrations, versions, and databases that cannot be used.

use ledger::{Ledger, LedgerError, OpenError, Options, SCHEMA, Subscriptions};
use sqlx::Executor;

use super::failing::QUICK;
use super::life::Life;
use super::world::{Archiver, World};
use crate::KIND;
use crate::databases::Database;

#[tokio::test(flavor = "multi_thread")]
async fn many_open_an_empty_database_at_once() {
    let database = Database::new(KIND).await;
    let options = Options::default();
    let openers = (0..6).map(|_| Ledger::open(&database.url, &options));
    for opened in futures_util::future::join_all(openers).await {
        opened.unwrap().close().await;
    }
}

#[tokio::test]
async fn what_is_up_to_date_is_opened_while_somebody_else_holds_the_lock_on_writing() {
    let database = Database::new(KIND).await;
    let ledger = Ledger::open(&database.url, &QUICK).await.unwrap();
    let facts = [("lanes", "64")];
    ledger.put_facts(&facts).await.unwrap();
    ledger.close().await;
    let mut frozen = database.connect().await.expect("a connection");
    let begin = if KIND == crate::databases::Kind::Sqlite { "BEGIN IMMEDIATE" } else { "BEGIN" };
    frozen.execute(begin).await.unwrap();
    frozen.execute("UPDATE facts SET value = '64' WHERE name = 'lanes'").await.unwrap();
    let ledger = Ledger::open(&database.url, &QUICK).await.unwrap();
    assert_eq!(ledger.put_facts(&facts).await.unwrap()["lanes"], "64");
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let database = Database::new(KIND).await;
    Ledger::open(&database.url, &Options::default()).await.unwrap().close().await;
    let mut beside = database.connect().await.expect("a connection");
    beside.execute("INSERT INTO ledger_schema (version) VALUES (99)").await.unwrap();
    match Ledger::open(&database.url, &Options::default()).await {
        Err(OpenError::Newer { found: 99, known: SCHEMA }) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_said_without_the_password() {
    let url = match KIND {
        crate::databases::Kind::Sqlite => "sqlite:///nowhere/at/all/ledger.db",
        crate::databases::Kind::Postgres => "postgres://dais:secret@127.0.0.1:1/dais",
        crate::databases::Kind::Mysql => "mysql://dais:secret@127.0.0.1:1/dais",
    };
    let error = Ledger::open(url, &QUICK).await.unwrap_err();
    assert!(matches!(error, OpenError::Ledger(LedgerError::Unavailable(_))), "{error:?}");
    assert!(!format!("{error:?} {error}").contains("secret"));
}

#[tokio::test]
async fn an_older_schema_is_brought_further_with_what_it_holds() {
    let database = Database::new(KIND).await;
    let mut life = Life::open("room", 1);
    life.lives(20);
    let old = Ledger::open_at(&database.url, &Options::default(), 1).await.unwrap();
    let mut archiver = Archiver::new(&old, 1);
    archiver.subscriptions = Subscriptions::default();
    archiver.feeds(&life.entries).await;
    old.put_facts(&[("lanes", "64")]).await.unwrap();
    old.close().await;

    let world = World::on(database).await;
    world.has(&life).await;
    assert_eq!(world.count("SELECT MAX(version) FROM ledger_schema").await, i64::try_from(SCHEMA).unwrap());
    life.lives(5);
    let mut archiver = Archiver::new(&world.ledger, 1);
    assert!(archiver.feeds(&life.entries).await.events > 0);
    world.has(&life).await;
}

#[tokio::test]
async fn of_facts_the_first_stand() {
    let world = World::new().await;
    assert!(world.ledger.facts().await.unwrap().is_empty());
    let first = world.ledger.put_facts(&[("lanes", "64"), ("ledger", "a")]).await.unwrap();
    let second = world.ledger.put_facts(&[("lanes", "32"), ("hash", "x")]).await.unwrap();
    assert_eq!(first.len(), 2);
    let expected = [("hash", "x"), ("lanes", "64"), ("ledger", "a")];
    assert_eq!(second.iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>(), expected);
    assert_eq!(world.ledger.facts().await.unwrap(), second);
}
