//! How long a command is on its way from Redis into the ledger, at 1,000 and 10,000 commands a second for ten seconds, and
//! how many bytes it takes in both: 200 rooms in 64 lanes, one archiver, bodies of 300 bytes, everything on disk
//! before it counts.
//!
//! `cargo bench -p ledger --bench lag`, with the names of databases after `--` for some of them only.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures for people"
)]

use e2e::databases::{Database, Kind};
use e2e::resp::Value;
use e2e::servers::{Flavor, Fsync, RedisServer, ServerOptions};
use key_prefix::{AppCode, InstanceName, Keys, Prefix, RoomId, RoomKey};
use ledger::archiver::{self, Archiver, Event, Pace};
use ledger::{Ledger, Options, Subscriptions};
use redis_scripts::{Register, Registered, Scripts};
use sqlx::Row as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

const ROOMS: usize = 200;
const BODY_BYTES: usize = 300;
const FOR: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(10);
const HEARTBEAT: Duration = Duration::from_secs(5);
/// What is left after the load may take so long.
const DRAIN: Duration = Duration::from_secs(120);

/// Appends so many entries, each of the next room, at Redis's time. Keys are the rooms' lanes.
const APPEND: &str = r"
local time = redis.call('TIME')
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local first, count, body = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
for n = first, first + count - 1 do
  local room = n % #KEYS + 1
  redis.call('XADD', KEYS[room], '*', 'room', ARGV[3 + room], 'kind', 'cell', 'token', '1',
    'owner', 'coordinator-1/1700000000000', 'at', at, 'entry', body, 'cv', string.format('%.0f', math.floor(n / #KEYS) + 1))
end";

#[derive(Default)]
struct Seen {
    lags: Vec<Duration>,
}

#[expect(clippy::print_stdout, reason = "its figures are what it is for")]
#[tokio::main]
async fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |kind: &Kind| wanted.is_empty() || wanted.contains(&format!("{kind:?}").to_lowercase());
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::Mysql].into_iter().filter(is_wanted) {
        for rate in [1_000, 10_000] {
            println!("{kind:?}, {rate} commands/s: {}", measure(kind, rate).await);
        }
    }
}

fn rooms() -> Vec<RoomKey> {
    let room = |number| RoomId::new(&format!("room {number}")).expect("an id");
    (0..ROOMS).map(|number| RoomKey::new(AppCode::new("school").expect("a code"), room(number))).collect()
}

fn body() -> String {
    let head = r#"{"id":"command-1","actor":{"kind":"backend"},"events":[{"event":"door_locked","locked":true}],"command":""#;
    format!("{head}{}\"}}", "x".repeat(BODY_BYTES.saturating_sub(head.len() + 2)))
}

async fn measure(kind: Kind, rate: usize) -> String {
    let redis = ServerOptions::new(Flavor::Redis).aof(Some(Fsync::EverySecond)).start().await;
    let database = Database::durable(kind).await;
    let options = Options { deadline: Duration::from_secs(30), ..Options::default() };
    let ledger = Ledger::open(&database.url, &options).await.expect("a ledger");
    let scripts = Scripts::new(redis.client().await);
    let keys = Keys::new(Prefix::dev());
    let name = InstanceName::new("a").expect("a name");
    let fields = [("roles", "archiver".to_owned())];
    let with = Register { name: &name, address: "a:1", owner_ttl: 100 * HEARTBEAT, fields: &fields };
    let Ok(Registered::Ok { instance, .. }) = scripts.register(&keys, with).await else {
        panic!("an empty Redis takes anybody")
    };
    let seen = Arc::new(Mutex::new(Seen::default()));
    let note = Arc::clone(&seen);
    let began = Instant::now();
    let archiver = Archiver {
        ledger,
        scripts,
        keys: keys.clone(),
        me: instance,
        pace: Pace {
            heartbeat: HEARTBEAT,
            owner_ttl: 100 * HEARTBEAT,
            poll: Duration::from_millis(20),
            lane_batch: 1_000,
            batch: 1_000,
            keep: Duration::ZERO,
            keep_entries: 0,
            stuck: Duration::from_secs(600),
            farewell: DRAIN,
        },
        subscriptions: Arc::new(Subscriptions::default()),
        clock: Arc::new(move || began.elapsed()),
        events: Arc::new(move |event: Event| {
            if let Event::Archived { lags, .. } = event {
                note.lock().expect("nobody panics with it").lags.extend(lags);
            }
        }),
    };
    let before = memory(&redis).await;
    let appended = rate.min(10_000);
    append(&redis, &keys, 0, appended).await;
    let in_redis = (memory(&redis).await - before) / appended as f64;

    let over = CancellationToken::new();
    let archiving = tokio::spawn(archiver::run(archiver, over.clone()));
    archived(&seen, appended).await;
    seen.lock().expect("nobody panics with it").lags.clear();
    let per_tick = rate * usize::try_from(TICK.as_millis()).expect("a short tick") / 1_000;
    let mut every = tokio::time::interval(TICK);
    every.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut sent, load) = (0, Instant::now());
    while load.elapsed() < FOR {
        every.tick().await;
        append(&redis, &keys, appended + sent, per_tick).await;
        sent += per_tick;
    }
    let loaded = load.elapsed().as_secs_f64();
    archived(&seen, sent).await;
    let drained = load.elapsed().as_secs_f64() - loaded;
    over.cancel();
    archiving.await.expect("it does not panic");
    let mut lags = std::mem::take(&mut seen.lock().expect("nobody panics with it").lags);
    lags.sort_unstable();
    let at = |part: f64| lags[((lags.len() - 1) as f64 * part) as usize].as_millis();
    let in_sql = size(&database, kind).await / (appended + sent) as f64;
    format!(
        "{:.0}/s sent; lag p50 {} ms, p99 {} ms, most {} ms; drained {drained:.1} s after; {in_redis:.0} bytes each in Redis, \
         {in_sql:.0} in SQL",
        sent as f64 / loaded,
        at(0.5),
        at(0.99),
        at(1.0),
    )
}

