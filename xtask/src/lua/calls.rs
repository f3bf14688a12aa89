//! What a script asks of Redis, and of the machine.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::lua::body::{Body, bracket_depth, is_variable};
use crate::lua::token::{Kind, Token};
use crate::problem::Problem;

/// Commands without a key.
const KEYLESS: [&str; 4] = ["TIME", "INFO", "PING", "ECHO"];
/// Commands whose every argument is a key.
const ALL_KEYS: [&str; 4] = ["DEL", "UNLINK", "EXISTS", "TOUCH"];
/// Commands whose key follows a subcommand.
const SUBCOMMAND: [&str; 4] = ["OBJECT", "XINFO", "XGROUP", "MEMORY"];

/// Clocks, randomness, and command names that are not written out.
pub(crate) fn check(file: &str, body: &Body<'_>, problems: &mut Vec<Problem>) {
    let tokens = &body.tokens;
    for at in 0..tokens.len() {
        if !is_variable(tokens, at) || !tokens.get(at + 1).is_some_and(|dot| dot.is(".")) {
            continue;
        }
        let Some(field) = tokens.get(at + 2) else { continue };
        let mut problem = |message: &str| problems.push(Problem::new(file, tokens[at].line, message));
        match (tokens[at].text, field.text) {
            ("os", _) => problem("time comes from `redis.call(\"TIME\")`, not from `os`"),
            ("math", "random" | "randomseed") => problem("a script draws no random numbers; pass them in"),
            ("redis", "call" | "pcall") => match (tokens.get(at + 3), tokens.get(at + 4)) {
                (Some(open), Some(name)) if open.is("(") && name.kind == Kind::Text => {
                    if !name.text.chars().all(|c| c.is_ascii_uppercase()) {
                        problem("a command's name is written in upper case");
                    }
                }
                _ => problem("the first argument of `redis.call` is the command's name, written out"),
            },
            _ => {}
        }
    }
}

/// Where, in `range`, a call's key or channel was put together from strings or is one.
pub(crate) fn derived_key(
    body: &Body<'_>,
    range: &Range<usize>,
    derived: &BTreeSet<String>,
) -> Option<usize> {
    let tokens = &body.tokens;
    range.clone().find_map(|at| {
        let called = tokens[at].is("redis")
            && tokens.get(at + 2).is_some_and(|field| field.is("call") || field.is("pcall"))
            && tokens.get(at + 3).is_some_and(|open| open.is("("));
        let arguments = if called { arguments(&tokens[at + 4..]) } else { return None };
        let name = arguments.first()?.first()?;
        let keys = match name.text {
            keyless if KEYLESS.contains(&keyless) => return None,
            all if ALL_KEYS.contains(&all) => arguments.get(1..)?,
            sub if SUBCOMMAND.contains(&sub) => arguments.get(2..3)?,
            _ => arguments.get(1..2)?,
        };
        let is_derived = |key: &&[Token<'_>]| {
            concatenates(key, derived) || matches!(key, [only] if only.kind == Kind::Text)
        };
        keys.iter().any(is_derived).then_some(name.line)
    })
}

/// Names whose value is put together from strings, in all of `bodies`: by `..`, by a function that returns
/// such a value, or from another such name.
pub(crate) fn derived_names<'b, 's: 'b>(
    bodies: &(impl Iterator<Item = &'b Body<'s>> + Clone),
) -> BTreeSet<String> {
    let mut derived = BTreeSet::new();
    loop {
        let known = derived.len();
        for body in bodies.clone() {
            for statement in body.statements() {
                let Some(equals) = statement.tokens.iter().position(|token| token.is("=")) else { continue };
                let (left, right) = statement.tokens.split_at(equals);
                let is_function = right.get(1).is_some_and(|token| token.is("function"));
                if !is_function && concatenates(right, &derived) {
                    let names = left.iter().filter(|token| token.kind == Kind::Name && !token.is("local"));
                    derived.extend(names.map(|token| token.text.to_owned()));
                }
            }
            for definition in body.definitions().iter().filter(|definition| definition.parameters.is_some()) {
                let mut returns = body.statements().filter(|statement| {
                    definition.range.contains(&statement.first) && statement.tokens[0].is("return")
                });
                if returns.any(|statement| concatenates(statement.tokens, &derived)) {
                    derived.insert(definition.name.clone());
                }
            }
        }
        if derived.len() == known {
            return derived;
        }
    }
}

/// A `..` or a derived name outside brackets: what stands inside a call is that call's business.
fn concatenates(tokens: &[Token<'_>], derived: &BTreeSet<String>) -> bool {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        if depth == 0 && (token.is("..") || (is_variable(tokens, at) && derived.contains(token.text))) {
            return true;
        }
        depth = bracket_depth(depth, token);
    }
    false
}

/// The arguments of a call whose opening bracket stands just before `tokens`.
fn arguments<'t, 's>(tokens: &'t [Token<'s>]) -> Vec<&'t [Token<'s>]> {
    let mut arguments = Vec::new();
    let (mut first, mut depth) = (0, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        let ends = depth == 0 && (token.is(")") || token.is(","));
        if ends {
            arguments.push(&tokens[first..at]);
            first = at + 1;
            if token.is(")") {
                break;
            }
        }
        depth = bracket_depth(depth, token);
    }
    arguments
}
