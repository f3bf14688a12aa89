//! Taking in what the lanes hold: several lanes in one transaction, each entry once.
//!
//! An entry is recognised by its position, which is room, token and version, and by its digest; never by its stream
//! id. So a batch can be fed as often as one likes: what is there already changes nothing.

mod heads;
pub(crate) mod lanes;
mod log;
mod plan;
mod snapshot;

use std::collections::HashMap;

use key_prefix::RoomKey;
use redis_scripts::{FenceToken, RedisMillis};

use crate::Ledger;
use crate::db::For;
use crate::entry::{Entry, Poison};
use crate::error::LedgerError;
use crate::outbox;
use crate::subscription::Subscriptions;
use plan::{Plan, Prepared};

pub(crate) use heads::{Standing, read_rooms as read_heads, write as write_heads};
pub(crate) use plan::Snapshot;
pub(crate) use snapshot::{load, write as write_snapshots};

/// What was read from a lane's beginning, by the holder of its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneBatch {
    /// Which lane.
    pub lane: u16,
    /// The token of its lease.
    pub token: FenceToken,
    /// Batches of it that the ledger has, as it said when the lane was claimed or after the last batch.
    pub batches: u64,
    /// Oldest first.
    pub entries: Vec<Entry>,
    /// What is set aside.
    pub poison: Vec<Poison>,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneOutcome {
    /// It is in the ledger.
    Archived(Archived),
    /// Somebody else holds the lane: nothing was written.
    Fenced {
        /// With this token.
        token: FenceToken,
    },
    /// The ledger has another number of batches: it fell back, or another batch came first. Nothing was written.
    Moved {
        /// This one.
        batches: u64,
    },
}

/// How a batch was taken in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Archived {
    /// Batches of the lane that the ledger has now.
    pub batches: u64,
    /// Entries that are new, and took effect.
    pub written: u64,
    /// Entries that were there already.
    pub repeated: u64,
    /// Entries of an owner whose time was over: kept, and without effect.
    pub superseded: u64,
    /// Entries at a position where another one stands: kept, and without effect.
    pub forks: u64,
    /// Entries whose body cannot be read, set aside with what was set aside before.
    pub aside: u64,
    /// Events that were put into the outbox, counted once for each sink.
    pub events: u64,
    /// Rooms of the batch whose log lacks something: their owners are to be asked for a snapshot.
    pub gaps: Vec<RoomKey>,
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The lane is the claimer's.
    Ok {
        /// Batches of it that the ledger has.
        batches: u64,
    },
    /// Somebody has claimed it with a higher token.
    Fenced {
        /// With this one.
        token: FenceToken,
    },
}

impl Ledger {
    /// Claims a lane for the holder of a lease: batches under lower tokens are refused from now on.
    ///
    /// # Errors
    ///
    /// The database cannot be used.
    pub async fn claim_lane(
        &self,
        lane: u16,
        token: FenceToken,
        at: RedisMillis,
    ) -> Result<Claimed, LedgerError> {
        let claimed = self.claim_lanes(&[(lane, token)], at).await?.pop();
        Ok(claimed.unwrap_or(Claimed::Fenced { token }))
    }

    /// Claims several lanes, each under its own token, in one transaction: whoever takes many over has them before their
    /// leases end. Answers are in the order of `claims`.
    ///
    /// # Errors
    ///
    /// The database cannot be used, and nothing was claimed.
    pub async fn claim_lanes(
        &self,
        claims: &[(u16, FenceToken)],
        at: RedisMillis,
    ) -> Result<Vec<Claimed>, LedgerError> {
        let numbers: Vec<u16> = claims.iter().map(|(lane, _)| *lane).collect();
        let claim = async {
            let mut tx = self.db.begin(For::Writing).await?;
            lanes::make(&mut tx, &numbers, at).await?;
            let standing = lanes::lock(&mut tx, &numbers).await?;
            let mut claimed = Vec::with_capacity(claims.len());
            for (lane, token) in claims {
                let standing = standing.get(lane).copied().unwrap_or_default();
                if standing.token > *token {
                    claimed.push(Claimed::Fenced { token: standing.token });
                    continue;
                }
                lanes::claim(&mut tx, *lane, *token, at).await?;
                claimed.push(Claimed::Ok { batches: standing.batches });
            }
            tx.commit().await?;
            Ok(claimed)
        };
        self.db.within(claim).await
    }

