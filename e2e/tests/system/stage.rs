//! A room that several instances know, the people in it, and how each of them was told that it stands.

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::{Driver, Event};
use e2e::token::Token;
use e2e::wait::SOON;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

use crate::clients::code;
use crate::lane::Past;

/// The room, unless a test names another. The first to enter do so at the first instance, which owns it.
pub(crate) const ROOM: &str = "stage";

const HEARTBEAT: Duration = Duration::from_secs(3);

/// Instances, and clients for them.
pub(crate) struct Stage {
    pub(crate) driver: Driver,
    pub(crate) cluster: Cluster,
}

impl Stage {
    /// So many instances.
    pub(crate) async fn start(count: usize) -> Self {
        Self::start_with(count, |options| options).await
    }

    /// So many instances, each with its options changed.
    pub(crate) async fn start_with(
        count: usize,
        change: impl Fn(CoordinatorOptions) -> CoordinatorOptions,
    ) -> Self {
        // Nothing here waits for a lease to end, so that a busy machine may take its time.
        let generous = |options: CoordinatorOptions| {
            let patient = options.heartbeat(HEARTBEAT).value("redis", "command_timeout_ms", 2_000);
            change(patient.value("limits", "events_per_second", 10_000).value(
                "limits",
                "events_burst",
                10_000,
            ))
        };
        Self { cluster: Cluster::start_with(count, generous).await, driver: Driver::start().await }
    }

    /// Connects to an instance, and enters nothing.
    pub(crate) async fn connect(&self, conn: &str, user: &str, role: &str, at: usize) {
        self.connect_with(conn, &Token::new(user, role), at, json!({})).await;
    }

    /// Connects with this token and more of the handshake, such as `device`.
    pub(crate) async fn connect_with(&self, conn: &str, token: &Token, at: usize, more: Value) {
        let mut auth = more;
        auth["token"] = json!(token.sign());
        let opened =
            self.driver.connect_with(conn, &self.cluster[at].url(), "", json!({ "auth": auth })).await;
        opened.unwrap_or_else(|failure| panic!("{conn}: {failure:?}"));
    }

