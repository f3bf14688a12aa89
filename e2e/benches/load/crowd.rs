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

/// Each client takes a seat, confirms it where the server knows such a thing, and leaves it again, `cycles` times;
/// up to `IN_FLIGHT` of them at once. Returns how long each command waited, and the highest cell version answered.
pub(crate) async fn cycle_mics(
    clients: &[Client],
    name: &str,
    rooms: usize,
    cycles: usize,
    confirms: bool,
) -> (Vec<Duration>, u64) {
    let workers = IN_FLIGHT.min(clients.len());
    let work = (0..workers).map(|worker| async move {
        let (mut took, mut version) = (Vec::new(), 0);
        for _ in 0..cycles {
            for (at, client) in clients.iter().enumerate().skip(worker).step_by(workers) {
                let room = format!("{name}-{}", at % rooms);
                let up = client.ask("mic:up", json!({ "room": room })).await;
                let session = json!({ "room": room, "micSession": up.mic_session() });
                took.push(up.took);
                if confirms {
                    took.push(client.ask("mic:confirm", session.clone()).await.took);
                }
                let down = client.ask("mic:down", session).await;
                took.push(down.took);
                version = version.max(down.cell().unwrap_or_default());
            }
        }
        (took, version)
    });
    let done: Vec<(Vec<Duration>, u64)> = stream::iter(work).buffer_unordered(workers).collect().await;
    let version = done.iter().map(|(_, version)| *version).max().unwrap_or_default();
    (done.into_iter().flat_map(|(took, _)| took).collect(), version)
}

/// Each host locks and unlocks seats of its room, in which one of `members` is, `commands` in all and `in_flight` at
/// once. Returns how long each waited: until it was answered, and the member was told.
pub(crate) async fn lock_seats(
    hosts: &[Client],
    members: &[Client],
    name: &str,
    commands: usize,
    in_flight: usize,
) -> Vec<Duration> {
    const SEATS: usize = 8;
    let work = (0..in_flight).map(|worker| async move {
        let mut took = Vec::with_capacity(commands / in_flight);
        for turn in 0..commands / in_flight {
            // All seats of a room are locked, one after the other, then unlocked.
            let own = hosts.len() / in_flight;
            let (room, step) = (worker + turn % own * in_flight, turn / own);
            let (seat, locked) = (step % SEATS + 1, (step / SEATS).is_multiple_of(2));
            let body = json!({ "room": format!("{name}-{room}"), "seat": seat, "locked": locked });
            let begun = Instant::now();
            let ack = hosts[room].ask("mic:lock", body).await;
            members[room].seen().reaches(ack.cell().expect("a version")).await;
            took.push(begun.elapsed());
        }
        took
    });
    let took: Vec<Vec<Duration>> = stream::iter(work).buffer_unordered(in_flight).collect().await;
    took.concat()
}

/// Each client joins `each` rooms of its own, one after the other, and leaves each before the next unless it `stays`.
/// Returns how long each room took.
pub(crate) async fn fill_rooms(clients: &[Client], name: &str, each: usize, stays: bool) -> Vec<Duration> {
    let work = clients.iter().enumerate().map(|(at, client)| async move {
        let mut took = Vec::with_capacity(each);
        for n in 0..each {
            let room = format!("{name}-{at}-{n}");
            let mut waited = client.ask("room:join", json!({ "room": room, "role": "host" })).await.took;
            if !stays {
                waited += client.ask("room:leave", json!({ "room": room })).await.took;
            }
            took.push(waited);
        }
        took
    });
    let took: Vec<Vec<Duration>> = stream::iter(work).buffer_unordered(IN_FLIGHT).collect().await;
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
