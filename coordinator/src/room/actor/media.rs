//! The room's media router: who may use it, and who is heard.

use media_bridge::{Generation, Grant, PeerRef, Permissions, RoomRef};
use redis_scripts::FenceToken;
use room_cell::{Command, Millis, Speaking};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::delivery::deliver;
use super::{Actor, State};
use crate::classroom::guest;
use crate::paths::Owner;
use crate::room::batch::Step;
use crate::room::peer::Role;
use crate::room::projection::StateChange;

impl Actor {
    pub(super) fn media(&self) -> Option<&media_bridge::EmbeddedSfu> {
        self.node.embedded_of(&self.app)
    }

    pub(super) fn media_room(&self) -> RoomRef {
        RoomRef::new(self.names.key.app(), self.names.key.room())
    }

    pub(super) async fn open_media(&mut self, token: FenceToken) {
        self.router = token.as_u64();
        if let Some(media) = self.media() {
            let generation = Generation(token.as_u64());
            let error = media.open_router(&self.media_room(), generation).err();
            let was_refused = self.node.routers_refused.swap(error.is_some(), Ordering::Relaxed);
            if let Some(error) = error {
                let error = &error as &dyn std::error::Error;
                // A full media server refuses every room: it is said once, until one has a router again.
                if was_refused {
                    tracing::debug!(error, "no media router");
                } else {
                    tracing::warn!(error, "no media router");
                }
            }
        }
    }

    pub(super) async fn close_media(&self, token: FenceToken) {
        if let Some(media) = self.media() {
            let generation = Generation(token.as_u64());
            media.end_router(&self.media_room(), generation);
        }
    }

