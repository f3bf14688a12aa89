//! The room as its owner has it: the only type that mutates memory, and only to what Redis acknowledged.

use ledger::RoomState;
use redis_scripts::{
    Commit, Committed, FenceToken, GuestUpdate, Pinned, RedisMillis, Release, Released, Repeat, Restore,
    Restored, ScriptError, SettingsUpdate, SettingsVersion, Standing, Updated,
};
use room_cell::Cell;
use serde_json::Value;
use std::sync::Arc;

use super::batch::{Batch, cell_changes};
use super::lease::Lease;
use super::links::Links;
use super::names::RoomNames;
use super::projection::{Projection, StateChange};
use super::work::{GuestChange, SettingsChange};
use crate::clock::Moment;
use crate::node::Store;

/// A room whose lease this incarnation holds. Made only from a won `pin`; losing the lease consumes it.
#[derive(Debug)]
pub struct OwnedRoom {
    lease: Lease,
    names: Arc<RoomNames>,
    projection: Projection,
    cell: Cell,
    links: Links,
}

/// Why a commit was not made, or may not have been.
#[derive(Debug)]
pub enum CommitError {
    /// Some of its commands have answers already, or came too late: decide the rest anew.
    Again(Vec<(usize, Repeat)>),
    /// The lease is another's: stop serving the room.
    Lost,
    /// A newer incarnation of this instance lives: end the process.
    Superseded,
    /// Redis lost part of the room: restore it, then repeat.
    Damaged,
    /// Redis has more of the room than memory: read it, then repeat.
    Ahead,
    /// The room's lane is full: the ledger does not keep up.
    Full,
    /// Redis did not answer: the commit may have been made. It must be sent again, as it is.
    Unknown(ScriptError),
    /// A fault of ours, or a key of a wrong type.
    Failed(ScriptError),
}

impl From<ScriptError> for CommitError {
    fn from(error: ScriptError) -> Self {
        if error.is_unavailable() { Self::Unknown(error) } else { Self::Failed(error) }
    }
}

impl OwnedRoom {
    /// The room whose lease was just won.
    pub(super) fn new(lease: Lease, names: Arc<RoomNames>, projection: Projection, cell: Cell) -> Self {
        Self { lease, names, projection, cell, links: Links::default() }
    }

    /// Its lease.
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Settings and guest states.
    pub const fn projection(&self) -> &Projection {
        &self.projection
    }

    /// What is decided here alone.
    pub const fn cell(&self) -> &Cell {
        &self.cell
    }

    /// How its peers are reached.
    pub const fn links(&self) -> &Links {
        &self.links
    }

    /// How its peers are reached, to note it: Redis knows nothing of it.
    pub(super) const fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Commits a batch that was staged on the present cell. Memory follows if Redis acknowledges it.
    pub async fn commit(
        &mut self,
        store: &Store,
        batch: &Batch,
        due: Option<RedisMillis>,
    ) -> Result<(), CommitError> {
        let changes = room_cell::changes(&self.cell, &batch.cell);
        let fanout: Vec<String> = batch.fanout(&batch.delta(), &self.names.route_json).into_iter().collect();
        let prepared = batch.prepare();
        let commands: Vec<_> = prepared.iter().map(super::batch::Prepared::committing).collect();
        let with = Commit {
            me: &store.me,
            room: &self.names.key,
            keys: &self.names.keys,
            token: self.lease.token(),
            cv: redis_scripts::CellVersion::new(batch.from),
            batch: &batch.id,
            commands: &commands,
            changes: &cell_changes(&changes),
            due,
            fanout: &fanout,
            lane_limit: if batch.begins() { store.lane_limit } else { store.lane_last_limit },
        };
        let answer = store.timed("commit", store.scripts.commit(&store.keys, with)).await?;
        store.metrics.commit_commands.observe(commands.len() as f64);
        match answer {
            Committed::Ok { .. } => {
                store.replicated().await?;
                self.cell = batch.cell.clone();
                Ok(())
            }
            Committed::Again { repeats } => {
                store.replicated().await?;
                Err(CommitError::Again(repeats))
            }
            Committed::Lost { .. } => Err(CommitError::Lost),
            Committed::Superseded { .. } => Err(CommitError::Superseded),
            Committed::Missing | Committed::Behind { .. } => Err(CommitError::Damaged),
            Committed::Ahead { .. } => Err(CommitError::Ahead),
            Committed::Full { .. } => Err(CommitError::Full),
        }
    }