    /// Enters the room as `user`, with the highest role that the token allows, over a connection of that name.
    pub(crate) async fn enter(&self, user: &str, role: &str) -> Person<'_> {
        let fields = json!({ "role": role });
        let token = Token::new(user, role).sign();
        let joined = self.driver.join_with(user, &self.cluster[0].url(), &token, ROOM, fields).await;
        let joined = joined.unwrap_or_else(|failure| panic!("{user}: {failure:?}"));
        Person::new(self, user, &joined["ack"]["room"], 0)
    }

    /// Enters over a connection that is open.
    pub(crate) async fn join(&self, conn: &str, body: Value) -> Person<'_> {
        let next = self.driver.position(conn).await;
        let ack = self.ask(conn, "room:join", body).await;
        Person::new(self, conn, &ack["room"], next)
    }

    /// Watches the room as a card, from an instance.
    pub(crate) async fn watch(&self, user: &str, at: usize) -> Person<'_> {
        self.connect(user, user, "host", at).await;
        let ack = self.ask(user, "room:watch", json!({ "rooms": [ROOM] })).await;
        Person { is_card: true, ..Person::new(self, user, &ack["rooms"][0], 0) }
    }

    /// Watches the room as a monitor, from an instance.
    pub(crate) async fn monitor(&self, user: &str, at: usize) -> Person<'_> {
        self.connect(user, user, "monitor", at).await;
        let ack = self.ask(user, "room:join", json!({})).await;
        Person::new(self, user, &ack["room"], 0)
    }

    /// Asks, of [`ROOM`] unless the body names another.
    pub(crate) async fn answer(&self, conn: &str, event: &str, mut body: Value) -> Value {
        if body.get("room").is_none() {
            body["room"] = json!(ROOM);
        }
        self.driver.emit(conn, event, body).await.unwrap_or_else(|failure| panic!("{event}: {failure:?}"))
    }

    /// Asks for something that is done.
    pub(crate) async fn ask(&self, conn: &str, event: &str, body: Value) -> Value {
        let ack = self.answer(conn, event, body).await;
        assert_eq!(ack["ok"], true, "{conn}: {event}: {ack}");
        ack
    }

    /// Asks for something that is refused with this code.
    pub(crate) async fn refused(&self, conn: &str, event: &str, body: Value, with: &str) -> Value {
        let ack = self.answer(conn, event, body.clone()).await;
        assert_eq!(code(&ack), with, "{conn}: {event} {body}: {ack}");
        ack
    }

    /// The room as it stands, read through an instance.
    pub(crate) async fn snapshot(&self, at: usize) -> Value {
        let conn = format!("looks-{at}");
        self.connect(&conn, "looks", "monitor", at).await;
        let mut ack = self.ask(&conn, "room:watch", json!({ "rooms": [ROOM] })).await;
        self.driver.close(&conn).await.expect("closed");
        ack["rooms"][0].take()
    }

    /// Waits until everybody has been told of the room as it stands, which is what its log says.
    pub(crate) async fn agree(&self, people: &mut [&mut Person<'_>]) {
        let snapshots = [self.snapshot(0).await, self.snapshot(self.cluster.coordinators.len() - 1).await];
        assert_eq!(self.past().await.assert_sound(), 0, "versions go one by one");
        let stands = View::of(&snapshots[0]);
        assert_eq!(stands, View::of(&snapshots[1]), "from each instance the same is seen");
        for person in people {
            person.until("sees the room as it stands", |view| view.parts() == stands.parts()).await;
        }
    }

    /// Waits until each of them sees something.
    pub(crate) async fn all_see(
        &self,
        people: &mut [&mut Person<'_>],
        what: &str,
        fits: impl Fn(&View) -> bool,
    ) {
        for person in people {
            person.until(what, &fits).await;
        }
    }

    /// What was committed to the room's cell.
    pub(crate) async fn past(&self) -> Past {
        Past::read(&self.cluster.redis, ROOM).await
    }

    /// The events of the room's cell of this kind, in order.
    pub(crate) async fn happened(&self, kind: &str) -> Vec<Value> {
        let past = self.past().await;
        let events = past.events().map(|(_, event)| serde_json::to_value(event).expect("events are JSON"));
        events.filter(|event| event["event"] == kind).collect()
    }

    /// How a user's mic sessions ended, in order.
    pub(crate) async fn freed(&self, user: &str) -> Vec<String> {
        let freed = self.happened("seat_freed").await.into_iter().filter(|event| event["user"] == user);
        freed.map(|event| event["reason"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// Somebody who is told of a room, as a member or from outside.
pub(crate) struct Person<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) conn: String,
    pub(crate) view: View,
    is_card: bool,
    next: u64,
}

impl<'a> Person<'a> {
    fn new(stage: &'a Stage, conn: &str, snapshot: &Value, next: u64) -> Self {
        Self { stage, conn: conn.to_owned(), view: View::of(snapshot), is_card: false, next }
    }

    pub(crate) async fn ask(&self, event: &str, body: Value) -> Value {
        self.stage.ask(&self.conn, event, body).await
    }

    pub(crate) async fn refused(&self, event: &str, body: Value, with: &str) -> Value {
        self.stage.refused(&self.conn, event, body, with).await
    }

    /// Takes in what comes until the room looks like this.
    pub(crate) async fn until(&mut self, what: &str, fits: impl Fn(&View) -> bool) {
        while !fits(&self.view) {
            // Who is in the room and watches it as well is told twice, each time from where that stands.
            let is_card = self.is_card;
            let is_told =
                |event: &Event| event.body["of"] == "cell" && (event.name == "card:update") == is_card;
            let told = self.stage.driver.wait_event(&self.conn, self.next, SOON, is_told);
            let Ok(event) = tokio::time::timeout(2 * SOON, told).await else {
                panic!("{}: {what}: {:#?}", self.conn, self.view);
            };
            self.next = event.index + 1;
            self.view.hear(&event.body);
        }
    }

    /// Waits for an event of this name that fits.
    pub(crate) async fn told(&self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let is_it = |event: &Event| event.name == name && fits(&event.body);
        self.stage.driver.wait_event(&self.conn, 0, SOON, is_it).await.body
    }
}

/// What is known of a room's cell: the snapshot that somebody got, and every event since.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) version: i64,
    pub(crate) status: String,
    pub(crate) locked: bool,
    pub(crate) seats: BTreeMap<u64, Value>,
    pub(crate) peers: BTreeMap<String, Value>,
    pub(crate) requests: BTreeMap<String, Value>,
    pub(crate) invites: BTreeMap<String, Value>,
    pub(crate) call: Value,
}

impl View {
    /// From a snapshot.
    pub(crate) fn of(snapshot: &Value) -> Self {
        let asked = |part: &str| {
            let users = snapshot[part].as_object().into_iter().flatten();
            users.map(|(user, asked)| (user.clone(), asked.clone())).collect()
        };
        let version = snapshot["version"]["cell"].as_i64();
        let view = Self {
            version: version.unwrap_or_else(|| panic!("no snapshot: {snapshot}")),
            status: snapshot["status"].as_str().expect("a status").to_owned(),
            locked: snapshot["locked"].as_bool().expect("whether it is locked"),
            seats: by_number(&snapshot["seats"]),
            peers: by_user(&snapshot["peers"]),
            requests: asked("requests"),
            invites: asked("invites"),
            call: snapshot["call"].clone(),
        };
        let hosts: Vec<&str> =
            snapshot["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(view.hosts(), hosts, "{snapshot}");
        assert_eq!(view.peer_count(), snapshot["peerCount"].as_u64().expect("a count"), "{snapshot}");
        view
    }

    /// Takes in an event of the cell, which must follow what is known without a gap.
    pub(crate) fn hear(&mut self, body: &Value) {
        if let Some(snapshot) = body.get("snapshot") {
            *self = Self::of(snapshot);
            return;
        }
        let number = |field: &str| body[field].as_i64().unwrap_or_else(|| panic!("no {field} in {body}"));
        let (from, to) = (number("from"), number("to"));
        if to <= self.version {
            return;
        }
        assert_eq!(from, self.version, "a gap before {body}");
        self.version = to;
        if body.get("seatCount").is_some() {
            self.seats.clear();
        }
        self.seats.extend(by_number(&body["seats"]));
        for part in ["joined", "peers"] {
            self.peers.extend(by_user(&body[part]));
        }
        for user in body["left"].as_array().into_iter().flatten() {
            self.peers.remove(user["user"].as_str().expect("a user"));
        }
        for (part, known) in [("requests", &mut self.requests), ("invites", &mut self.invites)] {
            for (user, asked) in body[part].as_object().into_iter().flatten() {
                if asked.is_null() {
                    known.remove(user);
                } else {
                    known.insert(user.clone(), asked.clone());
                }
            }
        }
        if let Some(locked) = body["locked"].as_bool() {
            self.locked = locked;
        }
        if let Some(status) = body["status"].as_str() {
            status.clone_into(&mut self.status);
        }
        if let Some(call) = body.get("call") {
            self.call = call.clone();
        }
        if let Some(count) = body["peerCount"].as_u64() {
            assert_eq!(self.peer_count(), count, "{body}");
        }
        if let Some(hosts) = body["hosts"].as_array() {
            assert_eq!(json!(self.hosts()), json!(hosts), "{body}");
        }
    }

    /// Everything but the version: what nobody sees makes versions too.
    pub(crate) fn parts(&self) -> Self {
        Self { version: 0, ..self.clone() }
    }

    /// The state of a seat.
    pub(crate) fn seat(&self, number: u64) -> &str {
        self.seats.get(&number).and_then(|seat| seat["state"].as_str()).unwrap_or("none")
    }

    /// The seat that a user has, or null.
    pub(crate) fn seat_of(&self, user: &str) -> Value {
        self.seats.values().find(|seat| seat["user"] == user).cloned().unwrap_or_default()
    }

    /// Present users who are hosts, in order.
    pub(crate) fn hosts(&self) -> Vec<&str> {
        let hosts = self.peers.iter().filter(|(_, peer)| peer["role"] == "host");
        hosts.map(|(user, _)| user.as_str()).collect()
    }

    fn peer_count(&self) -> u64 {
        self.peers.values().map(|peer| peer["devices"].as_u64().expect("a number of devices")).sum()
    }
}

fn by_number(seats: &Value) -> BTreeMap<u64, Value> {
    let seats = seats.as_array().into_iter().flatten();
    seats.map(|seat| (seat["seat"].as_u64().expect("a number"), seat.clone())).collect()
}

fn by_user(peers: &Value) -> BTreeMap<String, Value> {
    let peers = peers.as_array().into_iter().flatten();
    peers.map(|peer| (peer["user"].as_str().expect("a user").to_owned(), peer.clone())).collect()
}
