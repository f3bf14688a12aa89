//! Answers of Redis that are lost, and a Redis that forgets, under an owner that lives on.

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::proxy::{Hold, Proxy};
use e2e::resp::Value as Reply;
use e2e::servers::{Flavor, RedisServer};
use e2e::wait::{self, SOON};
use key_prefix::KeyKind;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

use crate::clients::{assert_refused_for_now, insist};
use crate::lane::Past;
use crate::stored::{Stored, named, of_room};

const ROOM: &str = "voices";
const FOR_NOW: [&str; 2] = ["STORE_UNAVAILABLE", "LEASE_LOST"];
/// Versions leap by this where Redis lost them.
const LEAP: u64 = 1_000_000;
/// Everything that a room has in Redis beside its lease, its lane and its inbox.
const OF_A_ROOM: [KeyKind; 6] =
    [KeyKind::Room, KeyKind::Cell, KeyKind::Peers, KeyKind::Presence, KeyKind::Settings, KeyKind::Guests];

/// A room at `a`, whose way to Redis can be held and cut. A host and a guest are in it, and a host is at `b`.
struct Stage {
    cluster: Cluster,
    proxy: Proxy,
    driver: Arc<Driver>,
}

impl Stage {
    async fn set() -> Self {
        let redis = RedisServer::start(Flavor::Redis).await;
        let proxy = Proxy::start(redis.port()).await;
        let url = proxy.url();
        // A lease that outlives what is done to the connection.
        let change = |options: CoordinatorOptions| {
            let options = options.heartbeat(Duration::from_millis(1_000)).value("app", "heartbeat_ms", 1_000);
            if options.id() == "a" { options.text("redis", "url", &url) } else { options }
        };
        let cluster = Cluster::start_on(redis, 3, change).await;
        let driver = Arc::new(Driver::start().await);
        let stage = Self { cluster, proxy, driver };
        for (user, role) in [("ann", "host"), ("ben", "guest")] {
            let fields = json!({ "role": role });
            let token = stage.cluster.token(user, role);
            stage
                .driver
                .join_with(user, &stage.cluster[0].url(), &token, ROOM, fields)
                .await
                .expect("joined");
        }
        stage.connect("far", 1).await;
        stage
    }

    async fn connect(&self, user: &str, at: usize) {
        let token = self.cluster.token(user, "host");
        self.driver.connect(user, &self.cluster[at].url(), &token).await.expect("connected");
    }

    fn ask(&self, conn: &str, name: &str, body: &Value) -> JoinHandle<Value> {
        let ask = json!({ "conn": conn, "name": name, "body": body, "timeoutMs": 60_000 });
        let driver = Arc::clone(&self.driver);
        tokio::spawn(async move { driver.ask("emit", ask).await.expect("an answer")["ack"].take() })
    }

    /// Asks again and again, as long as it is refused for now.
    async fn repeat(&self, conn: &str, name: &str, body: &Value) -> Value {
        insist(&self.driver, conn, name, body).await
    }

    async fn past(&self) -> Past {
        Past::read(&self.cluster.redis, ROOM).await
    }

    /// Asks, and loses the answer that Redis gives to the owner, when Redis has executed what has `word` in it.
    async fn lose_the_answer(
        &self,
        conn: &str,
        name: &str,
        body: &Value,
        word: &str,
        done: impl Fn(&Past) -> bool,
    ) -> Value {
        let mut sprung = self.proxy.trap(Hold::Answers, word);
        let mut asked = self.ask(conn, name, body);
        tokio::select! {
            () = sprung.wait(SOON) => {}
            early = &mut asked => panic!("{name}: answered before it was held: {early:?}"),
        }
        Past::wait(&self.cluster.redis, ROOM, SOON, done).await;
        self.proxy.cut();
        asked.await.expect("asked")
    }

    /// Who is in the room has been told every version from the first to the last, once.
    async fn told_without_a_gap(&self, conn: &str, from: u64, to: u64) {
        let told =
            |event: &e2e::driver::Event| event.body["of"] == "cell" && event.body["to"].as_u64() >= Some(to);
        self.driver.wait_event(conn, 0, SOON, told).await;
        let mut at = from;
        for event in self.driver.events(conn, None).await {
            let Some(next) = event.body["to"].as_u64().filter(|_| event.body["of"] == "cell") else {
                continue;
            };
            if next <= from {
                continue;
            }
            // Several names may carry the same body.
            if next != at {
                assert_eq!(event.body["from"], at, "{conn}: {event:?}");
                at = next;
            }
        }
        assert_eq!(at, to, "{conn}");
    }
}

