//! What the ledger is for: rooms that Redis has lost come back, nothing is begun that cannot be written down, and whoever
//! wants to know is told.

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::process::Process;
use e2e::servers::RedisServer;
use e2e::wait::{self, SOON};
use e2e::{http, place, streams};
use key_prefix::{KeyKind, Keys, Prefix};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use crate::clients::code;
use crate::stored::{named, of_room};

pub(crate) const LEAP: u64 = 1_000_000;

fn keys() -> Keys {
    Keys::new(Prefix::parse("test").expect("a prefix"))
}

/// Waits until everything that was committed is in the ledger.
pub(crate) async fn archived(redis: &RedisServer) {
    wait::eventually(SOON, || async {
        match streams::waiting_in_lanes(redis).await {
            Some(0) => Ok(()),
            waiting => Err(format!("in lanes: {waiting:?}")),
        }
    })
    .await;
}

pub(crate) async fn released(redis: &RedisServer, room: &str) {
    wait::until("the empty room is released", SOON, || async {
        redis.command(&["EXISTS", &of_room(KeyKind::Owner, room)]).await.number() == Some(0)
    })
    .await;
}

/// The events in the app's stream, in their order. One may stand there twice, if whoever delivered it was killed.
pub(crate) async fn told(redis: &RedisServer) -> Vec<Value> {
    let found = redis.command(&["XRANGE", &named(KeyKind::Events, "demo"), "-", "+"]).await;
    let mut known = BTreeSet::new();
    let events = found.items().iter().map(|entry| {
        let fields = entry.items()[1].texts();
        let at = fields.iter().position(|field| field == "payload").expect("a payload");
        serde_json::from_str::<Value>(&fields[at + 1]).expect("JSON")
    });
    events.filter(|event| known.insert(event["id"].to_string())).collect()
}

pub(crate) async fn done(driver: &Driver, conn: &str, event: &str, body: Value) -> Value {
    let ack = driver.emit(conn, event, body).await.unwrap_or_else(|failure| panic!("{event}: {failure:?}"));
    assert_eq!(ack["ok"], true, "{event}: {ack}");
    ack
}

/// The same until it is done: while Redis is being filled again a request may have to be repeated.
pub(crate) async fn done_at_last(driver: &Driver, conn: &str, event: &str, body: &Value) -> Value {
    wait::eventually(SOON, || async {
        match driver.emit(conn, event, body.clone()).await {
            Ok(ack) if ack["ok"] == true => Ok(ack),
            Ok(ack) => {
                assert_eq!(ack["error"]["retryable"], true, "{event}: {ack}");
                Err(ack)
            }
            Err(failure) => Err(json!(failure.message)),
        }
    })
    .await
}

