//! Coming back: one person is one peer, whatever of an old connection arrives late (I-21), and nothing but a join
//! makes anybody present (I-10).

#![expect(clippy::unwrap_used, reason = "helpers of tests: what fails here fails the test")]

use e2e::cluster::Cluster;
use e2e::driver::Driver;
use e2e::token::Token;
use e2e::wait::{self, SOON};
use key_prefix::KeyKind;
use serde_json::{Value, json};
use std::time::Duration;

use crate::stored::of_room;

const ROOM: &str = "math";

fn auth(user: &str, role: &str, device: Option<&str>) -> Value {
    let mut auth = json!({ "token": Token::new(user, role).sign() });
    if let Some(device) = device {
        auth["device"] = json!(device);
    }
    json!({ "auth": auth })
}

async fn connect(driver: &Driver, cluster: &Cluster, conn: &str, user: &str, device: Option<&str>) {
    let opened = driver.connect_with(conn, &cluster[0].url(), "", auth(user, "host", device)).await;
    opened.expect("connected");
}

/// Joins over a connection of its own, with what the client knows of an earlier peer.
async fn enter(
    driver: &Driver,
    cluster: &Cluster,
    conn: &str,
    (user, device): (&str, Option<&str>),
    resume: Option<&str>,
) -> Value {
    connect(driver, cluster, conn, user, device).await;
    let ack =
        driver.emit(conn, "room:join", json!({ "room": ROOM, "resume": resume })).await.expect("an ack");
    assert_eq!(ack["ok"], true, "{ack}");
    ack
}

async fn sockets(cluster: &Cluster, count: f64) {
    wait::eventually(SOON, || async {
        let open = cluster[0].metrics().await.sum("dais_sockets", &[]);
        if open == count { Ok(()) } else { Err(format!("{open} connections instead of {count}")) }
    })
    .await;
}

/// Everything that `witness` was told of presence until a newcomer is seen, which proves that nothing else is
/// on its way.
async fn presence_until_marker(
    driver: &Driver,
    cluster: &Cluster,
    witness: &str,
    marker: &str,
) -> Vec<Value> {
    enter(driver, cluster, marker, (marker, None), None).await;
    let names = |event: &e2e::driver::Event| {
        let joined = event.body["joined"].as_array().cloned().unwrap_or_default();
        event.name == "room:presence" && joined.iter().any(|peer| peer["user"] == marker)
    };
    driver.wait_event(witness, 0, SOON, names).await;
    let told = driver.events(witness, Some("room:presence")).await;
    told.into_iter().map(|event| event.body).collect()
}

fn times(told: &[Value], list: &str, user: &str) -> usize {
    let each = told.iter().filter_map(|body| body[list].as_array()).flatten();
    each.filter(|peer| peer["user"] == user).count()
}

async fn size(cluster: &Cluster, command: &str, segment: &str) -> i64 {
    let key = format!("test:{segment}:demo\0{ROOM}");
    cluster.redis.command(&[command, &key]).await.number().unwrap_or(-1)
}

/// How the client comes back.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// The new connection joins, then the old one is cut.
    JoinFirst,
    /// The old connection reads nothing any more, the new one joins, then the old one is cut.
    Stalled,
    /// The old one is cut and the new one joins at once.
    CutFirst,
    /// The old one is cut, the server has noticed, then the new one joins.
    CutAndNoticed,
}

