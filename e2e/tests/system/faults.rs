//! An owner that dies, and one that is frozen and comes back.

use e2e::cluster::Cluster;
use e2e::coordinator::{Coordinator, CoordinatorOptions};
use e2e::driver::Driver;
use e2e::wait::{self, SOON};
use room_cell::LeaveReason;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

use crate::clients::{Known, assert_refused_for_now, code};
use crate::lane::Past;
use crate::stored::{Owner, Stored, incarnations, redis_now};

const ROOM: &str = "math-101";
/// With a heartbeat of 200 ms.
const SHORT_TTL: i64 = 600;
const DEFAULT_TTL: i64 = 15_000;

/// A room owned by `a`, with a host and guests in it, changed settings and a guest's state.
struct Lesson {
    cluster: Cluster,
    driver: Arc<Driver>,
    members: Vec<String>,
    owner: Owner,
}

impl Lesson {
    async fn begin(instances: usize, change: impl Fn(CoordinatorOptions) -> CoordinatorOptions) -> Self {
        let cluster = Cluster::start_with(instances, change).await;
        let driver = Arc::new(Driver::start().await);
        let members: Vec<String> = (0..4).map(|n| format!("member-{n}")).collect();
        for member in &members {
            let token = cluster.token(member, "host");
            let fields = json!({ "role": if member == "member-0" { "host" } else { "guest" } });
            driver.join_with(member, &cluster[0].url(), &token, ROOM, fields).await.expect("joined");
        }
        let settings = json!({ "noiseReduction": "far_field", "custom": { "page": 7 } });
        let state = json!({ "stage": true, "custom": { "seat": 3 } });
        for (name, body) in [
            ("room:update", json!({ "room": ROOM, "settings": settings })),
            ("guest:update", json!({ "room": ROOM, "user": "member-1", "state": state })),
        ] {
            let ack = driver.emit("member-0", name, body).await.expect("an answer");
            assert_eq!(ack["ok"], true, "{ack}");
        }
        let owner = Stored::room(&cluster.redis, ROOM).owner().await.expect("an owner");
        assert_eq!(owner.name(), "a");
        Self { cluster, driver, members, owner }
    }

    fn stored(&self) -> Stored<'_> {
        Stored::room(&self.cluster.redis, ROOM)
    }

    /// Asks `b` for the room until it takes it over. Nothing that is asked once the dead owner's heartbeat is
    /// older than its time to live may be refused, and nothing before that may be granted.
    async fn taken_over_by_b(&self, ttl: i64) -> Value {
        let redis = &self.cluster.redis;
        let (_, last_beat) = incarnations(redis, "a").await.pop().expect("a heartbeat of the owner");
        let token = self.cluster.token("newcomer", "host");
        self.driver.connect("newcomer", &self.cluster[1].url(), &token).await.expect("connected");
        let within = Duration::from_millis(ttl.unsigned_abs()) + SOON;
        let ack = wait::eventually(within, || async {
            let asked = redis_now(redis).await;
            let join = json!({ "room": ROOM, "role": "host" });
            let ack = self.driver.emit("newcomer", "room:join", join).await.expect("an answer");
            if ack["ok"] == true {
                return Ok(ack);
            }
            assert_eq!(code(&ack), "WRONG_INSTANCE", "{ack}");
            assert!(asked < last_beat + ttl, "refused {} ms after the last heartbeat", asked - last_beat);
            Err(ack)
        })
        .await;
        let owner = self.stored().owner().await.expect("an owner");
        assert_eq!(owner.name(), "b");
        assert!(owner.token > self.owner.token, "{owner:?} after {:?}", self.owner);
        assert!(owner.token >= last_beat + ttl, "taken from an owner that might have lived");
        assert_eq!(ack["room"]["owner"], json!({ "instance": "b", "token": owner.token }));
        ack
    }

    /// The newcomer finds what was there, and those who do not come back leave when their grace is over.
    async fn goes_on_at_b(&self, ack: &Value) {
        let settings = &ack["room"]["settings"];
        assert_eq!(
            (&settings["noiseReduction"], &settings["custom"]),
            (&json!("far_field"), &json!({ "page": 7 }))
        );
        assert_eq!(ack["room"]["guests"], json!({ "member-1": { "stage": true, "custom": { "seat": 3 } } }));
        assert_eq!(ack["room"]["peerCount"], 5, "who was in the room is in grace: {ack}");
        let mut left = Vec::new();
        let gone = self.driver.wait_event("newcomer", 0, SOON, |event| {
            if event.name == "room:presence" {
                let departures = event.body["left"].as_array().into_iter().flatten();
                left.extend(departures.map(|it| (it["user"].clone(), it["reason"].clone())));
            }
            left.len() == self.members.len()
        });
        let gone = gone.await;
        assert_eq!(gone.body["peerCount"], 1);
        for member in &self.members {
            assert!(left.contains(&(json!(member), json!("instance_lost"))), "{member} in {left:?}");
        }
        assert_eq!(self.stored().peers().await, 1);
        let presence = self.cluster.redis.command(&["ZCARD", &self.stored().key("presence")]).await;
        assert_eq!(presence.number(), Some(1));
    }
}

