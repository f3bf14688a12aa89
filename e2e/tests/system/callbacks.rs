//! What a media server says over signed HTTP: who is heard, who is gone, late, twice, and by another clock.

use e2e::callback::sign;
use e2e::coordinator::CoordinatorOptions;
use e2e::http::{self, Response};
use e2e::token::APP;
use serde_json::{Value, json};

use crate::stage::{Person, ROOM, Stage};
use crate::stored::redis_now;

const SECRET: &str = "a secret of the media server, long enough";

fn believes(options: CoordinatorOptions) -> CoordinatorOptions {
    options.text("app", "callbacks.generic.secret", SECRET)
}

/// Unix milliseconds.
async fn now(stage: &Stage) -> u64 {
    u64::try_from(redis_now(&stage.cluster.redis).await).expect("a time")
}

async fn post(stage: &Stage, at: usize, headers: &[(&str, &str)], body: &str) -> Response {
    let url = format!("{}/rtc/generic/{APP}", stage.cluster[at].url());
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    http::request("POST", &url, &all, body).await.expect("an answer")
}

/// Reports events, signed as they should be, to an instance. Returns how many it appended, and how many were repeats.
async fn report(stage: &Stage, at: usize, events: Value) -> (u64, u64) {
    let (body, time) = (events.to_string(), (now(stage).await / 1_000).to_string());
    let signature = sign(SECRET, &time, &body);
    let answer = post(stage, at, &[("dais-timestamp", &time), ("dais-signature", &signature)], &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let received = answer.json();
    let number = |field: &str| received[field].as_u64().expect("a number");
    (number("appended"), number("repeated"))
}

fn event(id: &str, kind: &str, user: &str, at: u64) -> Value {
    json!({ "id": id, "type": kind, "room": ROOM, "user": user, "at": at })
}

/// With the incarnation of the participant that it is about.
fn of_session(session: &str, mut event: Value) -> Value {
    event["session"] = json!(session);
    event
}

async fn up<'a>(stage: &'a Stage, user: &str, seat: u64) -> (Person<'a>, Value) {
    let person = stage.enter(user, "guest").await;
    let ack = person.ask("mic:up", json!({ "seat": seat })).await;
    (person, ack["seat"].clone())
}

