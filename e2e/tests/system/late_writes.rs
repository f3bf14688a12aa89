//! An owner that freezes with a decided commit on its way to Redis: what arrives late is refused.

use e2e::cluster::Cluster;
use e2e::driver::Driver;
use e2e::proxy::{Hold, Proxy};
use e2e::servers::{Flavor, RedisServer};
use e2e::wait::{self, SOON};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::clients::{assert_refused_for_now, code};
use crate::faults::freeze;
use crate::lane::Past;
use crate::stored::Stored;

const ROOM: &str = "voices";
const LATE: &str = "late-command";

/// A room of `a`, whose way to Redis can be held; `b` and `c` have their own.
struct Stage {
    cluster: Cluster,
    proxy: Proxy,
    driver: Arc<Driver>,
}

impl Stage {
    async fn set() -> Self {
        let redis = RedisServer::start(Flavor::Redis).await;
        let proxy = Proxy::start(redis.port()).await;
        let url = proxy.url();
        let cluster = Cluster::start_on(redis, 3, |options| match options.id() {
            "a" => options.text("redis", "url", &url),
            _ => options,
        })
        .await;
        let driver = Arc::new(Driver::start().await);
        for (user, role) in [("ann", "host"), ("ben", "guest")] {
            let fields = json!({ "role": role });
            let token = cluster.token(user, role);
            driver.join_with(user, &cluster[0].url(), &token, ROOM, fields).await.expect("joined");
        }
        let stage = Self { cluster, proxy, driver };
        assert_eq!(stage.stored().owner().await.expect("an owner").name(), "a");
        stage
    }

    fn stored(&self) -> Stored<'_> {
        Stored::room(&self.cluster.redis, ROOM)
    }

    fn ask(&self, conn: &str, name: &str, body: &Value) -> JoinHandle<Value> {
        let (driver, ask) = (
            Arc::clone(&self.driver),
            json!({ "conn": conn, "name": name, "body": body, "timeoutMs": 60_000 }),
        );
        tokio::spawn(async move { driver.ask("emit", ask).await.expect("an answer")["ack"].take() })
    }

    /// Freezes `a` with the commit of a command on its way.
    async fn freeze_with_a_commit(&self, conn: &str) -> JoinHandle<Value> {
        let mut sprung = self.proxy.trap(Hold::Request, LATE);
        let lock = json!({ "room": ROOM, "seat": 1, "locked": true, "id": LATE });
        let asked = self.ask(conn, "mic:lock", &lock);
        sprung.wait(SOON).await;
        freeze(&self.cluster[0]).await;
        asked
    }

    /// Somebody asks for something that is so already, until others have the room: its version is the same then.
    async fn taken_over(&self) -> String {
        let token = self.cluster.token("newcomer", "host");
        self.driver.connect("newcomer", &self.cluster[1].url(), &token).await.expect("connected");
        let owner = wait::eventually(SOON, || async {
            let nothing = json!({ "room": ROOM, "seat": 8, "locked": false });
            _ = self.driver.emit("newcomer", "mic:lock", nothing).await.expect("an answer");
            match self.stored().owner().await {
                Some(owner) if owner.name() != "a" => Ok(owner),
                other => Err(other),
            }
        });
        owner.await.name().to_owned()
    }

    /// Lets the late commit through, and waits until Redis has it.
    async fn release(&self) {
        let mut monitor = BufReader::new(
            TcpStream::connect(("127.0.0.1", self.cluster.redis.port())).await.expect("a running server"),
        );
        monitor.write_all(b"MONITOR\r\n").await.expect("sent");
        let mut line = String::new();
        monitor.read_line(&mut line).await.expect("an answer");
        assert_eq!(line, "+OK\r\n");
        self.proxy.release();
        tokio::time::timeout(SOON, async {
            while !line.contains(LATE) {
                line.clear();
                assert!(monitor.read_line(&mut line).await.expect("a line") > 0, "Redis is gone");
            }
        })
        .await
        .expect("the late commit comes to Redis");
    }

    /// Nothing of the late commit is anywhere, and its owner goes on from where it was.
    async fn nothing_of_it_is_left(&self, before: &Past) {
        let host = json!({ "room": ROOM, "seat": 2, "locked": true, "id": "later" });
        let ack = self.driver.emit("newcomer", "mic:lock", host).await.expect("an answer");
        assert_eq!(ack["ok"], true, "{ack}");
        let past = Past::read(&self.cluster.redis, ROOM).await;
        past.assert_sound();
        assert!(past.of_id(LATE).is_empty(), "{past:?}");
        assert_eq!(past.entries.len(), before.entries.len() + 1);
        assert_eq!(past.entries.last().expect("an entry").version, before.cell.version + 1);
        assert_eq!(past.cell.seats[&1], room_cell::Seat::default());
        // Its id is free: it was never executed.
        let again = json!({ "room": ROOM, "seat": 1, "locked": true, "id": LATE });
        let token = self.cluster.token("ann", "host");
        self.driver.connect("ann-at-c", &self.cluster[2].url(), &token).await.expect("connected");
        let ack = self.driver.emit("ann-at-c", "mic:lock", again).await.expect("an answer");
        assert_eq!(
            (&ack["ok"], &ack["version"]["cell"]),
            (&json!(true), &json!(before.cell.version + 2)),
            "{ack}"
        );
    }

    async fn people_are_told_to_move(&self, owner: &str) {
        for member in ["ann", "ben"] {
            let moved = self.driver.wait_named(member, "room:moved", SOON).await.body;
            assert_eq!((&moved["reason"], &moved["redirectInstance"]), (&json!("lease_lost"), &json!(owner)));
            let told = self.driver.events(member, Some("mic:update")).await;
            assert!(told.is_empty(), "{member} was told what was never committed: {told:?}");
        }
    }
}

