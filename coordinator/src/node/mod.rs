//! One instance: what its parts share, and its life from registration to the last lease released.

pub mod archiving;
pub mod books;
pub mod canary;
pub mod drain;
pub mod heartbeat;
pub mod outgoing;
pub mod reaping;
pub mod register;

use key_prefix::{Instance, Keys};
use ledger::outbox::Bell;
use ledger::{Ledger, Subscriptions};
use media_bridge::{EmbeddedSfu, MediaKind};
use redis_scripts::{ScriptError, Scripts};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::auth::Verifier;
use crate::callbacks::levels::Levels;
use crate::callbacks::readers::Readers;
use crate::callbacks::routers::Routers;
use crate::clock::{Moment, RedisClock};
use crate::config::{App, Config};
use crate::limits::TokenBucket;
use crate::media::MediaServers;
use crate::metrics::Metrics;
use crate::room::registry::Rooms;
use crate::room::replies::Replies;
use crate::socket::sessions::Sessions;
use crate::socket::sessions::notices::Notices;
use crate::socket::watch::Watches;
use crate::store::replicas::Replicas;
use crate::vendor_clock::VendorClocks;

/// What a room needs to talk to Redis.
#[derive(Debug, Clone)]
pub struct Store {
    /// The scripts.
    pub scripts: Scripts,
    /// The same over a connection of the heartbeat's own: it never waits behind what else is asked of Redis, or leases would
    /// run out when there is most to do.
    pub lifeline: Scripts,
    /// The names.
    pub keys: Keys,
    /// This incarnation.
    pub me: Instance,
    /// Time to live of an owner key.
    pub owner_ttl: Duration,
    /// How long a lease may be relied on after its last renewal.
    pub self_fence: Duration,
    /// How long a room that nobody owns is kept.
    pub room_life: Duration,
    /// What begins something is refused while its room's lane has so many entries.
    pub lane_limit: u64,
    /// Everything is, while it has so many.
    pub lane_last_limit: u64,
    /// What must have it before anything is acknowledged.
    pub replicas: Replicas,
    /// Every metric.
    pub metrics: Metrics,
}

impl Store {
    /// Runs a script call and notes how long it took.
    pub async fn timed<T>(&self, script: &'static str, call: impl Future<Output = T>) -> T {
        let sent = Moment::now();
        let answer = call.await;
        self.metrics.script_took(script, Moment::now().since(sent));
        answer
    }

    /// Waits until what Redis has executed may be acknowledged.
    pub async fn replicated(&self) -> Result<(), ScriptError> {
        self.replicas.have_it().await
    }
}

/// Everything that the parts of an instance share.
pub struct Node {
    /// The configuration.
    pub config: Config,
    /// Redis.
    pub store: Store,
    /// The ledger.
    pub books: Arc<books::Books>,
    /// Who is told of what happens in rooms.
    pub subscriptions: Arc<Subscriptions>,
    /// Rung when something was archived here: there may be something to tell.
    pub bell: Bell,
    /// Where clients reach this instance.
    pub public_url: String,
    /// Where it listens, which tells this process from another of its name.
    pub address: String,
    /// Every metric.
    pub metrics: Metrics,
    /// Rooms in memory.
    pub rooms: Rooms,
    /// Commands in other instances' inboxes that wait for their answers.
    pub replies: Replies,
    /// What is to be told to all sessions of users.
    pub notices: Notices,
    /// Rooms watched from here.
    pub watches: Watches,
    /// Who is connected here.
    pub sessions: Sessions,
    /// The embedded media server, where an app uses it.
    pub embedded: Option<EmbeddedSfu>,
    /// Whether the embedded media server had no room for the last router that was wanted.
    pub routers_refused: AtomicBool,
    /// The external media servers.
    pub media: Arc<MediaServers>,
    /// Verifies tokens.
    pub verifier: Verifier,
    /// Redis's clock.
    pub redis_clock: Arc<RedisClock>,
    /// What proves and reads callbacks.
    pub readers: Readers,
    /// What names of routers stand for.
    pub routers: Routers,
    /// How loud people are, on its way to their rooms.
    pub levels: Levels,
    /// How far the clocks of media servers are off that report here.
    pub vendor_clocks: VendorClocks,
    /// Joins admitted per second.
    pub admission: TokenBucket,
    /// Rooms that lost their lease have their turn here to be pinned again.
    pub repins: Arc<Semaphore>,
    /// Whether Redis answers; written by the heartbeat alone.
    pub store_up: watch::Sender<bool>,
    /// Whether the canary came back in time.
    pub canary: canary::Canary,
    /// The instance is about to deregister: its heartbeat would only undo that.
    pub leaving: CancellationToken,
    /// The heartbeat has ended.
    pub still: CancellationToken,
    /// Ends every task of the instance.
    pub ending: CancellationToken,
    /// Ends the process because of something that must not go on, saying why.
    pub fatal: watch::Sender<Option<Fatal>>,
    draining: AtomicBool,
    store_lost_at: AtomicU64,
    /// When Redis last answered the heartbeat, and how long its outages were together.
    store_heard_at: AtomicU64,
    outages_ms: AtomicU64,
    settled_at: AtomicU64,
    /// Counts outages of Redis, for whoever measures time by what Redis shows.
    pub disturbances: watch::Sender<u64>,
    apps: HashMap<String, Arc<App>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.store.me)
    }
}

