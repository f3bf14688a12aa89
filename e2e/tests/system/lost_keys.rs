//! Any key may be deleted, while everything goes on: what then happens is what its row of the table says, and
//! nothing hangs. The match over [`KeyKind`] has no default, so a new row asks for a case here.

#![expect(clippy::unwrap_used, reason = "helpers of tests: what fails here fails the test")]

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::wait::{self, SOON};
use key_prefix::{KeyKind, Keys, Prefix, RoomKey, Scope};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

use crate::stored::{due_key, named, of_room};

const ROOM: &str = "math";
/// Versions leap by this where Redis lost them.
const LEAP: u64 = 1_000_000;
/// What a request may be refused with while a key is missing. All of them are retryable.
const MEANWHILE: [&str; 2] = ["LEASE_LOST", "STORE_UNAVAILABLE"];

/// A room at `a`, a member there, a host at `b` who watches it, and people who come, change things and go.
struct World {
    cluster: Cluster,
    driver: Arc<Driver>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    load: Vec<JoinHandle<()>>,
}

impl World {
    async fn start() -> Self {
        let cluster = Cluster::start_with(2, |options| {
            options.heartbeat(Duration::from_millis(400)).value("limits", "events_per_second", 10_000).value(
                "limits",
                "joins_per_second",
                10_000,
            )
        })
        .await;
        let driver = Arc::new(Driver::start().await);
        let joined = driver
            .join_with(
                "ann",
                &cluster[0].url(),
                &cluster.token("ann", "host"),
                ROOM,
                json!({ "role": "host" }),
            )
            .await
            .unwrap();
        assert_eq!(joined["ack"]["room"]["owner"]["instance"], "a");
        driver.connect("far", &cluster[1].url(), &cluster.token("far", "host")).await.unwrap();
        let watched = driver.emit("far", "room:watch", json!({ "rooms": [ROOM] })).await.unwrap();
        assert_eq!(watched["ok"], true, "{watched}");
        let mut world =
            Self { cluster, driver, stop: Arc::default(), acknowledged: Arc::default(), load: Vec::new() };
        world.change_settings();
        world.change_guests();
        world.come_and_go();
        wait::until("the load has begun", SOON, || async { world.acknowledged.load(Ordering::SeqCst) > 3 })
            .await;
        world
    }

    /// One change after another through the owner. What was acknowledged must be there for ever.
    fn change_settings(&mut self) {
        let (driver, stop, acknowledged) =
            (self.driver.clone(), self.stop.clone(), self.acknowledged.clone());
        self.load.push(tokio::spawn(async move {
            let mut n = 1_u64;
            while !stop.load(Ordering::SeqCst) {
                let body = json!({ "room": ROOM, "settings": { "custom": { "n": n } } });
                if retryable(&driver.emit("ann", "room:update", body).await.expect("an ack")) {
                    continue;
                }
                acknowledged.store(n, Ordering::SeqCst);
                n += 1;
            }
        }));
    }

    /// The same of a guest, through the instance that does not own the room.
    fn change_guests(&mut self) {
        let (driver, stop) = (self.driver.clone(), self.stop.clone());
        self.load.push(tokio::spawn(async move {
            let mut n = 0_u64;
            while !stop.load(Ordering::SeqCst) {
                let body = json!({ "room": ROOM, "user": "ann", "state": { "custom": { "n": n } } });
                retryable(&driver.emit("far", "guest:update", body).await.expect("an ack"));
                n += 1;
            }
        }));
    }

    fn come_and_go(&mut self) {
        let (driver, stop) = (self.driver.clone(), self.stop.clone());
        let (url, token) = (self.cluster[0].url(), self.cluster.token("visitor", "guest"));
        self.load.push(tokio::spawn(async move {
            driver.connect("visitor", &url, &token).await.expect("connected");
            while !stop.load(Ordering::SeqCst) {
                let ask = async |event| {
                    driver.emit("visitor", event, json!({ "room": ROOM })).await.expect("an ack")
                };
                while retryable(&ask("room:join").await) {}
                // A leave that went unanswered may have been done: then there is nothing to leave any more.
                let mut left = ask("room:leave").await;
                while retryable(&left) {
                    left = ask("room:leave").await;
                    if left["error"]["code"] == "NOT_IN_ROOM" {
                        break;
                    }
                }
            }
        }));
    }

