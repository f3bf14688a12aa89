//! One name, several processes: which of them is the instance.

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::wait::SOON;
use serde_json::{Value, json};
use std::time::Duration;

use crate::stored::{Stored, incarnations, named};
use key_prefix::KeyKind;

const ROOM: &str = "math-101";

async fn say(driver: &Driver, conn: &str, page: u64) {
    let settings = json!({ "room": ROOM, "settings": { "custom": { "page": page } } });
    let ack = driver.emit(conn, "room:update", settings).await.expect("an answer");
    assert_eq!(ack["ok"], true, "{ack}");
}

async fn host(driver: &Driver, url: &str, user: &str, cluster: &Cluster) -> Value {
    let fields = json!({ "role": "host" });
    driver.join_with(user, url, &cluster.token(user, "host"), ROOM, fields).await.expect("joined")
}

fn held(line: &str) -> Option<()> {
    line.contains("the instance name is held; waiting").then_some(())
}

#[tokio::test]
async fn i_1_i_2_a_process_restarted_under_its_name_does_not_own_what_it_owned() {
    // A time to live of 30 s: nobody can have noticed that it was gone.
    let slow = |options: CoordinatorOptions| {
        options.heartbeat(Duration::from_secs(10)).grace(Duration::from_secs(1))
    };
    let mut cluster = Cluster::start_with(2, slow).await;
    let driver = Driver::start().await;
    host(&driver, &cluster[0].url(), "ann", &cluster).await;
    host(&driver, &cluster[0].url(), "ben", &cluster).await;
    say(&driver, "ann", 7).await;
    let stored = Stored::room(&cluster.redis, ROOM);
    let before = stored.owner().await.expect("an owner");
    let versions = stored.versions().await;

    cluster[0].kill().await;
    cluster[0].restart().await;
    let stored = Stored::room(&cluster.redis, ROOM);
    let mut known = incarnations(&cluster.redis, "a").await;
    known.retain(|(instance, _)| *instance != before.instance);
    let [(reborn, _)] = &known[..] else { panic!("one new incarnation: {known:?}") };
    assert_eq!(stored.owner().await.as_ref(), Some(&before), "the lease still names the dead one");
    let owned = cluster.redis.command(&["EXISTS", &named(KeyKind::InstanceRooms, reborn)]).await;
    assert_eq!(owned.number(), Some(0));
    assert_eq!(cluster[0].metrics().await.sum("dais_rooms", &[]), 0.0);
    assert_eq!(stored.versions().await, versions);

    // To others it seems alive, so that they send people there; there a new lease is won.
    let answer = host(&driver, &cluster[1].url(), "cem", &cluster).await;
    assert_eq!((&answer["redirects"], &answer["url"]), (&json!(1), &json!(cluster[0].url())));
    let after = stored.owner().await.expect("an owner");
    assert_eq!(&after.instance, reborn);
    assert!(after.token > before.token, "{after:?} after {before:?}");
    let room = &answer["ack"]["room"];
    assert_eq!(room["owner"], json!({ "instance": "a", "token": after.token }));
    assert_eq!((&room["settings"]["custom"], &room["peerCount"]), (&json!({ "page": 7 }), &json!(3)));
    let gone = driver.wait_event("cem", 0, SOON, |event| event.body["peerCount"] == 1).await;
    assert_eq!(gone.name, "room:presence");
    assert_eq!(stored.peers().await, 1);
}

#[tokio::test]
async fn i_1_a_second_process_of_one_name_waits_and_then_ends_naming_the_first() {
    let cluster = Cluster::start(1).await;
    let driver = Driver::start().await;
    host(&driver, &cluster[0].url(), "ann", &cluster).await;
    let stored = Stored::room(&cluster.redis, ROOM);
    let owner = stored.owner().await.expect("an owner");

    let (second, _folder) = CoordinatorOptions::new("a", &cluster.redis.url()).spawn();
    second.line("line saying that it waits", 0, SOON, held).await;
    let status = second.exit(SOON).await;
    assert!(status.code().is_some_and(|code| code != 0), "{status}");
    let address = cluster[0].url().trim_start_matches("http://").to_owned();
    let first = format!("is held by {} at {address}", owner.instance);
    // The last lines of a process may be read after its end.
    second.line(&first, 0, SOON, |line| line.contains(&first).then_some(())).await;
    let said = second.log_lines().join("\n");
    assert!(!said.contains(r#""message":"ready""#), "{said}");

    assert_eq!(stored.owner().await.as_ref(), Some(&owner));
    assert_eq!(incarnations(&cluster.redis, "a").await.len(), 1);
    say(&driver, "ann", 2).await;
    let heard = driver.wait_named("ann", "room:update", SOON).await;
    assert_eq!(heard.body["settings"]["custom"], json!({ "page": 2 }));
}

#[tokio::test]
async fn i_1_a_second_process_of_one_name_takes_over_when_the_first_ends() {
    let cluster = Cluster::start(1).await;
    let driver = Driver::start().await;
    host(&driver, &cluster[0].url(), "ann", &cluster).await;
    say(&driver, "ann", 3).await;
    let stored = Stored::room(&cluster.redis, ROOM);
    let before = stored.owner().await.expect("an owner");

    let options = CoordinatorOptions::new("a", &cluster.redis.url());
    let (second, _folder) = options.value("lease", "failover_wait_ms", 60_000).spawn();
    second.line("line saying that it waits", 0, SOON, held).await;
    assert!(cluster[0].term(SOON).await.success());
    let listens = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["message"] == "ready")
            .then(|| format!("http://{}", line["listen"].as_str().unwrap_or_default()))
    };
    let second_url = second.line("line saying that it is ready", 0, SOON, listens).await;
    let answer = host(&driver, &second_url, "ben", &cluster).await;
    let after = stored.owner().await.expect("an owner");
    assert_eq!(after.name(), "a");
    assert!(after.instance != before.instance && after.token > before.token, "{after:?} after {before:?}");
    assert_eq!(answer["ack"]["room"]["settings"]["custom"], json!({ "page": 3 }));
}

#[tokio::test]
async fn i_1_a_superseded_instance_ends_and_touches_nothing() {
    let cluster = Cluster::start(1).await;
    let driver = Driver::start().await;
    host(&driver, &cluster[0].url(), "ann", &cluster).await;
    say(&driver, "ann", 4).await;
    let stored = Stored::room(&cluster.redis, ROOM);
    let before = stored.owner().await.expect("an owner");

    // Frozen for so long that its name is free again, and then back.
    cluster[0].pause();
    let second = CoordinatorOptions::new("a", &cluster.redis.url()).start().await;
    let answer = host(&driver, &second.url(), "ben", &cluster).await;
    assert_eq!(answer["ack"]["room"]["settings"]["custom"], json!({ "page": 4 }));
    let owner = stored.owner().await.expect("an owner");
    assert!(owner.instance != before.instance && owner.token > before.token, "{owner:?} after {before:?}");
    let versions = stored.versions().await;

    let since = cluster[0].process().log_length();
    cluster[0].resume();
    let status = cluster[0].process().exit(SOON).await;
    assert!(status.code().is_some_and(|code| code != 0), "{status}");
    let newer = "a newer incarnation of this instance is running";
    cluster[0].process().line(newer, since, SOON, |line| line.contains(newer).then_some(())).await;
    assert_eq!(stored.owner().await.as_ref(), Some(&owner));
    assert_eq!(stored.versions().await, versions);
    assert_eq!(second.process().exit_status(), None);
    let answer = host(&driver, &second.url(), "ann", &cluster).await;
    assert_eq!(answer["ack"]["room"]["owner"]["token"], owner.token);
}
