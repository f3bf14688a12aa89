//! The project's own checks and build steps, behind `cargo xtask`.
//!
//! What a rule in `CONTRIBUTING.md` promises, something here refuses. Every check is a function from
//! the text of the tree to a list of problems, so that its tests need neither a disk nor a shell:
//!
//! - [`tidy`]: rules over the whole tree (keys, clocks, sizes, first pages, direction of dependencies);
//! - [`lua`]: each script's header against its body;
//! - [`invariants`]: which test carries which invariant of `ARCHITECTURE.md`;
//! - [`instructions`]: what the core paths execute, against what they did;
//! - [`performance`]: the page of figures, from a run of the load bench;
//! - [`steps`]: what `make lint` and `make test` run, in order, with the time each took;
//! - [`npm`]: installs and builds the JavaScript side, only where something changed.
//!
//! Its input is the tree and its output is text for people, so it prints.
//! A check that finds something prints `file:line: message` and exits with 1.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod instructions;
mod invariants;
mod lua;
mod npm;
mod performance;
mod problem;
mod rust_source;
mod steps;
mod tidy;
mod tree;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::problem::Problem;
use crate::tree::Tree;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks and build steps of this repository")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Rules over the whole tree.
    Tidy,
    /// Headers of the Lua scripts against their bodies.
    CheckLua,
    /// Which tests carry which invariant.
    Invariants,
    /// Build the pages that the instance serves, if they changed.
    Console,
    /// Install the Node.js server that the load bench compares with, if it changed.
    Peer,
    /// Rust, TypeScript and JavaScript into their usual form.
    Format,
    /// The load bench, then its page.
    Bench {
        /// Write it into `docs/`, not into the target folder.
        #[arg(long)]
        record: bool,
    },
    /// The page of figures from a run of the load bench.
    Performance {
        /// What the bench wrote; page and charts of `docs/` are made of it.
        #[arg(required_unless_present = "check")]
        run: Option<PathBuf>,
        /// Say what in `docs/` does not come of the run there.
        #[arg(long, conflicts_with = "run")]
        check: bool,
    },
    /// Instructions of the core paths, against the record.
    BenchInstructions {
        /// Write the record anew.
        #[arg(long)]
        record: bool,
    },
    /// Everything that reads the code without running it.
    Lint,
    /// `lint`, then every test.
    Test,
}

fn main() -> ExitCode {
    match perform(&Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: &Task) -> anyhow::Result<ExitCode> {
    // Asked now, not when this was compiled: two clones may share one target folder.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").context("run it as `cargo xtask`")?;
    let root = Path::new(&manifest).parent().context("xtask stands in no workspace")?;
    match task {
        Task::Tidy => return Ok(report("tidy", &tidy::problems(&Tree::read(root)?))),
        Task::CheckLua => return Ok(report("check-lua", &lua::problems(&Tree::read(root)?))),
        Task::Invariants => print!("{}", invariants::Coverage::of(&Tree::read(root)?)),
        Task::Console => npm::console(root)?,
        Task::Peer => npm::peer(root)?,
        Task::Format => steps::format(root)?,
        Task::Bench { record } => steps::bench(root, *record)?,
        Task::Performance { run: Some(run), .. } => {
            performance::write(root, run, &performance::Into::Docs)?;
        }
        Task::Performance { run: None, .. } => {
            let mut problems = Vec::new();
            performance::check(&Tree::read(root)?, &mut problems);
            return Ok(report("performance", &problems));
        }
        Task::BenchInstructions { record } => instructions::check(root, *record)?,
        Task::Lint => steps::lint(root)?,
        Task::Test => {
            steps::lint(root)?;
            steps::test(root)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn report(check: &str, problems: &[Problem]) -> ExitCode {
    for problem in problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("{check}: {} problem(s)", problems.len());
    ExitCode::FAILURE
}
