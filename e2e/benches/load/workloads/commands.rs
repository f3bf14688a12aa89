//! Commands of many rooms, at the instance that owns them.

use tokio::time::Instant;

use super::Size;
use crate::crowd::commands::{change_settings, cycle_mics};
use crate::crowd::{acquainted, connect, delivered, join, restart, tokens};
use crate::figures::{Begun, Figures};
use crate::server::{Kind, Server};

/// `changes` of settings over so many rooms.
pub(super) async fn settings(
    server: &Server,
    size: Size,
    rooms: usize,
    members: usize,
    changes: usize,
) -> Vec<Figures> {
    size.warm(server).await;
    let clients = connect(&server.address(), &tokens("user", rooms * members)).await;
    join(&clients, "room", rooms).await;
    acquainted(&clients, rooms).await;
    restart(&clients);
    let begun = Begun::now(server).await;
    let acks = change_settings(&clients, "room", rooms, changes).await;
    let acked = Instant::now();
    let version = |at: usize| clients[at].seen().version.get();
    let last = delivered("everybody has the last settings", &clients, |at, client| {
        client.seen().version.get() == version(at % rooms)
    })
    .await;
    vec![begun.end(server, last.map_or(acked, |last| last.max(acked)), acks, &clients).await]
}

/// `members` people over so many rooms, each of whom takes a seat and leaves it again so many times.
pub(super) async fn mics(
    server: &Server,
    size: Size,
    members: usize,
    rooms: usize,
    cycles: usize,
) -> Vec<Figures> {
    let confirms = server.kind() == Kind::Dais;
    size.warm(server).await;
    let clients = connect(&server.address(), &tokens("user", members)).await;
    join(&clients, "room", rooms).await;
    acquainted(&clients, rooms).await;
    cycle_mics(&clients, "room", rooms, 1, confirms).await;
    restart(&clients);
    let begun = Begun::now(server).await;
    let (acks, version) = cycle_mics(&clients, "room", rooms, cycles, confirms).await;
    let acked = Instant::now();
    let commands = (acks.len() / members) as u64;
    let last = delivered("everybody sees the last change", &clients, |_, client| {
        // In a room of one's own each command is told for itself.
        if rooms == members {
            client.seen().seats.get() >= commands
        } else {
            client.seen().cell.get() >= version
        }
    })
    .await;
    vec![begun.end(server, last.map_or(acked, |last| last.max(acked)), acks, &clients).await]
}
