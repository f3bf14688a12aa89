//! What is put around every remote media server: a deadline, bounded retries, and a circuit breaker.
//!
//! A server that does not answer costs each of its rooms one deadline, and after a few calls nothing at all: the
//! breaker opens, calls fail at once, and one of them is let through from time to time to see whether it is back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    Abilities, Grant, Load, MediaError, MediaKind, MediaServer, Member, Participant, Permissions, Router,
};

/// Attempts at a call that could not be made; one that was not answered is not repeated.
const ATTEMPTS: u32 = 3;
/// Pause before the second attempt; the next one is three times as long.
const PAUSE: Duration = Duration::from_millis(100);
/// Failures in a row that open the breaker.
const FAILURES: u32 = 5;
/// How long it stays open at first, and at most.
const OPEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// A media server that answers within a deadline, or fails.
#[derive(Debug)]
pub struct Guard {
    server: Arc<dyn MediaServer>,
    deadline: Duration,
    breaker: Mutex<Breaker>,
}

impl Guard {
    /// Puts `server` behind a deadline for each call, all its attempts together.
    pub fn new(server: Arc<dyn MediaServer>, deadline: Duration) -> Self {
        Self { server, deadline, breaker: Mutex::default() }
    }

    fn breaker(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, MediaError>
    where
        F: Future<Output = Result<T, MediaError>>,
    {
        if !self.breaker().admits(Instant::now()) {
            return Err(MediaError::unavailable("it has not answered of late"));
        }
        let attempts = async {
            let mut pause = PAUSE;
            for _ in 1..ATTEMPTS {
                match call().await {
                    Err(MediaError::Unavailable { .. }) => {}
                    other => return other,
                }
                tokio::time::sleep(pause).await;
                pause *= 3;
            }
            call().await
        };
        let answer = tokio::time::timeout(self.deadline, attempts).await;
        let answer = answer.unwrap_or_else(|_| Err(self.late()));
        self.breaker().heard(!is_silence(&answer), Instant::now());
        answer
    }

    fn late(&self) -> MediaError {
        MediaError::Timeout { after_ms: u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX) }
    }
}

const fn is_silence<T>(answer: &Result<T, MediaError>) -> bool {
    matches!(answer, Err(MediaError::Unavailable { .. } | MediaError::Timeout { .. }))
}

#[async_trait]
impl MediaServer for Guard {
    fn kind(&self) -> MediaKind {
        self.server.kind()
    }

    fn abilities(&self) -> Abilities {
        self.server.abilities()
    }

    async fn ensure_router(&self, router: &Router) -> Result<(), MediaError> {
        self.call(|| self.server.ensure_router(router)).await
    }

    async fn adopt_router(&self, router: &Router) -> Result<(), MediaError> {
        self.call(|| self.server.adopt_router(router)).await
    }

    async fn close_router(&self, router: &Router) -> Result<(), MediaError> {
        self.call(|| self.server.close_router(router)).await
    }

