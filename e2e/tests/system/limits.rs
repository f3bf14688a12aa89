//! Each key of `[limits]` at n, which passes, and at n + 1, which does not.

#![expect(clippy::unwrap_used, reason = "helpers of tests: what fails here fails the test")]

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::process::Process;
use e2e::wait::{self, SOON};
use e2e::{http, place};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::Command;

const ROOM: &str = "math";

/// Every key, each with a test below.
const TESTED: [&str; 15] = [
    "attributes_bytes",
    "connections",
    "custom_bytes",
    "events_burst",
    "events_per_second",
    "guest_custom_bytes",
    "guests_per_room",
    "handshake_timeout_ms",
    "joins_burst",
    "joins_per_second",
    "json_depth",
    "max_event_bytes",
    "outgoing_queue",
    "rooms_per_connection",
    "watch_rooms",
];

#[tokio::test]
async fn every_limit_of_the_reference_is_tested_here() {
    let binary =
        env::var_os("DAIS_COORDINATOR").map_or_else(|| place::profile().join("coordinator"), PathBuf::from);
    let mut command = Command::new(binary);
    command.arg("reference");
    let process = Process::start("reference", command);
    process.line("telemetry", 0, SOON, |line| (line == "[telemetry]").then_some(())).await;
    let lines = process.log_lines();
    let section =
        lines.iter().skip_while(|line| *line != "[limits]").skip(1).take_while(|line| !line.starts_with('['));
    let keys: BTreeSet<&str> =
        section.filter_map(|line| line.trim_start_matches("# ").split_once(" = ")).map(|it| it.0).collect();
    assert_eq!(keys, BTreeSet::from(TESTED));
}

async fn with(change: impl Fn(CoordinatorOptions) -> CoordinatorOptions) -> (Cluster, Driver) {
    (Cluster::start_with(1, change).await, Driver::start().await)
}

async fn connect(driver: &Driver, cluster: &Cluster, user: &str) {
    driver.connect(user, &cluster[0].url(), &cluster.token(user, "host")).await.expect("connected");
}

async fn join(driver: &Driver, cluster: &Cluster, user: &str) {
    let role = json!({ "role": "host" });
    driver
        .join_with(user, &cluster[0].url(), &cluster.token(user, "host"), ROOM, role)
        .await
        .expect("joined");
}

async fn ask(driver: &Driver, conn: &str, event: &str, body: Value) -> Value {
    driver.emit(conn, event, body).await.unwrap_or_else(|failure| panic!("{event}: {failure:?}"))
}

async fn passes(driver: &Driver, conn: &str, event: &str, body: Value) -> Value {
    let ack = ask(driver, conn, event, body).await;
    assert_eq!(ack["ok"], true, "{event}: {ack}");
    ack
}

/// The request is refused with this code and a message that says this.
async fn refused(driver: &Driver, conn: &str, event: &str, body: Value, (code, said): (&str, &str)) {
    let ack = ask(driver, conn, event, body).await;
    assert_eq!(ack["error"]["code"], code, "{event}: {ack}");
    assert!(ack["error"]["message"].as_str().is_some_and(|text| text.contains(said)), "no {said:?} in {ack}");
}

#[tokio::test]
async fn connections() {
    let (cluster, driver) = with(|options| options.value("limits", "connections", 2)).await;
    connect(&driver, &cluster, "ann").await;
    connect(&driver, &cluster, "bob").await;
    let url = cluster[0].url();
    let refusal = driver.connect("eve", &url, &cluster.token("eve", "host")).await.unwrap_err();
    let error: Value = serde_json::from_str(&refusal.message).expect("an error object");
    assert_eq!((&error["code"], &error["retryable"]), (&json!("RATE_LIMITED"), &json!(true)), "{error}");
    assert!(error["retryAfterMs"].as_u64().is_some_and(|pause| pause >= 500), "{error}");
    driver.close("bob").await.unwrap();
    let token = cluster.token("eve", "host");
    wait::eventually(SOON, || driver.connect("eve", &url, &token)).await;
}

