//! A ledger that lacks something: fed again with what Redis kept, or given the room as it stands in Redis.

use key_prefix::RoomKey;
use redis_scripts::{HeldLane, Read};

use super::{Event, Work, load_of, unavailable};
use crate::{LaneOutcome, RoomState};

/// Kept entries in one transaction.
const PAGE: usize = 500;

impl Work {
    /// Feeds a ledger that has fewer batches of a lane than Redis has seen it take, as one restored from a backup has.
    /// Returns the batches that it then has; `None`: it is to be claimed again.
    pub(super) async fn feed_again(&mut self, held: HeldLane, mut batches: u64) -> Option<u64> {
        let super::Archiver { scripts, keys, ledger, subscriptions, events, .. } = self.archiver.clone();
        let mut after: Option<String> = None;
        let mut fed = 0;
        loop {
            let (seen, kept) = match scripts.lanes_kept(&keys, held.lane, after.as_deref(), PAGE).await {
                Ok(read) => read,
                Err(error) => {
                    self.failed(Event::Unavailable { why: error.to_string() });
                    return None;
                }
            };
            if after.is_none() {
                if seen <= batches {
                    return Some(batches);
                }
                events.on(Event::FellBack { lane: held.lane, batches: seen - batches });
            }
            let Some(last) = kept.last() else { break };
            after = Some(last.id.clone());
            let now = last.at;
            let load = load_of(held, batches, kept);
            fed += load.ids.len();
            match ledger.archive(&[load.batch], &subscriptions, now).await.map(|mut outcomes| outcomes.pop())
            {
                Ok(Some(LaneOutcome::Archived(took))) => {
                    batches = took.batches;
                    for room in took.gaps {
                        self.heal(&room).await;
                    }
                }
                Ok(_) => return None,
                Err(error) => {
                    self.failed(unavailable(&error));
                    return None;
                }
            }
        }
        events.on(Event::FedAgain { lane: held.lane, entries: fed });
        Some(batches)
    }

    /// Entries of a room are missing in the ledger: its present state, as Redis has it, takes their place.
    pub(super) async fn heal(&mut self, room: &RoomKey) {
        let super::Archiver { scripts, keys, ledger, events, .. } = self.archiver.clone();
        let standing = match scripts.read_room(&keys, room).await {
            Ok(Read::Ok(standing)) if standing.whole && standing.proved => standing,
            Ok(_) => return events.on(Event::Gap { healed: false }),
            Err(error) => return self.failed(Event::Unavailable { why: error.to_string() }),
        };
        let found = &standing.state;
        let state = match RoomState::of_redis(found) {
            Ok(state) => state,
            Err(why) => {
                tracing::error!(why, app = room.app(), room = room.room(), "the room cannot be read");
                return events.on(Event::Gap { healed: false });
            }
        };
        match ledger.put_snapshot(room, found.token, &state, found.cv, found.sv, standing.now).await {
            Ok(healed) => events.on(Event::Gap { healed }),
            Err(error) => self.failed(unavailable(&error)),
        }
    }
}
