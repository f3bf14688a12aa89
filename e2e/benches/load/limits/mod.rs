//! What this machine allows: the rate of a minimal script, and the price of a frame.

mod frames;
mod scripts;

pub(crate) use frames::{ARGUMENT as BROADCASTER, broadcaster};

use std::collections::BTreeMap;
use std::time::Duration;

use crate::figures::Limit;
use crate::workloads::Size;

/// What was measured in the rounds, by name.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// For each: its unit, and a value of each round.
    pub(crate) all: BTreeMap<String, (&'static str, Vec<f64>)>,
}

impl Limits {
    /// Measures each of them once more.
    pub(crate) async fn measure(&mut self, size: Size) {
        for (name, unit, value) in scripts::measure(size).await.into_iter().chain(frames::measure(size).await)
        {
            self.all.entry(name).or_insert((unit, Vec::new())).1.push(value);
        }
    }

    /// What a workload is a multiple, or a share, of: by the last values.
    pub(crate) fn of(&self, workload: &str) -> Option<Limit> {
        let last = |name: &str| self.all.get(name)?.1.last().copied();
        if workload.starts_with("broadcast") {
            let name = workload.replace("broadcast", "frame");
            return last(&name).map(|us| Limit::Frame(Duration::from_secs_f64(us / 1e6)));
        }
        // Those at as much at once.
        let is_join = ["join_own", "join_ten", "join_one"].contains(&workload);
        is_join.then(|| last(scripts::AT_ONCE).map(Limit::ScriptRate)).flatten()
    }
}
