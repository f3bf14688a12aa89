//! When somebody's audio counts as started and stopped. Pure.

use std::time::{Duration, Instant};

/// Opus packets of at most this many bytes carry no sound: with DTX they only say that the sender is there.
const DTX_PAYLOAD_MAX: usize = 2;

/// One participant's audio.
#[derive(Debug, Default)]
pub(super) struct Activity {
    last: Option<Instant>,
}

impl Activity {
    /// Takes note of a packet; true if audio started with it.
    pub(super) fn packet(&mut self, now: Instant, payload: usize) -> bool {
        let started = self.last.is_none() && payload > DTX_PAYLOAD_MAX;
        if started || self.last.is_some() {
            self.last = Some(now);
        }
        started
    }

    pub(super) fn audible(&self) -> bool {
        self.last.is_some()
    }

    /// When it stops unless a packet comes.
    pub(super) fn deadline(&self, silence: Duration) -> Option<Instant> {
        self.last.map(|last| last + silence)
    }

    /// Ends it; true if it had been audible.
    pub(super) fn stop(&mut self) -> bool {
        self.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(3);

    #[test]
    fn starts_with_sound_and_is_kept_by_dtx() {
        let (mut activity, t0) = (Activity::default(), Instant::now());
        assert!(!activity.packet(t0, 1), "a DTX packet is no sound");
        assert_eq!(activity.deadline(SILENCE), None);
        assert!(activity.packet(t0, 40));
        assert!(!activity.packet(t0 + Duration::from_secs(1), 1));
        assert_eq!(activity.deadline(SILENCE), Some(t0 + Duration::from_secs(4)));
        assert!(activity.stop());
        assert!(!activity.stop(), "it stops once");
        assert!(activity.packet(t0 + Duration::from_secs(9), 40), "and may start again");
    }
}
