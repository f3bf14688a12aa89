//! What comes to an instance that does not own the room.

use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tokio::time::Instant;

use super::Size;
use crate::crowd::commands::lock_seats;
use crate::crowd::{IN_FLIGHT, acquainted, changes, connect, join, restart, tokens};
use crate::figures::{Begun, Figures};
use crate::server::Server;

/// Hosts, each of a room, who lock seats.
const LOCKING: usize = 20;

/// Joins at an instance that sends them to the other, where a hundred rooms are.
pub(super) async fn redirects(server: &Server, size: Size) -> Vec<Figures> {
    let rooms = size.of(100, 5);
    let owners = connect(&server.address(), &tokens("owner", rooms)).await;
    join(&owners, "room", rooms).await;
    let clients = connect(&server.other_address(), &tokens("user", IN_FLIGHT)).await;
    let refused = |count: usize| {
        let clients = &clients;
        let joins = (0..count).map(move |n| async move {
            let body = json!({ "room": format!("room-{}", n % rooms), "role": "guest" });
            let ack = clients[n % clients.len()].try_to("room:join", body).await;
            assert!(ack.is_redirect(), "a room of another instance: {ack:?}");
            ack.took
        });
        stream::iter(joins).buffer_unordered(IN_FLIGHT).collect::<Vec<_>>()
    };
    refused(size.of(1_000, 20)).await;
    let begun = Begun::now(server).await;
    let acks = refused(size.of(1_000, 20)).await;
    vec![begun.end(server, Instant::now(), acks, &clients).await]
}

/// Settings changed by hosts at the second instance, of rooms of ten at the first.
pub(super) async fn settings(server: &Server, size: Size, in_flight: usize) -> Vec<Figures> {
    let rooms = size.of(50, in_flight);
    let members = connect(&server.address(), &tokens("user", rooms * size.of(10, 2))).await;
    join(&members, "room", rooms).await;
    acquainted(&members, rooms).await;
    let hosts = connect(&server.other_address(), &tokens("host", rooms)).await;
    let send = |count| changes::flat_out(&hosts, "room", rooms, in_flight, count);
    let before = send(size.of(500, in_flight)).await;
    changes::settled(&members, rooms, &before).await;
    restart(&members);
    let begun = Begun::now(server).await;
    let changes = send(size.of(2_000, in_flight * 2)).await;
    let last = changes::settled(&members, rooms, &changes).await;
    let acks = changes.iter().map(|change| change.took).collect();
    let figures = begun.end(server, last, acks, &members).await;
    vec![figures.delivered(changes::deliveries(&members, rooms, &changes))]
}

/// Seats locked and unlocked by hosts at the second instance, of rooms at the first with a member in each.
pub(super) async fn locks(server: &Server, size: Size, commands: usize, in_flight: usize) -> Vec<Figures> {
    size.warm(server).await;
    let members = connect(&server.address(), &tokens("user", LOCKING)).await;
    join(&members, "room", LOCKING).await;
    let hosts = connect(&server.other_address(), &tokens("host", LOCKING)).await;
    lock_seats(&hosts, &members, "room", LOCKING * 16, LOCKING).await;
    restart(&members);
    let begun = Begun::now(server).await;
    let waits = lock_seats(&hosts, &members, "room", commands, in_flight).await;
    vec![begun.end(server, Instant::now(), waits, &members).await]
}
