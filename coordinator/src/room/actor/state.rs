//! Settings and guest states: changes from here, from elsewhere, out of order, and missed.

use futures_util::future::join_all;
use redis_scripts::{ScriptError, SettingsVersion, Updated};
use serde_json::{Map, Value};
use std::sync::Arc;

use super::{Actor, GAP_CHANGES, GAP_PATIENCE, State};
use crate::error::{ApiError, ErrorCode};
use crate::room::projection::StateChange;
use crate::room::work::{GuestChange, Refusal, Reply, SettingsChange};

impl Actor {
    /// Changes that came together: Redis has them all at once, in their order, and everybody is told once.
    pub(super) async fn change_settings(
        &mut self,
        asked: Vec<(Arc<SettingsChange>, Reply<SettingsVersion>)>,
    ) {
        let node = Arc::clone(&self.node);
        let sent = match self.serving() {
            Ok(room) => {
                join_all(asked.iter().map(|(change, _)| room.update_settings(&node.store, change))).await
            }
            Err(_) => Vec::new(),
        };
        let mut sent = sent.into_iter();
        let (mut made, mut answers) = (Vec::new(), Vec::new());
        for (change, reply) in asked {
            let answer = match sent.next() {
                Some(Ok(Updated::Ok { sv, owner })) => {
                    if owner != self.node.store.me.as_str() {
                        self.suspend("taken");
                    }
                    made.push(made_of(sv, &change));
                    Ok(sv)
                }
                Some(Ok(Updated::Missing { .. } | Updated::Damaged { .. })) | None => {
                    // What was made before it goes first.
                    self.learn_all(std::mem::take(&mut made)).await;
                    self.update_settings(&change).await
                }
                Some(updated) => updated
                    .map_err(ApiError::from)
                    .and_then(refusal_of)
                    .map(|(sv, _)| sv)
                    .map_err(Refusal::from),
            };
            answers.push((reply, answer));
        }
        self.learn_all(made).await;
        for (reply, answer) in answers {
            _ = reply.send(answer);
        }
    }

    /// One change, of a room that is restored first if that must be.
    async fn update_settings(&mut self, change: &SettingsChange) -> Result<SettingsVersion, Refusal> {
        let mut restored = false;
        loop {
            let node = Arc::clone(&self.node);
            let updated = self.serving()?.update_settings(&node.store, change).await;
            if let Some(sv) = self.updated(updated, &mut restored).await? {
                self.learn(made_of(sv, change)).await;
                return Ok(sv);
            }
        }
    }

    pub(super) async fn update_guest(&mut self, change: &GuestChange) -> Result<SettingsVersion, Refusal> {
        let mut restored = false;
        loop {
            let node = Arc::clone(&self.node);
            let updated = self.serving()?.update_guest(&node.store, change).await;
            if let Some(sv) = self.updated(updated, &mut restored).await? {
                let state = Value::Object(change.patch.fields().clone());
                let guests = Some(Map::from_iter([(change.user.to_string(), state)]));
                let (to, by) = (sv.as_u64(), change.by.as_deref().map(str::to_owned));
                self.learn(StateChange { from: to - 1, to, settings: None, guests, by }).await;
                return Ok(sv);
            }
        }
    }

