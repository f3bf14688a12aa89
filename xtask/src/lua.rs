//! `check-lua`: a script's header says what its body does, or the build stops.
//!
//! A command file opens with a comment that names its purpose, every key with its type, every argument
//! with its kind, every reply, and the invariants it keeps; an include opens with what it defines. Headers
//! rot when nothing reads them, so each line is compared with the body: keys and arguments by number,
//! replies by the code that stands first in a returned table, includes by the functions used from them.
//! What a script must never do is refused in the same pass: a clock that is not Redis's own, a key put
//! together from strings, a command name that is not written out.

mod binding;
mod body;
mod calls;
mod command;
mod header;
mod include;
mod token;

use std::collections::BTreeMap;

use crate::lua::include::Include;
use crate::problem::Problem;
use crate::tree::Tree;

const COMMANDS: &str = "redis-scripts/lua/";
const INCLUDES: &str = "redis-scripts/lua/includes/";

/// What is wrong with the scripts of the tree.
pub(crate) fn problems(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut includes = BTreeMap::new();
    for (path, name, text) in scripts(tree, INCLUDES) {
        match Include::parse(path, name, text) {
            Ok(include) => {
                include.check(&mut problems);
                includes.insert(name.to_owned(), include);
            }
            Err(found) => problems.extend(found),
        }
    }
    include::check_graph(&includes, &mut problems);
    for (path, _, text) in scripts(tree, COMMANDS) {
        command::check(path, text, &includes, &mut problems);
    }
    problems.sort();
    problems.dedup();
    problems
}

/// The string literals of a script, with their lines.
pub(crate) fn strings(text: &str) -> Vec<(String, usize)> {
    let tokens = token::tokens(text, 1);
    let texts = tokens.iter().filter(|token| token.kind == token::Kind::Text);
    texts.map(|token| (token.text.to_owned(), token.line)).collect()
}

/// Path, name without `.lua`, and text of each script directly in `folder`.
fn scripts<'t>(tree: &'t Tree, folder: &'t str) -> impl Iterator<Item = (&'t str, &'t str, &'t str)> {
    tree.texts().filter_map(move |(file, text)| {
        let name = file.path.strip_prefix(folder)?.strip_suffix(".lua")?;
        (!name.contains('/')).then_some((file.path.as_str(), name, text))
    })
}

#[cfg(test)]
mod tests;
