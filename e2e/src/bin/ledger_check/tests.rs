//! A small ledger that is sound, and every way in which it can be wrong.

use serde_json::{Value, json};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

use super::check;
use super::findings::Findings;

const TABLES: [&str; 2] = [
    include_str!("../../../../ledger/migrations/sqlite/0001_log.sql"),
    include_str!("../../../../ledger/migrations/sqlite/0002_outbox.sql"),
];

/// A ledger, a journal of its one client and what its one sink received.
struct World {
    folder: TempDir,
    journal: Vec<Value>,
    received: Vec<Value>,
}

/// Versions of the cell, with the command and the events of each.
fn cells() -> [(i64, &'static str, Value, &'static [&'static str]); 5] {
    let sits = json!({ "event": "confirmed", "seat": 1, "user": "ann", "session": "s" });
    let freed = json!({ "event": "seat_freed", "seat": 1, "user": "ann", "session": "s", "heardMs": 7 });
    [
        (1, "make", json!([{ "event": "made" }]), &["room.created"]),
        (2, "join", json!([{ "event": "joined", "arrived": true }]), &["user.joined"]),
        (3, "hear", json!([sits]), &["mic.started"]),
        (
            4,
            "down",
            json!([freed, { "event": "left", "user": "ann", "reason": "kicked" }]),
            &["mic.ended", "user.kicked", "user.left"],
        ),
        (5, "lock", json!([{ "event": "door_locked", "locked": true }]), &[]),
    ]
}

impl World {
    async fn sound() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("journals")).expect("an own folder");
        let mut world = Self { folder, journal: Vec::new(), received: Vec::new() };
        fs::write(world.file("ledger.db"), "").expect("an own file");
        for tables in TABLES {
            world.sql(tables).await;
        }
        world.sql("INSERT INTO rooms VALUES ('k', 'demo', 'math', 1, 10, 5, 2, 'active', 1, 1, 0, 0)").await;
        for (version, command, events, told) in cells() {
            let token = if version > 3 { 10 } else { 9 };
            let body = json!({ "id": command, "command": command, "events": events });
            let answer = json!({ "done": { "cell": version, "result": { "seat": 1 } } });
            world
                .sql(&format!(
                    "INSERT INTO log (room_key, counter, token, version, digest, kind, at_ms, owner, body, caller, \
                     command_id, answer_digest, answer, superseded) VALUES ('k', 0, {token}, {version}, 'd', 'cell', 1, \
                     'a/1', '{body}', 'user:ann', '{command}', 'x', '{answer}', 0)"
                ))
                .await;
            let ack = json!({ "ok": true, "version": { "cell": version }, "seat": 1 });
            world.acknowledged(command, "cell", version, &ack);
            for kind in told {
                world.told(kind, token, &json!({ "cell": version })).await;
            }
        }
        for (version, kind, told) in [(1, "settings", "settings.updated"), (2, "guest", "guest.updated")] {
            let body = json!({ "settings": { "mark": format!("m{version}") }, "guests": { "ann": { "mark": "m2" } } });
            world
                .sql(&format!(
                    "INSERT INTO log (room_key, counter, token, version, digest, kind, at_ms, owner, body, superseded) \
                     VALUES ('k', 1, 10, {version}, 'd', '{kind}', 1, 'a/1', '{body}', 0)"
                ))
                .await;
            world.acknowledged(&format!("m{version}"), kind, version, &json!({}));
            world.told(told, 10, &json!({ "settings": version })).await;
        }
        world
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.file("ledger.db").display())
    }

    async fn sql(&self, text: &str) {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(&self.url()).await.expect("a file");
        let text = AssertSqlSafe(text.to_owned());
        connection.execute(sqlx::raw_sql(text)).await.expect("good SQL");
        connection.close().await.expect("a connection that closes");
    }

    fn acknowledged(&mut self, id: &str, kind: &str, version: i64, ack: &Value) {
        let caller = "user:ann";
        let line = json!({ "room": "math", "caller": caller, "id": id, "kind": kind, "version": version, "ack": ack });
        self.journal.push(line);
    }

    /// Puts an event into the outbox, delivered.
    async fn told(&mut self, kind: &str, token: i64, version: &Value) {
        let seq = self.received.len() + 1;
        let id = format!("e{seq}");
        let data = json!({ "token": token, "version": version, "user": "ann", "session": "s" });
        let payload = json!({ "type": kind, "id": id, "data": data }).to_string();
        self.sql(&format!(
            "INSERT INTO outbox VALUES ({seq}, '{id}', 'demo:sink', 'demo', 'k', 'k', '{kind}', '{payload}', 1, 1, 1, \
             NULL, 1, 0, NULL)"
        ))
        .await;
        self.received.push(json!({ "id": id, "payload": payload, "seq": seq, "taken": true }));
    }

    async fn check(&self) -> Findings {
        let write = |name: &str, lines: &[Value]| {
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            fs::write(self.file(name), lines.join("\n")).expect("an own file");
        };
        write("journals/ann.jsonl", &self.journal);
        write("received.jsonl", &self.received);
        let checked = check(&self.url(), &self.file("journals"), &self.file("received.jsonl")).await;
        checked.unwrap_or_else(|error| panic!("{error}"))
    }

    /// There is a contradiction that says this.
    async fn contradicts(&self, what: &str) {
        let found = self.check().await.contradictions;
        assert!(found.iter().any(|line| line.contains(what)), "nothing says {what:?}: {found:#?}");
    }
}

