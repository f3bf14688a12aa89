//! Many at once, through three instances: one owner, nothing lost, everything in order.

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::wait::{self, SOON};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::clients::{Known, code, together};
use crate::stored::Stored;

const ROOM: &str = "math-101";

/// Leases that survive a loaded machine, and no limit in the way of a load.
fn roomy(options: CoordinatorOptions) -> CoordinatorOptions {
    options
        .heartbeat(Duration::from_secs(1))
        .value("limits", "events_per_second", 100_000)
        .value("limits", "events_burst", 100_000)
        .value("limits", "outgoing_queue", 8_192)
}

#[tokio::test]
async fn i_1_fifty_first_joins_at_once_find_one_owner() {
    const JOINERS: usize = 50;
    let cluster = Cluster::start_with(3, roomy).await;
    let driver = Arc::new(Driver::start().await);
    let connections = (0..JOINERS).map(|n| {
        let (driver, url) = (Arc::clone(&driver), cluster[n % 3].url());
        let token = cluster.token(&format!("user-{n}"), "guest");
        async move { driver.connect(&format!("c{n}"), &url, &token).await.map(drop).expect("connected") }
    });
    together(connections).await;

    // Everybody is connected, so that the first requests of all are for the room.
    let joins = (0..JOINERS).map(|n| {
        let (driver, url) = (Arc::clone(&driver), cluster[n % 3].url());
        let token = cluster.token(&format!("user-{n}"), "guest");
        async move { driver.join_with(&format!("c{n}"), &url, &token, ROOM, json!({ "reuse": true })).await }
    });
    let joined: Vec<Value> = together(joins).await.into_iter().map(|it| it.expect("joined")).collect();

    let stored = Stored::room(&cluster.redis, ROOM);
    let owner = stored.owner().await.expect("an owner");
    assert_eq!(owner.token, stored.fence().await, "there was one token only");
    for answer in &joined {
        let named = &answer["ack"]["room"]["owner"];
        assert_eq!(
            (named["instance"].as_str(), named["token"].as_i64()),
            (Some(owner.name()), Some(owner.token))
        );
        assert!(answer["redirects"].as_u64().is_some_and(|redirects| redirects <= 2), "{answer}");
        assert_eq!(answer["url"], json!(cluster.named(owner.name()).url()));
    }
    assert_eq!(stored.peers().await, 50);
    for coordinator in &cluster.coordinators {
        let rooms = if coordinator.id() == owner.name() { 1.0 } else { 0.0 };
        wait::until("no room is left where it was not won", SOON, || async {
            coordinator.metrics().await.sum("dais_rooms", &[]) == rooms
        })
        .await;
    }
    let last = joined.iter().max_by_key(|it| it["ack"]["room"]["version"]["cell"].as_u64()).expect("joins");
    assert_eq!(last["ack"]["room"]["peerCount"], 50);
}

