//! What lets the room's people use its router at an external media server.

use std::sync::{Arc, PoisonError};

use futures_util::FutureExt as _;
use media_bridge::{Grant, MediaError, MediaKind, Member, PeerRef, Permissions};
use room_cell::{Duty, Peer};
use serde_json::value::RawValue;
use socketioxide::socket::Sid;
use tokio::sync::oneshot;

use super::delivery::deliver;
use super::external::AGAIN;
use super::{Actor, State};
use crate::classroom::guest;
use crate::error::{ApiError, ErrorCode};
use crate::media::Placed;
use crate::paths::Owner;
use crate::room::desk::{Job, with_ice};
use crate::room::peer::Role;
use crate::room::work::{Refusal, Reply};

impl Actor {
    /// What a peer is at the media server.
    pub(super) fn member(&self, peer: &Peer) -> Member {
        let who = PeerRef::new(peer.user.shared(), peer.peer.shared());
        let name = peer.media.clone().unwrap_or_else(|| self.new_name(&who));
        Member { name, peer: who, display: peer.name.clone() }
    }

    /// What somebody is called there who comes anew.
    pub(super) fn new_name(&self, who: &PeerRef) -> Arc<str> {
        // An app without media servers has nobody at one.
        let kind = self.app.media_kind.unwrap_or(MediaKind::Embedded);
        self.node.media.names.participant(kind, &self.media_room(), who)
    }

    /// A grant that needs nothing of the server, or none yet: then it follows as `media:update`.
    pub(super) fn external_grant(&self, peer: &Peer) -> Option<Grant> {
        let at = self.placed()?;
        if at.is_lost() {
            self.grant_later(&peer.peer.shared());
            return None;
        }
        let (member, permissions) = (self.member(peer), self.external_permissions(peer));
        if at.node.server().kind().grants_by_itself() {
            let granted = at.node.server().grant(&at.router, &member, permissions).now_or_never()?;
            return granted.ok().map(|grant| with_ice(&self.node, grant, &member));
        }
        if !self.ask_desk(Job::Grant { at, member, permissions, reply: None }) {
            self.grant_later(&peer.peer.shared());
        }
        None
    }

    fn grant_later(&self, peer: &Arc<str>) {
        if let Some(external) = &self.external {
            let mut waiting = external.ungranted.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.insert(Arc::clone(peer));
        }
    }

    /// A fresh grant for a connection that asks for one; the room goes on while the media server is asked.
    pub(super) fn grant_asked(&mut self, sid: Sid, reply: Reply<Grant>) {
        match self.start_grant(sid) {
            Ok(answer) => {
                tokio::spawn(async move {
                    let granted = answer.await.ok().and_then(Result::ok);
                    _ = reply.send(granted.ok_or_else(unavailable));
                });
            }
            Err(refusal) => _ = reply.send(Err(refusal)),
        }
    }

    fn start_grant(&mut self, sid: Sid) -> Result<oneshot::Receiver<Result<Grant, MediaError>>, Refusal> {
        let membership = self.membership(sid)?;
        let peer = self.serving()?.cell().peer(&membership.peer).cloned().ok_or(Refusal::Gone)?;
        let at = self.placed().filter(|placed| !placed.is_lost()).ok_or_else(unavailable)?;
        let (member, permissions) = (self.member(&peer), self.external_permissions(&peer));
        let (granted, answer) = oneshot::channel();
        let job = Job::Grant { at, member, permissions, reply: Some(granted) };
        if self.ask_desk(job) { Ok(answer) } else { Err(unavailable()) }
    }

    pub(super) fn grant_everybody(&mut self) {
        let State::Owned(room) = &self.state else { return };
        let peers: Vec<Arc<Peer>> = room.cell().users.values().flat_map(|it| it.peers.clone()).collect();
        for peer in peers {
            if let Some(grant) = self.external_grant(&peer) {
                self.tell_grant(peer.peer.as_str(), &grant);
            }
        }
    }

    pub(super) fn grant_again(&mut self, duty: &Duty) {
        let Duty::Permit { peer, .. } = duty else { return };
        let State::Owned(room) = &self.state else { return };
        let Some(peer) = room.cell().peer(peer.as_str()).cloned() else { return };
        if let Some(grant) = self.external_grant(&peer) {
            self.tell_grant(peer.peer.as_str(), &grant);
        }
    }

