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

/// Whoever is at most so many decibels below the loudest speaks.
const SPEAKS_DB: u8 = 42;
/// Loud packets in a row without which it is a click.
const CLICK: u8 = 3;
/// A pause between two words.
const PAUSE: Duration = Duration::from_millis(600);
/// Where packets say that there is silence.
const SILENT_DB: u8 = 127;

/// Whether one participant speaks, by the levels that their packets carry.
#[derive(Debug, Default)]
pub(super) struct Voice {
    run: u8,
    loud: Option<Instant>,
}

impl Voice {
    /// Takes note of a packet that is so many decibels below the loudest (RFC 6464); gives how loud it is, from 0 to 1,
    /// if somebody began to speak with it.
    pub(super) fn packet(&mut self, now: Instant, below: u8) -> Option<f32> {
        if below > SPEAKS_DB {
            self.run = 0;
            return None;
        }
        self.run = self.run.saturating_add(1);
        if self.run < CLICK {
            return None;
        }
        let begins = self.loud.replace(now).is_none();
        begins.then(|| 1.0 - f32::from(below) / f32::from(SILENT_DB))
    }

    /// When they no longer speak unless a loud packet comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.loud.map(|loud| loud + PAUSE)
    }

    /// Ends it; true if they spoke.
    pub(super) fn stop(&mut self) -> bool {
        self.run = 0;
        self.loud.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voice_begins_after_a_click_and_outlasts_a_pause() {
        let (mut voice, t0) = (Voice::default(), Instant::now());
        let after = |ms| t0 + Duration::from_millis(ms);
        for (ms, below) in [(0, 20), (20, 20), (40, 90), (60, 20), (80, 20)] {
            assert_eq!(voice.packet(after(ms), below), None, "{ms}");
        }
        let level = voice.packet(after(100), 20).unwrap();
        assert!((level - 107.0 / 127.0).abs() < 0.001, "{level}");
        assert_eq!(voice.packet(after(120), 10), None, "it has begun");
        assert_eq!(voice.packet(after(140), SPEAKS_DB + 1), None);
        assert_eq!(voice.deadline(), Some(after(120) + PAUSE));
        assert!(voice.stop());
        assert!(!voice.stop());
        assert_eq!(voice.deadline(), None);
    }

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
