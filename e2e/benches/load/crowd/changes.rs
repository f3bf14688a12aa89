//! Changes of settings, each of which has its number in its room, and when each member had it.

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::delivered;
use crate::client::Client;

/// Fills an event's frame up to about 200 bytes.
const NOTE: &str = "the hall is open until six in the evening, and the side door until seven";
/// Hosts of a room, so that none of them has many requests in flight.
pub(crate) const SENDERS: usize = 8;

/// A change that was answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    room: usize,
    version: u64,
    /// When it was to be sent.
    due: Instant,
    /// From then until its answer was read.
    pub(crate) took: Duration,
}

/// Client `i` is in room `i % rooms`. One change is due every so often, in one room after the other, whatever
/// the answers take.
pub(crate) async fn paced(
    clients: &[Client],
    name: &str,
    rooms: usize,
    every: Duration,
    count: usize,
) -> Vec<Change> {
    let start = Instant::now() + Duration::from_millis(20);
    let mut ticks = metronome(start, every, count);
    let (mut waiting, mut done) = (FuturesUnordered::new(), Vec::with_capacity(count));
    let senders = (clients.len() / rooms).min(SENDERS);
    loop {
        tokio::select! {
            Some((n, due)) = ticks.recv() => {
                let at = n % rooms + n / rooms % senders * rooms;
                waiting.push(change(&clients[at], name, at % rooms, n, due));
            }
            Some(change) = waiting.next() => done.push(change),
            else => return done,
        }
    }
}

/// So many in flight all the time, each from a sender of its own; in as many rooms as there are, or fewer.
pub(crate) async fn flat_out(
    clients: &[Client],
    name: &str,
    rooms: usize,
    in_flight: usize,
    count: usize,
) -> Vec<Change> {
    let work = (0..in_flight).map(|worker| async move {
        // Worker `w` has the hosts w, w + in_flight, …; where there are fewer rooms, one member.
        let own = rooms.saturating_sub(worker).div_ceil(in_flight).max(1);
        let mut done = Vec::with_capacity(count / in_flight + 1);
        for turn in 0..count.saturating_sub(worker).div_ceil(in_flight) {
            let at = worker + turn % own * in_flight;
            done.push(change(&clients[at], name, at % rooms, turn, Instant::now()).await);
        }
        done
    });
    let done: Vec<Vec<Change>> = stream::iter(work).buffer_unordered(in_flight).collect().await;
    done.concat()
}

/// Waits until everybody has everything, and says when the last of it came.
pub(crate) async fn settled(clients: &[Client], rooms: usize, changes: &[Change]) -> Instant {
    let mut last = vec![0; rooms];
    for change in changes {
        last[change.room] = change.version.max(last[change.room]);
    }
    let arrived = |at: usize, client: &Client| client.seen().version.get() >= last[at % rooms];
    delivered("everybody has the last change", clients, arrived).await.expect("an event came")
}

/// How long after each change was due each member of its room had it, or a later one that holds it too.
pub(crate) fn deliveries(clients: &[Client], rooms: usize, changes: &[Change]) -> Vec<Duration> {
    let mut of_rooms: Vec<Vec<&Change>> = vec![Vec::new(); rooms];
    for change in changes {
        of_rooms[change.room].push(change);
    }
    for room in &mut of_rooms {
        room.sort_unstable_by_key(|change| change.version);
    }
    let mut all = Vec::with_capacity(changes.len() * clients.len() / rooms);
    for (at, client) in clients.iter().enumerate() {
        let arrivals = client.seen().arrivals.borrow();
        let mut arrivals = arrivals.iter().peekable();
        for change in &of_rooms[at % rooms] {
            while arrivals.next_if(|(version, _)| *version < change.version).is_some() {}
            let (_, came) = arrivals.peek().expect("a change that was waited for");
            all.push(came.saturating_duration_since(change.due));
        }
    }
    all
}

async fn change(client: &Client, name: &str, room: usize, turn: usize, due: Instant) -> Change {
    let body = json!({ "room": format!("{name}-{room}"), "settings": settings(turn) });
    let ack = client.ask("room:update", body).await;
    Change { room, version: ack.settings().expect("a version"), due, took: due.elapsed() }
}

fn settings(turn: usize) -> Value {
    json!({ "custom": { "note": format!("{NOTE} {turn:06}") } })
}

/// Tells each number when it is due. A thread of its own, because the runtime's timers are a millisecond coarse.
#[expect(clippy::disallowed_methods, reason = "a thread of its own, which keeps time")]
fn metronome(start: Instant, every: Duration, count: usize) -> mpsc::UnboundedReceiver<(usize, Instant)> {
    let (ticks, told) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let mut due = start;
        for n in 0..count {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if ticks.send((n, due)).is_err() {
                return;
            }
            due += every;
        }
    });
    told
}
