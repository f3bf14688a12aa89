//! Many clients at once, a bounded number of them in flight.

use e2e::token::Token;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
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

/// Client `i` joins room `i % rooms`, the first of a room as its host. Returns how long each waited.
pub(crate) async fn join(clients: &[Client], name: &str, rooms: usize) -> Vec<Duration> {
    let joins = clients.iter().enumerate().map(|(at, client)| {
        let role = if at < rooms { "host" } else { "guest" };
        let body = json!({ "room": format!("{name}-{}", at % rooms), "role": role });
        async { client.ask("room:join", body).await.took }
    });
    stream::iter(joins).buffer_unordered(IN_FLIGHT).collect().await
}

/// The hosts, the first `rooms` clients, change settings: each host one thing after another, up to `IN_FLIGHT` of
/// them at once, `changes` in all.
pub(crate) async fn change_settings(
    clients: &[Client],
    name: &str,
    rooms: usize,
    changes: usize,
) -> Vec<Duration> {
    let workers = IN_FLIGHT.min(rooms);
    let work = (0..workers).map(|worker| async move {
        let mut took = Vec::with_capacity(changes / workers + 1);
        // Worker `w` has the hosts w, w + workers, …, so that no host has two requests in flight.
        let own = (rooms - worker).div_ceil(workers);
        for turn in 0..(changes - worker).div_ceil(workers) {
            let room = worker + (turn % own) * workers;
            let body = json!({ "room": format!("{name}-{room}"), "settings": patch(turn) });
            took.push(clients[room].ask("room:update", body).await.took);
        }
        took
    });
    let took: Vec<Vec<Duration>> = stream::iter(work).buffer_unordered(workers).collect().await;
    took.concat()
}

/// Three fields of the settings.
fn patch(turn: usize) -> Value {
    let mode = ["off", "near_field", "far_field"][turn % 3];
    json!({
        "autoTransitionEnabled": turn.is_multiple_of(2),
        "noiseReduction": mode,
        "vad": { "silenceDurationMs": 200 + turn % 800 },
    })
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
