//! What one connection may send. Pure.

use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(1);

/// Counts packets and bits over windows of a second.
#[derive(Debug)]
pub(super) struct Budget {
    max_bits: u64,
    max_packets: u64,
    since: Instant,
    bits: u64,
    packets: u64,
}

impl Budget {
    pub(super) fn new(now: Instant, max_bits: u64, max_packets: u64) -> Self {
        Self { max_bits, max_packets, since: now, bits: 0, packets: 0 }
    }

    /// Whether a packet of so many bytes is within the budget; if so, it is counted.
    pub(super) fn admit(&mut self, now: Instant, bytes: usize) -> bool {
        if now.saturating_duration_since(self.since) >= WINDOW {
            (self.since, self.bits, self.packets) = (now, 0, 0);
        }
        let bits = self.bits + bytes as u64 * 8;
        if bits > self.max_bits || self.packets == self.max_packets {
            return false;
        }
        (self.bits, self.packets) = (bits, self.packets + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_exactly_the_limit_in_each_window() {
        let t0 = Instant::now();
        let mut packets = Budget::new(t0, u64::MAX, 3);
        let admitted = (0..5).filter(|_| packets.admit(t0, 10)).count();
        assert_eq!(admitted, 3);
        assert!(packets.admit(t0 + WINDOW, 10));

        let mut bits = Budget::new(t0, 800, u64::MAX);
        assert!(bits.admit(t0, 100));
        assert!(!bits.admit(t0, 1));
    }
}