    /// Takes in batches of several lanes, in one transaction. A lane that is fenced or moved is left out, and the
    /// others are taken in all the same. No two batches are of one lane.
    ///
    /// # Errors
    ///
    /// Nothing was taken in, of any lane; or, if the connection broke at the very end, everything. Batches that are fed
    /// again are then answered with [`LaneOutcome::Moved`].
    pub async fn archive(
        &self,
        batches: &[LaneBatch],
        subscriptions: &Subscriptions,
        at: RedisMillis,
    ) -> Result<Vec<LaneOutcome>, LedgerError> {
        let prepared: Vec<Vec<Prepared<'_>>> =
            batches.iter().map(|batch| batch.entries.iter().map(Prepared::new).collect()).collect();
        self.db.within(self.archive_prepared(batches, prepared, subscriptions, at)).await
    }

    async fn archive_prepared(
        &self,
        batches: &[LaneBatch],
        prepared: Vec<Vec<Prepared<'_>>>,
        subscriptions: &Subscriptions,
        at: RedisMillis,
    ) -> Result<Vec<LaneOutcome>, LedgerError> {
        let mut tx = self.db.begin(For::Writing).await?;
        let lanes: Vec<u16> = batches.iter().map(|batch| batch.lane).collect();
        let standing = lanes::lock(&mut tx, &lanes).await?;
        let refusals: Vec<Option<LaneOutcome>> =
            batches.iter().map(|batch| refusal(batch, &standing)).collect();
        if refusals.iter().all(Option::is_some) {
            tx.commit().await?;
            return Ok(refusals.into_iter().flatten().collect());
        }
        let accepted: Vec<(&LaneBatch, Vec<Prepared<'_>>)> = batches
            .iter()
            .zip(prepared)
            .zip(&refusals)
            .filter(|(_, refusal)| refusal.is_none())
            .map(|(accepted, _)| accepted)
            .collect();

        let heads = heads::read(&mut tx, accepted.iter().flat_map(|(_, entries)| entries)).await?;
        let known = log::known(&mut tx, &heads, accepted.iter().flat_map(|(_, entries)| entries)).await?;
        let mut plan = Plan::new(heads, known);
        let mut archived: HashMap<u16, Archived> = HashMap::new();
        for (batch, entries) in accepted {
            let outcome = plan.take_in(batch, entries);
            archived.insert(batch.lane, Archived { batches: batch.batches + 1, ..outcome });
        }
        snapshot::fold(&mut tx, &mut plan).await?;
        log::write(&mut tx, plan.rows()).await?;
        log::set_aside(&mut tx, plan.aside(), at).await?;
        heads::write(&mut tx, plan.changed_heads()).await?;
        snapshot::write(&mut tx, plan.snapshots()).await?;
        let (of_lanes, appended): (Vec<u16>, Vec<_>) = plan.appended().into_iter().unzip();
        for (lane, told) in of_lanes.iter().zip(&appended) {
            let sinks = told.events.iter().map(|event| subscriptions.of(told.app, event.kind).count() as u64);
            archived.entry(*lane).or_default().events += sinks.sum::<u64>();
        }
        outbox::append(&mut tx, &appended, subscriptions).await?;
        let accepted = batches.iter().zip(&refusals).filter(|(_, refusal)| refusal.is_none());
        let accepted =
            accepted.map(|(batch, _)| (batch, standing.get(&batch.lane).copied().unwrap_or_default()));
        lanes::advance(&mut tx, &accepted.collect::<Vec<_>>(), at).await?;
        tx.commit().await?;

        for room in plan.gaps() {
            archived.entry(key_prefix::lane_of(room.route())).or_default().gaps.push(room.clone());
        }
        let outcomes = batches.iter().zip(refusals).map(|(batch, refusal)| {
            refusal.unwrap_or_else(|| LaneOutcome::Archived(archived.remove(&batch.lane).unwrap_or_default()))
        });
        Ok(outcomes.collect())
    }
}

fn refusal(batch: &LaneBatch, standing: &HashMap<u16, lanes::Lane>) -> Option<LaneOutcome> {
    let lane = standing.get(&batch.lane).copied().unwrap_or_default();
    if lane.token > batch.token {
        return Some(LaneOutcome::Fenced { token: lane.token });
    }
    // A lower token stands where the ledger fell back behind the claim.
    (lane.token < batch.token || lane.batches != batch.batches)
        .then_some(LaneOutcome::Moved { batches: lane.batches })
}
