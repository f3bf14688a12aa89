//! The room as its owner has it: the only type that mutates memory, and only to what Redis acknowledged.

use redis_scripts::{
    Changed, FenceToken, GuestUpdate, Join, Leave, Pinned, RecordedPeer, Release, Released, Restore,
    Restored, ScriptError, SettingsUpdate, SettingsVersion, Standing, Updated,
};
use serde_json::Value;
use std::sync::Arc;

use super::lease::Lease;
use super::members::{Link, Member, Members, Replacement};
use super::names::RoomNames;
use super::peer::{Departure, LeaveReason, PeerRecord};
use super::projection::{Projection, StateChange};
use super::work::{GuestChange, SettingsChange};
use crate::clock::Moment;
use crate::node::Store;
use crate::socket::Client;

/// A room whose lease this incarnation holds. Made only from a won `pin`; losing the lease consumes it.
#[derive(Debug)]
pub struct OwnedRoom {
    lease: Lease,
    names: Arc<RoomNames>,
    projection: Projection,
    members: Members,
}

/// Why a commit was not made, or may not have been.
#[derive(Debug)]
pub enum CommitError {
    /// The lease is another's: stop serving the room.
    Lost,
    /// A newer incarnation of this instance lives: end the process.
    Superseded,
    /// Redis lost part of the room: restore it, then repeat.
    Damaged,
    /// Redis did not answer: the commit may have been made. Read the room before the next one.
    Unknown(ScriptError),
    /// A fault of ours, or a key of a wrong type.
    Failed(ScriptError),
}

impl From<ScriptError> for CommitError {
    fn from(error: ScriptError) -> Self {
        if error.is_unavailable() { Self::Unknown(error) } else { Self::Failed(error) }
    }
}

/// Who joins, ready to be committed.
#[derive(Debug, Clone)]
pub struct Joiner {
    /// The peer's record.
    pub record: PeerRecord,
    /// Its connection.
    pub client: Client,
    /// What it replaces.
    pub replacement: Replacement,
}

impl OwnedRoom {
    /// The room whose lease was just won, with everybody in it away until `link` says.
    pub(super) fn new(lease: Lease, names: Arc<RoomNames>, projection: Projection) -> Self {
        Self { lease, names, projection, members: Members::default() }
    }

    /// Its lease.
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Its state.
    pub const fn projection(&self) -> &Projection {
        &self.projection
    }

    /// Who is in it.
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// Who is in it, to note links and what they have seen; what Redis knows of them stays as it is.
    pub(super) const fn links(&mut self) -> &mut Members {
        &mut self.members
    }

    /// Notes that the first joiner was seated by the `pin` itself.
    pub(super) fn seated(&mut self, joiner: Joiner) {
        let seen = self.projection.cv.as_u64();
        self.members.insert(Member { record: joiner.record, link: Link::Connected(joiner.client), seen });
    }

