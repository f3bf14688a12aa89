//! A command file: its header against its body and what it includes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::lua::body::Body;
use crate::lua::header::Header;
use crate::lua::include::{self, Include};
use crate::lua::{binding, calls};
use crate::problem::Problem;

/// A stretch of code that a call of the script can reach.
struct Reached<'b, 't> {
    path: &'b str,
    body: &'b Body<'t>,
    range: Range<usize>,
}

pub(crate) fn check(
    path: &str,
    text: &str,
    includes: &BTreeMap<String, Include<'_>>,
    problems: &mut Vec<Problem>,
) {
    let Some(header) = Header::parse(path, text, problems) else { return };
    let body = Body::parse(text, header.end);
    if let Some((_, line)) = header.include {
        problems.push(Problem::new(path, line, "a command is no include"));
    }
    if let Some((name, _, line)) = header.defines.first() {
        problems.push(Problem::new(path, *line, format!("a command defines nothing for others: `{name}`")));
    }
    include::check_named(path, &body, includes, problems);
    binding::check(path, &header, &body, problems);
    calls::check(path, &body, problems);
    let reached = reached(path, &body, includes);
    check_complete(path, &reached, includes, problems);
    check_codes(path, &header, &reached, problems);
    check_derived(path, &header, &reached, problems);
}

/// The body and every included definition that it uses, directly or through another.
fn reached<'b, 't>(
    path: &'b str,
    body: &'b Body<'t>,
    includes: &'b BTreeMap<String, Include<'t>>,
) -> Vec<Reached<'b, 't>> {
    let included = include::closure(body, includes);
    let mut reached = vec![Reached { path, body, range: body.whole() }];
    let mut names: Vec<&str> = body.names(&body.whole()).into_iter().collect();
    let mut seen: BTreeSet<&str> = names.iter().copied().collect();
    while let Some(name) = names.pop() {
        for include in &included {
            let found = include.definitions.iter().find(|definition| definition.name == name);
            let Some(definition) = found else { continue };
            let range = definition.range.clone();
            names.extend(include.body.names(&range).into_iter().filter(|name| seen.insert(name)));
            reached.push(Reached { path: include.path, body: &include.body, range });
        }
    }
    reached
}

/// What an include calls of another is there too.
fn check_complete(
    path: &str,
    reached: &[Reached<'_, '_>],
    includes: &BTreeMap<String, Include<'_>>,
    problems: &mut Vec<Problem>,
) {
    let Some(included) = reached.first().map(|whole| include::closure(whole.body, includes)) else { return };
    for part in reached {
        let defined = |name: &str| part.body.definitions().iter().any(|definition| definition.name == name);
        for name in part.body.calls(&part.range).into_iter().filter(|name| !defined(name)) {
            if included.iter().any(|include| include.offers(name)) {
                continue;
            }
            if let Some((owner, _)) = includes.iter().find(|(_, include)| include.offers(name)) {
                let message = format!("`{name}` is used in {} and include `{owner}` is not named", part.path);
                problems.push(Problem::new(path, 1, message));
            }
        }
    }
}

fn check_codes(path: &str, header: &Header, reached: &[Reached<'_, '_>], problems: &mut Vec<Problem>) {
    let Some(returns) = header.returns else {
        problems.push(Problem::new(path, 1, "the header has no `returns`"));
        return;
    };
    let mut returned = BTreeSet::new();
    for part in reached {
        for (code, line) in part.body.codes(&part.range) {
            returned.insert(code);
            if header.codes.iter().any(|(known, _)| known == code) {
                continue;
            }
            // What an include returns is missing from this header, not wrong in the include.
            let (line, through) = if part.path == path {
                (line, String::new())
            } else {
                (returns, format!(" (from {})", part.path))
            };
            problems.push(Problem::new(path, line, format!("reply \"{code}\"{through} is not in `returns`")));
        }
    }
    for (code, line) in &header.codes {
        if !returned.contains(code.as_str()) {
            problems.push(Problem::new(path, *line, format!("reply \"{code}\" is never returned")));
        }
    }
}

fn check_derived(path: &str, header: &Header, reached: &[Reached<'_, '_>], problems: &mut Vec<Problem>) {
    let derived = calls::derived_names(&reached.iter().map(|part| part.body));
    let found: Vec<_> = reached
        .iter()
        .filter_map(|part| Some((part.path, calls::derived_key(part.body, &part.range, &derived)?)))
        .collect();
    match header.derives {
        None => {
            for (part, line) in found {
                let message = "a key or channel is made here: pass it in, or say `derives` in the header";
                let (line, through) =
                    if part == path { (line, String::new()) } else { (1, format!(" (in {part}:{line})")) };
                problems.push(Problem::new(path, line, format!("{message}{through}")));
            }
        }
        Some(line) if found.is_empty() => {
            problems.push(Problem::new(path, line, "`derives`, but no key or channel is made"));
        }
        Some(_) => {}
    }
}
