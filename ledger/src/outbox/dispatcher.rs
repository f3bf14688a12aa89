//! The work of delivering: one task for each sink, which claims, tries and records.

use redis_scripts::RedisMillis;
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::breaker::Breaker;
use super::claim::{Claim, Claimed, Recorded, Tried, TryResult};
use super::event::{Event, Events};
use super::waits::Waits;
use crate::Ledger;
use crate::error::LedgerError;
use crate::sink::{Delivery, Outcome, Sink};

/// A claim outlasts the sink's deadline by so much.
const MARGIN: Duration = Duration::from_secs(5);
/// Time within that for whatever else there is to do with a try.
const GRACE: Duration = Duration::from_secs(1);
/// A sink that failed too often is tried again after so long at the latest.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Redis's time, as far as it is known here.
pub type Clock = Arc<dyn Fn() -> RedisMillis + Send + Sync>;

/// How sinks are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatcherOptions {
    /// The outbox is looked at so often, and at once when the [`Bell`] rings.
    pub poll: Duration,
}

impl Default for DispatcherOptions {
    fn default() -> Self {
        Self { poll: Duration::from_secs(1) }
    }
}

/// How one sink is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkOptions {
    /// Most tries at a time.
    pub concurrency: usize,
    /// How long failed events wait.
    pub waits: Waits,
    /// After so many failures in a row it is left alone for a while.
    pub breaker: u32,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self { concurrency: 32, waits: Waits::default(), breaker: 10 }
    }
}

/// Tells the dispatcher of this process that there is something new.
#[derive(Debug, Clone)]
pub struct Bell(watch::Sender<()>);

impl Bell {
    /// Something was archived.
    pub fn ring(&self) {
        self.0.send_replace(());
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

/// Delivers what is in the outbox. Any number of them, in any number of processes, share the work.
pub struct Dispatcher {
    ledger: Ledger,
    sinks: BTreeMap<Arc<str>, (Arc<dyn Sink>, SinkOptions)>,
    options: DispatcherOptions,
    bell: Bell,
    clock: Clock,
    events: Arc<dyn Events>,
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher")
            .field("sinks", &self.sinks.keys())
            .field("options", &self.options)
            .finish()
    }
}

impl Dispatcher {
    /// One without sinks.
    pub fn new(
        ledger: Ledger,
        options: DispatcherOptions,
        bell: Bell,
        clock: Clock,
        events: Arc<dyn Events>,
    ) -> Self {
        Self { ledger, sinks: BTreeMap::new(), options, bell, clock, events }
    }

    /// Serves one sink more, by the name that the outbox has for it.
    #[must_use]
    pub fn serve(mut self, name: &str, sink: Arc<dyn Sink>, options: SinkOptions) -> Self {
        self.sinks.insert(name.into(), (sink, options));
        self
    }

    /// Delivers until it is told to stop; then what is under way is finished and recorded.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        for (name, (sink, options)) in self.sinks {
            let worker = Worker {
                ledger: self.ledger.clone(),
                name,
                sink,
                options: SinkOptions { concurrency: options.concurrency.max(1), ..options },
                poll: self.options.poll,
                bell: self.bell.0.subscribe(),
                clock: Arc::clone(&self.clock),
                events: Arc::clone(&self.events),
                breaker: Breaker::new(options.breaker),
                chance: Chance::default(),
                tries: JoinSet::new(),
                tried: Vec::new(),
                is_well: true,
            };
            tasks.spawn(worker.run(stop.clone()));
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended
                && let Ok(panic) = error.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            }
        }
        stop.cancelled().await;
    }
}

/// Serves one sink. What it has in hand is never more than its concurrency.
struct Worker {
    ledger: Ledger,
    name: Arc<str>,
    sink: Arc<dyn Sink>,
    options: SinkOptions,
    poll: Duration,
    bell: watch::Receiver<()>,
    clock: Clock,
    events: Arc<dyn Events>,
    breaker: Breaker,
    chance: Chance,
    tries: JoinSet<(Claimed, Outcome)>,
    /// Results that are not recorded yet.
    tried: Vec<Tried>,
    /// Whether the ledger did its part when it was last asked.
    is_well: bool,
}

