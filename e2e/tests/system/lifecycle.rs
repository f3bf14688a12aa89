//! Rooms that come and go, and instances that end as they should.

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::wait::{self, SOON};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clients::{Known, assert_refused_for_now, code, together};
use crate::stored::{Stored, incarnations};

const ROOM: &str = "math-101";
const FOR_NOW: [&str; 4] = ["STORE_UNAVAILABLE", "LEASE_LOST", "RATE_LIMITED", "WRONG_INSTANCE"];

/// Rooms end as soon as they are empty, and those who are cut off are gone at once.
fn fleeting(options: CoordinatorOptions) -> CoordinatorOptions {
    let options = options.heartbeat(Duration::from_secs(1)).idle(Duration::from_millis(1));
    options.grace(Duration::from_millis(2)).value("limits", "events_per_second", 10_000).value(
        "limits",
        "events_burst",
        10_000,
    )
}

async fn rooms_in_memory(cluster: &Cluster) -> f64 {
    let mut rooms = 0.0;
    for coordinator in &cluster.coordinators {
        rooms += coordinator.metrics().await.sum("dais_rooms", &[]);
    }
    rooms
}

/// Comes and goes, and each time changes a setting and is told of it. The tokens that it met.
async fn come_and_go(driver: Arc<Driver>, urls: Vec<String>, token: String, user: usize) -> Vec<i64> {
    const ROUNDS: usize = 20;
    let conn = format!("user-{user}");
    let mut tokens = Vec::new();
    for round in 0..ROUNDS {
        let mut urls = urls.clone();
        urls.rotate_left((round + user) % 3);
        let fields = json!({ "url": urls, "role": "host" });
        let answer = driver.join_with(&conn, "", &token, ROOM, fields).await.expect("joined");
        for waited in answer["waited"].as_array().expect("a list") {
            assert!(FOR_NOW.iter().any(|code| waited == code), "{answer}");
        }
        tokens.push(answer["ack"]["room"]["owner"]["token"].as_i64().expect("a token"));
        let settings = json!({ "custom": { format!("{conn}-{round}"): round } });
        let update = json!({ "room": ROOM, "settings": settings });
        let ack = driver.emit(&conn, "room:update", update).await.expect("an answer");
        assert_eq!(ack["ok"], true, "{ack}");
        let mut known = Known::joined(&answer);
        known.follow(&driver, &conn, ack["version"]["settings"].as_i64().expect("a version"), SOON).await;
        if round % 3 == 2 {
            driver.abort(&conn).await.expect("cut off");
        } else {
            let ack = driver.emit(&conn, "room:leave", json!({ "room": ROOM })).await.expect("an answer");
            assert_eq!(ack["ok"], true, "{ack}");
        }
    }
    tokens
}

