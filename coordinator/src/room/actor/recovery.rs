//! A room against the ledger: what it knows of one that is loaded, and making one anew of that where Redis has less.

use ledger::{Answer, Entry, Head, Recovered, RoomState};
use redis_scripts::{FenceToken, Standing};
use room_cell::{Cell, Command, GoneReason};
use std::time::Duration;

use super::{Actor, State};
use crate::classroom::settings;
use crate::error::ApiError;
use crate::room::lease::Lease;
use crate::room::owned::OwnedRoom;
use crate::room::projection::Projection;

/// Entries of a lane that are looked through at once for those of the room.
const SCAN: usize = 5_000;
/// Answers that are put back at once.
const ANSWERS: usize = 500;
/// What was loaded while the ledger was silent is compared so much later, and again.
pub(super) const COMPARE_AGAIN: Duration = Duration::from_secs(2);

/// What the ledger knows of a room.
#[derive(Debug)]
pub(super) enum Known {
    /// Nothing: it may be made.
    Nothing,
    /// It was closed, so it counts as absent but for what a new one inherits.
    Closed(Box<Legacy>),
    /// It is there.
    Open(Head),
    /// The ledger does not answer.
    Unreachable,
}

/// What a room inherits of a closed one of the same name.
#[derive(Debug)]
pub(super) struct Legacy {
    head: Head,
    cell: Cell,
}

impl Known {
    /// Tokens of the room are larger than this.
    pub(super) fn floor(&self) -> FenceToken {
        self.head().map(|head| head.token).unwrap_or_default()
    }

    const fn head(&self) -> Option<&Head> {
        match self {
            Self::Nothing | Self::Unreachable => None,
            Self::Closed(legacy) => Some(&legacy.head),
            Self::Open(head) => Some(head),
        }
    }

    /// Whether a room may be made of nothing.
    pub(super) const fn allows_birth(&self) -> bool {
        matches!(self, Self::Nothing | Self::Closed(_))
    }

    /// What a new room begins with: the cell, and the settings version.
    pub(super) fn inherited(&self) -> (Cell, u64) {
        match self {
            Self::Closed(legacy) => (
                Cell {
                    version: legacy.head.cv.as_u64(),
                    bans: legacy.cell.bans.clone(),
                    router_generation: legacy.cell.router_generation,
                    ..Cell::default()
                },
                legacy.head.sv.as_u64() + 1,
            ),
            _ => (Cell::default(), 1),
        }
    }

    /// Whether Redis, which has this of the room, lacks what the ledger has.
    pub(super) fn is_ahead_of(&self, standing: &Standing) -> bool {
        self.head().is_some_and(|head| {
            let state = &standing.state;
            let is_behind = head.cv > state.cv || head.sv > state.sv || head.went_back;
            state.status == "rebuilding" || is_behind || !standing.whole
        })
    }
}

impl Actor {
    /// Asks the ledger what it knows of the room, for no longer than whoever joins waits.
    pub(super) async fn look_up(&self) -> Known {
        let books = &self.node.books;
        let Some(head) = books.head(&self.names.key).await else {
            return Known::Unreachable;
        };
        match head {
            None => Known::Nothing,
            Some(head) if head.status != "closed" => Known::Open(head),
            Some(_) => match books.ask(books.ledger.room(&self.names.key)).await {
                Some(Some(found)) => {
                    Known::Closed(Box::new(Legacy { head: found.head, cell: found.state.cell }))
                }
                Some(None) => Known::Nothing,
                None => Known::Unreachable,
            },
        }
    }

    /// The room as the ledger and what waits in its lane have it, written to Redis anew with versions leaping. Returns
    /// the room and when it was last changed.
    pub(super) async fn rebuild(
        &self,
        lease: Lease,
        standing: &Standing,
    ) -> Result<(OwnedRoom, u64), (OwnedRoom, ApiError)> {
        let unread =
            |lease| OwnedRoom::new(lease, self.names.clone(), Projection::default(), Cell::default());
        let Recovered { head, state, answers, .. } = match self.recall_all().await {
            Ok(found) => found,
            Err(error) => return Err((unread(lease), error)),
        };
        let RoomState { cell, mut settings, guests, created_at } = state;
        for name in settings::NAMES {
            settings.entry(name).or_insert_with(|| settings::default_of(name));
        }
        let sv = standing.state.sv;
        let projection = Projection { settings, guests, sv, created_at };
        let (cv, token) = (cell.version, lease.token().as_u64());
        let mut room = OwnedRoom::new(lease, self.names.clone(), projection, cell);
        let due = super::commands::due_of(room.cell(), self.redis_now().0, &self.app);
        match room.restore(&self.node.store, Some(standing), due).await {
            Ok(true) => {
                let cause = match &*standing.state.status {
                    "rebuilding" => "absent",
                    _ if !standing.whole => "damaged",
                    _ => "behind",
                };
                self.node.metrics.recovered.with_label_values(&[cause]).inc();
                tracing::warn!(
                    cause,
                    token,
                    redis_cv = standing.state.cv.as_u64(),
                    ledger_cv = cv,
                    cv = room.cell().version,
                    "the room is recovered from the ledger"
                );
                self.restore_answers(&answers).await;
                Ok((room, head.at.as_u64()))
            }
            Ok(false) => Err((room, ApiError::store_unavailable())),
            Err(error) => {
                tracing::warn!(?error, "the room cannot be written anew");
                Err((room, ApiError::store_unavailable()))
            }
        }
    }

