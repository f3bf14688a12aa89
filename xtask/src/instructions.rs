//! Instructions of the core paths, counted by callgrind and compared with what the tree says they were.
//!
//! The benches of [`BENCHES`] are built as released, their dependencies from elsewhere as tests are (and so not again).
//! Each path runs [`TIMES`] times; what counts is the median of what was executed within the benches' `measured`,
//! which no other program, clock or address changes. Another compiler or library of C may: the comparison is
//! made only where both are those of the record.

mod callgrind;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::steps;

/// What the paths took, as committed.
const RECORD: &str = "docs/instructions.json";
/// Packages, and the bench of each.
const BENCHES: [(&str, &str); 3] =
    [("key-prefix", "keys"), ("redis-scripts", "arguments"), ("room-cell", "cell")];
/// How the packages are compiled.
const RELEASED: [&str; 4] =
    ["opt-level=3", "codegen-units=1", "debug-assertions=false", "overflow-checks=false"];
/// So often that the state of the heap does not decide.
const TIMES: usize = 8;
/// What a path may take more, or less, before it is said, in percent.
const TOLERANCE: u64 = 5;

/// Instructions by path, and what they depend on beside the code.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    rustc: String,
    target: String,
    /// Stands for the system that it comes with: its memory allocator is part of each path.
    valgrind: String,
    paths: BTreeMap<String, u64>,
}

/// Whether there is anything to count with.
pub(crate) fn can_count() -> bool {
    let asked =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Counts, and compares with the record; or, with `anew`, writes it.
pub(crate) fn check(root: &Path, anew: bool) -> anyhow::Result<()> {
    let (rustc, target) = compiler(root)?;
    let valgrind = said(root, "valgrind", &["--version"])?.trim().to_owned();
    let recorded = recorded(root);
    if let (false, Ok(recorded)) = (anew, &recorded) {
        let then = [&recorded.rustc, &recorded.target, &recorded.valgrind];
        if then != [&rustc, &target, &valgrind] {
            let [was_rustc, was_target, was_valgrind] = then;
            println!("   NOT CHECKED: counted with {was_rustc}, {was_valgrind} for {was_target};");
            println!("   here are {rustc}, {valgrind} for {target}");
            return Ok(());
        }
    }
    let mut paths = BTreeMap::new();
    for program in build(root)? {
        paths.extend(callgrind::count(&program, TIMES)?);
    }
    if anew {
        let text = serde_json::to_string_pretty(&Record { rustc, target, valgrind, paths })?;
        return fs::write(root.join(RECORD), text + "\n").context(RECORD);
    }
    let comparison = Comparison::of(&recorded?.paths, &paths);
    print!("{}", comparison.lines.join(""));
    if comparison.improved {
        println!("   less than recorded: `make bench-instructions RECORD=yes` keeps it so");
    }
    ensure!(
        !comparison.failed,
        "not as recorded; if that is meant, `make bench-instructions RECORD=yes` writes {RECORD}"
    );
    Ok(())
}

fn recorded(root: &Path) -> anyhow::Result<Record> {
    let text = fs::read_to_string(root.join(RECORD)).context(RECORD)?;
    serde_json::from_str(&text).context(RECORD)
}

/// What differs by more than is tolerated.
#[derive(Debug, Default, PartialEq)]
struct Comparison {
    lines: Vec<String>,
    failed: bool,
    improved: bool,
}

impl Comparison {
    fn of(recorded: &BTreeMap<String, u64>, counted: &BTreeMap<String, u64>) -> Self {
        let mut comparison = Self::default();
        for (path, &now) in counted {
            let Some(&then) = recorded.get(path) else {
                comparison.fails(format!("   {path}: {now}, and not recorded\n"));
                continue;
            };
            let change = (as_f64(now) / as_f64(then) - 1.0) * 100.0;
            let line = format!("   {path}: {then} instructions, now {now} ({change:+.1} %)\n");
            if now * 100 > then * (100 + TOLERANCE) {
                comparison.fails(line);
            } else if now * 100 < then * (100 - TOLERANCE) {
                comparison.improved = true;
                comparison.lines.push(line);
            }
        }
        for path in recorded.keys().filter(|path| !counted.contains_key(*path)) {
            comparison.fails(format!("   {path}: recorded, and there no more\n"));
        }
        comparison
    }

    fn fails(&mut self, line: String) {
        self.failed = true;
        self.lines.push(line);
    }
}

#[expect(clippy::cast_precision_loss, reason = "instructions of one command are far below 2^52")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

/// `rustc 1.95.0` and what it compiles for.
fn compiler(root: &Path) -> anyhow::Result<(String, String)> {
    let text = said(root, "rustc", &["-vV"])?;
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let release = line("release: ").context("rustc tells no release")?;
    Ok((format!("rustc {release}"), line("host: ").context("rustc tells no host")?))
}

/// Builds the benches, and says where they are.
fn build(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    // All of the workspace, so that shared crates have the features that they have everywhere.
    let mut command = steps::command(root, "cargo", &["build", "--workspace", "--message-format=json"]);
    command.env("CARGO_INCREMENTAL", "0").stderr(Stdio::inherit());
    for (package, bench) in BENCHES {
        command.args(["--bench", bench]);
        for setting in RELEASED {
            command.args(["--config", &format!("profile.dev.package.{package}.{setting}")]);
        }
    }
    let output = command.output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the benches could not be built");
    }
    let messages = String::from_utf8(output.stdout)?;
    let is_bench = |message: &Value| message["target"]["kind"][0] == "bench";
    let programs: Vec<PathBuf> = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(is_bench)
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .collect();
    ensure!(programs.len() == BENCHES.len(), "cargo tells of {} benches", programs.len());
    Ok(programs)
}

/// What a program says of itself.
fn said(root: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = steps::command(root, program, arguments).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program} failed ({})", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
        counts.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
    }

    #[test]
    fn five_percent_are_tolerated() {
        let recorded = paths(&[("a", 1_000), ("b", 1_000)]);
        let comparison = Comparison::of(&recorded, &paths(&[("a", 1_050), ("b", 950)]));
        assert_eq!(comparison, Comparison::default());
    }

    #[test]
    fn more_fails_and_less_is_said() {
        let recorded = paths(&[("a", 1_000), ("b", 1_000)]);
        let more = Comparison::of(&recorded, &paths(&[("a", 1_051), ("b", 1_000)]));
        assert_eq!(more.lines, ["   a: 1000 instructions, now 1051 (+5.1 %)\n"]);
        assert!(more.failed && !more.improved);
        let less = Comparison::of(&recorded, &paths(&[("a", 1_000), ("b", 900)]));
        assert_eq!(less.lines, ["   b: 1000 instructions, now 900 (-10.0 %)\n"]);
        assert!(less.improved && !less.failed);
    }

    #[test]
    fn paths_come_and_go_with_the_record() {
        let comparison = Comparison::of(&paths(&[("old", 1)]), &paths(&[("new", 2)]));
        assert_eq!(
            comparison.lines,
            ["   new: 2, and not recorded\n", "   old: recorded, and there no more\n"]
        );
        assert!(comparison.failed);
    }
}