#[tokio::test]
async fn i_1_i_2_a_room_that_comes_and_goes_in_a_loop_loses_nothing_and_leaves_no_zombie() {
    let cluster = Cluster::start_with(3, fleeting).await;
    let driver = Arc::new(Driver::start().await);
    let host = cluster.token("host", "host");
    driver.join("first", &cluster[0].url(), &host, ROOM).await.expect("joined");
    driver.close("first").await.expect("closed");
    driver.connect("setter", &cluster[2].url(), &host).await.expect("connected");

    // Somebody who is never in the room changes it all the while.
    let over = Arc::new(AtomicBool::new(false));
    let setter = {
        let (driver, over) = (Arc::clone(&driver), Arc::clone(&over));
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for n in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let body = json!({ "room": ROOM, "settings": { "custom": { "n": n } } });
                let ack = driver.emit("setter", "room:update", body).await.expect("an answer");
                match code(&ack) {
                    "" => acknowledged.push((ack["version"]["settings"].as_i64().expect("a version"), n)),
                    _ => assert_refused_for_now(&ack, &FOR_NOW),
                }
            }
            acknowledged
        })
    };
    let loops = (0..2).map(|user| {
        let token = cluster.token(&format!("user-{user}"), "host");
        come_and_go(Arc::clone(&driver), cluster.urls(), token, user)
    });
    let met = together(loops).await;
    over.store(true, Ordering::Relaxed);
    let acknowledged = setter.await.expect("set");

    for tokens in &met {
        assert!(tokens.is_sorted(), "tokens grow: {tokens:?}");
    }
    let mut all: Vec<i64> = met.concat();
    all.sort_unstable();
    all.dedup();
    assert!(all.len() > 5, "it hardly ever ended: {all:?}");
    assert!(acknowledged.is_sorted() && acknowledged.len() > 10, "{acknowledged:?}");

    // One owner at the end, and everybody in the room hears what changes, for longer than it takes to end a room.
    let mut known = Vec::new();
    for user in 0..3 {
        let (conn, token) = (format!("user-{user}"), cluster.token(&format!("user-{user}"), "guest"));
        let answer = driver.join(&conn, &cluster[user].url(), &token, ROOM).await.expect("joined");
        known.push((conn, Known::joined(&answer)));
    }
    let stored = Stored::room(&cluster.redis, ROOM);
    let owner = stored.owner().await.expect("an owner");
    assert_eq!(owner.token, stored.fence().await);
    assert!(owner.token >= all[all.len() - 1], "{owner:?} after {all:?}");
    for n in 0..20 {
        let body = json!({ "room": ROOM, "settings": { "custom": { "last": n } } });
        let ack = driver.emit("setter", "room:update", body).await.expect("an answer");
        let version = ack["version"]["settings"].as_i64().expect("acknowledged");
        for (conn, known) in &mut known {
            known.follow(&driver, conn, version, SOON).await;
        }
    }
    let settings = stored.settings().await;
    for (conn, known) in &known {
        assert_eq!(known.settings, settings, "{conn}");
    }
    assert_eq!(settings["custom"]["n"], acknowledged[acknowledged.len() - 1].1);
    for user in 0..2 {
        for round in 0..20 {
            assert_eq!(settings["custom"][format!("user-{user}-{round}")], round);
        }
    }
    wait::until("those who were cut off are gone", SOON, || async { stored.peers().await == 3 }).await;
    assert_eq!(stored.owner().await, Some(owner), "it has not changed hands meanwhile");
    wait::until("one room is left", SOON, || async { rooms_in_memory(&cluster).await == 1.0 }).await;

    for (conn, _) in &known {
        driver.close(conn).await.expect("closed");
    }
    wait::until("the room has ended", SOON, || async {
        rooms_in_memory(&cluster).await == 0.0 && stored.owner().await.is_none()
    })
    .await;
    assert_eq!(stored.peers().await, 0);
    let answer = driver.join("first", &cluster[1].url(), &host, ROOM).await.expect("joined");
    assert_eq!(answer["ack"]["room"]["settings"], settings, "it is as it was");
}

#[tokio::test]
async fn i_2_a_terminated_instance_hands_its_room_over_at_once() {
    // With a time to live of 15 s, that others would wait for.
    let cluster = Cluster::start_with(2, |options| options.without("lease", "heartbeat_ms")).await;
    let driver = Driver::start().await;
    let members: Vec<String> = (0..5).map(|n| format!("member-{n}")).collect();
    for member in &members {
        let token = cluster.token(member, "host");
        let fields = json!({ "role": "host" });
        driver.join_with(member, &cluster[0].url(), &token, ROOM, fields).await.expect("joined");
    }
    driver
        .connect("newcomer", &cluster[1].url(), &cluster.token("newcomer", "guest"))
        .await
        .expect("connected");
    let body = json!({ "room": ROOM, "settings": { "custom": { "page": 5 } } });
    assert_eq!(driver.emit("member-0", "room:update", body).await.expect("an answer")["ok"], true);
    let stored = Stored::room(&cluster.redis, ROOM);
    let before = stored.owner().await.expect("an owner");

    cluster[0].process().term();
    for member in &members {
        let moved = driver.wait_named(member, "room:moved", SOON).await.body;
        assert_eq!((&moved["room"], &moved["reason"]), (&json!(ROOM), &json!("drain")));
        assert!(moved["afterMs"].is_u64(), "{moved}");
    }
    let ack = driver.emit("newcomer", "room:join", json!({ "room": ROOM })).await.expect("an answer");
    assert_eq!(ack["ok"], true, "the first request after `room:moved` finds the room free: {ack}");
    assert_eq!(ack["room"]["settings"]["custom"], json!({ "page": 5 }));
    assert_eq!(ack["room"]["peerCount"], 6, "those who were told to move are in grace");
    let after = stored.owner().await.expect("an owner");
    assert!(after.name() == "b" && after.token > before.token, "{after:?} after {before:?}");

    let status = cluster[0].process().exit(SOON).await;
    assert!(status.success(), "{status}");
    let drained = cluster[0].log_line("drained", 0, SOON).await;
    assert_eq!(
        (&drained["rooms"], &drained["members"], &drained["left_behind"]),
        (&json!(1), &json!(5), &json!(0))
    );
    assert_eq!(incarnations(&cluster.redis, "a").await, [], "it has deregistered");
    for member in &members {
        let token = cluster.token(member, "guest");
        let answer = driver.join(member, &cluster[1].url(), &token, ROOM).await.expect("joined");
        assert_eq!((&answer["requests"], &answer["redirects"]), (&json!(1), &json!(0)));
    }
    assert_eq!(stored.peers().await, 6);
}