    fn key(&self, segment: &str) -> String {
        format!("test:{segment}:demo\0{ROOM}")
    }

    /// `name/incarnation` of the instance at this place.
    async fn instance(&self, at: usize) -> String {
        let name = self.cluster[at].id();
        let incarnation = self.get(&named(KeyKind::Incarnation, name)).await;
        format!("{name}/{incarnation}")
    }

    async fn get(&self, key: &str) -> String {
        self.cluster.redis.command(&["GET", key]).await.text()
    }

    async fn field(&self, key: &str, field: &str) -> String {
        self.cluster.redis.command(&["HGET", key, field]).await.text()
    }

    async fn delete(&self, key: &str) {
        assert_eq!(self.cluster.redis.command(&["DEL", key]).await.number(), Some(1), "{key:?} was there");
    }

    /// The token of a lease, `0` while nobody has it.
    async fn token(&self, key: &str) -> u64 {
        self.get(key).await.split(' ').nth(1).and_then(|token| token.parse().ok()).unwrap_or(0)
    }

    /// Whether a set, a sorted set or a hash holds this.
    async fn holds(&self, command: &str, key: &str, member: &str) {
        wait::until(&format!("{key:?} holds {member:?}"), SOON, || async {
            let found = self.cluster.redis.command(&[command, key, member]).await.text();
            !found.is_empty() && (command == "ZSCORE" || found != "0")
        })
        .await;
    }

    /// The room as a newcomer sees it.
    async fn snapshot(&self) -> Value {
        let ack = self.driver.emit("far", "room:watch", json!({ "rooms": [ROOM] })).await.expect("an ack");
        ack["rooms"][0].clone()
    }

    /// Nobody was told to move or put out, and everybody is where they were.
    async fn nobody_noticed(&self) {
        for conn in ["ann", "visitor"] {
            for name in ["room:moved", "session:evicted", "disconnect"] {
                let told = self.driver.events(conn, Some(name)).await;
                assert!(told.is_empty(), "{conn} was told {told:?}");
            }
        }
        let told = self.driver.events("ann", Some("room:presence")).await;
        for event in told {
            let left = event.body["left"].as_array().cloned().unwrap_or_default();
            assert!(left.iter().all(|peer| peer["user"] != "ann"), "{event:?}");
        }
        let beat = self.driver.emit("ann", "room:heartbeat", json!({ "room": ROOM })).await.unwrap();
        assert_eq!(beat["ok"], true, "{beat}");
    }

    /// The load ends, and all that was acknowledged is there.
    async fn end(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for each in self.load.drain(..) {
            tokio::time::timeout(SOON, each).await.expect("nothing hangs").expect("the load went well");
        }
        self.nobody_noticed().await;
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        let settings: Value =
            serde_json::from_str(&self.field(&self.key("settings"), "custom").await).unwrap();
        assert_eq!(settings["n"], acknowledged, "the last change that was acknowledged");
        let mut last = 0;
        for event in self.driver.events("ann", Some("room:update")).await {
            assert!(event.body["from"] == last || last == 0, "a gap after {last}: {event:?}");
            last = event.body["to"].as_u64().unwrap();
        }
        for coordinator in &self.cluster.coordinators {
            let log = coordinator.log_lines();
            assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
        }
    }
}

/// Whether the request is to be repeated; anything but success and what a missing key may cause is a failure.
fn retryable(ack: &Value) -> bool {
    if ack["ok"] == true {
        return false;
    }
    let code = ack["error"]["code"].as_str().unwrap_or_default();
    assert!(MEANWHILE.contains(&code) && ack["error"]["retryable"] == true, "{ack}");
    true
}

