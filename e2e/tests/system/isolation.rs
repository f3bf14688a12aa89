//! Prefixes that share a Redis share nothing else (I-16), and every key in it is one of the table, with its type
//! and its end (I-17).

#![expect(clippy::unwrap_used, reason = "helpers of tests: what fails here fails the test")]

use e2e::callback::sign;
use e2e::cluster::Cluster;
use e2e::coordinator::{Coordinator, CoordinatorOptions};
use e2e::driver::Driver;
use e2e::http;
use e2e::servers::{Flavor, RedisServer};
use e2e::token::{APP, Token};
use e2e::wait::{self, SOON};
use key_prefix::{ChannelKind, KeyKind, Keys, Prefix};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::stored::{of_room, redis_now};

const ROOM: &str = "math";
const SECRET: &str = "a secret of the media server, long enough";

/// Every message that Redis passes on, by channel.
struct Witness {
    messages: mpsc::UnboundedReceiver<(String, String)>,
}

impl Witness {
    async fn of(redis: &RedisServer) -> Self {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", redis.port())).await.unwrap());
        stream.write_all(b"PSUBSCRIBE *\r\n").await.unwrap();
        let (to, messages) = mpsc::unbounded_channel();
        let mut lines = stream.lines();
        // The answer to the subscription: an array of three, its items with their lengths, and a number.
        for _ in 0..6 {
            lines.next_line().await.unwrap();
        }
        tokio::spawn(async move {
            // `*4`, then four strings, each behind its length: pmessage, pattern, channel, payload.
            let mut nine = Vec::new();
            while let Ok(Some(line)) = lines.next_line().await {
                nine.push(line);
                if nine.len() == 9 {
                    _ = to.send((nine[6].clone(), nine[8].clone()));
                    nine.clear();
                }
            }
        });
        Self { messages }
    }

    fn so_far(&mut self) -> Vec<(String, String)> {
        std::iter::from_fn(|| self.messages.try_recv().ok()).collect()
    }
}

fn keys(prefix: &str) -> Keys {
    Keys::new(Prefix::parse(prefix).unwrap())
}

async fn every_key(redis: &RedisServer) -> Vec<String> {
    redis.command(&["KEYS", "*"]).await.texts()
}

/// Everything that a key holds, as text.
async fn content(redis: &RedisServer, key: &str) -> String {
    let value = match redis.command(&["TYPE", key]).await.text().as_str() {
        "string" => redis.command(&["GET", key]).await,
        "hash" => redis.command(&["HGETALL", key]).await,
        "set" => redis.command(&["SMEMBERS", key]).await,
        "zset" => redis.command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]).await,
        "stream" => {
            let entries = redis.command(&["XRANGE", key, "-", "+"]).await;
            return entries.items().iter().map(|entry| entry.items()[1].texts().join(" ")).collect();
        }
        other => panic!("{key:?} is a {other}"),
    };
    format!("{} {}", value.text(), value.texts().join(" "))
}

async fn ok(driver: &Driver, conn: &str, event: &str, body: Value) -> Value {
    let ack = driver.emit(conn, event, body).await.unwrap_or_else(|failure| panic!("{event}: {failure:?}"));
    assert_eq!(ack["ok"], true, "{event}: {ack}");
    ack
}

/// Two instances, `a` and `b`, of one prefix.
struct Stage {
    tag: &'static str,
    driver: Driver,
    instances: [Coordinator; 2],
}

impl Stage {
    async fn start(tag: &'static str, prefix: &str, redis: &RedisServer) -> Self {
        let options = |id: &str| {
            let options = CoordinatorOptions::new(id, &redis.url()).key_prefix(prefix);
            let options = options.toml("[[app.sinks]]\nname = \"log\"\nkind = \"stream\"\n");
            options.grace(Duration::from_millis(300)).text("app", "callbacks.generic.secret", SECRET)
        };
        let (a, b) = tokio::join!(options("a").start(), options("b").start());
        Self { tag, driver: Driver::start().await, instances: [a, b] }
    }

    fn user(&self, name: &str) -> String {
        format!("{}-{name}", self.tag)
    }

