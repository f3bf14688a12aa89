//! Whether a sink is worth trying: one that failed so often in a row is left alone, but for one try now and then.

use redis_scripts::RedisMillis;
use std::time::Duration;

/// What one sink's failures come to.
#[derive(Debug)]
pub(super) struct Breaker {
    /// So many in a row open it.
    threshold: u32,
    failed: u32,
    open: Option<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    until: u64,
    /// The one try that shows whether the sink is back is under way.
    probing: bool,
}

impl Breaker {
    pub(super) fn new(threshold: u32) -> Self {
        Self { threshold: threshold.max(1), failed: 0, open: None }
    }

    /// How many of `wanted` tries may begin.
    pub(super) fn allows(&self, wanted: usize, now: RedisMillis) -> usize {
        match self.open {
            None => wanted,
            Some(Open { until, probing }) if probing || now.as_u64() < until => 0,
            Some(_) => wanted.min(1),
        }
    }

    /// So many tries began.
    pub(super) fn began(&mut self, tries: usize) {
        if let Some(open) = self.open.as_mut().filter(|_| tries > 0) {
            open.probing = true;
        }
    }

    /// The sink answered as it should. Whether it had been left alone.
    pub(super) fn succeeded(&mut self) -> bool {
        self.failed = 0;
        self.open.take().is_some()
    }

    /// Failures in a row so far.
    pub(super) const fn failed(&self) -> u32 {
        self.failed
    }

    /// It did not; it is left alone for `pause`, if that was once too often or it asked for that. Whether that is new.
    pub(super) fn failed_once_more(&mut self, now: RedisMillis, pause: Duration, asked: bool) -> bool {
        self.failed = self.failed.saturating_add(1);
        if self.failed < self.threshold && !asked {
            return false;
        }
        let until = now.as_u64().saturating_add(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        // Of what began before it opened, each fails for itself.
        let until = self.open.map_or(until, |open| open.until.max(until));
        self.open.replace(Open { until, probing: false }).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> RedisMillis {
        RedisMillis::new(ms)
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_lets_one_try_through() {
        let mut breaker = Breaker::new(3);
        for _ in 0..2 {
            assert!(!breaker.failed_once_more(at(0), SECOND, false));
        }
        assert!(!breaker.succeeded(), "it was not open");
        for _ in 0..2 {
            assert!(!breaker.failed_once_more(at(0), SECOND, false));
        }
        assert_eq!(breaker.allows(8, at(0)), 8);
        assert!(breaker.failed_once_more(at(0), SECOND, false));
        assert_eq!(breaker.allows(8, at(999)), 0);
        assert_eq!(breaker.allows(8, at(1_000)), 1);
        breaker.began(1);
        assert_eq!(breaker.allows(8, at(1_000)), 0, "one at a time");
        assert!(!breaker.failed_once_more(at(1_500), SECOND * 2, false), "it was open before");
        assert_eq!(breaker.allows(8, at(3_499)), 0);
        assert_eq!(breaker.allows(8, at(3_500)), 1);
        breaker.began(1);
        assert!(breaker.succeeded());
        assert_eq!(breaker.allows(8, at(3_500)), 8);
    }

    #[test]
    fn a_sink_that_asks_for_a_pause_has_it() {
        let mut breaker = Breaker::new(100);
        assert!(breaker.failed_once_more(at(0), SECOND, true));
        assert_eq!(breaker.allows(8, at(500)), 0);
        assert_eq!(breaker.allows(8, at(1_000)), 1);
    }
}