/// Deletes a key of this kind, and proves what its row says.
async fn lose(world: &World, kind: KeyKind) {
    let (a, b) = (world.instance(0).await, world.instance(1).await);
    let says = kind.row().if_deleted;
    match kind {
        // These rooms are at the embedded media server, and have none.
        KeyKind::Router => {}
        KeyKind::Instances => {
            world.delete("test:instances").await;
            world.holds("ZSCORE", "test:instances", &a).await;
            world.holds("ZSCORE", "test:instances", &b).await;
        }
        KeyKind::Incarnation => {
            let key = &named(KeyKind::Incarnation, "a");
            let before = world.get(key).await;
            world.delete(key).await;
            wait::until("the incarnation is there", SOON, || async { world.get(key).await == before }).await;
        }
        KeyKind::Instance => {
            let key = named(KeyKind::Instance, &a);
            let before = world.cluster.redis.command(&["HGETALL", &key]).await.texts();
            let before: BTreeSet<_> = before.chunks(2).map(<[String]>::to_vec).collect();
            world.delete(&key).await;
            wait::eventually(SOON, || async {
                let now = world.cluster.redis.command(&["HGETALL", &key]).await.texts();
                let now: BTreeSet<_> = now.chunks(2).map(<[String]>::to_vec).collect();
                if now == before { Ok(()) } else { Err(now) }
            })
            .await;
            let left = world.cluster.redis.command(&["PTTL", &key]).await.number();
            assert!(left > Some(0), "{left:?}");
        }
        KeyKind::InstanceRooms => {
            let key = named(KeyKind::InstanceRooms, &a);
            world.delete(&key).await;
            world.holds("SISMEMBER", &key, &format!("demo\0{ROOM}")).await;
        }
        KeyKind::InstanceWatches => {
            let key = named(KeyKind::InstanceWatches, &b);
            world.delete(&key).await;
            world.holds("SISMEMBER", &key, &format!("demo\0{ROOM}")).await;
        }
        // What it was for has been heard, or is looked at in its turn.
        KeyKind::Unheard => {
            let key = named(kind, &a);
            world.holds("ZSCORE", &key, &format!("demo\0{ROOM}")).await;
            world.cluster.redis.command(&["DEL", &key]).await;
        }
        KeyKind::Lease => {
            let before = world.token(&named(KeyKind::Lease, "reaper")).await;
            world.delete(&named(KeyKind::Lease, "reaper")).await;
            wait::until(says, SOON, || async {
                world.token(&named(KeyKind::Lease, "reaper")).await > before
            })
            .await;
        }
        KeyKind::LeaseFence => {
            let before = world.token(&named(KeyKind::Lease, "reaper")).await;
            world.delete(&named(KeyKind::LeaseFence, "reaper")).await;
            // Whoever is elected next still gets a larger token.
            world.delete(&named(KeyKind::Lease, "reaper")).await;
            wait::until(says, SOON, || async {
                world.token(&named(KeyKind::Lease, "reaper")).await > before
            })
            .await;
            wait::until("the fence is there again", SOON, || async {
                world
                    .get(&named(KeyKind::LeaseFence, "reaper"))
                    .await
                    .parse::<u64>()
                    .is_ok_and(|fence| fence > before)
            })
            .await;
        }
        KeyKind::Rooms => {
            world.delete(&named(KeyKind::Rooms, "demo")).await;
            world.holds("ZSCORE", &named(KeyKind::Rooms, "demo"), ROOM).await;
        }
        KeyKind::Owner => {
            let before = world.token(&world.key("owner")).await;
            world.delete(&world.key("owner")).await;
            wait::until(says, SOON, || async { world.token(&world.key("owner")).await > before }).await;
            assert!(world.get(&world.key("owner")).await.starts_with("a/"), "its owner has it again");
        }
        KeyKind::Fence => {
            let before = world.token(&world.key("owner")).await;
            world.delete(&world.key("fence")).await;
            world.delete(&world.key("owner")).await;
            wait::until(says, SOON, || async { world.token(&world.key("owner")).await > before }).await;
            wait::until("the fence is there again", SOON, || async {
                world.get(&world.key("fence")).await.parse::<u64>().is_ok_and(|fence| fence > before)
            })
            .await;
        }
        KeyKind::Room => restored(world, kind, "room").await,
        KeyKind::Settings => restored(world, kind, "settings").await,
        KeyKind::Guests => restored(world, kind, "guests").await,
        KeyKind::Peers => restored(world, kind, "peers").await,
        KeyKind::Presence => restored(world, kind, "presence").await,
        KeyKind::Cell => restored(world, kind, "cell").await,
        // What comes next goes through them again.
        KeyKind::Lane | KeyKind::LaneKept | KeyKind::Checkpoints => {
            let room = RoomKey::from_route(&format!("demo\0{ROOM}")).unwrap();
            let keys = Keys::new(Prefix::parse("test").unwrap());
            let (lane, kept) = (keys.lane(&room), keys.lane_kept(key_prefix::lane_of(room.route())));
            for key in [lane.to_string(), kept.to_string(), keys.checkpoints().to_string()] {
                world.cluster.redis.command(&["DEL", &key]).await;
            }
            wait::until(says, SOON, || async {
                world.cluster.redis.command(&["XLEN", &kept.to_string()]).await.number() > Some(0)
                    && world.cluster.redis.command(&["HLEN", &keys.checkpoints().to_string()]).await.number()
                        > Some(0)
            })
            .await;
        }
        KeyKind::Facts => {
            let facts = Keys::new(Prefix::parse("test").unwrap()).facts().to_string();
            let before = world.cluster.redis.command(&["HGETALL", &facts]).await.texts();
            world.delete(&facts).await;
            let next = CoordinatorOptions::new("c", &world.cluster.redis.url()).start().await;
            let after = world.cluster.redis.command(&["HGETALL", &facts]).await.texts();
            assert_eq!(BTreeSet::from_iter(after), BTreeSet::from_iter(before), "{says}");
            drop(next);
        }
        KeyKind::Due => {
            world.delete(&due_key()).await;
            world.holds("ZSCORE", &due_key(), &format!("demo\0{ROOM}")).await;
        }
        // Nothing of these need be there: what comes next is served without them.
        KeyKind::Inbox
        | KeyKind::Aside
        | KeyKind::Answer
        | KeyKind::Seen
        | KeyKind::Events
        | KeyKind::Sessions => {
            let base = named(kind, "");
            for key in world.cluster.redis.command(&["KEYS", &format!("{base}*")]).await.texts() {
                world.cluster.redis.command(&["DEL", &key]).await;
            }
            let lock = |locked: bool| json!({ "room": ROOM, "seat": 1, "locked": locked, "id": format!("{kind:?}-{locked}") });
            for locked in [true, false] {
                let ack = world.driver.emit("far", "mic:lock", lock(locked)).await.unwrap();
                assert_eq!(ack["ok"], true, "{kind:?}: {ack}");
            }
        }
        KeyKind::Watchers => {
            let key = world.key("watchers");
            let since = world.driver.position("far").await;
            world.delete(&key).await;
            world.holds("SISMEMBER", &key, &b).await;
            // The card goes on, from a snapshot where something was missed.
            let version = world.snapshot().await["version"]["settings"].as_u64().unwrap();
            let is_newer = |event: &e2e::driver::Event| {
                event.name == "card:update"
                    && event.body["of"] == "settings"
                    && event.body["to"].as_u64() > Some(version)
            };
            world.driver.wait_event("far", since, SOON, is_newer).await;
        }
    }
}

