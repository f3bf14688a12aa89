//! The load bench: what an operation costs an instance, and Redis, under many connections at once.
//!
//! Each measurement has a server and a Redis of its own. A Node.js server of the same protocol is
//! measured in turn, where its packages are installed, and the two are compared by the pairs of a round. What takes
//! long is measured once, after the rounds. Building the server counts, and no further measurement begins that would not
//! end within about fifteen minutes.
//!
//! | variable | default | |
//! | --- | --- | --- |
//! | `DAIS_COORDINATOR` | a release build | the binary under load |
//! | `DAIS_PEER_DIR` | `e2e/peer` | the folder of the server to compare with (`npm ci` done there) |
//! | `DAIS_LOAD_ROUNDS` | 3 | rounds |
//! | `DAIS_LOAD_ONLY` | all | names of workloads, and `limits`, with commas between them |
//! | `DAIS_LOAD_QUICK` | none | `1`: one round of everything, so small that it only shows that it works; without the peer |
//!
//! The table goes to standard output, every single figure to `bench/load.json` of the target folder.

mod client;
mod crowd;
mod figures;
mod limits;
mod machine;
mod meter;
mod report;
mod server;
mod watch;
mod workloads;

use std::env;
use std::process::{Command, exit};
use std::time::Instant;
use tokio::task::LocalSet;

use limits::Limits;
use report::{Progress, Report};
use server::Kind;
use workloads::{ALL, Size, Workload};

/// More rounds would not end within the time that one waits for a bench.
const ROUNDS: std::ops::RangeInclusive<usize> = 1..=9;
/// What stands for the limits among the names of workloads.
const LIMITS: &str = "limits";

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime on this thread");
    if let Some((limits::BROADCASTER, rest)) = arguments.split_first().map(|(it, rest)| (it.as_str(), rest)) {
        runtime.block_on(limits::broadcaster(rest));
    }
    // `cargo test --all-targets` starts benches too, without this argument; a load test is none of its tests.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    meter::allow_many_connections();
    let begun = Instant::now();
    build_the_coordinator();
    LocalSet::new().block_on(&runtime, all(begun));
}

async fn all(begun: Instant) {
    let size = match env::var("DAIS_LOAD_QUICK").as_deref() {
        Err(_) | Ok("" | "0") => Size::Full,
        Ok(_) => Size::Quick,
    };
    let rounds = env::var("DAIS_LOAD_ROUNDS").ok().map_or(3, |text| text.parse().unwrap_or(0));
    if !ROUNDS.contains(&rounds) {
        fail(&format!("DAIS_LOAD_ROUNDS must be a number from {} to {}", ROUNDS.start(), ROUNDS.end()));
    }
    let rounds = size.of(rounds, 1);
    let with_peer = size == Size::Full && server::peer_folder().is_some();
    let kinds: &[Kind] = if with_peer { &[Kind::Dais, Kind::Peer] } else { &[Kind::Dais] };
    let (workloads, with_limits) = chosen();
    let mut report = Report {
        machine: machine::describe().await,
        size,
        rounds,
        limits: Limits::default(),
        runs: Vec::new(),
        failures: Vec::new(),
        left_out: 0,
    };
    let steps = |workload: &&Workload| {
        let kinds = kinds.iter().filter(|kind| workload.is_known_to(**kind)).count();
        kinds * if workload.is_once { 1 } else { rounds }
    };
    let all = workloads.iter().map(steps).sum();
    let mut progress = Progress::new(all, begun);
    // What takes long comes last.
    let turns = (0..rounds).map(|round| (round, false)).chain([(0, true)]);
    for (round, is_once) in turns {
        let is_over = |progress: &Progress| (round > 0 || is_once) && progress.is_late(is_once);
        if with_limits && !is_once && !is_over(&progress) {
            report.limits.measure(size).await;
        }
        for workload in workloads.iter().filter(|workload| workload.is_once == is_once) {
            // Before a pair, which is never torn.
            if is_over(&progress) {
                break;
            }
            for &kind in kinds.iter().filter(|kind| workload.is_known_to(**kind)) {
                let begun = Instant::now();
                // A task of its own: what goes wrong in one workload costs none of the others.
                let parts = tokio::task::spawn_local(workload.run(kind, size)).await;
                progress.step(round, workload.name, kind, begun.elapsed());
                match parts {
                    Ok(parts) => report.add(round, workload.name, kind, parts),
                    Err(_) => report.failures.push(format!("{} {}", workload.name, kind.name())),
                }
            }
        }
    }
    report.left_out = progress.left();
    report.print();
    report.save();
    if !report.failures.is_empty() {
        fail(&format!("not measured: {}", report.failures.join(", ")));
    }
}

/// The workloads that are asked for, and whether the limits are.
fn chosen() -> (Vec<&'static Workload>, bool) {
    let Ok(names) = env::var("DAIS_LOAD_ONLY") else { return (ALL.iter().collect(), true) };
    let known: Vec<_> = ALL.iter().map(|each| each.name).chain([LIMITS]).collect();
    let names: Vec<&str> = names.split(',').collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        fail(&format!("no workload {unknown:?}; there are {}", known.join(", ")));
    }
    (ALL.iter().filter(|each| names.contains(&each.name)).collect(), names.contains(&LIMITS))
}

/// Cargo builds no binary of another package for a bench.
fn build_the_coordinator() {
    if env::var_os("DAIS_COORDINATOR").is_some() {
        return;
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--release", "--package", "coordinator"]).status();
    if !built.is_ok_and(|status| status.success()) {
        fail("the coordinator could not be built; name a binary in DAIS_COORDINATOR");
    }
}

#[expect(clippy::print_stderr, reason = "the bench is a command")]
fn fail(why: &str) -> ! {
    eprintln!("error: {why}");
    exit(2)
}
