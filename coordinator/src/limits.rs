//! A token bucket, for requests of a connection and joins of an instance.

use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// So many a second, so many at once.
#[derive(Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    state: Mutex<(f64, Instant)>,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        Self {
            per_second: f64::from(per_second.max(1)),
            burst,
            state: Mutex::new((burst, crate::clock::instant())),
        }
    }

    /// Takes one, or says when there will be one.
    pub fn take(&self) -> Result<(), Duration> {
        self.take_at(crate::clock::instant())
    }

    fn take_at(&self, now: Instant) -> Result<(), Duration> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (tokens, filled) = *state;
        let tokens =
            (tokens + now.saturating_duration_since(filled).as_secs_f64() * self.per_second).min(self.burst);
        if tokens >= 1.0 {
            *state = (tokens - 1.0, now);
            return Ok(());
        }
        *state = (tokens, now);
        Err(Duration::from_secs_f64((1.0 - tokens) / self.per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n_pass_and_the_next_is_told_when() {
        let bucket = TokenBucket::new(10, 3);
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(bucket.take_at(now), Ok(()));
        }
        let wait = bucket.take_at(now).unwrap_err();
        assert!(wait <= Duration::from_millis(100) && wait > Duration::from_millis(90), "{wait:?}");
        assert_eq!(bucket.take_at(now + Duration::from_millis(101)), Ok(()));
    }
}
