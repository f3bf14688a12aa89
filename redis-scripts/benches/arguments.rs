//! What it costs to put together what a script is called with. Nothing is sent.
//!
//! `cargo bench -p redis-scripts` tells how long, `make bench-instructions` how many instructions.

use std::time::Duration;

use divan::Bencher;
use key_prefix::{AppCode, Incarnation, Instance, InstanceName, Keys, Prefix, RoomId, RoomKey};
use redis_scripts::{
    Birth, CellChanges, CellVersion, Commit, Committing, FenceToken, Keep, Pin, RedisMillis, ReplyTo,
    SettingsVersion,
};

const ENTRY: &str = r#"{"events":[{"t":"joined","peer":{"peer":"peer-1","user":"ann","role":"guest"}}]}"#;
const PEER: &str =
    r#"{"peer":"peer-1","user":"ann","role":"guest","maxRole":"host","joinedAt":1700000000000}"#;

fn main() {
    divan::main();
}

/// Instructions are counted in here alone.
#[inline(never)]
fn measured<T>(path: impl FnOnce() -> T) -> T {
    path()
}

fn keys() -> Keys {
    Keys::new(Prefix::dev())
}

fn room() -> RoomKey {
    RoomKey::new(AppCode::new("school").expect("an app code"), RoomId::new("math-101").expect("a room id"))
}

fn me() -> Instance {
    Instance::new(InstanceName::new("one").expect("a name"), Incarnation::new(7))
}

fn command() -> Committing<'static> {
    Committing {
        entry: Some(ENTRY),
        answer: r#"{"ok":true}"#,
        keep: Some(Keep { caller: "ann", id: "request-1", digest: "0123456789abcdef" }),
        reply: Some(ReplyTo { instance: "two/9", number: "12" }),
        inbox: None,
        deadline: Some(RedisMillis::new(1_700_000_005_000)),
    }
}

fn join() -> CellChanges<'static> {
    CellChanges {
        set: vec![("room", r#"{"autoClose":false,"used":true,"locked":false,"status":"active"}"#)],
        peers_set: vec![("peer-1", PEER)],
        users_in: vec!["ann"],
        ..CellChanges::default()
    }
}

/// A commit of so many commands.
#[divan::bench(args = [1, 16])]
fn commit(bencher: Bencher<'_, '_>, commands: usize) {
    let (keys, room, me) = (keys(), room(), me());
    let (room_keys, commands, changes) = (keys.room(&room), vec![command(); commands], join());
    let with = Commit {
        me: &me,
        room: &room,
        keys: &room_keys,
        token: FenceToken::new(41),
        cv: CellVersion::new(1_234),
        batch: "one/7/1234",
        commands: &commands,
        changes: &changes,
        due: None,
        fanout: &[],
        lane_limit: 100_000,
    };
    bencher.bench_local(|| measured(|| with.call(&keys)));
}

/// A pin that makes its room of a first join.
#[divan::bench]
fn pin(bencher: Bencher<'_, '_>) {
    let (keys, room, me) = (keys(), room(), me());
    let (commands, changes) = ([command()], join());
    let settings = [("noiseReduction", r#""off""#.to_owned()), ("custom", "{}".to_owned())];
    let birth = Birth {
        settings: &settings,
        entry: "",
        sv: SettingsVersion::new(1),
        cv: CellVersion::new(0),
        lane_limit: 100_000,
        changes: &changes,
        commands: &commands,
        due: None,
    };
    let with = Pin {
        me: &me,
        room: &room,
        owner_ttl: Duration::from_secs(15),
        floor: FenceToken::new(0),
        renew: false,
        birth: Some(birth),
        open_only: false,
        deadline: Some(RedisMillis::new(1_700_000_005_000)),
    };
    bencher.bench_local(|| measured(|| with.call(&keys)));
}
