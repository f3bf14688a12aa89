//! Rooms that are wanted while the ledger cannot be asked about them.

use e2e::coordinator::CoordinatorOptions;
use e2e::databases::{Database, Kind};
use e2e::servers::RedisServer;
use e2e::token::{APP, Token};
use e2e::wait::{self, SOON};
use key_prefix::KeyKind;
use serde_json::{Value, json};
use std::time::Duration;

use crate::clients::{Known, assert_refused_for_now, insist};
use crate::ledger::{LEAP, archived, released, told};
use crate::stage::{ROOM, Stage, View};
use crate::stored::of_room;

/// Two instances with a ledger that can be frozen.
async fn begin() -> (Database, Stage) {
    let database = Database::alone(Kind::Postgres).await;
    let stage = Stage::start_with(2, |options: CoordinatorOptions| {
        let options = options.text("ledger", "url", &database.url).value("ledger", "load_timeout_ms", 300);
        let options = options.idle(Duration::from_millis(100)).grace(Duration::from_secs(60));
        options.toml("[[app.sinks]]\nname = \"log\"\nkind = \"stream\"\n")
    })
    .await;
    (database, stage)
}

/// Somebody comes, does this, and goes; then the room is in Redis and in the ledger, and in nobody's memory.
async fn visit(stage: &Stage, requests: &[(&str, Value)]) {
    let ann = stage.enter("ann", "host").await;
    for (event, body) in requests {
        ann.ask(event, body.clone()).await;
    }
    ann.ask("room:leave", json!({})).await;
    released(&stage.cluster.redis, ROOM).await;
    archived(&stage.cluster.redis).await;
}

/// Keeps the room's keys as they are now.
async fn keep(redis: &RedisServer) {
    const KEEP: &str =
        "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('COPY', key, 'kept ' .. key) end";
    redis.command(&["EVAL", KEEP, "0", &format!("*{APP}\0{ROOM}")]).await;
}

/// Redis has the room as it was when it was kept: what came after is lost, as in a failover.
async fn fall_back(redis: &RedisServer) {
    const FALL_BACK: &str = "redis.call('DEL', unpack(redis.call('KEYS', ARGV[2]))) \
        local kept = redis.call('KEYS', 'kept *') \
        for _, key in ipairs(kept) do redis.call('RENAME', key, string.sub(key, 6)) end \
        return #kept";
    let (all, of_room) = (format!("*{APP}\0{ROOM}"), format!("test:*{APP}\0{ROOM}"));
    let kept = redis.command(&["EVAL", FALL_BACK, "0", &all, &of_room]).await.number();
    assert!(kept > Some(0), "{kept:?}");
}

async fn token(redis: &RedisServer) -> i64 {
    redis.command(&["HGET", &of_room(KeyKind::Room, ROOM), "token"]).await.number().expect("a token")
}

