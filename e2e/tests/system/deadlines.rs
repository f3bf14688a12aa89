//! What falls due goes on without its owner, without Redis, and without anybody who visits the room.

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::http;
use e2e::wait::{self, SOON};
use key_prefix::RoomKey;
use room_cell::{CallReason, CallState, Event, LeaveReason, MicEnd, Status};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

use crate::clients::{code, insist};
use crate::lane::Past;
use crate::stored::{Stored, due_key, redis_now};

const ROOM: &str = "voices";
const API_KEY: &str = "a key of the tests' own back end";

fn short_times(options: CoordinatorOptions) -> CoordinatorOptions {
    let options = options.value("app", "heartbeat_ms", 1_000).idle(Duration::from_millis(300));
    options.value("app", "publish_deadline_ms", 1_500).value("app", "ring_ms", 1_500)
}

/// Ann, a host, calls Ben, who waits on a seat to be heard; Cem does nothing. All at `a`.
async fn a_call_and_a_seat(cluster: &Cluster, driver: &Driver) -> Past {
    for (user, role) in [("ann", "host"), ("ben", "guest"), ("cem", "guest")] {
        let fields = json!({ "role": role });
        let token = cluster.token(user, role);
        driver.join_with(user, &cluster[0].url(), &token, ROOM, fields).await.expect("joined");
    }
    for (conn, name, body) in [
        ("ben", "mic:up", json!({ "room": ROOM, "seat": 1, "id": "up" })),
        ("ann", "call:invite", json!({ "room": ROOM, "to": ["ben"], "id": "call" })),
    ] {
        insist(driver, conn, name, &body).await;
    }
    let past = Past::read(&cluster.redis, ROOM).await;
    assert_eq!(Stored::room(&cluster.redis, ROOM).owner().await.expect("an owner").name(), "a");
    past
}

/// When the seat and the call fall due in a cell.
fn due(past: &Past) -> (u64, u64) {
    let seat = past.events().find_map(|(_, event)| match event {
        Event::SeatTaken { deadline, .. } => Some(deadline.0),
        _ => None,
    });
    let call = past.events().find_map(|(_, event)| match event {
        Event::CallStarted { call } => call.deadline,
        _ => None,
    });
    (seat.expect("a seat was taken"), call.expect("a call rang").0)
}

/// When the seat was freed and the call was missed, each for want of time.
fn timed_out(past: &Past) -> Option<(u64, u64)> {
    let seat = past.events().find_map(|(entry, event)| match event {
        Event::SeatFreed { reason, .. } => {
            assert_eq!(*reason, MicEnd::PublishTimeout, "{entry:?}");
            Some(entry.at)
        }
        _ => None,
    })?;
    let call = past.events().find_map(|(entry, event)| match event {
        Event::CallEnded { state, reason, .. } => {
            assert_eq!((*state, *reason), (CallState::Missed, Some(CallReason::Timeout)), "{entry:?}");
            Some(entry.at)
        }
        _ => None,
    })?;
    Some((seat, call))
}

fn lengthened_by(past: &Past) -> u64 {
    past.events()
        .map(|(_, event)| match event {
            Event::Shifted { by_ms } => *by_ms,
            _ => 0,
        })
        .sum()
}

/// Nobody has the room any more, and nothing waits in it.
async fn at_rest(cluster: &Cluster, room: &str) {
    let route = RoomKey::from_route(&format!("demo\0{room}")).expect("a room");
    wait::until("the room is given up, and nothing in it is due", SOON, || async {
        let owner = Stored::room(&cluster.redis, room).owner().await;
        let due = cluster.redis.command(&["ZSCORE", &due_key(), route.route()]).await;
        owner.is_none() && due == e2e::resp::Value::Nil
    })
    .await;
}

#[tokio::test]
async fn i_25_deadlines_go_on_after_their_owners_death_where_nobody_visits() {
    let change = |options| short_times(options).grace(Duration::from_secs(4));
    let mut cluster = Cluster::start_with(3, change).await;
    let driver = Driver::start().await;
    let before = a_call_and_a_seat(&cluster, &driver).await;
    driver.connect("far", &cluster[1].url(), &cluster.token("far", "host")).await.expect("connected");
    let watched = driver.emit("far", "room:watch", json!({ "rooms": [ROOM] })).await.expect("an answer");
    assert_eq!(watched["ok"], true, "{watched}");

    cluster[0].kill().await;
    let past = Past::wait(&cluster.redis, ROOM, 2 * SOON, |past| past.left().len() == 3).await;
    past.assert_sound();
    let successor = &past.entries[before.entries.len()];
    assert!(!successor.owner.starts_with("a/") && successor.token > before.entries[0].token, "{successor:?}");
    assert!(matches!(successor.events[..], [Event::Shifted { .. }]), "lengthened first: {successor:?}");
    let ((seat_due, call_due), by) = (due(&before), lengthened_by(&past));
    let (seat, call) = timed_out(&past).expect("both were over in time");
    assert!(seat >= seat_due + by && call >= call_due + by, "{past:?}");
    let mut left = past.left();
    left.sort_by(|a, b| a.0.cmp(&b.0));
    let lost = |user: &str| (user.to_owned(), LeaveReason::InstanceLost);
    assert_eq!(left, ["ann", "ben", "cem"].map(lost));
    // The watcher heard of it, from whoever has the room now.
    let last = past.entries.last().expect("an entry").version;
    let told = driver.wait_event("far", 0, SOON, |event| {
        event.name == "card:update" && event.body["of"] == "cell" && event.body["to"] == last
    });
    assert_eq!(told.await.body["left"][0]["reason"], "instance_lost");
    at_rest(&cluster, ROOM).await;
}

