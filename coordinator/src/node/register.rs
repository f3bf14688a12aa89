//! Becoming an instance: waiting for a name that is held, or giving up on it.

use key_prefix::{Instance, InstanceName, Keys};
use redis_scripts::{Register, Registered, ScriptError, Scripts};
use std::time::Duration;

use crate::config::Config;

/// Why no incarnation could be started.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Somebody else has the name, and lives.
    #[error("the instance name {name:?} is held by {name}/{incarnation} at {address}, which is alive")]
    Held {
        /// The name.
        name: String,
        /// Who has it.
        incarnation: u64,
        /// Where it listens.
        address: String,
    },
    /// The script gave no answer.
    #[error("the instance cannot register")]
    Script(#[from] ScriptError),
}

/// What the record of an instance says beside its address.
pub fn record(config: &Config, public_url: &str) -> Vec<(&'static str, String)> {
    let roles: Vec<String> =
        config.instance.roles.iter().map(|role| format!("{role:?}").to_ascii_lowercase()).collect();
    vec![
        ("public_url", public_url.to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("roles", roles.join(",")),
    ]
}

/// Starts an incarnation. While the name is held by another process this waits, and gives up after
/// `failover_wait`.
pub async fn register(
    scripts: &Scripts,
    keys: &Keys,
    config: &Config,
    address: &str,
    public_url: &str,
) -> Result<(Instance, u64), RegisterError> {
    let name: &InstanceName = &config.instance.id;
    let give_up = crate::clock::instant() + config.lease.failover_wait;
    let pause = (config.lease.heartbeat / 2).max(Duration::from_millis(50));
    loop {
        let fields = record(config, public_url);
        let with = Register { name, address, owner_ttl: config.lease.owner_ttl(), fields: &fields };
        let answer = match scripts.register(keys, with).await {
            Err(error) if error.is_unavailable() && crate::clock::instant() < give_up => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Redis does not answer; trying again"
                );
                tokio::time::sleep(pause).await;
                continue;
            }
            answer => answer?,
        };
        match answer {
            Registered::Ok { instance, now } => return Ok((instance, now.as_u64())),
            Registered::Held { incarnation, address, age } => {
                if crate::clock::instant() >= give_up {
                    let incarnation = incarnation.as_u64();
                    return Err(RegisterError::Held { name: name.to_string(), incarnation, address });
                }
                tracing::warn!(address, age_ms = age.as_millis(), "the instance name is held; waiting");
                tokio::time::sleep(pause).await;
            }
        }
    }
}
