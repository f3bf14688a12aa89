//! Which tests carry the number of which invariant.
//!
//! A test carries I-7 where its name has `i7` or `i_7` as words of their own, or where the lines right
//! above it, or the title of a JavaScript test, say `I-7`.

use std::collections::BTreeMap;
use std::fmt;

use crate::tree::Tree;

const LAST: u32 = 25;

/// For each invariant, its tests as `file:line name`.
pub(crate) struct Coverage {
    tests: BTreeMap<u32, Vec<String>>,
}

impl Coverage {
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut tests: BTreeMap<u32, Vec<String>> = (1..=LAST).map(|number| (number, Vec::new())).collect();
        for (file, text) in tree.texts().filter(|(file, _)| !file.path.starts_with("xtask/")) {
            let found = match file.extension() {
                "rs" => rust_tests(text),
                "ts" | "tsx" | "js" | "mjs" => script_tests(text),
                _ => continue,
            };
            for (line, name, numbers) in found {
                for number in numbers {
                    tests.entry(number).or_default().push(format!("{}:{line} {name}", file.path));
                }
            }
        }
        Self { tests }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, tests) in &self.tests {
            let count = match tests.len() {
                0 => "no test".to_owned(),
                1 => "1 test".to_owned(),
                many => format!("{many} tests"),
            };
            let beyond = if (1..=LAST).contains(number) { "" } else { " (no such invariant)" };
            writeln!(f, "I-{number}{beyond}  {count}")?;
            for test in tests {
                writeln!(f, "    {test}")?;
            }
        }
        Ok(())
    }
}

/// Line, name and invariants of each test that carries one.
fn rust_tests(text: &str) -> Vec<(usize, String, Vec<u32>)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    // A macro that runs each of its functions as a test, on one server after another.
    let in_macro = lines.iter().any(|line| line.starts_with("on_both!"));
    let mut tests = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let signature = line.trim_start_matches("pub ").trim_start_matches("async ");
        let Some(rest) = signature.strip_prefix("fn ") else { continue };
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        let above: Vec<&str> = lines[..index]
            .iter()
            .rev()
            .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
            .copied()
            .collect();
        let is_test = above.iter().any(|line| line.starts_with("#[") && line.contains("test"));
        if !(is_test || in_macro && signature.contains("&World)")) {
            continue;
        }
        let mut numbers = numbers_in_name(name);
        numbers.extend(above.iter().flat_map(|line| numbers_in_text(line)));
        numbers.sort_unstable();
        numbers.dedup();
        if !numbers.is_empty() {
            tests.push((index + 1, name.to_owned(), numbers));
        }
    }
    tests
}

fn script_tests(text: &str) -> Vec<(usize, String, Vec<u32>)> {
    let titled = |line: &str| ["test(", "it(", "describe("].iter().any(|call| line.starts_with(call));
    text.lines()
        .enumerate()
        .filter(|(_, line)| titled(line.trim()))
        .map(|(index, line)| (index + 1, line.trim().to_owned(), numbers_in_text(line)))
        .filter(|(_, _, numbers)| !numbers.is_empty())
        .collect()
}

fn numbers_in_name(name: &str) -> Vec<u32> {
    let words: Vec<&str> = name.split('_').collect();
    let joined = words.iter().filter_map(|word| word.strip_prefix('i')?.parse().ok());
    let apart = words.windows(2).filter(|pair| pair[0] == "i").filter_map(|pair| pair[1].parse().ok());
    joined.chain(apart).filter(|number| (1..=LAST).contains(number)).collect()
}

fn numbers_in_text(text: &str) -> Vec<u32> {
    text.split("I-")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_the_lines_above_carry_numbers() {
        let rust = "#[test]\nfn i_7_and_i12_hold() {}\n\n/// Keeps I-3.\n#[tokio::test]\nasync fn other() {}\n\
                    fn i_9_is_no_test() {}\n#[test]\nfn i64_is_a_type() {}\n";
        let script = "test('I-24: readiness', () => {\n";
        let coverage = Coverage::of(&Tree::of(&[("a/tests/b.rs", rust), ("e2e/node/c.test.mjs", script)]));
        let carried: Vec<_> =
            coverage.tests.iter().filter(|(_, tests)| !tests.is_empty()).map(|(number, _)| *number).collect();
        assert_eq!(carried, [3, 7, 12, 24]);
        assert_eq!(coverage.tests[&7], ["a/tests/b.rs:2 i_7_and_i12_hold"]);
        let printed = coverage.to_string();
        assert!(printed.starts_with("I-1  no test\n"));
        assert!(
            printed.contains("I-24  1 test\n    e2e/node/c.test.mjs:1 test('I-24: readiness', () => {\n")
        );
    }
}
