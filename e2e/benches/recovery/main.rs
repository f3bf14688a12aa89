//! How long it takes until 1, 100 and 10,000 rooms that Redis has lost are there again: each has settings, locked seats and
//! bans, is in the ledger and in nobody's memory, and is asked for by a change of its settings over HTTP, 64 at a time.
//! Beside it the same change of a room that is there.
//!
//! `cargo bench -p e2e --bench recovery`, with `sqlite`, `postgres` or `mysql` after `--` for some of them only.
//! `DAIS_COORDINATOR` names another binary than a release build.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures for people"
)]

use e2e::cluster::Cluster;
use e2e::databases::{Database, Kind};
use e2e::http;
use e2e::servers::{Flavor, RedisServer};
use e2e::token::{APP, Token};
use e2e::{streams, wait};
use futures_util::StreamExt as _;
use futures_util::stream;
use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

const ROOMS: [usize; 3] = [1, 100, 10_000];
const AT_ONCE: usize = 64;
/// Commands of a room beside the one that makes it.
const COMMANDS: usize = 6;
const ARCHIVED: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(60);

#[expect(clippy::print_stdout, reason = "its figures are what it is for")]
fn main() {
    // `cargo test --all-targets` starts benches too, without this argument.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    if env::var_os("DAIS_COORDINATOR").is_none() {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo).args(["build", "--release", "--package", "coordinator"]).status();
        assert!(built.is_ok_and(|status| status.success()), "the coordinator could not be built");
    }
    let wanted: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |kind: &Kind| wanted.is_empty() || wanted.contains(&format!("{kind:?}").to_lowercase());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::Mysql].into_iter().filter(is_wanted) {
        for rooms in ROOMS {
            println!("{kind:?}, {rooms} rooms: {}", runtime.block_on(measure(kind, rooms)));
        }
    }
}

async fn measure(kind: Kind, rooms: usize) -> String {
    let database = Database::durable(kind).await;
    let redis = RedisServer::start(Flavor::Redis).await;
    let mut cluster = Cluster::start_on(redis, 1, |options| {
        options.heartbeat(Duration::from_secs(5)).idle(Duration::from_millis(100)).text(
            "ledger",
            "url",
            &database.url,
        )
    })
    .await;
    all(&cluster, rooms, |room| {
        let mut requests = vec![("PUT", format!("/{room}"), r#"{"seats":8}"#.to_owned())];
        for n in 0..COMMANDS / 3 {
            let at = |name: &str| format!("/{room}/commands/{name}");
            let seat = n + 1;
            requests.extend([
                ("POST", at("mic-lock"), format!(r#"{{"seat":{seat},"locked":true}}"#)),
                ("POST", at("kick"), format!(r#"{{"user":"stranger-{n}"}}"#)),
                ("PATCH", format!("/{room}/settings"), format!(r#"{{"custom":{{"n":{n}}}}}"#)),
            ]);
        }
        requests
    })
    .await;
    let change =
        |room: usize| vec![("PATCH", format!("/{room}/settings"), r#"{"custom":{"again":1}}"#.to_owned())];
    let there = all(&cluster, rooms, change).await;
    archived(&cluster.redis).await;
    // Nobody has them in memory.
    cluster[0].kill().await;
    cluster.redis.command(&["FLUSHALL"]).await;
    cluster[0].restart().await;
    cluster[0].ready().await;
    let lost = all(&cluster, rooms, change).await;
    let recovered = cluster[0].metrics().await.sum("dais_rooms_recovered_total", &[]);
    assert!(recovered as usize == rooms, "{recovered} of {rooms} were recovered");
    format!("recovered in {lost}; the same change where nothing is lost: {there}")
}

/// Waits until everything that was committed is in the ledger.
async fn archived(redis: &RedisServer) {
    let is_empty = || async { streams::waiting_in_lanes(redis).await == Some(0) };
    wait::until("everything is archived", ARCHIVED, is_empty).await;
}

/// Sends every room its requests, many rooms at once; says how long that took, and each room.
async fn all(
    cluster: &Cluster,
    rooms: usize,
    requests: impl Fn(usize) -> Vec<(&'static str, String, String)>,
) -> String {
    let bearer = format!("Bearer {}", Token::new("bench", "host").claim("admin", true).sign());
    let base = format!("{}/v1/apps/{APP}/rooms", cluster[0].url());
    let begun = Instant::now();
    let mut took: Vec<Duration> = stream::iter((0..rooms).map(|room| {
        let (requests, base, bearer) = (requests(room), &base, &bearer);
        async move {
            let begun = Instant::now();
            for (method, path, body) in requests {
                let path = path.replacen('/', "/room-", 1);
                let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
                let url = format!("{base}{path}");
                // As a good client does it: again where it is refused for now.
                wait::eventually(PATIENCE, || async {
                    match http::request(method, &url, &headers, &body).await {
                        Ok(answer) if answer.status < 300 => Ok(()),
                        Ok(answer) => Err(format!("{method} {path}: {} {}", answer.status, answer.body)),
                        Err(error) => Err(error.to_string()),
                    }
                })
                .await;
            }
            begun.elapsed()
        }
    }))
    .buffer_unordered(AT_ONCE)
    .collect()
    .await;
    let all = begun.elapsed();
    took.sort_unstable();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    format!("{all:.2?} (p50 {:.1?}, p99 {:.1?})", at(0.5), at(0.99))
}
