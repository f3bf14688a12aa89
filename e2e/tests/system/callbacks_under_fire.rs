//! Callbacks of several vendors at every instance, in no order, again and again, while an owner and Redis are killed:
//! what was acknowledged is executed once, and the last word of each person's own order decides about their seat.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use e2e::callback::{mac, sign};
use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::http::{self, Response};
use e2e::servers::{Flavor, Fsync, ServerOptions};
use e2e::token::APP;
use e2e::wait::{self, SOON};
use futures_util::StreamExt as _;
use key_prefix::KeyKind;
use room_cell::MediaIdentity;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::lane::Past;
use crate::stored::{Stored, named, of_room};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const HEARTBEAT: Duration = Duration::from_millis(500);
const ROOMS: [&str; 3] = ["fire-a", "fire-b", "fire-c"];
const SITTERS: [&str; 3] = ["sam", "sue", "sid"];
const LISTENERS: [&str; 3] = ["lea", "leo", "lou"];
/// Events of each person.
const EACH: u64 = 16;
const IN_FLIGHT: usize = 12;
const MINUTES_10: u64 = 600_000;

pub(crate) fn now_ms() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("a time after 1970");
    u64::try_from(since.as_millis()).expect("a time of this age")
}

/// The same numbers for the same seed (xorshift).
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// A seed of 0 would give zeros only.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// One that gives other numbers.
    pub(crate) const fn another(&mut self) -> Self {
        self.step();
        Self::new(self.0.wrapping_mul(6_364_136_223_846_793_005))
    }

    const fn step(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.step();
        usize::try_from(self.0 % (end as u64)).expect("below a usize")
    }

    pub(crate) fn shuffle<T>(&mut self, of: &mut [T]) {
        for at in (1..of.len()).rev() {
            of.swap(at, self.below(at + 1));
        }
    }
}

/// What a vendor posts, before it is proved.
#[derive(Debug, Clone)]
struct Post {
    vendor: &'static str,
    body: String,
}

impl Post {
    fn of(vendor: &'static str, body: &Value) -> Self {
        Self { vendor, body: body.to_string() }
    }

    /// The headers that prove it, sent at `now` with this secret.
    fn proof(&self, secret: &str, now: u64) -> Vec<(&'static str, String)> {
        let time = (now / 1_000).to_string();
        match self.vendor {
            "generic" => {
                let signature = sign(secret, &time, &self.body);
                vec![("dais-timestamp", time), ("dais-signature", signature)]
            }
            "livekit" => {
                let digest = STANDARD.encode(Sha256::digest(&self.body));
                let claims = json!({ "iss": "key", "exp": now / 1_000 + 300, "sha256": digest }).to_string();
                let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
                let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
                let signature = URL_SAFE_NO_PAD.encode(mac(secret, &signed));
                vec![("authorization", format!("{signed}.{signature}"))]
            }
            "trtc" => vec![("sign", STANDARD.encode(mac(secret, &self.body)))],
            other => panic!("{other} is not posted here"),
        }
    }

    async fn send(&self, url: &str, secret: &str, now: u64) -> std::io::Result<Response> {
        let url = format!("{url}/rtc/{}/{APP}", self.vendor);
        let proof = self.proof(secret, now);
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(proof.iter().map(|(name, value)| (*name, value.as_str())));
        http::request("POST", &url, &headers, &self.body).await
    }
}

/// What somebody's media server says of them, in its own order; `last` is its last word.
fn said_of(room: &str, user: &str, chance: &mut Chance, last: &str, kinds: [&str; 2], at: u64) -> Vec<Value> {
    (2..=EACH)
        .map(|sequence| {
            let kind = if sequence == EACH { last } else { kinds[chance.below(kinds.len())] };
            json!({
                "id": format!("{user}-{sequence}"), "type": kind, "room": room, "user": user,
                "session": "s-1", "sequence": sequence, "at": at + sequence,
            })
        })
        .collect()
}

/// A router's name of a room, as its owner would have noted it.
fn router_of(room: &str) -> String {
    format!("router{}", room.replace('-', ""))
}

/// That somebody is there whom nobody knows, as LiveKit and TRTC say it.
fn strangers(room: &str, count: u64, now: u64) -> Vec<Post> {
    let router = router_of(room);
    let livekit = |n: u64| {
        json!({
            "event": "participant_joined", "id": format!("EV_{room}{n}"), "createdAt": (now / 1_000).to_string(),
            "room": { "sid": "RM_1", "name": router }, "participant": { "sid": "PA_1", "identity": "stranger" },
        })
    };
    let trtc = |n: u64| {
        json!({
            "EventGroupId": 1, "EventType": 103, "CallbackTs": now,
            "EventInfo": { "RoomId": router, "UserId": "stranger", "EventTs": now / 1_000, "EventMsTs": now + n },
        })
    };
    (0..count).flat_map(|n| [Post::of("livekit", &livekit(n)), Post::of("trtc", &trtc(n))]).collect()
}

