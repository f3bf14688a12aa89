//! A ledger whose disk is full, or that may not be written: rooms go on, it is said clearly, nothing is lost, and once it
//! takes writes again everything is in it, without a restart.

use e2e::cluster::Cluster;
use e2e::coordinator::{Coordinator, CoordinatorOptions};
use e2e::databases::{Database, Kind};
use e2e::driver::Driver;
use e2e::small_disk::SmallDisk;
use e2e::wait::{self, SOON};
use futures_util::future::join_all;
use key_prefix::{KeyKind, LANES, RoomKey, lane_of};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use std::time::Duration;

use crate::clients::code;
use crate::ledger::{archived, done, done_at_last, released};
use crate::stored::{named, of_room};

const LANE_LIMIT: u64 = 40;
/// Updates until the last free page of a table is full.
const MANY: usize = 200;
/// Failures in a row, each of which could be said.
const FAILURES: f64 = 6.0;
/// Lines that an outage is worth, of all instances.
const FEW: usize = 8;

/// What is wrong with the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Full,
    ReadOnly,
    /// One of its tables was moved away.
    Bare,
}

impl Fault {
    async fn database(self, kind: Kind) -> Database {
        match self {
            Self::Full => Database::on_small_disk(kind).await,
            Self::ReadOnly | Self::Bare => Database::alone(kind).await,
        }
    }

    async fn begins(self, kind: Kind, database: &Database) {
        match (self, kind) {
            (Self::Full, _) => database.disk().expect("a small disk").fill(),
            (Self::ReadOnly, Kind::Postgres) => say(database, READ_ONLY).await,
            (Self::ReadOnly, _) => say(database, "SET GLOBAL read_only = 1").await,
            (Self::Bare, _) => say(database, "ALTER TABLE log RENAME TO log_elsewhere").await,
        }
    }

    async fn ends(self, kind: Kind, database: &Database) {
        match (self, kind) {
            (Self::Full, _) => database.disk().expect("a small disk").empty(),
            (Self::ReadOnly, Kind::Postgres) => say(database, WRITABLE).await,
            (Self::ReadOnly, _) => say(database, "SET GLOBAL read_only = 0").await,
            (Self::Bare, _) => say(database, "ALTER TABLE log_elsewhere RENAME TO log").await,
        }
    }

    /// What the log says of it, in the database's words, and what is to be done.
    const fn told(self, kind: Kind) -> (&'static str, &'static str) {
        match (self, kind) {
            (Self::Full, Kind::Sqlite) => ("database or disk is full", ROOM),
            (Self::Full, Kind::Postgres) => ("No space left on device", ROOM),
            (Self::Full, Kind::Mysql) => ("is full", ROOM),
            (Self::ReadOnly, Kind::Sqlite) => ("readonly", WRITES),
            (Self::ReadOnly, _) => ("read-only", WRITES),
            (Self::Bare, _) => ("does not exist", "what the database complains of"),
        }
    }
}

const ROOM: &str = "make room on the disk of the database";
const WRITES: &str = "let the database be written";
const READ_ONLY: &str = "ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()";
const WRITABLE: &str = "ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf()";