#[tokio::test]
async fn i_2_i_13_a_wiped_redis_has_every_room_again_when_somebody_wants_it() {
    let mut cluster = Cluster::start_with(2, |options| options.idle(Duration::from_millis(100))).await;
    let driver = Driver::start().await;
    let host = cluster.token("ann", "host");
    let enter = async |conn: &str, at: usize, token: &str, room: &str, role: &str| {
        let joined = driver.join_with(conn, &cluster[at].url(), token, room, json!({ "role": role })).await;
        joined.unwrap_or_else(|failure| panic!("{conn} into {room}: {failure:?}"))["ack"]["room"].clone()
    };
    // One room is lived in; four were, and nobody has them in memory.
    enter("ann", 0, &host, "lived", "host").await;
    enter("bob", 0, &cluster.token("bob", "guest"), "lived", "guest").await;
    done(&driver, "bob", "mic:up", json!({ "room": "lived", "seat": 3 })).await;
    let left: Vec<String> = (0..4).map(|n| format!("left-{n}")).collect();
    let mut tokens = Vec::new();
    let mut answer = Value::Null;
    for room in left.iter().map(String::as_str).chain(["lived"]) {
        if room != "lived" {
            enter(room, 0, &host, room, "host").await;
        }
        let conn = if room == "lived" { "ann" } else { room };
        done(&driver, conn, "room:update", json!({ "room": room, "settings": { "custom": { "of": room } } }))
            .await;
        done(&driver, conn, "room:kick", json!({ "room": room, "user": "eve" })).await;
        answer =
            done(&driver, conn, "mic:lock", json!({ "room": room, "seat": 2, "locked": true, "id": "lock" }))
                .await;
        done(
            &driver,
            conn,
            "guest:update",
            json!({ "room": room, "user": "ann", "state": { "handRaised": true } }),
        )
        .await;
        if room != "lived" {
            done(&driver, conn, "room:leave", json!({ "room": room })).await;
            released(&cluster.redis, room).await;
        }
        let token = cluster.redis.command(&["HGET", &of_room(KeyKind::Room, room), "token"]).await.number();
        tokens.push(token.and_then(|token| u64::try_from(token).ok()).expect("a token"));
    }
    archived(&cluster.redis).await;
    cluster.redis.command(&["FLUSHALL"]).await;

    // Who is there goes on without coming again; what was answered is answered so again.
    let change = json!({ "room": "lived", "settings": { "custom": { "again": 1 } } });
    done_at_last(&driver, "ann", "room:update", &change).await;
    let lock = json!({ "room": "lived", "seat": 2, "locked": true, "id": "lock" });
    assert_eq!(done_at_last(&driver, "ann", "mic:lock", &lock).await, answer, "its repeat");
    let eve = cluster.token("eve", "guest");
    for (n, room) in left.iter().map(String::as_str).chain(["lived"]).enumerate() {
        let joined = wait::eventually(SOON, || async {
            let conn = format!("back-{n}");
            driver.join_with(&conn, &cluster[1].url(), &host, room, json!({ "role": "host" })).await
        })
        .await["ack"]["room"]
            .clone();
        assert_eq!(joined["settings"]["custom"]["of"], room, "{joined}");
        assert_eq!(joined["seats"][1]["state"], "locked", "{joined}");
        assert_eq!(joined["guests"]["ann"]["handRaised"], true, "{joined}");
        assert_eq!(joined["creator"], "ann", "{joined}");
        for counter in ["settings", "cell"] {
            assert!(joined["version"][counter].as_u64() > Some(LEAP), "{room}: no version twice: {joined}");
        }
        assert!(joined["owner"]["token"].as_u64() > Some(tokens[n]), "{room}: {joined}");
        if room == "lived" {
            assert_eq!(
                (&joined["seats"][2]["user"], &joined["peerCount"]),
                (&json!("bob"), &json!(2)),
                "{joined}"
            );
        }
        let refused = driver.join_with("eve", &cluster[1].url(), &eve, room, json!({})).await;
        assert_eq!(refused.expect_err("she was put out").code(), "BANNED", "{room}");
    }
    let recovered: f64 = cluster[0].metrics().await.sum("dais_rooms_recovered_total", &[])
        + cluster[1].metrics().await.sum("dais_rooms_recovered_total", &[]);
    assert!(recovered >= 4.0, "{recovered}");
    let facts = keys().facts().to_string();
    assert_eq!(
        cluster.redis.command(&["EXISTS", &facts]).await.number(),
        Some(0),
        "nobody has started since"
    );
    cluster[1].kill().await;
    cluster[1].restart().await;
    assert_eq!(
        cluster.redis.command(&["HGET", &facts, "lanes"]).await.text(),
        "64",
        "the ledger's word is here again"
    );
}

/// Holds the one write lock of a SQLite file until it is dropped.
pub(crate) async fn locked(ledger_url: &str) -> Process {
    const HOLD: &str = "import signal, sqlite3, sys\n\
        held = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)\n\
        held.execute('BEGIN IMMEDIATE')\n\
        print('locked', flush=True)\n\
        signal.pause()\n";
    let mut command = Command::new(place::on_path("python3").expect("python3 on PATH"));
    command.args(["-c", HOLD, ledger_url.trim_start_matches("sqlite://")]);
    let process = Process::start("lock", command);
    process.line("locked", 0, SOON, |line| (line == "locked").then_some(())).await;
    process
}