/// What is posted to which instance; each that is not taken comes again, as vendors do it.
struct Sender {
    urls: Vec<String>,
    acknowledged: AtomicUsize,
    appended: AtomicUsize,
    refused: AtomicUsize,
}

impl Sender {
    /// Posts it until it is acknowledged, each time to the next instance.
    async fn deliver(&self, post: &Post, first: usize) -> Value {
        let attempt = AtomicUsize::new(first);
        let received = wait::eventually(2 * SOON, || async {
            let url = &self.urls[attempt.fetch_add(1, Ordering::Relaxed) % self.urls.len()];
            match post.send(url, SECRET, now_ms()).await {
                Ok(answer) if answer.status == 200 => Ok(answer.json()),
                Ok(answer) => {
                    assert_eq!(answer.status, 503, "{post:?}: {answer:?}");
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    Err(answer.body)
                }
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
        let count =
            |field: &str| received[field].as_u64().and_then(|it| usize::try_from(it).ok()).expect("a count");
        self.appended.fetch_add(count("appended"), Ordering::Relaxed);
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        received
    }

    /// Posts them all, some at once.
    async fn deliver_all(self: Arc<Self>, posts: Vec<(Post, usize)>) {
        let sending = posts.into_iter().map(|(post, first)| {
            let sender = Arc::clone(&self);
            async move { sender.deliver(&post, first).await }
        });
        futures_util::stream::iter(sending).buffer_unordered(IN_FLIGHT).for_each(async |_| {}).await;
    }

    /// Waits until so many have been acknowledged.
    async fn reaches(&self, count: usize) {
        let are = || async { self.acknowledged.load(Ordering::Relaxed) >= count };
        wait::until("so many are acknowledged", 2 * SOON, are).await;
    }
}

struct Fire {
    cluster: Cluster,
    driver: Driver,
    seats: BTreeMap<String, Value>,
}

impl Fire {
    /// Three instances, each with a room in which three people sit and are heard and three do not.
    async fn lit() -> Self {
        let redis = ServerOptions::new(Flavor::Redis).aof(Some(Fsync::Always)).start().await;
        let change = |options: CoordinatorOptions| {
            options
                .heartbeat(HEARTBEAT)
                .grace(Duration::from_secs(120))
                .value("app", "publish_deadline_ms", 120_000)
                .value("limits", "events_per_second", 10_000)
                .value("limits", "events_burst", 10_000)
                .text("app", "callbacks.generic.secret", SECRET)
                .text("app", "callbacks.livekit.api_key", "key")
                .text("app", "callbacks.livekit.api_secret", SECRET)
                .text("app", "callbacks.trtc.key", SECRET)
        };
        let cluster = Cluster::start_on(redis, ROOMS.len(), change).await;
        let mut fire = Self { cluster, driver: Driver::start().await, seats: BTreeMap::new() };
        for (at, room) in ROOMS.into_iter().enumerate() {
            for name in SITTERS.into_iter().chain(LISTENERS) {
                fire.enter(room, &format!("{name}-{at}"), at).await;
            }
            let (key, value) = (named(KeyKind::Router, &router_of(room)), format!("7 {APP}\0{room}"));
            fire.cluster.redis.command(&["SET", &key, &value]).await;
        }
        fire
    }

    async fn enter(&mut self, room: &str, user: &str, at: usize) {
        let (url, token) = (self.cluster[at].url(), self.cluster.token(user, "host"));
        let joined = self.driver.join_with(user, &url, &token, room, json!({ "role": "host" })).await;
        joined.unwrap_or_else(|failure| panic!("{user}: {failure:?}"));
        if SITTERS.iter().any(|name| user.starts_with(name)) {
            let up = self.driver.emit(user, "mic:up", json!({ "room": room })).await.expect("an answer");
            assert_eq!(up["ok"], true, "{up}");
            self.seats.insert(user.to_owned(), up["seat"].clone());
        }
    }

    fn sender(&self) -> Sender {
        Sender {
            urls: self.cluster.urls(),
            acknowledged: AtomicUsize::new(0),
            appended: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        }
    }

    /// The seats of a room as a living instance tells of them, by user.
    async fn seats_of(&self, room: &str, at: usize) -> BTreeMap<String, Value> {
        let conn = format!("looks-{room}-{at}");
        let token = self.cluster.token("looks", "monitor");
        self.driver.connect(&conn, &self.cluster[at].url(), &token).await.expect("connected");
        let watched = self.driver.emit(&conn, "room:watch", json!({ "rooms": [room] })).await;
        let watched = watched.expect("an answer");
        self.driver.close(&conn).await.expect("closed");
        let seats = watched["rooms"][0]["seats"].as_array().unwrap_or_else(|| panic!("no seats: {watched}"));
        let taken = seats.iter().filter_map(|seat| Some((seat["user"].as_str()?.to_owned(), seat.clone())));
        taken.collect()
    }

    async fn inbox(&self, kind: KeyKind, room: &str) -> Option<i64> {
        self.cluster.redis.command(&["XLEN", &of_room(kind, room)]).await.number()
    }

    /// How many entries a room's inbox has had.
    async fn taken_in(&self, room: &str) -> usize {
        let about = self.cluster.redis.command(&["XINFO", "STREAM", &of_room(KeyKind::Inbox, room)]).await;
        let at =
            about.items().iter().position(|it| it.text() == "entries-added").expect("a stream of Redis 7");
        usize::try_from(about.items()[at + 1].number().expect("a count")).expect("not negative")
    }

    /// Everything that waited has been executed, and nothing was set aside.
    async fn executed(&self) {
        for room in ROOMS {
            let is_empty = || async { self.inbox(KeyKind::Inbox, room).await == Some(0) };
            wait::until("what waited is executed", SOON, is_empty).await;
            assert_eq!(self.inbox(KeyKind::Aside, room).await, Some(0), "{room}");
        }
    }

    /// Each seat, and what is known of who has none, is what `last` says of its person.
    async fn stands(&self, last: &BTreeMap<String, &str>, seed: u64) {
        for (at, room) in ROOMS.into_iter().enumerate() {
            let past = Past::read(&self.cluster.redis, room).await;
            past.assert_sound();
            let seats = [self.seats_of(room, 1).await, self.seats_of(room, 2).await];
            assert_eq!(seats[0], seats[1], "from each instance the same is seen; seed {seed}");
            for name in SITTERS.into_iter().chain(LISTENERS) {
                let user = format!("{name}-{at}");
                let said = last[&user];
                let who = MediaIdentity { user: user.as_str().into(), peer: None };
                let heard =
                    past.cell.media.get(&who).unwrap_or_else(|| panic!("{user} is not known; seed {seed}"));
                assert_eq!(
                    (heard.sequence, heard.flowing),
                    (Some(EACH), said == "audio_started"),
                    "{user}, {said}: {heard:?}; seed {seed}"
                );
                let keeps =
                    self.seats.get(&user).filter(|_| !matches!(said, "audio_stopped" | "room_exited"));
                let told = seats[0].get(&user).map(|seat| (&seat["state"], &seat["micSession"]));
                let right = json!("publishing");
                let right = keeps.map(|seat| (&right, &seat["micSession"]));
                assert_eq!(told, right, "{user}, {said}; seed {seed}");
            }
        }
    }
}

#[tokio::test]
async fn i_5_i_8_i_13_what_is_acknowledged_under_fire_is_executed_and_no_seat_is_wrong() {
    let seed = now_ms() | 1;
    let mut chance = Chance::new(seed);
    let mut fire = Fire::lit().await;
    let begun = now_ms();
    let sender = Arc::new(fire.sender());

    // Everybody who sits is heard.
    let first = |user: &str, room: &str| {
        let event = json!({
            "id": format!("{user}-1"), "type": "audio_started", "room": room, "user": user, "session": "s-1",
            "sequence": 1, "at": begun,
        });
        (Post::of("generic", &event), user.len())
    };
    let people = || {
        let names = SITTERS.into_iter().chain(LISTENERS);
        ROOMS
            .into_iter()
            .enumerate()
            .flat_map(move |(at, room)| names.clone().map(move |name| (format!("{name}-{at}"), name, room)))
    };
    Arc::clone(&sender).deliver_all(people().map(|(user, _, room)| first(&user, room)).collect()).await;
    fire.executed().await;

    // One list of each person, one event to a callback; what of ten minutes ago is said of them once more is stale.
    let mut last = BTreeMap::new();
    let mut posts = Vec::new();
    for (user, name, room) in people() {
        let sits = SITTERS.contains(&name);
        let ends = ["audio_started", "audio_stopped", "room_exited"];
        let end = ends[chance.below(ends.len())];
        let kinds =
            if sits { ["audio_started", "participant_joined"] } else { ["audio_started", "audio_stopped"] };
        let said = said_of(room, &user, &mut chance, end, kinds, begun);
        posts.extend(said.iter().map(|event| Post::of("generic", event)));
        for kind in ["audio_stopped", "room_exited"] {
            let stale = json!({
                "id": format!("{user}-{kind}-stale"), "type": kind, "room": room, "user": user, "session": "s-0",
                "sequence": 99, "at": begun - MINUTES_10,
            });
            posts.push(Post::of("generic", &stale));
        }
        last.insert(user, end);
    }
    for room in ROOMS {
        posts.extend(strangers(room, 4, begun));
    }
    let distinct = posts.len();
    // A third of them come twice.
    let again: Vec<Post> = posts.iter().filter(|_| chance.below(3) == 0).cloned().collect();
    let mut all: Vec<Post> = posts.iter().cloned().chain(again).collect();
    chance.shuffle(&mut all);
    let all: Vec<(Post, usize)> = all.into_iter().map(|post| (post, chance.below(ROOMS.len()))).collect();
    let count = all.len();
    let before = sender.acknowledged.load(Ordering::Relaxed);

    let sending = tokio::spawn(Arc::clone(&sender).deliver_all(all));
    sender.reaches(before + count / 4).await;
    fire.cluster[0].kill().await;
    sender.reaches(before + count / 2).await;
    fire.cluster.redis.kill().await;
    let refused = || async { sender.refused.load(Ordering::Relaxed) > IN_FLIGHT };
    wait::until("some are refused", SOON, refused).await;
    let lost =
        Post::of("generic", &json!({ "type": "level", "room": ROOMS[1], "user": "sam-1", "level": 0.5 }));
    assert_eq!(lost.send(&sender.urls[1], "wrong", now_ms()).await.expect("an answer").status, 401);
    fire.cluster.redis.restart().await;
    sending.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));

    let taken_over = || async {
        Stored::room(&fire.cluster.redis, ROOMS[0]).owner().await.is_some_and(|owner| owner.name() != "a")
    };
    wait::until("the room of the killed owner is taken over", SOON, taken_over).await;
    fire.executed().await;
    // Each was put into an inbox once, however often it came, and 200 was said of no other.
    let mut taken_in = 0;
    for room in ROOMS {
        taken_in += fire.taken_in(room).await;
    }
    assert_eq!(taken_in, before + distinct, "seed {seed}");
    fire.stands(&last, seed).await;

    // What proves nothing, of a room that is not there, and of ten minutes ago.
    let urls = &sender.urls[1..];
    for post in &posts {
        let at = chance.below(urls.len());
        let forged = post.send(&urls[at], "another secret, of somebody else", now_ms()).await;
        assert_eq!(forged.expect("an answer").status, 401, "{post:?}");
        if post.vendor != "trtc" {
            let old = post.send(&urls[at], SECRET, now_ms() - MINUTES_10).await.expect("an answer");
            assert_eq!(old.status, 401, "{post:?}");
        }
    }
    let mut old = strangers(ROOMS[1], 1, now_ms() - MINUTES_10);
    let trtc = old.pop().expect("the one of TRTC");
    assert_eq!(trtc.send(&urls[0], SECRET, now_ms()).await.expect("an answer").status, 401);
    let mut nowhere =
        json!({ "id": "n", "type": "room_exited", "room": "nowhere", "user": "sam-1", "at": begun });
    let unknown = sender.deliver(&Post::of("generic", &nowhere), 1).await;
    assert_eq!(unknown, json!({ "appended": 0, "repeated": 0, "unknown": 1 }));
    nowhere["room"] = json!(ROOMS[1]);
    nowhere["user"] = json!("nobody");
    let concerns_nobody = sender.deliver(&Post::of("generic", &nowhere), 1).await;
    assert_eq!(concerns_nobody["appended"], 1);

    // All of it comes again, signed anew, when nobody remembers it any more.
    let seen = fire.cluster.redis.command(&["KEYS", &format!("{}*", named(KeyKind::Seen, ""))]).await.texts();
    assert_eq!(seen.len(), taken_in + 1, "what is acknowledged is remembered; seed {seed}");
    for keys in seen.chunks(100) {
        let command: Vec<&str> = std::iter::once("DEL").chain(keys.iter().map(String::as_str)).collect();
        fire.cluster.redis.command(&command).await;
    }
    chance.shuffle(&mut posts);
    let before = sender.appended.load(Ordering::Relaxed);
    Arc::clone(&sender)
        .deliver_all(posts.into_iter().map(|post| (post, 1 + chance.below(2))).collect())
        .await;
    assert_eq!(sender.appended.load(Ordering::Relaxed) - before, distinct, "seed {seed}");
    fire.executed().await;
    fire.stands(&last, seed).await;
    for at in [1, 2] {
        assert_eq!(fire.cluster[at].process().exit_status(), None);
        let metrics = fire.cluster[at].metrics().await;
        let refused = metrics.sum("dais_rtc_callbacks_total", &[("result", "refused")]);
        assert!(refused > 0.0, "{refused}");
    }
}
