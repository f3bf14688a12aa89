//! How much waits in streams of a Redis.

use key_prefix::{Keys, LANES, Prefix};

use crate::servers::RedisServer;

const LENGTHS: &str =
    "local n = 0 for _, key in ipairs(KEYS) do n = n + redis.call('XLEN', key) end return n";

/// Entries of all of them together; `None`: Redis does not say.
pub async fn waiting(redis: &RedisServer, streams: &[String]) -> Option<i64> {
    let count = streams.len().to_string();
    let command = ["EVAL", LENGTHS, &count].into_iter().chain(streams.iter().map(String::as_str));
    redis.command(&command.collect::<Vec<_>>()).await.number()
}

/// Entries on their way to the ledger, of coordinators with the prefix that tests have.
pub async fn waiting_in_lanes(redis: &RedisServer) -> Option<i64> {
    let keys = Keys::new(Prefix::parse("test").expect("a prefix"));
    let lanes: Vec<String> = (0..LANES).map(|lane| keys.lane_at(lane).to_string()).collect();
    waiting(redis, &lanes).await
}