#[tokio::test]
async fn i_3_i_4_i_5_a_thousand_concurrent_updates_reach_everybody_in_order() {
    const UPDATES: usize = 1_000;
    let cluster = Cluster::start_with(3, roomy).await;
    let driver = Driver::start().await;
    let members = ["host-0", "host-1", "guest-0", "guest-1", "guest-2", "guest-3"];
    let mut known = Vec::new();
    for member in members {
        let role = if member.starts_with("host") { "host" } else { "guest" };
        let token = cluster.token(member, role);
        let fields = json!({ "role": role });
        let answer = driver.join_with(member, &cluster[0].url(), &token, ROOM, fields).await.expect("joined");
        known.push(Known::joined(&answer));
    }
    for (conn, at) in [("b-0", 1), ("b-1", 1), ("c-0", 2), ("c-1", 2)] {
        driver.connect(conn, &cluster[at].url(), &cluster.token(conn, "host")).await.expect("connected");
    }
    let hosts = ["host-0", "b-0", "c-0", "host-1", "b-1", "c-1"];
    let guests = &members[2..];

    let first = known[0].version;
    let settings: Vec<Value> = (0..450)
        .map(|n| match n % 5 {
            0 => json!({ "vad": { "prefixPaddingMs": n } }),
            _ => json!({ "custom": { format!("k{n}"): n } }),
        })
        .map(|patch| json!({ "room": ROOM, "settings": patch }))
        .collect();
    let states: Vec<Value> = (0..450)
        .map(|n| match n % 5 {
            0 => json!({ "stage": n % 2 == 0, "micAllowed": n % 3 == 0 }),
            _ => json!({ "custom": { format!("k{n}"): n } }),
        })
        .enumerate()
        .map(|(n, state)| json!({ "room": ROOM, "user": format!("pupil-{}", n % 30), "state": state }))
        .collect();
    let own: Vec<Value> = (0..100)
        .map(|n| json!({ "room": ROOM, "state": { "custom": { format!("k{n}"): n }, "handRaised": n % 2 == 0 } }))
        .collect();
    let burst = async |name: &str, conns: &[&str], bodies: &[Value]| {
        driver.burst(name, conns, json!({ "bodies": bodies, "concurrency": 48, "timeoutMs": 30_000 })).await
    };
    let (settings_done, states_done, own_done) = tokio::join!(
        burst("room:update", &hosts, &settings),
        burst("guest:update", &hosts, &states),
        burst("guest:update", guests, &own),
    );

    let mut versions = BTreeSet::new();
    for done in [settings_done, states_done, own_done] {
        for result in done.expect("sent")["results"].as_array().expect("results") {
            let ack = &result["ack"];
            assert_eq!(ack["ok"], true, "{result}");
            versions.insert(ack["version"]["settings"].as_i64().expect("a version"));
        }
    }
    assert_eq!(versions.len(), UPDATES, "each update made a version of its own");
    let stored = Stored::room(&cluster.redis, ROOM);
    let last = first + i64::try_from(UPDATES).expect("few");
    assert_eq!(stored.versions().await.0, last);

    let (in_redis, guests_in_redis) = (stored.settings().await, stored.guests().await);
    for n in (0..450).filter(|n| n % 5 != 0) {
        assert_eq!(in_redis["custom"][format!("k{n}")], n);
        assert_eq!(guests_in_redis[format!("pupil-{}", n % 30)]["custom"][format!("k{n}")], n);
    }
    for n in 0..100 {
        assert_eq!(guests_in_redis[format!("guest-{}", n % 4)]["custom"][format!("k{n}")], n);
    }
    for (member, known) in members.iter().zip(&mut known) {
        known.follow(&driver, member, last, SOON).await;
        assert_eq!(known.settings, in_redis, "what {member} was told is what Redis has");
        assert_eq!(known.guests, guests_in_redis, "what {member} was told is what Redis has");
    }
    // Who did not win the room has no memory of it that could change.
    assert_eq!(cluster[1].metrics().await.sum("dais_rooms", &[]), 0.0);
    assert_eq!(cluster[2].metrics().await.sum("dais_rooms", &[]), 0.0);
    let again = driver.emit("guest-0", "room:join", json!({ "room": ROOM })).await.expect("an answer");
    assert_eq!(again["room"]["settings"], in_redis, "what the owner has in memory is what Redis has");
    assert_eq!(again["room"]["version"]["settings"], last);
}

#[tokio::test]
async fn i_3_i_5_changes_that_come_together_are_told_as_one_without_a_gap() {
    const HOSTS: usize = 16;
    const UPDATES: usize = 320;
    let cluster = Cluster::start_with(1, roomy).await;
    let driver = Driver::start().await;
    let guest = cluster.token("guest", "guest");
    let joined = driver.join_with("guest", &cluster[0].url(), &guest, ROOM, json!({})).await.expect("joined");
    let mut known = Known::joined(&joined);
    let hosts: Vec<String> = (0..HOSTS).map(|n| format!("host-{n}")).collect();
    for host in &hosts {
        driver.connect(host, &cluster[0].url(), &cluster.token(host, "host")).await.expect("connected");
    }
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let bodies: Vec<Value> = (0..UPDATES)
        .map(|n| json!({ "room": ROOM, "settings": { "custom": { format!("k{}", n % 40): n } } }))
        .collect();
    let many = json!({ "bodies": bodies, "concurrency": HOSTS, "timeoutMs": 30_000 });
    let done = driver.burst("room:update", &hosts, many).await.expect("sent");
    for result in done["results"].as_array().expect("results") {
        assert_eq!(result["ack"]["ok"], true, "{result}");
    }
    let last = known.version + i64::try_from(UPDATES).expect("few");
    known.follow(&driver, "guest", last, SOON).await;
    assert_eq!(known.settings, Stored::room(&cluster.redis, ROOM).settings().await);
    let told = driver.events("guest", Some("room:update")).await.len();
    assert!(told < UPDATES, "{told} events of {UPDATES} changes");
}

