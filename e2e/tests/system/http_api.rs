//! What an app's back end does over HTTP, at instances that do not own the room, as the people in it see it.

use e2e::coordinator::CoordinatorOptions;
use e2e::http::{self, Response};
use e2e::token::{APP, Token};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::stage::{ROOM, Stage};

/// An API key of the app.
pub(crate) const KEY: &str = "a-key-of-the-back-end-of-the-tests";
const SECOND_KEY: &str = "another-key-of-the-same-back-end";
/// An API key of another app that is served here.
pub(crate) const OTHER_KEY: &str = "a-key-of-the-back-end-of-another-app";

/// With API keys, and a second app.
pub(crate) fn with_keys(options: CoordinatorOptions) -> CoordinatorOptions {
    options.texts("app", "api_keys", &[SECOND_KEY, KEY]).toml(&format!(
        "[[app]]\ncode = \"other\"\nsecret = \"another secret, of the other app, of 32 bytes\"\napi_keys = [\"{OTHER_KEY}\"]\n"
    ))
}

/// The app's back end.
pub(crate) struct BackEnd<'a> {
    pub(crate) stage: &'a Stage,
    bearer: String,
}

impl<'a> BackEnd<'a> {
    pub(crate) fn new(stage: &'a Stage) -> Self {
        Self::showing(stage, KEY)
    }

    fn showing(stage: &'a Stage, shown: &str) -> Self {
        Self { stage, bearer: format!("Bearer {shown}") }
    }

    /// Sends to an instance; `path` is below the app's.
    pub(crate) async fn send(
        &self,
        at: usize,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let url = format!("{}/v1/apps/{APP}{path}", self.stage.cluster[at].url());
        let mut all = vec![("authorization", self.bearer.as_str())];
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            all.push(("content-type", "application/json"));
        }
        all.extend(headers);
        http::request(method, &url, &all, body).await.expect("an answer")
    }

    /// Sends, and reads an answer of this status.
    async fn done(&self, at: usize, method: &str, path: &str, body: &Value, status: u16) -> Value {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.send(at, method, path, &[], &text).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {answer:?}");
        answer.json()
    }

    async fn get(&self, at: usize, path: &str) -> Value {
        self.done(at, "GET", path, &Value::Null, 200).await
    }

    /// A command for [`ROOM`] that is done.
    async fn command(&self, at: usize, name: &str, body: Value) -> Value {
        self.done(at, "POST", &format!("/rooms/{ROOM}/commands/{name}"), &body, 200).await
    }

    /// A command for [`ROOM`] that is refused.
    async fn no_command(&self, at: usize, name: &str, body: Value, status: u16, code: &str) {
        let path = format!("/rooms/{ROOM}/commands/{name}");
        refused(&self.send(at, "POST", &path, &[], &body.to_string()).await, status, code);
    }

    /// A command with an idempotency key, whatever it is answered.
    async fn keyed(&self, at: usize, name: &str, key: &str, body: &Value) -> Response {
        let path = format!("/rooms/{ROOM}/commands/{name}");
        self.send(at, "POST", &path, &[("idempotency-key", key)], &body.to_string()).await
    }
}

/// The answer is a problem document of this status and code. Returns what it says.
pub(crate) fn refused(answer: &Response, status: u16, code: &str) -> String {
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (status, Some("application/problem+json")),
        "{answer:?}"
    );
    let problem = answer.json();
    assert_eq!((&problem["status"], &problem["code"]), (&json!(status), &json!(code)), "{answer:?}");
    assert_eq!(problem["type"], "about:blank", "{answer:?}");
    let is_retryable = problem["retryable"].as_bool().expect("whether it is retryable");
    assert_eq!(answer.header("retry-after").is_some(), is_retryable, "{answer:?}");
    assert_eq!(problem["retryAfterMs"].is_u64(), is_retryable, "{answer:?}");
    assert!(problem["requestId"].as_str().is_some_and(|id| !id.is_empty()), "{answer:?}");
    problem["detail"].as_str().expect("what is wrong").to_owned()
}

/// The settings version of a room's document, as an entity tag.
fn tag(room: &Value) -> String {
    format!("\"{}\"", room["version"]["settings"])
}

