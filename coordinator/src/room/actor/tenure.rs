//! Having the room: winning it, keeping it through an outage, giving it up.

use redis_scripts::{FenceToken, Pinned, Released, Standing};
use room_cell::{Actor as By, Cell, Command, GoneReason, Limits};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

use super::birth::Newborn;
use super::commands::due_of;
use super::recovery::{COMPARE_AGAIN, Known};
use super::{Actor, State};
use crate::clock::Moment;
use crate::error::{ApiError, ErrorCode, Redirect};
use crate::node::{Fatal, random_pause};
use crate::room::batch::{Source, Step};
use crate::room::gateway::{Opened, Opening};
use crate::room::owned::{OwnedRoom, lease_of};
use crate::room::presence::PresenceWindow;
use crate::room::projection::Projection;
use crate::room::snapshot::{UnreadableRoom, cell_of};
use crate::room::work::{Refusal, Work};

/// Pauses of clients who are told to move are spread over this.
pub(super) const MOVE_SPREAD: Duration = Duration::from_millis(500);
/// Nobody waits for longer until they are admitted again.
const ADMISSION_BOUND: Duration = Duration::from_secs(60);

impl Actor {
    /// The first thing that the room is wanted for: `pin` it. What is left to do comes back.
    pub(super) async fn begin(&mut self, first: Work) -> Option<Work> {
        if !matches!(
            first,
            Work::Join(..) | Work::Command(..) | Work::Inbox | Work::Open(..) | Work::Recover(_)
        ) {
            self.state = State::Ended;
            return None;
        }
        let wait = self.node.settling();
        if self.node.is_draining() || wait.is_some() {
            self.state = State::Ended;
            let error = match wait {
                // Whoever served the room before the outage has it again first, if people are still there.
                Some(pause) => ApiError::store_unavailable().after(pause + random_pause(pause)),
                None => ApiError::new(ErrorCode::Draining, "this instance takes no new rooms"),
            };
            answer_with(first, error);
            return None;
        }
        let known = self.look_up().await;
        let (mut first, newborn) = self.newborn(first, &known);
        let open_only = first.is_none() || matches!(first, Some(Work::Join(..)));
        let waits = first.as_ref().is_none_or(|work| !matches!(work, Work::Inbox));
        let sent = Moment::now();
        // One that only the ledger has is taken half made, and not served before all of it is there.
        let shell = match &known {
            Known::Open(head) => Some(Newborn::shell(head.cv.as_u64(), head.sv.as_u64())),
            _ => None,
        };
        let made_of = shell.as_ref().or(newborn.as_ref());
        let pinned = match self.pin(made_of, known.floor(), false, open_only, waits).await {
            Ok(pinned) => pinned,
            Err(error) => {
                self.state = State::Ended;
                if let Some(first) = first.or_else(|| newborn.and_then(Newborn::into_joiner)) {
                    answer_with(first, error);
                }
                return None;
            }
        };
        let lease = lease_of(&pinned, sent, &self.node.store);
        let (
            Some(lease),
            Pinned::Owned { previous, made, whole, proved, state, now, inbox, committed_at, .. },
        ) = (lease, &pinned)
        else {
            if let Some(first) = first.or_else(|| newborn.and_then(Newborn::into_joiner)) {
                match (&pinned, &known) {
                    // Redis has nothing, and whether the ledger has is not known: that is no empty room.
                    (Pinned::Absent, Known::Unreachable) => answer_with(first, ApiError::store_unavailable()),
                    _ => self.turn_away(first, &pinned),
                }
            }
            self.state = State::Refused(pinned);
            return None;
        };
        self.node.redis_clock.heard(now.as_u64(), Moment::now().since(sent));
        if previous.as_u64() > 0 {
            self.node.metrics.takeovers.inc();
        }
        let standing = Standing {
            whole: *whole,
            proved: *proved,
            now: *now,
            owner: self.node.store.me.as_str().to_owned(),
            token: lease.token(),
            url: String::new(),
            state: state.clone(),
        };
        let is_new = *made && shell.is_none();
        if !is_new && known.is_ahead_of(&standing) {
            let (inbox, now) = (*inbox, *now);
            return match self.rebuild(lease, &standing).await {
                Ok((room, at)) => {
                    self.take_over(room, now.as_u64().saturating_sub(at), inbox).await;
                    first.or_else(|| newborn.and_then(Newborn::into_joiner))
                }
                Err((unread, error)) => {
                    let waiting = first.or_else(|| newborn.and_then(Newborn::into_joiner));
                    self.give_back(unread, waiting, error).await
                }
            };
        }
        let unread =
            |lease| OwnedRoom::new(lease, self.names.clone(), Projection::default(), Cell::default());
        let is_in_part = !*whole || state.status == "rebuilding";
        if !is_new && is_in_part && matches!(known, Known::Unreachable) {
            // What is left of it is no more than what nobody knows.
            let (unread, waiting) = (unread(lease), first.or_else(|| newborn.and_then(Newborn::into_joiner)));
            return self.give_back(unread, waiting, ApiError::store_unavailable()).await;
        }
        let read = Projection::hydrate(state).map_err(UnreadableRoom::from).and_then(|projection| {
            let cell = match &newborn {
                Some(newborn) if is_new => newborn.batch.cell.clone(),
                _ => cell_of(state).or_else(|error| self.remade(state, *whole).ok_or(error))?,
            };
            Ok((projection, cell))
        });
        let (projection, cell) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the room cannot be read");
                let (unread, waiting) =
                    (unread(lease), first.or_else(|| newborn.and_then(Newborn::into_joiner)));
                let error = ApiError::new(ErrorCode::Internal, "the room cannot be read");
                return self.give_back(unread, waiting, error).await;
            }
        };
        let (made, whole, proved, inbox) = (*made, *whole, *proved, *inbox);
        let gap = now.as_u64().saturating_sub(committed_at.as_u64());
        let token = lease.token();
        let loaded = (projection.sv, cell.version);
        let room = OwnedRoom::new(lease, self.names.clone(), projection, cell);
        if !made {
            if matches!(known, Known::Unreachable) {
                self.unproved = Some((loaded.1, loaded.0.as_u64()));
                self.compare_due = Some(crate::clock::instant() + COMPARE_AGAIN);
            }
            if !whole {
                tracing::error!(
                    token = token.as_u64(),
                    "Redis lost part of this room; what is left of it goes on"
                );
            }
            self.take_over_with(room, gap, inbox, whole && proved).await;
            return first.or_else(|| newborn.and_then(Newborn::into_joiner));
        }
        self.outages_ms = self.node.outages_ms();
        self.hold(room);
        self.open_media(token).await;
        self.enter_external();
        self.forget_external().await;
        if let Some(newborn) = newborn {
            self.committed(newborn.batch).await;
        }
        if let Some(Work::Open(_, reply)) = first.take_if(|first| matches!(first, Work::Open(..))) {
            _ = reply.send(Ok(Opened::Made));
        }
        first
    }

    /// Nobody is helped by holding a room that cannot be served.
    async fn give_back(&mut self, unread: OwnedRoom, waiting: Option<Work>, error: ApiError) -> Option<Work> {
        _ = unread.release(&self.node.store, false, None).await;
        self.state = State::Ended;
        if let Some(waiting) = waiting {
            answer_with(waiting, error);
        }
        None
    }

    /// Serves a room that others were in: they have the grace period to come back, and what waited is done.
    async fn take_over(&mut self, room: OwnedRoom, gap: u64, inbox: usize) {
        self.take_over_with(room, gap, inbox, true).await;
    }

    async fn take_over_with(&mut self, mut room: OwnedRoom, gap: u64, inbox: usize, proved: bool) {
        let token = room.lease().token();
        let until = crate::clock::instant() + self.grace_again(room.cell());
        let cell = room.cell().clone();
        room.links_mut().meet(&cell, until, GoneReason::InstanceLost);
        self.away_due = (!cell.peers.is_empty()).then_some(until);
        self.outages_ms = self.node.outages_ms();
        self.hold(room);
        self.open_media(token).await;
        self.enter_external();
        if !proved {
            self.damaged().await;
        }
        self.forget_external().await;
        if inbox > 0 {
            self.empty_inbox().await;
        }
        self.shift(gap).await;
    }

    /// Makes the room what `opening` says if it is closed; an open one stays as it is.
    pub(super) async fn open(&mut self, opening: &Opening) -> Result<Opened, Refusal> {
        self.settle().await?;
        let room = self.serving()?;
        if !matches!(room.cell().status, room_cell::Status::Closed) {
            return Ok(Opened::Found);
        }
        let command = Command::Reopen {
            seats: opening.seats,
            capacity: opening.capacity,
            auto_close: opening.auto_close,
        };
        let order = command
            .validate(By::Backend, &Limits::default())
            .map_err(|invalid| ApiError::bad_request(invalid.to_string()))?;
        let (reply, answer) = tokio::sync::oneshot::channel();
        let reopened = Step::new(order, Source::Asked(None, Some(reply)));
        self.execute([Some(reopened), self.opened_at_once()].into_iter().flatten().collect()).await;
        answer.await.unwrap_or(Err(Refusal::Gone))?;
        Ok(Opened::Reopened)
    }

    /// Everybody has the whole grace period again, and the time until the last of them is admitted.
    fn grace_again(&self, cell: &Cell) -> Duration {
        let people = u64::try_from(cell.peers.len()).unwrap_or(u64::MAX);
        let per_second = u64::from(self.node.config.limits.joins_per_second.max(1));
        self.app.grace + Duration::from_secs(people / per_second).min(ADMISSION_BOUND)
    }

    /// Nobody could act for so long: deadlines move by it, and whoever is away is waited for anew.
    pub(super) async fn shift(&mut self, by_ms: u64) {
        let State::Owned(room) = &self.state else { return };
        if by_ms == 0 || room.cell().next_deadline().is_none() {
            self.owed_ms = 0;
            return;
        }
        // Late or not, it is right: without it what fell due would act at once.
        let Ok(order) = (Command::Shift { by_ms }).validate(By::Owner, &Limits::default()) else { return };
        // Owed until it is committed, however that comes about.
        self.owed_ms = by_ms;
        self.execute(vec![Step::new(order, Source::Own)]).await;
        if self.owed_ms > 0 {
            let again = crate::clock::instant() + self.node.config.lease.retry_pause();
            self.settle_due = Some(self.settle_due.map_or(again, |due| due.max(again)));
        }
    }

    /// Whether what falls due may act: not while Redis is silent, nor before deadlines were lengthened after that.
    pub(super) fn may_act(&self) -> bool {
        self.owed_ms == 0 && self.unheard_since.is_none() && self.is_in_touch()
    }

    /// Whether Redis answers, and every outage that the heartbeat saw is made up for.
    fn is_in_touch(&self) -> bool {
        *self.node.store_up.borrow() && self.node.outages_ms() == self.outages_ms
    }

    /// Whether Redis answers again after a silence that the heartbeat did not see.
    pub(super) fn may_make_up(&self) -> bool {
        let is_owed = self.owed_ms > 0 || self.unheard_since.is_some();
        is_owed && self.unanswered.is_none() && self.settle_due.is_none() && self.is_in_touch()
    }

    /// Lengthens what fell due in a silence of Redis that was too short for the heartbeat.
    pub(super) async fn make_up(&mut self) {
        if !self.may_make_up() {
            return;
        }
        let silence = self.silence_ms();
        self.lengthen(silence).await;
    }

    fn silence_ms(&mut self) -> u64 {
        let since = self.unheard_since.take();
        since.map_or(0, |since| Moment::now().parts().0.saturating_sub(since))
    }

    /// Redis answers again after an outage.
    pub(super) async fn after_outage(&mut self) {
        if !self.serves() {
            return;
        }
        let outages = self.node.outages_ms();
        let gap = outages.saturating_sub(std::mem::replace(&mut self.outages_ms, outages));
        let silence = self.silence_ms();
        self.lengthen(gap.max(silence)).await;
    }

    async fn lengthen(&mut self, gap: u64) {
        let State::Owned(room) = &mut self.state else { return };
        let cell = room.cell().clone();
        let until = crate::clock::instant() + self.grace_again(&cell);
        if let State::Owned(room) = &mut self.state {
            room.links_mut().wait_again(until);
        }
        if self.away_due.is_some() {
            self.away_due = Some(until);
        }
        self.shift(gap.saturating_add(self.owed_ms)).await;
    }

    fn hold(&mut self, room: OwnedRoom) {
        self.standing.stand_at(room.projection().sv.as_u64(), room.cell().version);
        self.standing.hold(Some((room.lease().token(), room.lease().term())));
        self.state = State::Owned(room);
    }

    /// Tells who waited that this instance does not have the room.
    pub(super) fn turn_away(&self, work: Work, pinned: &Pinned) {
        match (work, pinned) {
            (Work::Join(request, reply), _) => {
                _ = reply.send(Err(self.refusal(pinned, request.hops).into()));
            }
            (Work::Command(_, reply), Pinned::Absent | Pinned::Late | Pinned::Full { .. }) => {
                _ = reply.send(Err(self.refusal(pinned, 0).into()));
            }
            (Work::Open(_, reply), Pinned::Absent | Pinned::Late | Pinned::Full { .. }) => {
                _ = reply.send(Err(self.refusal(pinned, 0).into()));
            }
            // Dropping the reply says that the room is not here.
            _ => {}
        }
    }

    fn refusal(&self, pinned: &Pinned, hops: u32) -> ApiError {
        match pinned {
            Pinned::Other { owner, token, url } => {
                if hops >= 2 {
                    let pause = Duration::from_millis(300) + random_pause(Duration::from_millis(700));
                    return ApiError::new(ErrorCode::RateLimited, "the room is changing its owner")
                        .after(pause);
                }
                ApiError::wrong_instance(redirect(owner, url, *token))
            }
            Pinned::Absent => ApiError::new(ErrorCode::RoomNotFound, "there is no such room"),
            Pinned::Closed => ApiError::new(ErrorCode::RoomClosed, "the room is closed"),
            Pinned::Late => ApiError::store_unavailable(),
            Pinned::Full { .. } => ApiError::ledger_full(),
            Pinned::Superseded { .. } => {
                self.node.fail(&Fatal::Superseded);
                ApiError::lease_lost()
            }
            Pinned::Owned { .. } => ApiError::lease_lost(),
        }
    }

    /// Stops serving the room; who is connected stays known until a `pin` tells what becomes of it.
    pub(super) fn suspend(&mut self, how: &'static str) {
        let room = match std::mem::replace(&mut self.state, State::Ended) {
            State::Owned(room) => room,
            // It was before: what is left of it stays as it is.
            other => {
                self.state = other;
                return;
            }
        };
        self.node.metrics.lease_losses.with_label_values(&[how]).inc();
        tracing::warn!(how, token = room.lease().token().as_u64(), "the lease is lost");
        self.standing.hold(None);
        self.stop_external();
        self.state = State::Suspended(room.suspend());
        let up = *self.node.store_up.borrow();
        self.repin_due = up.then(crate::clock::instant);
    }

    /// The owner key is gone or names another: find out which.
    pub(super) async fn lease_gone(&mut self, how: &'static str) {
        self.suspend(how);
        if matches!(self.state, State::Suspended(_)) {
            self.repin_due = None;
            self.repin_in_turn().await;
        }
    }

    /// Tries to have a suspended room again: now, or when fewer others are at it. Meanwhile callers have their answers.
    pub(super) async fn repin_in_turn(&mut self) {
        if self.turn.is_some() {
            return;
        }
        let repins = Arc::clone(&self.node.repins);
        match Arc::clone(&repins).try_acquire_owned() {
            Ok(turn) => self.repin(turn).await,
            Err(_) => self.turn = Some(Box::pin(repins.acquire_owned())),
        }
    }

    pub(super) async fn repin(&mut self, turn: OwnedSemaphorePermit) {
        let State::Suspended(suspended) = &self.state else { return };
        let (token, has_people) = (suspended.token, !suspended.cell.peers.is_empty());
        let outranked = self.outranked.take();
        if !has_people && self.node.is_draining() {
            self.state = State::Ended;
            return;
        }
        let sent = Moment::now();
        // A room that Redis lost is made again, to be restored from memory.
        let newborn = Newborn::shell(suspended.cell.version, suspended.projection.sv.as_u64());
        let pinned =
            self.pin(Some(&newborn), outranked.unwrap_or(token), outranked.is_none(), false, false).await;
        drop(turn);
        let pinned = match pinned {
            Ok(pinned) => pinned,
            Err(_) => {
                self.outranked = outranked;
                let pause = self.node.config.lease.retry_pause();
                self.repin_due = Some(crate::clock::instant() + pause + random_pause(pause));
                return;
            }
        };
        let State::Suspended(suspended) = std::mem::replace(&mut self.state, State::Ended) else { return };
        let is_newest = suspended.is_newest(&pinned);
        match (lease_of(&pinned, sent, &self.node.store), pinned) {
            (Some(lease), Pinned::Owned { whole, proved, now, state, made, inbox, .. }) => {
                tracing::info!(token = lease.token().as_u64(), made, whole, "the room is ours again");
                // Its making may have gone unanswered.
                let made = made || state.status == "rebuilding";
                let standing = Standing {
                    whole: whole && !made,
                    proved,
                    now,
                    owner: self.node.store.me.as_str().to_owned(),
                    token: lease.token(),
                    url: String::new(),
                    state,
                };
                if !proved || made {
                    // Another may have had it in between, and only the ledger may know.
                    self.unproved.get_or_insert((suspended.cell.version, suspended.projection.sv.as_u64()));
                }
                let room = suspended.resume(lease, self.names.clone());
                self.hold(room);
                self.enter_external();
                if self.unproved.is_some() && self.compare().await {
                    tracing::debug!("the ledger knew more of the room");
                } else if made && !is_newest {
                    // Another had it in between, and Redis has lost what it did.
                    self.adopt_recovered().await;
                } else {
                    self.reconcile(standing, is_newest).await;
                }
                self.tell_tracks_again().await;
                self.after_outage().await;
                if inbox > 0 {
                    self.inbox_due = Some(crate::clock::instant());
                }
            }
            (_, Pinned::Superseded { .. }) => self.node.fail(&Fatal::Superseded),
            (_, pinned) => {
                self.node.metrics.lease_losses.with_label_values(&["taken"]).inc();
                let redirect = match pinned {
                    Pinned::Other { owner, token, url } => Some(redirect(&owner, &url, token)),
                    _ => None,
                };
                self.tell_to_move(&suspended.links, "lease_lost", redirect.as_ref(), MOVE_SPREAD);
                self.close_media(suspended.token).await;
            }
        }
    }

    /// Versions leapt without anything else changing.
    pub(super) fn tell_leap(&mut self, to: u64) {
        let due = crate::clock::instant() + self.app.presence_window;
        self.window.get_or_insert_with(|| PresenceWindow::open(to, due)).reach(to);
    }

    /// Gives the room up, unless somebody or something is there.
    pub(super) async fn unload(&mut self) {
        let State::Owned(room) = &self.state else { return };
        let token = room.lease().token();
        let due = due_of(room.cell(), self.redis_now().0, &self.app);
        match room.release(&self.node.store, true, due).await {
            Ok(Released::Ok) => {
                tracing::debug!("unloaded");
                self.close_media(token).await;
                self.state = State::Ended;
            }
            Ok(Released::Busy { inbox, .. }) => {
                if inbox > 0 {
                    self.empty_inbox().await;
                } else {
                    self.read_again("busy").await;
                }
                self.idle_due = Some(crate::clock::instant() + self.node.config.lease.retry_pause());
            }
            Ok(Released::Lost { .. }) => self.suspend("taken"),
            Err(_) => self.idle_due = Some(crate::clock::instant() + self.node.config.lease.retry_pause()),
        }
    }

    /// Hands the room back: finish, flush, release, and only then tell everybody.
    pub(super) async fn drain(&mut self, spread: Duration) -> usize {
        // What cannot be settled now is refused to its callers already.
        _ = self.settle().await;
        self.flush_presence();
        self.stop_external();
        let told = match std::mem::replace(&mut self.state, State::Ended) {
            State::Owned(room) => {
                let due = due_of(room.cell(), self.redis_now().0, &self.app);
                if let Err(error) = room.release(&self.node.store, false, due).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "not released; it waits for its time to live"
                    );
                }
                self.close_media(room.lease().token()).await;
                self.tell_to_move(room.links(), "drain", None, spread)
            }
            State::Suspended(room) => self.tell_to_move(&room.links, "drain", None, spread),
            State::New | State::Refused(_) | State::Ended => 0,
        };
        self.standing.hold(None);
        told
    }
}

fn answer_with(work: Work, error: ApiError) {
    match work {
        Work::Join(_, reply) => _ = reply.send(Err(error.into())),
        Work::Command(_, reply) => _ = reply.send(Err(error.into())),
        Work::Open(_, reply) => _ = reply.send(Err(error.into())),
        Work::Recover(reply) => _ = reply.send(Err(error.into())),
        _ => {}
    }
}

fn redirect(owner: &str, url: &str, token: FenceToken) -> Redirect {
    let instance = owner.split_once('/').map_or(owner, |(name, _)| name).to_owned();
    Redirect { instance, url: url.to_owned(), token: token.as_u64() }
}
