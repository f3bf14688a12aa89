//! Five hundred commands while one owner after the other is killed: each acknowledged one was executed once.

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::wait::{self, SOON};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::clients::{code, together};
use crate::lane::Past;
use crate::stored::Stored;

const ROOM: &str = "voices";
const HOSTS: usize = 6;
const MEMBERS: usize = 5;
/// With what the hosts send it makes 500.
const OF_EACH_HOST: usize = 50;
const OF_EACH_MEMBER: usize = 40;
const KILLS: usize = 5;
/// One command through the deaths of several owners, on a machine that has other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command that was acknowledged.
#[derive(Debug, Clone)]
struct Done {
    name: &'static str,
    body: Value,
    ack: Value,
}

/// Somebody who sends commands, and repeats each with its id until it is acknowledged.
#[derive(Clone)]
struct Caller {
    driver: Arc<Driver>,
    user: String,
    token: String,
    /// Where to try, the favourite first.
    urls: Vec<String>,
    is_member: bool,
    acknowledged: Arc<AtomicUsize>,
}

impl Caller {
    async fn come(&self) {
        let user = &*self.user;
        if self.is_member {
            let fields = json!({ "url": self.urls, "deadlineMs": 50_000 });
            self.driver.join_with(user, "", &self.token, ROOM, fields).await.expect("joined");
            return;
        }
        wait::eventually(PATIENCE, || async {
            let mut refused = None;
            for url in &self.urls {
                match self.driver.connect(user, url, &self.token).await {
                    Ok(_) => return Ok(()),
                    Err(failure) => refused = Some(failure),
                }
            }
            Err(refused)
        })
        .await;
    }

    async fn is_connected(&self) -> bool {
        let status = self.driver.ask("status", json!({ "conn": self.user })).await;
        status.is_ok_and(|status| status["connected"] == true)
    }

    /// One attempt: a good ack, or why it must be tried again.
    async fn attempt(&self, name: &str, body: &Value) -> Result<Value, String> {
        if !self.is_connected().await {
            self.come().await;
        }
        match self.driver.emit(&self.user, name, body.clone()).await {
            Ok(ack) if ack["ok"] == true => Ok(ack),
            Ok(ack) if code(&ack) == "NOT_IN_ROOM" && self.is_member => {
                self.come().await;
                Err(ack.to_string())
            }
            Ok(ack) => {
                assert_eq!(ack["error"]["retryable"], true, "{name} {body} of {}: {ack}", self.user);
                Err(ack.to_string())
            }
            Err(failure) => Err(failure.message),
        }
    }

    async fn send(&self, name: &'static str, id: String, mut body: Value) -> Done {
        body["room"] = json!(ROOM);
        body["id"] = json!(id);
        let ack = wait::eventually(PATIENCE, || self.attempt(name, &body)).await;
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        Done { name, body, ack }
    }

    /// What a host does: each thing, and then undoes it.
    async fn moderate(self, number: usize) -> Vec<Done> {
        self.come().await;
        let mut done = Vec::new();
        for n in 0..OF_EACH_HOST {
            let is_on = n % 4 < 2;
            let (name, body) = match (n % 2, number) {
                (0, _) => ("mic:lock", json!({ "seat": number + 1, "locked": is_on })),
                (_, 0 | 1) => {
                    let role = if is_on { "host" } else { "guest" };
                    ("room:role", json!({ "user": format!("member-{number}"), "role": role }))
                }
                (_, 2) => ("room:lock", json!({ "locked": is_on })),
                (_, 3) => ("mic:seats", json!({ "count": if is_on { 31 } else { 30 } })),
                (_, _) => {
                    let name = if is_on { "room:kick" } else { "room:unban" };
                    (name, json!({ "user": format!("stranger-{number}") }))
                }
            };
            done.push(self.send(name, format!("host-{number}-{n}"), body).await);
        }
        done
    }