    /// Commits a join.
    pub async fn join(&mut self, store: &Store, joiner: Joiner, view_json: &str) -> Result<(), CommitError> {
        let json = serde_json::to_string(&joiner.record).unwrap_or_default();
        let replaced: Vec<&str> = joiner.replacement.peers.iter().map(|peer| &**peer).collect();
        let fanout = format!(r#""joined":[{view_json}],"left":[]"#);
        let with = Join {
            me: &store.me,
            keys: &self.names.keys,
            token: self.lease.token(),
            peer: RecordedPeer { peer: &joiner.record.peer, user: &joiner.record.user, json: &json },
            replaced: &replaced,
            route_json: &self.names.route_json,
            fanout: &fanout,
        };
        let answer = store.timed("join", store.scripts.join(&store.keys, with)).await?;
        self.committed(&answer)?;
        for peer in &joiner.replacement.peers {
            self.members.remove(peer);
        }
        self.seated(joiner);
        Ok(())
    }

    /// Commits that peers end, all for the same reason. Returns the users who are gone with them.
    pub async fn leave(
        &mut self,
        store: &Store,
        peers: &[Arc<str>],
        reason: LeaveReason,
    ) -> Result<Vec<Arc<str>>, CommitError> {
        let mut gone: Vec<Arc<str>> = Vec::new();
        for peer in peers {
            let Some(user) = self.members.get(peer).map(|member| &member.record.user) else { continue };
            let stays = self.members.of_user(user).any(|other| !peers.contains(&other.record.peer));
            if !stays && !gone.contains(user) {
                gone.push(Arc::clone(user));
            }
        }
        let left: Vec<Departure> =
            gone.iter().map(|user| Departure { user: Arc::clone(user), reason }).collect();
        let fanout = format!(r#""joined":[],"left":{}"#, serde_json::to_string(&left).unwrap_or_default());
        let with = Leave {
            me: &store.me,
            keys: &self.names.keys,
            token: self.lease.token(),
            peers: &peers.iter().map(|peer| &**peer).collect::<Vec<_>>(),
            users: &gone.iter().map(|user| &**user).collect::<Vec<_>>(),
            route_json: &self.names.route_json,
            fanout: &fanout,
        };
        let answer = store.timed("leave", store.scripts.leave(&store.keys, with)).await?;
        self.committed(&answer)?;
        for peer in peers {
            self.members.remove(peer);
        }
        Ok(gone)
    }

    fn committed(&mut self, answer: &Changed) -> Result<(), CommitError> {
        match answer {
            Changed::Ok { cv, .. } => {
                self.projection.cv = *cv;
                Ok(())
            }
            Changed::Lost { .. } => Err(CommitError::Lost),
            Changed::Missing | Changed::Closed { .. } => Err(CommitError::Damaged),
            Changed::Superseded { .. } => Err(CommitError::Superseded),
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
        let cv = self.projection.cv;
        self.projection = Projection { cv, ..newer };
        change
    }

    /// Takes over the cell's version as Redis has it.
    pub(super) const fn stand_at(&mut self, cv: redis_scripts::CellVersion) {
        self.projection.cv = cv;
    }

    /// Writes the room anew after Redis lost part of it: what is left there, and memory for the rest.
    /// Versions leap. Returns `false` if the room was written in between: read it again.
    pub async fn restore(&mut self, store: &Store, found: Option<&Standing>) -> Result<bool, CommitError> {
        let seen = found.map(|standing| standing.state.sv).filter(|sv| *sv > SettingsVersion::default());
        let sv = seen.unwrap_or_default().max(self.projection.sv).leap();
        let cv = found.map(|standing| standing.state.cv).unwrap_or_default().max(self.projection.cv).leap();
        let text = |document: &serde_json::Map<String, Value>| -> Vec<(String, String)> {
            document.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
        };
        let (settings, guests) = (text(&self.projection.settings), text(&self.projection.guests));
        let peers: Vec<(Arc<str>, Arc<str>, String)> = self
            .members
            .iter()
            .map(|member| &member.record)
            .map(|it| {
                (Arc::clone(&it.peer), Arc::clone(&it.user), serde_json::to_string(it).unwrap_or_default())
            })
            .collect();
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
            peers: &peers
                .iter()
                .map(|(peer, user, json)| RecordedPeer { peer, user, json })
                .collect::<Vec<_>>(),
        };
        match store.timed("restore", store.scripts.restore(&store.keys, with)).await? {
            Restored::Ok { .. } => {
                self.projection.sv = sv;
                self.projection.cv = cv;
                Ok(true)
            }
            Restored::Changed => Ok(false),
            Restored::Lost { .. } => Err(CommitError::Lost),
            Restored::Superseded { .. } => Err(CommitError::Superseded),
        }
    }

    /// Gives the lease up. With `only_empty`, not while Redis has peers of it.
    pub async fn release(&self, store: &Store, only_empty: bool) -> Result<Released, ScriptError> {
        let with = Release {
            me: &store.me,
            room: &self.names.key,
            keys: &self.names.keys,
            token: self.lease.token(),
            life: store.room_life,
            only_empty,
        };
        store.timed("release", store.scripts.release(&store.keys, with)).await
    }

    /// The lease cannot be relied on any more: what is left is memory that may not be written from.
    pub(super) fn suspend(self) -> SuspendedRoom {
        SuspendedRoom { token: self.lease.token(), projection: self.projection, members: self.members }
    }
}

/// A room whose lease ran out here. It keeps who is connected, and what was last acknowledged, until a
/// new `pin` tells whether it is still ours.
#[derive(Debug)]
pub struct SuspendedRoom {
    /// The token that it was held with.
    pub token: FenceToken,
    /// What Redis had last acknowledged.
    pub projection: Projection,
    /// Who is connected, or away.
    pub members: Members,
}

impl SuspendedRoom {
    /// The room, its lease won again with `pinned`, everybody still linked as they are.
    pub(super) fn resume(self, lease: Lease, names: Arc<RoomNames>) -> OwnedRoom {
        OwnedRoom { lease, names, projection: self.projection, members: self.members }
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

async fn update_settings(
    store: &Store,
    names: &RoomNames,
    change: &SettingsChange,
) -> Result<Updated, ScriptError> {
    let fields = serde_json::to_string(change.patch.fields()).unwrap_or_default();
    let message = format!(r#""settings":{fields},"by":{}"#, super::names::json_string(&change.by));
    let with = SettingsUpdate {
        me: &store.me,
        keys: &names.keys,
        if_version: change.if_version,
        max_bytes: change.max_bytes,
        patch: &change.patch.by_setting(),
        route_json: &names.route_json,
        message: &message,
    };
    store.timed("settings_update", store.scripts.settings_update(&store.keys, with)).await
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
        super::names::json_string(&change.by)
    );
    let with = GuestUpdate {
        me: &store.me,
        keys: &names.keys,
        if_version: change.if_version,
        max_bytes: change.max_bytes,
        max_guests: change.max_guests,
        user: &change.user,
        present: change.must_be_present,
        patch: &patch,
        route_json: &names.route_json,
        message: &message,
    };
    store.timed("guest_update", store.scripts.guest_update(&store.keys, with)).await
}

/// The lease that a `pin` sent at `sent` won; `None` if it did not win.
pub(super) fn lease_of(pinned: &Pinned, sent: Moment, store: &Store) -> Option<Lease> {
    match pinned {
        Pinned::Owned { token, .. } => Some(Lease::won(*token, sent, store.self_fence)),
        _ => None,
    }
}