    async fn join(&self, name: &str, at: usize, room: &str) -> Value {
        let user = self.user(name);
        let token = Token::new(&user, "host").sign();
        let url = self.instances[at].url();
        let role = json!({ "role": "host" });
        self.driver.join_with(&user, &url, &token, room, role).await.expect("joined")
    }

    /// A scenario with everything in it: joins, redirects, watching, settings, guests, leaving, a room that
    /// survives its owner, a monitor.
    async fn play(&mut self) {
        let (driver, tag) = (&self.driver, self.tag);
        let (ann, bob, carl, dan) = (self.user("ann"), self.user("bob"), self.user("carl"), self.user("dan"));
        self.join("ann", 0, ROOM).await;
        let joined = self.join("bob", 1, ROOM).await;
        assert_eq!(joined["redirects"], 1, "{joined}");
        self.join("carl", 1, "second").await;
        let watcher = self.user("watcher");
        let token = Token::new(&watcher, "monitor").sign();
        driver.connect(&watcher, &self.instances[0].url(), &token).await.unwrap();
        let cards = ok(driver, &watcher, "room:watch", json!({ "rooms": [ROOM, "second"] })).await;
        assert!(cards["rooms"].as_array().unwrap().iter().all(|card| card["error"].is_null()), "{cards}");
        ok(driver, &watcher, "room:join", json!({ "room": "second" })).await;
        let change = json!({ "room": ROOM, "settings": { "custom": { "of": tag } } });
        ok(driver, &ann, "room:update", change).await;
        let change = json!({ "room": ROOM, "settings": { "realtimeModelVersion": tag } });
        ok(driver, &carl, "room:update", change).await;
        ok(driver, &carl, "guest:update", json!({ "room": ROOM, "user": bob, "state": { "stage": true } }))
            .await;
        driver.wait_event(&ann, 0, SOON, |event| event.body["guests"][&bob]["stage"] == true).await;
        ok(driver, &bob, "room:leave", json!({ "room": ROOM })).await;
        driver.wait_event(&ann, 0, SOON, |event| event.body["left"][0]["user"] == bob).await;

        // The owner of the second room dies; the room goes on at the other instance, and the dead is reaped.
        self.instances[1].kill().await;
        let joined = self.join("dan", 0, "second").await;
        let room = &joined["ack"]["room"];
        assert_eq!(room["owner"]["instance"], "a", "{room}");
        self.driver.wait_event(&dan, 0, SOON, |event| event.body["left"][0]["user"] == carl).await;
        wait::eventually(SOON, || async {
            let reaped =
                self.instances[0].metrics().await.sum("dais_reaper_total", &[("action", "reaped_instances")]);
            if reaped >= 1.0 { Ok(()) } else { Err("the dead instance is not reaped") }
        })
        .await;
        let snapshot = self.join("eve", 0, ROOM).await["ack"]["room"].clone();
        let users: Vec<_> =
            snapshot["peers"].as_array().unwrap().iter().map(|peer| peer["user"].clone()).collect();
        assert_eq!(users, [json!(ann), json!(self.user("eve"))], "{snapshot}");
        assert_eq!(snapshot["settings"]["custom"], json!({ "of": tag }), "{snapshot}");
        assert_eq!(snapshot["settings"]["realtimeModelVersion"], tag, "{snapshot}");
    }

    /// An answer that is kept, a callback, and an entry that is set aside.
    async fn leave_things_in_the_inbox(&self, redis: &RedisServer) {
        let lock = json!({ "room": ROOM, "seat": 1, "locked": true, "id": "kept" });
        ok(&self.driver, &self.user("ann"), "mic:lock", lock).await;
        let now = redis_now(redis).await;
        let event = json!({ "id": "e1", "type": "room_exited", "room": ROOM, "user": "nobody", "at": now });
        let (body, time) = (event.to_string(), (now / 1_000).to_string());
        let (url, signature) =
            (format!("{}/rtc/generic/{APP}", self.instances[0].url()), sign(SECRET, &time, &body));
        let headers = [
            ("content-type", "application/json"),
            ("dais-timestamp", &*time),
            ("dais-signature", &*signature),
        ];
        let answer = http::request("POST", &url, &headers, &body).await.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        redis.command(&["XADD", &of_room(KeyKind::Inbox, ROOM), "*", "payload", "no command"]).await;
        let aside = of_room(KeyKind::Aside, ROOM);
        wait::until("it is set aside", SOON, || async {
            redis.command(&["XLEN", &aside]).await.number() == Some(1)
        })
        .await;
    }
}

