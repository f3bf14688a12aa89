//! What a lane holds: one committed change of one room.

use key_prefix::RoomKey;
pub use redis_scripts::LaneAnswer as KeptAnswer;
use redis_scripts::{CellVersion, FenceToken, LaneEntry, RedisMillis, SettingsVersion};
use std::fmt;
use std::str::FromStr;

/// A committed change, as its script wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its stream id in the lane.
    pub entry: String,
    /// The room.
    pub room: RoomKey,
    /// What changed, and the version that it made.
    pub change: Change,
    /// The owner's token, or the last one before.
    pub token: FenceToken,
    /// `name/incarnation` of the owner; empty: nobody owned the room.
    pub owner: String,
    /// When it was committed.
    pub at: RedisMillis,
    /// What was changed, as JSON.
    pub body: String,
    /// The answer that its caller got, where one is kept.
    pub answer: Option<KeptAnswer>,
}

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A command of the room's cell.
    Cell {
        /// The cell's version after it.
        cv: CellVersion,
    },
    /// A change of settings.
    Settings {
        /// Their version after it.
        sv: SettingsVersion,
    },
    /// A change of guest states, which share the version of the settings.
    Guest {
        /// The version after it.
        sv: SettingsVersion,
    },
    /// The whole room, as its living owner wrote it after Redis had lost something.
    State {
        /// The cell's version.
        cv: CellVersion,
        /// The version of settings and guest states.
        sv: SettingsVersion,
    },
    /// An instance is dead. The entry's room is the app and, in the room's place, `name/incarnation`.
    Instance,
}

/// A lane's entry that is no change, or one that the ledger would not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    /// Its stream id.
    pub entry: String,
    /// All of it, as JSON.
    pub fields: String,
    /// What is wrong with it.
    pub why: String,
}

/// What an entry is recognised by, whatever its stream id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The room.
    pub room: RoomDigest,
    /// Which of its versions counts.
    pub counter: Counter,
    /// The token.
    pub token: FenceToken,
    /// The version.
    pub version: u64,
}

/// Which version an entry raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Counter {
    /// That of the cell.
    Cell = 0,
    /// That of settings and guest states.
    Settings = 1,
    /// None: it is about an instance.
    Instance = 2,
}

impl Counter {
    const WORDS: [(Self, &'static str); 3] =
        [(Self::Cell, "cell"), (Self::Settings, "settings"), (Self::Instance, "instance")];
}

/// An entry's name, the same in its lane and in the ledger: counter, token, version, and a digest that tells entries of
/// one position apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EntryId {
    /// Which version it raised.
    pub counter: Counter,
    /// The owner's token.
    pub token: FenceToken,
    /// The version that it made.
    pub version: u64,
    /// 16 hexadecimal digits.
    pub digest: String,
}

impl EntryId {
    /// Its shape, as a regular expression.
    pub const PATTERN: &str = "(cell|settings|instance)-[0-9]{1,16}-[0-9]{1,16}-[0-9a-f]{16}";
    /// Characters of the longest.
    pub const LONGEST: usize = 59;
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { counter, token, version, digest } = self;
        let (_, word) = Counter::WORDS[*counter as usize];
        write!(f, "{word}-{}-{version}-{digest}", token.as_u64())
    }
}

/// What is no [`EntryId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no entry's id")]
pub struct NoEntryId;

impl FromStr for EntryId {
    type Err = NoEntryId;

    fn from_str(text: &str) -> Result<Self, NoEntryId> {
        // So many digits are exact wherever numbers are floating.
        let number = |part: &str| {
            let fits = (1..=16).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse().ok().filter(|_| fits)
        };
        let mut parts = text.split('-');
        let mut part = || parts.next().ok_or(NoEntryId);
        let word = part()?;
        let counter = Counter::WORDS.iter().find(|(_, known)| *known == word).ok_or(NoEntryId)?.0;
        let token = FenceToken::new(number(part()?).ok_or(NoEntryId)?);
        let version = number(part()?).ok_or(NoEntryId)?;
        let digest = part()?.to_owned();
        let is_digest =
            digest.len() == 16 && digest.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        if !is_digest || parts.next().is_some() {
            return Err(NoEntryId);
        }
        Ok(Self { counter, token, version, digest })
    }
}

