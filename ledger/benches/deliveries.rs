//! How many events a second one dispatcher delivers to a receiver that answers at once: to an ordered sink with 200
//! rooms, and to a sink without order. Prints a line for each database.
//!
//! `cargo bench -p ledger --bench deliveries`, with the names of databases after `--` for some of them only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use e2e::databases::{Database, Kind};
use key_prefix::{AppCode, RoomId, RoomKey};
use ledger::outbox::{Bell, Dispatcher, DispatcherOptions, Event, SinkOptions};
use ledger::sink::{Secret, WebhookOptions, WebhookSink};
use ledger::{Change, Claimed, Entry, Filter, LaneBatch, Ledger, Options, Subscription, Subscriptions};
use redis_scripts::{FenceToken, RedisMillis, SettingsVersion};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

const ROOMS: u64 = 200;
const EVENTS: u64 = 50;
const START: u64 = 1_700_000_000_000;
const TOKEN: FenceToken = FenceToken::new(1);

#[expect(clippy::print_stdout, reason = "its figures are what it is for")]
#[tokio::main]
async fn main() {
    println!("{} events each; deliveries a second", ROOMS * EVENTS);
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |kind: &Kind| wanted.is_empty() || wanted.contains(&format!("{kind:?}").to_lowercase());
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::Mysql].into_iter().filter(is_wanted) {
        for concurrency in [16, 64] {
            let ordered = measure(kind, true, concurrency).await;
            let unordered = measure(kind, false, concurrency).await;
            println!("{kind:?}, {concurrency} at a time: {ordered:.0} in order, {unordered:.0} without");
        }
    }
}

async fn measure(kind: Kind, ordered: bool, concurrency: usize) -> f64 {
    let database = Database::new(kind).await;
    let ledger = Ledger::open(&database.url, &Options::default()).await.expect("an empty ledger");
    fill(&ledger, ordered).await;
    let router = Router::new().route("/", post(|| async { StatusCode::NO_CONTENT }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let receiver = tokio::spawn(async move { axum::serve(listener, router).await });
    let secret = Secret::parse("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz").expect("a secret");
    let sink = WebhookSink::new(WebhookOptions {
        url: url.parse().expect("a URL"),
        secrets: vec![secret],
        deadline: WebhookOptions::DEADLINE,
        ca: None,
    });
    let sink = Arc::new(sink.expect("a sink"));
    let done = Arc::new(Semaphore::new(0));
    let count = Arc::clone(&done);
    let note = move |event: Event| {
        if matches!(event, Event::Delivered { .. }) {
            count.add_permits(1);
        }
    };
    let started = Instant::now();
    let clock = move || {
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or_default();
        RedisMillis::new(START + 1_000_000 + ms)
    };
    let options = SinkOptions { concurrency, ..SinkOptions::default() };
    let dispatcher = Dispatcher::new(
        ledger,
        DispatcherOptions::default(),
        Bell::default(),
        Arc::new(clock),
        Arc::new(note),
    );
    let stop = CancellationToken::new();
    let running = tokio::spawn(dispatcher.serve("hook", sink, options).run(stop.clone()));
    let all = u32::try_from(ROOMS * EVENTS).expect("not so many");
    let permits = tokio::time::timeout(Duration::from_secs(600), done.acquire_many(all)).await;
    permits.expect("it does not take for ever").expect("it is never closed").forget();
    let took = started.elapsed();
    stop.cancel();
    running.await.expect("it does not panic");
    receiver.abort();
    f64::from(all) / took.as_secs_f64()
}

/// Rooms with as many events each, archived a lane at a time.
async fn fill(ledger: &Ledger, ordered: bool) {
    let subscription = Subscription { sink: "hook".into(), ordered, wants: Filter::all() };
    let subscriptions: Subscriptions = std::iter::once(("school".to_owned(), subscription)).collect();
    let rooms: Vec<RoomKey> = (0..ROOMS).map(room).collect();
    for lane in 0..key_prefix::LANES {
        let of_lane: Vec<&RoomKey> =
            rooms.iter().filter(|room| key_prefix::lane_of(room.route()) == lane).collect();
        let claimed = ledger.claim_lane(lane, TOKEN, RedisMillis::new(START)).await.expect("a ledger");
        let Claimed::Ok { batches } = claimed else { panic!("{claimed:?}") };
        let entries = (1..=EVENTS).flat_map(|sv| of_lane.iter().map(move |room| entry(room, sv)));
        let batch = LaneBatch { lane, token: TOKEN, batches, entries: entries.collect(), poison: Vec::new() };
        ledger.archive(&[batch], &subscriptions, RedisMillis::new(START)).await.expect("a ledger");
    }
}

fn room(number: u64) -> RoomKey {
    let room = RoomId::new(&format!("room {number}")).expect("an id");
    RoomKey::new(AppCode::new("school").expect("a code"), room)
}

fn entry(room: &RoomKey, sv: u64) -> Entry {
    Entry {
        entry: format!("{START}-{sv}"),
        room: room.clone(),
        change: Change::Settings { sv: SettingsVersion::new(sv) },
        token: TOKEN,
        owner: "a/1".to_owned(),
        at: RedisMillis::new(START),
        body: format!(r#"{{"settings":{{"custom":{{"text":"{sv:0>200}"}}}},"by":"ann"}}"#),
        answer: None,
    }
}