#[tokio::test]
async fn i_3_i_4_i_13_i_14_a_command_whose_answer_is_lost_is_executed_once() {
    let stage = Stage::set().await;
    let before = stage.past().await.cell.version;
    let lock = json!({ "room": ROOM, "seat": 1, "locked": true, "id": "lost-lock" });
    let is_there = |past: &Past| !past.of_id("lost-lock").is_empty();
    let ack = stage.lose_the_answer("ann", "mic:lock", &lock, "lost-lock", is_there).await;
    assert_refused_for_now(&ack, &FOR_NOW);
    // Memory follows, whether or not it is asked again; what comes next builds upon it.
    let next = json!({ "room": ROOM, "seat": 2, "locked": true, "id": "next" });
    let next = stage.repeat("ann", "mic:lock", &next).await;
    assert_eq!(next["version"]["cell"], before + 2, "{next}");
    for (conn, at) in [("ann", 0), ("ann-at-c", 2)] {
        if at > 0 {
            let token = stage.cluster.token("ann", "host");
            stage.driver.connect(conn, &stage.cluster[at].url(), &token).await.expect("connected");
        }
        let again = stage.repeat(conn, "mic:lock", &lock).await;
        assert_eq!(again, json!({ "ok": true, "version": { "cell": before + 1 } }), "{conn}");
    }
    let past = stage.past().await;
    assert_eq!(past.assert_sound(), 0);
    assert_eq!((past.of_id("lost-lock").len(), past.cell.version), (1, before + 2));
    for member in ["ann", "ben"] {
        stage.told_without_a_gap(member, before, before + 2).await;
    }
}

#[tokio::test]
async fn i_13_i_25_a_join_and_a_seat_whose_answers_are_lost_are_had_once() {
    let stage = Stage::set().await;
    stage.connect("cem", 0).await;
    let join = json!({ "room": ROOM });
    let is_in = |past: &Past| past.cell.users.contains_key("cem");
    let ack = stage.lose_the_answer("cem", "room:join", &join, "\"user\":\"cem\"", is_in).await;
    assert_refused_for_now(&ack, &FOR_NOW);
    let joined = stage.repeat("cem", "room:join", &join).await;
    assert_eq!(joined["room"]["peerCount"], 3, "{joined}");
    let up = json!({ "room": ROOM, "seat": 3, "id": "lost-up" });
    let is_up = |past: &Past| !past.of_id("lost-up").is_empty();
    let ack = stage.lose_the_answer("cem", "mic:up", &up, "lost-up", is_up).await;
    assert_refused_for_now(&ack, &FOR_NOW);
    let seat = stage.repeat("cem", "mic:up", &up).await["seat"].clone();
    let past = stage.past().await;
    past.assert_sound();
    assert_eq!(past.of_id("lost-up").len(), 1);
    let sitter = past.cell.seats[&3].sitter.as_ref().expect("a sitter");
    assert_eq!((&seat["seat"], &seat["micSession"]), (&json!(3), &json!(sitter.session.as_str())));
    let confirm = json!({ "room": ROOM, "micSession": sitter.session.as_str(), "id": "confirm" });
    let ack = stage.repeat("cem", "mic:confirm", &confirm).await;
    assert_eq!(ack["ok"], true, "the session that it was told is the one that it has: {ack}");
}

#[tokio::test]
async fn i_13_a_room_whose_making_went_unanswered_is_made_once() {
    let stage = Stage::set().await;
    stage.connect("dan", 0).await;
    let mut sprung = stage.proxy.trap(Hold::Answers, "another");
    let asked = stage.ask("dan", "room:join", &json!({ "room": "another", "role": "host" }));
    sprung.wait(SOON).await;
    wait::until("it is made", SOON, || async {
        Stored::room(&stage.cluster.redis, "another").owner().await.is_some()
    })
    .await;
    stage.proxy.cut();
    assert_refused_for_now(&asked.await.expect("asked"), &FOR_NOW);
    let joined = stage.repeat("dan", "room:join", &json!({ "room": "another", "role": "host" })).await;
    assert_eq!(
        (&joined["room"]["peerCount"], &joined["room"]["creator"]),
        (&json!(1), &json!("dan")),
        "{joined}"
    );
    Past::read(&stage.cluster.redis, "another").await.assert_sound();
}

/// A copy of everything that Redis has of the room, to be put back later.
async fn copy(redis: &RedisServer) -> Vec<(String, Reply)> {
    let mut copies = Vec::new();
    for kind in OF_A_ROOM {
        let key = of_room(kind, ROOM);
        copies.push((key.clone(), redis.command(&["DUMP", &key]).await));
    }
    copies
}

