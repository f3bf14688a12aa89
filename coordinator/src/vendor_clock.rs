//! How far the clock of a media server is off, as far as the arrival of its reports shows.
//!
//! Nothing is reported before it happened, so that a report from the future shows a fast clock at once. A slow
//! clock looks like a slow way: it takes several reports that all seem late by more than the way takes. Small
//! differences are left alone, so that what one server said keeps its order; the room's rules allow for them.

use key_prefix::AppCode;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Newest reports that an offset is judged by.
const REPORTS: usize = 64;
/// Fewer say nothing about whether a clock is slow, or shows whole seconds.
const ENOUGH: usize = 8;
/// Offsets up to this are left alone, and so are changes of one.
const NOTICED_MS: i64 = 500;
/// What seems late by more was held up on its way.
const SLOW_MS: i64 = 2_000;
/// What is off by more says nothing about the clock.
const STRANGE_MS: i64 = 10_000;
/// What a clock of whole seconds leaves out.
const SECOND_MS: u64 = 1_000;

/// The clocks of all apps' media servers, as known to this instance.
#[derive(Debug, Default)]
pub struct VendorClocks {
    clocks: Mutex<HashMap<(AppCode, &'static str), VendorClock>>,
}

impl VendorClocks {
    /// When something happened by our clock that an app's media server of this vendor reports now for `at_ms`, in
    /// Unix milliseconds, and how exact that is.
    pub fn heard(&self, app: &AppCode, vendor: &'static str, at_ms: u64, now_ms: u64) -> (u64, u64) {
        let mut clocks = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = clocks.entry((app.clone(), vendor)).or_default();
        clock.hear(at_ms, now_ms);
        (clock.corrected(at_ms), clock.resolution_ms())
    }
}

/// What is known of one clock.
#[derive(Debug, Default)]
struct VendorClock {
    /// How long the newest reports took by it; negative where it is fast.
    took_ms: VecDeque<i64>,
    /// Reports in a row that came for whole seconds.
    whole: usize,
    /// What is added to its times.
    offset_ms: i64,
}

impl VendorClock {
    fn hear(&mut self, at_ms: u64, now_ms: u64) {
        self.whole = if at_ms.is_multiple_of(SECOND_MS) { self.whole + 1 } else { 0 };
        let took = i64::try_from(now_ms).unwrap_or(i64::MAX) - i64::try_from(at_ms).unwrap_or(i64::MAX);
        if took.abs() > STRANGE_MS {
            return;
        }
        if self.took_ms.len() == REPORTS {
            self.took_ms.pop_front();
        }
        self.took_ms.push_back(took);
        let estimate = self.estimate();
        if (estimate - self.offset_ms).abs() > NOTICED_MS {
            self.offset_ms = estimate;
        }
    }

    fn estimate(&self) -> i64 {
        match self.took_ms.iter().min() {
            Some(least) if *least < 0 => *least,
            Some(least) if self.took_ms.len() >= ENOUGH => {
                let left_out = i64::try_from(self.resolution_ms()).unwrap_or(0);
                (least - left_out).clamp(0, SLOW_MS)
            }
            _ => 0,
        }
    }

    fn corrected(&self, at_ms: u64) -> u64 {
        at_ms.saturating_add_signed(self.offset_ms)
    }

    const fn resolution_ms(&self) -> u64 {
        if self.whole < ENOUGH { 0 } else { SECOND_MS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_700_000_000_123;

    /// The clock after reports of things that happened at `NOON` plus these, each `took` on its way.
    fn heard(clock: impl Fn(u64) -> u64, reports: impl IntoIterator<Item = (u64, u64)>) -> VendorClock {
        let mut known = VendorClock::default();
        for (after, took) in reports {
            known.hear(clock(NOON + after), NOON + after + took);
        }
        known
    }

    fn each_second(count: u64) -> impl Iterator<Item = (u64, u64)> {
        (0..count).map(|n| (n * 1_037, 20 + n % 3))
    }

    #[test]
    fn a_good_clock_is_believed_to_the_millisecond() {
        let known = heard(|at| at, each_second(100));
        assert_eq!((known.corrected(NOON), known.resolution_ms()), (NOON, 0));
        // However late some of it comes.
        let known = heard(|at| at, each_second(20).chain((0..63).map(|n| (30_000 + n, 9_000))));
        assert_eq!(known.corrected(NOON), NOON);
    }

    #[test]
    fn a_fast_clock_is_put_right_at_once_and_a_slow_one_after_some_reports() {
        let known = heard(|at| at + 1_500, each_second(1));
        assert_eq!(known.corrected(NOON + 1_500), NOON + 20);
        let slow = |count| heard(|at| at - 1_500, each_second(count)).corrected(NOON - 1_500);
        assert_eq!((slow(7), slow(8), slow(100)), (NOON - 1_500, NOON + 20, NOON + 20));
    }

    #[test]
    fn whole_seconds_are_seen_and_are_no_slow_clock() {
        let whole = |at: u64| at - at % 1_000;
        let known = heard(whole, each_second(100));
        assert_eq!((known.corrected(NOON), known.resolution_ms()), (NOON, 1_000));
        // Nor where all of them come late within their seconds.
        let known = heard(whole, (0..20).map(|n| (n * 1_000 + 700, 50)));
        assert_eq!(known.corrected(NOON), NOON);
        let slow = heard(|at| whole(at - 1_500), each_second(100));
        let off = slow.corrected(NOON).abs_diff(NOON + 1_500);
        assert!(off <= 1_000, "{off}");
    }

    #[test]
    fn what_is_held_up_is_not_taken_for_now() {
        let known = heard(|at| at, (0..100).map(|n| (n, 9_000)));
        assert_eq!(known.corrected(NOON), NOON + 2_000);
        let known = heard(|at| at, (0..100).map(|n| (n, 60_000)));
        assert_eq!(known.corrected(NOON), NOON);
    }

    #[test]
    fn what_is_from_another_time_altogether_changes_nothing() {
        let strange = [(0, 20), (3_600_000, 20), (1_000, 20)];
        let known = heard(|at| if at > NOON + 3_000_000 { at + 3_600_000 } else { at }, strange);
        assert_eq!(known.corrected(NOON), NOON);
    }

    #[test]
    fn each_app_and_each_vendor_has_its_own() {
        let clocks = VendorClocks::default();
        let (a, b) = (AppCode::new("a").expect("an app"), AppCode::new("b").expect("an app"));
        assert_eq!(clocks.heard(&a, "janus", NOON + 1_500, NOON), (NOON, 0));
        assert_eq!(clocks.heard(&b, "janus", NOON, NOON), (NOON, 0));
        assert_eq!(clocks.heard(&a, "trtc", NOON, NOON), (NOON, 0));
        assert_eq!(clocks.heard(&a, "janus", NOON + 1_600, NOON + 110), (NOON + 100, 0));
    }
}