    pub(super) async fn leave_media(&self, user: &Arc<str>, peer: &Arc<str>) {
        if let Some(media) = self.media() {
            let peer = PeerRef::new(Arc::clone(user), Arc::clone(peer));
            if let Err(error) = media.remove(&self.media_room(), &peer).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "still at the media server");
            }
        }
    }

    /// Peers whose audio the media server hears just now, with their users.
    pub(super) async fn audible(&self) -> HashSet<(Arc<str>, Arc<str>)> {
        let Some(media) = self.media() else { return HashSet::new() };
        match media.participants(&self.media_room()).await {
            Ok(participants) => {
                participants.into_iter().filter(|it| it.audible).map(|it| (it.user, it.peer)).collect()
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "who is heard is not known");
                HashSet::new()
            }
        }
    }

    /// Peers who are heard, where deadlines of seats have passed by `now`; `None` while that is being asked.
    pub(super) async fn heard_at_deadline(&mut self, now: Millis) -> Option<HashSet<Arc<str>>> {
        if self.external.is_none() {
            return Some(self.audible().await.into_iter().map(|(_, peer)| peer).collect());
        }
        let State::Owned(room) = &self.state else { return None };
        let waiting = room.cell().seats.values().filter_map(|seat| seat.sitter.as_ref());
        let passed = waiting.filter_map(|sitter| match sitter.speaking {
            Speaking::PendingPublish { deadline } => Some(deadline).filter(|deadline| *deadline <= now),
            Speaking::Publishing { .. } => None,
        });
        let last = passed.max()?;
        self.heard_since(last)
    }

    /// Steps that depend on who is heard just now, with what the media server says.
    pub(super) async fn ask_media(&self, mut steps: Vec<Step>) -> Vec<Step> {
        let is_move = |step: &Step| {
            step.order.as_ref().is_some_and(|order| matches!(order.command(), Command::MicMove { .. }))
        };
        if !steps.iter().any(is_move) {
            return steps;
        }
        if self.external.is_some() {
            let State::Owned(room) = &self.state else { return steps };
            // Who was heard when it was last said is heard: a move changes nothing at the media server.
            let is_heard = |user: &room_cell::UserId| {
                let seat = room.cell().seat_of(user.as_str());
                seat.is_some_and(|(_, it)| matches!(it.speaking, Speaking::Publishing { .. }))
            };
            return steps
                .into_iter()
                .map(|mut step| {
                    step.order = step.order.take().map(|order| order.heard(is_heard));
                    step
                })
                .collect();
        }
        let audible = self.audible().await;
        for step in &mut steps {
            step.order = step
                .order
                .take()
                .map(|order| order.heard(|user| audible.iter().any(|(heard, _)| **heard == *user.as_str())));
        }
        steps
    }

    /// A fresh grant for these peers: there is something else to subscribe to.
    pub(super) async fn tracks_changed(&mut self, peers: &[Arc<str>]) {
        if !self.serves() {
            self.tracks_untold = true;
            return;
        }
        let State::Owned(room) = &self.state else { return };
        let Some(media) = self.media() else { return };
        for peer in peers {
            let Some(linked) = room.links().get(peer) else { continue };
            let Some(client) = linked.client() else { continue };
            let at = PeerRef::new(Arc::clone(&linked.user), Arc::clone(peer));
            if let Ok(grant) = media.tracks_for(&self.media_room(), &at).await
                && let Ok(grant) = serde_json::to_string(&grant)
                && let Ok(event) =
                    RawValue::from_string(format!(r#"{},"media":{grant}}}"#, self.names.event_head))
            {
                deliver(&self.node.metrics, client, Owner::MediaUpdate, &event);
            }
        }
    }

    /// The room is had again: what there is to subscribe to may have changed meanwhile.
    pub(super) async fn tell_tracks_again(&mut self) {
        let State::Owned(room) = &self.state else { return };
        if std::mem::take(&mut self.tracks_untold) {
            let peers: Vec<Arc<str>> = room.cell().peers.keys().map(room_cell::PeerId::shared).collect();
            self.tracks_changed(&peers).await;
        }
    }

    /// What a peer may do at the media server, by role and guest state.
    fn permissions(&self, user: &str, role: Role) -> Permissions {
        let State::Owned(room) = &self.state else { return Permissions::LISTEN };
        let state = room.projection().guests.get(user);
        let may = |flag| role == Role::Host || guest::flag(state, flag);
        Permissions { publish_audio: may("micAllowed"), publish_video: may("videoAllowed"), subscribe: true }
    }

    pub(super) async fn grant(&self, peer: &room_cell::Peer) -> Option<Grant> {
        if self.external.is_some() {
            return self.external_grant(peer);
        }
        let (user, role) = (peer.user.shared(), peer.role);
        let media = self.media()?;
        let at = PeerRef::new(Arc::clone(&user), peer.peer.shared());
        match media.admit(&self.media_room(), &at, self.permissions(&user, role)).await {
            Ok(grant) => Some(grant),
            Err(error) => {
                // A large room has more members than its media router takes: each is told `media: null`.
                tracing::debug!(error = &error as &dyn std::error::Error, "no media grant");
                None
            }
        }
    }

    /// Brings the media server to what a change of guest states allows.
    pub(super) async fn permissions_changed(&mut self, change: &StateChange) {
        let concerns_media = |state: &Value| {
            // `null`: the whole state is gone, and with it what it allowed or forbade.
            state.is_null() || state.get("micAllowed").or(state.get("videoAllowed")).is_some()
        };
        for (user, _) in change.guests.iter().flatten().filter(|(_, state)| concerns_media(state)) {
            self.set_permissions(user).await;
        }
    }

    /// Brings the media server to what a user may do now.
    pub(super) async fn set_permissions(&self, user: &str) {
        let State::Owned(room) = &self.state else { return };
        if self.external.is_some() {
            self.permit_user(user);
            return;
        }
        let Some(media) = self.media() else { return };
        let Some(presence) = room.cell().users.get(user) else { return };
        for record in &presence.peers {
            let peer = PeerRef::new(record.user.shared(), record.peer.shared());
            let allowed = self.permissions(user, record.role);
            if let Err(error) = media.permit(&self.media_room(), &peer, allowed).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "permissions at the media server");
            }
        }
    }
}