#[tokio::test]
async fn a_back_end_makes_finds_lists_closes_and_reopens_rooms_through_any_instance() {
    let stage = Stage::start_with(3, with_keys).await;
    let back_end = BackEnd::new(&stage);
    let made = back_end
        .send(
            0,
            "PUT",
            "/rooms/stage",
            &[],
            r#"{"seats":3,"capacity":5,"settings":{"noiseReduction":"near_field"}}"#,
        )
        .await;
    let room = made.json();
    assert_eq!((made.status, made.header("etag")), (201, Some(&*tag(&room))), "{made:?}");
    assert_eq!((&room["opened"], &room["owner"]["instance"]), (&json!("made"), &json!("a")), "{room}");
    assert_eq!(room["seats"].as_array().map(Vec::len), Some(3), "{room}");
    // Found, and left as it is, at an instance that does not own it.
    let found = back_end.send(1, "PUT", "/rooms/stage", &[], r#"{"seats":9}"#).await;
    assert_eq!((found.status, &found.json()["opened"]), (200, &json!("found")), "{found:?}");
    let read = back_end.send(2, "GET", "/rooms/stage", &[], "").await;
    let mut stands = read.json();
    assert_eq!((read.status, read.header("etag")), (200, Some(&*tag(&stands))), "{read:?}");
    stands["opened"] = json!("made");
    assert_eq!(stands, room);
    assert_eq!(stands["settings"]["noiseReduction"], "near_field");
    refused(&back_end.send(2, "GET", "/rooms/nowhere", &[], "").await, 404, "ROOM_NOT_FOUND");

    // Names of any text, listed in their byte order, a page at a time.
    for (at, path) in
        ["/rooms/list%2F1", "/rooms/list%2F%E6%95%B0", "/rooms/list%2F%20%3F"].into_iter().enumerate()
    {
        back_end.done(at, "PUT", path, &Value::Null, 201).await;
    }
    let first = back_end.get(1, "/rooms?prefix=list/&limit=2").await;
    let cursor = first["cursor"].as_str().expect("another page").replace(' ', "%20").replace('?', "%3F");
    let second = back_end.get(2, &format!("/rooms?prefix=list/&limit=2&cursor={cursor}")).await;
    let pages = [&first, &second].into_iter().flat_map(|page| page["rooms"].as_array().into_iter().flatten());
    let listed: Vec<&Value> = pages.map(|room| &room["id"]).collect();
    assert_eq!(listed, ["list/ ?", "list/1", "list/数"]);
    assert_eq!(second.get("cursor"), None, "{second}");

    // Closed, which everybody is told, and open again: with its settings, versions and bans.
    let ann = stage.enter("ann", "guest").await;
    back_end.command(2, "kick", json!({ "user": "eve", "reason": "spam" })).await;
    back_end.command(1, "close", json!({ "reason": "over" })).await;
    let closed = ann.told("room:closed", |_| true).await;
    assert_eq!(closed["reason"], "over", "{closed}");
    assert_eq!(back_end.get(2, "/rooms/stage").await["status"], "closed");
    let of_status = back_end.get(0, "/rooms?status=closed").await;
    assert_eq!(of_status["rooms"][0]["id"], ROOM, "{of_status}");
    for (method, path, body) in [
        ("GET", "/users/ann", ""),
        ("POST", "/commands/lock", r#"{"locked":true}"#),
        ("PATCH", "/settings", r#"{"noiseReduction":"off"}"#),
        ("PATCH", "/guests/ann", r#"{"handRaised":true}"#),
    ] {
        refused(
            &back_end.send(1, method, &format!("/rooms/{ROOM}{path}"), &[], body).await,
            410,
            "ROOM_CLOSED",
        );
    }
    let again = join_all((0..3).map(|at| back_end.done(at, "PUT", "/rooms/stage", &Value::Null, 200))).await;
    let words: Vec<&Value> = again.iter().map(|room| &room["opened"]).collect();
    assert_eq!(
        words.iter().filter(|word| **word == "reopened").count(),
        1,
        "one of them opened it: {words:?}"
    );
    let room = back_end.get(1, "/rooms/stage").await;
    assert_eq!((&room["status"], &room["peerCount"]), (&json!("active"), &json!(0)), "{room}");
    assert_eq!(room["settings"]["noiseReduction"], "near_field");
    assert!(room["version"]["cell"].as_u64() > stands["version"]["cell"].as_u64(), "{room}");
    let bans = back_end.get(0, "/rooms/stage/bans").await;
    assert_eq!(
        (&bans["bans"][0]["user"], &bans["bans"][0]["reason"]),
        (&json!("eve"), &json!("spam")),
        "{bans}"
    );
    back_end.command(1, "lock", json!({ "locked": true })).await;
}

#[tokio::test]
async fn settings_and_guests_change_at_the_version_that_was_read_and_members_see_it() {
    let stage = Stage::start_with(3, with_keys).await;
    let back_end = BackEnd::new(&stage);
    let hanna = stage.enter("hanna", "host").await;
    let read = back_end.send(1, "GET", &format!("/rooms/{ROOM}"), &[], "").await;
    let tag = read.header("etag").expect("a tag").to_owned();
    let change = async |at: usize, path: &str, tag: &str, body: &str| {
        let headers = [("if-match", tag), ("content-type", "application/merge-patch+json")];
        back_end.send(at, "PATCH", &format!("/rooms/{ROOM}{path}"), &headers, body).await
    };
    let first =
        change(1, "/settings", &tag, r#"{"noiseReduction":"far_field","vad":{"threshold":0.25}}"#).await;
    assert_eq!(first.status, 200, "{first:?}");
    let told = hanna.told("room:update", |body| body["of"] == "settings").await;
    assert_eq!(
        told["settings"],
        json!({ "noiseReduction": "far_field", "vad": { "threshold": 0.25 } }),
        "{told}"
    );
    let next = first.header("etag").expect("a tag").to_owned();
    assert_eq!((&first.json()["version"]["settings"], next != tag), (&told["to"], true), "{first:?} {told}");

    // Whoever read before that has to read again; nothing of theirs is done, at the owner as elsewhere.
    for at in 0..3 {
        for (path, body) in
            [("/settings", r#"{"noiseReduction":"off"}"#), ("/guests/ann", r#"{"stage":true}"#)]
        {
            refused(&change(at, path, &tag, body).await, 412, "VERSION_CONFLICT");
        }
    }
    let guest = change(2, "/guests/ann", &next, r#"{"micAllowed":false,"custom":{"group":"blue"}}"#).await;
    assert_eq!(guest.status, 200, "{guest:?}");
    let told = hanna.told("room:update", |body| body["guests"].is_object()).await;
    assert_eq!(
        told["guests"]["ann"],
        json!({ "micAllowed": false, "custom": { "group": "blue" } }),
        "{told}"
    );
    // A bare number, any version, and none at all.
    let bare = guest.header("etag").expect("a tag").replace('"', "");
    assert_eq!(change(0, "/settings", &bare, r#"{"custom":{"a":1}}"#).await.status, 200);
    assert_eq!(change(1, "/settings", "*", r#"{"custom":{"b":2}}"#).await.status, 200);
    back_end
        .done(2, "PATCH", &format!("/rooms/{ROOM}/settings"), &json!({ "noiseReduction": null }), 200)
        .await;
    let stands = back_end.get(2, &format!("/rooms/{ROOM}")).await;
    assert_eq!(stands["settings"]["custom"], json!({ "a": 1, "b": 2 }), "{stands}");
    assert_eq!(stands["settings"]["noiseReduction"], "off", "{stands}");
    assert_eq!(stands["guests"]["ann"]["custom"]["group"], "blue", "{stands}");
    // Who did it is told nobody but the log.
    let timeline = back_end.get(1, &format!("/rooms/{ROOM}/timeline")).await;
    let entries = timeline["entries"].as_array().expect("entries").iter();
    let kinds: Vec<&Value> = entries.map(|entry| &entry["kind"]).take(5).collect();
    assert_eq!(kinds, ["settings", "settings", "settings", "guest", "settings"], "{timeline}");
}

#[tokio::test]
async fn i_5_every_command_of_a_back_end_reaches_the_owner_and_everybody_sees_it() {
    let stage = Stage::start_with(3, with_keys).await;
    let back_end = BackEnd::new(&stage);
    let mut hanna = stage.enter("hanna", "host").await;
    let mut ann = stage.enter("ann", "guest").await;
    let bob = stage.enter("bob", "guest").await;
    let mut far = stage.watch("far", 2).await;
    let mut people = [&mut hanna, &mut ann, &mut far];
    let user = async |at: usize, user: &str| back_end.get(at, &format!("/rooms/{ROOM}/users/{user}")).await;
    let before = back_end.get(1, &format!("/rooms/{ROOM}")).await;

    back_end.command(1, "mic-seats", json!({ "count": 3 })).await;
    stage.all_see(&mut people, "three seats", |view| view.seats.len() == 3).await;
    back_end.command(2, "mic-lock", json!({ "seat": 1, "locked": true })).await;
    stage.all_see(&mut people, "a seat is locked", |view| view.seat(1) == "locked").await;
    back_end.no_command(1, "mic-up", json!({ "user": "ann", "seat": 1 }), 409, "SEAT_LOCKED").await;
    let up = back_end.command(1, "mic-up", json!({ "user": "ann" })).await;
    stage.all_see(&mut people, "ann is up", |view| view.seat_of("ann") == up["seat"]).await;
    assert_eq!((&up["seat"]["seat"], &up["seat"]["state"]), (&json!(2), &json!("pending_publish")), "{up}");
    for (name, body, code) in [
        ("mic-up", json!({ "user": "bob", "seat": 2 }), "SEAT_TAKEN"),
        ("mic-up", json!({ "user": "nobody" }), "NOT_IN_ROOM"),
        ("mic-down", json!({ "user": "bob" }), "NOT_ON_SEAT"),
        ("mic-down", json!({ "user": "ann", "micSession": "of before" }), "STALE_SESSION"),
        ("mic-respond", json!({ "user": "bob", "accept": true }), "VERSION_CONFLICT"),
        ("unban", json!({ "user": "bob" }), "VERSION_CONFLICT"),
    ] {
        back_end.no_command(2, name, body, 409, code).await;
    }
    back_end.command(2, "mic-invite", json!({ "user": "bob", "seat": 3 })).await;
    stage.all_see(&mut people, "bob is invited", |view| view.invites.contains_key("bob")).await;
    bob.ask("mic:respond", json!({ "accept": false })).await;
    bob.ask("mic:request", json!({})).await;
    let bobs = back_end.command(1, "mic-respond", json!({ "user": "bob", "accept": true })).await;
    stage.all_see(&mut people, "bob is up", |view| view.seat_of("bob") == bobs["seat"]).await;
    back_end.no_command(1, "mic-up", json!({ "user": "hanna" }), 409, "NO_FREE_SEAT").await;
    back_end.command(2, "mic-mute", json!({ "user": "ann", "muted": true })).await;
    stage.all_see(&mut people, "ann is muted", |view| view.seat_of("ann")["muted"] == true).await;
    let guard = user(2, "ann").await;
    assert_eq!(guard["seat"]["muted"], true, "{guard}");
    back_end.command(1, "mic-mute-all", json!({ "muted": true, "except": ["ann"] })).await;
    stage.all_see(&mut people, "bob is muted", |view| view.seat_of("bob")["muted"] == true).await;
    back_end.command(2, "mic-down", json!({ "user": "bob" })).await;
    let moved = back_end.command(1, "mic-move", json!({ "user": "ann", "seat": 3 })).await;
    assert_eq!(moved["seat"]["micSession"], up["seat"]["micSession"], "{moved}");
    stage.all_see(&mut people, "ann is moved", |view| view.seat_of("ann")["seat"] == 3).await;
    back_end.command(2, "lock", json!({ "locked": true })).await;
    stage.all_see(&mut people, "the door is locked", |view| view.locked).await;
    back_end.command(1, "role", json!({ "user": "hanna", "role": "guest" })).await;
    stage.all_see(&mut people, "hanna is a guest", |view| view.hosts().is_empty()).await;
    assert_eq!(user(1, "hanna").await["role"], "guest");
    back_end.command(1, "kick", json!({ "user": "bob", "reason": "noise", "banSeconds": 3600 })).await;
    stage.all_see(&mut people, "bob is gone", |view| !view.peers.contains_key("bob")).await;
    assert_eq!(bob.told("room:kicked", |_| true).await["reason"], "noise");
    let guard = user(2, "bob").await;
    assert_eq!((&guard["present"], &guard["banned"]), (&json!(false), &json!(true)), "{guard}");
    assert!(guard["bannedUntil"].is_u64(), "{guard}");
    back_end.command(2, "unban", json!({ "user": "bob" })).await;
    assert_eq!(user(1, "bob").await["banned"], false);
    stage.agree(&mut people).await;
    back_end.command(2, "close", json!({})).await;
    ann.told("room:closed", |_| true).await;

    // Who did what, under which owner and token, newest first, and the same a page at a time.
    let whole = back_end.get(1, &format!("/rooms/{ROOM}/timeline?limit=200")).await;
    let whole = whole["entries"].as_array().expect("entries");
    let mut paged = Vec::new();
    let mut before_id = String::new();
    loop {
        let mut page = back_end.get(2, &format!("/rooms/{ROOM}/timeline?limit=7{before_id}")).await;
        let entries = page["entries"].as_array_mut().expect("entries");
        assert!(entries.len() <= 7, "{entries:?}");
        paged.append(entries);
        let Some(next) = page["next"].as_str() else { break };
        before_id = format!("&before={next}");
    }
    assert_eq!(&paged, whole);
    let asked: Vec<&Value> =
        whole.iter().filter(|passed| passed["entry"]["actor"] == json!({ "kind": "backend" })).collect();
    let mut commands: Vec<&str> =
        asked.iter().filter_map(|passed| passed["entry"]["command"].as_str()).collect();
    commands.reverse();
    assert_eq!(
        commands,
        [
            "set_seats",
            "seat_lock",
            "mic_up",
            "mic_invite",
            "mic_respond",
            "mic_mute",
            "mic_mute_all",
            "mic_down",
            "mic_move",
            "lock_door",
            "set_role",
            "kick",
            "unban",
            "close",
        ]
    );
    for passed in &asked {
        assert!(passed["owner"].as_str().is_some_and(|owner| owner.starts_with("a/")), "{passed}");
        assert_eq!(passed["token"], before["owner"]["token"], "{passed}");
    }
    for counter in ["cell", "settings"] {
        let of_counter = whole.iter().filter(|passed| passed["kind"] == counter);
        let versions: Vec<u64> = of_counter.filter_map(|passed| passed["version"].as_u64()).collect();
        assert!(!versions.is_empty() && versions.is_sorted_by(|newer, older| newer > older), "{versions:?}");
    }
    for other in [1, 2] {
        let executed = stage.cluster[other].metrics().await.sum("dais_commands_total", &[]);
        assert_eq!(executed, 0.0, "the owner alone executes commands");
    }
}

#[tokio::test]
async fn i_13_a_repeated_command_is_done_once_and_answered_the_same_at_every_instance() {
    let stage = Stage::start_with(3, with_keys).await;
    let back_end = BackEnd::new(&stage);
    stage.enter("ann", "guest").await;
    let body = json!({ "user": "ann", "seat": 2 });
    let first = back_end.keyed(1, "mic-up", "up-1", &body).await;
    assert_eq!(first.status, 200, "{first:?}");
    back_end.command(2, "mic-down", json!({ "user": "ann" })).await;
    for at in [2, 0, 1] {
        let again = back_end.keyed(at, "mic-up", "up-1", &body).await;
        assert_eq!((again.status, again.json()), (200, first.json()), "at {at}");
    }
    let reused = back_end.keyed(2, "mic-up", "up-1", &json!({ "user": "ann", "seat": 3 })).await;
    refused(&reused, 400, "BAD_REQUEST");
    refused(&back_end.keyed(0, "mic-down", "up-1", &json!({ "user": "ann" })).await, 400, "BAD_REQUEST");
    // What was refused for good stays refused; under a key of their own, other callers are others.
    refused(&back_end.keyed(1, "mic-down", "down-1", &json!({ "user": "ann" })).await, 409, "NOT_ON_SEAT");
    let admin = Token::new("somebody", "host").claim("admin", true).sign();
    for shown in [SECOND_KEY, &admin] {
        let other = BackEnd::showing(&stage, shown);
        let own = other.keyed(2, "mic-up", "up-1", &body).await;
        assert_eq!(own.status, 200, "{own:?}");
        assert_ne!(own.json()["seat"]["micSession"], first.json()["seat"]["micSession"]);
        refused(
            &back_end.keyed(2, "mic-down", "down-1", &json!({ "user": "ann" })).await,
            409,
            "NOT_ON_SEAT",
        );
        other.command(1, "mic-down", json!({ "user": "ann" })).await;
    }

    // At once, everywhere.
    let kick = json!({ "user": "eve" });
    let answers = join_all((0..12).map(|n| back_end.keyed(n % 3, "kick", "kick-1", &kick))).await;
    for answer in &answers {
        assert_eq!((answer.status, answer.json()), (200, answers[0].json()), "{answer:?}");
    }
    assert_eq!(stage.happened("banned").await.len(), 1);
    assert_eq!(stage.happened("seat_taken").await.len(), 3);
}

#[tokio::test]
async fn i_13_a_command_without_an_answer_in_time_is_done_once_when_it_is_repeated() {
    let stage = Stage::start_with(2, with_keys).await;
    let back_end = BackEnd::new(&stage);
    let mut hanna = stage.enter("hanna", "host").await;
    let body = json!({ "locked": true });
    stage.cluster[0].process().pause();
    let unanswered = back_end.keyed(1, "lock", "lock-1", &body).await;
    stage.cluster[0].process().resume();
    refused(&unanswered, 504, "TIMEOUT");
    // Perhaps it comes too late and is not executed; then a repeat is.
    e2e::wait::until("it is done", e2e::wait::SOON, || async {
        let again = back_end.keyed(1, "lock", "lock-1", &body).await;
        assert!(matches!(again.status, 200 | 503 | 504), "{again:?}");
        again.status == 200
    })
    .await;
    let first = back_end.keyed(0, "lock", "lock-1", &body).await;
    assert_eq!(back_end.keyed(1, "lock", "lock-1", &body).await.json(), first.json());
    hanna.until("the door is locked", |view| view.locked).await;
    assert_eq!(stage.happened("door_locked").await.len(), 1);

    // Without Redis nothing can be asked, and the caller is told when to come again.
    stage.cluster.redis.pause();
    for (method, path, body) in
        [("GET", "", ""), ("GET", "/timeline", ""), ("PATCH", "/settings", r#"{"noiseReduction":"off"}"#)]
    {
        let answer = back_end.send(1, method, &format!("/rooms/{ROOM}{path}"), &[], body).await;
        refused(&answer, 503, "STORE_UNAVAILABLE");
    }
    stage.cluster.redis.resume();
}

#[tokio::test]
async fn only_the_apps_own_back_end_is_heard_and_a_tokens_room_is_its_limit() {
    let stage = Stage::start_with(2, with_keys).await;
    stage.enter("ann", "guest").await;
    let admin = |user: &str| Token::new(user, "host").claim("admin", true);
    let other_admin =
        admin("x").claim("app", "other").secret("another secret, of the other app, of 32 bytes");
    let room = format!("/rooms/{ROOM}");
    let lock = format!("{room}/commands/lock");
    let cases = [
        ("a key", KEY.to_owned(), [200, 200, 200, 200]),
        ("another key", SECOND_KEY.to_owned(), [200, 200, 200, 200]),
        ("an admin", admin("admin").sign(), [200, 200, 200, 200]),
        ("an admin of the room", admin("admin").room(ROOM).sign(), [200, 200, 403, 403]),
        ("an admin of another room", admin("admin").room("elsewhere").sign(), [403, 403, 201, 403]),
        ("another app's key", OTHER_KEY.to_owned(), [403; 4]),
        ("another app's admin", other_admin.sign(), [403; 4]),
        ("a host", Token::new("hanna", "host").sign(), [403; 4]),
        ("an admin of yesterday", admin("admin").expired(3_600).sign(), [401; 4]),
        ("a forged admin", admin("admin").secret("a secret of the tests, but not that one").sign(), [401; 4]),
        ("an unsigned admin", admin("admin").unsigned(), [401; 4]),
        ("no key", format!("{KEY}!"), [401; 4]),
    ];
    let mut made = BTreeSet::new();
    for (who, shown, right) in cases {
        let caller = BackEnd::showing(&stage, &shown);
        let mut seen = Vec::new();
        for (method, path, body) in [
            ("GET", &*room, ""),
            ("POST", &*lock, r#"{"locked":false}"#),
            ("PUT", "/rooms/elsewhere", ""),
            ("GET", "/rooms", ""),
        ] {
            let answer = caller.send(1, method, path, &[], body).await;
            let challenged = answer.header("www-authenticate").is_some();
            assert_eq!(challenged, answer.status == 401, "{who}: {answer:?}");
            match answer.status {
                401 => _ = refused(&answer, 401, "UNAUTHENTICATED"),
                403 => _ = refused(&answer, 403, "FORBIDDEN"),
                _ => {}
            }
            let is_new = path == "/rooms/elsewhere" && answer.status == 201;
            assert!(!is_new || made.insert(path), "{who} made it again");
            // It is there once somebody made it.
            seen.push(if is_new { 201 } else { answer.status });
        }
        let fits =
            right.iter().zip(&seen).all(|(right, seen)| right == seen || (right / 100, seen / 100) == (2, 2));
        assert!(fits, "{who}: {seen:?}, not {right:?}");
    }
    let url = format!("{}/v1/apps/{APP}{room}", stage.cluster[1].url());
    let unproved = http::get(&url).await.expect("an answer");
    refused(&unproved, 401, "UNAUTHENTICATED");
}
