//! One server, a few instances and a room: what every check starts from.

use e2e::resp::Value;
use e2e::servers::{Flavor, RedisServer, ServerOptions};
use key_prefix::{AppCode, Instance, InstanceName, Keys, Prefix, RoomId, RoomKey, RoomKeys};
use redis_scripts::{
    Birth, CellChanges, CellVersion, Commit, Committed, Committing, Enqueue, FenceToken, Pin, Pinned, Read,
    Register, Registered, Report, ScriptError, Scripts, SettingsVersion, Standing,
};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const APP: &str = "school";
pub(crate) const OWNER_TTL: Duration = Duration::from_secs(15);
const LONG_TTL: Duration = Duration::from_secs(600);
/// Settings that a room is made with.
pub(crate) const DEFAULTS: [(&str, &str); 2] = [("vad", r#"{"threshold":0.5}"#), ("custom", "{}")];
/// Fields of the cell that a room is made with.
pub(crate) const CELL: [(&str, &str); 2] = [("room", r#"{"capacity":8}"#), ("seat:1", r#"{"locked":false}"#)];
pub(crate) const PEER: &str = r#"{"role":"guest"}"#;
/// A command with events and nobody who waits for it.
pub(crate) const MADE: Committing<'static> = Committing {
    entry: Some(r#"{"events":[]}"#),
    answer: "",
    keep: None,
    reply: None,
    inbox: None,
    deadline: None,
};
/// Longer than any lane.
pub(crate) const NO_LIMIT: u64 = u64::MAX;
pub(crate) const HORIZON: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) server: RedisServer,
    pub(crate) scripts: Scripts,
    pub(crate) keys: Keys,
    pub(crate) room: RoomKey,
    pub(crate) names: RoomKeys,
}

/// Every key with its value and the time it ends at.
pub(crate) type Keyspace = BTreeMap<String, (Value, Value)>;

impl World {
    pub(crate) async fn start(flavor: Flavor) -> Self {
        let server = ServerOptions::new(flavor).aof(None).start().await;
        let scripts = Scripts::new(server.client().await);
        let keys = Keys::new(Prefix::parse("dev/scripts").expect("a good prefix"));
        let room = room("math-101");
        let names = keys.room(&room);
        Self { server, scripts, keys, room, names }
    }

    /// One command; an error reply ends the test.
    pub(crate) async fn redis(&self, arguments: &[&str]) -> Value {
        let reply = self.server.command(arguments).await;
        assert!(!matches!(reply, Value::Error(_)), "{arguments:?}: {reply:?}");
        reply
    }

    pub(crate) async fn now_ms(&self) -> i64 {
        let time = self.redis(&["TIME"]).await.texts();
        let part = |at: usize| time[at].parse::<i64>().expect("a number");
        part(0) * 1000 + part(1) / 1000
    }

    /// Waits until Redis's clock is past `number`: what only time keeps apart needs a millisecond between.
    pub(crate) async fn clock_passes(&self, number: u64) {
        let passed = || async { u64::try_from(self.now_ms().await).is_ok_and(|now| now > number) };
        e2e::wait::until("time goes on", e2e::wait::SOON, passed).await;
    }

    pub(crate) async fn exists(&self, key: &key_prefix::Key) -> bool {
        self.redis(&["EXISTS", &key.to_string()]).await == Value::Integer(1)
    }

    pub(crate) async fn ttl_ms(&self, key: &key_prefix::Key) -> i64 {
        self.redis(&["PTTL", &key.to_string()]).await.number().expect("a number")
    }

    pub(crate) async fn get(&self, key: &key_prefix::Key) -> String {
        self.redis(&["GET", &key.to_string()]).await.text()
    }

    pub(crate) async fn keyspace(&self) -> Keyspace {
        let mut all = Keyspace::new();
        for key in self.redis(&["KEYS", "*"]).await.texts() {
            let value = self.redis(&["DUMP", &key]).await;
            let ends = self.redis(&["PEXPIRETIME", &key]).await;
            all.insert(key, (value, ends));
        }
        all
    }

    /// I-17: a name that `key-prefix` knows, and the type of its row.
    pub(crate) async fn keys_match_the_table(&self) {
        for key in self.redis(&["KEYS", "*"]).await.texts() {
            let kind =
                self.keys.kind_of(key.as_bytes()).unwrap_or_else(|| panic!("{key:?} is not in the table"));
            let found = self.redis(&["TYPE", &key]).await.text();
            assert_eq!(found, kind.row().redis_type.as_str(), "{key:?}");
        }
    }

    /// Registers an instance that listens at `{name}:1`, with a public URL.
    pub(crate) async fn register(&self, name: &str) -> Instance {
        match self.register_at(name, &format!("{name}:1")).await {
            Registered::Ok { instance, .. } => instance,
            held => panic!("{held:?}"),
        }
    }

    pub(crate) async fn register_at(&self, name: &str, address: &str) -> Registered {
        let fields = [("public_url", format!("http://{name}"))];
        let name = InstanceName::new(name).expect("a good name");
        let with = Register { name: &name, address, owner_ttl: OWNER_TTL, fields: &fields };
        self.scripts.register(&self.keys, with).await.expect("an answer")
    }

    /// As if the instance had last been heard of so long ago.
    pub(crate) async fn age_heartbeat(&self, instance: &Instance, age: Duration) {
        let then = self.now_ms().await - i64::try_from(age.as_millis()).expect("a short time");
        self.redis(&["ZADD", &self.keys.instances().to_string(), &then.to_string(), instance.as_str()]).await;
    }

    pub(crate) async fn pin(&self, me: &Instance) -> Pinned {
        self.pin_with(me, |_| {}).await.expect("an answer")
    }

    /// Pins the room as a join does, or with something changed. One command makes it.
    pub(crate) async fn pin_with(
        &self,
        me: &Instance,
        change: impl FnOnce(&mut Pin<'_>),
    ) -> Result<Pinned, ScriptError> {
        let changes = CellChanges { set: CELL.to_vec(), ..CellChanges::default() };
        self.pin_room_with(me, &self.room, &changes, &[MADE], change).await
    }

    /// Pins the room; one that it makes is made by two commands, of which the second is the join of `ann`.
    pub(crate) async fn pin_seated(&self, me: &Instance) -> Result<Pinned, ScriptError> {
        let changes = CellChanges {
            set: CELL.to_vec(),
            peers_set: vec![("p1", PEER)],
            users_in: vec!["ann"],
            ..CellChanges::default()
        };
        self.pin_room_with(me, &self.room, &changes, &[MADE, MADE], |_| {}).await
    }

    /// Pins another room, for longer than a slow machine takes for thousands of them, and returns its token.
    pub(crate) async fn own_room(&self, me: &Instance, room: &RoomKey) -> FenceToken {
        let changes = CellChanges { set: CELL.to_vec(), ..CellChanges::default() };
        let long = |pin: &mut Pin<'_>| pin.owner_ttl = LONG_TTL;
        token_of(&self.pin_room_with(me, room, &changes, &[MADE], long).await.expect("an answer"))
    }

    async fn pin_room_with(
        &self,
        me: &Instance,
        room: &RoomKey,
        changes: &CellChanges<'_>,
        commands: &[Committing<'_>],
        change: impl FnOnce(&mut Pin<'_>),
    ) -> Result<Pinned, ScriptError> {
        let defaults = DEFAULTS.map(|(field, json)| (field, json.to_owned()));
        let mut pin = Pin {
            me,
            room,
            owner_ttl: OWNER_TTL,
            floor: FenceToken::default(),
            renew: true,
            birth: Some(Birth {
                settings: &defaults,
                changes,
                commands,
                due: None,
                entry: "",
                sv: SettingsVersion::new(1),
                cv: CellVersion::new(0),
                lane_limit: NO_LIMIT,
            }),
            open_only: false,
            deadline: None,
        };
        change(&mut pin);
        self.scripts.pin(&self.keys, pin).await
    }

    /// A commit to the room.
    pub(crate) const fn commit<'a>(
        &'a self,
        me: &'a Instance,
        token: FenceToken,
        cv: u64,
        commands: &'a [Committing<'a>],
        changes: &'a CellChanges<'a>,
    ) -> Commit<'a> {
        Commit {
            me,
            room: &self.room,
            keys: &self.names,
            token,
            cv: CellVersion::new(cv),
            batch: "b1",
            commands,
            changes,
            due: None,
            fanout: &[],
            lane_limit: NO_LIMIT,
        }
    }

    /// Commits the join of a user with one peer of that name, and returns the new cell version.
    pub(crate) async fn join(&self, me: &Instance, token: FenceToken, cv: u64, user: &str) -> u64 {
        let changes =
            CellChanges { peers_set: vec![(user, PEER)], users_in: vec![user], ..CellChanges::default() };
        let batch = format!("join-{user}-{cv}");
        let with = Commit { batch: &batch, ..self.commit(me, token, cv, &[MADE], &changes) };
        match self.scripts.commit(&self.keys, with).await.expect("an answer") {
            Committed::Ok { cv, .. } => cv.as_u64(),
            refused => panic!("{refused:?}"),
        }
    }

    /// Work for the room's owner that nobody waits for.
    pub(crate) const fn enqueue<'a>(&'a self, me: &'a Instance, cap: usize) -> Enqueue<'a> {
        Enqueue {
            me,
            room: &self.room,
            keys: &self.names,
            route_json: r#""school\u0000math-101""#,
            payload: "{}",
            keep: None,
            number: None,
            deadline: None,
            cap,
        }
    }

    /// What a media server reported, by the id of each and what is to be done.
    pub(crate) const fn report<'a>(
        &'a self,
        me: &'a Instance,
        reports: &'a [(&'a str, &'a str)],
    ) -> Report<'a> {
        let route_json = r#""school\u0000math-101""#;
        Report { me, room: &self.room, keys: &self.names, route_json, reports, cap: 10 }
    }

    /// When the room is due; `None`: it is not.
    pub(crate) async fn due(&self) -> Option<i64> {
        self.redis(&["ZSCORE", &self.keys.due().to_string(), self.room.route()]).await.number()
    }

    /// Pins the room and returns its token.
    pub(crate) async fn own(&self, me: &Instance) -> FenceToken {
        token_of(&self.pin(me).await)
    }

    /// As after a failover: what this server tells is another history of its data.
    pub(crate) async fn begin_another_history(&self) {
        self.redis(&["REPLICAOF", "127.0.0.1", "1"]).await;
        self.redis(&["REPLICAOF", "NO", "ONE"]).await;
    }

    /// Which history of its data the server tells, as scripts name it.
    pub(crate) async fn history(&self) -> String {
        let info = self.redis(&["INFO", "replication"]).await.text();
        let id = info.lines().find_map(|line| line.strip_prefix("master_replid:")).expect("a replication id");
        id[..16].to_owned()
    }

    /// When the room was last marked for its owner to look at; `None`: it is not.
    pub(crate) async fn mark(&self, owner: &Instance) -> Option<i64> {
        self.redis(&["ZSCORE", &self.keys.unheard(owner).to_string(), self.room.route()]).await.number()
    }

    /// As if everything had been looked at.
    pub(crate) async fn unmark(&self, owner: &Instance) {
        self.redis(&["DEL", &self.keys.unheard(owner).to_string()]).await;
    }

    pub(crate) async fn standing(&self) -> Standing {
        match self.scripts.read_room(&self.keys, &self.room).await.expect("an answer") {
            Read::Ok(standing) => standing,
            Read::Missing => panic!("the room is not there"),
        }
    }

    pub(crate) fn route_json(&self) -> String {
        serde_json::Value::from(self.room.route()).to_string()
    }
}

pub(crate) fn room(id: &str) -> RoomKey {
    RoomKey::new(AppCode::new(APP).expect("a good app"), RoomId::new(id).expect("a good room"))
}

pub(crate) fn token_of(pinned: &Pinned) -> FenceToken {
    match pinned {
        Pinned::Owned { token, .. } => *token,
        other => panic!("not owned: {other:?}"),
    }
}

/// A token that nobody was given.
pub(crate) fn other_than(token: FenceToken) -> FenceToken {
    FenceToken::new(token.as_u64() - 1)
}
