//! Connections and joins.

use tokio::time::{Instant, sleep};

use super::Size;
use crate::client::Client;
use crate::crowd::{acquainted, connect, fill_rooms, join, tokens};
use crate::figures::{Begun, Figures};
use crate::server::Server;

/// People in a room, or rooms of a person.
const TEN: usize = 10;

/// Connections that do nothing, and the same after they have joined rooms of ten.
pub(super) async fn idle(server: &Server, size: Size, count: usize) -> Vec<Figures> {
    let tokens = tokens("idle", count);
    let begun = Begun::now(server).await;
    let clients = connect(&server.address(), &tokens).await;
    let waits = clients.iter().map(Client::opened_in).collect();
    let figures = begun.end(server, Instant::now(), waits, &clients).await;
    sleep(size.rest()).await;
    let idle = figures.rested(server);

    let begun = Begun::now(server).await;
    let waits = join(&clients, "room", count / TEN).await;
    acquainted(&clients, count / TEN).await;
    let mut joined = begun.end(server, Instant::now(), waits, &clients).await;
    sleep(size.rest()).await;
    // All that it holds, not what the join alone came to.
    joined.resident.begin = idle.resident.begin;
    vec![idle.of("idle"), joined.rested(server).of("idle_joined")]
}

/// So many join so many rooms.
pub(super) async fn joins(server: &Server, size: Size, count: usize, rooms: usize) -> Vec<Figures> {
    size.warm(server).await;
    let clients = connect(&server.address(), &tokens("user", count)).await;
    let begun = Begun::now(server).await;
    let acks = join(&clients, "room", rooms).await;
    let acked = Instant::now();
    acquainted(&clients, rooms).await;
    let last = clients.iter().filter_map(|client| client.seen().last.get()).max();
    vec![begun.end(server, last.map_or(acked, |last| last.max(acked)), acks, &clients).await]
}

/// Rooms that stay loaded, with one person in each or with none, ten to a connection. One room for each connection
/// comes before them, so that what a connection itself comes to need is not counted.
pub(super) async fn filled(server: &Server, size: Size, stays: bool) -> Vec<Figures> {
    let clients = connect(&server.address(), &tokens("user", size.of(500, 10))).await;
    fill_rooms(&clients, "first", 1, stays).await;
    let begun = Begun::now(server).await;
    let waits = fill_rooms(&clients, "room", TEN, stays).await;
    let figures = begun.end(server, Instant::now(), waits, &clients).await;
    sleep(size.rest()).await;
    vec![figures.rested(server)]
}
