//! Callbacks at a fixed rate, whatever the answers take, into one instance for rooms of all.

use e2e::callback::sign;
use e2e::token::APP;
use e2e::{streams, wait};
use futures_util::future::join_all;
use key_prefix::{KeyKind, Keys, Prefix};
use room_cell::{Cell, MediaIdentity};
use serde_json::json;
use std::time::{Duration, UNIX_EPOCH};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::Size;
use crate::client::Client;
use crate::crowd::{connect, http, join, restart, tokens};
use crate::figures::{Begun, Figures};
use crate::server::{CALLBACK_SECRET, Server};

/// Rooms of each instance.
const ROOMS: usize = 20;
/// People in each room.
const PEOPLE: usize = 5;
/// Connections of the media server; each person's callbacks go over one of them, so that they come in order.
const CONNECTIONS: usize = 60;
const PER_SECOND: u32 = 2_000;

/// Somebody in a room.
#[derive(Debug, Clone)]
struct Person {
    room: String,
    user: String,
}

/// Rooms on each instance, and callbacks about everybody in them to the first.
pub(super) async fn callbacks(server: &Server, size: Size) -> Vec<Figures> {
    let mut clients: Vec<Client> = Vec::new();
    let mut people = Vec::new();
    for (at, address) in server.addresses().into_iter().enumerate() {
        let here = connect(&address, &tokens(&format!("of-{at}"), ROOMS * PEOPLE)).await;
        join(&here, &format!("heard-{at}"), ROOMS).await;
        people.extend(
            (0..here.len())
                .map(|n| Person { room: format!("heard-{at}-{}", n % ROOMS), user: format!("of-{at}-{n}") }),
        );
        clients.extend(here);
    }
    // So many of each person; before them some of a server that has only begun to work.
    let (warm, count) = (size.of(20, 1) * people.len(), size.of(40, 2) * people.len());
    let mut requests = signed(&people, warm + count);
    let measured = requests.split_off(warm);
    post(server, &people, requests).await;
    applied(server, &people).await;
    restart(&clients);

    let versions = versions(server, &people).await;
    let begun = Begun::now(server).await;
    let waits = post(server, &people, measured).await;
    applied(server, &people).await;
    let figures = begun.end(server, Instant::now(), waits, &clients).await;
    // One that came too late would have made no version.
    let each = (count / people.len() * PEOPLE) as u64;
    let right: Vec<u64> = versions.into_iter().map(|version| version + each).collect();
    assert_eq!(self::versions(server, &people).await, right, "each is applied, in its order");
    let last = ((warm + count) / people.len()) as u64;
    all_stand_at(server, &people, last).await;
    vec![figures]
}

/// Requests, the first of each person before the second of anybody. Each says the contrary of the one before.
fn signed(people: &[Person], count: usize) -> Vec<String> {
    let now = UNIX_EPOCH.elapsed().expect("a time after 1970");
    let (seconds, start) = (now.as_secs().to_string(), now.as_millis());
    let request = |n: usize| {
        let (Person { room, user }, sequence) = (&people[n % people.len()], n / people.len() + 1);
        let kind = if sequence % 2 == 1 { "audio_started" } else { "audio_stopped" };
        let body = json!({
            "id": format!("{user}-{sequence}"), "type": kind, "room": room, "user": user, "session": "s",
            "sequence": sequence, "at": u64::try_from(start).unwrap_or_default() + sequence as u64,
        })
        .to_string();
        format!(
            "POST /rtc/generic/{APP} HTTP/1.1\r\nhost: callbacks\r\ncontent-type: application/json\r\n\
             dais-timestamp: {seconds}\r\ndais-signature: {}\r\ncontent-length: {}\r\n\r\n{body}",
            sign(CALLBACK_SECRET, &seconds, &body),
            body.len(),
        )
    };
    (0..count).map(request).collect()
}

/// Posts each when it is due. Returns how long after that each had its answer.
async fn post(server: &Server, people: &[Person], requests: Vec<String>) -> Vec<Duration> {
    let mut of_each: Vec<Vec<(usize, String)>> = vec![Vec::new(); CONNECTIONS];
    for (n, request) in requests.into_iter().enumerate() {
        of_each[n % people.len() % CONNECTIONS].push((n, request));
    }
    let address = server.address();
    let streams = join_all((0..CONNECTIONS).map(|_| TcpStream::connect(&address))).await;
    let start = Instant::now() + Duration::from_millis(50);
    let posting = streams.into_iter().zip(of_each).map(|(stream, requests)| async move {
        let stream = stream.expect("a listening server");
        stream.set_nodelay(true).expect("a TCP connection");
        let mut stream = BufReader::new(stream);
        let mut waits = Vec::with_capacity(requests.len());
        for (n, request) in requests {
            let due = start + Duration::from_secs(1) * u32::try_from(n).expect("a few") / PER_SECOND;
            sleep_until(due).await;
            stream.write_all(request.as_bytes()).await.expect("an open connection");
            let (status, body) = http::answer(&mut stream).await;
            assert_eq!(status, 200, "{body}");
            waits.push(due.elapsed());
        }
        waits
    });
    let tasks: Vec<_> = posting.map(tokio::task::spawn_local).collect();
    let waits = join_all(tasks).await;
    waits.into_iter().flat_map(|waits| waits.expect("answers to all of them")).collect()
}

/// The rooms' keys of this kind, in order.
fn keys(people: &[Person], kind: KeyKind) -> Vec<String> {
    let base = Keys::new(Prefix::parse("test").expect("a prefix")).base(kind).to_string();
    let mut rooms: Vec<&str> = people.iter().map(|person| person.room.as_str()).collect();
    rooms.sort_unstable();
    rooms.dedup();
    rooms.into_iter().map(|room| format!("{base}{APP}\0{room}")).collect()
}

/// Waits until nothing is in an inbox any more.
async fn applied(server: &Server, people: &[Person]) {
    let inboxes = keys(people, KeyKind::Inbox);
    let is_empty = || async { streams::waiting(server.redis(), &inboxes).await == Some(0) };
    wait::until("all of them are applied", Duration::from_secs(60), is_empty).await;
}

async fn versions(server: &Server, people: &[Person]) -> Vec<u64> {
    let mut versions = Vec::new();
    for key in keys(people, KeyKind::Room) {
        let version = server.redis().command(&["HGET", &key, "cv"]).await.number();
        versions.push(version.and_then(|it| u64::try_from(it).ok()).expect("a version"));
    }
    versions
}

/// Of everybody the last was heard that was said.
async fn all_stand_at(server: &Server, people: &[Person], last: u64) {
    let rooms = keys(people, KeyKind::Room);
    for (room, cell) in rooms.iter().zip(keys(people, KeyKind::Cell)) {
        let pairs = server.redis().command(&["HGETALL", &cell]).await.texts();
        let pairs: Vec<_> = pairs.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        let cell = Cell::read(0, "active", &pairs, &[]).expect("a stored cell");
        for person in people.iter().filter(|person| room.ends_with(&format!("\0{}", person.room))) {
            let who = MediaIdentity { user: person.user.as_str().into(), peer: None };
            let heard = cell.media.get(&who).unwrap_or_else(|| panic!("{person:?} was never heard"));
            assert_eq!((heard.sequence, heard.flowing), (Some(last), last % 2 == 1), "{person:?}");
        }
    }
}
