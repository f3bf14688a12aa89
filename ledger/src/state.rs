//! A room as the ledger has it: a snapshot, and what the log adds to it.

use std::collections::BTreeMap;

use redis_scripts::{CellVersion, RedisMillis};
use room_cell::{Cell, Event, Millis, SeatNumber, UserId, patch};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::entry::Counter;

/// Everything of a room but its answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoomState {
    /// The cell.
    pub cell: Cell,
    /// Settings by name.
    pub settings: Map<String, Value>,
    /// State by user.
    pub guests: Map<String, Value>,
    /// When the room was made.
    pub created_at: RedisMillis,
}

/// The body of a [`Change::State`](crate::Change::State), and a snapshot: a room as Redis stores it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(default)]
    cell: BTreeMap<String, String>,
    #[serde(default)]
    peers: BTreeMap<String, String>,
    status: String,
    #[serde(default)]
    settings: Map<String, Value>,
    #[serde(default)]
    guests: Map<String, Value>,
    #[serde(default)]
    created_at: RedisMillis,
}

impl RoomState {
    /// Reads a body of a [`Change::State`](crate::Change::State) with the cell's version.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read(body: &str, cv: CellVersion) -> Result<Self, String> {
        let stored: Stored = serde_json::from_str(body).map_err(|error| error.to_string())?;
        let fields = |map: BTreeMap<String, String>| map.into_iter().collect::<Vec<_>>();
        let (cell, peers) = (fields(stored.cell), fields(stored.peers));
        let cell = if cell.is_empty() && peers.is_empty() && stored.status == "absent" {
            Cell { version: cv.as_u64(), ..Cell::default() }
        } else {
            Cell::read(cv.as_u64(), &stored.status, &cell, &peers).map_err(|error| error.to_string())?
        };
        Ok(Self { cell, settings: stored.settings, guests: stored.guests, created_at: stored.created_at })
    }

    /// A room as Redis holds it.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn of_redis(found: &redis_scripts::RoomState) -> Result<Self, String> {
        let documents = |pairs: &[(String, String)]| -> Result<Map<String, Value>, String> {
            let read = |(name, text): &(String, String)| Ok((name.clone(), serde_json::from_str(text)?));
            pairs
                .iter()
                .map(read)
                .collect::<Result<_, serde_json::Error>>()
                .map_err(|error| error.to_string())
        };
        let cell = Cell::read(found.cv.as_u64(), &found.status, &found.cell, &found.peers)
            .map_err(|error| error.to_string())?;
        let (settings, guests) = (documents(&found.settings)?, documents(&found.guests)?);
        Ok(Self { cell, settings, guests, created_at: found.created_at })
    }

    /// The body that [`Self::read`] makes the same state of.
    pub fn to_body(&self) -> String {
        let all = self.cell.stored();
        let stored = Stored {
            cell: all.set.into_iter().collect(),
            peers: all.peers_set.into_iter().map(|(peer, value)| (peer.to_string(), value)).collect(),
            status: self.cell.status.word().to_owned(),
            settings: self.settings.clone(),
            guests: self.guests.clone(),
            created_at: self.created_at,
        };
        // Maps have string keys and numbers are whole: there is nothing that JSON cannot hold.
        serde_json::to_string(&stored).unwrap_or_default()
    }
}

/// What one row of the log adds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) counter: Counter,
    pub(crate) token: u64,
    pub(crate) version: u64,
    pub(crate) at: RedisMillis,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// Of the cell.
    Events(Vec<Event>),
    /// Of settings.
    Settings(Map<String, Value>),
    /// Of guests, by user.
    Guests(Map<String, Value>),
}

