//! Sinks that do as they are told, and what dispatchers have around them.

use async_trait::async_trait;
use e2e::wait::{SOON, until};
use ledger::outbox::{Bell, Clock, Dispatcher, DispatcherOptions, Event, SinkOptions, Waits};
use ledger::sink::{Delivery, Outcome, Sink};
use redis_scripts::RedisMillis;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Outside, at, told};

/// Longer than any test: what is to happen sooner is not because of a timer.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

type Answer = Box<dyn Fn(usize, &Delivery) -> Outcome + Send + Sync>;

/// A sink that answers by the number of the try, once it may.
pub(super) struct Told {
    answer: Answer,
    pub(super) may: Semaphore,
    under_way: AtomicUsize,
    pub(super) most_under_way: AtomicUsize,
    tries: AtomicUsize,
    pub(super) delivered: Mutex<Vec<Delivery>>,
}

impl Told {
    pub(super) fn new(answer: impl Fn(usize, &Delivery) -> Outcome + Send + Sync + 'static) -> Arc<Self> {
        Self::held(usize::MAX >> 4, answer)
    }

    /// Only so many tries get an answer, until more may.
    pub(super) fn held(
        may: usize,
        answer: impl Fn(usize, &Delivery) -> Outcome + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            answer: Box::new(answer),
            may: Semaphore::new(may),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
            tries: AtomicUsize::new(0),
            delivered: Mutex::default(),
        })
    }

    pub(super) fn willing() -> Arc<Self> {
        Self::new(|_, _| Outcome::Delivered)
    }

    pub(super) fn hanging() -> Arc<Self> {
        Self::held(0, |_, _| Outcome::Delivered)
    }

    pub(super) fn count(&self) -> usize {
        self.delivered.lock().expect("nobody panics").len()
    }

    pub(super) fn tries(&self) -> usize {
        self.tries.load(Ordering::SeqCst)
    }

    /// What was delivered of each room, in order.
    pub(super) fn by_room(&self) -> BTreeMap<String, Vec<u64>> {
        let mut rooms: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for delivery in self.delivered.lock().expect("nobody panics").iter() {
            let (room, version) = told(&delivery.payload);
            rooms.entry(room).or_default().push(version);
        }
        rooms
    }
}

#[async_trait]
impl Sink for Told {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(under_way, Ordering::SeqCst);
        let number = self.tries.fetch_add(1, Ordering::SeqCst);
        self.may.acquire().await.expect("it is never closed").forget();
        let outcome = (self.answer)(number, delivery);
        if outcome == Outcome::Delivered {
            self.delivered.lock().expect("nobody panics").push(delivery.clone());
        }
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// What dispatchers have around them.
pub(super) struct Around {
    pub(super) bell: Bell,
    pub(super) clock: Arc<AtomicU64>,
    events: Arc<Mutex<Vec<Event>>>,
    pub(super) stop: CancellationToken,
}

impl Around {
    pub(super) fn new() -> Self {
        Self {
            bell: Bell::default(),
            clock: Arc::new(AtomicU64::new(at(100_000).as_u64())),
            events: Arc::default(),
            stop: CancellationToken::new(),
        }
    }

    pub(super) fn dispatcher(&self, outside: &Outside, poll: Duration) -> Dispatcher {
        let now = Arc::clone(&self.clock);
        let clock: Clock = Arc::new(move || RedisMillis::new(now.load(Ordering::SeqCst)));
        let events = Arc::clone(&self.events);
        let note = move |event: Event| events.lock().expect("nobody panics").push(event);
        let options = DispatcherOptions { poll };
        Dispatcher::new(outside.world.ledger.clone(), options, self.bell.clone(), clock, Arc::new(note))
    }

    pub(super) fn starts(&self, dispatcher: Dispatcher) -> JoinHandle<()> {
        tokio::spawn(dispatcher.run(self.stop.clone()))
    }

    pub(super) async fn stops(&self, running: JoinHandle<()>) {
        self.stop.cancel();
        tokio::time::timeout(SOON, running).await.expect("it stops").expect("it does not panic");
    }

    pub(super) fn passes(&self, ms: u64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    pub(super) fn events(&self, is_wanted: fn(&Event) -> bool) -> usize {
        self.events.lock().expect("nobody panics").iter().filter(|event| is_wanted(event)).count()
    }
}

pub(super) async fn delivered(sink: &Told, count: usize) {
    until("everything is delivered", SOON, || async { sink.count() >= count }).await;
}

pub(super) fn at_once() -> SinkOptions {
    let waits = Waits { first: Duration::ZERO, ..Waits::default() };
    SinkOptions { concurrency: 8, waits, breaker: u32::MAX }
}

pub(super) const POLL: Duration = Duration::from_millis(5);
