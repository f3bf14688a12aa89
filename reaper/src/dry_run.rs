//! What a leader would clear.

use key_prefix::{Instance, Keys};
use redis_scripts::{Remains, ScriptError, Scripts};
use std::time::Duration;

/// An instance whose last heartbeat is long ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The instance.
    pub instance: Instance,
    /// How long ago its last heartbeat was, by Redis's clock.
    pub quiet: Duration,
    /// What it holds.
    pub remains: Remains,
}

/// Lists the instances that were last heard of at least `failover_wait` ago by Redis's clock, and what they hold.
///
/// A leader would clear it once it has itself seen their scores unchanged for that long; this looks once, and
/// writes nothing.
pub async fn dry_run(
    scripts: &Scripts,
    keys: &Keys,
    failover_wait: Duration,
) -> Result<Vec<Finding>, ScriptError> {
    let heartbeats = scripts.instances(keys).await?;
    let mut findings = Vec::new();
    for (instance, score) in heartbeats.instances {
        let quiet = Duration::from_millis(heartbeats.now.as_u64().saturating_sub(score.as_u64()));
        if quiet >= failover_wait {
            let remains = scripts.remains(keys, &instance).await?;
            findings.push(Finding { instance, quiet, remains });
        }
    }
    Ok(findings)
}