#[tokio::test]
async fn i_14_a_silent_ledger_lets_begin_what_it_may_hold_and_end_what_was_begun() {
    let patient = |options: CoordinatorOptions| {
        let options = options.value("ledger", "lane_limit", 6).value("ledger", "lane_last_limit", 12);
        options
            .value("ledger", "timeout_ms", 300)
            .value("ledger", "poll_ms", 10)
            .value("app", "seats", 4)
            .value("app", "publish_deadline_ms", 120_000)
    };
    let cluster = Cluster::start_with(2, patient).await;
    let driver = Driver::start().await;
    let host = cluster.token("ann", "host");
    driver
        .join_with("ann", &cluster[0].url(), &host, "math", json!({ "role": "host" }))
        .await
        .expect("joined");
    for n in 0..3 {
        let guest = cluster.token(&format!("guest-{n}"), "guest");
        driver.join(&format!("guest-{n}"), &cluster[0].url(), &guest, "math").await.expect("joined");
    }
    done(&driver, "guest-0", "mic:up", json!({ "room": "math", "seat": 1 })).await;
    archived(&cluster.redis).await;

    let lock = locked(&place::ledger_url(&cluster.redis.url(), "\"test\"")).await;
    let mut last = Value::Null;
    let mut accepted = 0;
    let update = |n: i32| json!({ "room": "math", "settings": { "custom": { "n": n } } });
    let refused = loop {
        let ack = driver.emit("ann", "room:update", update(accepted)).await.expect("an answer");
        if ack["ok"] != true {
            break ack;
        }
        last = ack["version"]["settings"].clone();
        accepted += 1;
        assert!(accepted <= 6, "more than the lane may hold");
    };
    assert_eq!(
        (code(&refused), &refused["error"]["retryable"]),
        ("LEDGER_UNAVAILABLE", &json!(true)),
        "{refused}"
    );
    // What begins something is refused, from wherever it comes; what ends something passes.
    driver.connect("far", &cluster[1].url(), &host).await.expect("connected");
    for (conn, event, body) in [
        ("guest-1", "mic:up", json!({ "room": "math", "seat": 2 })),
        ("far", "room:update", update(99)),
        ("far", "mic:seats", json!({ "room": "math", "count": 6 })),
    ] {
        let ack = driver.emit(conn, event, body).await.expect("an answer");
        assert_eq!(code(&ack), "LEDGER_UNAVAILABLE", "{event}: {ack}");
    }
    let briefly = json!({ "deadlineMs": 500 });
    let dan =
        driver.join_with("dan", &cluster[0].url(), &cluster.token("dan", "guest"), "math", briefly).await;
    assert_eq!(dan.expect_err("nobody comes in").code(), "LEDGER_UNAVAILABLE");
    done(&driver, "guest-0", "mic:down", json!({ "room": "math" })).await;
    done(&driver, "guest-1", "room:leave", json!({ "room": "math" })).await;
    done(&driver, "far", "room:kick", json!({ "room": "math", "user": "guest-2" })).await;
    wait::until("somebody notices", SOON, || async {
        let silent = async |at: usize| cluster[at].metrics().await.sum("dais_ledger_up", &[]) == 0.0;
        silent(0).await || silent(1).await
    })
    .await;
    // The last limit holds for everything.
    let lane = keys().lane(&key_prefix::RoomKey::from_route("demo\0math").expect("a room")).to_string();
    for n in 0..12 {
        let body = json!({ "room": "math", "user": format!("nobody-{n}") });
        let ack = driver.emit("ann", "room:kick", body).await.expect("an answer");
        if ack["ok"] != true {
            assert_eq!(code(&ack), "LEDGER_UNAVAILABLE", "{ack}");
        }
    }
    let length = cluster.redis.command(&["XLEN", &lane]).await.number().expect("a length");
    assert!((12..=14).contains(&length), "memory is bounded: {length}");

    // What waits is shown by the same names as later, and a page that ended in the lane goes on in the ledger.
    let authorized = format!("Bearer {}", e2e::token::Token::new("op", "host").claim("admin", true).sign());
    let page = async |query: String| {
        let url = format!("{}/v1/apps/demo/rooms/math/timeline?{query}", cluster[0].url());
        let page =
            http::request("GET", &url, &[("authorization", &authorized)], "").await.expect("an answer");
        let page: Value = serde_json::from_str(&page.body).expect("JSON");
        let entries = page["entries"].as_array().expect("entries").clone();
        (entries, page["next"].as_str().map(ToOwned::to_owned))
    };
    let (mut paged, mut next) = page("limit=5".to_owned()).await;
    assert_eq!(paged.len(), 5);

    drop(lock);
    archived(&cluster.redis).await;
    while let Some(before) = next {
        let (entries, behind) = page(format!("limit=5&before={before}")).await;
        paged.extend(entries);
        next = behind;
    }
    assert_eq!(paged, page("limit=200".to_owned()).await.0);
    done_at_last(&driver, "ann", "room:update", &update(100)).await;
    archived(&cluster.redis).await;
    let (entries, _) = page("limit=200".to_owned()).await;
    let versions: Vec<u64> = entries
        .iter()
        .filter(|entry| entry["kind"] == "settings")
        .filter_map(|entry| entry["version"].as_u64())
        .collect();
    assert!(versions.contains(&last.as_u64().expect("a version")), "{versions:?} lack {last}");
    assert_eq!(versions.len() as u64, versions[0], "each exactly once: {versions:?}");
}