    /// Sends a settings change; memory follows with [`OwnedRoom::advance`].
    pub async fn update_settings(
        &self,
        store: &Store,
        change: &SettingsChange,
    ) -> Result<Updated, ScriptError> {
        update_settings(store, &self.names, change).await
    }

    /// Sends a guest change; memory follows with [`OwnedRoom::advance`].
    pub async fn update_guest(&self, store: &Store, change: &GuestChange) -> Result<Updated, ScriptError> {
        update_guest(store, &self.names, change).await
    }

    /// Applies the change that follows the present version.
    pub fn advance(&mut self, change: &StateChange) {
        self.projection.apply(change);
    }

    /// Takes over settings and guests as a script read them, and returns the change that leads there.
    pub(super) fn adopt(&mut self, newer: Projection) -> StateChange {
        let change = self.projection.change_to(&newer);
        self.projection = newer;
        change
    }

    /// Takes over a cell as a script read it, and returns the one before.
    pub(super) fn adopt_cell(&mut self, newer: Cell) -> Cell {
        std::mem::replace(&mut self.cell, newer)
    }

    /// Writes the room anew after Redis lost part of it: what is left there, and memory for the rest.
    /// Versions leap. Returns `false` if the room was written in between: read it again.
    pub async fn restore(
        &mut self,
        store: &Store,
        found: Option<&Standing>,
        due: Option<RedisMillis>,
    ) -> Result<bool, CommitError> {
        let seen = found.map(|standing| standing.state.sv).filter(|sv| *sv > SettingsVersion::default());
        let sv = seen.unwrap_or_default().max(self.projection.sv).leap();
        let here = redis_scripts::CellVersion::new(self.cell.version);
        let cv = found.map(|standing| standing.state.cv).unwrap_or_default().max(here).leap();
        let text = |document: &serde_json::Map<String, Value>| -> Vec<(String, String)> {
            document.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
        };
        let (settings, guests) = (text(&self.projection.settings), text(&self.projection.guests));
        let stored = self.cell.stored();
        let whole = RoomState {
            cell: self.cell.clone(),
            settings: self.projection.settings.clone(),
            guests: self.projection.guests.clone(),
            created_at: self.projection.created_at,
        };
        let entry = whole.to_body();
        let with = Restore {
            me: &store.me,
            room: &self.names.key,
            keys: &self.names.keys,
            token: self.lease.token(),
            seen,
            sv,
            cv,
            created_at: self.projection.created_at,
            settings: &borrowed(&settings),
            guests: &borrowed(&guests),
            batch: "",
            entry: &entry,
            changes: &cell_changes(&stored),
            due,
        };
        match store.timed("restore", store.scripts.restore(&store.keys, with)).await? {
            Restored::Ok { .. } => {
                self.projection.sv = sv;
                self.cell.version = cv.as_u64();
                Ok(true)
            }
            Restored::Changed => Ok(false),
            Restored::Lost { .. } => Err(CommitError::Lost),
            Restored::Superseded { .. } => Err(CommitError::Superseded),
        }
    }

    /// Gives the lease up. With `only_idle`, not while the room has peers or work.
    pub async fn release(
        &self,
        store: &Store,
        only_idle: bool,
        due: Option<RedisMillis>,
    ) -> Result<Released, ScriptError> {
        let with = Release {
            me: &store.me,
            room: &self.names.key,
            keys: &self.names.keys,
            token: self.lease.token(),
            life: store.room_life,
            only_empty: only_idle,
            due,
        };
        store.timed("release", store.scripts.release(&store.keys, with)).await
    }

    /// The lease cannot be relied on any more: what is left is memory that may not be written from.
    pub(super) fn suspend(self) -> SuspendedRoom {
        SuspendedRoom {
            token: self.lease.token(),
            projection: self.projection,
            cell: self.cell,
            links: self.links,
        }
    }
}

