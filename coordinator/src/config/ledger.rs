//! `[ledger]`: the durable record.

use std::fmt;
use std::time::Duration;

use ledger::Address;

use super::error::Fault;
use super::secret::Secret;
use super::section::Section;

/// `[ledger]`.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// Where it is.
    pub url: LedgerUrl,
    /// How many lanes there are, as this instance was told.
    pub lanes: u16,
    /// At so many entries in a room's lane what begins something is refused.
    pub lane_limit: u64,
    /// At so many everything is.
    pub lane_last_limit: u64,
    /// Longest wait for one call.
    pub timeout: Duration,
    /// Longest wait for it while a room is loaded.
    pub load_timeout: Duration,
    /// Pause between two looks at empty lanes.
    pub poll: Duration,
    /// Most entries in one transaction.
    pub batch: usize,
    /// What was archived is kept in Redis for so long.
    pub keep: Duration,
    /// And at most so many entries of each lane.
    pub keep_entries: usize,
    /// The command log is kept for so long; `None`: for ever.
    pub log_life: Option<Duration>,
    /// Events that were delivered are kept for so long.
    pub outbox_life: Duration,
}

/// A checked URL of a ledger. Display leaves its password and its parameters out.
#[derive(Clone, PartialEq, Eq)]
pub struct LedgerUrl(Secret);

impl LedgerUrl {
    /// Checks a URL.
    ///
    /// # Errors
    /// What would be right; the URL itself is never in it.
    pub fn parse(text: &str) -> Result<Self, ledger::AddressError> {
        Address::parse(text).map(|_| LedgerUrl(Secret::new(text)))
    }

    /// The URL with its credentials.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}

impl fmt::Display for LedgerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Address::parse(self.expose()) {
            Ok(address) => fmt::Display::fmt(&address, f),
            Err(_) => f.write_str("***"),
        }
    }
}

impl fmt::Debug for LedgerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where the ledger is if nothing is said.
const DEFAULT_URL: &str = "sqlite://dais.db";
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) fn read(section: &Section<'_>) -> Option<Ledger> {
    let given = section.secret("url");
    let url = match LedgerUrl::parse(given.as_ref().map_or(DEFAULT_URL, |given| given.value.expose())) {
        Ok(url) => Some(url),
        Err(error) => {
            let place = given.map_or_else(|| section.place_of("url"), |given| given.place);
            section.note(&place, "url", Fault::BadValue { found: None, right: error.to_string() });
            None
        }
    };
    let lane_limit = section.integer("lane_limit", 1..=10_000_000, "entries").unwrap_or(10_000);
    let lane_last_limit =
        section.integer("lane_last_limit", 1..=20_000_000, "entries").unwrap_or(lane_limit * 2);
    if lane_last_limit <= lane_limit {
        let fault =
            Fault::Conflict(format!("{lane_last_limit} must be above lane_limit, which is {lane_limit}"));
        section.note(&section.place_of("lane_last_limit"), "lane_last_limit", fault);
    }
    let days = section.integer("log_days", 0..=36_500, "days").unwrap_or(0);
    Some(Ledger {
        url: url?,
        lanes: section.integer("lanes", 1..=4_096, "").unwrap_or(key_prefix::LANES),
        lane_limit,
        lane_last_limit,
        timeout: section.millis("timeout_ms", 100..=60_000).unwrap_or(Duration::from_secs(5)),
        load_timeout: section.millis("load_timeout_ms", 10..=60_000).unwrap_or(Duration::from_secs(1)),
        poll: section.millis("poll_ms", 1..=10_000).unwrap_or(Duration::from_millis(50)),
        batch: section.integer("batch", 1..=20_000, "entries").unwrap_or(2_000),
        keep: section.millis("keep_ms", 0..=86_400_000).unwrap_or(Duration::from_secs(600)),
        keep_entries: section.integer("keep_entries", 0..=1_000_000, "entries").unwrap_or(10_000),
        log_life: (days > 0).then(|| DAY * days),
        outbox_life: DAY * section.integer("outbox_days", 1..=36_500, "days").unwrap_or(30),
    })
}