/// All at once, as a lagging replica has it. Answers that were kept since are not there either.
async fn fall_back(redis: &RedisServer, copies: Vec<(String, Reply)>) {
    const BACK: &str = "for i, key in ipairs(KEYS) do redis.call('DEL', key) if ARGV[i] ~= '' then \
                        redis.call('RESTORE', key, 0, ARGV[i]) end end \
                        for _, key in ipairs(redis.call('KEYS', ARGV[#ARGV])) do redis.call('DEL', key) end";
    let mut command: Vec<Vec<u8>> = vec![b"EVAL".to_vec(), BACK.into(), copies.len().to_string().into()];
    command.extend(copies.iter().map(|(key, _)| key.clone().into_bytes()));
    command.extend(copies.into_iter().map(|(_, dump)| match dump {
        Reply::Bytes(dump) => dump,
        _ => Vec::new(),
    }));
    command.push(format!("{}*", named(KeyKind::Answer, "")).into_bytes());
    let answer = redis.command(&command).await;
    assert_eq!(answer, Reply::Nil, "{answer:?}");
}

#[tokio::test]
async fn i_13_a_redis_that_fell_back_under_a_living_owner_is_brought_up_to_it() {
    let stage = Stage::set().await;
    let redis = &stage.cluster.redis;
    let ask = async |conn: &str, name: &str, mut body: Value, id: &str| {
        body["room"] = json!(ROOM);
        body["id"] = json!(id);
        let ack = stage.repeat(conn, name, &body).await;
        (conn.to_owned(), name.to_owned(), body, ack)
    };
    ask("ann", "mic:lock", json!({ "seat": 1, "locked": true }), "before").await;
    let copies = copy(redis).await;
    let acknowledged = [
        ask("ben", "mic:up", json!({ "seat": 2 }), "up").await,
        ask("ann", "mic:lock", json!({ "seat": 1, "locked": false }), "unlock").await,
        ask("far", "room:kick", json!({ "user": "eve", "reason": "noise" }), "kick").await,
        ask("far", "mic:lock", json!({ "seat": 4, "locked": true }), "lock").await,
    ];
    let settings = json!({ "room": ROOM, "settings": { "custom": { "page": 9 } } });
    stage.repeat("ann", "room:update", &settings).await;
    let before = stage.past().await;
    fall_back(redis, copies).await;

    let after = Past::wait(redis, ROOM, SOON, |past| past.cell.version >= before.cell.version + LEAP).await;
    assert_eq!(after.assert_sound(), 1, "the versions leap, once");
    assert_eq!(after.entries.len(), before.entries.len());
    assert_eq!(Stored::room(redis, ROOM).settings().await["custom"], json!({ "page": 9 }));
    for (conn, name, body, ack) in &acknowledged {
        let again = stage.repeat(conn, name, body).await;
        assert_eq!(again, *ack, "{name} {body}");
    }
    let past = stage.past().await;
    past.assert_sound();
    assert_eq!(past.entries.len(), before.entries.len(), "a repeat was executed: {:?}", past.entries.last());
    // Who knew the room before hears that its versions leapt, and goes on from there.
    let (_, _, _, ack) = ask("ann", "mic:lock", json!({ "seat": 5, "locked": true }), "after").await;
    assert!(ack["version"]["cell"].as_u64() > Some(before.cell.version + LEAP), "{ack}");
    let to = ack["version"]["cell"].as_u64().expect("a version");
    stage.told_without_a_gap("ben", before.cell.version, to).await;
    let confirm =
        json!({ "room": ROOM, "micSession": acknowledged[0].3["seat"]["micSession"], "id": "confirm" });
    assert_eq!(stage.repeat("ben", "mic:confirm", &confirm).await["ok"], true, "its seat is its own still");
}

#[tokio::test]
async fn i_6_i_13_a_room_that_lost_a_key_under_a_living_owner_is_whole_again() {
    let stage = Stage::set().await;
    let redis = &stage.cluster.redis;
    for (name, body) in [
        ("mic:lock", json!({ "room": ROOM, "seat": 1, "locked": true })),
        ("room:kick", json!({ "room": ROOM, "user": "eve" })),
        ("mic:invite", json!({ "room": ROOM, "user": "ben", "seat": 3 })),
        ("call:invite", json!({ "room": ROOM, "to": ["ben"] })),
    ] {
        assert_eq!(stage.repeat("ann", name, &body).await["ok"], true);
    }
    assert_eq!(stage.repeat("ben", "mic:up", &json!({ "room": ROOM, "seat": 2 })).await["ok"], true);
    for (leaps, kind) in [KeyKind::Room, KeyKind::Cell, KeyKind::Peers].into_iter().enumerate() {
        let before = stage.past().await;
        assert_eq!(redis.command(&["DEL", &of_room(kind, ROOM)]).await.number(), Some(1), "{kind:?}");
        // A command finds it out before the heartbeat does, or after: it is executed once either way.
        let lock =
            json!({ "room": ROOM, "seat": 5, "locked": leaps % 2 == 0, "id": format!("after-{kind:?}") });
        let ack = stage.repeat("far", "mic:lock", &lock).await;
        let after = stage.past().await;
        assert!(after.cell.version > before.cell.version + LEAP, "{kind:?}: versions leap");
        assert_eq!(after.assert_sound(), leaps + 1, "{kind:?}");
        assert_eq!(after.entries.len(), before.entries.len() + 1, "{kind:?}");
        assert_eq!(ack["version"]["cell"], after.cell.version, "{kind:?}");
    }
    let confirmed = stage.past().await.cell.seats[&2].sitter.clone().expect("a sitter");
    let confirm = json!({ "room": ROOM, "micSession": confirmed.session.as_str() });
    assert_eq!(stage.repeat("ben", "mic:confirm", &confirm).await["ok"], true);
}

