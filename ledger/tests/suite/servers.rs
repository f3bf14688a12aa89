//! Servers that stop, freeze or take no writes, and come back.

use e2e::wait::{SOON, eventually};
use ledger::{Ledger, LedgerError};
use sqlx::Executor;

use crate::KIND;
use crate::databases::{Database, Kind};
use crate::suite::failing::{QUICK, cannot_write};
use crate::suite::life::Life;
use crate::suite::world::{Archiver, World};

async fn fails_for_now(ledger: &Ledger, life: &Life) {
    let head = ledger.head(&life.room).await;
    assert!(matches!(head, Err(LedgerError::Unavailable(_))), "{head:?}");
    cannot_write(ledger, life).await;
}

#[tokio::test]
async fn a_server_that_freezes_or_stops_is_unavailable() {
    let world = World::on(Database::alone(KIND).await).await;
    let ledger = Ledger::open(&world.database.url, &QUICK).await.unwrap();
    let mut life = Life::open("room", 1);
    Archiver::new(&ledger, 1).feeds(&life.entries).await;
    let server = world.database.server().expect("a server");
    server.pause();
    fails_for_now(&ledger, &life).await;
    server.resume();
    eventually(SOON, || ledger.head(&life.room)).await;
    life.lives(5);
    Archiver::new(&ledger, 1).feeds(&life.entries).await;
    world.has(&life).await;
    server.stop().await;
    fails_for_now(&ledger, &life).await;
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_unavailable() {
    let world = World::on(Database::alone(KIND).await).await;
    let life = Life::open("room", 1);
    Archiver::new(&world.ledger, 1).feeds(&life.entries).await;
    let mut beside = world.database.connect().await.expect("a connection");
    let read_only = match KIND {
        Kind::Postgres => {
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', \
             current_database()); END $$"
        }
        _ => "SET GLOBAL tx_read_only = 1",
    };
    beside.execute(sqlx::raw_sql(read_only)).await.unwrap();
    // Reading is enough to open what is up to date.
    let ledger = Ledger::open(&world.database.url, &QUICK).await.unwrap();
    assert!(ledger.head(&life.room).await.unwrap().is_some());
    cannot_write(&ledger, &life).await;
}