    pub(super) fn tell_grant(&self, peer: &str, grant: &Grant) {
        let State::Owned(room) = &self.state else { return };
        let Some(client) = room.links().get(peer).and_then(|linked| linked.client()) else { return };
        if let Ok(grant) = serde_json::to_string(grant)
            && let Ok(event) =
                RawValue::from_string(format!(r#"{},"media":{grant}}}"#, self.names.event_head))
        {
            deliver(&self.node.metrics, client, Owner::MediaUpdate, &event);
        }
    }

    pub(super) fn ungranted(&mut self, member: &Member, error: &MediaError) {
        tracing::debug!(error = error as &dyn std::error::Error, "no media grant");
        match error {
            MediaError::NotFound { .. } => {
                if let Some(external) = &mut self.external {
                    external.standing = None;
                }
                self.try_external_again();
            }
            // Tried again for as long as they are here.
            _ => {
                self.grant_later(&member.peer.peer);
                self.try_external_again();
            }
        }
    }

    /// Tries again to let those in whose grant could not be made.
    pub(super) fn grant_the_rest(&mut self) {
        if self.placed().is_none_or(|placed| placed.is_lost()) {
            return;
        }
        let Some(external) = &self.external else { return };
        let waiting = std::mem::take(&mut *external.ungranted.lock().unwrap_or_else(PoisonError::into_inner));
        let State::Owned(room) = &self.state else { return };
        let waiting: Vec<_> = waiting.iter().filter_map(|peer| room.cell().peer(peer).cloned()).collect();
        for peer in waiting {
            if let Some(grant) = self.external_grant(&peer) {
                self.tell_grant(peer.peer.as_str(), &grant);
            }
        }
    }

    /// Brings a user's peers to what they may do now; a change of settings, which the cell does not know of.
    pub(super) fn permit_user(&self, user: &str) {
        let State::Owned(room) = &self.state else { return };
        let Some(at) = self.placed().filter(|placed| !placed.is_lost()) else { return };
        for peer in room.cell().users.get(user).into_iter().flat_map(|presence| &presence.peers) {
            self.permit(at.clone(), peer);
        }
    }

    pub(super) fn not_permitted(&mut self, member: Member, error: &MediaError) {
        // Who is not there is permitted anew when they come.
        if matches!(error, MediaError::NotFound { .. } | MediaError::NotSupported { .. }) {
            return;
        }
        if let Some(external) = &mut self.external {
            external.unpermitted.insert(member.peer.peer);
        }
        self.try_external_again();
    }

    /// Tries again to bring peers to what they may do.
    pub(super) fn permit_the_rest(&mut self) {
        let Some(at) = self.placed().filter(|placed| !placed.is_lost()) else { return };
        let Some(external) = &mut self.external else { return };
        let waiting = std::mem::take(&mut external.unpermitted);
        let State::Owned(room) = &self.state else { return };
        for peer in waiting.iter().filter_map(|peer| room.cell().peer(peer)) {
            self.permit(at.clone(), peer);
        }
    }

    /// Brings a peer to what it may do; tried again where that fails, for as long as this instance has the room.
    pub(super) fn permit(&self, at: Placed, peer: &Peer) {
        if at.node.server().abilities().takes_permissions {
            let (member, permissions) = (self.member(peer), self.external_permissions(peer));
            self.ask_desk(Job::Permit { at, member, permissions, duty: None });
        } else if let Some(grant) = self.external_grant(peer) {
            // Its client is told instead, and renews what it has.
            self.tell_grant(peer.peer.as_str(), &grant);
        }
    }

    /// What a peer may do at an external media server: speak from a seat where the room has any, unless it is muted
    /// or a host took the microphone away.
    pub(super) fn external_permissions(&self, peer: &Peer) -> Permissions {
        let State::Owned(room) = &self.state else { return Permissions::LISTEN };
        let state = room.projection().guests.get(peer.user.as_str());
        let may = |flag| peer.role == Role::Host || guest::flag(state, flag);
        Permissions {
            publish_audio: room.cell().may_speak(peer) && may("micAllowed"),
            publish_video: may("videoAllowed"),
            subscribe: true,
        }
    }
}

fn unavailable() -> Refusal {
    ApiError::new(ErrorCode::MediaUnavailable, "the media server cannot be asked just now")
        .after(AGAIN)
        .into()
}
