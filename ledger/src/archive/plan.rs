//! What is to be done with each entry. Decided in memory, from what stands; nothing is read or written here.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use key_prefix::RoomKey;
use room_cell::Event;

use super::heads::Standing;
use super::{Archived, LaneBatch};
use crate::entry::{Change, Counter, Entry, Poison, Position, RoomDigest};
use crate::events::{self, BusinessEvent};
use crate::outbox::Appended;
use crate::state::{RoomState, Step, What};

/// Rows of the log after which a room's snapshot is made anew.
pub(crate) const FOLD_AFTER: u64 = 200;

/// An entry with everything that can be known of it without asking the database.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) position: Position,
    pub(crate) digest: String,
    read: Result<Read, String>,
}

#[derive(Debug)]
struct Read {
    what: Option<What>,
    state: Option<Box<RoomState>>,
    events: Vec<BusinessEvent>,
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(entry: &'a Entry) -> Self {
        Self { entry, position: entry.position(), digest: entry.digest(), read: read(entry) }
    }
}

fn read(entry: &Entry) -> Result<Read, String> {
    let what = What::read(entry.kind(), &entry.body).map_err(|error| error.to_string())?;
    let state = match entry.change {
        Change::State { cv, .. } => Some(Box::new(RoomState::read(&entry.body, cv)?)),
        _ => None,
    };
    let events = events::of(entry).map_err(|error| match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })?;
    Ok(Read { what, state, events })
}

/// Entries of each position that the ledger has, by digest. Whole states stand beside what led to them.
pub(crate) type Known = HashMap<(Position, bool), BTreeSet<String>>;

/// A row of the log to be written.
#[derive(Debug)]
pub(crate) struct LogRow<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) position: Position,
    pub(crate) digest: String,
    pub(crate) superseded: bool,
}

/// What an entry does to its room's state.
#[derive(Debug)]
pub(crate) enum Effect<'a> {
    Step(Step),
    State { entry: &'a Entry, state: Box<RoomState>, sv: u64 },
}

/// What is to be done with a room.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    pub(crate) head: Standing,
    pub(crate) effects: Vec<Effect<'a>>,
    is_changed: bool,
    must_fold: bool,
    /// To be written.
    pub(crate) snapshot: Option<Snapshot>,
}

/// The body of a room's state, and the position that it covers.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) token: u64,
    pub(crate) cv: u64,
    pub(crate) sv: u64,
    pub(crate) body: String,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    known: Known,
    rooms: BTreeMap<RoomDigest, Room<'a>>,
    rows: Vec<LogRow<'a>>,
    aside: Vec<(u16, Poison)>,
    told: Vec<Told<'a>>,
}

#[derive(Debug)]
struct Told<'a> {
    lane: u16,
    entry: &'a Entry,
    room: RoomDigest,
    events: Vec<BusinessEvent>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(heads: HashMap<RoomDigest, Standing>, known: Known) -> Self {
        let rooms = heads.into_iter().map(|(key, head)| (key, Room::new(head)));
        Self { known, rooms: rooms.collect(), rows: Vec::new(), aside: Vec::new(), told: Vec::new() }
    }

    /// Takes in a batch, in its order.
    pub(crate) fn take_in(&mut self, batch: &LaneBatch, entries: Vec<Prepared<'a>>) -> Archived {
        let mut archived = Archived::default();
        self.aside.extend(batch.poison.iter().map(|poison| (batch.lane, poison.clone())));
        for entry in entries {
            self.entry(batch.lane, entry, &mut archived);
        }
        archived
    }

    fn entry(&mut self, lane: u16, prepared: Prepared<'a>, archived: &mut Archived) {
        let Prepared { entry, position, digest, read } = prepared;
        let read = match read {
            Ok(read) => read,
            Err(why) => {
                archived.aside += 1;
                self.aside.push((lane, Poison { why, ..Poison::refused(entry) }));
                return;
            }
        };
        if position.counter == Counter::Instance {
            archived.written += 1;
            self.told.push(Told { lane, entry, room: position.room, events: read.events });
            return;
        }
        let known = self.known.entry((position.clone(), read.state.is_some())).or_default();
        if known.contains(&digest) {
            archived.repeated += 1;
            return;
        }
        let is_taken = !known.is_empty();
        known.insert(digest.clone());
        let room =
            self.rooms.entry(position.room.clone()).or_insert_with(|| Room::new(Standing::new(&entry.room)));
        let place = room.place(entry, &position);
        let is_fork = is_taken && matches!(place, Place::Late);
        let superseded = is_fork || matches!(place, Place::Superseded);
        if superseded {
            archived.superseded += u64::from(!is_fork);
            archived.forks += u64::from(is_fork);
        } else {
            archived.written += 1;
            let is_state = read.state.is_some();
            room.take_in(entry, &position, &place, read.what, read.state);
            // What the whole state tells is known once it is compared.
            if !is_state {
                self.told.push(Told { lane, entry, room: position.room.clone(), events: read.events });
            }
        }
        self.rows.push(LogRow { entry, position, digest, superseded });
    }

    /// Rooms whose state has to be calculated, by key.
    pub(crate) fn folding(&mut self) -> impl Iterator<Item = (&RoomDigest, &mut Room<'a>)> {
        self.rooms.iter_mut().filter(|(_, room)| room.must_fold())
    }

    /// Adds what a whole state tells, compared with what the log led to.
    pub(crate) fn tell(&mut self, entry: &'a Entry, events: Vec<BusinessEvent>) {
        let lane = key_prefix::lane_of(entry.room.route());
        self.told.push(Told { lane, entry, room: entry.position().room, events });
    }

    pub(crate) fn rows(&self) -> &[LogRow<'a>] {
        &self.rows
    }

    pub(crate) fn aside(&self) -> &[(u16, Poison)] {
        &self.aside
    }

    pub(crate) fn changed_heads(&self) -> Vec<(&RoomDigest, &Standing)> {
        self.rooms.iter().filter(|(_, room)| room.is_changed).map(|(key, room)| (key, &room.head)).collect()
    }

    pub(crate) fn snapshots(&self) -> Vec<(&RoomDigest, &Snapshot)> {
        self.rooms.iter().filter_map(|(key, room)| Some((key, room.snapshot.as_ref()?))).collect()
    }

    /// Rooms whose log lacks something.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = &RoomKey> {
        self.rooms.values().filter(|room| room.head.gap).map(|room| &room.head.room)
    }

    /// What is told, with the lane that it came from.
    pub(crate) fn appended(&mut self) -> Vec<(u16, Appended<'_>)> {
        let told = self.told.iter_mut().filter(|told| !told.events.is_empty());
        let appended = told.map(|told| {
            let events = std::mem::take(&mut told.events);
            let (app, room_key, at) = (told.entry.room.app(), told.room.as_str(), told.entry.at);
            (told.lane, Appended { app, room_key, at, events })
        });
        appended.collect()
    }
}

