//! Clears what dead instances left in Redis: their leases, their watches, rooms that nobody will come back to.
//!
//! Every instance with the role runs [`run`]; one of them leads at a time.
//!
//! - **Leadership** is the lease `reaper`: three intervals long, renewed by a task of its own, so that a long
//!   sweep cannot lose it unnoticed. Each call that clears something proves the lease's token inside the
//!   script, so a leader that was paused and superseded clears nothing (I-18); it learns of it from the first
//!   refusal and stands for election again.
//! - **Death** is an observation, never a date: the [`Observer`] has itself seen the score of an instance
//!   unchanged for `failover_wait` on its own clock. After anything that may have kept the living from renewing
//!   (Redis out of reach or restarted, its clock stepped, the observer itself frozen) it starts to count anew.
//! - **Clearing** goes in chunks, so that Redis is never blocked for more than a few milliseconds. The owner keys
//!   of a dead instance go only if they still name that very incarnation. Peers stay: whoever owns the room
//!   next ends them.
//! - **Offering** lets no room wait for a visitor: one that is due (a timer, unread work, people who may come
//!   back) and that nobody owns is offered to an instance that takes rooms, again and again while it is due.
//! - **Sweeping** walks one page of each app's index in each interval: a room that has neither an owner nor an
//!   end gets one, and what is gone leaves the index.
//!
//! Losing Redis for any time ends nothing here: the loop goes on asking.
//!
//! ```no_run
//! # use std::{sync::Arc, time::{Duration, Instant}};
//! # async fn example(scripts: redis_scripts::Scripts, keys: key_prefix::Keys, me: key_prefix::Instance) {
//! use reaper::{Reaper, Timing};
//!
//! let started = Instant::now();
//! let shutdown = tokio_util::sync::CancellationToken::new();
//! let (_disturb, disturbances) = tokio::sync::watch::channel(0);
//! let reaper = Reaper {
//!     scripts,
//!     keys,
//!     me,
//!     apps: vec![],
//!     timing: Timing {
//!         interval: Duration::from_secs(5),
//!         failover_wait: Duration::from_secs(25),
//!         owner_ttl: Duration::from_secs(15),
//!         room_life: Duration::from_secs(24 * 3600),
//!     },
//!     clock: Arc::new(move || started.elapsed()),
//!     disturbances,
//!     events: Arc::new(|event: reaper::Event| println!("{event:?}")),
//! };
//! reaper::run(reaper, shutdown).await;
//! # }
//! ```

mod dry_run;
mod event;
mod observer;
mod offer;
mod round;
mod term;

use key_prefix::{AppCode, Instance, Keys};
use redis_scripts::{Acquired, Scripts};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use dry_run::{Finding, dry_run};
pub use event::{Cause, Event, Events};
pub use observer::Observer;

/// The lease that the leader holds.
pub const LEASE: &str = "reaper";

/// Time on the caller's own clock since any fixed moment: one that goes on while the machine sleeps
/// (CLOCK_BOOTTIME), and is not set.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// How long things take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// From one round to the next; the lease lives for three. Taken as a quarter of `failover_wait` if it is
    /// longer, because who looks seldom sees nothing.
    pub interval: Duration,
    /// How long a score must be seen unchanged before its instance is dead.
    pub failover_wait: Duration,
    /// Time to live of an owner key. Who has not been heard of for as long is offered no room, and a room that
    /// nobody adopted is offered again after it.
    pub owner_ttl: Duration,
    /// How long a room that nobody owns is kept.
    pub room_life: Duration,
}

impl Timing {
    fn interval(&self) -> Duration {
        self.interval.min(self.failover_wait / 4)
    }

    fn lease_ttl(&self) -> Duration {
        self.interval() * 3
    }
}

/// Everything that a reaper needs.
#[derive(Clone)]
pub struct Reaper {
    /// The connection to Redis.
    pub scripts: Scripts,
    /// The names of keys.
    pub keys: Keys,
    /// Who stands for election.
    pub me: Instance,
    /// Apps whose index is swept.
    pub apps: Vec<AppCode>,
    /// How long things take.
    pub timing: Timing,
    /// The own clock.
    pub clock: Clock,
    /// Changes when the caller has noticed an outage of Redis, a restart of it, or a step of a clock.
    pub disturbances: watch::Receiver<u64>,
    /// Who is told.
    pub events: Arc<dyn Events>,
}

impl std::fmt::Debug for Reaper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reaper").field("me", &self.me).field("timing", &self.timing).finish_non_exhaustive()
    }
}

/// Stands for election again and again, and leads while elected, until `shutdown`; then gives the lease up.
pub async fn run(reaper: Reaper, shutdown: CancellationToken) {
    while !shutdown.is_cancelled() {
        let ttl = reaper.timing.lease_ttl();
        let pause = match reaper.scripts.lease_acquire(&reaper.keys, LEASE, &reaper.me, ttl).await {
            Ok(Acquired::Ok { token, .. }) => {
                reaper.events.on(Event::Elected { token });
                term::lead(&reaper, token, &shutdown).await;
                reaper.events.on(Event::Deposed { token });
                continue;
            }
            Ok(Acquired::Held { remaining, .. }) => {
                remaining.clamp(Duration::from_millis(1), reaper.timing.interval())
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no election");
                reaper.events.on(Event::Unavailable);
                reaper.timing.interval()
            }
        };
        _ = shutdown.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}
