//! A ledger, and the one who feeds it.

use std::collections::BTreeMap;

use ledger::{
    Archived, Claimed, Entry, Filter, LaneBatch, LaneOutcome, Ledger, Options, Poison, Subscription,
    Subscriptions,
};
use redis_scripts::{FenceToken, RedisMillis};
use sqlx::{AssertSqlSafe, Row};

use super::life::{Life, START};
use crate::KIND;
use crate::databases::Database;

pub(crate) const NOW: RedisMillis = RedisMillis::new(START + 1);

/// A ledger of its own, and an archiver that holds every lane.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) database: Database,
    pub(crate) ledger: Ledger,
    pub(crate) archiver: Archiver,
}

/// Who feeds the ledger.
#[derive(Debug, Clone)]
pub(crate) struct Archiver {
    pub(crate) ledger: Ledger,
    pub(crate) token: FenceToken,
    pub(crate) subscriptions: Subscriptions,
    batches: BTreeMap<u16, u64>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(Database::new(KIND).await).await
    }

    pub(crate) async fn on(database: Database) -> Self {
        let ledger = Ledger::open(&database.url, &Options::default()).await.expect("an empty ledger");
        let archiver = Archiver::new(&ledger, 1);
        Self { database, ledger, archiver }
    }

    /// One number.
    pub(crate) async fn count(&self, query: &str) -> i64 {
        let mut beside = self.database.connect().await.expect("a connection");
        let row = sqlx::query(AssertSqlSafe(query)).fetch_one(&mut beside).await.expect("an answer");
        row.try_get(0).expect("a number")
    }

    /// Asserts that the ledger has a room exactly as it lived.
    pub(crate) async fn has(&self, life: &Life) {
        let recovered = self.ledger.room(&life.room).await.expect("a ledger").expect("a room");
        assert_eq!(recovered.head.cv.as_u64(), life.cv());
        assert_eq!(recovered.head.sv.as_u64(), life.sv);
        assert_eq!(recovered.head.token.as_u64(), life.token);
        assert!(!recovered.head.gap);
        assert_eq!(recovered.head.status, life.state.cell.status.word());
        assert_eq!(recovered.state, life.state);
    }
}

impl Archiver {
    /// One with a lease of this token, who has claimed nothing yet.
    pub(crate) fn new(ledger: &Ledger, token: u64) -> Self {
        let subscription =
            |sink: &str, ordered| Subscription { sink: sink.into(), ordered, wants: Filter::all() };
        let subscriptions = [
            ("school".to_owned(), subscription("hook", true)),
            ("school".to_owned(), subscription("tap", false)),
        ];
        Self {
            ledger: ledger.clone(),
            token: FenceToken::new(token),
            subscriptions: subscriptions.into_iter().collect(),
            batches: BTreeMap::new(),
        }
    }

    pub(crate) async fn claims(&mut self, lane: u16) -> Claimed {
        let claimed = self.ledger.claim_lane(lane, self.token, NOW).await.expect("a ledger");
        if let Claimed::Ok { batches } = claimed {
            self.batches.insert(lane, batches);
        }
        claimed
    }

    /// The batches that entries make, one for each lane; lanes are claimed as they come.
    pub(crate) async fn batches(&mut self, entries: &[Entry]) -> Vec<LaneBatch> {
        let mut by_lane: BTreeMap<u16, Vec<Entry>> = BTreeMap::new();
        for entry in entries {
            by_lane.entry(key_prefix::lane_of(entry.room.route())).or_default().push(entry.clone());
        }
        let mut batches = Vec::new();
        for (lane, entries) in by_lane {
            if !self.batches.contains_key(&lane) {
                self.claims(lane).await;
            }
            let standing = self.batches.get(&lane).copied().unwrap_or_default();
            batches.push(LaneBatch {
                lane,
                token: self.token,
                batches: standing,
                entries,
                poison: Vec::new(),
            });
        }
        batches
    }

    /// Feeds entries, each lane's in one batch, and says what came of all of them together.
    pub(crate) async fn feeds(&mut self, entries: &[Entry]) -> Archived {
        self.feeds_with(entries, Vec::new()).await
    }

    pub(crate) async fn feeds_with(&mut self, entries: &[Entry], poison: Vec<Poison>) -> Archived {
        let mut batches = self.batches(entries).await;
        if let Some(first) = batches.first_mut() {
            first.poison = poison;
        }
        let outcomes = self.ledger.archive(&batches, &self.subscriptions, NOW).await.expect("a ledger");
        let mut all = Archived::default();
        for (batch, outcome) in batches.iter().zip(outcomes) {
            let LaneOutcome::Archived(archived) = outcome else { panic!("{outcome:?}") };
            self.batches.insert(batch.lane, archived.batches);
            all.batches = archived.batches;
            all.written += archived.written;
            all.repeated += archived.repeated;
            all.superseded += archived.superseded;
            all.forks += archived.forks;
            all.aside += archived.aside;
            all.events += archived.events;
            all.gaps.extend(archived.gaps);
        }
        all
    }
}