#[tokio::test]
async fn i_14_an_instance_that_differs_in_what_is_fixed_for_ever_does_not_start() {
    let cluster = Cluster::start(1).await;
    let other = tempfile::tempdir().expect("a folder");
    let url = |name: &str| format!("sqlite://{}", other.path().join(name).display());
    let next = || CoordinatorOptions::new("z", &cluster.redis.url());
    let ledger = place::ledger_url(&cluster.redis.url(), "\"test\"");
    for (options, says) in [
        (next().value("ledger", "lanes", 32), "lanes is 64 in the ledger, and 32 here"),
        (next().text("ledger", "url", &url("new.db")), "one that is empty"),
        (next().key_prefix("stage-two").text("ledger", "url", &ledger), "key_prefix is test in the ledger"),
    ] {
        let (process, _folder) = options.spawn();
        assert_eq!(process.exit(SOON).await.code(), Some(1), "{says}");
        process.line(says, 0, SOON, |line| line.contains(says).then_some(())).await;
    }
}

#[tokio::test]
async fn i_15_i_25_whoever_wants_to_know_is_told_in_order_what_began_and_how_it_ended() {
    let change = |options: CoordinatorOptions| {
        let options = options.grace(Duration::from_millis(300)).idle(Duration::from_secs(60));
        options.toml("[[app.sinks]]\nname = \"log\"\nkind = \"stream\"\n")
    };
    let mut cluster = Cluster::start_with(2, change).await;
    let driver = Driver::start().await;
    let host = cluster.token("ann", "host");
    let joined = driver.join_with("ann", &cluster[0].url(), &host, "math", json!({ "role": "host" })).await;
    assert_eq!(joined.expect("joined")["ack"]["room"]["owner"]["instance"], "a");
    driver.join("bob", &cluster[0].url(), &cluster.token("bob", "guest"), "math").await.expect("joined");
    let up = done(&driver, "bob", "mic:up", json!({ "room": "math", "seat": 1 })).await;
    let session = up["seat"]["micSession"].clone();
    done(&driver, "bob", "mic:confirm", json!({ "room": "math", "micSession": session })).await;
    done(
        &driver,
        "ann",
        "room:update",
        json!({ "room": "math", "settings": { "noiseReduction": "near_field" } }),
    )
    .await;
    // Nobody sees how they end: their instance dies, and they do not come back.
    cluster[0].kill().await;
    let events = wait::eventually(SOON * 2, || async {
        let events = told(&cluster.redis).await;
        let left = events.iter().filter(|event| event["type"] == "user.left").count();
        let is_told = events.iter().any(|event| event["type"] == "instance.lost");
        if left == 2 && is_told { Ok(events) } else { Err(events) }
    })
    .await;
    let of_room: Vec<&Value> = events.iter().filter(|event| event["data"]["room"] == "math").collect();
    let kinds: Vec<&str> = of_room.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(
        kinds[..5],
        ["settings.updated", "room.created", "user.joined", "user.joined", "mic.started"],
        "{kinds:?}"
    );
    let of = |kind: &str| of_room.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("mic.ended").len(), 1, "{events:?}");
    let ended = of("mic.ended")[0];
    assert_eq!(
        (&ended["data"]["reason"], &ended["data"]["session"]),
        (&json!("instance_lost"), &session),
        "{ended}"
    );
    assert!(ended["data"]["durationMs"].is_u64(), "{ended}");
    for left in of("user.left") {
        assert_eq!(left["data"]["reason"], "instance_lost", "{left}");
    }
    let lost: Vec<&Value> = events.iter().filter(|event| event["type"] == "instance.lost").collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
}
