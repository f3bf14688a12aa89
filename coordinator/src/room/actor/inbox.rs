//! What others put into the room's inbox, and what falls due by itself.

use redis_scripts::InboxEntry;
use room_cell::{Actor as By, Command, Timer};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

use super::commands::STRIKES;
use super::{Actor, BATCH, State};
use crate::error::ApiError;
use crate::room::batch::{Source, Step};

/// Reads of the inbox in one go.
const ROUNDS: usize = 8;

/// A command as it waits in an inbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Payload {
    pub actor: By,
    pub command: Command,
    /// Whom a media server's report is about, in the vendor's names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant: Option<String>,
}

impl Actor {
    /// Executes what waits in the inbox, in order, until it is empty.
    pub(super) async fn empty_inbox(&mut self) {
        let mut last = None;
        for _ in 0..ROUNDS {
            // An unanswered commit may be of entries that stand there still.
            if self.settle().await.is_err() {
                self.try_inbox_again();
                return;
            }
            // After a commit that failed they go one by one: only the guilty one is set aside.
            let limit = if self.strikes > 0 { 1 } else { BATCH };
            let store = &self.node.store;
            let read =
                store.timed("inbox_read", store.scripts.inbox_read(&self.names.keys, None, limit)).await;
            let entries = match read {
                Ok(entries) => entries,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the inbox cannot be read");
                    self.try_inbox_again();
                    return;
                }
            };
            let Some(first) = entries.first().map(|entry| entry.entry.clone()) else { return };
            // What was read before and is still there could not be committed: later.
            if last.as_ref() == Some(&first) || !self.serves() {
                self.try_inbox_again();
                return;
            }
            last = Some(first);
            let is_struck = self.strikes >= STRIKES;
            if is_struck {
                self.strikes = 0;
            }
            let steps = entries
                .into_iter()
                .enumerate()
                .map(|(at, entry)| self.step_of_entry(entry, is_struck && at == 0))
                .collect();
            self.execute(steps).await;
        }
        // Others have their turn before the rest.
        self.inbox_due = Some(crate::clock::instant());
    }

    fn try_inbox_again(&mut self) {
        self.inbox_due = Some(crate::clock::instant() + self.node.config.lease.retry_pause());
    }

    fn step_of_entry(&mut self, entry: InboxEntry, is_struck: bool) -> Step {
        let order = serde_json::from_str::<Payload>(&entry.payload)
            .map_err(|error| error.to_string())
            .and_then(|payload| {
                let Payload { actor, mut command, participant } = payload;
                if let Command::Media(report) = &mut command {
                    self.place_report(report, participant.as_deref());
                }
                command.validate(actor, &self.limits()).map_err(|invalid| invalid.to_string())
            });
        match order {
            Ok(order) if !is_struck => self.recall(Step::new(order, Source::Inbox(Box::new(entry)))),
            order => {
                let why = order.err().unwrap_or_else(|| "it cannot be committed".to_owned());
                tracing::error!(entry = entry.entry, why, "an inbox entry is set aside");
                self.node.metrics.inbox_aside.inc();
                Step::poison(entry, ApiError::bad_request(why))
            }
        }
    }

    /// Acts on deadlines of the cell that have passed.
    pub(super) async fn timers(&mut self) {
        let now = self.redis_now();
        let State::Owned(room) = &self.state else { return };
        if room.cell().next_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        let mut due = room.cell().due(now);
        let is_seat = |timer: &Timer| matches!(timer, Timer::Publish { .. });
        let mut audible = HashSet::new();
        if due.iter().any(is_seat) {
            // The media server is asked before a seat is taken away.
            match self.heard_at_deadline(now).await {
                Some(peers) => audible = peers,
                None => due.retain(|timer| !is_seat(timer)),
            }
        }
        if due.is_empty() {
            return;
        }
        let State::Owned(room) = &self.state else { return };
        let is_heard = |session: &room_cell::MicSession| {
            room.cell()
                .seats
                .values()
                .filter_map(|seat| seat.sitter.as_ref())
                .any(|sitter| sitter.session == *session && audible.contains(sitter.peer.as_str()))
        };
        let timers: Vec<Command> = due
            .into_iter()
            .map(|timer| match timer {
                Timer::Publish { session, .. } => {
                    let flowing = is_heard(&session);
                    Command::Due(Timer::Publish { session, flowing })
                }
                timer => Command::Due(timer),
            })
            .collect();
        self.execute_own(timers).await;
        let State::Owned(room) = &self.state else { return };
        if room.cell().next_deadline().is_some_and(|deadline| deadline <= now) {
            // Whatever kept it from acting will do so again at once.
            let again = crate::clock::instant() + self.node.config.lease.retry_pause();
            self.settle_due = Some(self.settle_due.map_or(again, |due| due.max(again)));
        }
    }

    /// Nobody has been here for the idle time: close, or unload, unless somebody is coming.
    pub(super) async fn idle(&mut self) {
        let State::Owned(room) = &self.state else { return };
        if !room.cell().users.is_empty() {
            return;
        }
        if room.cell().closes_when_idle() {
            self.execute_own([Command::Due(Timer::Idle)]).await;
        }
        if self.leave_router().await {
            self.idle_due = Some(crate::clock::instant() + self.node.config.lease.retry_pause());
            return;
        }
        match &self.state {
            State::Owned(room) if self.unanswered.is_some() || room.cell().closes_when_idle() => {
                self.idle_due = Some(crate::clock::instant() + self.node.config.lease.retry_pause());
            }
            _ => self.unload().await,
        }
    }

    /// A room that is open again before it was given up needs what it had when it was taken.
    pub(super) async fn enter_reopened(&mut self) {
        let State::Owned(room) = &self.state else { return };
        self.idle_due = None;
        self.open_media(room.lease().token()).await;
    }

    /// A room that closed has nothing more to do here.
    pub(super) async fn leave_closed(&mut self) {
        let State::Owned(room) = &self.state else { return };
        if matches!(room.cell().status, room_cell::Status::Closed) {
            self.close_media(room.lease().token()).await;
            self.idle_due = Some(crate::clock::instant());
        }
    }
}
