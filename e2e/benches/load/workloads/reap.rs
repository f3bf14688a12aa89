//! What a dead instance leaves behind is cleared.

use e2e::wait;
use key_prefix::{KeyKind, Keys, Prefix};
use std::time::Duration;
use tokio::time::{Instant, sleep};

use super::Size;
use crate::crowd::bystanders::Bystanders;
use crate::crowd::{connect, fill_rooms, tokens};
use crate::figures::{Begun, Figures};
use crate::server::Server;
use crate::watch::Watch;

/// Rooms to a connection.
const EACH: usize = 10;
const CLEARED: Duration = Duration::from_secs(60);

/// From the kill until the last room is free; the work itself begins with the first that is.
pub(super) async fn reap(server: &mut Server, size: Size) -> Vec<Figures> {
    let (killed, rooms) = killed(server, size).await;
    let watch = Watch::begin(server.redis()).await;
    let begun = Begun::now(server).await;
    cleared(server).await;
    let end = Instant::now();
    let figures = begun.end(server, end, vec![end - killed], &[]).await;
    vec![figures.counted(rooms as u64).watched(watch.end(server.redis()).await)]
}

/// Joins at the instance that clears, before and while it does.
pub(super) async fn with_bystanders(server: &mut Server, size: Size) -> Vec<Figures> {
    let bystanders = Bystanders::at(&server.other_address(), "calm").await;
    let calm = Duration::from_millis(size.of(5_000, 200) as u64);
    let begun = Begun::now(server).await;
    let (joins, ()) = bystanders.join_while(sleep(calm)).await;
    let before = begun.end(server, Instant::now(), joins, bystanders.clients()).await;

    let bystanders = Bystanders::at(&server.other_address(), "bystander").await;
    killed(server, size).await;
    let begun = Begun::now(server).await;
    let (joins, ()) = bystanders.join_while(cleared(server)).await;
    let during = begun.end(server, Instant::now(), Vec::new(), bystanders.clients()).await.meanwhile(joins);
    vec![before.of("join_calm"), during.of("join_during_reap")]
}

/// Kills the owner of many rooms, and returns when the first of them is being cleared: when it was killed, and how many.
async fn killed(server: &mut Server, size: Size) -> (Instant, usize) {
    let clients = connect(&server.address(), &tokens("user", size.of(1_000, 2))).await;
    fill_rooms(&clients, "room", EACH, true).await;
    let rooms = clients.len() * EACH;
    let pattern =
        format!("{}a/*", Keys::new(Prefix::parse("test").expect("a prefix")).base(KeyKind::InstanceRooms));
    let held = server.redis().command(&["KEYS", &pattern]).await.texts();
    let count = || async { server.redis().command(&["SCARD", held[0].as_str()]).await.number() };
    assert_eq!(count().await, i64::try_from(rooms).ok(), "it holds all of them");
    let at = Instant::now();
    server.kill_first().await;
    let held = held[0].clone();
    let (server, all) = (&*server, i64::try_from(rooms).ok());
    wait::until("the first is cleared", CLEARED, || async {
        server.redis().command(&["SCARD", held.as_str()]).await.number() < all
    })
    .await;
    (at, rooms)
}

async fn cleared(server: &Server) {
    let instance = server.running().next().expect("one that runs");
    instance.log_line("cleared a dead instance", 0, CLEARED).await;
}
