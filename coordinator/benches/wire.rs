//! What it costs an instance to prove who asks, to check what they send, and to put into JSON what they are told.
//!
//! `cargo bench -p coordinator` tells how long. The argument is how many people are in the room.

use std::time::Duration;

use coordinator::auth::{MintRequest, TokenRole, Verifier};
use coordinator::classroom::settings::{NAMES, SettingsPatch, default_of};
use coordinator::config::{Config, Overrides};
use coordinator::room::batch::{Batch, Source, Step};
use coordinator::room::projection::Projection;
use coordinator::room::snapshot::{Heading, Snapshot};
use divan::Bencher;
use key_prefix::{AppCode, UserId};
use room_cell::{Actor, Cell, Command, Devices, Joining, Limits, Millis, Role, Rules, decide};
use serde_json::{Map, Value, json};

/// People in the room.
const PEOPLE: [usize; 2] = [10, 200];
const NOW: Millis = Millis(1_700_000_000_000);
const NOW_S: u64 = NOW.0 / 1_000;
const RULES: Rules = Rules {
    devices: Devices::Replace,
    publish_deadline_ms: 15_000,
    ring_ms: 45_000,
    transition_ms: 15_000,
    clock_tolerance_ms: 1_000,
    external_media: false,
    live_list: true,
};
const CONFIGURATION: &str = r#"
[instance]
id = "one"
[redis]
key_prefix = "bench"
[[app]]
code = "school"
secret = "0123456789abcdef0123456789abcdef"
"#;

fn main() {
    divan::main();
}

fn actor(number: usize) -> Actor {
    Actor::User { user: format!("user-{number:04}").as_str().into(), max_role: Role::Host, peer: None }
}

fn joining(number: usize) -> Command {
    Command::Join(Box::new(Joining {
        peer: format!("peer-{number:04}").as_str().into(),
        role: if number == 0 { Role::Host } else { Role::Guest },
        name: Some("Somebody".into()),
        avatar: None,
        attributes: Map::new(),
        device: None,
        media: None,
        resume: "0123456789abcdef0123456789abcdef".into(),
        resumes: None,
        away: Vec::new(),
    }))
}

fn step(actor: Actor, command: Command) -> Step {
    Step::new(command.validate(actor, &Limits::default()).expect("a command within limits"), Source::Own)
}

/// An active room of eight seats.
fn room_of(people: usize) -> Cell {
    let mut cell = Cell::default();
    let create = (actor(0), Command::Create { seats: 8, capacity: None, auto_close: false });
    for (actor, command) in [create].into_iter().chain((0..people).map(|it| (actor(it), joining(it)))) {
        let order = command.validate(actor, &Limits::default()).expect("a command within limits");
        cell.advance(&decide(&cell, &order, &RULES, NOW).expect("a command that is not refused"));
    }
    cell
}

#[divan::bench(args = PEOPLE)]
fn snapshot(bencher: Bencher<'_, '_>, people: usize) {
    let cell = room_of(people);
    let settings = NAMES.iter().map(|name| ((*name).to_owned(), default_of(name))).collect();
    let room = Projection { settings, ..Projection::default() };
    let heading = Heading { app: "school", id: "math-101", owner: "one", token: 41 };
    bencher.bench_local(|| {
        serde_json::to_string(&Snapshot::new(heading, &room, &cell)).expect("a snapshot is JSON")
    });
}

/// A join into a room, as those who are there are told.
#[divan::bench(args = PEOPLE)]
fn delta_of_a_join(bencher: Bencher<'_, '_>, people: usize) {
    let steps = vec![step(actor(people), joining(people))];
    let batch = Batch::stage("one/7/1".to_owned(), &room_of(people), steps, &RULES, NOW);
    bencher.bench_local(|| batch.fanout(&batch.delta(), r#""school math-101""#).expect("a new version"));
}

/// As many joins as a commit takes, decided and put into the form of its script.
#[divan::bench(args = PEOPLE)]
fn batch_of_joins(bencher: Bencher<'_, '_>, people: usize) {
    let cell = room_of(people);
    bencher
        .with_inputs(|| (people..people + 16).map(|it| step(actor(it), joining(it))).collect())
        .bench_local_values(|steps| {
            let batch = Batch::stage("one/7/1".to_owned(), &cell, steps, &RULES, NOW);
            let _ = divan::black_box(batch.prepare());
            batch
        });
}

#[divan::bench]
fn token_is_proved(bencher: Bencher<'_, '_>) {
    let config = Config::from_text("bench", CONFIGURATION, &Overrides::default(), []);
    let config = config.expect("a configuration");
    let verifier = Verifier::new(&config.apps);
    let request = MintRequest {
        app: AppCode::new("school").expect("an app code"),
        user: UserId::new("ann").expect("a user id"),
        role: TokenRole::Host,
        room: None,
        name: Some("Ann".to_owned()),
        auth_version: None,
        admin: false,
        ttl: Duration::from_secs(600),
    };
    let token = verifier.mint(&request, NOW_S).expect("a token");
    bencher.bench_local(|| verifier.verify(&token, NOW_S).expect("a token that is taken"));
}

#[divan::bench]
fn settings_patch_is_checked(bencher: Bencher<'_, '_>) {
    let patch = json!({
        "vad": { "threshold": 0.7, "silenceDurationMs": 800 }, "noiseReduction": "far_field", "custom": { "topic": "primes" },
    });
    let Value::Object(patch) = patch else { return };
    bencher
        .with_inputs(|| patch.clone())
        .bench_local_values(|raw| SettingsPatch::validate(raw, 8).expect("a patch that is taken"));
}
