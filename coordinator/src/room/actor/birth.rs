//! What a room is made of, and the pin that makes it.

use redis_scripts::{Birth, CellVersion, FenceToken, Pin, Pinned, RedisMillis, RoomState, SettingsVersion};
use room_cell::{Actor as By, Cell, Command, Event, Limits, Role, decide};

use super::Actor;
use super::commands::due_of;
use super::recovery::Known;
use crate::classroom::settings;
use crate::error::ApiError;
use crate::room::batch::{Batch, Outcome, Prepared, Source, Step, cell_changes};
use crate::room::gateway::Opening;
use crate::room::names::json_string;
use crate::room::work::Work;

/// A room to be made, if it is not there.
pub(super) struct Newborn {
    settings: Vec<(&'static str, String)>,
    sv: u64,
    pub(super) batch: Batch,
    /// Half made: what it is made of follows.
    is_shell: bool,
}

impl Newborn {
    /// What stands for a room that only the ledger has, until that is written.
    pub(super) fn shell(cv: u64, sv: u64) -> Self {
        let cell = Cell { version: cv, ..Cell::default() };
        let batch =
            Batch { id: String::new(), from: cell.version, before: cell.clone(), cell, steps: Vec::new() };
        Self { settings: Vec::new(), sv: sv.max(1), batch, is_shell: true }
    }

    /// The joiner who would have made the room.
    pub(super) fn into_joiner(self) -> Option<Work> {
        self.batch.steps.into_iter().find_map(|step| match step.source {
            Source::Join(request, Some(reply)) => Some(Work::Join(request, reply)),
            _ => None,
        })
    }

    /// Its settings, as scripts log them.
    fn entry(&self) -> String {
        let fields: Vec<String> =
            self.settings.iter().map(|(name, json)| format!("{}:{json}", json_string(name))).collect();
        format!(r#"{{"settings":{{{}}},"by":null}}"#, fields.join(","))
    }
}

impl Actor {
    /// What takes the place of a cell that Redis lost while nobody had the room: an empty one, with the record's
    /// status and version.
    pub(super) fn remade(&self, state: &RoomState, whole: bool) -> Option<Cell> {
        if whole {
            return None;
        }
        let seats = u16::try_from(self.app.seats).unwrap_or(u16::MAX);
        let create = Command::Create { seats, capacity: self.app.capacity, auto_close: false };
        let order = create.validate(By::Backend, &Limits::default()).ok()?;
        let mut cell = Cell::default();
        cell.advance(&decide(&cell, &order, &self.app.rules(), self.redis_now()).ok()?);
        if state.status == "closed" {
            cell.advance(&[Event::Closed { reason: None }]);
        }
        cell.version = state.cv.as_u64();
        Some(cell)
    }

