//! What a leader does in each interval.

use key_prefix::{AppCode, Instance, RoomKey};
use redis_scripts::{
    Due, DueRooms, FenceToken, Offer, Offered, Reap, Reaped, RedisMillis, ScriptError, Sweep, Swept,
};
use std::collections::HashMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::{Cause, Event, LEASE, Observer, Reaper, offer};

/// Rooms cleared in one call: Redis does nothing else meanwhile.
const CHUNK: usize = 20;
const PAGE: usize = 500;
/// Rooms offered in one round: what one instance can adopt within it.
const OFFERS: usize = 200;
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// Whether the leader may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Leader,
    Deposed,
}

/// Why a round ended early.
enum Interrupted {
    Deposed,
    Unavailable,
}

/// The rounds of one term.
pub(crate) struct Rounds<'a> {
    reaper: &'a Reaper,
    token: FenceToken,
    observer: Observer,
    disturbances: tokio::sync::watch::Receiver<u64>,
    /// Redis's time and the own one of the last round.
    clocks: Option<(Duration, Duration)>,
    is_outage: bool,
    /// Where each app's next page begins.
    pages: HashMap<AppCode, String>,
}

impl<'a> Rounds<'a> {
    pub(crate) fn new(reaper: &'a Reaper, token: FenceToken) -> Self {
        let mut disturbances = reaper.disturbances.clone();
        disturbances.mark_unchanged();
        let observer = Observer::new(reaper.timing.failover_wait);
        Self { reaper, token, observer, disturbances, clocks: None, is_outage: false, pages: HashMap::new() }
    }

    /// One round; it ends between two calls when the term is `over`.
    pub(crate) async fn next(&mut self, over: &CancellationToken) -> Standing {
        let outcome = over.run_until_cancelled(self.round()).await;
        match outcome {
            Some(Ok(())) => Standing::Leader,
            Some(Err(Interrupted::Unavailable)) => {
                self.reaper.events.on(Event::Unavailable);
                self.is_outage = true;
                Standing::Leader
            }
            Some(Err(Interrupted::Deposed)) | None => Standing::Deposed,
        }
    }

    async fn round(&mut self) -> Result<(), Interrupted> {
        let reaper = self.reaper;
        let Some(heartbeats) = self.answer(reaper.scripts.instances(&reaper.keys).await)? else {
            return Ok(());
        };
        let now = (reaper.clock)();
        if let Some(cause) = self.disturbance(now, heartbeats.now) {
            reaper.events.on(Event::Disturbed { cause });
            self.observer.disturbed(now);
        }
        for (dead, score) in self.observer.observe(now, &heartbeats.instances) {
            if dead != reaper.me {
                self.reap(&dead, score).await?;
            }
        }
        self.offer().await?;
        for app in &reaper.apps {
            self.sweep(app).await?;
        }
        Ok(())
    }

    /// Offers each room that is due and unowned to an instance that takes rooms, which adopts it or does not:
    /// as long as it is due it is offered again.
    async fn offer(&self) -> Result<(), Interrupted> {
        let Reaper { scripts, keys, me, timing, events, .. } = self.reaper;
        let owner_ttl = timing.owner_ttl;
        let with = DueRooms { lease: LEASE, me, token: self.token, owner_ttl, limit: OFFERS };
        let (rooms, instances) = match self.answer(scripts.due(keys, with).await)? {
            Some(Due::Ok { rooms, instances }) => (rooms, instances),
            Some(Due::NotLeader { .. }) => return Err(Interrupted::Deposed),
            None => return Ok(()),
        };
        let offers: Vec<(&RoomKey, &Instance)> =
            rooms.iter().filter_map(|room| Some((room, offer::place(room, &instances)?))).collect();
        if offers.is_empty() {
            return Ok(());
        }
        let with = Offer { lease: LEASE, me, token: self.token, offers: &offers };
        match self.answer(scripts.offer(keys, with).await)? {
            Some(Offered::Ok) => events.on(Event::Offered { rooms: offers.len() }),
            Some(Offered::NotLeader { .. }) => return Err(Interrupted::Deposed),
            None => {}
        }
        Ok(())
    }

    fn disturbance(&mut self, own: Duration, redis: RedisMillis) -> Option<Cause> {
        let redis = Duration::from_millis(redis.as_u64());
        let is_step = self.clocks.replace((redis, own)).is_some_and(|(redis_before, own_before)| {
            let expected = redis_before + own.saturating_sub(own_before);
            redis.abs_diff(expected) > CLOCK_STEP
        });
        let is_told = self.disturbances.has_changed().unwrap_or(false);
        self.disturbances.mark_unchanged();
        if std::mem::take(&mut self.is_outage) {
            return Some(Cause::Outage);
        }
        if is_told {
            return Some(Cause::Told);
        }
        is_step.then_some(Cause::ClockStep)
    }

    async fn reap(&self, dead: &Instance, score: RedisMillis) -> Result<(), Interrupted> {
        let Reaper { scripts, keys, me, timing, events, .. } = self.reaper;
        let (mut all_rooms, mut all_watches) = (0, 0);
        loop {
            let with = Reap {
                lease: LEASE,
                me,
                token: self.token,
                dead,
                score,
                chunk: CHUNK,
                life: timing.room_life,
                cleared: all_rooms,
                apps: &self.reaper.apps,
            };
            let is_done = match self.answer(scripts.reap(keys, with).await)? {
                Some(Reaped::More { rooms, watches }) => {
                    (all_rooms, all_watches) = (all_rooms + rooms, all_watches + watches);
                    false
                }
                Some(Reaped::Done { rooms, watches }) => {
                    (all_rooms, all_watches) = (all_rooms + rooms, all_watches + watches);
                    true
                }
                Some(Reaped::NotLeader { .. }) => return Err(Interrupted::Deposed),
                Some(Reaped::Alive) | None => return Ok(()),
            };
            if is_done {
                events.on(Event::Reaped { instance: dead.clone(), rooms: all_rooms, watches: all_watches });
                return Ok(());
            }
        }
    }

    async fn sweep(&mut self, app: &AppCode) -> Result<(), Interrupted> {
        let Reaper { scripts, keys, me, timing, events, .. } = self.reaper;
        let after = self.pages.get(app).map_or("", String::as_str);
        let with = Sweep {
            lease: LEASE,
            me,
            token: self.token,
            app: app.as_str(),
            after,
            limit: PAGE,
            life: timing.room_life,
        };
        match self.answer(scripts.sweep(keys, with).await)? {
            Some(Swept::Ok { next, ended, dropped }) => {
                self.pages.insert(app.clone(), next);
                events.on(Event::Swept { app: app.clone(), ended, dropped });
                Ok(())
            }
            Some(Swept::NotLeader { .. }) => Err(Interrupted::Deposed),
            None => Ok(()),
        }
    }

    /// `None` where the script failed for good: what it was to clear stays, and the round goes on.
    fn answer<T>(&self, answer: Result<T, ScriptError>) -> Result<Option<T>, Interrupted> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.is_unavailable() => {
                tracing::debug!(error = &error as &dyn std::error::Error, "the reaper's round ends early");
                Err(Interrupted::Unavailable)
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the reaper passes something over");
                self.reaper.events.on(Event::Failed);
                Ok(None)
            }
        }
    }
}
