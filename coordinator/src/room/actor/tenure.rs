//! Having the room: winning it, keeping it through an outage, restoring it, giving it up.

use redis_scripts::{
    FenceToken, Pin, Pinned, Read, RecordedPeer, RedisMillis, Released, RoomState, Standing,
};
use std::time::Duration;

use super::{Actor, State};
use crate::classroom::settings;
use crate::clock::Moment;
use crate::error::{ApiError, ErrorCode, Redirect};
use crate::node::{Fatal, random_pause};
use crate::room::members::{Link, Member, Replacement};
use crate::room::owned::{CommitError, Joiner, OwnedRoom, lease_of};
use crate::room::peer::LeaveReason;
use crate::room::projection::Projection;
use crate::room::snapshot::records_of;
use crate::room::work::Refusal;
use media_bridge::{Generation, MediaServer as _, RoomRef};

/// Pauses of clients who are told to move are spread over this.
const MOVE_SPREAD: Duration = Duration::from_millis(500);

impl Actor {
    /// The first `pin`, which seats the joiner if the room is empty. Returns whether it did.
    pub(super) async fn win(&mut self, joiner: &Joiner, hops: u32) -> Result<bool, Refusal> {
        let create = self.app.auto_create.then(settings::defaults);
        let json = serde_json::to_string(&joiner.record).unwrap_or_default();
        let peer = RecordedPeer { peer: &joiner.record.peer, user: &joiner.record.user, json: &json };
        if let Some(pause) = self.node.settling() {
            // Whoever served the room before the outage has it again first, if people are still there.
            self.state = State::Ended;
            return Err(ApiError::store_unavailable().after(pause + random_pause(pause)).into());
        }
        let sent = Moment::now();
        let pinned = match self.pin(create, FenceToken::default(), false, Some(peer)).await {
            Ok(pinned) => pinned,
            Err(error) => {
                self.state = State::Ended;
                return Err(error.into());
            }
        };
        let lease = lease_of(&pinned, sent, &self.node.store);
        let (Some(lease), Pinned::Owned { previous, whole, state, now, .. }) = (lease, &pinned) else {
            let refusal = self.refusal(&pinned, hops);
            self.state = State::Refused(pinned);
            return Err(refusal.into());
        };
        self.node.redis_clock.heard(now.as_u64());
        let projection = match Projection::hydrate(state) {
            Ok(projection) => projection,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the room cannot be read");
                self.state = State::Ended;
                return Err(ApiError::new(ErrorCode::Internal, "the room cannot be read").into());
            }
        };
        if previous.as_u64() > 0 {
            self.node.metrics.takeovers.inc();
        }
        let is_seated = state.peers.iter().any(|(peer, _)| **peer == *joiner.record.peer);
        let mut room = OwnedRoom::new(lease, self.names.clone(), projection);
        self.away(&mut room, state);
        if is_seated {
            room.seated(joiner.clone());
        }
        let (token, is_whole) = (room.lease().token(), *whole);
        self.hold(room);
        if !is_whole {
            tracing::error!(
                token = token.as_u64(),
                "Redis lost part of this room; what is left of it goes on"
            );
            self.damaged().await;
        }
        self.open_media(token).await;
        Ok(is_seated)
    }

    async fn pin(
        &self,
        create: Option<&[(&str, String)]>,
        floor: FenceToken,
        renew: bool,
        peer: Option<RecordedPeer<'_>>,
    ) -> Result<Pinned, ApiError> {
        let store = &self.node.store;
        // A joiner waits for one command; a room that is ours anyway may be pinned late.
        let waits = self.node.config.redis.command_timeout.as_millis();
        let deadline = self.node.redis_clock.now_ms() + u64::try_from(waits).unwrap_or(u64::MAX / 2);
        let with = Pin {
            me: &store.me,
            room: &self.names.key,
            owner_ttl: store.owner_ttl,
            floor,
            renew,
            create,
            deadline: peer.map(|_| RedisMillis::new(deadline)),
            peer,
        };
        Ok(store.timed("pin", store.scripts.pin(&store.keys, with)).await?)
    }

    /// Everybody whom Redis knows and who is not connected here is away from now.
    fn away(&mut self, room: &mut OwnedRoom, state: &RoomState) {
        let until = crate::clock::instant() + self.app.grace;
        for record in records_of(state) {
            room.links().insert(Member { record, link: Link::Away(until), seen: 0 });
        }
        if !room.members().is_empty() {
            self.away_due = Some(until);
        }
    }

    /// Whoever was away while nobody could come back has the whole grace period again.
    fn away_again(&mut self, room: &mut OwnedRoom) {
        let until = crate::clock::instant() + self.app.grace;
        for member in room.links().iter_mut().filter(|member| member.client().is_none()) {
            member.link = Link::Away(until);
            self.away_due = Some(until);
        }
    }

    fn hold(&mut self, room: OwnedRoom) {
        self.standing.stand_at(room.projection().sv.as_u64(), room.projection().cv.as_u64());
        self.standing.hold(Some((room.lease().token(), room.lease().term())));
        self.state = State::Owned(room);
    }

    async fn open_media(&self, token: FenceToken) {
        if let Some(media) = self.media() {
            let generation = Generation(token.as_u64());
            if let Err(error) = media.ensure_router(&self.media_room(), generation).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "no media router");
            }
        }
    }

    pub(super) fn media(&self) -> Option<&media_bridge::EmbeddedSfu> {
        self.app.media.as_ref().and(self.node.media.as_ref())
    }

    pub(super) fn media_room(&self) -> RoomRef {
        RoomRef::new(self.names.key.app(), self.names.key.room())
    }

    pub(super) fn refusal(&self, pinned: &Pinned, hops: u32) -> ApiError {
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
            Pinned::Late => ApiError::store_unavailable(),
            Pinned::Superseded { .. } => {
                self.node.fail(&Fatal::Superseded);
                ApiError::lease_lost()
            }
            Pinned::Owned { .. } => ApiError::lease_lost(),
        }
    }

    /// Stops serving the room; who is connected stays known until a `pin` tells what becomes of it.
    pub(super) fn suspend(&mut self, how: &'static str) {
        let State::Owned(room) = std::mem::replace(&mut self.state, State::Ended) else { return };
        self.node.metrics.lease_losses.with_label_values(&[how]).inc();
        tracing::warn!(how, token = room.lease().token().as_u64(), "the lease is lost");
        self.standing.hold(None);
        self.state = State::Suspended(room.suspend());
        let up = *self.node.store_up.borrow();
        self.repin_due = up.then(crate::clock::instant);
    }

    /// The owner key is gone or names another: find out which.
    pub(super) async fn lease_gone(&mut self, how: &'static str) {
        self.suspend(how);
        if matches!(self.state, State::Suspended(_)) {
            self.repin_due = None;
            self.repin().await;
        }
    }

    /// Tries to have a suspended room again.
    pub(super) async fn repin(&mut self) {
        let State::Suspended(suspended) = &self.state else { return };
        let (token, has_people) = (suspended.token, !suspended.members.is_empty());
        if !has_people && self.node.is_draining() {
            self.state = State::Ended;
            return;
        }
        let sent = Moment::now();
        // A room that Redis lost is made again, to be restored from memory.
        let create = settings::defaults();
        let pinned = match self.pin(Some(create), token, true, None).await {
            Ok(pinned) => pinned,
            Err(_) => {
                let pause = self.node.config.lease.retry_pause();
                self.repin_due = Some(crate::clock::instant() + pause + random_pause(pause));
                return;
            }
        };
        let State::Suspended(suspended) = std::mem::replace(&mut self.state, State::Ended) else { return };
        let is_newest = suspended.is_newest(&pinned);
        match (lease_of(&pinned, sent, &self.node.store), pinned) {
            (Some(lease), Pinned::Owned { whole, now, state, made, .. }) => {
                tracing::info!(token = lease.token().as_u64(), made, whole, "the room is ours again");
                let standing = Standing {
                    whole: whole && !made,
                    now,
                    owner: self.node.store.me.as_str().to_owned(),
                    token: lease.token(),
                    url: String::new(),
                    state,
                };
                let mut room = suspended.resume(lease, self.names.clone());
                self.away_again(&mut room);
                self.hold(room);
                self.uncertain = false;
                self.reconcile(standing, is_newest).await;
            }
            (_, Pinned::Superseded { .. }) => self.node.fail(&Fatal::Superseded),
            (_, pinned) => {
                self.node.metrics.lease_losses.with_label_values(&["taken"]).inc();
                let redirect = match pinned {
                    Pinned::Other { owner, token, url } => Some(redirect(&owner, &url, token)),
                    _ => None,
                };
                self.tell_to_move(&suspended.members, "lease_lost", redirect.as_ref(), MOVE_SPREAD);
                self.close_media(suspended.token).await;
            }
        }
    }

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
                self.uncertain = false;
                self.reconcile(standing, true).await;
            }
            Ok(Read::Missing) => self.restore(None).await,
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "the room cannot be read"),
        }
    }

    /// Brings memory to what a script read, or Redis to memory where Redis lost something that nobody
    /// else can have changed since (`is_newest`).
    async fn reconcile(&mut self, standing: Standing, is_newest: bool) {
        let State::Owned(room) = &mut self.state else { return };
        if standing.owner != self.node.store.me.as_str() || standing.token != room.lease().token() {
            self.suspend("taken");
            return;
        }
        let state = &standing.state;
        let fell_back = state.sv < room.projection().sv || state.cv < room.projection().cv;
        if is_newest && (fell_back || !standing.whole) {
            self.restore(Some(&standing)).await;
            return;
        }
        let newer = match Projection::hydrate(state) {
            Ok(newer) => newer,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the room cannot be read");
                return;
            }
        };
        self.early.retain(|from, _| *from >= newer.sv.as_u64());
        if newer.sv != room.projection().sv {
            let change = room.adopt(newer);
            self.tell_change(&change).await;
        }
        self.follow_early().await;
        self.meet_members(&standing).await;
    }

    /// Members as Redis has them: unknown ones are away, lost ones join again or are gone.
    async fn meet_members(&mut self, standing: &Standing) {
        let until = crate::clock::instant() + self.app.grace;
        let ended = std::mem::take(&mut self.unanswered);
        let State::Owned(room) = &mut self.state else { return };
        let cv = standing.state.cv;
        if cv == room.projection().cv && standing.state.peers.len() == room.members().len() {
            return;
        }
        let from = room.projection().cv.as_u64();
        room.stand_at(cv);
        let known: Vec<_> = records_of(&standing.state).collect();
        let mut changed = Vec::new();
        for record in &known {
            if room.members().get(&record.peer).is_none() {
                changed.push(record.user.clone());
                room.links().insert(Member { record: record.clone(), link: Link::Away(until), seen: 0 });
                self.away_due = Some(self.away_due.map_or(until, |due| due.min(until)));
            }
        }
        let lost: Vec<Member> = room
            .members()
            .iter()
            .filter(|member| !known.iter().any(|record| record.peer == member.record.peer))
            .cloned()
            .collect();
        for member in &lost {
            room.links().remove(&member.record.peer);
            changed.push(member.record.user.clone());
        }
        self.presence_moved(from, cv.as_u64(), &changed, LeaveReason::StaleLeft);
        for member in lost {
            if let Link::Connected(client) = member.link {
                if ended.contains(&member.record.peer) {
                    if known.iter().any(|record| record.user == member.record.user) {
                        client.evict(&self.names, "replaced");
                    } else {
                        client.forget(&self.names.key);
                    }
                    continue;
                }
                self.returning.push(Joiner {
                    record: member.record,
                    client,
                    replacement: Replacement::default(),
                });
            }
        }
    }

    /// Redis lost keys of the room: look what is left, and write it anew.
    pub(super) async fn damaged(&mut self) {
        self.read_again("damaged").await;
    }

    async fn restore(&mut self, found: Option<&Standing>) {
        if !self.serves() {
            return;
        }
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
        match room.restore(&self.node.store, found).await {
            Ok(true) => {
                let after = room.projection().clone();
                self.node.metrics.restored.inc();
                tracing::error!(
                    from = before.sv.as_u64(),
                    to = after.sv.as_u64(),
                    "Redis had lost part of this room; it is restored from memory"
                );
                self.early.clear();
                self.tell_change(&before.change_to(&after)).await;
                self.presence_moved(before.cv.as_u64(), after.cv.as_u64(), &[], LeaveReason::StaleLeft);
            }
            Ok(false) => {
                // Members have not been told of what was taken over above.
                room.adopt(before);
                self.gap_due = Some(crate::clock::instant() + super::GAP_PATIENCE);
            }
            Err(error) => {
                room.adopt(before);
                self.failed(error).await;
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
            CommitError::Damaged => ApiError::lease_lost(),
            CommitError::Unknown(error) => {
                self.uncertain = true;
                error.into()
            }
            CommitError::Failed(error) => error.into(),
        }
    }

    /// Nobody has been here for the idle time: unload, unless somebody is coming.
    pub(super) async fn unload(&mut self) {
        let State::Owned(room) = &self.state else { return };
        let token = room.lease().token();
        match room.release(&self.node.store, true).await {
            Ok(Released::Ok) => {
                tracing::debug!("unloaded");
                self.close_media(token).await;
                self.state = State::Ended;
            }
            Ok(Released::Busy { .. }) => self.uncertain = true,
            Ok(Released::Lost { .. }) => self.suspend("taken"),
            Err(_) => self.idle_due = Some(crate::clock::instant() + self.node.config.lease.retry_pause()),
        }
    }

    /// Hands the room back: finish, flush, release, and only then tell everybody.
    pub(super) async fn drain(&mut self, spread: Duration) -> usize {
        self.flush_presence();
        let told = match std::mem::replace(&mut self.state, State::Ended) {
            State::Owned(room) => {
                if let Err(error) = room.release(&self.node.store, false).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "not released; it waits for its time to live"
                    );
                }
                self.close_media(room.lease().token()).await;
                self.tell_to_move(room.members(), "drain", None, spread)
            }
            State::Suspended(room) => self.tell_to_move(&room.members, "drain", None, spread),
            State::New | State::Refused(_) | State::Ended => 0,
        };
        self.standing.hold(None);
        told
    }

    async fn close_media(&self, token: FenceToken) {
        if let Some(media) = self.media() {
            let generation = Generation(token.as_u64());
            if let Err(error) = media.close_router(&self.media_room(), generation).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "the media router was not closed");
            }
        }
    }
}

fn redirect(owner: &str, url: &str, token: FenceToken) -> Redirect {
    let instance = owner.split_once('/').map_or(owner, |(name, _)| name).to_owned();
    Redirect { instance, url: url.to_owned(), token: token.as_u64() }
}