    /// What a member does: up, heard, down.
    async fn speak(self, number: usize) -> Vec<Done> {
        let mut done: Vec<Done> = Vec::new();
        let mut session = Value::Null;
        for n in 0..OF_EACH_MEMBER {
            let (name, body) = match n % 3 {
                0 => ("mic:up", json!({ "seat": 11 + number })),
                1 => ("mic:confirm", json!({ "micSession": session })),
                _ => ("mic:down", json!({ "micSession": session })),
            };
            let next = self.send(name, format!("member-{number}-{n}"), body).await;
            if name == "mic:up" {
                session = next.ack["seat"]["micSession"].clone();
            }
            done.push(next);
        }
        done
    }

    /// Sends everything again: each is answered as it was the first time.
    async fn repeat(self, done: Vec<Done>) {
        for Done { name, body, ack, .. } in done {
            let again = wait::eventually(PATIENCE, || self.attempt(name, &body)).await;
            assert_eq!(again, ack, "{name} {body}: another answer to its repeat");
        }
    }
}

/// Kills whoever owns the room when so many commands were acknowledged; now and then the dead one is back before
/// anybody else has the room.
async fn kill_owners(cluster: &mut Cluster, acknowledged: &AtomicUsize, seed: u64) {
    let total = HOSTS * OF_EACH_HOST + MEMBERS * OF_EACH_MEMBER;
    let mut chance = seed;
    let mut last = 0;
    for kill in 0..KILLS {
        // Anywhere within this part of the whole.
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = total / (KILLS + 1);
        let within = usize::try_from(chance >> 33).unwrap_or(0) % part;
        let after = (part / 2 + kill * part + within).min(total - 1);
        let dead = wait::eventually(PATIENCE, || async {
            if acknowledged.load(Ordering::SeqCst) < after {
                return Err("not so many yet");
            }
            // One that is back under its name is not the owner that the key still names.
            let owner = Stored::room(&cluster.redis, ROOM).owner().await.ok_or("nobody owns the room")?;
            if owner.token > last { Ok(owner) } else { Err("the dead one is not followed yet") }
        })
        .await;
        last = dead.token;
        let at = cluster.coordinators.iter().position(|it| it.id() == dead.name()).expect("an instance");
        cluster[at].kill().await;
        if kill % 2 == 0 {
            let stored = Stored::room(&cluster.redis, ROOM);
            wait::until("somebody else owns the room", PATIENCE, || async {
                stored.owner().await.is_some_and(|owner| owner.token > dead.token)
            })
            .await;
        }
        cluster[at].restart().await;
    }
}

