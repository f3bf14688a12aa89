//! What Redis holds of one room of the app `demo`, read past every coordinator.

use e2e::servers::RedisServer;
use e2e::token::APP;
use key_prefix::{KeyKind, Keys, Prefix};
use serde_json::{Map, Value};

/// The name of the key of this kind and subject, under the key prefix `test`.
pub(crate) fn named(kind: KeyKind, subject: &str) -> String {
    let prefix = Prefix::parse("test").expect("a prefix");
    format!("{}{subject}", Keys::new(prefix).base(kind))
}

/// Where rooms stand in which something falls due, under the key prefix `test`.
pub(crate) fn due_key() -> String {
    Keys::new(Prefix::parse("test").expect("a prefix")).due().to_string()
}

/// The key of this kind of a room of the app `demo`.
pub(crate) fn of_room(kind: KeyKind, room: &str) -> String {
    named(kind, &format!("{APP}\0{room}"))
}

/// A room in Redis, under the key prefix `test`.
pub(crate) struct Stored<'a> {
    redis: &'a RedisServer,
    room: String,
}

/// Who holds the room's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    /// `name/incarnation`
    pub(crate) instance: String,
    /// The fencing token.
    pub(crate) token: i64,
}

impl Owner {
    pub(crate) fn name(&self) -> &str {
        self.instance.split_once('/').map_or(&*self.instance, |(name, _)| name)
    }
}

impl<'a> Stored<'a> {
    pub(crate) fn room(redis: &'a RedisServer, room: &str) -> Self {
        Self { redis, room: room.to_owned() }
    }

    /// The room's key of this kind.
    pub(crate) fn key(&self, kind: &str) -> String {
        format!("test:{kind}:{APP}\0{}", self.room)
    }

    pub(crate) async fn owner(&self) -> Option<Owner> {
        let held = self.redis.command(&["GET", &self.key("owner")]).await.text();
        let (instance, token) = held.rsplit_once(' ')?;
        Some(Owner { instance: instance.to_owned(), token: token.parse().expect("a token") })
    }

    pub(crate) async fn fence(&self) -> i64 {
        self.redis.command(&["GET", &self.key("fence")]).await.number().expect("a fence")
    }

    /// The versions of settings and cell.
    pub(crate) async fn versions(&self) -> (i64, i64) {
        let found = self.redis.command(&["HMGET", &self.key("room"), "sv", "cv"]).await;
        let number = |at: usize| found.items()[at].number().unwrap_or_default();
        (number(0), number(1))
    }

    pub(crate) async fn settings(&self) -> Value {
        self.documents("settings").await
    }

    pub(crate) async fn guests(&self) -> Value {
        self.documents("guests").await
    }

    async fn documents(&self, kind: &str) -> Value {
        let found = self.redis.command(&["HGETALL", &self.key(kind)]).await.texts();
        let pairs = found.chunks(2).map(|pair| {
            (pair[0].clone(), serde_json::from_str(&pair[1]).expect("what the scripts write is JSON"))
        });
        Value::Object(pairs.collect::<Map<_, _>>())
    }

    /// The size of the peer set, which must be what the record counts.
    pub(crate) async fn peers(&self) -> i64 {
        const SIZES: &str = "return {redis.call('HLEN', KEYS[1]), redis.call('HGET', KEYS[2], 'peers_n')}";
        let (peers, record) = (self.key("peers"), self.key("room"));
        let sizes = self.redis.command(&["EVAL", SIZES, "2", &peers, &record]).await;
        let size = sizes.items()[0].number().expect("a size");
        assert_eq!(sizes.items()[1].number().unwrap_or_default(), size, "the count of peers has drifted");
        size
    }
}

/// Milliseconds by Redis's clock.
pub(crate) async fn redis_now(redis: &RedisServer) -> i64 {
    let time = redis.command(&["TIME"]).await;
    let part = |at: usize| time.items()[at].number().expect("a time");
    part(0) * 1000 + part(1) / 1000
}

/// The registered incarnations of this name with the time of their last heartbeat.
pub(crate) async fn incarnations(redis: &RedisServer, name: &str) -> Vec<(String, i64)> {
    let found = redis.command(&["ZRANGE", "test:instances", "0", "-1", "WITHSCORES"]).await.texts();
    let pairs = found.chunks(2).map(|pair| (pair[0].clone(), pair[1].parse().expect("a score")));
    pairs.filter(|(instance, _)| instance.split('/').next() == Some(name)).collect()
}
