//! `coordinator dev`, which `make run` starts: what a newcomer sees, and what is left behind.

use e2e::driver::Driver;
use e2e::process::Process;
use e2e::wait::{self, SOON};
use e2e::{http, place};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};
use tempfile::TempDir;

use super::browsers::{PATIENCE, Pages};
use super::ledger::LEAP;

const STARTED: Duration = Duration::from_secs(60);
/// A drain may take its time where Redis went first.
const ENDED: Duration = Duration::from_secs(60);

struct Dev {
    process: Process,
    urls: [String; 2],
    // Removed after the process is gone.
    data: TempDir,
}

fn binary() -> PathBuf {
    env::var_os("DAIS_COORDINATOR").map_or_else(|| place::profile().join("coordinator"), PathBuf::from)
}

fn command(data: &TempDir) -> Command {
    // In a group of its own, as a shell starts it.
    let mut command = Command::new("setsid");
    command.arg(binary()).args(["dev", "--listen", "127.0.0.1:0", "--second-listen", "127.0.0.1:0"]);
    command.arg("--data").arg(data.path()).current_dir(data.path());
    command
}

impl Dev {
    async fn start() -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary folder")).await
    }

    async fn start_in(data: TempDir) -> Self {
        let process = Process::start("dev", command(&data));
        let url = async |before: &str| {
            let found =
                |line: &str| Some(line.split_once(before)?.1.trim().strip_suffix("/console/")?.to_owned());
            process.line(before, 0, STARTED, found).await
        };
        let urls = [url("Dais is running: open ").await, url("a second instance is beside it: ").await];
        Self { process, urls, data }
    }

    /// Ends it as a terminal does, and leaves its folder.
    async fn end(self) -> TempDir {
        let family = self.family();
        interrupt(&self.process);
        let status = self.process.exit(ENDED).await;
        assert!(status.success(), "{status}: {:#?}", self.process.log_lines());
        all_gone(&family).await;
        self.data
    }

    /// A token as the console gets one.
    async fn token(&self, user: &str, role: &str) -> String {
        let (wish, url) = (json!({ "user": user, "role": role }), format!("{}/console/token", self.urls[0]));
        let headers = [("content-type", "application/json")];
        let given = http::request("POST", &url, &headers, &wish.to_string()).await.expect("an answer");
        given.json()["token"].as_str().expect("a token").to_owned()
    }

    /// Redis and both instances.
    fn family(&self) -> Vec<Member> {
        let family = children(self.process.pid());
        assert_eq!(family.len(), 3, "{family:?}");
        family
    }
}

/// A process and when it started, so that another one with its pid is not taken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    pid: i32,
    name: String,
    started: String,
}

/// A process that is not just a note of how it ended.
fn member(pid: i32) -> Option<(i32, Member)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    let name = head.split_once('(')?.1.to_owned();
    Some((fields.get(1)?.parse().ok()?, Member { pid, name, started: (*fields.get(19)?).to_owned() }))
}

fn children(parent: i32) -> Vec<Member> {
    let pids = fs::read_dir("/proc").expect("the list of processes").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(member).filter(|(of, _)| *of == parent).map(|(_, member)| member).collect()
}

/// What a terminal sends to all that run in it.
fn interrupt(process: &Process) {
    let group = rustix::process::Pid::from_raw(process.pid()).expect("a process that runs");
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).expect("a group of its own");
}

