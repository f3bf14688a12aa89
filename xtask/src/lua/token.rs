//! Lua source as tokens, without comments.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Name,
    Number,
    /// A string; the token's text is what stands between its quotes.
    Text,
    Symbol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'s> {
    pub(crate) kind: Kind,
    pub(crate) text: &'s str,
    pub(crate) line: usize,
}

impl Token<'_> {
    /// Is it this keyword, name or symbol? A string never is.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.kind != Kind::Text && self.text == text
    }
}

/// Tokens of `source`, whose first line has the number `line`. An unfinished string or comment ends at the
/// end of the file: whether it is Lua at all is for Redis to say.
pub(crate) fn tokens(source: &str, mut line: usize) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            line += usize::from(first == '\n');
            rest = &rest[first.len_utf8()..];
            continue;
        }
        if let Some(comment) = rest.strip_prefix("--") {
            let skipped = match long_bracket(comment) {
                Some((_, whole)) => 2 + whole,
                None => rest.find('\n').unwrap_or(rest.len()),
            };
            line += newlines(&rest[..skipped]);
            rest = &rest[skipped..];
            continue;
        }
        let (kind, text, length) = next(rest, first);
        tokens.push(Token { kind, text, line });
        line += newlines(&rest[..length]);
        rest = &rest[length..];
    }
    tokens
}

/// Kind, text and whole length of the token that `rest` begins with.
fn next(rest: &str, first: char) -> (Kind, &str, usize) {
    if first == '"' || first == '\'' {
        let inner = quoted(&rest[1..], first);
        return (Kind::Text, &rest[1..=inner], (inner + 2).min(rest.len()));
    }
    if let Some((content, whole)) = long_bracket(rest) {
        return (Kind::Text, content, whole);
    }
    if first.is_ascii_digit() {
        let length = span(rest, |c| c.is_ascii_alphanumeric() || c == '.');
        // `1..n` is a number, a concatenation and a name.
        let length = rest[..length].find("..").unwrap_or(length);
        return (Kind::Number, &rest[..length], length);
    }
    if first.is_alphabetic() || first == '_' {
        let length = span(rest, |c| c.is_alphanumeric() || c == '_');
        return (Kind::Name, &rest[..length], length);
    }
    let long = ["...", "..", "==", "~=", "<=", ">="].into_iter().find(|symbol| rest.starts_with(symbol));
    let length = long.map_or(first.len_utf8(), str::len);
    (Kind::Symbol, &rest[..length], length)
}

fn span(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|&byte| byte == b'\n').count()
}

/// Bytes up to the closing quote.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if !escaped && c == quote {
            return at;
        }
        escaped = !escaped && c == '\\';
    }
    text.len()
}

/// Content and whole length of `[[…]]` or `[==[…]==]`, if `text` begins with one.
fn long_bracket(text: &str) -> Option<(&str, usize)> {
    let after = text.strip_prefix('[')?;
    let level = span(after, |c| c == '=');
    let content = after[level..].strip_prefix('[')?;
    let closing = format!("]{}]", "=".repeat(level));
    let opening = level + 2;
    let end = content.find(&closing);
    let inner = &content[..end.unwrap_or(content.len())];
    Some((inner, opening + inner.len() + end.map_or(0, |_| closing.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source, 1).iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_are_dropped_and_lines_counted() {
        let found = tokens("--[[ a\nb ]] x -- y\n\nz", 10);
        let seen: Vec<_> = found.iter().map(|token| (token.text, token.line)).collect();
        assert_eq!(seen, [("x", 11), ("z", 13)]);
    }

    #[test]
    fn strings_numbers_and_long_symbols() {
        assert_eq!(
            texts(r#"a = "b\"c" .. 'd' .. 1..n ~= 2.5"#),
            ["a", "=", r#"b\"c"#, "..", "d", "..", "1", "..", "n", "~=", "2.5"]
        );
        assert_eq!(texts("[==[x]]y]==] KEYS[1]"), ["x]]y", "KEYS", "[", "1", "]"]);
    }

    #[test]
    fn what_never_ends_ends_with_the_file() {
        assert_eq!(texts("\"abc"), ["abc"]);
        assert_eq!(texts("--[[ abc"), Vec::<&str>::new());
    }
}