#[tokio::test]
async fn i_3_i_5_a_counter_incremented_at_its_version_is_the_number_of_acknowledged_increments() {
    const INCREMENTS: usize = 1_000;
    const RIVALS: usize = 6;
    let cluster = Cluster::start_with(3, roomy).await;
    let driver = Arc::new(Driver::start().await);
    let host = cluster.token("host", "host");
    let answer = driver.join_with("host", &cluster[0].url(), &host, ROOM, json!({ "role": "host" })).await;
    let mut known = Known::joined(&answer.expect("joined"));
    let start =
        json!({ "room": ROOM, "settings": { "custom": { "lesson": { "counter": 0, "name": "sums" } } } });
    assert_eq!(driver.emit("host", "room:update", start).await.expect("an answer")["ok"], true);

    let rivals = (0..RIVALS).map(|n| {
        let (driver, url) = (Arc::clone(&driver), cluster[n % 3].url());
        let token = cluster.token(&format!("rival-{n}"), "host");
        async move {
            let conn = format!("rival-{n}");
            driver.connect(&conn, &url, &token).await.expect("connected");
            let (mut acknowledged, mut conflicts) = (0, 0);
            for _ in 0..INCREMENTS.div_ceil(RIVALS) {
                let read = driver.emit(&conn, "room:watch", json!({ "rooms": [ROOM] })).await;
                let seen = read.expect("an answer")["rooms"][0].take();
                let counter = seen["settings"]["custom"]["lesson"]["counter"].as_i64().expect("a counter");
                let next = json!({
                    "room": ROOM, "ifVersion": seen["version"]["settings"],
                    "settings": { "custom": { "lesson": { "counter": counter + 1 } } },
                });
                let ack = driver.emit(&conn, "room:update", next).await.expect("an answer");
                match code(&ack) {
                    "" => acknowledged += 1,
                    "VERSION_CONFLICT" => conflicts += 1,
                    _ => panic!("{ack}"),
                }
            }
            (acknowledged, conflicts)
        }
    });
    let tallies = together(rivals).await;
    let acknowledged: i64 = tallies.iter().map(|(acknowledged, _)| acknowledged).sum();
    let conflicts: i64 = tallies.iter().map(|(_, conflicts)| conflicts).sum();
    assert!(acknowledged > 0 && conflicts > 0, "{acknowledged} acknowledged, {conflicts} in conflict");

    let stored = Stored::room(&cluster.redis, ROOM);
    let custom = json!({ "lesson": { "counter": acknowledged, "name": "sums" } });
    assert_eq!(stored.settings().await["custom"], custom);
    let last = stored.versions().await.0;
    assert_eq!(last, known.version + 1 + acknowledged, "a conflict makes no version");
    known.follow(&driver, "host", last, SOON).await;
    assert_eq!(known.settings["custom"], custom);
}

#[tokio::test]
async fn i_5_a_guest_changes_only_its_own_hand_and_custom_state() {
    let cluster = Cluster::start(2).await;
    let driver = Driver::start().await;
    let url = cluster[0].url();
    driver.join("guest", &url, &cluster.token("guest", "guest"), ROOM).await.expect("joined");
    // May be a host, but came as a guest.
    driver.join("modest", &url, &cluster.token("modest", "host"), ROOM).await.expect("joined");
    driver.connect("away", &cluster[1].url(), &cluster.token("guest", "guest")).await.expect("connected");
    let stored = Stored::room(&cluster.redis, ROOM);
    let before = stored.versions().await;
    let refused = [
        json!({ "state": { "micAllowed": true } }),
        json!({ "state": { "videoAllowed": false } }),
        json!({ "state": { "stage": true } }),
        json!({ "state": { "handRaised": true, "stage": null } }),
        json!({ "user": "other", "state": { "handRaised": true } }),
    ];
    for conn in ["guest", "modest", "away"] {
        for body in &refused {
            let mut body = body.clone();
            body["room"] = json!(ROOM);
            let ack = driver.emit(conn, "guest:update", body).await.expect("an answer");
            assert_eq!(code(&ack), "FORBIDDEN", "{ack}");
        }
        let settings = json!({ "room": ROOM, "settings": { "autoTransitionEnabled": false } });
        let ack = driver.emit(conn, "room:update", settings).await.expect("an answer");
        assert_eq!(code(&ack), "FORBIDDEN", "{ack}");
    }
    assert_eq!(stored.versions().await, before);
    assert_eq!(stored.guests().await, json!({}));

    for (conn, user) in [("guest", "guest"), ("modest", "modest"), ("away", "guest")] {
        let own = json!({ "room": ROOM, "state": { "handRaised": true, "custom": { "mood": conn } } });
        assert_eq!(driver.emit(conn, "guest:update", own).await.expect("an answer")["ok"], true);
        let state = json!({ "handRaised": true, "custom": { "mood": conn } });
        assert_eq!(stored.guests().await[user], state);
    }
}