#[derive(Deserialize)]
struct Command {
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct SettingsPatch {
    settings: Map<String, Value>,
}

#[derive(Deserialize)]
struct GuestsPatch {
    guests: Map<String, Value>,
}

impl What {
    /// Reads the body of a row of this kind; none of a kind that adds nothing.
    pub(crate) fn read(kind: &str, body: &str) -> Result<Option<Self>, serde_json::Error> {
        Ok(Some(match kind {
            "cell" => Self::Events(serde_json::from_str::<Command>(body)?.events),
            "settings" => Self::Settings(serde_json::from_str::<SettingsPatch>(body)?.settings),
            "guest" => Self::Guests(serde_json::from_str::<GuestsPatch>(body)?.guests),
            _ => return Ok(None),
        }))
    }
}

/// The newest token and version that came in, of each counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reached {
    cell: (u64, u64),
    settings: (u64, u64),
}

/// A state that takes in rows of the log.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Fold {
    pub(crate) state: RoomState,
    /// Highest token that came in.
    pub(crate) token: u64,
    pub(crate) sv: u64,
    /// Nothing was missing between what came in.
    pub(crate) is_whole: bool,
    pub(crate) reached: Reached,
}

impl Fold {
    /// From nothing: a room that was never heard of.
    pub(crate) fn new() -> Self {
        Self { is_whole: true, ..Self::default() }
    }

    /// From a state at these versions; the cell holds its own.
    pub(crate) const fn from(state: RoomState, token: u64, sv: u64) -> Self {
        let reached = Reached { cell: (token, state.cell.version), settings: (token, sv) };
        Self { state, token, sv, is_whole: true, reached }
    }

    /// Takes in rows, in the order in which they were committed, whatever the one in which they were archived. What is
    /// in the state already is passed over. Where a later owner went on from less than was known, what it did comes on
    /// top of that.
    pub(crate) fn take_in(&mut self, mut steps: Vec<Step>) {
        steps.sort_by_key(|step| (step.token, step.counter, step.version));
        for step in steps {
            let (reached, version) = match step.counter {
                Counter::Cell => (&mut self.reached.cell, &mut self.state.cell.version),
                Counter::Settings | Counter::Instance => (&mut self.reached.settings, &mut self.sv),
            };
            if (step.token, step.version) <= *reached {
                continue;
            }
            let before = if step.token > reached.0 { *version } else { reached.1 };
            self.is_whole &= step.version == before + 1;
            *reached = (step.token, step.version);
            *version = step.version.max(*version);
            self.token = self.token.max(step.token);
            self.apply(step);
        }
    }

    fn apply(&mut self, step: Step) {
        let state = &mut self.state;
        match step.what {
            What::Events(events) => {
                if events.iter().any(|event| matches!(event, Event::Made { .. })) {
                    state.created_at = step.at;
                }
                events.iter().for_each(|event| room_cell::apply(&mut state.cell, event));
            }
            What::Settings(patch) => patch::apply_fields(&mut state.settings, &patch),
            What::Guests(patch) => patch::apply_fields(&mut state.guests, &patch),
        }
    }
}

/// Makes a cell sound that two owners went on with who did not know of each other: nobody sits who is not there, and
/// everybody on the seat that they took last.
pub(crate) fn settle(cell: &mut Cell) {
    let mut last: BTreeMap<UserId, (Millis, SeatNumber)> = BTreeMap::new();
    for (number, seat) in &cell.seats {
        if let Some(sitter) = seat.sitter.as_ref().filter(|it| cell.users.contains_key(&it.user)) {
            let taken = last.entry(sitter.user.clone()).or_insert((sitter.started_at, *number));
            *taken = (*taken).max((sitter.started_at, *number));
        }
    }
    let is_last = |number: &SeatNumber, user: &UserId| last.get(user).is_some_and(|(_, seat)| seat == number);
    let left = cell
        .seats
        .iter()
        .filter(|(number, seat)| seat.sitter.as_ref().is_some_and(|sitter| !is_last(number, &sitter.user)));
    let left: Vec<SeatNumber> = left.map(|(number, _)| *number).collect();
    for number in left {
        if let Some(seat) = cell.seats.get_mut(&number) {
            seat.sitter = None;
        }
    }
}
