//! Three Sentinels, a primary and two replicas that lag: what a failover loses, and that nothing is given twice for it.

use e2e::coordinator::{Coordinator, CoordinatorOptions};
use e2e::driver::Driver;
use e2e::place;
use e2e::sentinels::{FAILOVER, Sentinels};
use e2e::token::Token;
use e2e::wait::{self, SOON};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::Connection as _;
use std::time::Duration;

use crate::clients::{Known, assert_refused_for_now};
use crate::ledger::{archived, locked};
use crate::stored::Stored;

/// Versions leap by so much where some may be lost.
const LEAP: u64 = 1_000_000;
const FOR_NOW: [&str; 4] = ["STORE_UNAVAILABLE", "LEASE_LOST", "TIMEOUT", "RATE_LIMITED"];

/// How the primary is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// It dies.
    Dies,
    /// Replicas and Sentinels cannot reach it any more; the instances still can.
    IsCutOff,
}

/// Two instances, and three rooms: one that `a` runs, one that nobody has in memory, and one that `b` takes when no
/// replica hears of it any more.
struct Lesson {
    sentinels: Sentinels,
    coordinators: Vec<Coordinator>,
    driver: Driver,
}

impl Lesson {
    async fn begin(heartbeat: Duration, wait_replicas: u32) -> Self {
        let sentinels = Sentinels::start().await;
        let start = |id: &str| {
            let options = CoordinatorOptions::new(id, &sentinels.url());
            let options = options.heartbeat(heartbeat).idle(Duration::from_millis(100));
            options
                .grace(Duration::from_secs(60))
                .value("redis", "command_timeout_ms", 100)
                .value("redis", "wait_replicas", wait_replicas)
                .start()
        };
        let coordinators = join_all(["a", "b"].map(start)).await;
        let driver = Driver::start().await;
        let lesson = Self { sentinels, coordinators, driver };
        for room in ["moved", "idle"] {
            lesson.join("early", 0, "early", room).await;
            lesson.done("early", "room:leave", json!({ "room": room })).await;
            wait::until("it is released", SOON, || async {
                Stored::room(&lesson.sentinels.servers[0], room).owner().await.is_none()
            })
            .await;
        }
        lesson.driver.connect("far", &lesson.coordinators[1].url(), &host("far")).await.expect("connected");
        lesson
    }

    async fn join(&self, conn: &str, at: usize, user: &str, room: &str) -> Value {
        let (url, token) = (self.coordinators[at].url(), host(user));
        wait::eventually(FAILOVER, || async {
            self.driver.join_with(conn, &url, &token, room, json!({ "role": "host" })).await
        })
        .await
    }

    /// As a good client does it: again where it is refused for now.
    async fn done(&self, conn: &str, event: &str, body: Value) -> Value {
        wait::eventually(FAILOVER, || async {
            let ack = self.driver.emit(conn, event, body.clone()).await.expect("an answer");
            if ack["ok"] == true {
                return Ok(ack);
            }
            assert_refused_for_now(&ack, &FOR_NOW);
            Err(ack)
        })
        .await
    }

    /// Sets a field of `custom`. The version that this made.
    async fn set(&self, conn: &str, room: &str, name: &str) -> u64 {
        let body = json!({ "room": room, "settings": { "custom": { name: 1 } } });
        self.done(conn, "room:update", body).await["version"]["settings"].as_u64().expect("a version")
    }

    /// Nothing reaches the replicas any more; the primary goes on, though not for ever.
    async fn replicas_lag(&self) {
        self.sentinels.replicated(2).await;
        let longer = ["CONFIG", "SET", "min-replicas-max-lag", "60"];
        assert_eq!(self.sentinels.servers[0].command(&longer).await.text(), "OK");
        for replica in &self.sentinels.servers[1..] {
            replica.pause();
        }
    }

    /// The primary is lost, and a replica that lags takes its place.
    async fn fail_over(&mut self, loss: Loss) -> usize {
        match loss {
            Loss::Dies => self.sentinels.servers[0].kill().await,
            Loss::IsCutOff => self.sentinels.isolate(0).await,
        }
        // What was on its way to them is lost with their processes.
        for replica in &mut self.sentinels.servers[1..] {
            replica.kill().await;
        }
        for replica in &mut self.sentinels.servers[1..] {
            replica.restart().await;
        }
        self.sentinels.failed_over(0).await
    }

    async fn nothing_was_given_twice(&self) {
        let url = place::ledger_url(&self.sentinels.url(), "\"test\"");
        sqlx::any::install_default_drivers();
        let mut ledger = sqlx::AnyConnection::connect(&url).await.expect("the file");
        let twice = "SELECT COUNT(*) FROM (SELECT 1 FROM log WHERE kind <> 'state' \
                     GROUP BY room_key, counter, version HAVING COUNT(*) > 1)";
        let twice: i64 = sqlx::query_scalar(twice).fetch_one(&mut ledger).await.expect("a count");
        assert_eq!(twice, 0, "versions");
        let shared = "SELECT COUNT(*) FROM (SELECT 1 FROM log WHERE owner <> '' \
                      GROUP BY room_key, token HAVING COUNT(DISTINCT owner) > 1)";
        let shared: i64 = sqlx::query_scalar(shared).fetch_one(&mut ledger).await.expect("a count");
        assert_eq!(shared, 0, "tokens");
        for coordinator in &self.coordinators {
            let forks = coordinator.metrics().await.sum("dais_archived_total", &[("what", "forked")]);
            assert!(forks < 1.0, "{} found {forks} forks", coordinator.id());
        }
    }
}