/// The living owner restores the room from memory, with versions that leap.
async fn restored(world: &World, kind: KeyKind, segment: &str) {
    assert!(kind.row().if_deleted.contains(if kind == KeyKind::Room {
        "leaping by 1,000,000"
    } else {
        "as the room's record"
    }));
    let version = |snapshot: &Value, of: &str| snapshot["version"][of].as_u64().unwrap_or(0);
    let before = world.snapshot().await;
    let created = world.field(&world.key("room"), "created_at").await;
    world.delete(&world.key(segment)).await;
    let after = wait::eventually(SOON, || async {
        let after = world.snapshot().await;
        let has_leapt =
            ["settings", "cell"].iter().all(|of| version(&after, of) >= version(&before, of) + LEAP);
        if has_leapt { Ok(after) } else { Err(after) }
    })
    .await;
    assert!(after["peers"].as_array().unwrap().iter().any(|peer| peer["user"] == "ann"), "{kind:?}: {after}");
    assert!(after["guests"]["ann"]["custom"]["n"].is_u64(), "{kind:?}: {after}");
    assert!(after["settings"]["custom"]["n"].is_u64(), "{kind:?}: {after}");
    assert_eq!(after["settings"]["vad"], before["settings"]["vad"], "{kind:?}");
    assert_eq!(after["owner"], before["owner"], "{kind:?}: the lease is what it was");
    assert_eq!(world.field(&world.key("room"), "created_at").await, created, "{kind:?}");
    let sizes = |command: &'static str, segment: &'static str, field: &'static str| async move {
        let size = world.cluster.redis.command(&[command, &world.key(segment)]).await.text();
        (size, world.field(&world.key("room"), field).await)
    };
    wait::eventually(SOON, || async {
        let peers = sizes("HLEN", "peers", "peers_n").await;
        let users = sizes("ZCARD", "presence", "users_n").await;
        if peers.0 == peers.1 && users.0 == users.1 && peers.0 != "0" { Ok(()) } else { Err((peers, users)) }
    })
    .await;
}

