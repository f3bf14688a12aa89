//! `[lease]`: the timing that keeps two instances from owning one room.

use std::time::Duration;

use super::error::Fault;
use super::section::Section;

/// How an owner is chosen for a room that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The instance at which it is first joined.
    FirstJoin,
}

/// `[lease]`; `failover_wait > owner_ttl > self_fence > heartbeat` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// How often leases are renewed.
    pub heartbeat: Duration,
    /// Without a renewal for so long an instance stops serving the room.
    pub self_fence: Duration,
    /// What the reaper waits before it acts unasked.
    pub failover_wait: Duration,
    /// Who owns a new room.
    pub placement: Placement,
}

impl Lease {
    /// Life of an owner key: three heartbeats, always.
    pub fn owner_ttl(&self) -> Duration {
        self.heartbeat * 3
    }

    /// Pause before a failed renewal is tried again: a fifth of a heartbeat, at most a second.
    pub fn retry_pause(&self) -> Duration {
        (self.heartbeat / 5).min(Duration::from_secs(1))
    }

    /// Longest wait for a command that still leaves time for a second try before the fence.
    pub fn command_timeout_bound(&self) -> Duration {
        Duration::from_millis(millis(self.self_fence.saturating_sub(self.heartbeat) / 2))
    }

    /// The timing that follows from a heartbeat alone.
    pub fn of_heartbeat(heartbeat: Duration) -> Self {
        Lease {
            heartbeat,
            self_fence: Duration::from_millis(millis(heartbeat * 12 / 5)),
            failover_wait: heartbeat * 5,
            placement: Placement::FirstJoin,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn read(section: &Section<'_>) -> Lease {
    let heartbeat = section.millis("heartbeat_ms", 50..=60_000).unwrap_or(Duration::from_secs(5));
    let assumed = Lease::of_heartbeat(heartbeat);
    let lease = Lease {
        self_fence: section.millis("self_fence_ms", 1..=600_000).unwrap_or(assumed.self_fence),
        failover_wait: section.millis("failover_wait_ms", 1..=3_600_000).unwrap_or(assumed.failover_wait),
        ..assumed
    };
    let [failover_wait, ttl, fence, beat] =
        [lease.failover_wait, lease.owner_ttl(), lease.self_fence, lease.heartbeat].map(millis);
    for (key, holds, what) in [
        ("self_fence_ms", fence > beat, format!("self_fence {fence} ms must be above heartbeat {beat} ms")),
        (
            "self_fence_ms",
            ttl > fence,
            format!(
                "self_fence {fence} ms must be below the owner key's life, 3 x heartbeat {beat} ms = {ttl} ms"
            ),
        ),
        (
            "failover_wait_ms",
            failover_wait > ttl,
            format!(
                "failover_wait {failover_wait} ms must be above the owner key's life, 3 x heartbeat {beat} ms = {ttl} ms"
            ),
        ),
    ] {
        if !holds {
            section.note(&section.place_of(key), key, Fault::Conflict(what));
        }
    }
    if let Some(word) = section.text("placement") {
        let fault = match word.value.as_str() {
            "first_join" => None,
            "least_loaded" | "rendezvous" => Some(Fault::NotBuilt(format!("placement {:?}", word.value))),
            _ => Some(Fault::BadValue {
                found: Some(format!("{:?}", word.value)),
                right: "first_join (least_loaded and rendezvous are not built yet)".to_owned(),
            }),
        };
        if let Some(fault) = fault {
            section.note(&word.place, "placement", fault);
        }
    }
    lease
}
