//! Keys and channels are named in `key-prefix` and nowhere else.

use std::collections::BTreeSet;

use crate::lua::strings;
use crate::problem::Problem;
use crate::rust_source;
use crate::tree::Tree;

/// The crate's own table, from which this rule learns the segments that names in Redis have.
const TABLE: &str = "key-prefix/src/table.rs";
/// What a name would be called by someone who did not read the table.
const OBVIOUS: [&str; 6] = ["room", "instance", "owner", "fence", "lease", "fanout"];

pub(crate) fn check(tree: &Tree, problems: &mut Vec<Problem>) {
    let segments = segments(tree);
    for (file, text) in tree.texts() {
        if file.path.starts_with("key-prefix/") || file.path.starts_with("xtask/") {
            continue;
        }
        let literals: Vec<(String, usize)> = match file.extension() {
            "rs" => rust_source::lines(text)
                .into_iter()
                .enumerate()
                .map(|(index, line)| (line.strings, index + 1))
                .collect(),
            "lua" => strings(text),
            _ => continue,
        };
        for (literal, line) in literals {
            if let Some(name) = literal.split_whitespace().find(|word| is_key(word, &segments)) {
                let message = format!("`{name}` reads like a key; `key-prefix` makes them");
                problems.push(Problem::new(&file.path, line, message));
            }
        }
    }
}

/// First string of each row: `Owner "owner" Room String {`, and of each channel: `Self::Sync => "sync",`.
fn segments(tree: &Tree) -> BTreeSet<&str> {
    let rows = tree.text(TABLE).unwrap_or_default().lines().filter_map(|line| {
        let (before, rest) = line.trim().split_once('"')?;
        let (segment, after) = rest.split_once('"')?;
        let row = before.trim().chars().all(char::is_alphanumeric) && after.ends_with('{');
        let channel = before.trim().ends_with("=>") && after == ",";
        let plain = !segment.is_empty() && segment.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        (plain && (row || channel)).then_some(segment)
    });
    rows.chain(OBVIOUS).collect()
}

/// A segment that only names in Redis have, with a colon on both sides.
fn is_key(word: &str, names: &BTreeSet<&str>) -> bool {
    let segments: Vec<&str> = word.split(':').collect();
    segments.len() > 2 && segments[1..segments.len() - 1].iter().any(|segment| names.contains(segment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn a_key_literal_is_refused_and_an_event_name_is_not() {
        let rust = "// a:room:b\nlet a = \"room:join\";\nlet b = format!(\"{prefix}:room:{id}\");\n";
        let lua = "redis.call(\"GET\", \"dev:owner:\" .. room)\n";
        assert_eq!(
            found(check, &[("coordinator/src/a.rs", rust), ("redis-scripts/lua/a.lua", lua)]),
            [
                "coordinator/src/a.rs:3: `{prefix}:room:{id}` reads like a key; `key-prefix` makes them",
                "redis-scripts/lua/a.lua:1: `dev:owner:` reads like a key; `key-prefix` makes them",
            ]
        );
        assert_eq!(found(check, &[("key-prefix/src/a.rs", rust)]), Vec::<String>::new());
    }

    #[test]
    fn segments_come_from_the_table() {
        let table = "    Mood \"mood\" Room Hash {\n            Self::Wire => \"wire\",\n    None => \"\",\n    holds: \"not this\",\n";
        let text = "f(\"a:mood:b a:wire:b a:not this:b c::d\");\ng(\"a:wire:b\");\n";
        assert_eq!(
            found(check, &[("key-prefix/src/table.rs", table), ("ledger/src/a.rs", text)]),
            [
                "ledger/src/a.rs:1: `a:mood:b` reads like a key; `key-prefix` makes them",
                "ledger/src/a.rs:2: `a:wire:b` reads like a key; `key-prefix` makes them",
            ]
        );
    }
}
