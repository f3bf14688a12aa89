//! The core has no clock, no chance and no IO; the rest has one clock.

use crate::problem::Problem;
use crate::rust_source;
use crate::tree::{File, Tree};

/// Where a clock may be read: the one place that hands time out, media (whose stack wants its own), and
/// what measures or waits from outside.
const CLOCKS_MAY_BE_READ_IN: [&str; 4] = ["coordinator/src/clock.rs", "media-bridge/", "e2e/", "xtask/"];
const CLOCKS: [&str; 2] = ["Instant::now", "SystemTime::now"];
const CORE: &str = "room-cell/src/";
/// What no pure function needs.
const IMPURE: [&str; 10] = [
    "tokio",
    "rand",
    "getrandom",
    "Instant",
    "SystemTime",
    "thread",
    "async",
    "redis_scripts",
    "fred",
    "socketioxide",
];
const IMPURE_STD: [&str; 5] = ["std::fs", "std::net", "std::env", "std::process", "std::io"];

pub(crate) fn check(tree: &Tree, problems: &mut Vec<Problem>) {
    for (file, text) in tree.texts().filter(|(file, _)| file.extension() == "rs") {
        let clocks = clocks_are_refused(file);
        let core = file.path.starts_with(CORE);
        if !clocks && !core {
            continue;
        }
        for (index, line) in rust_source::lines(text).iter().enumerate() {
            let mut problem = |message: String| problems.push(Problem::new(&file.path, index + 1, message));
            if line.in_test {
                continue;
            }
            if let Some(clock) = CLOCKS.iter().find(|clock| clocks && line.code.contains(*clock)) {
                problem(format!(
                    "{clock}: time comes from `coordinator::clock` or from Redis, as a parameter"
                ));
            }
            if core && let Some(found) = impure(&line.code) {
                problem(format!("{found}: room-cell is pure"));
            }
        }
    }
}

fn clocks_are_refused(file: &File) -> bool {
    let allowed = CLOCKS_MAY_BE_READ_IN.iter().any(|place| file.path.starts_with(place));
    let test = ["/tests/", "/benches/", "/examples/"].iter().any(|folder| file.path.contains(folder));
    !allowed && !test && !file.path.ends_with("/tests.rs")
}

fn impure(code: &str) -> Option<&'static str> {
    let words: Vec<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let word = IMPURE.into_iter().find(|name| words.contains(name));
    word.or_else(|| IMPURE_STD.into_iter().find(|path| code.contains(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn one_clock_is_read_in_one_place() {
        let text =
            "fn a() { Instant::now(); }\n#[cfg(test)]\nmod tests {\n    fn b() { Instant::now(); }\n}\n";
        let files = ["coordinator/src/clock.rs", "coordinator/src/a.rs", "reaper/tests/a.rs", "e2e/src/a.rs"];
        assert_eq!(
            found(check, &files.map(|path| (path, text))),
            [
                "coordinator/src/a.rs:1: Instant::now: time comes from `coordinator::clock` or from Redis, as a parameter"
            ]
        );
    }

    #[test]
    fn the_core_is_pure() {
        let text = "//! No tokio here.\nuse tokio::sync::mpsc;\nfn a(operand: u8, at: std::time::Instant) {}\nuse std::fs;\n";
        assert_eq!(
            found(check, &[("room-cell/src/lib.rs", text)]),
            [
                "room-cell/src/lib.rs:2: tokio: room-cell is pure",
                "room-cell/src/lib.rs:3: Instant: room-cell is pure",
                "room-cell/src/lib.rs:4: std::fs: room-cell is pure",
            ]
        );
    }
}
