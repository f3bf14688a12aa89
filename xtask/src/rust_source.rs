//! Rust source taken apart into what runs and what is only text, line by line.
//!
//! A rule about calls must not stumble over a comment, and a rule about literals must not stumble over
//! code. This is a lexer's first half: comments, strings and characters, nothing else.

/// One line of a file. Comments are in neither part.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Code, with every string literal emptied.
    pub(crate) code: String,
    /// The contents of the string literals, one after the other with a space between.
    pub(crate) strings: String,
    /// Inside a `#[cfg(test)]` module.
    pub(crate) in_test: bool,
}

enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text { hashes: Option<usize> },
}

/// The lines of `source`, in order.
pub(crate) fn lines(source: &str) -> Vec<Line> {
    let characters: Vec<char> = source.chars().collect();
    let mut lines = Vec::new();
    let mut line = Line::default();
    let mut state = State::Code;
    let mut at = 0;
    while at < characters.len() {
        let current = characters[at];
        let next = characters.get(at + 1).copied();
        if current == '\n' {
            if matches!(state, State::LineComment) {
                state = State::Code;
            }
            lines.push(std::mem::take(&mut line));
            at += 1;
            continue;
        }
        match &mut state {
            State::LineComment => at += 1,
            State::BlockComment { depth } => {
                match (current, next) {
                    ('/', Some('*')) => (*depth, at) = (*depth + 1, at + 2),
                    ('*', Some('/')) => (*depth, at) = (*depth - 1, at + 2),
                    _ => at += 1,
                }
                if *depth == 0 {
                    state = State::Code;
                }
            }
            // A backslash before a line's end hides nothing that has to be counted.
            State::Text { hashes: None } if current == '\\' => at += if next == Some('\n') { 1 } else { 2 },
            State::Text { hashes } => {
                let closing = hashes.unwrap_or(0);
                if current == '"' && characters[at + 1..].iter().take_while(|&&c| c == '#').count() >= closing
                {
                    line.strings.push(' ');
                    line.code.push('"');
                    state = State::Code;
                    at += 1 + closing;
                } else {
                    line.strings.push(current);
                    at += 1;
                }
            }
            State::Code => match (current, next) {
                ('/', Some('/')) => state = State::LineComment,
                ('/', Some('*')) => (state, at) = (State::BlockComment { depth: 1 }, at + 2),
                ('"', _) => {
                    let hashes = raw_hashes(&characters[..at]);
                    line.code.push('"');
                    (state, at) = (State::Text { hashes }, at + 1);
                }
                ('\'', _) => {
                    let end = character_end(&characters, at);
                    line.code.extend(&characters[at..end]);
                    at = end;
                }
                _ => {
                    line.code.push(current);
                    at += 1;
                }
            },
        }
    }
    lines.push(line);
    mark_tests(&mut lines);
    lines
}

/// How many `#` close the string that opens after `before`; `None` where it is not raw.
fn raw_hashes(before: &[char]) -> Option<usize> {
    let hashes = before.iter().rev().take_while(|&&c| c == '#').count();
    let mut rest = before[..before.len() - hashes].iter().rev();
    let raw = rest.next() == Some(&'r');
    let before_prefix = rest.find(|&&c| c != 'b' && c != 'c');
    let in_a_name = before_prefix.is_some_and(|c| c.is_alphanumeric() || *c == '_');
    (raw && !in_a_name).then_some(hashes)
}

/// Where the character literal at `at` ends; one past the quote where it is a lifetime.
fn character_end(characters: &[char], at: usize) -> usize {
    if characters.get(at + 1) == Some(&'\\') {
        let closing = characters.iter().skip(at + 3).position(|&c| c == '\'');
        return closing.map_or(at + 1, |offset| at + 3 + offset + 1);
    }
    if characters.get(at + 2) == Some(&'\'') { at + 3 } else { at + 1 }
}

/// A test module stands at the end of its file.
fn mark_tests(lines: &mut [Line]) {
    let opens = lines.windows(2).position(|pair| {
        let module = pair[1].code.trim().trim_start_matches("pub(crate) ");
        pair[0].code.trim() == "#[cfg(test)]" && module.starts_with("mod ") && module.ends_with('{')
    });
    if let Some(first) = opens {
        lines[first..].iter_mut().for_each(|line| line.in_test = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_vanish_and_strings_are_kept_apart() {
        let found = lines("let a = \"x // y\"; // z\n/* b\n \"c\" */ d('\"', r#\"e\"f\"#, 'g)");
        assert_eq!((found[0].code.trim(), found[0].strings.trim()), ("let a = \"\";", "x // y"));
        assert_eq!((found[1].code.as_str(), found[1].strings.as_str()), ("", ""));
        assert_eq!((found[2].code.trim(), found[2].strings.trim()), ("d('\"', r#\"\", 'g)", "e\"f"));
    }

    #[test]
    fn escapes_and_nested_comments_do_not_end_early() {
        let found = lines("a(\"\\\"b\") /* /* c */ d */ e '\\'' f");
        assert_eq!((found[0].code.as_str(), found[0].strings.trim()), ("a(\"\")  e '\\'' f", "b"));
    }

    #[test]
    fn only_a_test_module_with_a_body_is_test_code() {
        let found = lines("fn a() {}\n#[cfg(test)]\nfn b() {}\n#[cfg(test)]\nmod tests {\n}\n");
        let marked: Vec<_> = found.iter().map(|line| line.in_test).collect();
        assert_eq!(marked, [false, false, false, true, true, true, true]);
    }
}
