//! Coming, going, being away.

use serde::Serialize;
use serde_json::value::RawValue;
use socketioxide::socket::Sid;
use std::sync::Arc;

use super::{Actor, State};
use crate::error::{ApiError, ErrorCode};
use crate::room::members::Replacement;
use crate::room::owned::{CommitError, Joiner};
use crate::room::peer::{LeaveReason, PeerRecord, PeerView};
use crate::room::snapshot::{Heading, Snapshot};
use crate::room::work::{JoinRequest, Membership, Refusal};
use media_bridge::{Grant, MediaServer as _, PeerRef};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Joined<'a> {
    ok: bool,
    #[serde(rename = "self")]
    me: SelfView<'a>,
    room: Snapshot<'a>,
    media: Option<Grant>,
    messages: Messages,
    server_time: u64,
    heartbeat_ms: u128,
}

#[derive(Serialize)]
struct SelfView<'a> {
    peer: &'a str,
    user: &'a str,
    role: crate::room::peer::Role,
    resume: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Messages {
    last_seq: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PeersPage {
    ok: bool,
    peers: Vec<PeerView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers_cursor: Option<Arc<str>>,
}

impl Actor {
    pub(super) async fn join(&mut self, request: JoinRequest) -> Result<Box<RawValue>, Refusal> {
        if matches!(self.state, State::New) {
            if self.node.is_draining() {
                self.state = State::Ended;
                return Err(ApiError::new(ErrorCode::Draining, "this instance takes no new rooms").into());
            }
            let joiner = self.joiner(&request, Replacement::default());
            let peer = Arc::clone(&joiner.record.peer);
            if self.win(&joiner, request.hops).await? {
                return self.welcome(&peer).await;
            }
        }
        self.settle().await?;
        let policy = self.app.devices;
        let room = self.serving()?;
        if let Some(member) = room.members().of_connection(request.client.sid()) {
            let peer = Arc::clone(&member.record.peer);
            self.node.metrics.joins.with_label_values(&["resumed"]).inc();
            return self.welcome(&peer).await;
        }
        let replacement = room
            .members()
            .replaced_by(&request.user, request.device.as_deref(), request.resume.as_deref(), policy)
            .map_err(|_| ApiError::new(ErrorCode::Forbidden, "the user is in the room on another device"))?;
        let users = room.members().users();
        let is_new = replacement.joined_at.is_none();
        if let Some(capacity) = self.app.capacity
            && is_new
            && users >= usize::try_from(capacity).unwrap_or(usize::MAX)
        {
            return Err(ApiError::new(ErrorCode::RoomFull, format!("the room holds {capacity} users")).into());
        }
        let joiner = self.joiner(&request, replacement);
        let peer = Arc::clone(&joiner.record.peer);
        self.commit_join(joiner).await?;
        self.welcome(&peer).await
    }

    fn joiner(&self, request: &JoinRequest, replacement: Replacement) -> Joiner {
        let joined_at = replacement.joined_at.unwrap_or_else(|| self.node.redis_clock.now_ms());
        let record = PeerRecord {
            peer: Arc::clone(&request.peer),
            user: Arc::clone(&request.user),
            role: request.role,
            name: request.name.clone(),
            attributes: request.attributes.clone(),
            device: request.device.clone(),
            resume: Arc::clone(&request.secret),
            joined_at,
        };
        Joiner { record, client: request.client.clone(), replacement }
    }

    /// Commits a join, restoring the room first if Redis lost part of it.
    pub(super) async fn commit_join(&mut self, joiner: Joiner) -> Result<(), Refusal> {
        let mut restored = false;
        loop {
            let store = self.node.store.clone();
            let room = self.serving()?;
            let from = room.projection().cv.as_u64();
            let view = view_of(&joiner, room.members().view(&joiner.record.user).as_ref());
            let view_json = serde_json::to_string(&view).unwrap_or_default();
            let replaced: Vec<_> = joiner
                .replacement
                .peers
                .iter()
                .filter_map(|peer| room.members().get(peer))
                .cloned()
                .collect();
            match room.join(&store, joiner.clone(), &view_json).await {
                Ok(()) => {
                    let to = room.projection().cv.as_u64();
                    let is_new = joiner.replacement.joined_at.is_none() || joiner.replacement.others_stay;
                    let told = if is_new { vec![Arc::clone(&joiner.record.user)] } else { Vec::new() };
                    self.presence_moved(from, to, &told, LeaveReason::Left);
                    for old in replaced {
                        if let Some(client) =
                            old.client().filter(|client| client.sid() != joiner.client.sid())
                        {
                            client.evict(&self.names, "replaced");
                        }
                        self.leave_media(&old.record.user, &old.record.peer).await;
                    }
                    return Ok(());
                }
                Err(CommitError::Damaged) if !restored => {
                    restored = true;
                    self.damaged().await;
                }
                Err(error) => {
                    if matches!(error, CommitError::Unknown(_)) {
                        self.unanswered.extend_from_slice(&joiner.replacement.peers);
                    }
                    return Err(self.failed(error).await.into());
                }
            }
        }
    }

    async fn welcome(&mut self, peer: &str) -> Result<Box<RawValue>, Refusal> {
        self.serving()?;
        let State::Owned(room) = &self.state else { return Err(Refusal::Gone) };
        let Some(member) = room.members().get(peer) else { return Err(ApiError::lease_lost().into()) };
        let record = member.record.clone();
        if !member.client().is_some_and(crate::socket::Client::is_connected) {
            // It hung up while it was let in: its own disconnect may have come before.
            let sid = member.client().map(crate::socket::Client::sid);
            if let Some(sid) = sid {
                self.disconnected(sid);
            }
        }
        let media = self.grant(&record.user, &record.peer, record.role).await;
        self.serving()?;
        let State::Owned(room) = &mut self.state else { return Err(Refusal::Gone) };
        let cv = room.projection().cv.as_u64();
        if let Some(member) = room.links().get_mut(&record.peer) {
            member.seen = cv;
        }
        let heading = Heading {
            app: self.names.key.app(),
            id: self.names.key.room(),
            status: "active",
            owner: self.node.store.me.name(),
            token: room.lease().token().as_u64(),
        };
        let answer = Joined {
            ok: true,
            me: SelfView {
                peer: &record.peer,
                user: &record.user,
                role: record.role,
                resume: &record.resume,
            },
            room: Snapshot::new(heading, room.projection(), room.members()),
            media,
            messages: Messages { last_seq: 0 },
            server_time: self.node.redis_clock.now_ms(),
            heartbeat_ms: self.app.heartbeat.as_millis(),
        };
        raw(&answer)
    }

    pub(super) async fn leave(&mut self, sid: Sid) -> Result<(), Refusal> {
        self.settle().await?;
        let room = self.serving()?;
        let Some(member) = room.members().of_connection(sid) else {
            return Err(ApiError::new(ErrorCode::NotInRoom, "this connection is not in the room").into());
        };
        let peer = Arc::clone(&member.record.peer);
        self.commit_leave(&[peer], LeaveReason::Left).await
    }

    async fn commit_leave(&mut self, peers: &[Arc<str>], reason: LeaveReason) -> Result<(), Refusal> {
        let mut restored = false;
        loop {
            let store = self.node.store.clone();
            let room = self.serving()?;
            let from = room.projection().cv.as_u64();
            let ending: Vec<PeerRecord> = peers
                .iter()
                .filter_map(|peer| room.members().get(peer))
                .map(|it| it.record.clone())
                .collect();
            match room.leave(&store, peers, reason).await {
                Ok(_) => {
                    let to = room.projection().cv.as_u64();
                    let users: Vec<_> = ending.iter().map(|record| Arc::clone(&record.user)).collect();
                    self.presence_moved(from, to, &users, reason);
                    for record in ending {
                        self.leave_media(&record.user, &record.peer).await;
                    }
                    return Ok(());
                }
                Err(CommitError::Damaged) if !restored => {
                    restored = true;
                    self.damaged().await;
                }
                Err(error) => {
                    if matches!(error, CommitError::Unknown(_)) {
                        self.unanswered.extend_from_slice(peers);
                    }
                    return Err(self.failed(error).await.into());
                }
            }
        }
    }

    /// Reads the room first if a commit went unanswered.
    async fn settle(&mut self) -> Result<(), Refusal> {
        self.serving()?;
        if self.uncertain {
            self.read_again("unanswered").await;
            self.serving()?;
            if self.uncertain {
                return Err(ApiError::store_unavailable().into());
            }
        }
        Ok(())
    }

    pub(super) fn disconnected(&mut self, sid: Sid) {
        let until = crate::clock::instant() + self.app.grace;
        let members = match &mut self.state {
            State::Owned(room) => room.links(),
            State::Suspended(room) => &mut room.members,
            State::New | State::Refused(_) | State::Ended => return,
        };
        if members.lose(sid, until).is_some() {
            self.away_due = Some(self.away_due.map_or(until, |due| due.min(until)));
        }
    }

    /// Those whose grace is over leave.
    pub(super) async fn end_overdue(&mut self) {
        let State::Owned(room) = &self.state else { return };
        let (over, next) = room.members().overdue(crate::clock::instant());
        self.away_due = next;
        if over.is_empty() {
            return;
        }
        let ended = match self.settle().await {
            Ok(()) => self.commit_leave(&over, LeaveReason::StaleLeft).await,
            Err(refusal) => Err(refusal),
        };
        if ended.is_err() {
            let again = crate::clock::instant() + self.node.config.lease.retry_pause();
            self.away_due = Some(self.away_due.map_or(again, |due| due.min(again)));
        }
    }

    pub(super) fn membership(&mut self, sid: Sid) -> Result<Membership, Refusal> {
        let room = self.serving()?;
        let Some(member) = room.members().of_connection(sid) else {
            return Err(ApiError::new(ErrorCode::NotInRoom, "this connection is not in the room").into());
        };
        let record = &member.record;
        Ok(Membership { peer: Arc::clone(&record.peer), user: Arc::clone(&record.user), role: record.role })
    }

    pub(super) fn peers(
        &mut self,
        sid: Sid,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Box<RawValue>, Refusal> {
        self.membership(sid)?;
        let (peers, peers_cursor) = self.serving()?.members().page(after, limit);
        raw(&PeersPage { ok: true, peers, peers_cursor })
    }

    async fn leave_media(&self, user: &Arc<str>, peer: &Arc<str>) {
        if let Some(media) = self.media() {
            let peer = PeerRef::new(Arc::clone(user), Arc::clone(peer));
            if let Err(error) = media.remove_participant(&self.media_room(), &peer).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "still at the media server");
            }
        }
    }
}

/// The joiner as others will see it, beside the devices that it has already.
fn view_of(joiner: &Joiner, present: Option<&PeerView>) -> PeerView {
    let record = &joiner.record;
    let staying = present.map_or(0, |view| view.devices.saturating_sub(joiner.replacement.peers.len()));
    PeerView {
        user: Arc::clone(&record.user),
        name: record.name.clone(),
        role: record.role,
        attributes: record.attributes.clone(),
        devices: staying + 1,
        joined_at: record.joined_at,
    }
}

fn raw(answer: &impl Serialize) -> Result<Box<RawValue>, Refusal> {
    serde_json::value::to_raw_value(answer).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an answer cannot be encoded");
        ApiError::new(ErrorCode::Internal, "the answer cannot be encoded").into()
    })
}