async fn come_back(device: Option<&str>, with_resume: bool) {
    for order in [Order::JoinFirst, Order::Stalled, Order::CutFirst, Order::CutAndNoticed] {
        let cluster = Cluster::start(1).await;
        let driver = Driver::start().await;
        enter(&driver, &cluster, "witness", ("witness", None), None).await;
        let first = enter(&driver, &cluster, "old", ("ann", device), None).await;
        let resume = if with_resume { first["self"]["resume"].as_str() } else { None };
        let is_cut = matches!(order, Order::CutFirst | Order::CutAndNoticed);
        match order {
            Order::Stalled => driver.stall("old", true).await.unwrap(),
            Order::CutFirst | Order::CutAndNoticed => driver.abort("old").await.unwrap(),
            Order::JoinFirst => {}
        }
        if order == Order::CutAndNoticed {
            sockets(&cluster, 1.0).await;
        }
        let again = enter(&driver, &cluster, "new", ("ann", device), resume).await;
        assert_eq!(again["room"]["peerCount"], 2, "{order:?}: one peer for each person");
        assert_ne!(again["self"]["peer"], first["self"]["peer"], "{order:?}");
        if order == Order::JoinFirst {
            let evicted = driver.wait_named("old", "session:evicted", SOON).await;
            assert_eq!(evicted.body, json!({ "room": ROOM, "reason": "replaced" }));
            changes_nothing(&driver, "old").await;
        }
        if !is_cut {
            driver.abort("old").await.unwrap();
        }
        sockets(&cluster, 2.0).await;

        let told = presence_until_marker(&driver, &cluster, "witness", "bob").await;
        assert_eq!(times(&told, "left", "ann"), 0, "{order:?}: {told:#?}");
        assert_eq!(times(&told, "joined", "ann"), 1, "{order:?}: {told:#?}");
        let peers = driver.emit("new", "room:peers", json!({ "room": ROOM })).await.unwrap();
        let devices: Vec<_> =
            peers["peers"].as_array().unwrap().iter().map(|peer| &peer["devices"]).collect();
        assert_eq!(devices, [1, 1, 1], "{order:?}: {peers}");
        let beat = driver.emit("new", "room:heartbeat", json!({ "room": ROOM })).await.unwrap();
        assert_eq!(beat["ok"], true, "{order:?}: the newer connection is the peer");
        assert_eq!(size(&cluster, "HLEN", "peers").await, 3, "{order:?}");
        assert_eq!(size(&cluster, "ZCARD", "presence").await, 3, "{order:?}");
    }
}

/// Nothing that a replaced connection asks for is done, though its token would allow it.
async fn changes_nothing(driver: &Driver, conn: &str) {
    for (event, body) in [
        ("room:leave", json!({ "room": ROOM })),
        ("room:heartbeat", json!({ "room": ROOM })),
        ("room:peers", json!({ "room": ROOM })),
        ("room:update", json!({ "room": ROOM, "settings": { "noiseReduction": "off" } })),
        ("guest:update", json!({ "room": ROOM, "state": { "handRaised": true } })),
        ("media:publish", json!({ "room": ROOM, "sdp": "v=0" })),
    ] {
        let ack = driver.emit(conn, event, body).await.expect("an ack");
        assert_eq!(ack["error"]["code"], "NOT_IN_ROOM", "{event}: {ack}");
    }
}

#[tokio::test]
async fn i_21_a_device_that_comes_back_is_one_peer_and_nobody_sees_it_leave() {
    come_back(Some("phone"), false).await;
}

#[tokio::test]
async fn i_21_a_resume_that_comes_back_is_one_peer_and_nobody_sees_it_leave() {
    come_back(None, true).await;
}

#[tokio::test]
async fn i_21_a_user_who_comes_back_without_either_is_one_peer_and_nobody_sees_it_leave() {
    come_back(None, false).await;
}

#[tokio::test]
async fn i_21_twenty_reconnects_in_a_row_are_one_peer() {
    let cluster = Cluster::start(1).await;
    let driver = Driver::start().await;
    enter(&driver, &cluster, "witness", ("witness", None), None).await;
    for n in 0..20 {
        enter(&driver, &cluster, &format!("ann{n}"), ("ann", Some("phone")), None).await;
        if n % 2 == 0 {
            driver.abort(&format!("ann{n}")).await.unwrap();
        } else if n > 1 {
            driver.abort(&format!("ann{}", n - 2)).await.unwrap();
        }
    }
    let told = presence_until_marker(&driver, &cluster, "witness", "bob").await;
    assert_eq!((times(&told, "joined", "ann"), times(&told, "left", "ann")), (1, 0), "{told:#?}");
    assert_eq!(size(&cluster, "HLEN", "peers").await, 3);
    driver.close("ann19").await.unwrap();
}

