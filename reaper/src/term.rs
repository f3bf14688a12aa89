//! One term of leadership.

use redis_scripts::{FenceToken, Renewed};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::round::{Rounds, Standing};
use crate::{Event, LEASE, Reaper};

/// Leads until the lease is lost or `shutdown`, and gives the lease up if it is still held.
pub(crate) async fn lead(reaper: &Reaper, token: FenceToken, shutdown: &CancellationToken) {
    let over = shutdown.child_token();
    // Whoever drops this future half-way ends the renewal too: the lease then ends by itself.
    let _ends_the_term = over.clone().drop_guard();
    let renewal = tokio::spawn(renew(reaper.clone(), token, over.clone()));
    let mut rounds = Rounds::new(reaper, token);
    let mut ticks = interval(reaper.timing.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while over.run_until_cancelled(ticks.tick()).await.is_some() {
        if rounds.next(&over).await == Standing::Deposed {
            break;
        }
    }
    over.cancel();
    // It has no end but this one, and nothing in it panics.
    _ = renewal.await;
    if let Err(error) = reaper.scripts.lease_release(&reaper.keys, LEASE, &reaper.me, token).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "the reaper's lease ends by itself");
    }
}

/// Renews the lease until `over`, and ends the term itself when the lease is lost or may have ended unrenewed.
async fn renew(reaper: Reaper, token: FenceToken, over: CancellationToken) {
    let ttl = reaper.timing.lease_ttl();
    let mut renewed_at = (reaper.clock)();
    let mut ticks = interval(reaper.timing.interval());
    while over.run_until_cancelled(ticks.tick()).await.is_some() {
        let asked_at = (reaper.clock)();
        match reaper.scripts.lease_renew(&reaper.keys, LEASE, &reaper.me, token, ttl).await {
            Ok(Renewed::Ok) => renewed_at = asked_at,
            Ok(Renewed::Lost { held }) => {
                tracing::info!(%token, held, "the reaper's lease is lost");
                over.cancel();
            }
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the reaper's lease is not renewed"
                );
                reaper.events.on(Event::Unavailable);
            }
        }
        if (reaper.clock)().saturating_sub(renewed_at) >= ttl {
            over.cancel();
        }
    }
}