async fn append(redis: &RedisServer, keys: &Keys, first: usize, count: usize) {
    let rooms = rooms();
    let mut command = vec!["EVAL".to_owned(), APPEND.to_owned(), rooms.len().to_string()];
    command.extend(rooms.iter().map(|room| keys.lane(room).to_string()));
    command.extend([first.to_string(), count.to_string(), body()]);
    command.extend(rooms.iter().map(|room| room.route().to_owned()));
    assert!(!matches!(redis.command(&command).await, Value::Error(_)), "they are appended");
}

async fn archived(seen: &Mutex<Seen>, count: usize) {
    let enough = || async { seen.lock().expect("nobody panics with it").lags.len() >= count };
    e2e::wait::until("all of it is archived", DRAIN, enough).await;
}

async fn memory(redis: &RedisServer) -> f64 {
    let info = redis.command(&["INFO", "memory"]).await.text();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory_dataset:"));
    used.and_then(|bytes| bytes.trim().parse().ok()).expect("Redis says so")
}

/// Bytes of the tables and their indexes.
async fn size(database: &Database, kind: Kind) -> f64 {
    let mut ledger = database.connect().await.expect("a connection");
    let (flush, size) = match kind {
        Kind::Sqlite => (
            "PRAGMA wal_checkpoint(TRUNCATE)",
            "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
        ),
        Kind::Postgres => ("CHECKPOINT", "SELECT pg_total_relation_size('log')"),
        Kind::Mysql => (
            "ANALYZE TABLE log",
            "SELECT CAST(data_length + index_length AS SIGNED) FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = 'log'",
        ),
    };
    sqlx::query(flush).fetch_all(&mut ledger).await.expect("an answer");
    let row = sqlx::query(size).fetch_one(&mut ledger).await.expect("a size");
    let bytes: i64 = row.get(0);
    bytes as f64
}