fn host(user: &str) -> String {
    Token::new(user, "host").sign()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number, not {value}"))
}

async fn a_failover_loses_what_only_the_primary_knew_and_gives_nothing_twice(
    heartbeat: Duration,
    loss: Loss,
) {
    let mut lesson = Lesson::begin(heartbeat, 0).await;
    let mut ann = Known::joined(&lesson.join("ann", 0, "ann", "lived").await);
    lesson.join("ben", 0, "ben", "lived").await;
    lesson.done("ben", "mic:up", json!({ "room": "lived", "seat": 3 })).await;
    let before = Stored::room(&lesson.sentinels.servers[0], "lived").owner().await.expect("an owner");
    assert_eq!(before.name(), "a");

    lesson.replicas_lag().await;
    // Nor does the ledger hear of what follows.
    let lock = locked(&place::ledger_url(&lesson.sentinels.url(), "\"test\"")).await;
    let mut acked = Vec::new();
    for (conn, name) in [("ann", "x"), ("far", "y"), ("ann", "z")] {
        acked.push(lesson.set(conn, "lived", name).await);
    }
    lesson.done("ann", "room:kick", json!({ "room": "lived", "user": "eve" })).await;
    lesson.done("ann", "mic:lock", json!({ "room": "lived", "seat": 2, "locked": true })).await;
    let lost = lesson.set("far", "idle", "lost").await;
    let moved = lesson.join("cem", 1, "cem", "moved").await["ack"]["room"].clone();
    assert_eq!(moved["owner"]["instance"], "b");
    let moved_to = lesson.set("cem", "moved", "x").await;
    let primary = lesson.fail_over(loss).await;
    drop(lock);

    // Who had a room in memory lost nothing of it, wherever it was changed.
    let again = lesson.set("ann", "lived", "again").await;
    assert!(again > *acked.last().expect("some"), "{again} after {acked:?}");
    ann.follow(&lesson.driver, "ann", i64::try_from(again).expect("a version"), SOON).await;
    for name in ["x", "y", "z", "again"] {
        assert_eq!(ann.settings["custom"][name], 1, "{name} in {}", ann.settings);
    }
    let room = lesson.join("dan", 0, "dan", "lived").await["ack"]["room"].clone();
    assert_eq!(room["settings"], ann.settings);
    assert_eq!((&room["seats"][1]["state"], &room["seats"][2]["user"]), (&json!("locked"), &json!("ben")));
    assert_eq!(room["peerCount"], 3, "{room}");
    assert!(number(&room["owner"]["token"]) >= u64::try_from(before.token).expect("a token"));
    let (url, eve) = (lesson.coordinators[0].url(), Token::new("eve", "guest").sign());
    let eve = lesson.driver.join("eve", &url, &eve, "lived");
    assert_eq!(eve.await.expect_err("she was put out").code(), "BANNED");
    // What nobody had in memory is as the replica and the ledger have it, and its versions leap past what is lost.
    let after = lesson.set("far", "idle", "after").await;
    assert!(after > lost && after > LEAP, "{after} after {lost}");
    let idle = lesson.join("fay", 1, "fay", "idle").await["ack"]["room"].clone();
    assert_eq!(idle["settings"]["custom"]["after"], 1, "{idle}");
    // Whoever took a room that no replica heard of has it still, or has it again.
    let after = lesson.set("cem", "moved", "after").await;
    assert!(after > moved_to, "{after} after {moved_to}");
    let moved_again = lesson.join("gus", 1, "gus", "moved").await["ack"]["room"].clone();
    assert_eq!(moved_again["settings"]["custom"], json!({ "x": 1, "after": 1 }), "{moved_again}");
    assert_eq!(moved_again["peerCount"], 2, "{moved_again}");
    assert!(number(&moved_again["owner"]["token"]) >= number(&moved["owner"]["token"]));

    if loss == Loss::IsCutOff {
        let refused = lesson.sentinels.servers[0].command(&["SET", "x", "1"]).await.text();
        assert!(refused.starts_with("NOREPLICAS"), "{refused}");
        lesson.sentinels.reunite(0).await;
        lesson.sentinels.know_each_other().await;
        let then = lesson.set("far", "lived", "then").await;
        assert!(then > again, "{then} after {again}");
    }
    for room in ["lived", "moved", "idle"] {
        let owner = Stored::room(&lesson.sentinels.servers[primary], room).owner().await;
        assert!(owner.is_some(), "{room} has people");
    }
    archived(&lesson.sentinels.servers[primary]).await;
    lesson.nothing_was_given_twice().await;
}

