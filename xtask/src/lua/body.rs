//! A script's body: its statements, what it defines, which codes it returns.
//!
//! This is less than a parser. It knows blocks, brackets and where a statement begins, which is all that
//! the comparison with a header needs.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::lua::token::{Kind, Token, tokens};

/// A top-level local of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    /// `None` for a value.
    pub(crate) parameters: Option<Vec<String>>,
    /// Its tokens, from `local` to the last of its body or value.
    pub(crate) range: Range<usize>,
    pub(crate) line: usize,
}

/// One statement, up to where the next begins: `if a then` is one, what stands inside is others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement<'b, 's> {
    pub(crate) tokens: &'b [Token<'s>],
    /// Index of its first token in the body.
    pub(crate) first: usize,
    /// How many blocks it stands in.
    pub(crate) depth: usize,
}

pub(crate) struct Body<'s> {
    pub(crate) tokens: Vec<Token<'s>>,
    /// First token and depth of each statement.
    starts: Vec<(usize, usize)>,
    /// Names and lines of the `--%include` lines.
    pub(crate) includes: Vec<(String, usize)>,
}

impl<'s> Body<'s> {
    /// The body of `text` below a header that ends in line `header_end`.
    pub(crate) fn parse(text: &'s str, header_end: usize) -> Self {
        let skipped: usize = text.split_inclusive('\n').take(header_end).map(str::len).sum();
        let source = &text[skipped..];
        let includes = source
            .lines()
            .enumerate()
            .filter_map(|(index, line)| {
                let name = line.trim_start().strip_prefix("--%include")?.trim();
                Some((name.to_owned(), header_end + index + 1))
            })
            .collect();
        let tokens = tokens(source, header_end + 1);
        let starts = statement_starts(&tokens);
        Self { tokens, starts, includes }
    }

    pub(crate) fn statements(&self) -> impl Iterator<Item = Statement<'_, 's>> {
        self.starts.iter().enumerate().map(|(index, &(first, depth))| {
            let end = self.starts.get(index + 1).map_or(self.tokens.len(), |&(next, _)| next);
            Statement { tokens: &self.tokens[first..end], first, depth }
        })
    }

    /// The codes that the tokens of `range` return, each with its line: the string that stands first in a
    /// table of a `return`.
    pub(crate) fn codes(&self, range: &Range<usize>) -> Vec<(&'s str, usize)> {
        let mut codes = Vec::new();
        for statement in self.statements().filter(|statement| range.contains(&statement.first)) {
            if !statement.tokens[0].is("return") {
                continue;
            }
            let mut depth = 0_usize;
            for (at, token) in statement.tokens.iter().enumerate() {
                if depth == 0 && token.is("{") {
                    let code = statement.tokens.get(at + 1).filter(|next| next.kind == Kind::Text);
                    let ends = statement.tokens.get(at + 2).is_some_and(|next| next.is(",") || next.is("}"));
                    codes.extend(code.filter(|_| ends).map(|code| (code.text, code.line)));
                }
                depth = bracket_depth(depth, token);
            }
        }
        codes
    }

    pub(crate) fn whole(&self) -> Range<usize> {
        0..self.tokens.len()
    }

    /// The variables named in `range`: fields of tables are not variables.
    pub(crate) fn names(&self, range: &Range<usize>) -> BTreeSet<&'s str> {
        range.clone().filter(|&at| is_variable(&self.tokens, at)).map(|at| self.tokens[at].text).collect()
    }

    /// The functions called in `range` that `range` does not make a local of itself.
    pub(crate) fn calls(&self, range: &Range<usize>) -> BTreeSet<&'s str> {
        let own = self.locals(range);
        let called = |at: usize| {
            let function = at > 0 && self.tokens[at - 1].is("function");
            is_variable(&self.tokens, at)
                && !function
                && self.tokens.get(at + 1).is_some_and(|next| next.is("("))
        };
        let names = range.clone().filter(|&at| called(at)).map(|at| self.tokens[at].text);
        names.filter(|name| !own.contains(name)).collect()
    }

    /// The names that `local` makes in `range`, at any depth.
    pub(crate) fn locals(&self, range: &Range<usize>) -> BTreeSet<&'s str> {
        self.statements()
            .filter(|statement| range.contains(&statement.first) && statement.tokens[0].is("local"))
            .flat_map(|statement| {
                statement.tokens.iter().take_while(|token| !token.is("=") && !token.is("("))
            })
            .filter(|token| token.kind == Kind::Name)
            .map(|token| token.text)
            .collect()
    }

    /// The top-level locals.
    pub(crate) fn definitions(&self) -> Vec<Definition> {
        let outer: Vec<_> = self.statements().filter(|statement| statement.depth == 0).collect();
        let mut definitions = Vec::new();
        for (index, statement) in outer.iter().enumerate() {
            let [local, second, ..] = statement.tokens else { continue };
            if !local.is("local") {
                continue;
            }
            let next = outer[index + 1..].iter().find(|next| !next.tokens[0].is("end"));
            let range = statement.first..next.map_or(self.tokens.len(), |next| next.first);
            if second.is("function") {
                let Some(name) = statement.tokens.get(2) else { continue };
                let parameters = Some(parameters(&statement.tokens[3..]));
                definitions.push(Definition {
                    name: name.text.to_owned(),
                    parameters,
                    range,
                    line: name.line,
                });
                continue;
            }
            let equals = statement.tokens.iter().position(|token| token.is("="));
            let left = &statement.tokens[1..equals.unwrap_or(statement.tokens.len())];
            let right = equals.map_or(&[][..], |at| &statement.tokens[at + 1..]);
            let is_function = right.first().is_some_and(|token| token.is("function"));
            for name in left.iter().filter(|token| token.kind == Kind::Name) {
                definitions.push(Definition {
                    name: name.text.to_owned(),
                    parameters: is_function.then(|| parameters(&right[1..])),
                    range: range.clone(),
                    line: name.line,
                });
            }
        }
        definitions
    }
}