#[tokio::test]
async fn i_25_people_of_a_dead_instance_leave_once_in_every_room_that_nobody_visits() {
    let change = |options| short_times(options).grace(Duration::from_millis(500));
    let mut cluster = Cluster::start_with(2, change).await;
    let driver = Driver::start().await;
    let rooms: Vec<String> = (0..6).map(|n| format!("room-{n}")).collect();
    for room in &rooms {
        for user in ["ann", "ben"] {
            let (conn, token) = (format!("{user}-{room}"), cluster.token(user, "guest"));
            driver.join(&conn, &cluster[0].url(), &token, room).await.expect("joined");
        }
    }
    cluster[0].kill().await;
    for room in &rooms {
        let past = Past::wait(&cluster.redis, room, 2 * SOON, |past| past.left().len() == 2).await;
        past.assert_sound();
        assert!(past.left().iter().all(|(_, reason)| *reason == LeaveReason::InstanceLost), "{past:?}");
        assert_eq!(Stored::room(&cluster.redis, room).peers().await, 0);
        at_rest(&cluster, room).await;
    }
}

/// Redis answers nothing for three seconds, in which a seat, a call and a grace period fall due.
async fn outage(heartbeat: Duration) {
    const OUT: Duration = Duration::from_secs(3);
    const GRACE: Duration = Duration::from_millis(2_000);
    let change = |options: CoordinatorOptions| short_times(options).heartbeat(heartbeat).grace(GRACE);
    let cluster = Cluster::start_with(2, change).await;
    let driver = Driver::start().await;
    let before = a_call_and_a_seat(&cluster, &driver).await;
    driver.abort("cem").await.expect("cut");
    let redis = &cluster.redis;
    // The owner has learned of it when this is answered.
    let asked = driver.emit("ann", "room:heartbeat", json!({ "room": ROOM })).await.expect("an answer");
    assert_eq!(asked["ok"], true, "{asked}");
    redis.pause();
    let paused = Instant::now();
    wait::until("three seconds are over", SOON, || async { paused.elapsed() >= OUT }).await;
    let out = u64::try_from(paused.elapsed().as_millis()).expect("a few seconds");
    redis.resume();
    let resumed = u64::try_from(redis_now(redis).await).expect("a time");

    let past = Past::wait(redis, ROOM, 2 * SOON, |past| timed_out(past).is_some() && !past.left().is_empty());
    let past = past.await;
    past.assert_sound();
    let (seat_due, call_due) = due(&before);
    let (seat, call) = timed_out(&past).expect("both are over");
    assert!(seat_due < resumed && call_due < resumed, "they fell due in the outage");
    let told = || {
        let entries = past.entries.iter().skip(before.entries.len());
        entries.map(|entry| format!("{} {:?}", entry.at, entry.events)).collect::<Vec<_>>().join("\n")
    };
    assert!(lengthened_by(&past) >= out, "lengthened by all of {out} ms:\n{}", told());
    assert!(seat >= seat_due + out, "due at {seat_due}, out for {out}:\n{}", told());
    assert!(call >= call_due + out, "due at {call_due}, out for {out}:\n{}", told());
    assert_eq!(past.left(), [("cem".to_owned(), LeaveReason::StaleLeft)]);
    let gone = past.events().find(|(_, event)| matches!(event, Event::Left { .. })).expect("it left").0.at;
    let grace = u64::try_from(GRACE.as_millis()).expect("two seconds");
    // Timers count in whole milliseconds, and the two clocks are not read at once.
    assert!(gone + 50 >= resumed + grace, "waited for anew from {resumed} on:\n{}", told());
    // Everybody else is where they were.
    assert_eq!(Stored::room(redis, ROOM).owner().await.expect("an owner").name(), "a");
    insist(&driver, "ben", "mic:up", &json!({ "room": ROOM, "seat": 1, "id": "again" })).await;
}

#[tokio::test]
async fn i_23_deadlines_are_lengthened_by_an_outage_in_which_the_lease_ran_out() {
    outage(Duration::from_millis(400)).await;
}