    async fn grant(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<Grant, MediaError> {
        if self.kind().grants_by_itself() {
            return self.server.grant(router, member, permissions).await;
        }
        self.call(|| self.server.grant(router, member, permissions)).await
    }

    async fn set_permissions(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<(), MediaError> {
        self.call(|| self.server.set_permissions(router, member, permissions)).await
    }

    async fn remove_participant(&self, router: &Router, name: &str) -> Result<(), MediaError> {
        self.call(|| self.server.remove_participant(router, name)).await
    }

    async fn list_participants(&self, router: &Router) -> Result<Vec<Participant>, MediaError> {
        self.call(|| self.server.list_participants(router)).await
    }

    /// Always asks, and once: it is what tells that a server is back.
    async fn health(&self) -> Result<Load, MediaError> {
        let answer = tokio::time::timeout(self.deadline, self.server.health()).await;
        let answer = answer.unwrap_or_else(|_| Err(self.late()));
        if answer.is_ok() {
            self.breaker().heard(true, Instant::now());
        }
        answer
    }
}

/// Lets no call through to a server that is known not to answer, but for one from time to time.
#[derive(Debug, Default)]
struct Breaker {
    failures: u32,
    opened: Option<Opened>,
}

#[derive(Debug, Clone, Copy)]
struct Opened {
    until: Instant,
    wait: Duration,
}

impl Breaker {
    fn admits(&mut self, now: Instant) -> bool {
        match &mut self.opened {
            None => true,
            Some(opened) if now >= opened.until => {
                // This one tries; others wait for what it finds.
                opened.until = now + opened.wait;
                true
            }
            Some(_) => false,
        }
    }

    fn heard(&mut self, answered: bool, now: Instant) {
        if answered {
            *self = Self::default();
            return;
        }
        self.failures += 1;
        if self.failures >= FAILURES {
            let wait = self.opened.map_or(OPEN.0, |opened| (opened.wait * 2).min(OPEN.1));
            self.opened = Some(Opened { until: now + wait, wait });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, RoomRef};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Answers what it is told to, and counts.
    #[derive(Debug)]
    struct Scripted {
        calls: AtomicU32,
        answer: fn(u32) -> Option<Result<(), MediaError>>,
    }

    impl Scripted {
        async fn answer(&self) -> Result<(), MediaError> {
            match (self.answer)(self.calls.fetch_add(1, Ordering::Relaxed)) {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    #[async_trait]
    impl MediaServer for Scripted {
        fn kind(&self) -> MediaKind {
            MediaKind::Janus
        }
        fn abilities(&self) -> Abilities {
            Abilities { live_list: true, makes_routers: true, tells_audio: true, takes_permissions: true }
        }
        async fn ensure_router(&self, _: &Router) -> Result<(), MediaError> {
            self.answer().await
        }
        async fn adopt_router(&self, _: &Router) -> Result<(), MediaError> {
            self.answer().await
        }
        async fn close_router(&self, _: &Router) -> Result<(), MediaError> {
            self.answer().await
        }
        async fn grant(&self, _: &Router, _: &Member, _: Permissions) -> Result<Grant, MediaError> {
            Err(MediaError::NotFound { what: "room" })
        }
        async fn set_permissions(&self, _: &Router, _: &Member, _: Permissions) -> Result<(), MediaError> {
            self.answer().await
        }
        async fn remove_participant(&self, _: &Router, _: &str) -> Result<(), MediaError> {
            self.answer().await
        }
        async fn list_participants(&self, _: &Router) -> Result<Vec<Participant>, MediaError> {
            self.answer().await.map(|()| Vec::new())
        }
        async fn health(&self) -> Result<Load, MediaError> {
            self.answer().await.map(|()| Load::default())
        }
    }

    fn guarded(answer: fn(u32) -> Option<Result<(), MediaError>>) -> (Guard, Arc<Scripted>) {
        let server = Arc::new(Scripted { calls: AtomicU32::new(0), answer });
        (Guard::new(Arc::clone(&server) as Arc<dyn MediaServer>, Duration::from_secs(3)), server)
    }

    fn router() -> Router {
        Router { room: RoomRef::new("a", "r"), name: "n".into(), generation: Generation(1) }
    }

    fn down() -> Option<Result<(), MediaError>> {
        Some(Err(MediaError::unavailable("down")))
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_sent_is_tried_again_and_a_refusal_is_not() {
        let (guard, server) = guarded(|n| if n < 2 { down() } else { Some(Ok(())) });
        assert_eq!(guard.ensure_router(&router()).await, Ok(()));
        assert_eq!(server.calls.load(Ordering::Relaxed), 3);
        let refused = MediaError::Refused { reason: "no".to_owned() };
        let (guard, server) = guarded(|_| Some(Err(MediaError::Refused { reason: "no".to_owned() })));
        assert_eq!(guard.ensure_router(&router()).await, Err(refused));
        assert_eq!(server.calls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_costs_one_deadline_each_and_then_nothing() {
        let (guard, server) = guarded(|_| None);
        let began = Instant::now();
        for _ in 0..FAILURES {
            assert_eq!(guard.ensure_router(&router()).await, Err(MediaError::Timeout { after_ms: 3_000 }));
        }
        assert_eq!(began.elapsed(), Duration::from_secs(15));
        for _ in 0..100 {
            assert!(matches!(guard.list_participants(&router()).await, Err(MediaError::Unavailable { .. })));
        }
        assert_eq!(began.elapsed(), Duration::from_secs(15), "no waiting");
        assert_eq!(server.calls.load(Ordering::Relaxed), FAILURES);
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_finds_out_that_it_is_back() {
        let (guard, server) = guarded(|n| if n < FAILURES * ATTEMPTS { down() } else { Some(Ok(())) });
        for _ in 0..FAILURES {
            assert!(guard.close_router(&router()).await.is_err());
        }
        assert!(guard.close_router(&router()).await.is_err(), "open");
        assert_eq!(server.calls.load(Ordering::Relaxed), FAILURES * ATTEMPTS);
        tokio::time::advance(OPEN.0).await;
        assert_eq!(guard.close_router(&router()).await, Ok(()));
        assert_eq!(guard.close_router(&router()).await, Ok(()), "closed again");
    }

    #[test]
    fn while_it_is_open_one_call_at_a_time_tries() {
        let mut breaker = Breaker::default();
        let mut now = Instant::now();
        for _ in 0..FAILURES {
            assert!(breaker.admits(now));
            breaker.heard(false, now);
        }
        assert!(!breaker.admits(now));
        let mut waited = Duration::ZERO;
        for wait in [1, 2, 4, 8, 15, 15] {
            let wait = Duration::from_secs(wait);
            now += wait;
            waited += wait;
            assert!(breaker.admits(now), "after {waited:?}");
            assert!(!breaker.admits(now), "one");
            breaker.heard(false, now);
        }
        breaker.heard(true, now);
        assert!(breaker.admits(now) && breaker.admits(now));
    }
}
