//! Redis killed, frozen, wiped, and its subscriptions cut: what everybody sees, and how it ends.

use e2e::cluster::Cluster;
use e2e::coordinator::{Coordinator, CoordinatorOptions};
use e2e::driver::Driver;
use e2e::servers::{Flavor, Fsync, RedisServer, ServerOptions};
use e2e::wait::{self, SOON};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::clients::{Known, assert_refused_for_now, insist, together};
use crate::stored::{Stored, incarnations};

const ROOM: &str = "math-101";
const MEMBERS: [&str; 3] = ["ann", "ben", "cem"];
const SHORT: Duration = Duration::from_millis(200);
/// What a loaded machine adds to a bound.
const SLACK: Duration = Duration::from_secs(3);
const FOR_NOW: [&str; 2] = ["STORE_UNAVAILABLE", "LEASE_LOST"];

/// Three people in a room of `a`, and hosts who are connected to `b` and `c`.
struct Lesson {
    cluster: Cluster,
    driver: Arc<Driver>,
    known: Vec<Known>,
}

impl Lesson {
    async fn begin(heartbeat: Duration) -> Self {
        let redis = ServerOptions::new(Flavor::Redis).aof(Some(Fsync::Always)).start().await;
        let change = |options: CoordinatorOptions| {
            let options = options.heartbeat(heartbeat).value("redis", "unready_after_ms", 300);
            options.value("limits", "events_per_second", 10_000).value("limits", "events_burst", 10_000)
        };
        let cluster = Cluster::start_on(redis, 3, change).await;
        let driver = Arc::new(Driver::start().await);
        let mut known = Vec::new();
        for member in MEMBERS {
            let token = cluster.token(member, "host");
            let fields = json!({ "role": "host" });
            let answer = driver.join_with(member, &cluster[0].url(), &token, ROOM, fields).await;
            known.push(Known::joined(&answer.expect("joined")));
        }
        for (conn, at) in [("b-host", 1), ("c-host", 2)] {
            let token = cluster.token(conn, "host");
            driver.connect(conn, &cluster[at].url(), &token).await.expect("connected");
        }
        Self { cluster, driver, known }
    }

    fn stored(&self) -> Stored<'_> {
        Stored::room(&self.cluster.redis, ROOM)
    }

    async fn set(&self, conn: &str, name: &str, value: u64) -> Value {
        let body = json!({ "room": ROOM, "settings": { "custom": { name: value } } });
        self.driver.emit(conn, "room:update", body).await.expect("an answer")
    }

    /// Sets it, as a good client does: again where it was refused for now. The version that it made.
    async fn set_again(&self, conn: &str, name: &str, value: u64) -> i64 {
        let ack = wait::eventually(SOON, || async {
            let ack = self.set(conn, name, value).await;
            if ack["ok"] == true {
                return Ok(ack);
            }
            assert_refused_for_now(&ack, &FOR_NOW);
            Err(ack)
        });
        ack.await["version"]["settings"].as_i64().expect("a version")
    }

    /// Every kind of request at once, at the owner and elsewhere: each is refused for now.
    async fn everything_is_refused_for_now(&self) {
        let update = json!({ "room": ROOM, "settings": { "custom": { "probe": 1 } } });
        let state = json!({ "room": ROOM, "user": "ben", "state": { "handRaised": true } });
        let join = json!({ "room": ROOM });
        let new = json!({ "room": "another" });
        let asked = [
            ("ann", "room:update", update.clone()),
            ("ben", "guest:update", state.clone()),
            ("b-host", "room:update", update),
            ("b-host", "guest:update", state),
            ("c-host", "room:join", join),
            ("c-host", "room:join", new),
        ];
        let answers = asked.map(|(conn, name, body)| {
            let driver = Arc::clone(&self.driver);
            async move { (conn, name, driver.emit(conn, name, body).await.expect("an answer")) }
        });
        for (conn, name, ack) in together(answers).await {
            assert_eq!(ack["ok"], false, "{name} of {conn}: {ack}");
            assert_refused_for_now(&ack, &FOR_NOW);
        }
    }

    async fn readiness(&self, status: u16) {
        for coordinator in &self.cluster.coordinators {
            coordinator.readiness(status, SOON).await;
        }
    }

    /// Redis is well again: everybody is where they were, knows what Redis knows, and heard it in order.
    async fn all_is_as_before(&mut self, within: Duration) {
        for coordinator in &self.cluster.coordinators {
            assert_eq!(coordinator.process().exit_status(), None, "{} has ended", coordinator.id());
        }
        let version = self.set_again("b-host", "after", 1).await;
        for (member, known) in MEMBERS.iter().zip(&mut self.known) {
            known.follow(&self.driver, member, version, within).await;
        }
        let stored = self.stored();
        assert_eq!(stored.versions().await.0, version);
        let (settings, guests) = (stored.settings().await, stored.guests().await);
        for (member, known) in MEMBERS.iter().zip(&self.known) {
            assert_eq!((&known.settings, &known.guests), (&settings, &guests), "what {member} was told");
            for event in self.driver.events(member, None).await {
                assert!(!["room:moved", "disconnect"].contains(&&*event.name), "{member}: {event:?}");
            }
        }
        assert_eq!(stored.owner().await.expect("an owner").name(), "a");
        assert_eq!(stored.peers().await, 3);
        let token = self.cluster.token("dan", "guest");
        let answer = self.driver.join("dan", &self.cluster[2].url(), &token, ROOM).await.expect("joined");
        assert_eq!(
            (&answer["ack"]["room"]["peerCount"], &answer["ack"]["room"]["settings"]),
            (&json!(4), &settings)
        );
    }
}

