//! What an operation, and a heartbeat, cost an instance that has more and more rooms; and more and more instances.

use e2e::{streams, wait};
use std::time::Duration;
use tokio::time::{Instant, sleep};

use super::Size;
use crate::crowd::bystanders::Bystanders;
use crate::crowd::commands::change_settings;
use crate::crowd::http::open_rooms;
use crate::crowd::{acquainted, come_and_go, connect, connect_to_each, join, leave, restart, tokens};
use crate::figures::{Begun, Figures};
use crate::server::Server;
use crate::watch::Watch;

const ROOM: &str = "grown";
/// Rooms that are worked in, of however many.
const WORKED_IN: usize = 100;
/// Fewer rooms than these are nothing to a heartbeat.
const BEATS_FROM: usize = 1_000;
/// With so many, joins might wait for one.
const FELT_FROM: usize = 100_000;
/// Rooms that are spread over instances.
const SPREAD: usize = 64;

/// The same work in a hundred rooms, of so many that the instance has; and its heartbeats.
pub(super) async fn rooms(server: &Server, size: Size, rooms: usize) -> Vec<Figures> {
    let clients = connect(&server.address(), &tokens("user", WORKED_IN)).await;
    open_rooms(&server.address(), ROOM, size.of(rooms, rooms / 100 + WORKED_IN)).await;
    archived(server).await;
    let (joins, changes) = worked(server, &clients, size).await;
    let mut all = vec![joins.of(format!("join_at_{rooms}")), changes.of(format!("settings_at_{rooms}"))];
    if rooms >= BEATS_FROM {
        all.push(heartbeats(server, size).await.of(format!("heartbeat_{rooms}")));
    }
    if rooms >= FELT_FROM {
        let bystanders = Bystanders::at(&server.address(), "bystander").await;
        let begun = Begun::now(server).await;
        let (waits, ()) = bystanders.join_while(sleep(beats(size, 2))).await;
        let meanwhile = begun.end(server, Instant::now(), Vec::new(), bystanders.clients()).await;
        all.push(meanwhile.meanwhile(waits).of(format!("join_during_heartbeat_{rooms}")));
    }
    all
}

/// People come and go, and change settings.
async fn worked(server: &Server, clients: &[crate::client::Client], size: Size) -> (Figures, Figures) {
    come_and_go(clients, ROOM, 1).await;
    restart(clients);
    let begun = Begun::now(server).await;
    let waits = come_and_go(clients, ROOM, size.of(20, 1)).await;
    let joins = begun.end(server, Instant::now(), waits, clients).await;

    join(clients, ROOM, WORKED_IN).await;
    restart(clients);
    let begun = Begun::now(server).await;
    let waits = change_settings(clients, ROOM, WORKED_IN, size.of(3_000, WORKED_IN)).await;
    let changes = begun.end(server, Instant::now(), waits, clients).await;
    leave(clients, ROOM, WORKED_IN).await;
    (joins, changes)
}

/// Two heartbeats with nothing else to do, and one more while Redis is watched.
async fn heartbeats(server: &Server, size: Size) -> Figures {
    let begun = Begun::now(server).await;
    sleep(beats(size, 2)).await;
    let figures = begun.end(server, Instant::now(), Vec::new(), &[]).await.counted(2);
    let watch = Watch::begin(server.redis()).await;
    sleep(beats(size, 1)).await;
    figures.watched(watch.end(server.redis()).await)
}

/// The time of so many heartbeats.
fn beats(size: Size, count: u32) -> Duration {
    heartbeat(size) * count
}

/// Between two heartbeats: the default, in a run that measures.
pub(super) const fn heartbeat(size: Size) -> Duration {
    Duration::from_millis(size.of(5_000, 500) as u64)
}

/// Waits until the ledger has everything, so that it does not work while something is measured.
async fn archived(server: &Server) {
    wait::until("the ledger has everything", Duration::from_secs(120), || async {
        streams::waiting_in_lanes(server.redis()).await == Some(0)
    })
    .await;
}

/// The same work spread over so many instances.
pub(super) async fn instances(server: &Server, size: Size) -> Vec<Figures> {
    let addresses = server.addresses();
    let count = addresses.len();
    size.warm(server).await;
    let clients = connect_to_each(&addresses, &tokens("own", size.of(2_048, SPREAD))).await;
    let begun = Begun::now(server).await;
    let waits = join(&clients, "own", clients.len()).await;
    let joins = begun.end(server, Instant::now(), waits, &clients).await;
    drop(clients);

    let clients = connect_to_each(&addresses, &tokens("user", SPREAD * size.of(10, 2))).await;
    join(&clients, "room", SPREAD).await;
    acquainted(&clients, SPREAD).await;
    restart(&clients);
    let begun = Begun::now(server).await;
    let waits = change_settings(&clients, "room", SPREAD, size.of(4_000, SPREAD)).await;
    let changes = begun.end(server, Instant::now(), waits, &clients).await;
    vec![joins.of(format!("join_on_{count}")), changes.of(format!("settings_on_{count}"))]
}
