//! Many workers at once, of which some fail, some die and some take too long.

use futures_util::future::join_all;
use ledger::Ledger;
use ledger::outbox::{Claim, Claimed, Tried, TryResult};
use redis_scripts::RedisMillis;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{HOOK, Outside, TAP, at, told};

const WORKERS: u64 = 6;
const ROOMS: usize = 12;
const EVENTS: usize = 12;
/// A claim is worth something for so long, by a clock that each claim moves on.
const CLAIM_MS: u64 = 40;

/// What all of them have done, seen from above.
#[derive(Default)]
struct Records {
    /// Queue, and until when somebody has it.
    held: HashMap<String, u64>,
    delivered: BTreeMap<String, Vec<u64>>,
    ids: HashMap<(String, u64), String>,
    /// Events that came at least once to each sink.
    count: HashSet<String>,
    problems: Vec<String>,
}

struct Worker {
    sink: &'static str,
    ledger: Ledger,
    clock: Arc<AtomicU64>,
    records: Arc<Mutex<Records>>,
    dice: u64,
    number: u64,
}

impl Worker {
    fn throw(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % sides
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// Works until every event was delivered.
    async fn works(mut self, events: usize) {
        let mut rounds = 0;
        while self.records.lock().expect("nobody panics").count.len() < events {
            rounds += 1;
            assert!(
                rounds < 20_000,
                "{} of {events}",
                self.records.lock().expect("nobody panics").count.len()
            );
            self.round(rounds).await;
        }
    }

    async fn round(&mut self, round: u64) {
        let now = self.clock.fetch_add(1, Ordering::SeqCst);
        let id = format!("{}.{round}", self.number);
        let limit = usize::try_from(1 + self.throw(4)).expect("small");
        let until = RedisMillis::new(now + CLAIM_MS);
        let claim = Claim { sink: self.sink, id: &id, now: RedisMillis::new(now), until, limit };
        let ledger = self.ledger.clone();
        if self.throw(12) == 0 {
            // Killed in the middle of claiming: whether it has anything, nobody knows.
            _ = tokio::time::timeout(Duration::from_micros(self.throw(3_000)), ledger.outbox_claim(claim))
                .await;
            self.clock.fetch_add(CLAIM_MS, Ordering::SeqCst);
            return;
        }
        // A deadlock or a lock that was not got in time is a try that failed.
        let Ok(claimed) = ledger.outbox_claim(claim).await else { return };
        self.takes(&claimed, now);
        let mut tried = Vec::new();
        for claimed in claimed {
            if self.throw(8) == 0 {
                // Killed on the way.
                self.clock.fetch_add(CLAIM_MS / 4, Ordering::SeqCst);
                continue;
            }
            if self.throw(4) == 0 {
                let result =
                    TryResult::Again { after: Duration::from_millis(self.throw(5)), why: "no".to_owned() };
                tried.push(Tried { claimed, result });
            } else if self.delivers(&claimed) {
                tried.push(Tried { claimed, result: TryResult::Delivered });
            }
        }
        if self.throw(10) == 0 {
            // Killed before it was recorded: it comes again.
            return;
        }
        let now = self.now();
        self.lets_go(&tried);
        _ = ledger.outbox_record(self.sink, &tried, RedisMillis::new(now)).await;
    }

    fn takes(&self, claimed: &[Claimed], now: u64) {
        let mut records = self.records.lock().expect("nobody panics");
        let mine = now + CLAIM_MS;
        for it in claimed {
            let held = records.held.get(&it.queue).copied().unwrap_or_default();
            // Before this was noted the claim was over, and the next one is noted already.
            if held > mine {
                continue;
            }
            if held >= now {
                records.problems.push(format!("{} is claimed at {now}, and held until {held}", it.queue));
            }
            records.held.insert(it.queue.clone(), mine);
        }
    }

    /// From here on somebody else may have it: either it is recorded, or nothing more is done with it.
    fn lets_go(&self, tried: &[Tried]) {
        let mut records = self.records.lock().expect("nobody panics");
        for it in tried {
            if records.held.get(&it.claimed.queue) == Some(&it.claimed.until.as_u64()) {
                records.held.remove(&it.claimed.queue);
            }
        }
    }

    /// Not if it took so long that somebody else has it by now: no try lasts longer than its claim.
    fn delivers(&self, claimed: &Claimed) -> bool {
        let (room, version) = told(&claimed.payload);
        let mut records = self.records.lock().expect("nobody panics");
        if records.held.get(&claimed.queue) != Some(&claimed.until.as_u64()) {
            return false;
        }
        let known = records.ids.entry((room.clone(), version)).or_insert_with(|| claimed.id.clone());
        if *known != claimed.id {
            records.problems.push(format!("{} is not the only id of {room} {version}", claimed.id));
        }
        records.delivered.entry(room).or_default().push(version);
        records.count.insert(claimed.id.clone());
        true
    }
}

async fn work(sink: &'static str) -> Records {
    let mut outside = Outside::new(ROOMS).await;
    let (clock, records) =
        (Arc::new(AtomicU64::new(at(100_000).as_u64())), Arc::new(Mutex::new(Records::default())));
    outside.happens(0..ROOMS / 2, EVENTS).await;
    let workers = (0..WORKERS).map(|number| {
        let (clock, records) = (Arc::clone(&clock), Arc::clone(&records));
        let worker = Worker {
            sink,
            ledger: outside.world.ledger.clone(),
            clock,
            records,
            dice: number * 77 + 5,
            number,
        };
        tokio::spawn(worker.works(ROOMS * EVENTS))
    });
    let workers: Vec<_> = workers.collect();
    // More happens while they work.
    for _ in 0..EVENTS {
        outside.happens(ROOMS / 2..ROOMS, 1).await;
    }
    for worker in join_all(workers).await {
        worker.expect("a worker that does not panic");
    }
    let records = std::mem::take(&mut *records.lock().expect("nobody panics"));
    assert_eq!(records.problems, [""; 0]);
    assert_eq!(records.delivered.len(), ROOMS);
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn i_15_every_event_is_delivered_at_least_once_by_one_worker_at_a_time_in_order() {
    let records = work(HOOK).await;
    for (room, versions) in records.delivered {
        let mut in_order = versions.clone();
        in_order.dedup();
        let expected: Vec<u64> = (1..=EVENTS as u64).collect();
        assert_eq!(in_order, expected, "{room}: {versions:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i_15_every_event_is_delivered_at_least_once_to_a_sink_without_order() {
    let records = work(TAP).await;
    for (room, mut versions) in records.delivered {
        versions.sort_unstable();
        versions.dedup();
        let expected: Vec<u64> = (1..=EVENTS as u64).collect();
        assert_eq!(versions, expected, "{room}");
    }
}
