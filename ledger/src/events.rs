//! Business events: what the outside is told of a committed change.
//!
//! They are derived from the log, purely: the same entry gives the same events with the same ids, however often and
//! by whomever it is read. Events of the cell say by themselves whether they begin or end something, so no state is
//! needed for that; only where Redis lost something is the state before compared with the state after.

mod change;
mod difference;
mod payload;
#[cfg(test)]
mod tests;
mod timestamp;

use std::fmt;

use crate::entry::{Change, Entry, Position, hex128};
use crate::state::RoomState;
use payload::{By, ByKind, Data, Origin, Payload, Version, What};

/// What one receiver after the other is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusinessEvent {
    /// Its id.
    pub id: EventId,
    /// What happened: `room.closed`.
    pub kind: &'static str,
    /// All of it, as JSON.
    pub payload: String,
}

/// Names an event, the same however often it is derived and delivered: 32 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(String);

impl EventId {
    fn new(position: &Position, index: usize) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(position.room.as_str().as_bytes());
        hasher.update(&[position.counter as u8]);
        hasher.update(&position.token.as_u64().to_be_bytes());
        hasher.update(&position.version.to_be_bytes());
        hasher.update(&(index as u64).to_be_bytes());
        Self(hex128(&hasher.finalize()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An entry's body is not what its kind of change writes.
#[derive(Debug, thiserror::Error)]
#[error("the entry's body cannot be read")]
pub struct MalformedBody(#[from] serde_json::Error);

/// What an entry tells. A [`Change::State`] tells nothing by itself: see [`between`].
///
/// # Errors
///
/// Its body is not what its kind of change writes.
pub fn of(entry: &Entry) -> Result<Vec<BusinessEvent>, MalformedBody> {
    let told = match entry.change {
        Change::Cell { .. } => change::cell(&entry.body)?,
        Change::Settings { .. } => change::settings(&entry.body)?,
        Change::Guest { .. } => change::guests(&entry.body)?,
        Change::Instance => change::instance(&entry.body)?,
        Change::State { .. } => Told::default(),
    };
    Ok(events(entry, told))
}

/// What nobody logged: by what the state that a [`Change::State`] holds differs from the one that the log led to.
pub fn between(entry: &Entry, before: &RoomState, after: &RoomState) -> Vec<BusinessEvent> {
    let what = difference::between(before, after, room_cell::Millis(entry.at.as_u64()));
    let by = Some(By { kind: ByKind::Owner, user: None });
    events(entry, Told { command: None, by, recovered: true, what })
}

/// What is to be told, and on whose behalf it happened.
#[derive(Debug, Default)]
struct Told {
    command: Option<String>,
    by: Option<By>,
    recovered: bool,
    what: Vec<What>,
}

fn events(entry: &Entry, told: Told) -> Vec<BusinessEvent> {
    let position = entry.position();
    let (cell, settings) = match entry.change {
        Change::Cell { cv } => (Some(cv.as_u64()), None),
        Change::Settings { sv } | Change::Guest { sv } => (None, Some(sv.as_u64())),
        Change::State { cv, sv } => (Some(cv.as_u64()), Some(sv.as_u64())),
        Change::Instance => (None, None),
    };
    let is_of_room = entry.change != Change::Instance;
    let origin = Origin {
        app: entry.room.app().to_owned(),
        room: is_of_room.then(|| entry.room.room().to_owned()),
        version: is_of_room.then_some(Version { cell, settings }),
        token: entry.token.as_u64(),
        command: told.command,
        by: told.by,
        recovered: told.recovered,
    };
    let timestamp = timestamp::rfc3339(entry.at.as_u64());
    let events = told.what.into_iter().enumerate().map(|(index, what)| {
        let (id, kind) = (EventId::new(&position, index), what.kind());
        let data = Data { origin: origin.clone(), what };
        let payload = Payload { kind, timestamp: timestamp.clone(), id: id.to_string(), data };
        // Maps have string keys and numbers are whole: there is nothing that JSON cannot hold.
        let payload = serde_json::to_string(&payload).unwrap_or_default();
        BusinessEvent { id, kind, payload }
    });
    events.collect()
}