async fn say(database: &Database, statements: &'static str) {
    let mut admin = database.connect().await.expect("the server is up");
    for statement in statements.split("; ") {
        admin.execute(sqlx::raw_sql(statement)).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    admin.close().await.expect("a connection that closes");
}

/// The address for a user who may do nothing but use this database: a read-only MariaDB lets others write.
async fn as_somebody(kind: Kind, database: &Database) -> String {
    if kind != Kind::Mysql {
        return database.url.clone();
    }
    say(database, "CREATE USER dais@localhost; GRANT ALL ON `ledger_%`.* TO dais@localhost").await;
    database.url.replace("root@", "dais@")
}

/// The system, and a room with somebody in it.
struct Outage {
    kind: Kind,
    fault: Fault,
    url: String,
    cluster: Cluster,
    database: Database,
    driver: Driver,
    /// Settings versions that were acknowledged.
    acknowledged: Vec<u64>,
    lines: Vec<usize>,
}

fn changed(options: CoordinatorOptions, url: &str, database: &Database) -> CoordinatorOptions {
    let entrance = database.disk().filter(|_| url.starts_with("sqlite")).map(SmallDisk::entrance);
    options
        .through(entrance.unwrap_or_default())
        .text("ledger", "url", url)
        .value("ledger", "lane_limit", LANE_LIMIT)
        .value("ledger", "lane_last_limit", LANE_LIMIT + 20)
        .value("ledger", "timeout_ms", 2_000)
        .value("ledger", "poll_ms", 10)
        .value("limits", "events_per_second", 100_000)
        .value("limits", "events_burst", 100_000)
        .value("app", "seats", 4)
        .value("app", "publish_deadline_ms", 120_000)
        .idle(Duration::from_millis(100))
        .toml("[[app.sinks]]\nname = \"log\"\nkind = \"stream\"\n")
}

impl Outage {
    async fn prepare(kind: Kind, fault: Fault) -> Self {
        let database = fault.database(kind).await;
        let url = as_somebody(kind, &database).await;
        let cluster = Cluster::start_with(2, |options| changed(options, &url, &database)).await;
        let driver = Driver::start().await;
        let host = cluster.token("ann", "host");
        let role = json!({ "role": "host" });
        for room in ["math", "left"] {
            let joined = driver.join_with(room, &cluster[0].url(), &host, room, role.clone()).await;
            joined.unwrap_or_else(|failure| panic!("{room}: {failure:?}"));
        }
        for guest in ["bob", "cat"] {
            let token = cluster.token(guest, "guest");
            driver.join(guest, &cluster[0].url(), &token, "math").await.expect("joined");
        }
        done(&driver, "bob", "mic:up", json!({ "room": "math", "seat": 1 })).await;
        done(&driver, "left", "room:update", json!({ "room": "left", "settings": { "custom": { "n": 7 } } }))
            .await;
        archived(&cluster.redis).await;
        Self { kind, fault, url, cluster, database, driver, acknowledged: Vec::new(), lines: Vec::new() }
    }

    async fn updates(&mut self) -> Value {
        let settings = json!({ "custom": { "text": "x".repeat(1_500), "n": self.acknowledged.len() } });
        let body = json!({ "room": "math", "settings": settings });
        let ack = self.driver.emit("math", "room:update", body).await.expect("an answer");
        if ack["ok"] == true {
            self.acknowledged.push(ack["version"]["settings"].as_u64().expect("a version"));
        }
        ack
    }

    async fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let all = join_all(self.cluster.coordinators.iter().map(Coordinator::metrics)).await;
        all.iter().map(|metrics| metrics.sum(name, labels)).sum()
    }

    /// Whether every instance finds that the ledger takes what it is given.
    async fn is_up(&self) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let all = self.cluster.coordinators.len() as f64;
        self.sum("dais_ledger_up", &[]).await >= all
    }

    /// It begins, and is noticed: what begins something is refused, and what ends something is not.
    async fn begins(&mut self) {
        self.lines = self.cluster.coordinators.iter().map(|each| each.log_lines().len()).collect();
        self.fault.begins(self.kind, &self.database).await;
        let mut refused = Value::Null;
        for _ in 0..MANY {
            for _ in 0..LANE_LIMIT {
                refused = self.updates().await;
                if refused["ok"] != true {
                    break;
                }
            }
            if refused["ok"] != true && !self.is_up().await {
                break;
            }
        }
        assert_eq!(code(&refused), "LEDGER_UNAVAILABLE", "{refused}");
        assert_eq!(refused["error"]["retryable"], true, "{refused}");
        let (cluster, driver) = (&self.cluster, &self.driver);
        let up = driver.emit("cat", "mic:up", json!({ "room": "math", "seat": 2 })).await.expect("an answer");
        assert_eq!(code(&up), "LEDGER_UNAVAILABLE", "{up}");
        let briefly = json!({ "deadlineMs": 500 });
        let dan = cluster.token("dan", "guest");
        let dan = driver.join_with("dan", &cluster[1].url(), &dan, "math", briefly).await;
        assert_eq!(dan.expect_err("nobody comes in").code(), "LEDGER_UNAVAILABLE");
        done(driver, "bob", "mic:down", json!({ "room": "math" })).await;
        done(driver, "cat", "room:leave", json!({ "room": "math" })).await;
        // Rooms whose lanes have room go on.
        let math = lane_of(RoomKey::from_route("demo\0math").expect("a room").route());
        let other = (0..).map(|n| format!("other-{n}"));
        let other = other.into_iter().find(|other| {
            lane_of(RoomKey::from_route(&format!("demo\0{other}")).expect("a room").route()) != math
        });
        let other = other.expect("one of many");
        let eve = cluster.token("eve", "host");
        let joined =
            driver.join_with("eve", &cluster[1].url(), &eve, &other, json!({ "role": "host" })).await;
        joined.unwrap_or_else(|failure| panic!("{other}: {failure:?}"));
        done(driver, "eve", "mic:up", json!({ "room": other, "seat": 1 })).await;
    }

    /// The log says what is wrong, where, and what to do: once, not with every try.
    async fn is_told(&self) {
        let failed = || self.sum("dais_archived_total", &[("what", "ledger_unavailable")]);
        let enough = failed().await + FAILURES;
        wait::until("it is tried again and again", SOON, || async { failed().await >= enough }).await;
        let mut loud: Vec<String> = Vec::new();
        for (each, from) in self.cluster.coordinators.iter().zip(&self.lines) {
            let lines = each.log_lines().into_iter().skip(*from);
            loud.extend(lines.filter(|line| line.contains("\"WARN\"") || line.contains("\"ERROR\"")));
        }
        let (why, remedy) = self.fault.told(self.kind);
        let database = self.url.split('?').next().and_then(|url| url.rsplit('/').next());
        let name = database.expect("its name");
        let is_it = |line: &&String| {
            [why, remedy, name, "nothing can be archived"].iter().all(|it| line.contains(it))
        };
        assert!(loud.iter().any(|line| is_it(&line)), "{loud:#?}");
        assert!(loud.len() <= FEW, "{loud:#?}");
    }

    /// An instance that starts meanwhile works: reading is enough.
    async fn is_met_by_another(&mut self) {
        let change = |options| changed(options, &self.url, &self.database);
        let third = self.cluster.add(change).await.url();
        let fay = self.cluster.token("fay", "host");
        let joined = self.driver.join_with("fay", &third, &fay, "new", json!({ "role": "host" })).await;
        joined.expect("rooms go on");
    }

    /// It ends: everything is in the ledger, once.
    async fn ends(&mut self) {
        self.fault.ends(self.kind, &self.database).await;
        archived(&self.cluster.redis).await;
        wait::until("every instance finds the ledger well", SOON, || self.is_up()).await;
        assert_eq!(self.updates().await["ok"], true);
        let dan = self.cluster.token("dan", "guest");
        self.driver.join("dan", &self.cluster[1].url(), &dan, "math").await.expect("joined");
        archived(&self.cluster.redis).await;

        let mut ledger = self.database.connect().await.expect("it answers again");
        let settings = "SELECT l.version FROM log l JOIN rooms r ON r.room_key = l.room_key \
            WHERE r.room = 'math' AND l.kind = 'settings' ORDER BY l.version";
        let found: Vec<i64> = sqlx::query_scalar(settings).fetch_all(&mut ledger).await.expect("versions");
        let newest = self.acknowledged.last().copied().expect("some were acknowledged");
        let expected: Vec<i64> = (1..=i64::try_from(newest).expect("a version")).collect();
        assert_eq!(found, expected, "each once");
        for table in ["log WHERE superseded <> 0", "aside", "rooms WHERE gap <> 0"] {
            let count = sqlx::query_scalar(AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}")));
            let count: i64 = count.fetch_one(&mut ledger).await.expect("a count");
            assert_eq!(count, 0, "{table}");
        }
        for what in ["superseded", "forked", "aside", "refused", "lost_batches"] {
            let counted = self.sum("dais_archived_total", &[("what", what)]).await;
            assert!(counted <= 0.0, "{what}: {counted}");
        }
    }

    /// Rooms come out of it as they were.
    async fn recovers(&self) {
        let (cluster, driver) = (&self.cluster, &self.driver);
        done(driver, "left", "room:leave", json!({ "room": "left" })).await;
        released(&cluster.redis, "left").await;
        archived(&cluster.redis).await;
        cluster.redis.command(&["FLUSHALL"]).await;
        let host = cluster.token("ann", "host");
        let back = wait::eventually(SOON, || async {
            driver.join_with("back", &cluster[1].url(), &host, "left", json!({ "role": "host" })).await
        })
        .await;
        assert_eq!(back["ack"]["room"]["settings"]["custom"]["n"], 7, "{back}");
        let change = json!({ "room": "math", "settings": { "custom": { "n": -1 } } });
        done_at_last(driver, "math", "room:update", &change).await;
        archived(&cluster.redis).await;
    }
}