#[tokio::test]
async fn handshake_timeout_ms() {
    let (cluster, driver) = with(|options| options.value("limits", "handshake_timeout_ms", 500)).await;
    // Who signs in stays.
    connect(&driver, &cluster, "ann").await;
    // Who opens a session and never does is put out.
    let base = format!("{}/socket.io/?EIO=4&transport=polling", cluster[0].url());
    let opened = http::get(&base).await.unwrap();
    let packet: Value = serde_json::from_str(opened.body.trim_start_matches('0')).expect("an open packet");
    let poll = format!("{base}&sid={}", packet["sid"].as_str().expect("a session"));
    wait::eventually(SOON, || async {
        let answer = http::get(&poll).await.map_err(|error| error.to_string())?;
        if answer.status == 400 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    refused(&driver, "ann", "room:leave", json!({ "room": ROOM }), ("NOT_IN_ROOM", ROOM)).await;
}

#[tokio::test]
async fn max_event_bytes() {
    const MAX: usize = 2_048;
    let (cluster, driver) = with(|options| {
        options
            .value("limits", "max_event_bytes", MAX)
            .value("limits", "custom_bytes", 1_024)
            .value("limits", "guest_custom_bytes", 1_024)
            .value("limits", "attributes_bytes", 1_024)
    })
    .await;
    for (conn, size, passes) in [("exact", MAX, true), ("over", MAX + 1, false)] {
        connect(&driver, &cluster, conn).await;
        let (head, tail) = (r#"2["room:leave",{"room":"x","pad":""#, r#""}]"#);
        // The message is one byte longer than what is sent: the transport puts its own 4 in front.
        let pad = size - 1 - head.len() - tail.len();
        let parts = json!([[head, 1], ["x", pad], [tail, 1]]);
        driver.ask("sendRaw", json!({ "conn": conn, "parts": parts })).await.unwrap();
        if passes {
            refused(&driver, conn, "room:leave", json!({ "room": ROOM }), ("NOT_IN_ROOM", ROOM)).await;
        } else {
            driver.wait_named(conn, "disconnect", SOON).await;
        }
    }
}

/// Sends `count` requests at once and returns how many were refused as too many, and in how many ms.
async fn refusals(
    driver: &Driver,
    conns: &[&str],
    name: &str,
    count: usize,
    template: Value,
) -> (usize, f64) {
    let fields = json!({ "template": template, "count": count, "concurrency": count });
    let done = driver.burst(name, conns, fields).await.unwrap();
    let results = done["results"].as_array().unwrap();
    let limited = results.iter().filter(|result| result["ack"]["error"]["code"] == "RATE_LIMITED");
    assert!(
        limited.clone().all(|result| result["ack"]["error"]["retryAfterMs"].as_u64() > Some(0)),
        "{done}"
    );
    (limited.count(), done["elapsedMs"].as_f64().unwrap())
}

#[tokio::test]
async fn events_burst_and_events_per_second() {
    const BURST: usize = 10;
    let (cluster, driver) = with(|options| {
        options.value("limits", "events_per_second", 1).value("limits", "events_burst", BURST)
    })
    .await;
    let mut round = 0;
    // A machine so loaded that a second passes meanwhile lets more through, rightly: then try again.
    loop {
        round += 1;
        let (exact, over) = (format!("exact{round}"), format!("over{round}"));
        connect(&driver, &cluster, &exact).await;
        connect(&driver, &cluster, &over).await;
        let body = json!({ "room": ROOM });
        assert_eq!(refusals(&driver, &[&exact], "room:leave", BURST, body.clone()).await.0, 0);
        let (limited, took) = refusals(&driver, &[&over], "room:leave", BURST + 1, body.clone()).await;
        if took < 1_000.0 {
            assert_eq!(limited, 1);
            // One more each second.
            wait::eventually(SOON, || async {
                let ack = ask(&driver, &over, "room:leave", body.clone()).await;
                if ack["error"]["code"] == "NOT_IN_ROOM" { Ok(()) } else { Err(ack) }
            })
            .await;
            break;
        }
        assert!(round < 10, "never faster than a second");
    }
}

#[tokio::test]
async fn joins_burst_and_joins_per_second() {
    let (cluster, driver) =
        with(|options| options.value("limits", "joins_per_second", 1).value("limits", "joins_burst", 3))
            .await;
    let users = ["a", "b", "c", "d"];
    for user in users {
        connect(&driver, &cluster, user).await;
    }
    let (limited, took) = refusals(&driver, &users, "room:join", 4, json!({ "room": "room-{i}" })).await;
    assert!(limited == 1 || (took >= 1_000.0 && limited == 0), "{limited} refused in {took} ms");
    let metrics = cluster[0].metrics().await;
    assert_eq!(metrics.sum("dais_admissions_refused_total", &[]), if limited == 1 { 1.0 } else { 0.0 });
    // Who waits as it is told gets in.
    let url = cluster[0].url();
    driver.join("e", &url, &cluster.token("e", "host"), ROOM).await.expect("joined a little later");
}

#[tokio::test]
async fn rooms_per_connection_and_watch_rooms() {
    let (cluster, driver) =
        with(|options| options.value("limits", "rooms_per_connection", 2).value("limits", "watch_rooms", 2))
            .await;
    connect(&driver, &cluster, "ann").await;
    for room in ["r1", "r2", "r2"] {
        passes(&driver, "ann", "room:join", json!({ "room": room })).await;
    }
    let full = ("BAD_REQUEST", "this connection is in 2 rooms already");
    refused(&driver, "ann", "room:join", json!({ "room": "r3" }), full).await;
    passes(&driver, "ann", "room:leave", json!({ "room": "r1" })).await;
    passes(&driver, "ann", "room:join", json!({ "room": "r3" })).await;

    let over = ("BAD_REQUEST", "3 rooms would be watched, at most 2 are allowed");
    refused(&driver, "ann", "room:watch", json!({ "rooms": ["r1", "r2", "r3"] }), over).await;
    passes(&driver, "ann", "room:watch", json!({ "rooms": ["r1", "r2"] })).await;
    // The same ones again are no more than they were.
    passes(&driver, "ann", "room:watch", json!({ "rooms": ["r2", "r1", "r1"] })).await;
    refused(&driver, "ann", "room:watch", json!({ "rooms": ["r3"] }), over).await;
    passes(&driver, "ann", "room:unwatch", json!({ "rooms": ["r1"] })).await;
    passes(&driver, "ann", "room:watch", json!({ "rooms": ["r3"] })).await;
}

#[tokio::test]
async fn guests_per_room() {
    let (cluster, driver) = with(|options| options.value("limits", "guests_per_room", 2)).await;
    join(&driver, &cluster, "ann").await;
    let of =
        |user: &str, raised: bool| json!({ "room": ROOM, "user": user, "state": { "handRaised": raised } });
    passes(&driver, "ann", "guest:update", of("g1", true)).await;
    passes(&driver, "ann", "guest:update", of("g2", true)).await;
    let full = ("PAYLOAD_TOO_LARGE", "2 users have a state in this room already");
    refused(&driver, "ann", "guest:update", of("g3", true), full).await;
    passes(&driver, "ann", "guest:update", of("g2", false)).await;
}

#[tokio::test]
async fn json_depth() {
    let (cluster, driver) = with(|options| options.value("limits", "json_depth", 3)).await;
    join(&driver, &cluster, "ann").await;
    let nested = |levels: usize| json!({ "$nested": levels });
    let settings = |levels| json!({ "room": ROOM, "settings": { "custom": nested(levels) } });
    let guest = |levels| json!({ "room": ROOM, "state": { "custom": nested(levels) } });
    let attributes = |levels| json!({ "room": "other", "attributes": { "of": nested(levels) } });
    let said = "nested 4 deep, at most 3 is allowed";
    passes(&driver, "ann", "room:update", settings(3)).await;
    refused(&driver, "ann", "room:update", settings(4), ("BAD_REQUEST", said)).await;
    passes(&driver, "ann", "guest:update", guest(3)).await;
    refused(&driver, "ann", "guest:update", guest(4), ("BAD_REQUEST", said)).await;
    refused(&driver, "ann", "room:join", attributes(4), ("BAD_REQUEST", said)).await;
    passes(&driver, "ann", "room:join", attributes(3)).await;
}

/// An object that has so many bytes as JSON.
fn sized(bytes: usize) -> Value {
    let value = json!({ "a": "x".repeat(bytes - r#"{"a":""}"#.len()) });
    assert_eq!(value.to_string().len(), bytes);
    value
}

#[tokio::test]
async fn custom_bytes_and_guest_custom_bytes_and_attributes_bytes() {
    let (cluster, driver) = with(|options| {
        options.value("limits", "custom_bytes", 100).value("limits", "guest_custom_bytes", 100).value(
            "limits",
            "attributes_bytes",
            100,
        )
    })
    .await;
    join(&driver, &cluster, "ann").await;
    let settings = |bytes| json!({ "room": ROOM, "settings": { "custom": sized(bytes) } });
    passes(&driver, "ann", "room:update", settings(100)).await;
    refused(
        &driver,
        "ann",
        "room:update",
        settings(101),
        ("PAYLOAD_TOO_LARGE", "`custom` would have 101 bytes"),
    )
    .await;
    // What is merged counts, not what is sent.
    let more = json!({ "room": ROOM, "settings": { "custom": { "b": 1 } } });
    refused(&driver, "ann", "room:update", more, ("PAYLOAD_TOO_LARGE", "`custom` would have 106 bytes"))
        .await;

    // A guest's whole state counts: 11 bytes are `{"custom":` and `}`.
    let guest = |bytes: usize| json!({ "room": ROOM, "user": "g", "state": { "custom": sized(bytes - 11) } });
    passes(&driver, "ann", "guest:update", guest(100)).await;
    refused(&driver, "ann", "guest:update", guest(101), ("PAYLOAD_TOO_LARGE", "101 bytes")).await;

    let attributes = |bytes| json!({ "room": "other", "attributes": sized(bytes) });
    let over = ("PAYLOAD_TOO_LARGE", "`attributes` has 101 bytes, at most 100 are allowed");
    refused(&driver, "ann", "room:join", attributes(101), over).await;
    passes(&driver, "ann", "room:join", attributes(100)).await;
}

#[tokio::test]
async fn outgoing_queue() {
    let (cluster, driver) = with(|options| {
        options
            .value("limits", "outgoing_queue", 16)
            .value("limits", "max_event_bytes", 131_072)
            .value("limits", "custom_bytes", 65_536)
            .value("limits", "events_per_second", 10_000)
    })
    .await;
    for user in ["host", "reader", "sleeper"] {
        join(&driver, &cluster, user).await;
    }
    // Who reads gets whatever comes, however much it is; who does not is cut off, and counted.
    driver.stall("sleeper", true).await.unwrap();
    let change = |n: usize| json!({ "room": ROOM, "settings": { "custom": { "text": format!("{n}").repeat(50_000 / n.to_string().len()) } } });
    let mut version = 0;
    for n in 0..2_000 {
        version =
            passes(&driver, "host", "room:update", change(n)).await["version"]["settings"].as_u64().unwrap();
        if n % 20 == 0
            && cluster[0].metrics().await.sum("dais_skipped_total", &[("reason", "queue_full")]) > 0.0
        {
            break;
        }
    }
    let is_last = |event: &e2e::driver::Event| event.name == "room:update" && event.body["to"] == version;
    driver.wait_event("reader", 0, SOON, is_last).await;
    let metrics = cluster[0].metrics().await;
    assert!(metrics.sum("dais_skipped_total", &[("reason", "queue_full")]) > 0.0, "it was never cut off");
    // It is cut off once it reads again, and has been told nothing more.
    driver.stall("sleeper", false).await.unwrap();
    driver.wait_named("sleeper", "disconnect", SOON).await;
    wait::eventually(SOON, || async {
        let open = cluster[0].metrics().await.sum("dais_sockets", &[]);
        if open == 2.0 { Ok(()) } else { Err(open) }
    })
    .await;
    for user in ["host", "reader"] {
        passes(&driver, user, "room:heartbeat", json!({ "room": ROOM })).await;
    }
}