    /// Commands that were answered are answered so again.
    async fn restore_answers(&self, answers: &[Answer]) {
        let store = &self.node.store;
        for some in answers.chunks(ANSWERS) {
            let some = some.iter().map(|answer| (&answer.kept, answer.at));
            if let Err(error) = store.scripts.answers_restore(&store.keys, &self.names.key, some).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "answers of the room are not all restored; a repeat may be executed anew"
                );
                return;
            }
        }
    }

    /// Everything that is known of the room. The lane is read before the ledger: what
    /// moves meanwhile is in both, and counts once.
    async fn recall_all(&self) -> Result<Recovered, ApiError> {
        let store = &self.node.store;
        let mut tail = Vec::new();
        let mut before: Option<String> = None;
        loop {
            let page = store.scripts.timeline(&store.keys, &self.names.key, before.as_deref(), SCAN, SCAN);
            let page = store.timed("timeline", page).await?;
            tail.extend(page.entries.into_iter().filter_map(|found| Entry::read(found).ok()));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        let books = &self.node.books;
        let Some(Some(mut found)) = books.ask(books.ledger.room(&self.names.key)).await else {
            return Err(ApiError::store_unavailable());
        };
        tail.reverse();
        found.take_in(tail);
        Ok(found)
    }

    /// The room was loaded while the ledger was silent, or while it was not known whether another had it: compares it
    /// now. Whether the ledger knew more.
    pub(super) async fn compare(&mut self) -> bool {
        self.compare_due = None;
        let State::Owned(room) = &self.state else { return false };
        let Some(loaded) = self.unproved else { return false };
        let (books, key, token) = (&self.node.books, &self.names.key, room.lease().token());
        let known = async {
            // What was committed here since may be in the ledger already: what was before counts.
            Ok((books.ledger.head(key).await?, books.ledger.before(key, token).await?))
        };
        let Some((head, (cv, sv))) = books.ask(known).await else {
            self.compare_due = Some(crate::clock::instant() + COMPARE_AGAIN);
            return false;
        };
        if let Some(head) = head.filter(|head| head.token > token) {
            self.outranked = Some(head.token);
            self.suspend("outranked");
            return true;
        }
        self.unproved = None;
        let is_ahead = cv.as_u64() > loaded.0 || sv.as_u64() > loaded.1;
        if is_ahead {
            self.adopt_recovered().await;
        }
        is_ahead
    }

    /// Takes over what the ledger has of a room that is served already, and tells everybody the difference.
    pub(super) async fn adopt_recovered(&mut self) {
        if !self.is_recovered().await {
            self.unproved.get_or_insert_default();
            self.compare_due = Some(crate::clock::instant() + COMPARE_AGAIN);
        }
    }

    async fn is_recovered(&mut self) -> bool {
        let Ok(Recovered { state, .. }) = self.recall_all().await else { return false };
        let State::Owned(room) = &mut self.state else { return true };
        let before = room.projection().clone();
        room.adopt(Projection { settings: state.settings, guests: state.guests, ..before.clone() });
        let cell = Cell { version: room.cell().version.max(state.cell.version), ..state.cell };
        tracing::warn!(cv = cell.version, "the room was loaded without the ledger, which has more of it");
        let known = room.cell().clone();
        self.meet_cell(&cell);
        if !self.restore_all(before).await {
            // Settings and cell are recovered together, or not yet.
            if let State::Owned(room) = &mut self.state {
                room.adopt_cell(known);
            }
            return false;
        }
        self.node.metrics.recovered.with_label_values(&["behind"]).inc();
        self.put_out_banned().await;
        true
    }

    /// Whoever came in while nobody here knew of their ban goes.
    async fn put_out_banned(&mut self) {
        let State::Owned(room) = &self.state else { return };
        let (cell, now) = (room.cell(), self.redis_now());
        let banned = |user| cell.bans.get(user).is_some_and(|ban: &room_cell::Ban| ban.holds(now));
        let present = cell.peers.iter().filter(|(_, user)| banned(*user));
        let peers: Vec<_> = present.map(|(peer, _)| peer.clone()).collect();
        if !peers.is_empty() {
            self.execute_own([Command::Gone { peers, reason: GoneReason::Kicked }]).await;
        }
    }
}
