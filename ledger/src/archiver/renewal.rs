//! Leases are renewed also while the ledger is waited for, or after it failed, so that a slow database costs nobody its
//! lanes.
//!
//! It is done by whoever waits: an archiver that is stopped as a whole loses its lanes. Nothing is renewed of a lane that does
//! not get on for [`Pace::stuck`](super::Pace::stuck). That a lease is held still proves nothing to the ledger; its token does.

use redis_scripts::{FenceToken, HeldLane, HoldLanes};
use std::time::Duration;

use super::{Archiver, Event, Work};

/// The leases that are held when the wait begins.
pub(super) struct Renewal {
    archiver: Archiver,
    /// With the time at which it last got on.
    lanes: Vec<(HeldLane, Duration)>,
}

impl Work {
    pub(super) fn renewal(&self) -> Renewal {
        let lanes = self.lanes.values().map(|lane| (lane.held, lane.moved_at)).collect();
        Renewal { archiver: self.archiver.clone(), lanes }
    }
}

impl Renewal {
    /// Does `work`, and renews the leases for as long as it takes.
    pub(super) async fn during<T>(self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.renew() => match never {},
        }
    }

    async fn renew(&self) -> std::convert::Infallible {
        let Archiver { scripts, keys, me, pace, clock, events, .. } = &self.archiver;
        loop {
            tokio::time::sleep(pace.heartbeat).await;
            let now = clock();
            let gets_on = |moved_at: Duration| now.saturating_sub(moved_at) < pace.stuck;
            let held: Vec<HeldLane> =
                self.lanes.iter().filter(|(_, moved_at)| gets_on(*moved_at)).map(|(held, _)| *held).collect();
            let with = HoldLanes {
                me,
                ttl: pace.heartbeat * 3,
                owner_ttl: pace.owner_ttl,
                floor: FenceToken::new(0),
                takes: false,
                held: &held,
            };
            // What was lost meanwhile is said again when leases are renewed next, or entries are taken out.
            if let Err(error) = scripts.lanes_hold(keys, with).await {
                events.on(Event::Unavailable { why: error.to_string() });
            }
        }
    }
}
