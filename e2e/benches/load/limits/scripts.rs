//! A script as small as one that takes a room's lease can be, called as fast as Redis answers.

use e2e::servers::{Flavor, RedisServer};
use futures_util::future::join_all;
use key_prefix::{KeyKind, Keys, Prefix};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::meter;
use crate::workloads::Size;

const SCRIPT: &str = "local held = redis.call('GET', KEYS[1]) \
    if held and held ~= ARGV[1] then return 0 end \
    redis.call('SET', KEYS[1], ARGV[1], 'PX', 15000) \
    redis.call('SADD', KEYS[2], ARGV[2]) return 1";
const ANSWER: &[u8] = b":1\r\n";

/// Name of the rate that joins are a share of.
pub(super) const AT_ONCE: &str = "script_50_connections";

/// Calls a second, and what one costs Redis: on one connection, on fifty, and many to a write.
pub(super) async fn measure(size: Size) -> Vec<(String, &'static str, f64)> {
    let redis = RedisServer::start(Flavor::Redis).await;
    let sha = redis.command(&["SCRIPT", "LOAD", SCRIPT]).await.text();
    let mut all = Vec::new();
    for (name, connections, pipelined, calls) in [
        ("script_1_connection", 1, 1, size.of(10_000, 200)),
        (AT_ONCE, 50, 1, size.of(40_000, 500)),
        ("script_pipelined", 1, 64, size.of(64_000, 640)),
    ] {
        let before = meter::of_redis(&redis).await;
        let begun = Instant::now();
        let each = calls / connections / pipelined;
        join_all((0..connections).map(|at| call(&redis, &sha, at, pipelined, each))).await;
        let (calls, took) = (as_f64(each * pipelined * connections), begun.elapsed());
        let used = meter::of_redis(&redis).await - before;
        all.push((name.to_owned(), "calls/s", calls / took.as_secs_f64()));
        all.push((format!("{name}_redis"), "us/call", used.as_secs_f64() * 1e6 / calls));
    }
    all
}

/// Each time so many calls in one write, each for a room that nobody holds.
async fn call(redis: &RedisServer, sha: &str, connection: usize, pipelined: usize, times: usize) {
    let base = |kind| Keys::new(Prefix::parse("test").expect("a prefix")).base(kind).to_string();
    let (owner, held) = (base(KeyKind::Owner), base(KeyKind::InstanceRooms));
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).await.expect("a running Redis");
    stream.set_nodelay(true).expect("a TCP connection");
    let mut answers = vec![0; ANSWER.len() * pipelined];
    for turn in 0..times {
        let mut request = Vec::with_capacity(256 * pipelined);
        for n in 0..pipelined {
            let room = format!("{connection}-{turn}-{n}");
            let owner = format!("{owner}{room}");
            let words = ["EVALSHA", sha, "2", &owner, &held, "a/1", &room];
            request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                request.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
            }
        }
        stream.write_all(&request).await.expect("an open connection");
        stream.read_exact(&mut answers).await.expect("answers");
        assert!(answers.chunks(ANSWER.len()).all(|answer| answer == ANSWER), "the lease is taken");
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures of a bench are far below 2^52")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}
