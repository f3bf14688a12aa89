//! The durable record: who did what in which room, under which owner and token.
//!
//! Redis holds what is so now; the ledger holds how it came to be. Each committed command and each change of settings
//! goes from its room into one of 64 lanes in Redis, and from there, by the holder of the lane's lease and in one
//! transaction, into SQL: the command log, a snapshot of the room, and the events that go out to others. What is
//! archived is recognised by its position, which is room, token and version, so each entry takes effect exactly once,
//! whatever is killed in between.
//!
//! - [`Ledger`] is the SQL store: SQLite, PostgreSQL, MySQL or MariaDB, by its address.
//! - [`archiver`] moves what is in the lanes into it.
//! - [`facts`] proves that an instance, its Redis and its ledger belong together.
//! - [`events`] are what the outside is told of an entry; [`outbox`] delivers them to each [`sink`].

pub mod archiver;
pub mod events;
pub mod facts;
pub mod outbox;
pub mod sink;

mod archive;
mod db;
mod entry;
mod error;
mod migrate;
mod prune;
mod recover;
mod state;
mod subscription;
mod tail;
mod timeline;
mod url;

pub use archive::{Archived, Claimed, LaneBatch, LaneOutcome};
pub use db::{Dialect, Options};
pub use entry::{Change, Counter, Entry, EntryId, KeptAnswer, NoEntryId, Poison, Position, RoomDigest};
pub use error::{Cause, LedgerError, OpenError};
pub use migrate::SCHEMA;
pub use recover::{Answer, Head, Recovered};
pub use state::RoomState;
pub use subscription::{Filter, FilterError, Subscription, Subscriptions};
pub use timeline::{Before, Row};
pub use url::{Address, AddressError};

use std::collections::BTreeMap;

use db::{Db, For};

/// The ledger: connections to the database, whose schema is up to date.
#[derive(Debug, Clone)]
pub struct Ledger {
    db: Db,
}

impl Ledger {
    /// Connects, and brings the schema up to date.
    ///
    /// # Errors
    ///
    /// The database cannot be used, or its schema is newer than this program knows.
    pub async fn open(url: &str, options: &Options) -> Result<Self, OpenError> {
        Self::open_at(url, options, SCHEMA).await
    }

    /// Connects when it is first asked something, of a database whose schema is taken to be up to date.
    ///
    /// # Errors
    ///
    /// It is no address.
    pub fn unopened(url: &str, options: &Options) -> Result<Self, OpenError> {
        Ok(Self { db: Db::new(&Address::parse(url)?, options)? })
    }

    /// As [`Self::open`], up to an older version of the schema: for tests of what brings it further.
    #[doc(hidden)]
    pub async fn open_at(url: &str, options: &Options, schema: u64) -> Result<Self, OpenError> {
        let db = Db::new(&Address::parse(url)?, options)?;
        migrate::migrate(&db, schema).await?;
        Ok(Self { db })
    }

    /// What the ledger was made with and must never change, by name.
    ///
    /// # Errors
    ///
    /// The database cannot be used.
    pub async fn facts(&self) -> Result<BTreeMap<String, String>, LedgerError> {
        let read = async {
            let mut tx = self.db.begin(For::Reading).await?;
            let standing = standing_facts(&mut tx).await?;
            tx.commit().await?;
            Ok(standing)
        };
        self.db.within(read).await
    }

    /// Writes those facts that are not there yet, and says which stand now.
    ///
    /// # Errors
    ///
    /// The database cannot be used.
    pub async fn put_facts(&self, facts: &[(&str, &str)]) -> Result<BTreeMap<String, String>, LedgerError> {
        let standing = self.facts().await?;
        if facts.iter().all(|(name, _)| standing.contains_key(*name)) {
            return Ok(standing);
        }
        let put = async {
            let mut tx = self.db.begin(For::Writing).await?;
            let ignore = tx.dialect().or_ignore("name");
            for (name, value) in facts {
                let sql = tx.sql(&format!("INSERT INTO facts (name, value) VALUES (?, ?){ignore}"));
                tx.execute(sql.text(name).text(value)).await?;
            }
            let standing = standing_facts(&mut tx).await?;
            tx.commit().await?;
            Ok(standing)
        };
        self.db.within(put).await
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.db.close().await;
    }
}

async fn standing_facts(tx: &mut db::Tx) -> Result<BTreeMap<String, String>, LedgerError> {
    let sql = tx.sql("SELECT name, value FROM facts");
    let rows = tx.rows(sql).await?;
    rows.iter().map(|row| Ok((row.text(0)?, row.text(1)?))).collect()
}