#[tokio::test]
async fn i_16_two_prefixes_on_one_redis_see_nothing_of_each_other() {
    let redis = RedisServer::start(Flavor::Redis).await;
    let mut witness = Witness::of(&redis).await;
    let (mut one, mut two) =
        tokio::join!(Stage::start("one", "dev/a", &redis), Stage::start("two", "dev/a-b", &redis));
    tokio::join!(one.play(), two.play());

    let (of_one, of_two) = (keys("dev/a"), keys("dev/a-b"));
    let mut found = [0, 0];
    for key in every_key(&redis).await {
        let kinds = (of_one.kind_of(key.as_bytes()), of_two.kind_of(key.as_bytes()));
        let other = match kinds {
            (Some(_), None) => "two-",
            (None, Some(_)) => "one-",
            _ => panic!("{key:?} is of {kinds:?}"),
        };
        found[usize::from(kinds.1.is_some())] += 1;
        let content = content(&redis, &key).await;
        assert!(!content.contains(other), "{key:?} holds {content}");
    }
    assert!(found.iter().all(|count| *count >= 10), "{found:?}");

    let messages = witness.so_far();
    let canaries = [&of_one, &of_two].map(|keys| keys.channel_base(ChannelKind::Canary).to_string());
    let mut heard = [0, 0];
    for (channel, payload) in &messages {
        let (at, other) = match channel.split_once(':').expect("a prefix").0 {
            prefix if prefix == of_one.prefix().as_str() => (0, "two"),
            prefix if prefix == of_two.prefix().as_str() => (1, "one"),
            _ => panic!("{channel:?} is of nobody: {payload}"),
        };
        heard[at] += usize::from(!channel.starts_with(&canaries[at]));
        assert!(!payload.contains(other), "{channel:?} carries {payload}");
    }
    assert!(heard.iter().all(|count| *count >= 3), "{heard:?} of {messages:?}");
}

/// The time to live in ms, `None` if it has none.
async fn ttl(redis: &RedisServer, key: &str) -> Option<i64> {
    redis.command(&["PTTL", key]).await.number().filter(|left| *left >= 0)
}

const DAY: i64 = 24 * 3_600_000;

/// The end that the key's row promises, where it is one that Redis itself knows of.
async fn ends_as_its_row_says(redis: &RedisServer, kind: KeyKind, key: &str, is_owned: bool) {
    let left = ttl(redis, key).await;
    let within = |most: i64| left.is_some_and(|left| left <= most);
    let fits = match kind {
        KeyKind::Incarnation | KeyKind::Fence | KeyKind::LeaseFence => within(7 * DAY),
        KeyKind::Instance | KeyKind::Unheard => within(DAY / 24),
        // Three heartbeats of 200 ms.
        KeyKind::Lease | KeyKind::Owner => within(600),
        KeyKind::Answer => within(DAY),
        KeyKind::Aside | KeyKind::Events => within(7 * DAY),
        KeyKind::Seen | KeyKind::LaneKept => within(DAY / 144),
        KeyKind::Sessions => within(DAY / 24),
        KeyKind::Router => within(30 * DAY),
        KeyKind::Room
        | KeyKind::Settings
        | KeyKind::Guests
        | KeyKind::Peers
        | KeyKind::Presence
        | KeyKind::Cell
        | KeyKind::Inbox => {
            if is_owned {
                left.is_none()
            } else {
                within(30 * DAY)
            }
        }
        KeyKind::Instances
        | KeyKind::InstanceRooms
        | KeyKind::InstanceWatches
        | KeyKind::Rooms
        | KeyKind::Watchers
        | KeyKind::Lane
        | KeyKind::Checkpoints
        | KeyKind::Facts
        | KeyKind::Due => left.is_none(),
    };
    // Keys that end by themselves may have done so since they were listed.
    let is_gone = redis.command(&["EXISTS", key]).await.number() == Some(0);
    assert!(fits || is_gone, "{key:?} has {left:?} ms left; its row says: {}", kind.row().ends);
}