#[tokio::test]
async fn i_21_joining_twice_over_one_connection_is_the_same_peer() {
    let cluster = Cluster::start(1).await;
    let driver = Driver::start().await;
    enter(&driver, &cluster, "witness", ("witness", None), None).await;
    let first = enter(&driver, &cluster, "ann", ("ann", None), None).await;
    let again = driver.emit("ann", "room:join", json!({ "room": ROOM })).await.unwrap();
    assert_eq!(again["self"], first["self"]);
    assert_eq!(again["room"]["version"]["cell"], first["room"]["version"]["cell"], "nothing was written");
    let told = presence_until_marker(&driver, &cluster, "witness", "bob").await;
    assert_eq!((times(&told, "joined", "ann"), times(&told, "left", "ann")), (1, 0), "{told:#?}");
}

async fn with_devices(policy: &str) -> (Cluster, Driver) {
    let cluster = Cluster::start_with(1, |options| options.text("app", "devices", policy)).await;
    let driver = Driver::start().await;
    enter(&driver, &cluster, "witness", ("witness", None), None).await;
    enter(&driver, &cluster, "phone", ("ann", Some("phone")), None).await;
    (cluster, driver)
}

#[tokio::test]
async fn i_21_with_replace_another_device_ends_the_first() {
    let (cluster, driver) = with_devices("replace").await;
    let second = enter(&driver, &cluster, "desk", ("ann", Some("desk")), None).await;
    assert_eq!(second["room"]["peerCount"], 2);
    let evicted = driver.wait_named("phone", "session:evicted", SOON).await;
    assert_eq!(evicted.body["reason"], "replaced");
    changes_nothing(&driver, "phone").await;
    // It may come back by joining, and is then the one that counts.
    let back = driver.emit("phone", "room:join", json!({ "room": ROOM })).await.unwrap();
    assert_eq!(back["ok"], true, "{back}");
    let raised = json!({ "room": ROOM, "state": { "handRaised": true } });
    assert_eq!(driver.emit("phone", "guest:update", raised).await.unwrap()["ok"], true);
    driver.wait_named("desk", "session:evicted", SOON).await;
    let told = presence_until_marker(&driver, &cluster, "witness", "bob").await;
    assert_eq!((times(&told, "joined", "ann"), times(&told, "left", "ann")), (1, 0), "{told:#?}");
}

#[tokio::test]
async fn i_21_with_reject_another_device_is_refused_while_the_first_is_there() {
    let (cluster, driver) = with_devices("reject").await;
    connect(&driver, &cluster, "desk", "ann", Some("desk")).await;
    let refused = driver.emit("desk", "room:join", json!({ "room": ROOM })).await.unwrap();
    assert_eq!(refused["error"]["code"], "FORBIDDEN", "{refused}");
    assert_eq!(refused["error"]["message"], "the user is in the room on another device");
    let beat = driver.emit("phone", "room:heartbeat", json!({ "room": ROOM })).await.unwrap();
    assert_eq!(beat["ok"], true, "the first stays");
    // The same device comes back, and so does anybody whose device is away.
    enter(&driver, &cluster, "phone2", ("ann", Some("phone")), None).await;
    driver.wait_named("phone", "session:evicted", SOON).await;
    driver.abort("phone2").await.unwrap();
    sockets(&cluster, 3.0).await;
    let taken = driver.emit("desk", "room:join", json!({ "room": ROOM })).await.unwrap();
    assert_eq!((&taken["ok"], &taken["room"]["peerCount"]), (&json!(true), &json!(2)), "{taken}");
    let told = presence_until_marker(&driver, &cluster, "witness", "bob").await;
    assert_eq!((times(&told, "joined", "ann"), times(&told, "left", "ann")), (1, 0), "{told:#?}");
}

