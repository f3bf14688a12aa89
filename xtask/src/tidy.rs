//! `tidy`: what a reviewer would otherwise have to remember.
//!
//! Each rule stands in a module of its own kind and takes the tree; none changes anything.

mod crates;
mod keys;
mod purity;
mod text;

use crate::performance;
use crate::problem::Problem;
use crate::tree::Tree;

/// What breaks a rule anywhere in the tree.
pub(crate) fn problems(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for rule in [text::check, keys::check, purity::check, crates::check, performance::check] {
        rule(tree, &mut problems);
    }
    problems.sort();
    problems
}

#[cfg(test)]
fn found(rule: fn(&Tree, &mut Vec<Problem>), files: &[(&str, &str)]) -> Vec<String> {
    let mut problems = Vec::new();
    rule(&Tree::of(files), &mut problems);
    problems.sort();
    problems.iter().map(ToString::to_string).collect()
}