#[tokio::test]
async fn i_17_every_key_is_of_the_table_and_has_its_end() {
    let redis = RedisServer::start(Flavor::Redis).await;
    let mut stage = Stage::start("one", "test", &redis).await;
    stage.play().await;
    stage.leave_things_in_the_inbox(&redis).await;
    let keys = keys("test");
    let mut seen = Vec::new();
    for key in every_key(&redis).await {
        let Some(kind) = keys.kind_of(key.as_bytes()) else { panic!("{key:?} is not in the table") };
        let found = redis.command(&["TYPE", &key]).await.text();
        assert!(found == kind.row().redis_type.as_str() || found == "none", "{key:?} is a {found}");
        ends_as_its_row_says(&redis, kind, &key, true).await;
        seen.push(kind);
    }
    // Only rooms at an external media server have a router with a name: `janus_rooms` looks at that.
    for kind in KeyKind::ALL.into_iter().filter(|kind| *kind != KeyKind::Router) {
        assert!(seen.contains(&kind), "no {kind:?} among {seen:?}: the scenario leaves it out");
    }
    // What the dead instance had is gone with it.
    let dead: Vec<_> = every_key(&redis).await.into_iter().filter(|key| key.contains(":b/")).collect();
    assert!(dead.is_empty(), "{dead:?}");

    // Rooms that nobody is in, at an instance that has been told to end, while another lives on.
    let last = CoordinatorOptions::new("c", &redis.url());
    let last = last.grace(Duration::from_millis(300)).idle(Duration::from_millis(100)).start().await;
    assert!(stage.instances[0].term(SOON).await.success());
    let rooms = ["math", "second"].map(|room| of_room(KeyKind::Room, room));
    for room in &rooms {
        assert_eq!(redis.command(&["EXISTS", room]).await.number(), Some(1), "{room:?} is kept");
    }
    // It ends those who were in them, and gives the rooms back.
    wait::until("nobody is in them, and nobody has them", SOON, || async {
        let left = ["math", "second"]
            .map(|room| [KeyKind::Owner, KeyKind::Presence, KeyKind::Peers].map(|kind| of_room(kind, room)));
        let left: Vec<String> = ["EXISTS".to_owned()].into_iter().chain(left.into_iter().flatten()).collect();
        redis.command(&left).await.number() == Some(0)
    })
    .await;
    for key in every_key(&redis).await {
        let Some(kind) = keys.kind_of(key.as_bytes()) else { panic!("{key:?} is not in the table") };
        assert_ne!(kind, KeyKind::Owner, "{key:?}: every lease was given back");
        ends_as_its_row_says(&redis, kind, &key, false).await;
    }
    let instances = redis.command(&["ZRANGE", "test:instances", "0", "-1"]).await.texts();
    assert!(instances.iter().all(|instance| instance.starts_with("c/")), "{instances:?}");
    // Nothing names the instance that has ended but the note that it has.
    wait::eventually(SOON, || async {
        let mut left = Vec::new();
        for key in every_key(&redis).await {
            let kind = keys.kind_of(key.as_bytes());
            let is_its_own = key.contains(":a/") && kind != Some(KeyKind::Instance);
            if is_its_own || (kind == Some(KeyKind::Watchers) && content(&redis, &key).await.contains("a/")) {
                left.push(key);
            }
        }
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    drop(last);
}

#[tokio::test]
async fn i_16_a_cluster_without_a_prefix_is_refused_outside_dev() {
    let cluster = Cluster::start(1).await;
    for prefix in ["", "Prod", "prod/", "a:b", "*"] {
        let (process, _folder) =
            CoordinatorOptions::new("z", &cluster.redis.url()).key_prefix(prefix).spawn();
        assert_eq!(process.exit(SOON).await.code(), Some(1), "{prefix:?}");
        process.line("the key's name", 0, SOON, |line| line.contains("key_prefix").then_some(())).await;
    }
}
