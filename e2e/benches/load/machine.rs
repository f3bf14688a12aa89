//! Where and with what it was measured.

use e2e::servers::{Flavor, RedisServer};
use serde_json::{Value, json};
use std::process::Command;
use std::{env, fs, thread};

/// Names and versions, as texts.
pub(crate) async fn describe() -> Value {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let redis = RedisServer::start(Flavor::Redis).await;
    let info = redis.command(&["INFO", "server"]).await.text();
    let redis = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    json!({
        "cpu": model.map_or("unknown", |(_, name)| name),
        "cpus": thread::available_parallelism().map_or(0, usize::from).to_string(),
        "kernel": said("uname", &["-sr"]),
        "redis": redis.unwrap_or("unknown"),
        "node": said("node", &["--version"]),
        "rustc": said("rustc", &["--version"]),
        "dais": format!("{} ({})", env!("CARGO_PKG_VERSION"), said("git", &["rev-parse", "--short", "HEAD"])),
        "date": said("date", &["-u", "+%F"]),
    })
}

/// The first line that a program says, where it is there.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(e2e::place::repository()).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let text =
        String::from_utf8_lossy(&text.unwrap_or_default()).lines().next().unwrap_or_default().to_owned();
    if text.is_empty() { "unknown".to_owned() } else { text }
}