#[tokio::test]
async fn a_draining_instance_takes_no_new_room() {
    let patient = |options: CoordinatorOptions| {
        options.without("lease", "heartbeat_ms").value("redis", "command_timeout_ms", 3_500)
    };
    let cluster = Cluster::start_with(1, patient).await;
    let driver = Driver::start().await;
    let token = cluster.token("ann", "host");
    driver.join("ann", &cluster[0].url(), &token, ROOM).await.expect("joined");
    driver.connect("ben", &cluster[0].url(), &cluster.token("ben", "guest")).await.expect("connected");
    // While Redis does not answer, the hand-over cannot end.
    cluster.redis.pause();
    cluster[0].process().term();
    cluster[0].log_line("draining", 0, SOON).await;
    let ack = driver.emit("ben", "room:join", json!({ "room": "new" })).await.expect("an answer");
    assert_refused_for_now(&ack, &["DRAINING"]);
    let ready = e2e::http::get(&format!("{}/readyz", cluster[0].url())).await.expect("an answer");
    assert_eq!((ready.status, ready.body.as_str()), (503, "draining\n"));
    cluster.redis.resume();
    let status = cluster[0].process().exit(SOON).await;
    assert!(status.success(), "{status}");
    assert_eq!(Stored::room(&cluster.redis, "new").owner().await, None);
}

/// A client that knows its device, and every instance.
async fn enter(driver: Arc<Driver>, urls: Vec<String>, user: String, room: String) -> Value {
    let token = e2e::token::Token::new(&user, "host").sign();
    let auth = json!({ "token": token, "device": format!("{user}-phone") });
    let fields = json!({ "url": urls, "auth": auth, "role": "host", "deadlineMs": 30_000 });
    driver.join_with(&user, "", &token, &room, fields).await.expect("joined")
}

/// Does as `room:moved` says, from what `conn` has received since `position` on.
async fn follow(driver: Arc<Driver>, urls: Vec<String>, user: String, room: String, position: u64) {
    let moved = driver.wait_event(&user, position, SOON, |event| event.name == "room:moved").await;
    assert_eq!((&moved.body["room"], &moved.body["reason"]), (&json!(room), &json!("drain")));
    enter(driver, urls, user, room).await;
}

#[tokio::test]
async fn i_13_i_21_a_rolling_restart_loses_nobody_and_no_setting() {
    const ROOMS: [&str; 3] = ["maths", "music", "drawing"];
    let mut cluster = Cluster::start_with(3, |options| options.heartbeat(Duration::from_secs(1))).await;
    let driver = Arc::new(Driver::start().await);
    let mut members = Vec::new();
    for (at, room) in ROOMS.iter().enumerate() {
        for n in 0..3 {
            let user = format!("{room}-{n}");
            let url = vec![cluster[at].url()];
            enter(Arc::clone(&driver), url, user.clone(), (*room).to_owned()).await;
            members.push((user, (*room).to_owned()));
        }
    }
    let mut tokens = [0; 3];
    for restarted in 0..3 {
        let name = cluster[restarted].id().to_owned();
        let mut following = Vec::new();
        for (at, room) in ROOMS.iter().enumerate() {
            let stored = Stored::room(&cluster.redis, room);
            let owner = stored.owner().await.expect("an owner");
            assert!(owner.token >= tokens[at], "{owner:?} after {tokens:?}");
            tokens[at] = owner.token;
            let body =
                json!({ "room": room, "settings": { "custom": { format!("step-{restarted}"): restarted } } });
            let ack = driver.emit(&format!("{room}-0"), "room:update", body).await.expect("an answer");
            assert_eq!(ack["ok"], true, "{ack}");
            if owner.name() != name {
                continue;
            }
            let mut urls = cluster.urls();
            urls.rotate_left(restarted + 1);
            for (user, room) in members.iter().filter(|(_, its)| its == room) {
                let position = driver.position(user).await;
                let driver = Arc::clone(&driver);
                following.push(follow(driver, urls.clone(), user.clone(), room.clone(), position));
            }
        }
        assert!(!following.is_empty() || restarted > 0, "the first one has a room");
        let following = tokio::spawn(together(following));
        let status = cluster[restarted].term(SOON).await;
        assert!(status.success(), "{status}");
        cluster[restarted].restart().await;
        following.await.expect("followed");
    }

    for (at, room) in ROOMS.iter().enumerate() {
        let stored = Stored::room(&cluster.redis, room);
        let owner = stored.owner().await.expect("an owner");
        assert!(owner.token >= tokens[at], "{owner:?} after {tokens:?}");
        assert_eq!(stored.peers().await, 3, "of {room}");
        let custom = json!({ "step-0": 0, "step-1": 1, "step-2": 2 });
        assert_eq!(stored.settings().await["custom"], custom);
        let body = json!({ "room": room, "settings": { "custom": { "end": true } } });
        let ack = driver.emit(&format!("{room}-1"), "room:update", body).await.expect("an answer");
        assert_eq!(ack["ok"], true, "{ack}");
    }
    for (user, room) in &members {
        let end = driver.wait_event(user, 0, SOON, |event| event.body["settings"]["custom"]["end"] == true);
        assert_eq!(end.await.body["room"], json!(room));
        for event in driver.events(user, Some("room:presence")).await {
            assert_eq!(event.body["left"], json!([]), "nobody left as {user} saw it");
        }
    }
}

