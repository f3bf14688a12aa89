//! An owner that is killed, and the rooms that another takes over from it.

use futures_util::{StreamExt as _, stream};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

use super::Size;
use crate::client::Client;
use crate::crowd::bystanders::Bystanders;
use crate::crowd::{IN_FLIGHT, connect, fill_rooms, tokens};
use crate::figures::{Begun, Figures};
use crate::server::Server;

/// Rooms to a connection.
const EACH: usize = 10;

/// So many rooms, each of which is joined at the other instance until that succeeds.
pub(super) async fn takeover(server: &mut Server, rooms: usize) -> Vec<Figures> {
    let (clients, each) = owned(server, rooms).await;
    let heirs = connect(&server.other_address(), &tokens("heir", clients.len())).await;
    let killed = Instant::now();
    server.kill_first().await;
    let begun = Begun::now(server).await;
    let waits = taken_over(&heirs, each, killed).await;
    vec![begun.end(server, Instant::now(), waits, &heirs).await]
}

/// The same, while others join rooms of their own at that instance.
pub(super) async fn with_bystanders(server: &mut Server, rooms: usize) -> Vec<Figures> {
    let (clients, each) = owned(server, rooms).await;
    let heirs = connect(&server.other_address(), &tokens("heir", clients.len())).await;
    let bystanders = Bystanders::at(&server.other_address(), "bystander").await;
    let killed = Instant::now();
    server.kill_first().await;
    let begun = Begun::now(server).await;
    // The first room that answers is the sign that it has begun.
    taken_over(&heirs[..1], 1, killed).await;
    let (joins, waits) = bystanders.join_while(taken_over(&heirs, each, killed)).await;
    let end = Instant::now();
    let figures = begun.end(server, end, waits, &heirs).await;
    let meanwhile = figures.clone().meanwhile(joins).of("join_during_takeover");
    vec![figures, meanwhile]
}

/// Rooms with somebody in each at the first instance: the people, and how many rooms each of them has.
async fn owned(server: &Server, rooms: usize) -> (Vec<Client>, usize) {
    let each = EACH.min(rooms);
    let clients = connect(&server.address(), &tokens("user", rooms / each)).await;
    fill_rooms(&clients, "room", each, true).await;
    (clients, each)
}

/// How long after the kill each room could be joined. So many are asked for at once, the others after them.
async fn taken_over(heirs: &[Client], each: usize, killed: Instant) -> Vec<Duration> {
    let joins = (0..heirs.len() * each).map(|n| async move {
        let body = json!({ "room": format!("room-{}-{}", n / each, n % each), "role": "host" });
        heirs[n / each].insist("room:join", &body).await;
        killed.elapsed()
    });
    stream::iter(joins).buffer_unordered(IN_FLIGHT).collect().await
}

/// Between two heartbeats; an owner key lives for three.
pub(super) const fn heartbeat(size: Size) -> Duration {
    Duration::from_millis(size.of(1_000, 300) as u64)
}