    /// The version that was made; `None`: the room was restored, repeat.
    async fn updated(
        &mut self,
        updated: Result<Updated, ScriptError>,
        restored: &mut bool,
    ) -> Result<Option<SettingsVersion>, Refusal> {
        let lost = matches!(updated, Ok(Updated::Missing { .. } | Updated::Damaged { .. }));
        if lost && !*restored {
            *restored = true;
            self.damaged().await;
            return Ok(None);
        }
        match refusal_of(updated.map_err(ApiError::from)?) {
            Ok((sv, owner)) => {
                if owner != self.node.store.me.as_str() {
                    self.suspend("taken");
                }
                Ok(Some(sv))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Other instances changed the room.
    pub(super) async fn synced(&mut self, mut changes: Vec<StateChange>) {
        let sv = match &self.state {
            State::Owned(room) => room.projection().sv.as_u64(),
            _ => u64::MAX,
        };
        let all = changes.len();
        changes.retain(|change| change.to > sv);
        for (outcome, count) in [("applied", changes.len()), ("ignored", all - changes.len())] {
            self.node.metrics.router_sync.with_label_values(&[outcome]).inc_by(count as u64);
        }
        self.learn_all(changes).await;
    }

    /// Applies changes that came together; those that follow each other are told as one.
    async fn learn_all(&mut self, changes: Vec<StateChange>) {
        let mut changes = changes.into_iter().peekable();
        if changes.len() > 1
            && self.serves()
            && let State::Owned(room) = &mut self.state
        {
            let before = room.projection().clone();
            let mut by = None;
            while let Some(change) = changes.next_if(|it| it.from == room.projection().sv.as_u64()) {
                room.advance(&change);
                by = change.by;
            }
            let told = StateChange { by, ..before.change_to(room.projection()) };
            self.tell_change(&told).await;
            self.follow_early().await;
        }
        for change in changes {
            self.learn(change).await;
        }
    }

    /// Applies a change if it is the next; keeps it for a moment if it came early.
    async fn learn(&mut self, change: StateChange) {
        if !self.serves() {
            return;
        }
        let State::Owned(room) = &self.state else { return };
        let sv = room.projection().sv.as_u64();
        if change.to <= sv {
            return;
        }
        if change.from != sv {
            if self.early.len() >= GAP_CHANGES {
                self.read_again("gap").await;
                return;
            }
            self.early.insert(change.from, change);
            self.gap_due.get_or_insert_with(|| crate::clock::instant() + GAP_PATIENCE);
            return;
        }
        self.follow(&change).await;
        self.follow_early().await;
    }

    async fn follow(&mut self, change: &StateChange) {
        let State::Owned(room) = &mut self.state else { return };
        room.advance(change);
        self.tell_change(change).await;
    }

    /// Applies changes that waited, as far as they follow.
    pub(super) async fn follow_early(&mut self) {
        while let State::Owned(room) = &self.state {
            let sv = room.projection().sv.as_u64();
            self.early = self.early.split_off(&sv);
            let Some(change) = self.early.remove(&sv) else { break };
            self.follow(&change).await;
        }
        if self.early.is_empty() {
            self.gap_due = None;
        }
    }

    /// The heartbeat saw another version than memory has: something was missed, or lost.
    pub(super) async fn stands_at(&mut self, sv: u64, cv: u64) {
        let State::Owned(room) = &self.state else { return };
        let here = (room.projection().sv.as_u64(), room.cell().version);
        if here != (sv, cv) {
            self.read_again("heartbeat").await;
        }
    }
}

/// What made this version.
fn made_of(sv: SettingsVersion, change: &SettingsChange) -> StateChange {
    let (to, by) = (sv.as_u64(), change.by.as_deref().map(str::to_owned));
    StateChange { from: to - 1, to, settings: Some(change.patch.fields().clone()), guests: None, by }
}

/// The version that an update made and who owns the room, or why it was refused.
pub(crate) fn refusal_of(updated: Updated) -> Result<(SettingsVersion, String), ApiError> {
    Err(match updated {
        Updated::Ok { sv, owner } => return Ok((sv, owner)),
        Updated::Missing { owner } | Updated::Damaged { owner } if !owner.is_empty() => {
            ApiError::new(ErrorCode::StoreUnavailable, "the room is being restored")
        }
        Updated::Missing { .. } | Updated::Damaged { .. } => {
            ApiError::new(ErrorCode::RoomNotFound, "there is no such room")
        }
        Updated::Closed { status } => ApiError::new(ErrorCode::RoomClosed, format!("the room is {status}")),
        Updated::Conflict { sv } => {
            ApiError::new(ErrorCode::VersionConflict, format!("the settings version is {sv}"))
        }
        Updated::Full { .. } => ApiError::ledger_full(),
        Updated::TooLarge { field, bytes } => ApiError::new(
            ErrorCode::PayloadTooLarge,
            format!("`{field}` would have {bytes} bytes, which is too large"),
        ),
        Updated::TooMany { guests } => ApiError::new(
            ErrorCode::PayloadTooLarge,
            format!("{guests} users have a state in this room already"),
        ),
        Updated::Banned => ApiError::new(ErrorCode::Banned, "the user is banned from the room"),
        Updated::Demoted => ApiError::new(ErrorCode::Forbidden, "only a host may do this"),
        Updated::NotPresent => ApiError::new(ErrorCode::NotInRoom, "join the room first"),
    })
}