/// Where an entry stands to its room's head.
enum Place {
    /// After it.
    Next,
    /// Of its token, and not after it.
    Late,
    /// Of a lower token, or a whole state that something came after.
    Superseded,
}

impl<'a> Room<'a> {
    const fn new(head: Standing) -> Self {
        Self { head, effects: Vec::new(), is_changed: false, must_fold: false, snapshot: None }
    }

    fn place(&self, entry: &Entry, position: &Position) -> Place {
        let (token, head) = (position.token.as_u64(), &self.head);
        if token < head.token {
            return Place::Superseded;
        }
        if let Change::State { cv, sv } = entry.change {
            let is_behind = token == head.token && (cv.as_u64() < head.cv || sv.as_u64() < head.sv);
            return if is_behind { Place::Superseded } else { Place::Next };
        }
        if token == head.token && position.version <= head.version(position.counter) {
            return Place::Late;
        }
        Place::Next
    }

    fn take_in(
        &mut self,
        entry: &'a Entry,
        position: &Position,
        place: &Place,
        what: Option<What>,
        state: Option<Box<RoomState>>,
    ) {
        self.is_changed = true;
        self.head.unfolded += 1;
        let at = entry.at.as_u64();
        if let Some(What::Events(events)) = &what {
            // What came late was followed by something that says more of the status.
            if matches!(place, Place::Next) {
                self.status(events, at);
            }
        }
        if let (Some(state), Change::State { cv, sv }) = (state, entry.change) {
            self.head.cv = cv.as_u64();
            self.head.sv = sv.as_u64();
            self.head.gap = false;
            self.head.status = state.cell.status.word().to_owned();
            self.head.created_at = state.created_at.as_u64();
            self.must_fold = true;
            self.effects.push(Effect::State { entry, state, sv: sv.as_u64() });
        } else if let Some(what) = what {
            let version = position.version;
            match place {
                Place::Next => {
                    self.head.gap |= version != self.head.version(position.counter) + 1;
                    match position.counter {
                        Counter::Cell => self.head.cv = version,
                        Counter::Settings | Counter::Instance => self.head.sv = version,
                    }
                }
                // It may be what was missing.
                Place::Late | Place::Superseded => self.must_fold |= self.head.gap,
            }
            let step = Step {
                counter: position.counter,
                token: position.token.as_u64(),
                version,
                at: entry.at,
                what,
            };
            self.effects.push(Effect::Step(step));
        }
        if matches!(place, Place::Next) {
            self.head.token = position.token.as_u64();
            self.head.at = self.head.at.max(at);
            if self.head.created_at == 0 {
                self.head.created_at = at;
            }
        }
    }

    fn status(&mut self, events: &[Event], at: u64) {
        for event in events {
            let opening = |deadline: &Option<_>| if deadline.is_some() { "creating" } else { "active" };
            let status = match event {
                Event::Made { deadline, .. } => {
                    self.head.created_at = at;
                    opening(deadline)
                }
                Event::Reopened { deadline, .. } => opening(deadline),
                Event::Opened => "active",
                Event::Failed => "absent",
                Event::Closing { .. } => "closing",
                Event::Closed { .. } => {
                    self.must_fold = true;
                    "closed"
                }
                _ => continue,
            };
            status.clone_into(&mut self.head.status);
        }
    }

    fn must_fold(&self) -> bool {
        // While something is missing a snapshot would only hide it.
        self.must_fold || (self.is_changed && self.head.unfolded >= FOLD_AFTER && !self.head.gap)
    }

    /// Says that the log has everything since the snapshot, or not.
    pub(crate) fn folded(&mut self, is_whole: bool) {
        self.head.gap = !is_whole;
    }

    /// Gives the room a snapshot of everything that it has.
    pub(crate) fn snapshot(&mut self, state: &RoomState, sv: u64) {
        self.head.unfolded = 0;
        let (token, cv) = (self.head.token, state.cell.version);
        self.snapshot = Some(Snapshot { token, cv, sv, body: state.to_body() });
    }
}