    /// What the room would be made of. A joiner becomes part of it; other work comes back.
    pub(super) fn newborn(&self, first: Work, known: &Known) -> (Option<Work>, Option<Newborn>) {
        if !known.allows_birth() {
            return (Some(first), None);
        }
        let (legacy, sv) = known.inherited();
        let limits = Limits::default();
        let create = |actor: By, opening: &Opening| {
            let capacity = opening.capacity.or(self.app.capacity).filter(|capacity| *capacity > 0);
            let seats = opening.seats.unwrap_or_else(|| u16::try_from(self.app.seats).unwrap_or(u16::MAX));
            let auto_close = opening.auto_close.unwrap_or(false);
            Command::Create { seats, capacity, auto_close }
                .validate(actor, &limits)
                .ok()
                .map(|order| Step::new(order, Source::Own))
        };
        let (first, settings, steps) = match first {
            Work::Join(request, reply) if self.app.auto_create => {
                let Ok(order) = self.joining(&request) else {
                    return (Some(Work::Join(request, reply)), None);
                };
                let maker = match request.role {
                    Role::Host => {
                        By::User { user: request.user.clone().into(), max_role: request.max_role, peer: None }
                    }
                    // Who happens to come first does not own the room.
                    Role::Guest => By::Backend,
                };
                let Some(made) = create(maker, &Opening::default()) else {
                    return (Some(Work::Join(request, reply)), None);
                };
                let joined = Step::new(order, Source::Join(request, Some(reply)));
                let steps = [Some(made), self.opened_at_once(), Some(joined)];
                (None, settings::defaults().to_vec(), steps.into_iter().flatten().collect())
            }
            Work::Open(opening, reply) => {
                let settings = match &opening.settings {
                    Some(patch) => patch.over_defaults(),
                    None => settings::defaults().to_vec(),
                };
                let Some(made) = create(By::Backend, &opening) else {
                    return (Some(Work::Open(opening, reply)), None);
                };
                let steps = [Some(made), self.opened_at_once()];
                (Some(Work::Open(opening, reply)), settings, steps.into_iter().flatten().collect())
            }
            other => return (Some(other), None),
        };
        let id = uuid::Uuid::now_v7().simple().to_string();
        let batch = Batch::stage(id, &legacy, steps, &self.app.rules(), self.redis_now());
        if batch.steps.iter().all(|step| matches!(step.outcome(), Some(Outcome::Done(..)))) {
            return (first, Some(Newborn { settings, sv, batch, is_shell: false }));
        }
        // A room that nobody could be in is not made.
        (first.or_else(|| Newborn { settings, sv, batch, is_shell: false }.into_joiner()), None)
    }

    /// A room does not wait for its router: people may come while that is being made.
    pub(super) fn opened_at_once(&self) -> Option<Step> {
        self.external.as_ref()?;
        let order = Command::Created.validate(By::Owner, &Limits::default()).ok()?;
        Some(Step::new(order, Source::Own))
    }

    pub(super) async fn pin(
        &self,
        newborn: Option<&Newborn>,
        floor: FenceToken,
        renew: bool,
        open_only: bool,
        somebody_waits: bool,
    ) -> Result<Pinned, ApiError> {
        let store = &self.node.store;
        // Whoever asks waits for one command; a room that is ours anyway may be pinned late.
        let waits = self.node.config.redis.command_timeout.as_millis();
        let deadline = self.node.redis_clock.now_ms() + u64::try_from(waits).unwrap_or(u64::MAX / 2);
        let nothing = Cell::default();
        let changes = newborn
            .filter(|newborn| !newborn.is_shell)
            .map(|newborn| room_cell::changes(&nothing, &newborn.batch.cell))
            .unwrap_or_default();
        let mut changes = cell_changes(&changes);
        if newborn.is_some_and(|newborn| newborn.is_shell) {
            changes.status = Some("rebuilding");
        }
        let entry = newborn.filter(|newborn| !newborn.is_shell).map(Newborn::entry).unwrap_or_default();
        let prepared = newborn.map(|newborn| newborn.batch.prepare()).unwrap_or_default();
        let commands: Vec<_> = prepared.iter().map(Prepared::committing).collect();
        let now = self.redis_now();
        let birth = newborn.map(|newborn| Birth {
            settings: &newborn.settings,
            entry: &entry,
            sv: SettingsVersion::new(newborn.sv),
            cv: CellVersion::new(newborn.batch.from),
            lane_limit: if newborn.is_shell { u64::MAX } else { store.lane_limit },
            changes: &changes,
            commands: &commands,
            due: due_of(&newborn.batch.cell, now.0, &self.app),
        });
        let with = Pin {
            me: &store.me,
            room: &self.names.key,
            owner_ttl: store.owner_ttl,
            floor,
            renew,
            birth,
            open_only,
            deadline: somebody_waits.then(|| RedisMillis::new(deadline)),
        };
        let pinned = store.timed("pin", store.scripts.pin(&store.keys, with)).await?;
        // A shell acknowledges nothing.
        let is_born = newborn.is_some_and(|newborn| !newborn.is_shell);
        if is_born && matches!(pinned, Pinned::Owned { made: true, .. }) {
            store.replicated().await?;
        }
        Ok(pinned)
    }
}
