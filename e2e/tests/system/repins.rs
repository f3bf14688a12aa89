//! An instance whose rooms lose their leases all at once has them again, at a pace that leaves Redis to others.

use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::proxy::{Hold, Proxy};
use e2e::servers::{Flavor, RedisServer};
use e2e::wait::{self, SOON};
use key_prefix::KeyKind;
use serde_json::json;
use std::time::Duration;

use crate::clients::insist;
use crate::stored::of_room;

const ROOMS: usize = 200;
/// Rooms that are pinned again at a time.
const AT_ONCE: usize = 64;

fn room(number: usize) -> String {
    format!("room-{number}")
}

/// One command for all rooms' leases at one moment, and how many of them it found.
async fn leases(redis: &RedisServer, command: &str) -> usize {
    let keys: Vec<String> = (0..ROOMS).map(|number| of_room(KeyKind::Owner, &room(number))).collect();
    let mut words = vec![command];
    words.extend(keys.iter().map(String::as_str));
    let found = redis.command(&words).await.number().expect("a number");
    usize::try_from(found).expect("a count")
}

#[tokio::test]
async fn rooms_that_lost_their_leases_are_pinned_again_in_turn_and_heartbeats_do_not_wait_for_them() {
    let redis = RedisServer::start(Flavor::Redis).await;
    let proxy = Proxy::start(redis.port()).await;
    let url = proxy.url();
    let change = |options: CoordinatorOptions| {
        let options = options.heartbeat(Duration::from_secs(4)).text("redis", "url", &url);
        let options = options.value("redis", "command_timeout_ms", 2_500);
        let options = options.value("limits", "rooms_per_connection", 1_000);
        options.value("limits", "events_per_second", 10_000).value("limits", "joins_per_second", 10_000)
    };
    let cluster = Cluster::start_on(redis, 1, change).await;
    let driver = Driver::start().await;
    driver.connect("ann", &cluster[0].url(), &cluster.token("ann", "host")).await.expect("connected");
    for number in 0..ROOMS {
        let joined = driver.emit("ann", "room:join", json!({ "room": room(number) })).await.expect("an ack");
        assert_eq!(joined["ok"], true, "{joined}");
    }
    // What a pin of a room that may be lost says of it. None is answered.
    let mut sprung = proxy.trap(Hold::AnswersAlone, "rebuilding");
    assert_eq!(leases(&cluster.redis, "DEL").await, ROOMS);
    sprung.wait(SOON).await;
    let beats = async || cluster[0].metrics().await.sum("dais_heartbeats_total", &[("result", "ok")]);
    let before = beats().await;
    let found = wait::eventually(SOON, || async {
        let found = leases(&cluster.redis, "EXISTS").await;
        if found >= AT_ONCE { Ok(found) } else { Err(found) }
    })
    .await;
    assert_eq!(found, AT_ONCE, "the rest waits until one of them is answered");
    wait::until("the heartbeat goes on", SOON, || async { beats().await > before }).await;

    proxy.release();
    wait::until("all of them are owned again", SOON, || async {
        leases(&cluster.redis, "EXISTS").await == ROOMS
    })
    .await;
    for number in [0, ROOMS / 2, ROOMS - 1] {
        let ack = insist(&driver, "ann", "room:heartbeat", &json!({ "room": room(number) })).await;
        assert_eq!(ack["ok"], true, "{ack}");
    }
}