#[tokio::test]
async fn what_is_sound_has_no_contradiction() {
    let findings = World::sound().await.check().await;
    assert!(findings.contradictions.is_empty(), "{:#?}", findings.contradictions);
    for (what, count) in [
        ("log rows", 7),
        ("acknowledged commands", 7),
        ("arrivals", 8),
        ("events implied", 8),
        ("beginnings", 3),
        ("endings", 2),
        ("still so at the end", 1),
    ] {
        assert_eq!(findings.counts.get(what), Some(&count), "{what}: {:?}", findings.counts);
    }
}

#[tokio::test]
async fn a_log_that_is_wrong_is_found() {
    for (sql, what) in [
        ("DELETE FROM log WHERE version = 3", "cell 4 under 10: a gap after version 2"),
        ("DELETE FROM log WHERE version = 3", "hear of user:ann, acknowledged at 3 is not in the log"),
        ("DELETE FROM log WHERE version = 3", "which is not in the log"),
        ("DELETE FROM log WHERE kind = 'guest'", "is not where its log ends"),
        ("UPDATE log SET token = 8 WHERE version = 3", "its token is lower than 9"),
        ("UPDATE log SET superseded = 1 WHERE version = 3", "acknowledged at 3 is superseded"),
        ("UPDATE log SET owner = '' WHERE version = 3", "has no owner"),
        ("UPDATE log SET token = 0 WHERE version < 3", "has no token"),
        ("UPDATE log SET answer = '{\"done\":{\"cell\":9}}' WHERE version = 3", "is kept"),
        ("UPDATE log SET answer = replace(answer, '\"seat\":1', '\"seat\":2') WHERE version = 3", "is kept"),
        ("UPDATE log SET answer = NULL WHERE version = 3", "is kept"),
        ("UPDATE log SET body = '{}' WHERE kind = 'settings'", "stands where another change is"),
        ("UPDATE log SET command_id = 'join' WHERE version = 3", "is there twice"),
        ("UPDATE log SET command_id = 'join' WHERE version = 3", "is in the log 2 times"),
        ("UPDATE log SET version = 6 WHERE version = 5", "stands elsewhere"),
        (
            "UPDATE log SET version = 4, digest = 'e' WHERE version = 5",
            "cell 4 under 10: a repeat after version 4",
        ),
        ("UPDATE log SET kind = 'state', version = 1, digest = 'e' WHERE version = 5", "it falls back"),
        ("UPDATE rooms SET gap = 1", "the ledger says that it lacks something"),
        ("DELETE FROM rooms", "and no such room"),
        ("INSERT INTO aside VALUES (1, 1, 'e', 'd', '{}', 'why', 1)", "1 entries were set aside"),
    ] {
        let world = World::sound().await;
        world.sql(sql).await;
        world.contradicts(what).await;
    }
}

