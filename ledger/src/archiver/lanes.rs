//! The lanes that an archiver holds: taken, claimed in the ledger, renewed, given up.

use key_prefix::lane_lease;
use redis_scripts::{FenceToken, HeldLane, HoldLanes, RedisMillis};
use std::time::Duration;

use super::{Event, Work, unavailable};
use crate::Claimed;

/// Tries at an entry that the ledger refuses, before it is set aside.
const STRIKES: u32 = 3;

/// A lane whose lease is ours.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) held: HeldLane,
    /// Batches that the ledger has of it; `None`: it is still to be claimed there.
    pub(super) batches: Option<u64>,
    pub(super) length: u64,
    /// It is another's share: given up as soon as it is empty, or at this time.
    leaving: Option<Duration>,
    pub(super) moved_at: Duration,
    struck: (String, u32),
}

impl Lane {
    fn new(held: HeldLane, now: Duration) -> Self {
        Self { held, batches: None, length: 0, leaving: None, moved_at: now, struck: (String::new(), 0) }
    }

    /// It got on.
    pub(super) const fn moved(&mut self, now: Duration) {
        self.moved_at = now;
    }

    /// The ledger refused this entry; whether that was often enough.
    pub(super) fn strike(&mut self, entry: &str) -> bool {
        if self.struck.0 != entry {
            self.struck = (entry.to_owned(), 0);
        }
        self.struck.1 += 1;
        self.struck.1 >= STRIKES
    }
}

impl Work {
    /// Renews the leases of the lanes that get on, takes free ones, claims them in the ledger, gives up what is too much.
    pub(super) async fn hold(&mut self, takes: bool) {
        let now = (self.archiver.clock)();
        let pace = self.archiver.pace;
        self.hold_at = now + pace.heartbeat;
        let held: Vec<HeldLane> = self
            .lanes
            .values()
            .filter(|lane| now.saturating_sub(lane.moved_at) < pace.stuck)
            .map(|lane| lane.held)
            .collect();
        let with = HoldLanes {
            me: &self.archiver.me,
            ttl: pace.heartbeat * 3,
            owner_ttl: pace.owner_ttl,
            floor: FenceToken::new(self.floor),
            takes,
            held: &held,
        };
        let answer = match self.archiver.scripts.lanes_hold(&self.archiver.keys, with).await {
            Ok(answer) => answer,
            Err(error) => {
                self.failed(Event::Unavailable { why: error.to_string() });
                self.hold_at = now + pace.heartbeat / 5;
                return;
            }
        };
        self.lanes.retain(|number, lane| {
            let is_stuck = now.saturating_sub(lane.moved_at) >= pace.stuck;
            if is_stuck {
                self.archiver.events.on(Event::Stuck { lane: *number });
            }
            !is_stuck
        });
        self.lose(answer.lost);
        for held in answer.taken {
            self.lanes.insert(held.lane, Lane::new(held, now));
        }
        // Who has nothing to archive would never learn that the ledger is well again.
        if !self.is_well
            && !self.has_claimed
            && let Some(lane) = self.lanes.values_mut().next()
        {
            lane.batches = None;
        }
        self.renewal().during(self.claim()).await;
        if takes {
            self.shed(answer.share, now);
        }
        self.release(now).await;
        self.archiver.events.on(Event::Holding { lanes: self.lanes.keys().copied().collect() });
    }

    /// Forgets lanes whose leases are others'.
    pub(super) fn lose(&mut self, lost: Vec<u16>) {
        for number in lost {
            if self.lanes.remove(&number).is_some() {
                self.archiver.events.on(Event::Lost { lane: number });
            }
        }
    }

    /// Has the ledger know the tokens of lanes that were just taken; whoever held them before writes nothing any more.
    async fn claim(&mut self) {
        let unclaimed: Vec<HeldLane> =
            self.lanes.values().filter(|lane| lane.batches.is_none()).map(|lane| lane.held).collect();
        if unclaimed.is_empty() {
            return;
        }
        let claims: Vec<(u16, FenceToken)> = unclaimed.iter().map(|held| (held.lane, held.token)).collect();
        let claimed = match self.archiver.ledger.claim_lanes(&claims, RedisMillis::new(0)).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.failed(unavailable(&error));
                self.hold_at = (self.archiver.clock)() + self.archiver.pace.heartbeat / 5;
                return;
            }
        };
        self.has_claimed = true;
        for (held, claimed) in unclaimed.into_iter().zip(claimed) {
            match claimed {
                Claimed::Ok { batches } => {
                    let Some(batches) = self.feed_again(held, batches).await else { continue };
                    if let Some(lane) = self.lanes.get_mut(&held.lane) {
                        lane.batches = Some(batches);
                    }
                }
                Claimed::Fenced { token } => {
                    self.floor = self.floor.max(token.as_u64());
                    self.give_up(held).await;
                    self.archiver.events.on(Event::Fenced { lane: held.lane });
                }
            }
        }
    }

    /// What is more than the share is left to others, the highest numbers first.
    fn shed(&mut self, share: usize, now: Duration) {
        let until = now + self.archiver.pace.heartbeat;
        for (at, lane) in self.lanes.values_mut().enumerate() {
            if at < share {
                lane.leaving = None;
            } else {
                lane.leaving.get_or_insert(until);
            }
        }
    }

    /// All lanes are left to others once they are empty.
    pub(super) fn leave_all(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.leaving = Some(Duration::MAX);
        }
        self.hold_at = Duration::ZERO;
    }

    /// Gives up lanes that are left to others, once they are empty or have been waited for.
    pub(super) async fn release(&mut self, now: Duration) {
        let is_over = |lane: &&Lane| lane.leaving.is_some_and(|until| lane.length == 0 || now >= until);
        let over: Vec<HeldLane> = self.lanes.values().filter(is_over).map(|lane| lane.held).collect();
        for held in over {
            self.give_up(held).await;
        }
    }

    /// Gives up what is left.
    pub(super) async fn release_all(&mut self) {
        let all: Vec<HeldLane> = self.lanes.values().map(|lane| lane.held).collect();
        for held in all {
            self.give_up(held).await;
        }
    }

    async fn give_up(&mut self, held: HeldLane) {
        let super::Archiver { scripts, keys, me, .. } = &self.archiver;
        self.lanes.remove(&held.lane);
        if let Err(error) = scripts.lease_release(keys, &lane_lease(held.lane), me, held.token).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                lane = held.lane,
                "the lane's lease ends by itself"
            );
        }
    }
}
