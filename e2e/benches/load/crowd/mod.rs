//! Many clients at once, a bounded number of them in flight.

pub(crate) mod bystanders;
pub(crate) mod changes;
pub(crate) mod commands;
pub(crate) mod http;

use e2e::token::Token;
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

use crate::client::Client;

/// Requests, or connections, in flight.
pub(crate) const IN_FLIGHT: usize = 64;

/// Tokens of `count` users, signed before anything is measured. Each may be a host.
pub(crate) fn tokens(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| Token::new(&format!("{name}-{at}"), "host").sign()).collect()
}

/// Connects them all.
pub(crate) async fn connect(address: &str, tokens: &[String]) -> Vec<Client> {
    stream::iter(tokens).map(|token| Client::connect(address, token)).buffered(IN_FLIGHT).collect().await
}

/// Connects client `i` to address `i % addresses`.
pub(crate) async fn connect_to_each(addresses: &[String], tokens: &[String]) -> Vec<Client> {
    let connecting = tokens.iter().enumerate();
    let connecting = connecting.map(|(at, token)| Client::connect(&addresses[at % addresses.len()], token));
    stream::iter(connecting).buffered(IN_FLIGHT).collect().await
}

/// Client `i` joins room `i % rooms`, the first of a room as its host. Returns how long each waited.
pub(crate) async fn join(clients: &[Client], name: &str, rooms: usize) -> Vec<Duration> {
    join_with_hosts(clients, name, rooms, 1).await
}

/// The same with so many hosts in each room.
pub(crate) async fn join_with_hosts(
    clients: &[Client],
    name: &str,
    rooms: usize,
    hosts: usize,
) -> Vec<Duration> {
    let joins = clients.iter().enumerate().map(|(at, client)| {
        let role = if at < rooms * hosts { "host" } else { "guest" };
        let body = json!({ "room": format!("{name}-{}", at % rooms), "role": role });
        async { client.ask("room:join", body).await.took }
    });
    stream::iter(joins).buffer_unordered(IN_FLIGHT).collect().await
}

/// Each client joins `each` rooms of its own, one after the other, and leaves each before the next unless it `stays`.
/// Asks again where it was refused, as a store that is late makes an instance do. Returns how long each room took.
pub(crate) async fn fill_rooms(clients: &[Client], name: &str, each: usize, stays: bool) -> Vec<Duration> {
    let work = clients.iter().enumerate().map(|(at, client)| async move {
        let mut took = Vec::with_capacity(each);
        for n in 0..each {
            let body = json!({ "room": format!("{name}-{at}-{n}"), "role": "host" });
            let mut waited = client.insist("room:join", &body).await;
            if !stays {
                waited += client.insist("room:leave", &body).await;
            }
            took.push(waited);
        }
        took
    });
    let took: Vec<Vec<Duration>> = stream::iter(work).buffer_unordered(IN_FLIGHT).collect().await;
    took.concat()
}

/// Each client joins a room that is there, room `i`, and leaves it again, so many times. Returns how long both took.
pub(crate) async fn come_and_go(clients: &[Client], name: &str, times: usize) -> Vec<Duration> {
    let work = clients.iter().enumerate().map(|(at, client)| async move {
        let mut took = Vec::with_capacity(times);
        for _ in 0..times {
            let body = json!({ "room": format!("{name}-{at}"), "role": "host" });
            let joined = client.insist("room:join", &body).await;
            took.push(joined + client.insist("room:leave", &body).await);
        }
        took
    });
    let took: Vec<Vec<Duration>> = stream::iter(work).buffer_unordered(IN_FLIGHT).collect().await;
    took.concat()
}

/// Everybody leaves.
pub(crate) async fn leave(clients: &[Client], name: &str, rooms: usize) {
    let leaves = clients.iter().enumerate().map(|(at, client)| {
        let body = json!({ "room": format!("{name}-{}", at % rooms) });
        async { drop(client.ask("room:leave", body).await) }
    });
    stream::iter(leaves).buffer_unordered(IN_FLIGHT).collect::<()>().await;
}

/// Waits until `arrived` is true of every client, and says when the last event came.
pub(crate) async fn delivered(
    what: &str,
    clients: &[Client],
    arrived: impl Fn(usize, &Client) -> bool,
) -> Option<Instant> {
    e2e::wait::until(what, Duration::from_secs(60), || {
        let all = clients.iter().enumerate().all(|(at, client)| arrived(at, client));
        std::future::ready(all)
    })
    .await;
    clients.iter().filter_map(|client| client.seen().last.get()).max()
}

/// Waits until everybody in these rooms has been told of everybody.
pub(crate) async fn acquainted(clients: &[Client], rooms: usize) {
    delivered("everybody sees everybody", clients, |at, client| {
        client.seen().peers.get() == (clients.len() - at % rooms).div_ceil(rooms) as u64
    })
    .await;
}

/// Counts anew what each is sent.
pub(crate) fn restart(clients: &[Client]) {
    for client in clients {
        client.seen().restart();
    }
}
