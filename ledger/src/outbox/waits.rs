//! How long a failed event waits, and when it is given up.

use std::time::Duration;

/// The waits of one sink's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// After the first failed try; it doubles with each.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
    /// After so long an event is given up, if a try fails.
    pub give_up_after: Duration,
    /// After so many failed tries too.
    pub attempts: u64,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(600),
            give_up_after: Duration::from_secs(24 * 3600),
            attempts: 1_000,
        }
    }
}

impl Waits {
    /// How long to wait after so many failed tries: between half of what it would be and all of it, by `chance` of 0 to 1.
    /// What the sink asks for is kept to, within bounds.
    pub(super) fn after(&self, failed: u64, asked: Option<Duration>, chance: f64) -> Duration {
        let doublings = u32::try_from(failed.saturating_sub(1)).unwrap_or(u32::MAX);
        let factor = 1_u32.checked_shl(doublings.min(31)).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(factor).min(self.longest);
        let wait = whole.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
        asked.map_or(wait, |asked| asked.clamp(wait, self.longest.max(wait)))
    }

    /// Whether an event is given up after so many failed tries in so long.
    pub(super) const fn are_over(&self, failed: u64, waited_ms: u64) -> bool {
        failed >= self.attempts || waited_ms as u128 >= self.give_up_after.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits = Waits::default();
        let whole: Vec<u64> =
            [1, 2, 3, 4, 10, 11, 500, u64::MAX].map(|n| waits.after(n, None, 1.0).as_secs()).into();
        assert_eq!(whole, [1, 2, 4, 8, 512, 600, 600, 600]);
        assert_eq!(waits.after(1, None, 0.0), Duration::from_millis(500));
    }

    #[test]
    fn what_the_sink_asks_for_is_kept_to_within_bounds() {
        let waits = Waits::default();
        assert_eq!(waits.after(1, Some(MINUTE), 1.0), MINUTE);
        assert_eq!(
            waits.after(1, Some(Duration::ZERO), 1.0),
            Duration::from_secs(1),
            "no sooner than anybody else"
        );
        assert_eq!(waits.after(1, Some(MINUTE * 1_000), 1.0), MINUTE * 10);
    }

    #[test]
    fn after_a_day_or_so_many_tries_it_is_given_up() {
        let waits = Waits { attempts: 5, ..Waits::default() };
        assert!(!waits.are_over(4, 86_399_999));
        assert!(waits.are_over(5, 0) && waits.are_over(1, 86_400_000));
    }
}