#[tokio::test]
async fn i_13_a_room_that_was_served_without_the_ledger_is_what_the_ledger_knows_as_soon_as_it_answers() {
    let (database, stage) = begin().await;
    let server = database.server().expect("a server");
    let redis = &stage.cluster.redis;
    let custom = |custom: Value| ("room:update", json!({ "settings": { "custom": custom } }));
    visit(&stage, &[custom(json!({ "of": "old", "kept": true }))]).await;
    keep(redis).await;
    let raised = json!({ "user": "ann", "state": { "handRaised": true } });
    let lock = json!({ "seat": 2, "locked": true });
    let out = json!({ "user": "eve" });
    let lost =
        [custom(json!({ "of": "new" })), ("guest:update", raised), ("mic:lock", lock), ("room:kick", out)];
    visit(&stage, &lost).await;
    let before = token(redis).await;
    server.pause();
    fall_back(redis).await;

    // It is served as Redis has it, and goes on from there.
    let fields = json!({ "role": "host" });
    let url = stage.cluster[0].url();
    let answer = stage.driver.join_with("hana", &url, &Token::new("hana", "host").sign(), ROOM, fields).await;
    let answer = answer.expect("a room that Redis has is served");
    let mut hana = Known::joined(&answer);
    assert_eq!(hana.settings["custom"], json!({ "of": "old", "kept": true }));
    let mut ben = stage.enter("ben", "guest").await;
    assert_eq!(ben.view.seats[&2]["state"], "idle", "{:?}", ben.view);
    let eve = stage.enter("eve", "guest").await;
    ben.ask("mic:up", json!({ "seat": 1 })).await;
    stage.ask("hana", "room:update", json!({ "settings": { "custom": { "meanwhile": 1 } } })).await;
    stage.ask("hana", "room:kick", json!({ "user": "mallory" })).await;

    server.resume();
    ben.until("sees what the ledger knows", |view| {
        view.seats[&2]["state"] == "locked" && !view.peers.contains_key("eve")
    })
    .await;
    assert!(ben.view.peers.contains_key("ben") && ben.view.peers.contains_key("hana"), "{:?}", ben.view);
    archived(redis).await;
    let (versions, stands) = (token_and_versions(redis).await, stage.snapshot(1).await);
    assert!(versions.0 > before, "{versions:?}, before: {before}");
    for version in [versions.1, versions.2] {
        assert!(version > i64::try_from(LEAP).expect("a number"), "no version twice: {versions:?}");
    }
    hana.follow(&stage.driver, "hana", versions.1, SOON).await;
    // What the ledger knew, and on top of it what was done meanwhile.
    let expected = json!({ "of": "new", "kept": true, "meanwhile": 1 });
    assert_eq!((&hana.settings["custom"], &stands["settings"]["custom"]), (&expected, &expected));
    assert_eq!((&hana.guests, &stands["guests"]), (&json!({ "ann": { "handRaised": true } }), &hana.guests));
    for user in ["eve", "mallory"] {
        let (conn, token) = (format!("{user} again"), Token::new(user, "guest").sign());
        let refusal = stage.driver.join(&conn, &url, &token, ROOM).await;
        assert_eq!(refusal.expect_err("put out").code(), "BANNED", "{user}");
    }
    assert_eq!(eve.told("session:evicted", |_| true).await["reason"], "kicked");
    eve.refused("mic:up", json!({}), "NOT_IN_ROOM").await;
    // Nobody needs to come again to go on.
    assert_eq!(ben.view.seats[&1]["user"], "ben", "{:?}", ben.view);
    ben.ask("mic:move", json!({ "seat": 3 })).await;
    stage.ask("hana", "room:update", json!({ "settings": { "custom": { "after": 1 } } })).await;
    let stands = View::of(&stage.snapshot(1).await);
    ben.until("sees the room as it stands", |view| view.parts() == stands.parts()).await;
    let recovered =
        stage.cluster[0].metrics().await.sum("dais_rooms_recovered_total", &[("cause", "behind")]);
    assert_eq!(recovered, 1.0);
    // Whoever is told of it all counts right.
    let counts = wait::eventually(SOON, || async {
        let events = told(redis).await;
        let count = |kind: &str, user: &str| {
            let of_user = |event: &&Value| event["type"] == kind && event["data"]["user"] == user;
            events.iter().filter(of_user).count()
        };
        let counts =
            ["ben", "hana", "eve"].map(|user| (count("user.joined", user), count("user.left", user)));
        if counts[2].1 > 0 { Ok(counts) } else { Err(counts) }
    });
    assert_eq!(counts.await, [(1, 0), (1, 0), (1, 1)]);
}

async fn token_and_versions(redis: &RedisServer) -> (i64, i64, i64) {
    let (sv, cv) = crate::stored::Stored::room(redis, ROOM).versions().await;
    (token(redis).await, sv, cv)
}

#[tokio::test]
async fn i_13_a_room_that_redis_lacks_is_no_empty_one_while_the_ledger_is_silent() {
    let (database, stage) = begin().await;
    let server = database.server().expect("a server");
    let redis = &stage.cluster.redis;
    let settings = json!({ "settings": { "custom": { "kept": true } } });
    visit(&stage, &[("room:update", settings), ("room:kick", json!({ "user": "eve" }))]).await;
    let before = token(redis).await;
    server.pause();
    redis.command(&["FLUSHALL"]).await;

    for (n, room) in [ROOM, "never-heard-of", ROOM].into_iter().enumerate() {
        let conn = format!("ann-{n}");
        stage.connect(&conn, "ann", "host", n % 2).await;
        let ack = stage.answer(&conn, "room:join", json!({ "room": room })).await;
        assert_refused_for_now(&ack, &["STORE_UNAVAILABLE"]);
        let made = redis.command(&["EXISTS", &of_room(KeyKind::Room, room)]).await.number();
        assert_eq!(made, Some(0), "{room} was made of nothing");
    }
    server.resume();
    let room = insist(&stage.driver, "ann-1", "room:join", &json!({ "room": ROOM })).await["room"].take();
    assert_eq!(room["settings"]["custom"], json!({ "kept": true }), "{room}");
    assert!(room["owner"]["token"].as_i64() > Some(before), "{room}");
    let (url, eve) = (stage.cluster[0].url(), Token::new("eve", "guest").sign());
    let refusal = stage.driver.join("eve", &url, &eve, ROOM).await;
    assert_eq!(refusal.expect_err("put out").code(), "BANNED");
    let new = insist(&stage.driver, "ann-0", "room:join", &json!({ "room": "never-heard-of" })).await;
    assert!(new["room"]["version"]["cell"].as_u64() < Some(LEAP), "{new}");
}
