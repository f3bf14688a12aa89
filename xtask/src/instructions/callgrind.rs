//! One run of a bench under callgrind.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// The benches' function around what counts, as its length and name stand in the symbol, however that is mangled.
/// Two patterns, because callgrind keeps one order for each.
const COUNTED: &str = "--toggle-collect=*measured*";
const TOLD: &str = "--dump-after=*8measured*";

/// Instructions of each path of a bench: the median of `times` runs.
pub(super) fn count(program: &Path, times: usize) -> anyhow::Result<Vec<(String, u64)>> {
    let profile = program.with_extension("callgrind");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--demangle=no", "--combine-dumps=yes", COUNTED, TOLD])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .args(["--bench", "--timer", "os", "--sample-count", "1", "--sample-size", &times.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("cannot start valgrind")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed ({}): {complaint}", output.status);
    let paths = leaves(&String::from_utf8(output.stdout)?);
    let counts = totals(&fs::read_to_string(&profile).with_context(|| profile.display().to_string())?);
    fs::remove_file(&profile)?;
    // The last is what there was outside: nothing.
    let expected = paths.len() * times + 1;
    ensure!(counts.len() == expected, "{} counts of {} paths: not {expected}", counts.len(), paths.len());
    Ok(paths.into_iter().zip(counts.chunks(times).map(median)).collect())
}

/// Names of the benches with their arguments, in the order in which they run: the leaves of the tree that is printed.
fn leaves(printed: &str) -> Vec<String> {
    let mut paths: Vec<Vec<&str>> = Vec::new();
    for line in printed.lines() {
        let Some((depth, name)) = node(line) else { continue };
        let mut path = match paths.last() {
            Some(last) => last[..depth.min(last.len())].to_vec(),
            None => Vec::new(),
        };
        path.push(name);
        // A node with children is no leaf.
        if paths.last().is_some_and(|last| last.len() < path.len()) {
            paths.pop();
        }
        paths.push(path);
    }
    paths.iter().map(|path| path.join("::")).collect()
}

/// How deep a line of the tree stands, and its name.
fn node(line: &str) -> Option<(usize, &str)> {
    let name = line.trim_start_matches(['│', '├', '╰', '─', ' ']);
    let depth = (line.chars().count() - name.chars().count()) / 3;
    let name = name.split_whitespace().next()?;
    // Said above the tree.
    (name != "Timer").then_some((depth, name))
}

/// What each part of a profile adds up to.
fn totals(profile: &str) -> Vec<u64> {
    profile.lines().filter_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok()).collect()
}

fn median(counts: &[u64]) -> u64 {
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_the_leaves_of_the_tree() {
        let printed = "Timer precision: 20 ns\n\
            cell          fastest  │ slowest\n\
            ├─ join                │\n\
            │  ├─ 1       10.5 ms  │ 10.5 ms\n\
            │  ╰─ 1000    9.3 ms   │ 9.3 ms\n\
            ├─ leave      7.7 ms   │ 7.7 ms\n\
            ╰─ mic                 │\n\
            \u{20}  ╰─ 10      9.2 ms   │ 9.2 ms\n\n";
        assert_eq!(leaves(printed), ["cell::join::1", "cell::join::1000", "cell::leave", "cell::mic::10"]);
        assert_eq!(leaves("\n"), Vec::<String>::new());
    }

    #[test]
    fn a_profile_has_a_total_for_each_part() {
        assert_eq!(totals("version: 1\ntotals: 12\nfn=a\ntotals: 7 \n"), [12, 7]);
        assert_eq!(median(&[9, 1, 5, 3]), 5);
    }
}
