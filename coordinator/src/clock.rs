//! Time from outside: the one place that asks the machine what time it is.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment on two clocks at once: CLOCK_BOOTTIME, which goes on while the machine sleeps, and the wall
/// clock, which a frozen virtual machine finds advanced when it wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    boot_ms: u64,
    wall_ms: u64,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let boot_ms = u64::try_from(boot.tv_sec).unwrap_or(0) * 1000
            + u64::try_from(boot.tv_nsec).unwrap_or(0) / 1_000_000;
        Self { boot_ms, wall_ms: wall_ms() }
    }

    /// How long ago `earlier` was: the longer of what the two clocks say. A wall clock set back counts
    /// for nothing.
    pub fn since(self, earlier: Self) -> Duration {
        let boot = self.boot_ms.saturating_sub(earlier.boot_ms);
        let wall = self.wall_ms.saturating_sub(earlier.wall_ms);
        Duration::from_millis(boot.max(wall))
    }

    pub(crate) const fn parts(self) -> (u64, u64) {
        (self.boot_ms, self.wall_ms)
    }

    pub(crate) const fn from_parts(boot_ms: u64, wall_ms: u64) -> Self {
        Self { boot_ms, wall_ms }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Now on the clock that timers of this process run by.
pub fn instant() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Unix seconds by the machine's clock: what tokens are checked against.
pub fn unix_seconds() -> u64 {
    wall_ms() / 1000
}

/// Unix milliseconds by the same clock.
pub fn unix_millis() -> u64 {
    wall_ms()
}

/// An answer of Redis that took longer tells too little of its clock.
const LATE_ANSWER: Duration = Duration::from_millis(500);

/// Redis's clock as last heard of, for times that clients see.
#[derive(Debug, Default)]
pub struct RedisClock {
    offset_ms: AtomicI64,
}

impl RedisClock {
    /// Notes what Redis's clock said in an answer that took so long from its question: half of that is what the
    /// answer took on its way. One that took very long says nothing.
    pub fn heard(&self, redis_ms: u64, took: Duration) {
        if took > LATE_ANSWER {
            return;
        }
        let since = i64::try_from(took.as_millis() / 2).unwrap_or(0);
        let now = i64::try_from(redis_ms).unwrap_or(i64::MAX).saturating_add(since);
        let offset = now - i64::try_from(wall_ms()).unwrap_or(0);
        self.offset_ms.store(offset, Ordering::Relaxed);
    }

    /// Unix milliseconds by Redis's clock.
    pub fn now_ms(&self) -> u64 {
        wall_ms().saturating_add_signed(self.offset_ms.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_two_clocks_counts() {
        let start = Moment::from_parts(1_000, 50_000);
        assert_eq!(Moment::from_parts(1_500, 50_200).since(start), Duration::from_millis(500));
        assert_eq!(
            Moment::from_parts(1_010, 80_000).since(start),
            Duration::from_secs(30),
            "a frozen machine"
        );
        assert_eq!(
            Moment::from_parts(1_010, 20_000).since(start),
            Duration::from_millis(10),
            "a clock set back"
        );
    }

    #[test]
    fn redis_time_follows_what_was_heard() {
        let clock = RedisClock::default();
        clock.heard(wall_ms() + 60_000, Duration::from_millis(200));
        let ahead = clock.now_ms() - wall_ms();
        assert!((59_100..=61_100).contains(&ahead), "{ahead}");
        clock.heard(wall_ms(), Duration::from_secs(2));
        assert!(clock.now_ms() - wall_ms() >= 59_000, "an answer that took too long counts for nothing");
    }
}