#[tokio::test]
async fn i_1_i_3_i_13_a_commit_that_arrives_while_its_owner_is_frozen_is_refused() {
    let stage = Stage::set().await;
    let asked = stage.freeze_with_a_commit("ann").await;
    let owner = stage.taken_over().await;
    let before = Past::read(&stage.cluster.redis, ROOM).await;
    stage.release().await;
    stage.cluster[0].resume();
    let ack = asked.await.expect("asked");
    assert_refused_for_now(&ack, &["LEASE_LOST"]);
    stage.people_are_told_to_move(&owner).await;
    stage.nothing_of_it_is_left(&before).await;
}

#[tokio::test]
async fn i_1_i_3_i_13_a_commit_that_arrives_after_its_owner_woke_is_refused() {
    let stage = Stage::set().await;
    let asked = stage.freeze_with_a_commit("ann").await;
    let owner = stage.taken_over().await;
    let before = Past::read(&stage.cluster.redis, ROOM).await;
    stage.cluster[0].resume();
    let ack = asked.await.expect("asked");
    assert_refused_for_now(&ack, &["LEASE_LOST"]);
    stage.people_are_told_to_move(&owner).await;
    stage.release().await;
    stage.nothing_of_it_is_left(&before).await;
}

#[tokio::test]
async fn i_1_i_13_an_inbox_entry_that_a_frozen_owner_had_decided_is_executed_by_its_successor_alone() {
    let stage = Stage::set().await;
    let token = stage.cluster.token("far", "host");
    stage.driver.connect("far", &stage.cluster[2].url(), &token).await.expect("connected");
    let asked = stage.freeze_with_a_commit("far").await;
    let owner = stage.taken_over().await;
    let past = Past::wait(&stage.cluster.redis, ROOM, SOON, |past| !past.of_id(LATE).is_empty()).await;
    let ack = asked.await.expect("asked");
    let entry = past.of_id(LATE)[0];
    assert_eq!(ack["ok"], true, "{}: {ack}", code(&ack));
    assert_eq!(ack["version"]["cell"], entry.version);
    assert!(entry.owner.starts_with(&format!("{owner}/")), "{entry:?}");
    let seen = past.entries.len();
    stage.release().await;
    stage.cluster[0].resume();
    stage.people_are_told_to_move(&owner).await;
    let past = Past::read(&stage.cluster.redis, ROOM).await;
    past.assert_sound();
    assert_eq!((past.of_id(LATE).len(), past.entries.len()), (1, seen), "{past:?}");
}