/// Why a process ends by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// A newer incarnation of its name lives.
    #[error("a newer incarnation of this instance is running")]
    Superseded,
}

/// What [`Node::new`] is made of.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// The scripts.
    pub scripts: Scripts,
    /// The scripts, over a connection of the heartbeat's own.
    pub lifeline: Scripts,
    /// The names.
    pub keys: Keys,
    /// This incarnation.
    pub me: Instance,
    /// Where clients reach this instance.
    pub public_url: String,
    /// Where it listens.
    pub address: String,
    /// Every metric.
    pub metrics: Metrics,
    /// The embedded media server, where an app uses it.
    pub embedded: Option<EmbeddedSfu>,
    /// The external media servers.
    pub media: Arc<MediaServers>,
    /// The ledger.
    pub ledger: Ledger,
    /// Redis's clock.
    pub clock: Arc<RedisClock>,
    /// What must have everything before it is acknowledged.
    pub replicas: Replicas,
}

/// Rooms that are pinned again at a time. All of an instance's rooms may have lost their leases: Redis has work in hand with so
/// many, and what else is asked of it waits for some 10 ms behind them.
const REPINS: usize = 64;
/// A room that nobody owns is kept so long.
const ROOM_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

impl Node {
    /// An instance that has registered, and holds nothing yet.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            config,
            scripts,
            lifeline,
            keys,
            me,
            public_url,
            address,
            metrics,
            embedded,
            media,
            ledger,
            clock,
            replicas,
        } = parts;
        let store = Store {
            scripts,
            lifeline,
            keys,
            me,
            owner_ttl: config.lease.owner_ttl(),
            self_fence: config.lease.self_fence,
            room_life: ROOM_LIFE,
            lane_limit: config.ledger.lane_limit,
            lane_last_limit: config.ledger.lane_last_limit,
            replicas,
            metrics: metrics.clone(),
        };
        Arc::new(Self {
            books: Arc::new(books::Books::new(ledger, config.ledger.load_timeout)),
            subscriptions: Arc::new(outgoing::subscriptions(&config.apps)),
            bell: Bell::default(),
            verifier: Verifier::new(&config.apps),
            routers_refused: AtomicBool::new(false),
            apps: config.apps.iter().map(|app| (app.code.to_string(), Arc::new(app.clone()))).collect(),
            admission: TokenBucket::new(config.limits.joins_per_second, config.limits.joins_burst),
            repins: Arc::new(Semaphore::new(REPINS)),
            rooms: Rooms::default(),
            replies: Replies::default(),
            watches: Watches::default(),
            sessions: Sessions::new(metrics.skipped.clone()),
            notices: Notices::new(metrics.skipped.clone()),
            redis_clock: clock,
            readers: Readers::new(&config.apps),
            routers: Routers::default(),
            levels: Levels::default(),
            vendor_clocks: VendorClocks::default(),
            store_up: watch::Sender::new(true),
            canary: canary::Canary::default(),
            leaving: CancellationToken::new(),
            still: CancellationToken::new(),
            ending: CancellationToken::new(),
            fatal: watch::Sender::new(None),
            draining: AtomicBool::new(false),
            store_lost_at: AtomicU64::new(0),
            store_heard_at: AtomicU64::new(Moment::now().parts().0),
            outages_ms: AtomicU64::new(0),
            settled_at: AtomicU64::new(0),
            disturbances: watch::Sender::new(0),
            config,
            store,
            public_url,
            address,
            metrics,
            embedded,
            media,
        })
    }

    /// The app of this code.
    pub fn app(&self, code: &str) -> Option<Arc<App>> {
        self.apps.get(code).cloned()
    }

    /// The embedded media server, if the app uses it.
    pub fn embedded_of(&self, app: &App) -> Option<&EmbeddedSfu> {
        self.embedded.as_ref().filter(|_| app.media_kind == Some(MediaKind::Embedded))
    }

    /// Whether it takes no new rooms.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Ends the process: going on would be wrong.
    pub fn fail(&self, why: &Fatal) {
        tracing::error!(reason = %why, "ending");
        self.fatal.send_replace(Some(why.clone()));
    }

    /// Notes whether Redis answered the heartbeat.
    pub(crate) fn store_answered(&self, up: bool) {
        let was = *self.store_up.borrow();
        let now = Moment::now().parts().0;
        let heartbeat = u64::try_from(self.config.lease.heartbeat.as_millis()).unwrap_or(u64::MAX);
        if up {
            let heard_at = self.store_heard_at.swap(now, Ordering::Relaxed);
            if !was {
                // Before anybody is told that it answers: who then looks finds the outage counted.
                self.outages_ms.fetch_add(now.saturating_sub(heard_at), Ordering::SeqCst);
                let lost_for = now.saturating_sub(self.store_lost_at.load(Ordering::Relaxed));
                if lost_for >= heartbeat {
                    self.settled_at.store(now.saturating_add(heartbeat), Ordering::SeqCst);
                }
            }
        }
        self.store_up.send_if_modified(|is_up| std::mem::replace(is_up, up) != up);
        if up && !was {
            self.disturbances.send_modify(|count| *count += 1);
            tracing::info!("Redis answers again");
        } else if !up && was {
            self.store_lost_at.store(now, Ordering::Relaxed);
            tracing::warn!("Redis does not answer");
        }
    }

    /// How long Redis's outages were together, each from the last heartbeat before it, in milliseconds.
    pub(crate) fn outages_ms(&self) -> u64 {
        self.outages_ms.load(Ordering::SeqCst)
    }

    /// When Redis last answered the heartbeat, on the clock of [`Moment::parts`].
    pub(crate) fn store_heard_at_ms(&self) -> u64 {
        self.store_heard_at.load(Ordering::Relaxed)
    }

    /// What is left of an outage of Redis, and of the heartbeat that follows one that was long enough to lose leases. No
    /// room is taken from others in it: they may be on their way to have their rooms again.
    pub(crate) fn settling(&self) -> Option<Duration> {
        if !*self.store_up.borrow() {
            return Some(self.config.lease.heartbeat);
        }
        let settled_at = self.settled_at.load(Ordering::SeqCst);
        let left = settled_at.saturating_sub(Moment::now().parts().0);
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// Whether new clients should be sent here, and if not, why.
    pub fn readiness(&self) -> Result<(), &'static str> {
        let lost_for = || {
            let lost = self.store_lost_at.load(Ordering::Relaxed);
            Duration::from_millis(Moment::now().parts().0.saturating_sub(lost))
        };
        if self.is_draining() {
            Err("draining")
        } else if !*self.store_up.borrow() && lost_for() >= self.config.redis.unready_after {
            Err("Redis does not answer")
        } else if !self.canary.is_fresh(Moment::now(), 3 * self.config.lease.heartbeat) {
            Err("the canary has not come back")
        } else {
            Ok(())
        }
    }
}

/// A random number below `bound`, for spreading what would else come at once.
pub fn random_below(bound: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 % bound.max(1)
}

/// A random pause up to `spread`.
pub fn random_pause(spread: Duration) -> Duration {
    Duration::from_millis(random_below(u64::try_from(spread.as_millis()).unwrap_or(u64::MAX)))
}