#[tokio::test]
async fn i_9_audio_and_exits_move_a_seat_and_never_presence() {
    let stage = Stage::start_with(2, believes).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let (_ann, seat) = up(&stage, "ann", 1).await;
    hanna.until("ann is up", |view| view.seats[&1] == seat).await;

    // At the instance that does not own the room; what comes twice is done once.
    let started = event("e1", "audio_started", "ann", now(&stage).await);
    assert_eq!(report(&stage, 1, started.clone()).await, (1, 0));
    hanna.until("ann is heard", |view| view.seat(1) == "publishing").await;
    assert_eq!(hanna.view.seats[&1]["micSession"], seat["micSession"]);
    assert_eq!(report(&stage, 0, started.clone()).await, (0, 1));
    assert_eq!(
        report(&stage, 1, json!([started, event("e2", "audio_stopped", "ann", now(&stage).await)])).await,
        (1, 1)
    );
    hanna.until("ann is silent", |view| view.seat(1) == "idle").await;
    assert_eq!(stage.freed("ann").await, ["audio_stopped"]);

    // Gone from the media server: the seat is free, and she is in the room.
    let again = stage.ask("ann", "mic:up", json!({ "seat": 2 })).await;
    report(&stage, 1, of_session("s-1", event("e3", "audio_started", "ann", now(&stage).await))).await;
    hanna.until("ann is heard again", |view| view.seat(2) == "publishing").await;
    assert_eq!(hanna.view.seats[&2]["micSession"], again["seat"]["micSession"]);
    report(&stage, 1, of_session("s-1", event("e4", "room_exited", "ann", now(&stage).await))).await;
    hanna.until("the seat is free", |view| view.seat(2) == "idle").await;
    assert_eq!(stage.freed("ann").await, ["audio_stopped", "room_exited"]);
    assert!(hanna.view.peers.contains_key("ann"), "{:?}", hanna.view);
    stage.ask("ann", "room:heartbeat", json!({})).await;
    assert!(stage.happened("left").await.is_empty());

    // Audio that flows before a first seat is taken confirms it at once.
    stage.enter("bob", "guest").await;
    report(&stage, 1, event("e5", "audio_started", "bob", now(&stage).await)).await;
    e2e::wait::until("the start is taken in", e2e::wait::SOON, || async {
        stage.happened("heard").await.last().is_some_and(|heard| heard["heard"]["flowing"] == true)
    })
    .await;
    let up = stage.ask("bob", "mic:up", json!({ "seat": 3 })).await;
    assert_eq!(up["seat"]["state"], "publishing", "{up}");
    stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn i_8_a_stale_exit_does_not_free_the_seat_of_who_came_back() {
    let stage = Stage::start_with(2, believes).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let before = now(&stage).await;
    let (ann, seat) = up(&stage, "ann", 1).await;
    ann.ask("mic:confirm", json!({ "micSession": seat["micSession"] })).await;
    let (_bob, _) = up(&stage, "bob", 2).await;
    // From before she came; of an earlier incarnation than the one that is heard; and what is not about her.
    let stale = json!([
        event("x1", "room_exited", "ann", before - 5_000),
        event("x0", "audio_stopped", "ann", before - 5_000),
        of_session("s-2", event("n", "audio_started", "ann", now(&stage).await)),
        of_session("s-1", event("x2", "room_exited", "ann", now(&stage).await)),
        event("x3", "room_exited", "eve", now(&stage).await),
        { "id": "x4", "type": "room_finished", "room": ROOM, "at": now(&stage).await },
    ]);
    assert_eq!(report(&stage, 1, stale).await, (6, 0));
    // In the same inbox, behind them.
    report(&stage, 1, event("marker", "audio_started", "bob", now(&stage).await)).await;
    hanna.until("bob is heard", |view| view.seat(2) == "publishing").await;
    assert_eq!(
        (hanna.view.seat(1), &hanna.view.seats[&1]["micSession"]),
        ("publishing", &seat["micSession"])
    );
    assert_eq!(stage.freed("ann").await, Vec::<String>::new());

    // A later connection of hers: an exit from before it, by its owner's clock, is the earlier one's.
    let beat = stage.ask("ann", "room:heartbeat", json!({})).await;
    let exited = beat["serverTime"].as_u64().expect("a time");
    stage.connect("again", "ann", "guest", 0).await;
    let again = stage.join("again", json!({})).await;
    assert_eq!(again.view.seat(1), "publishing");
    report(
        &stage,
        0,
        json!([
            event("x5", "room_exited", "ann", exited - 1),
            event("m2", "audio_stopped", "bob", now(&stage).await)
        ]),
    )
    .await;
    hanna.until("bob is silent", |view| view.seat(2) == "idle").await;
    assert_eq!(hanna.view.seat(1), "publishing");
    stage.agree(&mut [&mut hanna]).await;
}

/// Everybody is seated right with a media server whose clock shows `clock` of the true time.
async fn seats_right(clock: impl Fn(u64) -> u64) {
    let stage = Stage::start_with(2, believes).await;
    let mut hanna = stage.enter("hanna", "host").await;
    // Somebody whose reports came all the time.
    let (_bob, _) = up(&stage, "bob", 8).await;
    for n in 0..20 {
        let kind = if n % 2 == 0 { "participant_joined" } else { "audio_started" };
        report(&stage, 1, event(&format!("b{n}"), kind, "bob", clock(now(&stage).await))).await;
    }
    hanna.until("bob is heard", |view| view.seat(8) == "publishing").await;

    let (_ann, seat) = up(&stage, "ann", 1).await;
    report(&stage, 1, event("a1", "audio_started", "ann", clock(now(&stage).await))).await;
    hanna.until("ann is up", |view| view.seats[&1] == seat).await;
    hanna.until("ann is heard", |view| view.seat(1) != "pending_publish").await;
    assert_eq!(hanna.view.seat(1), "publishing", "{:?}", stage.freed("ann").await);
    // A speaker who is moved is not thrown off by what was said before, nor by who else goes.
    stage.ask("hanna", "mic:move", json!({ "user": "ann", "seat": 2 })).await;
    report(&stage, 1, event("a2", "audio_started", "ann", clock(now(&stage).await))).await;
    hanna.until("ann is heard there", |view| view.seat(2) == "publishing").await;
    assert_eq!(hanna.view.seats[&2]["micSession"], seat["micSession"]);
    report(&stage, 1, event("a3", "audio_stopped", "ann", clock(now(&stage).await))).await;
    hanna.until("ann is silent", |view| view.seat(2) == "idle").await;
    assert_eq!(stage.freed("ann").await, ["audio_stopped"]);
    stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn i_7_a_media_server_whose_clock_is_a_second_and_a_half_slow() {
    seats_right(|time| time - 1_500).await;
}

#[tokio::test]
async fn i_7_a_media_server_whose_clock_is_a_second_and_a_half_fast() {
    seats_right(|time| time + 1_500).await;
}

#[tokio::test]
async fn i_7_a_media_server_that_sends_whole_seconds() {
    seats_right(|time| time - time % 1_000).await;
}

#[tokio::test]
async fn what_is_not_signed_is_not_believed() {
    let stage = Stage::start_with(1, believes).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let (_ann, _) = up(&stage, "ann", 1).await;
    let body = event("e1", "audio_started", "ann", now(&stage).await).to_string();
    let time = now(&stage).await / 1_000;
    let (at, old, ahead) = (time.to_string(), (time - 301).to_string(), (time + 400).to_string());
    let right = sign(SECRET, &at, &body);
    let altered = body.replace("ann", "hanna");
    let (wrong, of_old, of_ahead) = (
        sign("another secret of a media server", &at, &body),
        sign(SECRET, &old, &body),
        sign(SECRET, &ahead, &body),
    );
    let unauthenticated: [(&[(&str, &str)], &str); 8] = [
        (&[], &body),
        (&[("dais-timestamp", &at)], &body),
        (&[("dais-signature", &right)], &body),
        (&[("dais-timestamp", &at), ("dais-signature", &wrong)], &body),
        (&[("dais-timestamp", &at), ("dais-signature", &right)], &altered),
        (&[("dais-timestamp", &old), ("dais-signature", &right)], &body),
        (&[("dais-timestamp", &old), ("dais-signature", &of_old)], &body),
        (&[("dais-timestamp", &ahead), ("dais-signature", &of_ahead)], &body),
    ];
    for (headers, body) in unauthenticated {
        let answer = post(&stage, 0, headers, body).await;
        assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("UNAUTHENTICATED")), "{headers:?}");
    }
    // Signed as it should be, and no event.
    for body in ["{", "[]", "7", r#"{"id":"e","type":"audio_started","room":"stage","at":1}"#] {
        let signature = sign(SECRET, &at, body);
        let headers = [("dais-timestamp", &*at), ("dais-signature", &*signature)];
        let answer = post(&stage, 0, &headers, body).await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (400, &json!("BAD_REQUEST")),
            "{body}: {answer:?}"
        );
    }
    let url = format!("{}/rtc/generic/nobody", stage.cluster[0].url());
    assert_eq!(http::request("POST", &url, &[], &body).await.expect("an answer").status, 404);
    // What is not known is counted, and no reason to come again.
    let mut elsewhere = event("e2", "audio_started", "ann", now(&stage).await);
    elsewhere["room"] = json!("nowhere");
    assert_eq!(report(&stage, 0, json!([elsewhere, { "id": "e3", "type": "weather" }])).await, (0, 0));
    assert_eq!(hanna.view.seat(1), "idle");
    // One of several signatures is enough: a secret can be changed.
    let both = format!("{wrong},{right}");
    assert_eq!(
        post(&stage, 0, &[("dais-timestamp", &at), ("dais-signature", &both)], &body).await.status,
        200
    );
    hanna.until("ann is heard", |view| view.seat(1) == "publishing").await;
    let metrics = stage.cluster[0].metrics().await;
    let refused = metrics.sum("dais_rtc_callbacks_total", &[("result", "refused")]);
    assert_eq!(refused, 8.0, "{metrics:?}");
}
