//! The lease of a room, and how long one may rely on it.

use redis_scripts::FenceToken;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;

/// When a lease was last renewed. The heartbeat writes it, the room's actor reads it.
///
/// The moment is taken *before* the renewal is sent, so that it never claims more than Redis granted.
#[derive(Debug)]
pub struct LeaseTerm {
    boot_ms: AtomicU64,
    wall_ms: AtomicU64,
}

impl LeaseTerm {
    fn new(renewed: Moment) -> Self {
        let (boot_ms, wall_ms) = renewed.parts();
        Self { boot_ms: AtomicU64::new(boot_ms), wall_ms: AtomicU64::new(wall_ms) }
    }

    /// Notes a renewal that was sent at `sent`.
    pub fn renewed(&self, sent: Moment) {
        let (boot_ms, wall_ms) = sent.parts();
        self.boot_ms.fetch_max(boot_ms, Ordering::AcqRel);
        self.wall_ms.store(wall_ms, Ordering::Release);
    }

    fn moment(&self) -> Moment {
        Moment::from_parts(self.boot_ms.load(Ordering::Acquire), self.wall_ms.load(Ordering::Acquire))
    }
}

/// Proof that this incarnation won the room's lease. Not to be cloned; losing the room consumes it.
#[derive(Debug)]
pub struct Lease {
    token: FenceToken,
    term: Arc<LeaseTerm>,
    self_fence: Duration,
}

impl Lease {
    /// The lease that a `pin` sent at `sent` won.
    pub(super) fn won(token: FenceToken, sent: Moment, self_fence: Duration) -> Self {
        Self { token, term: Arc::new(LeaseTerm::new(sent)), self_fence }
    }

    /// Its fencing token.
    pub const fn token(&self) -> FenceToken {
        self.token
    }

    /// For the heartbeat, which renews it.
    pub fn term(&self) -> Arc<LeaseTerm> {
        Arc::clone(&self.term)
    }

    /// What is left until this instance must stop serving the room by itself; zero: it must.
    pub fn left(&self, now: Moment) -> Duration {
        self.self_fence.saturating_sub(now.since(self.term.moment()))
    }

    /// Whether the room may be served.
    pub fn holds(&self, now: Moment) -> bool {
        !self.left(now).is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCE: Duration = Duration::from_secs(12);

    #[test]
    fn i_1_a_lease_ends_by_itself_on_either_clock() {
        let sent = Moment::from_parts(1_000, 1_000_000);
        let lease = Lease::won(FenceToken::new(7), sent, FENCE);
        assert!(lease.holds(Moment::from_parts(12_999, 1_011_999)));
        assert!(!lease.holds(Moment::from_parts(13_000, 1_001_000)), "12 s of uptime");
        assert!(!lease.holds(Moment::from_parts(1_001, 1_012_000)), "12 s that the machine slept through");
        assert!(lease.holds(Moment::from_parts(2_000, 900_000)), "a wall clock set back");
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_sent() {
        let lease = Lease::won(FenceToken::new(7), Moment::from_parts(0, 0), FENCE);
        lease.term().renewed(Moment::from_parts(5_000, 5_000));
        assert_eq!(lease.left(Moment::from_parts(9_000, 9_000)), Duration::from_secs(8));
        lease.term().renewed(Moment::from_parts(4_000, 4_900));
        assert_eq!(
            lease.left(Moment::from_parts(9_000, 8_900)),
            Duration::from_secs(8),
            "a late answer takes nothing back"
        );
    }
}