/// When the owner dies, of what is in its inbox.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Death {
    /// Before it has read the entry.
    Unread,
    /// It has decided, and sent the commit, which never arrives.
    Decided,
    /// The commit is made, and the owner does not know.
    Committed,
}

async fn dies_over_its_inbox(death: Death) {
    let mut stage = Stage::set().await;
    let (hold, word) = match death {
        Death::Unread => (Hold::Request, of_room(KeyKind::Inbox, ROOM)),
        Death::Decided => (Hold::Request, "in-the-inbox".to_owned()),
        Death::Committed => (Hold::Answers, "in-the-inbox".to_owned()),
    };
    let mut sprung = stage.proxy.trap(hold, &word);
    let lock = json!({ "room": ROOM, "seat": 1, "locked": true, "id": "in-the-inbox" });
    let asked = stage.ask("far", "mic:lock", &lock);
    sprung.wait(SOON).await;
    let is_there = |past: &Past| !past.of_id("in-the-inbox").is_empty();
    if death == Death::Committed {
        Past::wait(&stage.cluster.redis, ROOM, SOON, is_there).await;
    }
    stage.cluster[0].kill().await;
    stage.proxy.cut();

    let past = Past::wait(&stage.cluster.redis, ROOM, 2 * SOON, is_there).await;
    let entry = past.of_id("in-the-inbox")[0];
    assert_eq!(entry.owner.starts_with("a/"), death == Death::Committed, "{entry:?}");
    let ack = asked.await.expect("asked");
    let ack = if ack["ok"] == true { ack } else { stage.repeat("far", "mic:lock", &lock).await };
    assert_eq!(ack["version"]["cell"], entry.version, "{ack}");
    stage.connect("far-away", 2).await;
    let other = json!({ "room": ROOM, "seat": 2, "locked": true, "id": "another" });
    stage.repeat("far-away", "mic:lock", &other).await;
    let past = stage.past().await;
    assert_eq!(past.assert_sound(), 0);
    assert_eq!(past.of_id("in-the-inbox").len(), 1, "{past:?}");
    let waiting = stage.cluster.redis.command(&["XLEN", &of_room(KeyKind::Inbox, ROOM)]).await;
    assert_eq!(waiting.number(), Some(0));
}

#[tokio::test]
async fn i_13_i_14_an_unread_inbox_outlives_its_owner() {
    dies_over_its_inbox(Death::Unread).await;
}

#[tokio::test]
async fn i_13_i_14_an_inbox_whose_entry_was_decided_outlives_its_owner() {
    dies_over_its_inbox(Death::Decided).await;
}

#[tokio::test]
async fn i_13_i_14_an_inbox_whose_entry_was_committed_is_not_executed_again() {
    dies_over_its_inbox(Death::Committed).await;
}

#[tokio::test]
async fn i_13_what_waits_in_an_inbox_outlives_who_asked_for_it() {
    let mut stage = Stage::set().await;
    let mut sprung = stage.proxy.trap(Hold::Request, &of_room(KeyKind::Inbox, ROOM));
    let lock = json!({ "room": ROOM, "seat": 1, "locked": true, "id": "orphan" });
    let driver = Arc::clone(&stage.driver);
    let body = json!({ "conn": "far", "name": "mic:lock", "body": lock });
    let asked = tokio::spawn(async move { driver.ask("emit", body).await.is_err() });
    sprung.wait(SOON).await;
    stage.cluster[1].kill().await;
    assert!(asked.await.expect("asked"), "nobody is there to answer");
    stage.proxy.release();
    let past = Past::wait(&stage.cluster.redis, ROOM, SOON, |past| !past.of_id("orphan").is_empty()).await;
    let token = stage.cluster.token("far", "host");
    stage.driver.connect("far", &stage.cluster[2].url(), &token).await.expect("connected");
    let again = stage.repeat("far", "mic:lock", &lock).await;
    assert_eq!(again["version"]["cell"], past.of_id("orphan")[0].version, "{again}");
    assert_eq!(stage.past().await.of_id("orphan").len(), 1);
}