#[tokio::test]
async fn versions_may_leap_with_a_whole_state_only() {
    let world = World::sound().await;
    world.sql("UPDATE log SET version = 9 WHERE version = 5; UPDATE rooms SET cv = 9").await;
    world.contradicts("cell 9 under 10: a gap after version 4").await;
    world.sql("UPDATE log SET kind = 'state', caller = NULL WHERE version = 9").await;
    let found = world.check().await.contradictions;
    let [only] = found.as_slice() else { panic!("{found:#?}") };
    assert!(only.contains("lock of user:ann, acknowledged at 5 is not in the log"), "{only}");
}

#[tokio::test]
async fn an_outbox_that_is_wrong_is_found() {
    for (sql, what) in [
        (
            "DELETE FROM outbox WHERE kind = 'user.joined'",
            "implies [\"user.joined\"], and demo:sink is told []",
        ),
        ("DELETE FROM outbox WHERE kind = 'user.joined'", "is not in the outbox"),
        ("DELETE FROM outbox WHERE kind = 'user.joined'", "ends what does not go on: ann"),
        ("DELETE FROM outbox WHERE kind = 'mic.started'", "ends what does not go on: s"),
        ("UPDATE outbox SET state = 0 WHERE seq = 3", "is still open"),
        ("UPDATE outbox SET payload = replace(payload, 'ann', 'bob') WHERE seq = 2", "was received as"),
        ("UPDATE outbox SET kind = 'mic.started' WHERE seq = 2", "implies [\"user.joined\"]"),
        ("UPDATE outbox SET seq = 20 WHERE seq = 2", "after a later one"),
        ("UPDATE outbox SET kind = 'user.joined' WHERE seq = 3", "begins what goes on"),
        (
            "UPDATE outbox SET payload = replace(payload, 'session', 'other') WHERE seq = 3",
            "does not say of what",
        ),
        (
            "UPDATE outbox SET payload = replace(payload, 'version', 'other') WHERE seq = 3",
            "says of no version",
        ),
        ("UPDATE outbox SET event_id = 'e9' WHERE seq = 3", "and was never taken"),
    ] {
        let world = World::sound().await;
        world.sql(sql).await;
        world.contradicts(what).await;
    }
}

#[tokio::test]
async fn what_was_seen_from_outside_is_believed() {
    let mut world = World::sound().await;
    world.journal[1]["id"] = json!("another");
    world.contradicts("another of user:ann, acknowledged at 2 is not in the log").await;

    let mut world = World::sound().await;
    world.received[4]["taken"] = json!(false);
    world.contradicts("and was never taken").await;
    let again = world.received[4].clone();
    world.received.push(again);
    world.received[8]["taken"] = json!(true);
    world.received[8]["seq"] = json!(9);
    let found = world.check().await;
    assert!(found.contradictions.is_empty(), "{:#?}", found.contradictions);
    assert_eq!(found.counts.get("arrivals again"), Some(&1));
    world.received[8]["payload"] = json!("{}");
    world.contradicts("came with two payloads").await;

    let mut world = World::sound().await;
    world.received.remove(4);
    world.contradicts("and was never taken").await;
    world.sql("UPDATE outbox SET state = 2 WHERE seq = 5").await;
    assert!(world.check().await.contradictions.is_empty(), "what was given up need not arrive");
}
