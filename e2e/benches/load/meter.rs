//! What the server and its Redis have used so far.

use e2e::servers::RedisServer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::server::Server;

/// Everything that only grows.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    /// Of each of the server's instances that run.
    pub(crate) instances: Vec<Duration>,
    /// Of Redis.
    pub(crate) redis: Duration,
    /// Of the load generator.
    pub(crate) own: Duration,
    /// Of the whole machine.
    pub(crate) machine: Duration,
    /// Commands that Redis has run, those inside scripts too, by name.
    pub(crate) commands: BTreeMap<String, u64>,
}

impl Reading {
    /// Reads everything.
    pub(crate) async fn take(server: &Server) -> Self {
        let info = server.redis().command(&["INFO", "everything"]).await.text();
        Self {
            instances: server.processes().map(|process| of_process(process.pid())).collect(),
            redis: redis_cpu(&info),
            own: of_this_process(),
            machine: of_machine(),
            commands: commands(&info),
        }
    }

    /// Script calls among the commands.
    pub(crate) fn scripts(commands: &BTreeMap<String, u64>) -> u64 {
        ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"]
            .iter()
            .filter_map(|name| commands.get(*name))
            .sum()
    }
}

/// What instances say of their commits; nothing where a server has none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Commits {
    /// Commands of rooms that were decided.
    pub(crate) commands: f64,
    /// Commits that Redis acknowledged.
    pub(crate) commits: f64,
    /// Commands in commits that were sent.
    pub(crate) sent: f64,
    /// Commits that were sent, by an upper bound of the commands in them, those below included; `+Inf` is all.
    pub(crate) sizes: BTreeMap<String, f64>,
}

impl Commits {
    /// What they say so far.
    pub(crate) async fn read(server: &Server) -> Self {
        let mut read = Self::default();
        for instance in server.running() {
            let metrics = instance.metrics().await;
            read.commands += metrics.sum("dais_commands_total", &[]);
            read.commits += metrics.sum("dais_commits_total", &[]);
            read.sent += metrics.sum("dais_commit_commands_sum", &[]);
            let buckets = metrics.samples.iter().filter(|it| it.name == "dais_commit_commands_bucket");
            for bucket in buckets {
                let bound = bucket.labels.get("le").cloned().unwrap_or_default();
                *read.sizes.entry(bound).or_default() += bucket.value;
            }
        }
        read
    }

    /// What came to it since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        self.commands -= before.commands;
        self.commits -= before.commits;
        self.sent -= before.sent;
        for (bound, count) in &mut self.sizes {
            *count -= before.sizes.get(bound).copied().unwrap_or_default();
        }
        self
    }

    /// Commands in one commit, in the mean; no number where there was no commit.
    pub(crate) fn batch(&self) -> f64 {
        self.sent / self.sizes.get("+Inf").copied().unwrap_or_default()
    }
}

/// Processor time of this process.
pub(crate) fn of_this_process() -> Duration {
    of_process(i32::try_from(std::process::id()).unwrap_or_default())
}

/// Processor time of Redis.
pub(crate) async fn of_redis(redis: &RedisServer) -> Duration {
    redis_cpu(&redis.command(&["INFO", "cpu"]).await.text())
}

/// Processor time of all its threads, by the scheduler's own account in nanoseconds.
pub(crate) fn of_process(pid: i32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a running process");
    let of_thread = |stat: String| stat.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok());
    let nanos = threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("schedstat")).ok())
        .filter_map(of_thread)
        .sum();
    Duration::from_nanos(nanos)
}

/// Time in which a processor of the machine did something, including for others.
fn of_machine() -> Duration {
    let stat = fs::read_to_string("/proc/stat").expect("Linux");
    let first: Vec<u64> = stat.lines().next().map_or_else(Vec::new, |line| {
        line.split_whitespace().skip(1).filter_map(|it| it.parse().ok()).collect()
    });
    // user nice system idle iowait irq softirq steal; what follows is counted in these already.
    let busy: u64 =
        first.iter().enumerate().filter(|(at, _)| !matches!(at, 3 | 4 | 8..)).map(|(_, it)| it).sum();
    Duration::from_micros(busy * 1_000_000 / rustix::param::clock_ticks_per_second())
}

fn redis_cpu(info: &str) -> Duration {
    let seconds = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.parse::<f64>().ok());
    let sum = seconds("used_cpu_user:").unwrap_or_default() + seconds("used_cpu_sys:").unwrap_or_default();
    Duration::from_secs_f64(sum)
}

fn commands(info: &str) -> BTreeMap<String, u64> {
    let command = |line: &str| {
        let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), figures.split(',').next()?.parse().ok()?))
    };
    info.lines().filter_map(command).filter(|(name, _)| name != "info").collect()
}

/// As many descriptors as the system allows, for this process and those that it starts.
pub(crate) fn allow_many_connections() {
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised stays as it is, and then a connection fails and says so.
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