/// A room whose lease ran out here. It keeps who is connected, and what was last acknowledged, until a
/// new `pin` tells whether it is still ours.
#[derive(Debug)]
pub struct SuspendedRoom {
    /// The token that it was held with.
    pub token: FenceToken,
    /// Settings and guest states that Redis had last acknowledged.
    pub projection: Projection,
    /// The cell that Redis had last acknowledged.
    pub cell: Cell,
    /// How its peers are reached.
    pub links: Links,
}

impl SuspendedRoom {
    /// The room, its lease won again, everybody still linked as they are.
    pub(super) fn resume(self, lease: Lease, names: Arc<RoomNames>) -> OwnedRoom {
        OwnedRoom { lease, names, projection: self.projection, cell: self.cell, links: self.links }
    }

    /// Whether nobody else had the room in between, so that memory is as new as anything.
    pub fn is_newest(&self, pinned: &Pinned) -> bool {
        matches!(pinned, Pinned::Owned { previous, .. } if *previous <= self.token)
    }
}

fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
}

/// A room that this instance does not own: it can be changed through Redis, nothing else.
#[derive(Debug, Clone)]
pub struct RemoteRoom {
    names: Arc<RoomNames>,
}

impl RemoteRoom {
    /// The room of these names.
    pub const fn new(names: Arc<RoomNames>) -> Self {
        Self { names }
    }

    /// Sends a settings change; its owner is told by the script.
    pub async fn update_settings(
        &self,
        store: &Store,
        change: &SettingsChange,
    ) -> Result<Updated, ScriptError> {
        update_settings(store, &self.names, change).await
    }

    /// Sends a guest change; its owner is told by the script.
    pub async fn update_guest(&self, store: &Store, change: &GuestChange) -> Result<Updated, ScriptError> {
        update_guest(store, &self.names, change).await
    }
}

fn by(user: Option<&str>) -> String {
    user.map_or_else(|| "null".to_owned(), super::names::json_string)
}

async fn update_settings(
    store: &Store,
    names: &RoomNames,
    change: &SettingsChange,
) -> Result<Updated, ScriptError> {
    let fields = serde_json::to_string(change.patch.fields()).unwrap_or_default();
    let message = format!(r#""settings":{fields},"by":{}"#, by(change.by.as_deref()));
    let with = SettingsUpdate {
        me: &store.me,
        room: &names.key,
        keys: &names.keys,
        if_version: change.if_version,
        max_bytes: change.max_bytes,
        by: change.by.as_deref(),
        patch: &change.patch.by_setting(),
        route_json: &names.route_json,
        message: &message,
        lane_limit: store.lane_limit,
    };
    made(store, store.timed("settings_update", store.scripts.settings_update(&store.keys, with)).await?).await
}

async fn update_guest(
    store: &Store,
    names: &RoomNames,
    change: &GuestChange,
) -> Result<Updated, ScriptError> {
    let patch = serde_json::to_string(change.patch.fields()).unwrap_or_default();
    let message = format!(
        r#""guests":{{{}:{patch}}},"by":{}"#,
        super::names::json_string(&change.user),
        by(change.by.as_deref())
    );
    let with = GuestUpdate {
        me: &store.me,
        room: &names.key,
        keys: &names.keys,
        if_version: change.if_version,
        max_bytes: change.max_bytes,
        max_guests: change.max_guests,
        user: &change.user,
        by: change.by.as_deref(),
        present: change.must_be_present,
        patch: &patch,
        route_json: &names.route_json,
        message: &message,
        lane_limit: store.lane_limit,
    };
    made(store, store.timed("guest_update", store.scripts.guest_update(&store.keys, with)).await?).await
}

/// What was made is said to be when it may be.
async fn made(store: &Store, updated: Updated) -> Result<Updated, ScriptError> {
    if matches!(updated, Updated::Ok { .. }) {
        store.replicated().await?;
    }
    Ok(updated)
}

/// The lease that a `pin` sent at `sent` won; `None` if it did not win.
pub(super) fn lease_of(pinned: &Pinned, sent: Moment, store: &Store) -> Option<Lease> {
    match pinned {
        Pinned::Owned { token, .. } => Some(Lease::won(*token, sent, store.self_fence)),
        _ => None,
    }
}