/// Connects and disconnects so many clients, and waits until the instance has noticed.
async fn come_and_go_at_once(driver: &Driver, cluster: &Cluster, clients: usize) {
    const AT_ONCE: usize = 100;
    let token = cluster.token("ann", "guest");
    let url = cluster[0].url();
    for first in (0..clients).step_by(AT_ONCE) {
        let names: Vec<String> = (first..first + AT_ONCE).map(|n| format!("passing-{n}")).collect();
        for name in &names {
            driver.connect(name, &url, &token).await.expect("connected");
        }
        for name in &names {
            let answer =
                driver.emit(name, "room:heartbeat", json!({ "room": ROOM })).await.expect("an answer");
            assert_eq!(code(&answer), "NOT_IN_ROOM");
            driver.close(name).await.expect("closed");
        }
    }
    wait::eventually(SOON, || async {
        let open = cluster[0].metrics().await.sum("dais_sockets", &[]);
        if open == 0.0 { Ok(()) } else { Err(open) }
    })
    .await;
}

#[tokio::test]
async fn connections_that_ended_leave_nothing_behind() {
    const CLIENTS: usize = 500;
    /// What one would leave behind at the least: its socket, its identity, its queue.
    const KEPT_BYTES: u64 = 2 * 1024;
    let cluster = Cluster::start_with(1, fleeting).await;
    let driver = Driver::start().await;
    // What the first ones need stays: pools, buffers, the allocator's arenas.
    come_and_go_at_once(&driver, &cluster, CLIENTS).await;
    come_and_go_at_once(&driver, &cluster, CLIENTS).await;
    let before = cluster[0].usage().resident_bytes;
    for _ in 0..3 {
        come_and_go_at_once(&driver, &cluster, CLIENTS).await;
    }
    let grown = cluster[0].usage().resident_bytes.saturating_sub(before);
    assert!(grown < 3 * CLIENTS as u64 * KEPT_BYTES, "{grown} bytes are left of {} connections", 3 * CLIENTS);
}

/// Six heartbeats without a sign of life would count as hanging.
#[tokio::test]
async fn a_room_in_which_nothing_happens_is_held_all_the_same() {
    const BEATS: f64 = 20.0;
    let cluster = Cluster::start_with(1, |options| options.heartbeat(Duration::from_millis(200))).await;
    let driver = Driver::start().await;
    driver.join("ann", &cluster[0].url(), &cluster.token("ann", "host"), ROOM).await.expect("joined");
    let stored = Stored::room(&cluster.redis, ROOM);
    let token = stored.owner().await.expect("an owner").token;
    let beats = async || cluster[0].metrics().await.sum("dais_heartbeats_total", &[("result", "ok")]);
    let begun = beats().await;
    wait::until("heartbeats have gone by", SOON, || async { beats().await >= begun + BEATS }).await;
    assert_eq!(stored.owner().await.expect("an owner").token, token, "the one that it was won with");
    assert_eq!(cluster[0].metrics().await.sum("dais_hung_rooms_total", &[]), 0.0);
}