async fn is_survived(kind: Kind, fault: Fault) {
    if fault == Fault::Full && !SmallDisk::is_possible() {
        return skipped();
    }
    let mut outage = Outage::prepare(kind, fault).await;
    outage.begins().await;
    outage.is_told().await;
    outage.is_met_by_another().await;
    outage.ends().await;
    outage.recovers().await;
}

#[expect(clippy::print_stderr, reason = "whoever runs the tests is to see it")]
fn skipped() {
    eprintln!("SKIPPED: this user may mount nothing, not even in a namespace of its own");
}

#[tokio::test]
async fn i_14_a_full_disk_under_sqlite_loses_nothing() {
    is_survived(Kind::Sqlite, Fault::Full).await;
}

#[tokio::test]
async fn i_14_a_full_disk_under_postgresql_loses_nothing() {
    is_survived(Kind::Postgres, Fault::Full).await;
}

#[tokio::test]
async fn i_14_a_full_disk_under_mariadb_loses_nothing() {
    is_survived(Kind::Mysql, Fault::Full).await;
}

#[tokio::test]
async fn i_14_a_read_only_postgresql_loses_nothing() {
    is_survived(Kind::Postgres, Fault::ReadOnly).await;
}

#[tokio::test]
async fn i_14_a_table_that_is_gone_sets_no_entry_aside() {
    is_survived(Kind::Postgres, Fault::Bare).await;
}