async fn fenced(coordinator: &Coordinator) {
    wait::until("its lease runs out", SOON, || async {
        coordinator.metrics().await.sum("dais_lease_losses_total", &[("how", "fenced")]) >= 1.0
    })
    .await;
}

/// Kills Redis under a load of settings, and starts it again when `out` says so.
async fn killed_and_restarted(mut lesson: Lesson, out: impl AsyncFnOnce(&Lesson)) {
    let before = lesson.stored().owner().await.expect("an owner");
    let bodies: Vec<Value> =
        (0..60).map(|n| json!({ "room": ROOM, "settings": { "custom": { format!("k{n}"): n } } })).collect();
    let driver = Arc::clone(&lesson.driver);
    let load = tokio::spawn(async move {
        let conns = ["ann", "b-host", "ben", "c-host", "cem"];
        let fields = json!({ "bodies": bodies, "concurrency": 5, "timeoutMs": 60_000 });
        driver.burst("room:update", &conns, fields).await.expect("sent")
    });
    let some = lesson.known[0].version + 15;
    lesson.known[0].follow(&lesson.driver, "ann", some, SOON).await;
    lesson.cluster.redis.kill().await;
    lesson.readiness(503).await;
    lesson.everything_is_refused_for_now().await;
    out(&lesson).await;
    lesson.cluster.redis.restart().await;
    lesson.readiness(200).await;

    let load = load.await.expect("sent");
    let settings = lesson.stored().settings().await;
    let mut acknowledged = 0;
    for (n, result) in load["results"].as_array().expect("results").iter().enumerate() {
        if result["ack"]["ok"] == true {
            acknowledged += 1;
            assert_eq!(settings["custom"][format!("k{n}")], n, "acknowledged, and lost: {result}");
        } else {
            assert_refused_for_now(&result["ack"], &FOR_NOW);
        }
    }
    assert!((15..60).contains(&acknowledged), "{acknowledged} acknowledged: not killed under load");
    lesson.all_is_as_before(SOON).await;
    let after = lesson.stored().owner().await.expect("an owner");
    assert!(after.instance == before.instance && after.token >= before.token, "{after:?} after {before:?}");
}

#[tokio::test]
async fn i_13_i_23_redis_is_killed_and_back_after_two_seconds() {
    let lesson = Lesson::begin(Duration::from_secs(1)).await;
    let started = Instant::now();
    killed_and_restarted(lesson, async |_| {
        let over = || async { started.elapsed() > Duration::from_secs(2) };
        wait::until("two seconds are over", SOON, over).await;
    })
    .await;
}

#[tokio::test]
async fn i_13_i_23_redis_is_killed_for_longer_than_a_lease_lives() {
    let lesson = Lesson::begin(SHORT).await;
    killed_and_restarted(lesson, async |lesson| {
        fenced(&lesson.cluster[0]).await;
        let fenced_at = Instant::now();
        let over = || async { fenced_at.elapsed() > 3 * SHORT };
        wait::until("its owner key has ended as well", SOON, over).await;
        lesson.everything_is_refused_for_now().await;
    })
    .await;
}

