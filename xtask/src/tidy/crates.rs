//! Each crate opens with a page about itself, and dependencies point one way.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::problem::Problem;
use crate::tree::Tree;

const FIRST_PAGE_LINES: usize = 10;

/// Which of our crates each may depend on. `dev-dependencies` may name `e2e` too: its harness starts the
/// servers that a test talks to.
const DIRECTION: [(&str, &[&str]); 9] = [
    ("key-prefix", &[]),
    ("redis-scripts", &["key-prefix"]),
    ("reaper", &["redis-scripts", "key-prefix"]),
    ("ledger", &["room-cell", "redis-scripts", "key-prefix"]),
    ("room-cell", &[]),
    ("media-bridge", &[]),
    ("coordinator", &["room-cell", "redis-scripts", "key-prefix", "media-bridge", "reaper", "ledger"]),
    ("e2e", &["coordinator", "room-cell", "redis-scripts", "key-prefix", "media-bridge", "reaper", "ledger"]),
    ("xtask", &[]),
];
const TABLES: [&str; 3] = ["dependencies", "build-dependencies", "dev-dependencies"];
/// What would bring IO, a clock or chance into the core.
const NOT_IN_CORE: [&str; 8] =
    ["tokio", "rand", "getrandom", "fred", "redis", "socketioxide", "axum", "async-trait"];

pub(crate) fn check(tree: &Tree, problems: &mut Vec<Problem>) {
    let Some(workspace) = tree.text("Cargo.toml").and_then(|text| text.parse::<Table>().ok()) else { return };
    let members = workspace.get("workspace").and_then(|workspace| workspace.get("members"));
    let members: Vec<&str> =
        members.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for member in &members {
        check_first_page(tree, member, problems);
        check_direction(tree, member, problems);
    }
}

fn check_first_page(tree: &Tree, member: &str, problems: &mut Vec<Problem>) {
    let path = ["lib", "main"].map(|root| format!("{member}/src/{root}.rs"));
    let Some(path) = path.iter().find(|path| tree.text(path).is_some()) else {
        problems.push(Problem::new(&format!("{member}/Cargo.toml"), 1, "no src/lib.rs and no src/main.rs"));
        return;
    };
    let text = tree.text(path).unwrap_or_default();
    let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
    if lines < FIRST_PAGE_LINES {
        let message =
            format!("the crate's first page has {lines} lines of `//!`; {FIRST_PAGE_LINES} at least");
        problems.push(Problem::new(path, 1, message));
    }
}

fn check_direction(tree: &Tree, member: &str, problems: &mut Vec<Problem>) {
    let path = format!("{member}/Cargo.toml");
    let Some(text) = tree.text(&path) else { return };
    let Some((_, allowed)) = DIRECTION.iter().find(|(name, _)| *name == member) else {
        problems.push(Problem::new(&path, 1, "this crate has no place in the direction of dependencies"));
        return;
    };
    let Ok(manifest) = text.parse::<Table>() else {
        problems.push(Problem::new(&path, 1, "not TOML"));
        return;
    };
    let ours: BTreeSet<&str> = DIRECTION.iter().map(|(name, _)| *name).collect();
    for table in TABLES {
        let names = manifest.get(table).and_then(Value::as_table).into_iter().flat_map(Table::keys);
        for name in names.map(String::as_str) {
            let line = text.lines().position(|line| line.starts_with(name)).map_or(1, |index| index + 1);
            let for_tests = table == "dev-dependencies" && name == "e2e";
            if ours.contains(name) && !allowed.contains(&name) && !for_tests {
                let message = format!("`{member}` depends on `{name}`: dependencies point the other way");
                problems.push(Problem::new(&path, line, message));
            }
            if member == "room-cell" && table != "dev-dependencies" && NOT_IN_CORE.contains(&name) {
                problems.push(Problem::new(&path, line, format!("`{name}`: room-cell is pure")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const PAGE: &str = "//! a\n//! a\n//! a\n//! a\n//! a\n//! a\n//! a\n//! a\n//! a\n//! a\n";

    #[test]
    fn dependencies_point_one_way() {
        let files = [
            ("Cargo.toml", "[workspace]\nmembers = [\"reaper\", \"room-cell\", \"stray\"]\n"),
            (
                "reaper/Cargo.toml",
                "[dependencies]\nredis-scripts.workspace = true\ncoordinator.workspace = true\n[dev-dependencies]\ne2e.workspace = true\n",
            ),
            ("reaper/src/lib.rs", PAGE),
            ("room-cell/Cargo.toml", "[dependencies]\nkey-prefix.workspace = true\ntokio.workspace = true\n"),
            ("room-cell/src/lib.rs", PAGE),
            ("stray/Cargo.toml", "[package]\n"),
            ("stray/src/main.rs", PAGE),
        ];
        assert_eq!(
            found(check, &files),
            [
                "reaper/Cargo.toml:3: `reaper` depends on `coordinator`: dependencies point the other way",
                "room-cell/Cargo.toml:2: `room-cell` depends on `key-prefix`: dependencies point the other way",
                "room-cell/Cargo.toml:3: `tokio`: room-cell is pure",
                "stray/Cargo.toml:1: this crate has no place in the direction of dependencies",
            ]
        );
    }

    #[test]
    fn a_crate_opens_with_a_page() {
        let files = [
            ("Cargo.toml", "[workspace]\nmembers = [\"ledger\"]\n"),
            ("ledger/Cargo.toml", ""),
            ("ledger/src/lib.rs", "//! One line.\n"),
        ];
        assert_eq!(
            found(check, &files),
            ["ledger/src/lib.rs:1: the crate's first page has 1 lines of `//!`; 10 at least"]
        );
    }
}
