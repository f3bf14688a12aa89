//! How long Redis answers nobody: by its own log of slow commands, and by a client that asks all the time.

use e2e::servers::RedisServer;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Commands that take longer are kept.
const SLOW_US: &str = "100";
const KEPT: &str = "100000";
/// Between two questions: often enough to meet what blocks for a millisecond, seldom enough to cost Redis 2 % of its time.
const PAUSE: Duration = Duration::from_millis(1);

/// What was seen.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    /// The slowest command, a script mostly; zero where none was slow enough to be kept.
    pub(crate) longest: Duration,
    /// How long each answer took, shortest first.
    pub(crate) answers: Vec<Duration>,
}

/// A watch that has begun.
pub(crate) struct Watch {
    ends: Arc<AtomicBool>,
    asking: JoinHandle<Vec<Duration>>,
}

impl Watch {
    /// Begins.
    pub(crate) async fn begin(redis: &RedisServer) -> Self {
        redis.command(&["CONFIG", "SET", "slowlog-log-slower-than", SLOW_US, "slowlog-max-len", KEPT]).await;
        redis.command(&["SLOWLOG", "RESET"]).await;
        let ends = Arc::new(AtomicBool::new(false));
        let (seen, port) = (Arc::clone(&ends), redis.port());
        // A thread of its own, so that it waits for Redis and never for the load.
        Self { ends, asking: thread::spawn(move || ask(port, &seen)) }
    }

    /// Ends.
    pub(crate) async fn end(self, redis: &RedisServer) -> Watched {
        self.ends.store(true, Ordering::Relaxed);
        let mut answers = self.asking.join().expect("Redis answers");
        answers.sort_unstable();
        let slow = redis.command(&["SLOWLOG", "GET", "-1"]).await;
        let took = |entry: &e2e::resp::Value| u64::try_from(entry.items().get(2)?.number()?).ok();
        let longest = slow.items().iter().filter_map(took).max().unwrap_or_default();
        Watched { longest: Duration::from_micros(longest), answers }
    }
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own, which asks at a pace")]
fn ask(port: u16, ends: &AtomicBool) -> Vec<Duration> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a running Redis");
    stream.set_nodelay(true).expect("a TCP connection");
    let mut answers = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let begun = Instant::now();
        stream.write_all(b"PING\r\n").expect("an open connection");
        stream.read_exact(&mut [0; 7]).expect("an answer");
        answers.push(begun.elapsed());
        thread::sleep(PAUSE);
    }
    answers
}