impl Worker {
    async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let is_well = self.record().await;
            if is_well && self.claim().await {
                continue;
            }
            let pause = self.poll.mul_f64(0.5 + self.chance.next());
            tokio::select! {
                () = stop.cancelled() => {}
                Some(done) = self.tries.join_next() => self.done(done),
                Ok(()) = self.bell.changed(), if is_well => {}
                () = tokio::time::sleep(pause) => {}
            }
            while let Some(done) = self.tries.try_join_next() {
                self.done(done);
            }
        }
        while let Some(done) = self.tries.join_next().await {
            self.done(done);
        }
        self.record().await;
    }

    /// Claims as much as there is room for. Whether there may be more, and room for it.
    async fn claim(&mut self) -> bool {
        let now = (self.clock)();
        let room = self.options.concurrency.saturating_sub(self.tries.len() + self.tried.len());
        let limit = self.breaker.allows(room, now);
        if limit == 0 {
            return false;
        }
        let until = later(now, self.sink.deadline() + MARGIN);
        let id = uuid::Uuid::new_v4().simple().to_string();
        let claim = Claim { sink: &self.name, id: &id, now, until, limit };
        let claimed = match self.ledger.outbox_claim(claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.ledger_failed(&error);
                return false;
            }
        };
        self.is_well = true;
        // Where the ledger was slow there may not be time enough left: somebody will claim it again.
        if later((self.clock)(), self.sink.deadline() + GRACE) > until {
            return false;
        }
        self.breaker.began(claimed.len());
        let count = claimed.len();
        for claimed in claimed {
            let (sink, at) = (Arc::clone(&self.sink), (self.clock)());
            self.tries.spawn(attempt(sink, claimed, at));
        }
        count == limit && limit < room
    }

    fn done(&mut self, done: Result<(Claimed, Outcome), tokio::task::JoinError>) {
        let now = (self.clock)();
        // A sink that panics has not delivered. Its claim ends by itself.
        let Ok((claimed, outcome)) = done else {
            self.failed(now, None);
            return;
        };
        let sink = Arc::clone(&self.name);
        let failed = claimed.failed + 1;
        let result = match outcome {
            Outcome::Delivered => {
                self.succeeded();
                TryResult::Delivered
            }
            Outcome::Never { why } => {
                self.succeeded();
                TryResult::Failed { why }
            }
            Outcome::Again { why, after } => {
                self.failed(now, after);
                let waited_ms = now.as_u64().saturating_sub(claimed.since.as_u64());
                if self.options.waits.are_over(failed, waited_ms) {
                    TryResult::Failed { why }
                } else {
                    self.events.on(Event::Retrying { sink, why: why.clone() });
                    TryResult::Again {
                        after: self.options.waits.after(failed, after, self.chance.next()),
                        why,
                    }
                }
            }
        };
        self.tried.push(Tried { claimed, result });
    }

    fn succeeded(&mut self) {
        if self.breaker.succeeded() {
            self.events.on(Event::Closed { sink: Arc::clone(&self.name) });
        }
    }

    fn failed(&mut self, now: RedisMillis, asked: Option<Duration>) {
        let beyond = (self.breaker.failed() + 1).saturating_sub(self.options.breaker).saturating_add(1);
        let waits = Waits { longest: self.options.waits.longest.min(LONGEST_PAUSE), ..self.options.waits };
        let pause = waits.after(u64::from(beyond), asked, self.chance.next());
        if self.breaker.failed_once_more(now, pause, asked.is_some()) {
            self.events.on(Event::Opened { sink: Arc::clone(&self.name) });
        }
    }

    /// Records what is known. Whether the ledger did its part.
    async fn record(&mut self) -> bool {
        if self.tried.is_empty() {
            return true;
        }
        let now = (self.clock)();
        match self.ledger.outbox_record(&self.name, &self.tried, now).await {
            Ok(recorded) => {
                for (tried, recorded) in std::mem::take(&mut self.tried).into_iter().zip(recorded) {
                    self.tell(tried, recorded, now);
                }
                true
            }
            Err(error) => {
                self.ledger_failed(&error);
                // Once their claim is over others have them.
                self.tried.retain(|tried| tried.claimed.until > now);
                false
            }
        }
    }

    fn tell(&self, tried: Tried, recorded: Recorded, now: RedisMillis) {
        let (sink, claimed) = (Arc::clone(&self.name), tried.claimed);
        self.events.on(match (recorded, tried.result) {
            (Recorded::Late, _) => Event::Late { sink },
            (Recorded::Ok, TryResult::Delivered) => {
                let age_ms = now.as_u64().saturating_sub(claimed.at.as_u64());
                Event::Delivered { sink, age_ms, attempt: claimed.failed + 1 }
            }
            (Recorded::Ok, TryResult::Failed { why }) => Event::Failed { sink, why },
            (Recorded::Ok, TryResult::Again { .. }) => return,
        });
    }

    fn ledger_failed(&mut self, error: &LedgerError) {
        let (sink, first) = (Arc::clone(&self.name), std::mem::replace(&mut self.is_well, false));
        self.events.on(Event::LedgerFailed { sink, unavailable: error.is_unavailable(), first });
    }
}

async fn attempt(sink: Arc<dyn Sink>, claimed: Claimed, at: RedisMillis) -> (Claimed, Outcome) {
    let delivery = Delivery {
        id: claimed.id.clone(),
        app: claimed.app.clone(),
        kind: claimed.kind.clone(),
        payload: payload(&claimed),
        at,
    };
    let longest = sink.deadline() + GRACE;
    let outcome = tokio::time::timeout(longest, sink.deliver(&delivery)).await;
    (claimed, outcome.unwrap_or_else(|_| Outcome::again("the sink did not keep its deadline")))
}

/// What was written with the event, and whether it comes out of order, which nobody knew then.
fn payload(claimed: &Claimed) -> String {
    match claimed.payload.strip_suffix('}') {
        Some(open) if claimed.out_of_order => format!("{open},\"outOfOrder\":true}}"),
        _ => claimed.payload.clone(),
    }
}

fn later(at: RedisMillis, by: Duration) -> RedisMillis {
    RedisMillis::new(at.as_u64().saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
}

/// Numbers from 0 to 1 that differ from one process to the next, so that those who wait do not come back together.
#[derive(Debug, Default)]
struct Chance {
    random: RandomState,
    count: u64,
}

impl Chance {
    fn next(&mut self) -> f64 {
        self.count += 1;
        let some = self.random.hash_one(self.count) % 1_024;
        f64::from(u32::try_from(some).unwrap_or_default()) / 1_024.0
    }
}
