//! What was counted, and what contradicts.

use std::collections::BTreeMap;

/// The result of the check.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) counts: BTreeMap<&'static str, usize>,
    pub(crate) contradictions: Vec<String>,
}

impl Findings {
    /// Says how many there are of something.
    pub(crate) fn count(&mut self, what: &'static str, count: usize) {
        *self.counts.entry(what).or_default() += count;
    }

    /// Notes a contradiction unless this `holds`.
    pub(crate) fn demand(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.contradictions.push(otherwise());
        }
    }
}
