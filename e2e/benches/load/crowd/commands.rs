//! Commands of many rooms, one after the other in each.

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

use super::IN_FLIGHT;
use crate::client::Client;

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

/// Three fields of the settings.
fn patch(turn: usize) -> Value {
    let mode = ["off", "near_field", "far_field"][turn % 3];
    json!({
        "autoTransitionEnabled": turn.is_multiple_of(2),
        "noiseReduction": mode,
        "vad": { "silenceDurationMs": 200 + turn % 800 },
    })
}
