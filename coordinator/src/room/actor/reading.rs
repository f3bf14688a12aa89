//! Memory against Redis: reading again what may have been missed, restoring what Redis lost.

use redis_scripts::{Read, Standing};
use room_cell::{Actor as By, Command, GoneReason, Joining};

use super::commands::due_of;
use super::tenure::MOVE_SPREAD;
use super::{Actor, GAP_PATIENCE, State};
use crate::error::ApiError;
use crate::node::Fatal;
use crate::room::batch::{Source, Step};
use crate::room::delta::Delta;
use crate::room::links::Link;
use crate::room::owned::CommitError;
use crate::room::projection::Projection;
use crate::room::snapshot::cell_of;

impl Actor {
    /// Reads the room and brings memory to it.
    pub(super) async fn read_again(&mut self, why: &'static str) {
        if !self.serves() {
            return;
        }
        let store = &self.node.store;
        let read = store.timed("read", store.scripts.read_room(&store.keys, &self.names.key)).await;
        if !self.serves() {
            return;
        }
        match read {
            Ok(Read::Ok(standing)) => {
                tracing::debug!(why, sv = standing.state.sv.as_u64(), "read again");
                self.node.metrics.router_sync.with_label_values(&["repaired"]).inc();
                self.reconcile(standing, true).await;
            }
            Ok(Read::Missing) => self.restore(None).await,
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "the room cannot be read"),
        }
    }

    /// Brings memory to what a script read, or Redis to memory where Redis lost something that nobody
    /// else can have changed since (`is_newest`).
    pub(super) async fn reconcile(&mut self, standing: Standing, is_newest: bool) {
        let State::Owned(room) = &mut self.state else { return };
        if standing.owner != self.node.store.me.as_str() || standing.token != room.lease().token() {
            self.suspend("taken");
            return;
        }
        let state = &standing.state;
        // The commit that went unanswered was made: what it did is told now, and not taken for a surprise.
        let made = self
            .unanswered
            .take_if(|batch| state.batch == batch.id && state.cv.as_u64() == batch.cell.version);
        if let Some(batch) = made {
            if self.node.store.replicated().await.is_err() {
                self.went_unanswered(batch);
                return;
            }
            let State::Owned(room) = &mut self.state else { return };
            self.settle_due = None;
            room.adopt_cell(batch.cell.clone());
            self.committed(batch).await;
        }
        let State::Owned(room) = &mut self.state else { return };
        let fell_back = state.sv < room.projection().sv || state.cv.as_u64() < room.cell().version;
        if is_newest && (fell_back || !standing.whole) {
            self.restore(Some(&standing)).await;
            return;
        }
        let (newer, cell) = match (Projection::hydrate(state), cell_of(state)) {
            (Ok(newer), Ok(cell)) => (newer, cell),
            (Err(error), _) => return unreadable(&error),
            (_, Err(error)) => return unreadable(&error),
        };
        self.early.retain(|from, _| *from >= newer.sv.as_u64());
        if newer.sv != room.projection().sv {
            let change = room.adopt(newer);
            self.tell_change(&change).await;
        }
        self.follow_early().await;
        self.meet_cell(&cell);
        if let State::Owned(room) = &self.state
            && !standing.proved
            && self.unproved.is_none()
            && self.unanswered.is_none()
        {
            // What was acknowledged last may be lost without a trace: no version may be given again. But first comes what
            // the ledger knows, for which the whole that is written is all there is, and the commit that is to be sent again.
            let before = room.projection().clone();
            self.restore_from(before, Some(&standing)).await;
        }
    }

    /// Takes over a cell that was changed by somebody else, or before this instance had the room.
    pub(super) fn meet_cell(&mut self, cell: &room_cell::Cell) {
        let until = crate::clock::instant() + self.app.grace;
        let State::Owned(room) = &mut self.state else { return };
        if cell.version == room.cell().version && *cell == *room.cell() {
            return;
        }
        let to = cell.version;
        let old = room.adopt_cell(cell.clone());
        let lost = room.links_mut().meet(cell, until, GoneReason::StaleLeft);
        self.away_due = Some(self.away_due.map_or(until, |due| due.min(until)));
        self.tell_delta(&Delta::between(&old, cell), to);
        for (peer, linked) in lost {
            let Link::Connected(client) = linked.link else { continue };
            // Whoever is connected comes back as who it was, if the cell as it is now lets it.
            let Some(record) = old.peer(peer.as_str()) else { continue };
            let joining = Joining {
                peer,
                role: record.role,
                name: record.name.clone(),
                avatar: record.avatar.clone(),
                attributes: record.attributes.clone(),
                device: record.device.clone(),
                media: record.media.clone(),
                resume: record.resume.clone(),
                resumes: None,
                away: Vec::new(),
            };
            let by = By::User { user: record.user.clone(), max_role: record.max_role, peer: None };
            match Command::Join(Box::new(joining)).validate(by, &self.limits()) {
                Ok(order) => self.returning.push(Step::new(order, Source::Return(client))),
                Err(_) => _ = self.tell_one_to_move(&client, "lease_lost", "", MOVE_SPREAD),
            }
        }
    }

    /// Redis lost keys of the room: look what is left, and write it anew.
    pub(super) async fn damaged(&mut self) {
        self.read_again("damaged").await;
    }

    /// Writes all of the room to Redis anew, from memory, whatever is there; members know `before` of the settings.
    /// Whether it is done.
    pub(super) async fn restore_all(&mut self, before: Projection) -> bool {
        let store = &self.node.store;
        match store.timed("read", store.scripts.read_room(&store.keys, &self.names.key)).await {
            Ok(Read::Ok(standing)) => self.restore_from(before, Some(&standing)).await,
            Ok(Read::Missing) => self.restore_from(before, None).await,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the room cannot be read");
                if let State::Owned(room) = &mut self.state {
                    room.adopt(before);
                }
                false
            }
        }
    }

    async fn restore(&mut self, found: Option<&Standing>) {
        let State::Owned(room) = &mut self.state else { return };
        let before = room.projection().clone();
        if let Some(standing) = found
            && standing.state.sv >= before.sv
            && let Ok(left) = Projection::hydrate(&standing.state)
        {
            // What Redis still has is as new as memory or newer; what it lost, memory has.
            let mut merged = before.clone();
            if !standing.state.settings.is_empty() {
                merged.settings = left.settings;
            }
            merged.guests.extend(left.guests);
            merged.sv = left.sv;
            room.adopt(merged);
        }
        self.restore_from(before, found).await;
    }

    /// Writes memory to Redis; members know `before` of the settings. Whether it is done.
    async fn restore_from(&mut self, before: Projection, found: Option<&Standing>) -> bool {
        if !self.serves() {
            return false;
        }
        // It stands on a cell that Redis no longer has; nobody was told that it was done.
        self.unanswered = None;
        self.settle_due = None;
        let now = self.redis_now();
        let State::Owned(room) = &mut self.state else { return false };
        let due = due_of(room.cell(), now.0, &self.app);
        match room.restore(&self.node.store, found, due).await {
            Ok(true) => {
                let after = room.projection().clone();
                let to = room.cell().version;
                self.node.metrics.restored.inc();
                let (from, to_sv) = (before.sv.as_u64(), after.sv.as_u64());
                if found.is_some_and(|found| found.whole && !found.proved) {
                    tracing::info!(
                        from,
                        to = to_sv,
                        "Redis was started again, or another took its place: the room is written anew"
                    );
                } else {
                    tracing::error!(
                        from,
                        to = to_sv,
                        "Redis had lost part of this room; it is restored from memory"
                    );
                }
                self.early.clear();
                self.tell_change(&before.change_to(&after)).await;
                self.tell_leap(to);
                true
            }
            Ok(false) => {
                // Members have not been told of what was taken over above.
                room.adopt(before);
                self.gap_due = Some(crate::clock::instant() + GAP_PATIENCE);
                false
            }
            Err(error) => {
                room.adopt(before);
                self.failed(error).await;
                false
            }
        }
    }

    /// What a failed commit means for the room, and for whoever asked for it.
    pub(super) async fn failed(&mut self, error: CommitError) -> ApiError {
        match error {
            CommitError::Lost => {
                self.suspend("taken");
                ApiError::lease_lost()
            }
            CommitError::Superseded => {
                self.node.fail(&Fatal::Superseded);
                ApiError::lease_lost()
            }
            CommitError::Damaged | CommitError::Ahead | CommitError::Again(_) => ApiError::lease_lost(),
            CommitError::Full => ApiError::ledger_full(),
            CommitError::Unknown(error) => error.into(),
            CommitError::Failed(error) => {
                self.settle_due = Some(crate::clock::instant() + self.node.config.lease.retry_pause());
                error.into()
            }
        }
    }
}

fn unreadable(error: &(dyn std::error::Error + 'static)) {
    tracing::error!(error, "the room cannot be read");
}