#[tokio::test]
async fn i_4_i_22_i_23_i_24_a_redis_that_answers_nothing_for_a_while_ends_and_moves_nobody() {
    let mut lesson = Lesson::begin(SHORT).await;
    let before = lesson.stored().owner().await.expect("an owner");
    lesson.set_again("b-host", "before", 1).await;
    lesson.cluster.redis.pause();
    let position = lesson.driver.position("ann").await;
    lesson.everything_is_refused_for_now().await;
    lesson.readiness(503).await;
    fenced(&lesson.cluster[0]).await;
    lesson.everything_is_refused_for_now().await;
    // Their refusals came over the same connections, so that nothing can be on its way any more.
    for member in MEMBERS {
        let told = lesson.driver.events(member, Some("room:update")).await;
        let early = told
            .iter()
            .find(|event| event.index >= position && event.body["settings"]["custom"]["probe"] == 1);
        assert_eq!(early, None, "told before Redis had acknowledged it");
    }
    for coordinator in &lesson.cluster.coordinators {
        let health = e2e::http::get(&format!("{}/healthz", coordinator.url())).await.expect("an answer");
        assert_eq!(health.status, 200, "alive, whatever Redis does");
    }
    // Somebody asks for the room elsewhere, again and again, before Redis goes on and after.
    let (url, token) = (lesson.cluster[1].url(), lesson.cluster.token("eve", "guest"));
    lesson.driver.connect("eve", &url, &token).await.expect("connected");
    let driver = Arc::clone(&lesson.driver);
    let eager = tokio::spawn(async move {
        driver.join_with("eve", &url, &token, ROOM, json!({ "reuse": true })).await.expect("joined")
    });
    lesson.everything_is_refused_for_now().await;
    lesson.cluster.redis.resume();
    lesson.readiness(200).await;
    assert_eq!(eager.await.expect("asked")["url"], json!(lesson.cluster[0].url()));
    let left = lesson.driver.emit("eve", "room:leave", json!({ "room": ROOM })).await.expect("an answer");
    assert_eq!(left["ok"], true, "{left}");
    lesson.all_is_as_before(SHORT + SLACK).await;
    let after = lesson.stored().owner().await.expect("an owner");
    assert!(after.instance == before.instance && after.token >= before.token, "{after:?} after {before:?}");
}

/// One connection to Redis that stays, for what is said while no other is let in.
struct Console(BufReader<TcpStream>);

impl Console {
    async fn open(redis: &RedisServer) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", redis.port())).await.expect("a running server");
        Self(BufReader::new(stream))
    }

    async fn say(&mut self, line: &str) -> String {
        self.0.write_all(format!("{line}\r\n").as_bytes()).await.expect("sent");
        let mut answer = String::new();
        self.0.read_line(&mut answer).await.expect("an answer");
        answer.trim_end().to_owned()
    }
}

#[tokio::test]
async fn i_22_i_24_what_a_lost_subscription_missed_is_repaired_within_a_heartbeat() {
    const HEARTBEAT: Duration = Duration::from_millis(500);
    let mut lesson = Lesson::begin(HEARTBEAT).await;
    let mut console = Console::open(&lesson.cluster.redis).await;
    let watched = lesson.driver.emit("c-host", "room:watch", json!({ "rooms": [ROOM] })).await;
    assert_eq!(watched.expect("an answer")["ok"], true);
    let sync = async |lesson: &Lesson, outcome: &str| {
        let metrics = lesson.cluster[0].metrics().await;
        metrics.sum("dais_router_sync_total", &[("outcome", outcome)])
    };

    // Nobody may connect again: what comes through now comes by the heartbeat alone.
    assert_eq!(console.say("CONFIG SET maxclients 1").await, "+OK");
    assert_eq!(console.say("CLIENT KILL TYPE pubsub").await, ":3");
    let received = sync(&lesson, "received").await;
    for value in 1..=3 {
        let version = lesson.set("b-host", "page", value).await["version"]["settings"].as_i64();
        let (known, told_by) = (&mut lesson.known[0], HEARTBEAT + SLACK);
        known.follow(&lesson.driver, "ann", version.expect("acknowledged"), told_by).await;
        assert_eq!(known.settings["custom"]["page"], value);
    }
    assert_eq!(sync(&lesson, "received").await, received, "there was no subscription");
    assert!(sync(&lesson, "repaired").await >= 3.0);
    lesson.readiness(503).await;

    assert_eq!(console.say("CONFIG SET maxclients 10000").await, "+OK");
    lesson.readiness(200).await;
    let applied = sync(&lesson, "applied").await;
    wait::until("the subscription is back", SOON, || async {
        lesson.set_again("b-host", "page", 4).await;
        sync(&lesson, "applied").await > applied
    })
    .await;

    // Cut again and again, while settings change.
    for round in 0..5 {
        let changes = (0..6).map(|n| {
            let (driver, conn) = (Arc::clone(&lesson.driver), if n % 2 == 0 { "b-host" } else { "c-host" });
            let body = json!({ "room": ROOM, "settings": { "custom": { format!("r{round}-{n}"): n } } });
            async move { driver.emit(conn, "room:update", body).await.expect("an answer") }
        });
        let killed = console.say("CLIENT KILL TYPE pubsub");
        let (answers, killed) = tokio::join!(together(changes), killed);
        assert!(killed.starts_with(':'), "{killed}");
        assert!(answers.iter().all(|ack| ack["ok"] == true), "{answers:?}");
    }
    lesson.readiness(200).await;
    lesson.all_is_as_before(HEARTBEAT + SLACK).await;
    // A watcher elsewhere has not missed anything either.
    let version = lesson.stored().versions().await.0;
    let card = lesson.driver.wait_event("c-host", 0, SOON, |event| {
        event.name == "card:update" && event.body["of"] == "settings" && event.body["to"] == version
    });
    assert_eq!(card.await.body["room"], ROOM);
}