#[tokio::test]
async fn i_14_a_read_only_mariadb_loses_nothing() {
    is_survived(Kind::Mysql, Fault::ReadOnly).await;
}

/// No file system turns read-only under a file that is open, so SQLite is met so by those who start alone.
#[tokio::test]
async fn i_14_a_read_only_file_has_the_rest_once_it_is_writable() {
    if !SmallDisk::is_possible() {
        return skipped();
    }
    let mut outage = Outage::prepare(Kind::Sqlite, Fault::Full).await;
    // What was committed last is in Redis alone.
    outage.begins().await;
    for each in &mut outage.cluster.coordinators {
        each.kill().await;
    }
    let disk = outage.database.disk().expect("a small disk");
    disk.empty();
    disk.set_read_only(true);
    let next = CoordinatorOptions::new("z", &outage.cluster.redis.url());
    let next = changed(next, &outage.url, &outage.database).start().await;
    let (why, remedy) = Fault::ReadOnly.told(Kind::Sqlite);
    let says = |line: &str| (line.contains(why) && line.contains(remedy)).then_some(());
    next.process().line(remedy, 0, SOON, says).await;
    disk.set_read_only(false);
    archived(&outage.cluster.redis).await;
    let mut ledger = outage.database.connect().await.expect("a copy");
    let newest = "SELECT MAX(l.version) FROM log l JOIN rooms r ON r.room_key = l.room_key \
        WHERE r.room = 'math' AND l.kind = 'settings'";
    let newest: i64 = sqlx::query_scalar(newest).fetch_one(&mut ledger).await.expect("a version");
    assert_eq!(u64::try_from(newest).ok(), outage.acknowledged.last().copied());
    let length = outage.cluster.redis.command(&["EXISTS", &of_room(KeyKind::Room, "math")]).await;
    assert_eq!(length.number(), Some(1));
}

