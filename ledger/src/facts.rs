//! What is fixed for ever in a cluster, written once to the ledger and to Redis, and proved by every instance that starts.

use key_prefix::{Keys, LANE_HASH, LANES};
use redis_scripts::{ScriptError, Scripts};
use std::collections::BTreeMap;

use crate::{Ledger, LedgerError};

const LEDGER_ID: &str = "ledger";
const LAYOUT: &str = "layout";
/// How keys and entries are laid out. An instance reads this and the one before.
const LAYOUT_NOW: u32 = 1;

/// Why an instance must not start.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// A fact is another here.
    #[error(
        "{fact} is {found} in {store}, and {ours} here: it is fixed for ever, so this instance must not run beside them"
    )]
    Differs {
        /// Which.
        fact: &'static str,
        /// What stands there.
        found: String,
        /// Where.
        store: &'static str,
        /// What this instance has.
        ours: String,
    },
    /// Redis belongs to another ledger.
    #[error(
        "Redis belongs to ledger {redis}, and ledger.url leads to {}: correct one of them",
        match ledger { Some(ledger) => format!("ledger {ledger}"), None => "one that is empty".to_owned() }
    )]
    OtherLedger {
        /// The identity that Redis holds.
        redis: String,
        /// The identity that the ledger has, if it has one.
        ledger: Option<String>,
    },
    /// What is stored is newer than this program.
    #[error(
        "keys are laid out as of version {found}, and this program knows versions up to {LAYOUT_NOW}: upgrade it"
    )]
    Newer {
        /// What stands there.
        found: String,
    },
    /// The ledger did not answer.
    #[error("the ledger cannot be used: {}", .0.remedy())]
    Ledger(#[from] LedgerError),
    /// Redis did not answer.
    #[error("the facts in Redis cannot be read")]
    Redis(#[from] ScriptError),
}

impl FactsError {
    /// Whether trying again can help.
    pub const fn is_unavailable(&self) -> bool {
        match self {
            Self::Ledger(error) => error.is_unavailable(),
            Self::Redis(error) => error.is_unavailable(),
            Self::Differs { .. } | Self::OtherLedger { .. } | Self::Newer { .. } => false,
        }
    }
}

type Facts = BTreeMap<String, String>;

/// Two stages may share a Redis, but never a ledger: rooms of one name would be one room.
fn own(lanes: u16, keys: &Keys) -> [(&'static str, String); 3] {
    let prefix = keys.prefix().to_string();
    [("lanes", lanes.to_string()), ("lane_hash", LANE_HASH.to_owned()), ("key_prefix", prefix)]
}

fn compare(own: &[(&'static str, String)], facts: &Facts, store: &'static str) -> Result<(), FactsError> {
    for (fact, ours) in own.iter().cloned() {
        if let Some(found) = facts.get(fact).filter(|found| **found != ours) {
            return Err(FactsError::Differs { fact, found: found.clone(), store, ours });
        }
    }
    let known = |found: &String| found.parse::<u32>().is_ok_and(|found| found <= LAYOUT_NOW);
    match facts.get(LAYOUT) {
        Some(found) if !known(found) => Err(FactsError::Newer { found: found.clone() }),
        _ => Ok(()),
    }
}

/// Proves that this instance, its Redis and its ledger belong together, and writes nothing.
///
/// # Errors
/// Which fact differs, or what could not be read.
pub async fn prove(ledger: &Ledger, scripts: &Scripts, keys: &Keys, lanes: u16) -> Result<(), FactsError> {
    // In this order: whoever writes them writes Redis last.
    let in_redis = scripts.facts(keys, &[]).await?;
    let in_ledger = ledger.facts().await?;
    let own = own(lanes, keys);
    compare(&own, &in_ledger, "the ledger")?;
    compare(&own, &in_redis, "Redis")?;
    if lanes != LANES {
        let (fact, ours, store) = ("lanes", lanes.to_string(), "this program");
        return Err(FactsError::Differs { fact, found: LANES.to_string(), store, ours });
    }
    match in_redis.get(LEDGER_ID) {
        Some(redis) if in_ledger.get(LEDGER_ID) != Some(redis) => {
            let ledger = in_ledger.get(LEDGER_ID).cloned();
            Err(FactsError::OtherLedger { redis: redis.clone(), ledger })
        }
        _ => Ok(()),
    }
}

/// Proves that this instance, its Redis and its ledger belong together, and writes what is not written yet: a new
/// ledger takes the identity `fresh`, an empty Redis learns of the ledger that it has. Returns the ledger's identity.
///
/// # Errors
/// Which fact differs, or what could not be read.
pub async fn agree(
    ledger: &Ledger,
    scripts: &Scripts,
    keys: &Keys,
    lanes: u16,
    fresh: &str,
) -> Result<String, FactsError> {
    prove(ledger, scripts, keys, lanes).await?;
    let mut facts: Vec<(&str, String)> = own(lanes, keys).into();
    facts.extend([(LEDGER_ID, fresh.to_owned()), (LAYOUT, LAYOUT_NOW.to_string())]);
    // Of two that start at once one is first, in each store; the ledger's word goes to Redis.
    let stands = ledger.put_facts(&borrowed(&facts)).await?;
    let ours: Vec<(&str, &str)> =
        stands.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let in_redis = scripts.facts(keys, &ours).await?;
    match (stands.get(LEDGER_ID), in_redis.get(LEDGER_ID)) {
        (Some(ledger), Some(redis)) if ledger == redis => Ok(ledger.clone()),
        (ledger, redis) => {
            let redis = redis.cloned().unwrap_or_default();
            Err(FactsError::OtherLedger { redis, ledger: ledger.cloned() })
        }
    }
}

fn borrowed<'a>(facts: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    facts.iter().map(|(name, value)| (*name, value.as_str())).collect()
}