#[tokio::test]
async fn i_2_a_wiped_redis_is_written_anew_from_a_living_owner() {
    let mut lesson = Lesson::begin(SHORT).await;
    let stored = lesson.stored();
    let state = json!({ "room": ROOM, "user": "ben", "state": { "stage": true } });
    let ack = lesson.driver.emit("ann", "guest:update", state).await.expect("an answer");
    assert_eq!(ack["ok"], true, "{ack}");
    lesson.set_again("b-host", "page", 9).await;
    let (settings, guests) = (stored.settings().await, stored.guests().await);
    let (before, owner) = (stored.versions().await, stored.owner().await.expect("an owner"));

    assert_eq!(lesson.cluster.redis.command(&["FLUSHALL"]).await.text(), "OK");
    wait::until("the room is restored", SOON, || async {
        stored.versions().await.0 > before.0 && stored.peers().await == 3
    })
    .await;
    let after = stored.versions().await;
    assert!(
        after.0 >= before.0 + 1_000 && after.1 >= before.1 + 1_000,
        "versions leap: {before:?}, {after:?}"
    );
    assert_eq!((stored.settings().await, stored.guests().await), (settings, guests));
    let again = stored.owner().await.expect("an owner");
    assert!(again.instance == owner.instance && again.token > owner.token, "{again:?} after {owner:?}");
    assert_eq!(stored.fence().await, again.token);
    for name in ["a", "b", "c"] {
        let known = || async { incarnations(&lesson.cluster.redis, name).await.len() == 1 };
        wait::until("every instance is known again", SOON, known).await;
    }
    lesson.all_is_as_before(SOON).await;
}

/// Commands as they stand in an append-only file.
fn in_file(commands: &[&[&str]]) -> String {
    let written = commands.iter().map(|parts| {
        let parts = parts.iter().map(|part| format!("${}\r\n{part}\r\n", part.len()));
        format!("*{}\r\n{}", parts.len(), parts.collect::<String>())
    });
    written.collect()
}

#[tokio::test]
async fn i_14_half_of_what_redis_was_killed_over_is_never_done() {
    let mut lesson = Lesson::begin(Duration::from_millis(500)).await;
    let set = lesson.set("ann", "before", 1).await;
    assert_eq!(set["ok"], true, "{set}");
    let redis = &mut lesson.cluster.redis;
    redis.kill().await;
    let folder = fs::read_dir(redis.folder().join("appendonlydir")).expect("a file in parts");
    let mut files: Vec<_> = folder.map(|file| file.expect("a file").path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".incr.aof"));
    let [file] = &files[..] else { panic!("one file is appended to: {files:?}") };
    let half = in_file(&[&["MULTI"], &["SET", "half", "done"], &["SET", "other half", "done"]]);
    let mut file = OpenOptions::new().append(true).open(file).expect("the file");
    file.write_all(&half.as_bytes()[..half.len() - 6]).expect("half of a script's effects");
    redis.restart().await;
    let redis = &lesson.cluster.redis;
    if !redis.command(&["INFO", "server"]).await.text().contains("valkey_version") {
        wait::until("the file is written anew", SOON, || async {
            let info = redis.command(&["INFO", "persistence"]).await.text();
            info.contains("aof_rewrites:1") && info.contains("aof_rewrite_in_progress:0")
        })
        .await;
    }
    let set = insist(
        &lesson.driver,
        "ann",
        "room:update",
        &json!({ "room": ROOM, "settings": { "custom": { "n": 2 } } }),
    )
    .await;
    assert_eq!(set["ok"], true, "{set}");

    let redis = &mut lesson.cluster.redis;
    redis.restart().await;
    assert_eq!(redis.command(&["EXISTS", "half", "other half"]).await.number(), Some(0));
    let stands = lesson.stored().settings().await;
    assert_eq!((&stands["custom"]["before"], &stands["custom"]["n"]), (&json!(1), &json!(2)), "{stands}");
}
