//! The canary: a message to oneself, which proves that publishing reaches this instance.

use std::sync::Mutex;
use std::time::Duration;

use crate::clock::Moment;

/// When the last canary was sent, and when the last one came back.
#[derive(Debug, Default)]
pub struct Canary {
    flight: Mutex<Flight>,
}

#[derive(Debug, Default)]
struct Flight {
    sent: Option<(u64, Moment)>,
    returned: Option<Moment>,
    first: Option<Moment>,
    number: u64,
}

impl Canary {
    /// The next canary to publish.
    pub fn next(&self, now: Moment) -> u64 {
        let mut flight = self.lock();
        flight.number += 1;
        flight.sent = Some((flight.number, now));
        flight.first.get_or_insert(now);
        flight.number
    }

    /// A canary came back. Only the one sent last counts, with the time it was sent at.
    pub fn returned(&self, number: u64) {
        let mut flight = self.lock();
        if let Some((sent, at)) = flight.sent
            && sent == number
        {
            flight.returned = Some(at);
        }
    }

    /// Whether one sent within `age` has come back.
    pub fn is_fresh(&self, now: Moment, age: Duration) -> bool {
        self.lock().returned.is_some_and(|sent| now.since(sent) <= age)
    }

    /// Whether none came back for so long, though some were sent.
    pub fn is_missed(&self, now: Moment, age: Duration) -> bool {
        let flight = self.lock();
        let heard = flight.returned.or(flight.first);
        heard.is_some_and(|at| now.since(at) > age)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Flight> {
        self.flight.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i_24_only_a_canary_that_came_back_counts() {
        let canary = Canary::default();
        let at = |ms| Moment::from_parts(ms, ms);
        let age = Duration::from_secs(1);
        assert!(!canary.is_fresh(at(0), age) && !canary.is_missed(at(9_000), age), "none was sent");
        let first = canary.next(at(0));
        assert!(!canary.is_fresh(at(1), age), "it is still out");
        canary.returned(first);
        assert!(canary.is_fresh(at(1_000), age));
        assert!(!canary.is_fresh(at(1_001), age), "it is too old");
        canary.next(at(2_000));
        canary.returned(first);
        assert!(!canary.is_fresh(at(2_001), age), "an earlier one proves nothing new");
        assert!(canary.is_missed(at(2_001), age) && !canary.is_missed(at(1_000), age));
    }
}