/// Stops it, and waits until it has stopped: a signal takes its time on a busy machine.
pub(crate) async fn freeze(coordinator: &Coordinator) {
    coordinator.pause();
    let stat = format!("/proc/{}/stat", coordinator.process().pid());
    wait::until("it has stopped", SOON, || async {
        std::fs::read_to_string(&stat)
            .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, it)| it.starts_with('T')))
    })
    .await;
}

#[tokio::test]
async fn i_2_i_6_a_killed_owner_is_followed_within_its_time_to_live() {
    let mut lesson = Lesson::begin(3, |options| options.grace(Duration::from_secs(1))).await;
    let cluster = &lesson.cluster;
    // Something else for the dead instance to leave behind: a watch of a room that lives on, and a lonely room.
    let host = cluster.token("host", "host");
    lesson.driver.join("other", &cluster[2].url(), &host, "other").await.expect("joined");
    lesson.driver.join("lonely", &cluster[0].url(), &host, "lonely").await.expect("joined");
    let watch = json!({ "rooms": ["other"] });
    assert_eq!(lesson.driver.emit("member-0", "room:watch", watch).await.expect("an answer")["ok"], true);
    let (dead, other) =
        (lesson.owner.instance.clone(), Stored::room(&cluster.redis, "other").key("watchers"));
    assert_eq!(cluster.redis.command(&["SISMEMBER", &other, &dead]).await.number(), Some(1));

    lesson.cluster[0].kill().await;
    let ack = lesson.taken_over_by_b(SHORT_TTL).await;
    lesson.goes_on_at_b(&ack).await;

    // The reaper's leader clears what is left of the dead one, and nothing else.
    let redis = &lesson.cluster.redis;
    wait::until("the dead instance is cleared", SOON, || async {
        let keys =
            ["instance", "instance-rooms", "instance-watches"].map(|kind| format!("test:{kind}:{dead}"));
        let [record, rooms, watches] = &keys;
        let left = redis.command(&["EXISTS", record, rooms, watches]).await.number();
        let watched = redis.command(&["SISMEMBER", &other, &dead]).await.number();
        (left, watched, incarnations(redis, "a").await.len()) == (Some(0), Some(0), 0)
    })
    .await;
    assert_eq!(Stored::room(redis, "other").owner().await.expect("an owner").name(), "c");
    assert_eq!(lesson.stored().owner().await.expect("an owner").name(), "b");

    // A room that nobody asks for ends its dead all the same, at whoever takes it for that.
    let past = Past::wait(redis, "lonely", SOON, |past| !past.left().is_empty()).await;
    assert_eq!(past.left(), [("host".to_owned(), LeaveReason::InstanceLost)]);
    assert_eq!(Stored::room(redis, "lonely").peers().await, 0);
}

/// The one test that takes as long as the defaults do.
#[tokio::test]
async fn i_2_i_6_a_killed_owner_is_followed_within_the_default_time_to_live() {
    let default = |options: CoordinatorOptions| {
        options.without("lease", "heartbeat_ms").grace(Duration::from_millis(300))
    };
    let mut lesson = Lesson::begin(2, default).await;
    lesson.cluster[0].kill().await;
    let ack = lesson.taken_over_by_b(DEFAULT_TTL).await;
    lesson.goes_on_at_b(&ack).await;
}

