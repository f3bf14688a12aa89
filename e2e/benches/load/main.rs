//! The load bench: what an operation costs an instance, and Redis, under many connections at once.
//!
//! Each measurement has a server and a Redis of its own. With `DAIS_PEER_DIR` naming the folder of a Node.js
//! server of the same protocol, the two are measured in turn, and compared by the pairs of a round.
//!
//! | variable | default | |
//! | --- | --- | --- |
//! | `DAIS_COORDINATOR` | a release build | the binary under load |
//! | `DAIS_PEER_DIR` | none | the folder of the server to compare with (`npm ci` done there) |
//! | `DAIS_LOAD_ROUNDS` | 3 | rounds |
//! | `DAIS_LOAD_ONLY` | all | names of workloads, with commas between them |
//!
//! The table goes to standard output, every single figure to `bench/load.json` of the target folder.

mod callbacks;
mod client;
mod crowd;
mod figures;
mod meter;
mod report;
mod server;
mod workload;

use std::env;
use std::process::{Command, exit};
use tokio::task::LocalSet;

use report::Run;
use server::Kind;
use workload::Workload;

/// More rounds would not end within the time that one waits for a bench.
const ROUNDS: std::ops::RangeInclusive<usize> = 1..=9;

fn main() {
    // `cargo test --all-targets` starts benches too, without this argument; a load test is none of its tests.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    meter::allow_many_connections();
    build_the_coordinator();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime on this thread");
    LocalSet::new().block_on(&runtime, all());
}

async fn all() {
    let rounds = env::var("DAIS_LOAD_ROUNDS").ok().map_or(3, |text| text.parse().unwrap_or(0));
    if !ROUNDS.contains(&rounds) {
        fail(&format!("DAIS_LOAD_ROUNDS must be a number from {} to {}", ROUNDS.start(), ROUNDS.end()));
    }
    let workloads = chosen();
    let kinds: &[Kind] =
        if server::peer_folder().is_some() { &[Kind::Dais, Kind::Peer] } else { &[Kind::Dais] };
    let mut runs: Vec<Run> = Vec::new();
    for round in 0..rounds {
        for workload in &workloads {
            for &kind in kinds.iter().filter(|kind| workload.is_known_to(**kind)) {
                let figures = workload.run(kind).await;
                let run = Run { round, kind, workload: *workload, figures };
                report::progress(&run);
                runs.push(run);
            }
        }
    }
    report::table(&workloads, &runs);
    report::save(&runs);
}

fn chosen() -> Vec<Workload> {
    let Ok(names) = env::var("DAIS_LOAD_ONLY") else { return Workload::ALL.to_vec() };
    let known: Vec<_> = Workload::ALL.iter().map(|each| each.name()).collect();
    let find = |name: &str| Workload::ALL.into_iter().find(|each| each.name() == name);
    names
        .split(',')
        .map(|name| {
            find(name)
                .unwrap_or_else(|| fail(&format!("no workload {name:?}; there are {}", known.join(", "))))
        })
        .collect()
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