#[tokio::test]
async fn i_1_i_5_a_failover_that_outlasts_leases_gives_nothing_twice() {
    let heartbeat = Duration::from_millis(400);
    a_failover_loses_what_only_the_primary_knew_and_gives_nothing_twice(heartbeat, Loss::Dies).await;
}

#[tokio::test]
async fn i_1_i_5_a_failover_under_a_living_owner_gives_nothing_twice() {
    let heartbeat = Duration::from_secs(8);
    a_failover_loses_what_only_the_primary_knew_and_gives_nothing_twice(heartbeat, Loss::Dies).await;
}

#[tokio::test]
async fn i_1_i_5_a_primary_that_is_cut_off_from_its_replicas_gives_nothing_twice() {
    let heartbeat = Duration::from_millis(400);
    a_failover_loses_what_only_the_primary_knew_and_gives_nothing_twice(heartbeat, Loss::IsCutOff).await;
}

#[tokio::test]
async fn i_14_what_waits_for_a_replica_survives_the_primary() {
    let mut lesson = Lesson::begin(Duration::from_millis(400), 1).await;
    let ann = lesson.join("ann", 0, "ann", "lived").await;
    assert_eq!(ann["ack"]["room"]["owner"]["instance"], "a");
    lesson.replicas_lag().await;
    // Whatever kind it is, it is not acknowledged while only the primary has it.
    let update = |room: &str| json!({ "room": room, "settings": { "custom": { "late": 1 } } });
    for (conn, event, body) in [
        ("ann", "room:update", update("lived")),
        ("far", "room:update", update("idle")),
        ("ann", "mic:lock", json!({ "room": "lived", "seat": 4, "locked": true })),
        ("far", "room:kick", json!({ "room": "lived", "user": "eve" })),
        ("far", "room:join", json!({ "room": "moved", "deadlineMs": 500 })),
    ] {
        let ack = lesson.driver.emit(conn, event, body).await.expect("an answer");
        assert_eq!(ack["ok"], false, "{event} of {conn}: {ack}");
        assert_refused_for_now(&ack, &FOR_NOW);
    }
    for replica in &lesson.sentinels.servers[1..] {
        replica.resume();
    }
    let lock = locked(&place::ledger_url(&lesson.sentinels.url(), "\"test\"")).await;
    lesson.done("ann", "mic:lock", json!({ "room": "lived", "seat": 2, "locked": true })).await;
    for name in ["v", "w", "x"] {
        lesson.set("far", "idle", name).await;
    }
    lesson.join("cem", 1, "cem", "moved").await;
    let cem = lesson.set("cem", "moved", "x").await;
    for at in 0..2 {
        lesson.coordinators[at].kill().await;
    }
    lesson.fail_over(Loss::Dies).await;
    drop(lock);
    for at in 0..2 {
        lesson.coordinators[at].restart().await;
    }
    // Neither memory nor ledger knew of it.
    let idle = lesson.join("fay", 1, "fay", "idle").await["ack"]["room"].clone();
    for name in ["v", "w", "x"] {
        assert_eq!(idle["settings"]["custom"][name], 1, "{name} in {idle}");
    }
    let moved = lesson.join("gus", 1, "gus", "moved").await["ack"]["room"].clone();
    assert!(number(&moved["version"]["settings"]) > cem, "{moved}");
    assert_eq!(moved["settings"]["custom"]["x"], 1, "{moved}");
    let lived = lesson.join("dan", 0, "dan", "lived").await["ack"]["room"].clone();
    assert_eq!(lived["seats"][1]["state"], "locked", "{lived}");
}

#[tokio::test]
async fn a_primary_that_would_go_on_alone_is_refused() {
    let sentinels = Sentinels::start().await;
    let primary = &sentinels.servers[0];
    let set = async |arguments: &[&str]| assert_eq!(primary.command(arguments).await.text(), "OK");
    let refused = async |says: &str| {
        let (process, _folder) = CoordinatorOptions::new("a", &sentinels.url()).spawn();
        assert_eq!(process.exit(SOON).await.code(), Some(1), "{says}");
        process.line(says, 0, SOON, |line| line.contains(says).then_some(())).await;
    };
    set(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    refused("min-replicas-to-write 1").await;
    set(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    set(&["CONFIG", "SET", "min-replicas-max-lag", "2"]).await;
    refused("`min-replicas-max-lag` = 2000 ms, and its Sentinels name another after `down-after-milliseconds` = 1500").await;
    set(&["CONFIG", "SET", "min-replicas-max-lag", "1"]).await;
    set(&["ACL", "SETUSER", "default", "-config"]).await;
    refused("allow `CONFIG GET`").await;
    set(&["ACL", "SETUSER", "default", "+@all"]).await;
    let coordinator = CoordinatorOptions::new("a", &sentinels.url()).start().await;
    assert_eq!(coordinator.process().exit_status(), None);
}