impl Entry {
    /// Makes sense of what stands in a lane.
    ///
    /// # Errors
    /// What is no change, with what is wrong with it.
    pub fn read(found: LaneEntry) -> Result<Self, Poison> {
        let (room, change) = match (RoomKey::from_route(&found.route), change_of(&found)) {
            (Ok(room), Ok(change)) => (room, change),
            (Err(error), _) => return Err(Poison::of(&found, format!("no room: {error}"))),
            (_, Err(why)) => return Err(Poison::of(&found, why)),
        };
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&found.entry) {
            return Err(Poison::of(&found, format!("no JSON: {error}")));
        }
        Ok(Self {
            entry: found.id,
            room,
            change,
            token: found.token,
            owner: found.owner,
            at: found.at,
            body: found.entry,
            answer: found.keep,
        })
    }

    /// The word for what changed.
    pub const fn kind(&self) -> &'static str {
        match self.change {
            Change::Cell { .. } => "cell",
            Change::Settings { .. } => "settings",
            Change::Guest { .. } => "guest",
            Change::State { .. } => "state",
            Change::Instance => "instance",
        }
    }

    /// Tells entries of one position apart, in 16 hexadecimal digits: fed again, an entry is the same byte for byte.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [self.kind(), &self.owner, &self.body] {
            hasher.update(part.as_bytes()).update(&[0]);
        }
        hasher.finalize().to_hex().as_str().chars().take(16).collect()
    }

    /// Its name.
    pub fn id(&self) -> EntryId {
        let Position { counter, token, version, .. } = self.position();
        EntryId { counter, token, version, digest: self.digest() }
    }

    /// Where it stands.
    pub fn position(&self) -> Position {
        let (counter, version) = match self.change {
            Change::Cell { cv } | Change::State { cv, .. } => (Counter::Cell, cv.as_u64()),
            Change::Settings { sv } | Change::Guest { sv } => (Counter::Settings, sv.as_u64()),
            Change::Instance => (Counter::Instance, 0),
        };
        Position { room: RoomDigest::of(self.room.route()), counter, token: self.token, version }
    }
}

/// A room's key in SQL: the first 16 bytes of the BLAKE3 digest of its route key, as 32 hexadecimal digits. No
/// database has an opinion on how two of them compare.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoomDigest(String);

impl RoomDigest {
    /// That of a route key.
    pub fn of(route: &str) -> Self {
        Self(hex128(&blake3::hash(route.as_bytes())))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RoomDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first 16 bytes as hexadecimal digits.
pub(crate) fn hex128(hash: &blake3::Hash) -> String {
    hash.to_hex().as_str().chars().take(32).collect()
}

impl Poison {
    /// A change that the ledger would not have.
    pub(crate) fn refused(entry: &Entry) -> Self {
        let fields = serde_json::json!({
            "room": entry.room.route(), "kind": entry.kind(), "at": entry.at, "owner": entry.owner,
            "token": entry.token, "entry": entry.body,
        });
        Self {
            entry: entry.entry.clone(),
            fields: fields.to_string(),
            why: "the ledger refused it".to_owned(),
        }
    }

    fn of(found: &LaneEntry, why: String) -> Self {
        let fields = serde_json::json!({
            "room": found.route, "kind": found.kind, "at": found.at, "owner": found.owner, "token": found.token,
            "cv": found.cv, "sv": found.sv, "entry": found.entry,
        });
        Self { entry: found.id.clone(), fields: fields.to_string(), why }
    }
}

fn change_of(found: &LaneEntry) -> Result<Change, String> {
    match (&*found.kind, found.cv, found.sv) {
        ("cell", Some(cv), _) => Ok(Change::Cell { cv: CellVersion::new(cv) }),
        ("settings", _, Some(sv)) => Ok(Change::Settings { sv: SettingsVersion::new(sv) }),
        ("guest", _, Some(sv)) => Ok(Change::Guest { sv: SettingsVersion::new(sv) }),
        ("state", Some(cv), Some(sv)) => {
            Ok(Change::State { cv: CellVersion::new(cv), sv: SettingsVersion::new(sv) })
        }
        ("instance", ..) => Ok(Change::Instance),
        (kind, ..) => Err(format!("no change: kind {kind:?} with cv {:?} and sv {:?}", found.cv, found.sv)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_is_read_as_it_is_written(
            counter in 0..3_usize, token in 0..1_u64 << 53, version in 0..1_u64 << 53, digest in "[0-9a-f]{16}"
        ) {
            let (counter, _) = Counter::WORDS[counter];
            let id = EntryId { counter, token: FenceToken::new(token), version, digest };
            prop_assert!(id.to_string().len() <= EntryId::LONGEST);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn any_text_is_read(text in "(cell|settings|.{0,9})?(-[0-9]{0,20}){0,3}(-[0-9a-f]{0,18})?.{0,3}") {
            if let Ok(id) = text.parse::<EntryId>() {
                prop_assert_eq!(id.to_string().parse(), Ok(id));
            }
        }
    }

    #[test]
    fn what_only_looks_like_an_id_is_none() {
        let digest = "0123456789abcdef";
        for bad in
            ["", "cell", "cell-1-2", "sell-1-2-", "cell--2-", "cell-1-+2-", "cell-12345678901234567-2-"]
        {
            assert_eq!(format!("{bad}{digest}").parse::<EntryId>(), Err(NoEntryId), "{bad}");
        }
        for bad in ["cell-1-2-0123456789ABCDEF", "cell-1-2-0123", "cell-1-2-0123456789abcdef-"] {
            assert_eq!(bad.parse::<EntryId>(), Err(NoEntryId), "{bad}");
        }
    }
}