pub(crate) fn is_variable(tokens: &[Token<'_>], at: usize) -> bool {
    let after_dot = at > 0 && (tokens[at - 1].is(".") || tokens[at - 1].is(":"));
    tokens[at].kind == Kind::Name && !after_dot
}

pub(crate) fn bracket_depth(depth: usize, token: &Token<'_>) -> usize {
    if ["(", "[", "{"].iter().any(|open| token.is(open)) {
        depth + 1
    } else if [")", "]", "}"].iter().any(|close| token.is(close)) {
        depth.saturating_sub(1)
    } else {
        depth
    }
}

/// Names between `(` and `)` at the front of `tokens`.
fn parameters(tokens: &[Token<'_>]) -> Vec<String> {
    let inside = tokens.iter().skip(1).take_while(|token| !token.is(")"));
    inside.filter(|token| !token.is(",")).map(|token| token.text.to_owned()).collect()
}

fn statement_starts(tokens: &[Token<'_>]) -> Vec<(usize, usize)> {
    let mut starts = Vec::new();
    // Open brackets of each open block, so that a function inside a call has statements of its own.
    let mut blocks = vec![0_usize];
    for (at, token) in tokens.iter().enumerate() {
        if (token.is("end") || token.is("until")) && blocks.len() > 1 {
            blocks.pop();
        }
        let brackets = blocks.last().copied().unwrap_or(0);
        if brackets == 0 && begins_statement(at.checked_sub(1).map(|before| &tokens[before]), token) {
            starts.push((at, blocks.len() - 1));
        }
        if ["function", "if", "do", "repeat"].iter().any(|opens| token.is(opens)) {
            blocks.push(0);
        } else if let Some(brackets) = blocks.last_mut() {
            *brackets = bracket_depth(*brackets, token);
        }
    }
    starts
}

fn begins_statement(before: Option<&Token<'_>>, token: &Token<'_>) -> bool {
    const OPENING: [&str; 11] =
        ["local", "return", "if", "for", "while", "repeat", "end", "else", "elseif", "until", "break"];
    const JOINING: [&str; 22] = [
        "=", ",", ".", ":", "..", "+", "-", "*", "/", "%", "^", "==", "~=", "<", ">", "<=", ">=", "and",
        "or", "in", "then", "do",
    ];
    let Some(before) = before else { return true };
    let one_of = |token: &Token<'_>, set: &[&str]| set.iter().any(|text| token.is(text));
    if one_of(token, &OPENING) || one_of(before, &["then", "do", "else", "repeat", ";"]) {
        return true;
    }
    let joined = one_of(before, &JOINING) || one_of(before, &["not", "#", "local", "function"]);
    let open = one_of(token, &JOINING) || one_of(token, &["(", "[", "{", ")", "]", "}"]);
    token.line > before.line && !joined && !open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_heads_of_returned_tables() {
        let body = Body::parse(
            "if a then return {\"missing\"} end\nlocal t = {\"not\", 1}\nf(function() return { \"in\", {\"nested\"} } end)\n\
             return ok and {\"ok\", {\n  \"deep\" }} or {\"no\"}",
            0,
        );
        let codes: Vec<_> = body.codes(&body.whole());
        assert_eq!(codes, [("missing", 1), ("in", 3), ("ok", 4), ("no", 5)]);
    }

    #[test]
    fn top_level_locals_are_definitions() {
        let body = Body::parse(
            "local LIMIT, NAME = 5,\n  \"x\"\nlocal function f(a, b)\n  local inner = a\n  if b then return a.b end\nend\n\
             local g = function(...)\n  return 1\nend\n",
            0,
        );
        let found: Vec<_> =
            body.definitions().into_iter().map(|found| (found.name, found.parameters, found.line)).collect();
        let of = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(
            found,
            [
                ("LIMIT".to_owned(), None, 1),
                ("NAME".to_owned(), None, 1),
                ("f".to_owned(), of(&["a", "b"]), 3),
                ("g".to_owned(), of(&["..."]), 7),
            ]
        );
        assert!(!body.names(&body.definitions()[2].range).contains("g"));
    }

    #[test]
    fn includes_are_named_with_their_lines() {
        let body = Body::parse("--[[\n]]\n--%include lease\n\n--%include type_of\n", 2);
        assert_eq!(body.includes, [("lease".to_owned(), 3), ("type_of".to_owned(), 5)]);
    }
}