async fn all_gone(family: &[Member]) {
    wait::eventually(ENDED, || async {
        let left: Vec<_> =
            family.iter().filter(|it| member(it.pid).is_some_and(|(_, now)| now == **it)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test]
async fn two_tabs_hear_each_other_and_see_a_setting_changed_at_the_other_instance() {
    let dev = Dev::start().await;
    let pages = Pages::start().await;
    let browser = pages.browser();
    let [first, second] = &dev.urls;
    pages.open("ann", &format!("{first}/console/?room=math&user=ann&auto=1")).await;
    pages.is_in_with("ann", &["ann"]).await;
    // This page came from the instance that does not own the room, and is sent to the one that does.
    pages.open("bob", &format!("{second}/console/?room=math&user=bob&auto=1")).await;
    for page in ["ann", "bob"] {
        pages.is_in_with(page, &["ann", "bob"]).await;
        assert_eq!(browser.text(page, "[data-testid=owner-instance]").await.unwrap(), "a");
    }
    assert_eq!(pages.value("bob", "window.dais.state.redirects").await, 1);
    pages.hears("ann", "bob").await;
    pages.hears("bob", "ann").await;

    pages.click("ann", "elsewhere-apply").await;
    for page in ["ann", "bob"] {
        pages
            .truth(page, "document.querySelector('[data-testid=set-noiseReduction]').value === 'near_field'")
            .await;
    }
    let said = "document.querySelector('[data-testid=elsewhere-result]').textContent";
    assert_eq!(pages.truth("ann", said).await, "b accepted near_field");
    for page in ["ann", "bob"] {
        assert_eq!(browser.text(page, "[data-testid=error]").await.unwrap(), "");
    }
}

#[tokio::test]
async fn a_terminal_s_interrupt_ends_everything_in_order() {
    let (dev, driver) = (Dev::start().await, Driver::start().await);
    let family = dev.family();
    driver.join("ann", &dev.urls[0], &dev.token("ann", "host").await, "math").await.unwrap();
    interrupt(&dev.process);
    let status = dev.process.exit(ENDED).await;
    assert!(status.success(), "{status}: {:#?}", dev.process.log_lines());
    all_gone(&family).await;
    driver.wait_named("ann", "room:moved", SOON).await;
    // It gave its room back, which takes a Redis that is still there.
    let drained = |line: &str| {
        let said: Value = serde_json::from_str(line.strip_prefix("a ")?).ok()?;
        (said["message"] == "drained").then_some(said)
    };
    let drained = dev.process.line("word of a drain", 0, SOON, drained).await;
    assert_eq!((&drained["rooms"], &drained["left_behind"]), (&json!(1), &json!(0)), "{drained}");
}

/// `ann` comes in, and finds what she left: her settings, five seats with one of them locked, and `eve` kept out.
async fn found_again(dev: &Dev, driver: &Driver, conn: &str) -> Value {
    let (ann, eve) = (dev.token("ann", "host").await, dev.token("eve", "guest").await);
    let joined = driver.join_with(conn, &dev.urls[1], &ann, "math", json!({ "role": "host" })).await;
    let room = joined.expect("joined")["ack"]["room"].take();
    assert_eq!(room["settings"]["custom"], json!({ "lesson": 7 }), "{room}");
    assert_eq!(room["seats"][1]["state"], "locked", "{room}");
    assert_eq!(
        (room["seats"].as_array().map(Vec::len), &room["creator"]),
        (Some(5), &json!("ann")),
        "{room}"
    );
    let refusal = driver.join(&format!("eve of {conn}"), &dev.urls[0], &eve, "math").await;
    assert_eq!(refusal.expect_err("she was put out").code(), "BANNED");
    room
}

#[tokio::test]
async fn i_13_what_was_made_is_there_after_a_restart_and_even_without_redis_s_files() {
    let (dev, driver) = (Dev::start().await, Driver::start().await);
    let ann = dev.token("ann", "host").await;
    driver.join_with("ann", &dev.urls[0], &ann, "math", json!({ "role": "host" })).await.unwrap();
    for (event, body) in [
        ("room:update", json!({ "room": "math", "settings": { "custom": { "lesson": 7 } } })),
        ("mic:seats", json!({ "room": "math", "count": 5 })),
        ("mic:lock", json!({ "room": "math", "seat": 2, "locked": true })),
        ("room:kick", json!({ "room": "math", "user": "eve" })),
    ] {
        let ack = driver.emit("ann", event, body).await.unwrap();
        assert_eq!(ack["ok"], true, "{event}: {ack}");
    }
    let counters = |room: &Value| {
        let number = |value: &Value| value.as_u64().expect("a number");
        let version = &room["version"];
        (number(&room["owner"]["token"]), number(&version["settings"]), number(&version["cell"]))
    };

    let dev = Dev::start_in(dev.end().await).await;
    let first = counters(&found_again(&dev, &driver, "first").await);
    // Redis had everything, as it happens: who starts again cannot know.
    assert!(first.1 > LEAP && first.2 > LEAP && first.1 < 2 * LEAP, "one leap: {first:?}");

    let data = dev.end().await;
    fs::remove_dir_all(data.path().join("redis")).unwrap();
    let dev = Dev::start_in(data).await;
    let second = counters(&found_again(&dev, &driver, "second").await);
    assert!(second.0 > first.0, "{second:?} after {first:?}");
    assert!(second.1 > first.1 && second.2 > first.2, "no version twice: {second:?} after {first:?}");

    let dev = Dev::start_in(dev.end().await).await;
    let third = counters(&found_again(&dev, &driver, "third").await);
    assert!(third.0 > second.0 && third.1 > second.1 && third.2 > second.2, "{third:?} after {second:?}");
}

#[tokio::test]
async fn nothing_outlives_a_killed_dev() {
    let mut dev = Dev::start().await;
    let family = dev.family();
    dev.process.kill().await;
    all_gone(&family).await;
}

#[tokio::test]
async fn a_second_dev_in_the_same_folder_is_refused() {
    let dev = Dev::start().await;
    let second = Process::start("second", command(&dev.data));
    let why = |line: &str| line.contains("is in use by another `coordinator dev`").then_some(());
    second.line("refusal", 0, PATIENCE, why).await;
    assert!(!second.exit(PATIENCE).await.success());
    assert!(dev.process.exit_status().is_none());
}