#[tokio::test]
async fn i_1_a_frozen_owner_that_comes_back_commits_nothing_and_tells_its_people_to_move() {
    let lesson = Lesson::begin(2, |options| options).await;
    let (cluster, driver, stored) = (&lesson.cluster, &lesson.driver, lesson.stored());
    let late: Vec<String> = (0..8).map(|n| format!("late-{n}")).collect();
    for conn in &late {
        driver.connect(conn, &cluster[0].url(), &cluster.token(conn, "guest")).await.expect("connected");
    }
    freeze(&cluster[0]).await;
    // What waits in the frozen process's sockets are joins and leaves that only an owner can commit.
    let frozen = redis_now(&cluster.redis).await;
    let asked: Vec<_> = late
        .iter()
        .map(|conn| (conn.clone(), "room:join"))
        .chain([("member-3".to_owned(), "room:leave")])
        .map(|(conn, name)| {
            let driver = Arc::clone(driver);
            tokio::spawn(async move {
                let body =
                    json!({ "conn": conn, "name": name, "body": { "room": ROOM }, "timeoutMs": 60_000 });
                driver.ask("emit", body).await.expect("an answer")["ack"].take()
            })
        })
        .collect();
    let ack = lesson.taken_over_by_b(SHORT_TTL).await;
    let settings = json!({ "room": ROOM, "settings": { "custom": { "page": 8 } } });
    let update = driver.emit("newcomer", "room:update", settings).await.expect("an answer");
    assert_eq!(update["ok"], true, "{update}");
    wait::until("five times its time to live are over", SOON, || async {
        redis_now(&cluster.redis).await > frozen + 5 * SHORT_TTL
    })
    .await;
    let owner = stored.owner().await.expect("an owner");
    let before = (stored.versions().await, stored.fence().await, stored.peers().await);
    assert_eq!(before.2, 5);

    cluster[0].resume();
    for member in &lesson.members {
        let moved = driver.wait_named(member, "room:moved", SOON).await.body;
        assert_eq!((&moved["room"], &moved["reason"]), (&json!(ROOM), &json!("lease_lost")));
        assert_eq!(
            (&moved["redirectInstance"], &moved["redirectUrl"]),
            (&json!("b"), &json!(cluster[1].url()))
        );
        assert!(moved["afterMs"].is_u64(), "{moved}");
    }
    for answer in asked {
        let ack = answer.await.expect("asked");
        let codes = ["WRONG_INSTANCE", "LEASE_LOST", "STORE_UNAVAILABLE", "NOT_IN_ROOM"];
        match code(&ack) {
            "NOT_IN_ROOM" => {}
            _ => assert_refused_for_now(&ack, &codes),
        }
    }
    cluster[0].ready().await;
    let metrics = cluster[0].metrics().await;
    assert!(metrics.sum("dais_lease_losses_total", &[]) >= 1.0, "the lease was lost");
    assert_eq!(metrics.sum("dais_rooms", &[]), 0.0, "it has no room");
    assert_eq!(stored.owner().await.as_ref(), Some(&owner));
    assert_eq!((stored.versions().await, stored.fence().await, stored.peers().await), before);
    for conn in lesson.members.iter().map(String::as_str) {
        let heard = driver.events(conn, Some("room:presence")).await;
        let last = before.0.1;
        assert!(heard.iter().all(|event| event.body["to"].as_i64() <= Some(last)), "{heard:?}");
    }

    // Its people follow, and nobody is missing.
    let mut known = Known::joined(&json!({ "ack": ack }));
    for member in &lesson.members {
        let token = cluster.token(member, "guest");
        let answer = driver.join(member, &cluster[0].url(), &token, ROOM).await.expect("joined");
        assert_eq!((&answer["redirects"], &answer["url"]), (&json!(1), &json!(cluster[1].url())));
        assert_eq!(answer["ack"]["room"]["settings"]["custom"], json!({ "page": 8 }));
    }
    let (version, _) = stored.versions().await;
    known.follow(driver, "newcomer", version, SOON).await;
    assert_eq!(known.settings, stored.settings().await);
}
