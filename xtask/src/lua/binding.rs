//! KEYS and ARGV: bound to names once, at the top, exactly as the header lists them.

use crate::lua::body::{Body, Statement, is_variable};
use crate::lua::header::{Header, Slot};
use crate::lua::token::{Kind, Token};
use crate::problem::Problem;

/// One reading of KEYS or ARGV.
#[derive(Debug, PartialEq, Eq)]
enum Reading {
    /// `KEYS[2]`.
    Number(usize),
    /// `KEYS[i]`, `#KEYS`, `unpack(KEYS, 2)`.
    Computed,
}

pub(crate) fn check(file: &str, header: &Header, body: &Body<'_>, problems: &mut Vec<Problem>) {
    check_table(file, "KEYS", "key", &header.keys, body, problems);
    check_table(file, "ARGV", "arg", &header.arguments, body, problems);
    check_bound_names(file, body, problems);
}

/// An include gets what it needs as parameters.
pub(crate) fn check_untouched(file: &str, body: &Body<'_>, problems: &mut Vec<Problem>) {
    for table in ["KEYS", "ARGV"] {
        if let Some((_, at)) = readings(&body.tokens, table).first() {
            let message = format!("an include does not read {table}; pass it in");
            problems.push(Problem::new(file, body.tokens[*at].line, message));
        }
    }
}

fn check_table(
    file: &str,
    table: &str,
    kind: &str,
    slots: &[Slot],
    body: &Body<'_>,
    problems: &mut Vec<Problem>,
) {
    let mut problem = |line, message| problems.push(Problem::new(file, line, message));
    let tail = slots.last().filter(|slot| slot.variadic);
    let readings = readings(&body.tokens, table);
    let bindings = binding_tokens(body);
    let mut bound: Vec<(usize, usize)> = Vec::new();
    for (reading, at) in &readings {
        let line = body.tokens[*at].line;
        match reading {
            Reading::Number(number) => {
                let listed = slots.iter().any(|slot| slot.number == *number)
                    || tail.is_some_and(|tail| *number > tail.number);
                if !listed {
                    problem(line, format!("{table}[{number}] is not in the header"));
                }
                if let Some((_, first)) = bound.iter().find(|(known, _)| known == number) {
                    problem(
                        line,
                        format!("{table}[{number}] is read again; line {first} bound it to a name"),
                    );
                } else if !bindings.iter().any(|range| range.contains(at)) {
                    problem(line, format!("{table}[{number}] is read below the bindings at the top"));
                }
                bound.push((*number, line));
            }
            Reading::Computed if tail.is_none() => {
                problem(
                    line,
                    format!("{table} is read by a computed index, and no {kind} is a tail (`n..`)"),
                );
            }
            Reading::Computed => {}
        }
    }
    let computed = readings.iter().any(|(reading, _)| *reading == Reading::Computed);
    for slot in slots {
        let used =
            if slot.variadic { computed } else { bound.iter().any(|(known, _)| *known == slot.number) };
        if !used {
            let tail = if slot.variadic { ".." } else { "" };
            problem(slot.line, format!("{kind} {}{tail} is never read", slot.number));
        }
    }
}

/// A name bound to a key or an argument is used.
fn check_bound_names(file: &str, body: &Body<'_>, problems: &mut Vec<Problem>) {
    for range in binding_tokens(body) {
        let statement = &body.tokens[range.clone()];
        let reads = |table| readings(statement, table).into_iter().next().is_some();
        if !statement[0].is("local") || (!reads("KEYS") && !reads("ARGV")) {
            continue;
        }
        let left = statement.iter().skip(1).take_while(|token| !token.is("="));
        for name in left.filter(|token| token.kind == Kind::Name && token.text != "_") {
            let uses = (0..body.tokens.len())
                .filter(|&at| body.tokens[at].text == name.text && is_variable(&body.tokens, at))
                .count();
            if uses < 2 {
                problems.push(Problem::new(
                    file,
                    name.line,
                    format!("`{}` is bound and never used", name.text),
                ));
            }
        }
    }
}

fn readings(tokens: &[Token<'_>], table: &str) -> Vec<(Reading, usize)> {
    let mut readings = Vec::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| token.is(table)) {
        let number = match tokens.get(at + 1..at + 4) {
            Some([open, index, close]) if open.is("[") && index.kind == Kind::Number && close.is("]") => {
                index.text.parse().ok()
            }
            _ => None,
        };
        readings.push((number.map_or(Reading::Computed, Reading::Number), at));
    }
    readings
}

/// Tokens of the `local` statements, and of loops that take an argument apart, before anything else
/// happens.
fn binding_tokens(body: &Body<'_>) -> Vec<std::ops::Range<usize>> {
    let binds =
        |statement: &Statement<'_, '_>| ["local", "for"].iter().any(|word| statement.tokens[0].is(word));
    body.statements()
        .filter(|statement| statement.depth == 0)
        .take_while(|statement| binds(statement) || statement.tokens[0].is("end"))
        .filter(binds)
        .map(|statement| statement.first..statement.first + statement.tokens.len())
        .collect()
}