/// What Redis has of the leases of all lanes.
async fn leases(cluster: &Cluster) -> Vec<String> {
    let names: Vec<String> =
        (0..LANES).map(|lane| named(KeyKind::Lease, &key_prefix::lane_lease(lane))).collect();
    let command: Vec<&str> = ["MGET"].into_iter().chain(names.iter().map(String::as_str)).collect();
    cluster.redis.command(&command).await.texts()
}

/// The time by which leases live, in seconds.
async fn seconds(cluster: &Cluster) -> u64 {
    cluster.redis.command(&["TIME"]).await.texts()[0].parse().expect("seconds")
}

#[tokio::test]
async fn i_14_i_18_a_database_that_does_not_answer_costs_nobody_its_lanes() {
    let database = Database::alone(Kind::Postgres).await;
    let change = |options: CoordinatorOptions| {
        options.text("ledger", "url", &database.url).value("ledger", "timeout_ms", 60_000)
    };
    let cluster = Cluster::start_with(2, change).await;
    let driver = Driver::start().await;
    // Somebody in a lane of each holder, so that each waits for the database.
    let held = wait::eventually(SOON, || async {
        let held = leases(&cluster).await;
        let of = |name: &str| held.iter().filter(|lease| lease.starts_with(name)).count();
        if (of("a/"), of("b/")) == (32, 32) { Ok(held) } else { Err(held) }
    })
    .await;
    let host = cluster.token("ann", "host");
    let rooms: Vec<String> = ["a/", "b/"]
        .into_iter()
        .map(|holder| {
            let of_it = |room: &String| {
                let room = RoomKey::from_route(&format!("demo\0{room}")).expect("a room");
                held[usize::from(lane_of(room.route()))].starts_with(holder)
            };
            (0..).map(|n| format!("room-{n}")).find(of_it).expect("one of many")
        })
        .collect();
    for room in &rooms {
        let joined = driver.join_with(room, &cluster[0].url(), &host, room, json!({ "role": "host" })).await;
        joined.unwrap_or_else(|failure| panic!("{room}: {failure:?}"));
    }
    archived(&cluster.redis).await;
    let lost = async || {
        let all = join_all(cluster.coordinators.iter().map(Coordinator::metrics)).await;
        let told =
            |what| all.iter().map(move |it| it.sum("dais_archived_total", &[("what", what)])).sum::<f64>();
        (told("lost_lanes"), told("fenced_lanes"), told("stuck_lanes"))
    };
    let before = lost().await;

    let server = database.server().expect("a server");
    server.pause();
    for room in &rooms {
        let body = json!({ "room": room, "settings": { "custom": { "n": 1 } } });
        done(&driver, room, "room:update", body).await;
    }
    // Five times as long as a lease lives.
    let enough = seconds(&cluster).await + 4;
    wait::until("leases would be over", SOON, || async { seconds(&cluster).await >= enough }).await;
    assert_eq!(leases(&cluster).await, held);
    server.resume();
    archived(&cluster.redis).await;
    assert_eq!(leases(&cluster).await, held);
    assert_eq!(lost().await, before);
    // Who is stopped as a whole loses them all the same.
    cluster[1].pause();
    wait::until("the other one has them all", SOON, || async {
        leases(&cluster).await.iter().all(|lease| lease.starts_with("a/"))
    })
    .await;
    cluster[1].resume();
    wait::until("it is told", SOON, || async { lost().await != before }).await;
}