#[tokio::test]
async fn i_13_i_14_i_25_commands_are_executed_once_while_owners_are_killed() {
    let seed = u64::from(std::process::id());
    let change = |options: CoordinatorOptions| {
        let options = options.grace(Duration::from_secs(60)).value("app", "publish_deadline_ms", 120_000);
        let options = options.value("app", "seats", 30).value("limits", "events_per_second", 10_000);
        options.value("limits", "events_burst", 10_000).value("limits", "joins_per_second", 10_000)
    };
    let mut cluster = Cluster::start_with(3, change).await;
    let driver = Arc::new(Driver::start().await);
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let urls = cluster.urls();
    let caller = |user: String, role: &str, favourite: usize, is_member: bool| {
        let mut urls = urls.clone();
        urls.rotate_left(favourite % 3);
        Caller {
            driver: Arc::clone(&driver),
            token: cluster.token(&user, role),
            user,
            urls,
            is_member,
            acknowledged: Arc::clone(&acknowledged),
        }
    };
    // Two of the members may be made hosts, and so may command from anywhere.
    let members: Vec<Caller> = (0..MEMBERS)
        .map(|n| caller(format!("member-{n}"), if n < 2 { "host" } else { "guest" }, 0, true))
        .collect();
    for member in &members {
        member.come().await;
    }
    let hosts: Vec<Caller> = (0..HOSTS).map(|n| caller(format!("host-{n}"), "host", n, false)).collect();
    let all: Vec<Caller> = hosts.iter().chain(&members).cloned().collect();
    let sending = tokio::spawn(async move {
        let moderating = hosts.into_iter().enumerate().map(|(n, host)| tokio::spawn(host.moderate(n)));
        let speaking = members.into_iter().enumerate().map(|(n, member)| tokio::spawn(member.speak(n)));
        let started: Vec<_> = moderating.chain(speaking).collect();
        together(started.into_iter().map(|each| async move { each.await.expect("a caller failed") })).await
    });
    kill_owners(&mut cluster, &acknowledged, seed).await;
    let done = sending.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(acknowledged.load(Ordering::SeqCst), 500);

    let past = Past::read(&cluster.redis, ROOM).await;
    assert_eq!(past.assert_sound(), 0, "versions leapt, seed {seed}");
    for Done { name, body, ack } in done.iter().flatten() {
        let id = body["id"].as_str().expect("an id");
        let entries = past.of_id(id);
        assert_eq!(entries.len(), 1, "{name} {id} was acknowledged; seed {seed}: {entries:?}");
        assert_eq!(ack["version"]["cell"], entries[0].version, "{name} {id}");
    }
    let tokens: std::collections::BTreeSet<u64> = past.entries.iter().map(|entry| entry.token).collect();
    // On a slow machine an owner may be killed before it has committed anything.
    assert!(tokens.len() > KILLS / 2, "owners: {tokens:?}");

    // Members' repeats go to whoever owns the room; the others' to another instance than the first time.
    let repeats = all.into_iter().zip(done).map(|(mut caller, done)| async move {
        caller.urls.rotate_left(1);
        caller.come().await;
        caller.repeat(done).await;
    });
    together(repeats).await;
    let after = Past::read(&cluster.redis, ROOM).await;
    after.assert_sound();
    let by_callers = |past: &Past| {
        let own = ["join", "gone", "shift"];
        past.entries.iter().filter(|entry| !own.contains(&&*entry.command)).count()
    };
    assert_eq!(by_callers(&after), by_callers(&past), "a repeat was executed");
}

#[tokio::test]
async fn i_13_a_command_is_executed_once_wherever_it_is_repeated() {
    let cluster = Cluster::start(3).await;
    let driver = Arc::new(Driver::start().await);
    let token = cluster.token("ann", "host");
    driver
        .join_with("ann", &cluster[0].url(), &token, ROOM, json!({ "role": "host" }))
        .await
        .expect("joined");
    for (conn, at) in [("at-a", 0), ("at-b", 1), ("at-c", 2)] {
        driver.connect(conn, &cluster[at].url(), &token).await.expect("connected");
    }
    // All at once, from everywhere: one is executed, and all hear of that one.
    let body = json!({ "room": ROOM, "seat": 1, "locked": true, "id": "once" });
    let asked = (0..12).map(|n| {
        let (driver, body) = (Arc::clone(&driver), body.clone());
        let conn = ["at-a", "at-b", "at-c", "ann"][n % 4];
        async move { driver.emit(conn, "mic:lock", body).await.expect("an answer") }
    });
    let answers = together(asked).await;
    assert!(answers.iter().all(|ack| ack["ok"] == true && *ack == answers[0]), "{answers:?}");
    let past = Past::wait(&cluster.redis, ROOM, SOON, |past| !past.of_id("once").is_empty()).await;
    past.assert_sound();
    assert_eq!(past.of_id("once").len(), 1);
    // The same id for something else is a mistake, wherever it is made.
    for conn in ["at-a", "at-b", "at-c"] {
        let other = json!({ "room": ROOM, "seat": 2, "locked": true, "id": "once" });
        let ack = driver.emit(conn, "mic:lock", other).await.expect("an answer");
        assert_eq!(code(&ack), "BAD_REQUEST", "{ack}");
    }
    // Another caller's id is its own.
    driver.connect("eve", &cluster[1].url(), &cluster.token("eve", "host")).await.expect("connected");
    let body = json!({ "room": ROOM, "seat": 2, "locked": true, "id": "once" });
    assert_eq!(driver.emit("eve", "mic:lock", body).await.expect("an answer")["ok"], true);
}
