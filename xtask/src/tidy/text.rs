//! Rules about files as text: marks, spaces, sizes, exceptions without a reason.

use crate::problem::Problem;
use crate::rust_source;
use crate::tree::{File, Tree};

const MAX_LINES: usize = 600;
/// A file over the limit says why within its first lines.
const REASON: &str = "One file because";
const REASON_WITHIN: usize = 15;
const MAX_BYTES: u64 = 1024 * 1024;
/// Put together here, so that this file does not break its own rule.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
const CODE: [&str; 13] =
    ["rs", "lua", "ts", "tsx", "js", "mjs", "css", "html", "sh", "sql", "toml", "yaml", "yml"];

pub(crate) fn check(tree: &Tree, problems: &mut Vec<Problem>) {
    for file in tree.files().filter(|file| file.bytes > MAX_BYTES) {
        problems.push(Problem::new(&file.path, 1, format!("{} bytes; a file stays under 1 MiB", file.bytes)));
    }
    for (file, text) in tree.texts().filter(|(file, _)| !file.is_lock()) {
        check_spaces(&file.path, text, problems);
        if is_code(file) {
            check_marks(&file.path, text, problems);
            check_length(&file.path, text, problems);
        }
        if file.extension() == "rs" {
            check_rust(&file.path, text, problems);
        }
    }
}

fn is_code(file: &File) -> bool {
    CODE.contains(&file.extension()) || matches!(file.name(), "Makefile" | "run")
}

fn check_spaces(path: &str, text: &str, problems: &mut Vec<Problem>) {
    for (index, line) in text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            problems.push(Problem::new(path, index + 1, "space at the end of the line"));
        }
        if ["<<<<<<< ", ">>>>>>> "].iter().any(|mark| line.starts_with(mark)) {
            problems.push(Problem::new(path, index + 1, "an unfinished merge"));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        problems.push(Problem::new(path, text.lines().count(), "no newline at the end of the file"));
    }
    if text.ends_with("\n\n") {
        problems.push(Problem::new(path, text.lines().count(), "an empty line at the end of the file"));
    }
}

fn check_marks(path: &str, text: &str, problems: &mut Vec<Problem>) {
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if let Some(mark) = words.find(|word| MARKS.contains(word)) {
            problems.push(Problem::new(
                path,
                index + 1,
                format!("{mark}: do it, or write it down as an issue"),
            ));
        }
    }
}

fn check_length(path: &str, text: &str, problems: &mut Vec<Problem>) {
    let lines = text.lines().count();
    if lines > MAX_LINES && !text.lines().take(REASON_WITHIN).any(|line| line.contains(REASON)) {
        let message = format!("{lines} lines; over {MAX_LINES} the first lines say \"{REASON} …\"");
        problems.push(Problem::new(path, 1, message));
    }
}

fn check_rust(path: &str, text: &str, problems: &mut Vec<Problem>) {
    let lines = rust_source::lines(text);
    for (index, line) in lines.iter().enumerate() {
        let mut problem = |message: &str| problems.push(Problem::new(path, index + 1, message));
        if line.code.contains("dbg!(") {
            problem("dbg! is for the machine it was written on");
        }
        if line.code.contains("#[ignore") {
            problem("a test runs or does not exist");
        }
        let is_test = line.in_test || path.contains("/tests/") || path.ends_with("/tests.rs");
        if is_test && line.code.contains("sleep(") {
            problem("a test waits for a state, not for a time");
        }
        if line.code.contains("#[allow(") || line.code.contains("#![allow(") {
            let attribute = lines[index..].iter().take_while(|line| !line.code.trim_end().ends_with(")]"));
            let last = index + attribute.count();
            let reasoned =
                lines[index..].iter().take(last - index + 1).any(|line| line.code.contains("reason ="));
            if !reasoned {
                problem("an exception is `#[expect(…, reason = \"…\")]`");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn spaces_marks_and_merges() {
        let text = format!("a \n// {} later\n<<<<<<< ours\nb", MARKS[0]);
        assert_eq!(
            found(check, &[("a.lua", &text)]),
            [
                "a.lua:1: space at the end of the line".to_owned(),
                format!("a.lua:2: {}: do it, or write it down as an issue", MARKS[0]),
                "a.lua:3: an unfinished merge".to_owned(),
                "a.lua:4: no newline at the end of the file".to_owned(),
            ]
        );
        assert_eq!(
            found(check, &[("a.md", "MARKED TODOs\n"), ("b.md", "b\n\n")]),
            ["b.md:2: an empty line at the end of the file"]
        );
    }

    #[test]
    fn a_long_file_says_why() {
        let long = "a\n".repeat(601);
        assert_eq!(
            found(check, &[("a.ts", &long)]),
            ["a.ts:1: 601 lines; over 600 the first lines say \"One file because …\""]
        );
        assert_eq!(
            found(check, &[("a.ts", &format!("// One file because so.\n{long}"))]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn sleeps_and_ignored_tests() {
        let test = "#[ignore]\nfn a() {\n    // sleep(1)\n    sleep(1);\n}\n";
        assert_eq!(
            found(check, &[("a/tests/b.rs", test), ("a/src/b.rs", "fn f() { sleep(1) }\n")]),
            [
                "a/tests/b.rs:1: a test runs or does not exist",
                "a/tests/b.rs:4: a test waits for a state, not for a time",
            ]
        );
        let unit = "#[cfg(test)]\nmod tests {\n    fn a() { sleep(2) }\n}\n";
        assert_eq!(
            found(check, &[("a/src/b.rs", unit)]),
            ["a/src/b.rs:3: a test waits for a state, not for a time"]
        );
    }

    #[test]
    fn an_exception_has_a_reason() {
        let text = "#[allow(dead_code)]\n#[allow(\n    dead_code,\n    reason = \"shared\"\n)]\nfn a() {}\n";
        assert_eq!(
            found(check, &[("a/src/b.rs", text)]),
            ["a/src/b.rs:1: an exception is `#[expect(…, reason = \"…\")]`"]
        );
    }
}
