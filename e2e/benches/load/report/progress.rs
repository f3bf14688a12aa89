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

/// Further rounds are cut short after this time, so that a slow machine ends as well.
const LONGEST: Duration = Duration::from_secs(14 * 60);

impl Progress {
    /// Of none so far.
    pub(crate) fn new(all: usize) -> Self {
        Self { all, done: 0, begun: Instant::now() }
    }

    /// Whether nothing more is to begin.
    pub(crate) fn is_late(&self) -> bool {
        self.begun.elapsed() > LONGEST
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