#[tokio::test]
async fn i_21_with_allow_a_user_leaves_with_the_last_device() {
    let (cluster, driver) = with_devices("allow").await;
    let second = enter(&driver, &cluster, "desk", ("ann", Some("desk")), None).await;
    assert_eq!(second["room"]["peerCount"], 3, "peers are devices");
    let is_on = |devices: u64| {
        move |event: &e2e::driver::Event| {
            let joined = event.body["joined"].as_array().cloned().unwrap_or_default();
            joined.iter().any(|peer| peer["user"] == "ann" && peer["devices"] == devices)
        }
    };
    let both = driver.wait_event("witness", 0, SOON, is_on(2)).await;
    assert_eq!(driver.emit("phone", "room:leave", json!({ "room": ROOM })).await.unwrap()["ok"], true);
    let one = driver.wait_event("witness", both.index + 1, SOON, is_on(1)).await;
    assert_eq!(one.body["left"], json!([]));
    assert_eq!(driver.emit("desk", "room:leave", json!({ "room": ROOM })).await.unwrap()["ok"], true);
    let gone = driver
        .wait_event("witness", one.index + 1, SOON, |event| {
            !event.body["left"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
    assert_eq!(gone.body["left"], json!([{ "user": "ann", "reason": "left" }]));
    assert_eq!(gone.body["peerCount"], 1);
    let told = driver.events("phone", Some("session:evicted")).await;
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn i_21_who_does_not_come_back_leaves_as_stale_and_only_a_join_makes_it_present_again() {
    let cluster = Cluster::start_with(1, |options| options.grace(Duration::from_millis(300))).await;
    let driver = Driver::start().await;
    enter(&driver, &cluster, "witness", ("witness", None), None).await;
    let ann = enter(&driver, &cluster, "ann", ("ann", None), None).await;
    driver.abort("ann").await.unwrap();
    let is_departure =
        |event: &e2e::driver::Event| event.body["left"].as_array().is_some_and(|left| !left.is_empty());
    let left = driver.wait_event("witness", 0, SOON, is_departure).await;
    assert_eq!(left.body["left"], json!([{ "user": "ann", "reason": "stale_left" }]));
    assert_eq!(left.body["peerCount"], 1);
    assert_eq!(size(&cluster, "HLEN", "peers").await, 1);

    // I-10: a heartbeat is refused, and makes nobody present; neither does one of somebody who was never there.
    connect(&driver, &cluster, "back", "ann", None).await;
    connect(&driver, &cluster, "eve", "eve", None).await;
    for conn in ["back", "eve"] {
        let beat = driver.emit(conn, "room:heartbeat", json!({ "room": ROOM })).await.unwrap();
        assert_eq!(beat["error"]["code"], "NOT_IN_ROOM", "{beat}");
        let elsewhere = driver.emit(conn, "room:heartbeat", json!({ "room": "nowhere" })).await.unwrap();
        assert_eq!(elsewhere["error"]["code"], "NOT_IN_ROOM", "{elsewhere}");
    }
    assert_eq!(size(&cluster, "ZCARD", "presence").await, 1);
    let nowhere = cluster
        .redis
        .command(&["EXISTS", &of_room(KeyKind::Presence, "nowhere"), &of_room(KeyKind::Room, "nowhere")])
        .await;
    assert_eq!(nowhere.number(), Some(0));

    let resume = ann["self"]["resume"].as_str();
    let again = driver.emit("back", "room:join", json!({ "room": ROOM, "resume": resume })).await.unwrap();
    assert_eq!((&again["ok"], &again["room"]["peerCount"]), (&json!(true), &json!(2)), "{again}");
    let is_ann =
        |event: &e2e::driver::Event| event.body["joined"].as_array().is_some_and(|all| !all.is_empty());
    let seen = driver.wait_event("witness", left.index + 1, SOON, is_ann).await;
    assert_eq!(seen.body["joined"][0]["user"], "ann", "after the grace it is a new arrival");
}