#[tokio::test]
async fn i_23_deadlines_are_lengthened_by_an_outage_that_the_lease_outlived() {
    outage(Duration::from_secs(2)).await;
}

#[tokio::test]
async fn a_room_that_everybody_left_is_given_up_and_is_as_it_was_when_somebody_comes() {
    let cluster = Cluster::start_with(2, short_times).await;
    let driver = Driver::start().await;
    let token = cluster.token("ann", "host");
    let join = async |at: usize| {
        let fields = json!({ "role": "host" });
        driver.join_with("ann", &cluster[at].url(), &token, ROOM, fields).await.expect("joined")["ack"]["room"].clone()
    };
    let command = async |conn: &str, name: &str, body: Value| {
        insist(&driver, conn, name, &body).await;
    };
    join(0).await;
    command("ann", "mic:lock", json!({ "room": ROOM, "seat": 2, "locked": true })).await;
    command("ann", "room:kick", json!({ "room": ROOM, "user": "eve" })).await;
    command("ann", "room:leave", json!({ "room": ROOM })).await;
    at_rest(&cluster, ROOM).await;
    // A host who is not in it commands a room that nobody has: somebody takes it for that, and gives it up again.
    driver.connect("far", &cluster[1].url(), &cluster.token("far", "host")).await.expect("connected");
    command("far", "mic:lock", json!({ "room": ROOM, "seat": 3, "locked": true })).await;
    at_rest(&cluster, ROOM).await;
    let room = join(1).await;
    let locked: Vec<&Value> =
        room["seats"].as_array().expect("seats").iter().map(|seat| &seat["state"]).collect();
    assert_eq!(locked[..4], [&json!("idle"), &json!("locked"), &json!("locked"), &json!("idle")], "{room}");
    let eve = driver.join("eve", &cluster[0].url(), &cluster.token("eve", "guest"), ROOM).await;
    assert_eq!(eve.expect_err("banned").code(), "BANNED");
    assert_eq!(Past::read(&cluster.redis, ROOM).await.assert_sound(), 0);
}

async fn make_closing_room(cluster: &Cluster, room: &str) {
    let url = format!("{}/v1/apps/demo/rooms/{room}", cluster[0].url());
    let headers = [("authorization", &*format!("Bearer {API_KEY}")), ("content-type", "application/json")];
    let status = wait::eventually(SOON, || async {
        let made = http::request("PUT", &url, &headers, r#"{"autoClose":true}"#).await.expect("an answer");
        if made.status == 503 { Err(made) } else { Ok(made.status) }
    })
    .await;
    assert!(matches!(status, 200 | 201), "{status}");
}

#[tokio::test]
async fn i_12_a_room_that_closes_by_itself_waits_for_its_first_and_closes_after_its_last() {
    let change = |options| short_times(options).texts("app", "api_keys", &[API_KEY]);
    let cluster = Cluster::start_with(2, change).await;
    let driver = Driver::start().await;
    make_closing_room(&cluster, ROOM).await;
    // The idle time begins when the last one leaves: a room that nobody came to yet stays open.
    at_rest(&cluster, ROOM).await;
    assert_eq!(Past::read(&cluster.redis, ROOM).await.cell.status, Status::Active);
    let token = cluster.token("ann", "guest");
    driver.join("ann", &cluster[0].url(), &token, ROOM).await.expect("joined");
    insist(&driver, "ann", "room:leave", &json!({ "room": ROOM })).await;
    let past = Past::wait(&cluster.redis, ROOM, SOON, |past| past.cell.status == Status::Closed).await;
    past.assert_sound();
    let refused = driver.emit("ann", "room:join", json!({ "room": ROOM })).await.expect("an answer");
    assert_eq!(code(&refused), "ROOM_CLOSED", "{refused}");
    at_rest(&cluster, ROOM).await;
}

#[tokio::test]
async fn i_12_a_room_closes_by_itself_also_after_its_owners_death() {
    let change =
        |options| short_times(options).texts("app", "api_keys", &[API_KEY]).grace(Duration::from_millis(500));
    let mut cluster = Cluster::start_with(2, change).await;
    let driver = Driver::start().await;
    make_closing_room(&cluster, ROOM).await;
    make_closing_room(&cluster, "empty").await;
    // One dies with its people, the other when they have just left.
    for room in [ROOM, "empty"] {
        let token = cluster.token("ann", "guest");
        driver.join(room, &cluster[0].url(), &token, room).await.expect("joined");
    }
    insist(&driver, "empty", "room:leave", &json!({ "room": "empty" })).await;
    cluster[0].kill().await;
    for room in [ROOM, "empty"] {
        let past =
            Past::wait(&cluster.redis, room, 2 * SOON, |past| past.cell.status == Status::Closed).await;
        past.assert_sound();
        at_rest(&cluster, room).await;
    }
}