async fn lose_each(belongs: impl Fn(Scope) -> bool) {
    let world = World::start().await;
    for kind in KeyKind::ALL.into_iter().filter(|kind| belongs(kind.row().scope)) {
        let began = world.acknowledged.load(Ordering::SeqCst);
        lose(&world, kind).await;
        wait::until(&format!("after {kind:?} changes are acknowledged again"), SOON, || async {
            world.acknowledged.load(Ordering::SeqCst) > began + 2
        })
        .await;
        world.nobody_noticed().await;
    }
    world.end().await;
}

#[tokio::test]
async fn every_key_of_a_room_may_be_lost_under_load() {
    lose_each(|scope| matches!(scope, Scope::Room | Scope::App)).await;
}

#[tokio::test]
async fn every_key_of_an_instance_or_of_all_may_be_lost_under_load() {
    lose_each(|scope| !matches!(scope, Scope::Room | Scope::App)).await;
}

#[tokio::test]
async fn a_room_without_an_owner_comes_back_from_the_ledger_whatever_of_it_is_lost() {
    let cluster = Cluster::start_with(2, |options| options.idle(Duration::from_millis(100))).await;
    let driver = Driver::start().await;
    let token = cluster.token("ann", "host");
    driver.join_with("ann", &cluster[0].url(), &token, ROOM, json!({ "role": "host" })).await.unwrap();
    let change = json!({ "room": ROOM, "settings": { "custom": { "kept": true } } });
    assert_eq!(driver.emit("ann", "room:update", change.clone()).await.unwrap()["ok"], true);
    let leave = async || {
        assert_eq!(driver.emit("ann", "room:leave", json!({ "room": ROOM })).await.unwrap()["ok"], true);
        let owner = of_room(KeyKind::Owner, ROOM);
        wait::until("the empty room is released", SOON, || async {
            cluster.redis.command(&["EXISTS", &owner]).await.number() == Some(0)
        })
        .await;
    };
    let enter = async || {
        driver.join_with("ann", &cluster[1].url(), &token, ROOM, json!({ "role": "host" })).await.unwrap()["ack"]["room"].clone()
    };
    let lose = async |segment: &str| {
        cluster.redis.command(&["DEL", &format!("test:{segment}:demo\0{ROOM}")]).await.number()
    };

    leave().await;
    let mut before = enter().await;
    assert_eq!(before["settings"]["custom"], json!({ "kept": true }), "nothing was lost");
    for segment in ["settings", "cell", "room"] {
        leave().await;
        assert_eq!(lose(segment).await, Some(1), "{segment}");
        let room = enter().await;
        assert_eq!(room["settings"], before["settings"], "{segment}");
        assert_eq!((&room["creator"], &room["peerCount"]), (&json!("ann"), &json!(1)), "{segment}: {room}");
        for counter in ["settings", "cell"] {
            let version = |room: &Value| room["version"][counter].as_u64().unwrap();
            assert!(
                version(&room) >= version(&before) + LEAP,
                "{segment}: no version is given twice: {room}"
            );
        }
        assert!(room["owner"]["token"].as_u64() > before["owner"]["token"].as_u64(), "{segment}: {room}");
        before = room;
    }
    // Also for those who only look at it, or change something from elsewhere.
    leave().await;
    assert_eq!(lose("room").await, Some(1));
    driver.connect("far", &cluster[0].url(), &cluster.token("far", "host")).await.unwrap();
    let cards = driver.emit("far", "room:watch", json!({ "rooms": [ROOM] })).await.unwrap();
    assert_eq!(cards["rooms"][0]["settings"]["custom"], json!({ "kept": true }), "{cards}");
    wait::until("the empty room is released", SOON, || async {
        cluster.redis.command(&["EXISTS", &of_room(KeyKind::Owner, ROOM)]).await.number() == Some(0)
    })
    .await;
    assert_eq!(lose("room").await, Some(1));
    assert_eq!(driver.emit("far", "room:update", change).await.unwrap()["ok"], true);
}
