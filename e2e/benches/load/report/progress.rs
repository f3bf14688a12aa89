//! How far a run has come.

use std::time::{Duration, Instant};

use crate::server::Kind;

/// Of so many measurements, those that are done.
#[derive(Debug)]
pub(crate) struct Progress {
    all: usize,
    done: usize,
    begun: Instant,
}

/// Nothing that is repeated begins after this time, so that a slow machine ends as well.
const LONGEST: Duration = Duration::from_secs(14 * 60);
/// What is not repeated takes up to so long.
const ONCE: Duration = Duration::from_secs(90);

impl Progress {
    /// Of none so far, `since` the run began: what had to be built counts.
    pub(crate) fn new(all: usize, since: Instant) -> Self {
        Self { all, done: 0, begun: since }
    }

    /// Whether nothing more of the kind is to begin.
    pub(crate) fn is_late(&self, is_once: bool) -> bool {
        self.begun.elapsed() > if is_once { LONGEST - ONCE } else { LONGEST }
    }

    /// How many there were to be that are not done.
    pub(crate) const fn left(&self) -> usize {
        self.all - self.done
    }

    /// Tells on standard error that one more is done, and how long it took.
    #[expect(clippy::print_stderr, reason = "the bench is a command")]
    pub(crate) fn step(&mut self, round: usize, workload: &str, kind: Kind, took: Duration) {
        self.done += 1;
        eprintln!(
            "{:3} of {}, {:4.0} s so far: round {} {workload} {}: {:.1} s",
            self.done,
            self.all,
            self.begun.elapsed().as_secs_f64(),
            round + 1,
            kind.name(),
            took.as_secs_f64()
        );
    }
}
