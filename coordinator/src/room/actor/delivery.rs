//! What members are told, never before Redis has acknowledged it.

use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

use super::{Actor, State};
use crate::classroom::guest;
use crate::error::Redirect;
use crate::node::random_pause;
use crate::room::members::Members;
use crate::room::names::json_string;
use crate::room::peer::{LeaveReason, Role};
use crate::room::presence::PresenceWindow;
use crate::room::projection::StateChange;
use crate::socket::Delivery;
use media_bridge::{Grant, MediaServer as _, PeerRef, Permissions};

impl Actor {
    /// Notes that presence moved; it is told when the window closes.
    pub(super) fn presence_moved(&mut self, from: u64, to: u64, users: &[Arc<str>], reason: LeaveReason) {
        let State::Owned(room) = &self.state else { return };
        let due = crate::clock::instant() + self.app.presence_window;
        let window = self.window.get_or_insert_with(|| PresenceWindow::open(from, to, due));
        window.reach(to);
        for user in users {
            match room.members().view(user) {
                Some(view) => window.joined(view),
                None => window.left(user, reason),
            }
        }
    }

    /// Closes the window and tells everybody, each from where it stands.
    pub(super) fn flush_presence(&mut self) {
        if !self.serves() {
            return;
        }
        let Some(window) = self.window.take() else { return };
        let State::Owned(room) = &mut self.state else { return };
        let body = match window.body(room.members().len()) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "presence cannot be encoded");
                return;
            }
        };
        let head = format!("{},\"of\":\"cell\",\"from\":", self.names.event_head);
        let mut last: Option<(u64, Box<RawValue>)> = None;
        for member in room.links().iter_mut() {
            let seen = member.seen;
            member.seen = window.to();
            let Some(client) = member.client() else { continue };
            let from_there = last.take_if(|(from, _)| *from == seen);
            let Some(event) =
                from_there.map(|(_, event)| event).or_else(|| window.event_for(seen, &head, &body))
            else {
                continue;
            };
            deliver(&self.node.metrics, client, "room:presence", &event);
            last = Some((seen, event));
        }
    }

    /// Tells everybody what changed in settings and guest states, and the media server what it allows now:
    /// every change goes this way, whether it came in turn, early, by reading again or by restoring.
    pub(super) async fn tell_change(&mut self, change: &StateChange) {
        self.broadcast_change(change);
        self.permissions_changed(change).await;
    }

    fn broadcast_change(&mut self, change: &StateChange) {
        if change.to <= change.from || !self.serves() {
            return;
        }
        let event = format!("{},{}", self.names.event_head, change_body(change));
        let Ok(event) = RawValue::from_string(event) else { return };
        let State::Owned(room) = &self.state else { return };
        for client in room.members().iter().filter_map(|member| member.client()) {
            deliver(&self.node.metrics, client, "room:update", &event);
        }
    }

    /// Tells everybody to move. Returns how many were told.
    pub(super) fn tell_to_move(
        &self,
        members: &Members,
        reason: &str,
        redirect: Option<&Redirect>,
        spread: Duration,
    ) -> usize {
        let to = redirect.map_or_else(String::new, |redirect| {
            let url = if redirect.url.is_empty() {
                String::new()
            } else {
                format!(r#","redirectUrl":{}"#, json_string(&redirect.url))
            };
            format!(r#","redirectInstance":{}{url}"#, json_string(&redirect.instance))
        });
        let mut told = 0;
        for client in members.iter().filter_map(|member| member.client()) {
            let pause = random_pause(spread).as_millis();
            let event = format!(r#"{},"reason":"{reason}"{to},"afterMs":{pause}}}"#, self.names.event_head);
            if let Ok(event) = RawValue::from_string(event) {
                deliver(&self.node.metrics, client, "room:moved", &event);
                client.forget(&self.names.key);
                told += 1;
            }
        }
        told
    }

    /// A fresh grant for these peers: there is something else to subscribe to.
    pub(super) async fn tracks_changed(&mut self, peers: &[Arc<str>]) {
        if !self.serves() {
            return;
        }
        let State::Owned(room) = &self.state else { return };
        let Some(media) = self.media() else { return };
        for member in peers.iter().filter_map(|peer| room.members().get(peer)) {
            let Some(client) = member.client() else { continue };
            let peer = PeerRef::new(Arc::clone(&member.record.user), Arc::clone(&member.record.peer));
            if let Ok(grant) = media.tracks_for(&self.media_room(), &peer).await
                && let Ok(grant) = serde_json::to_string(&grant)
                && let Ok(event) =
                    RawValue::from_string(format!(r#"{},"media":{grant}}}"#, self.names.event_head))
            {
                deliver(&self.node.metrics, client, "media:update", &event);
            }
        }
    }

    /// What a peer may do at the media server, by role and guest state.
    fn permissions(&self, user: &str, role: Role) -> Permissions {
        let State::Owned(room) = &self.state else { return Permissions::LISTEN };
        let state = room.projection().guests.get(user);
        let may = |flag| role == Role::Host || guest::flag(state, flag);
        Permissions { publish_audio: may("micAllowed"), publish_video: may("videoAllowed"), subscribe: true }
    }

    pub(super) async fn grant(&self, user: &Arc<str>, peer: &Arc<str>, role: Role) -> Option<Grant> {
        let media = self.media()?;
        let at = PeerRef::new(Arc::clone(user), Arc::clone(peer));
        match media.grant(&self.media_room(), &at, self.permissions(user, role)).await {
            Ok(grant) => Some(grant),
            Err(error) => {
                // A large room has more members than its media router takes: each is told `media: null`.
                tracing::debug!(error = &error as &dyn std::error::Error, "no media grant");
                None
            }
        }
    }

    /// Brings the media server to what a change of guest states allows.
    async fn permissions_changed(&mut self, change: &StateChange) {
        let State::Owned(room) = &self.state else { return };
        let Some(media) = self.media() else { return };
        let concerns_media = |state: &Value| {
            // `null`: the whole state is gone, and with it what it allowed or forbade.
            state.is_null() || state.get("micAllowed").or(state.get("videoAllowed")).is_some()
        };
        for (user, _) in change.guests.iter().flatten().filter(|(_, state)| concerns_media(state)) {
            for record in room.members().of_user(user).map(|member| &member.record) {
                let peer = PeerRef::new(Arc::clone(&record.user), Arc::clone(&record.peer));
                let allowed = self.permissions(user, record.role);
                if let Err(error) = media.set_permissions(&self.media_room(), &peer, allowed).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "permissions at the media server"
                    );
                }
            }
        }
    }
}

/// `"of":"settings","from":…` to the end of the object.
fn change_body(change: &StateChange) -> String {
    use std::fmt::Write as _;
    let mut body = format!(r#""of":"settings","from":{},"to":{}"#, change.from, change.to);
    for (name, patch) in [("settings", &change.settings), ("guests", &change.guests)] {
        if let Some(patch) = patch
            && let Ok(patch) = serde_json::to_string(patch)
        {
            _ = write!(body, r#","{name}":{patch}"#);
        }
    }
    if let Some(by) = &change.by {
        _ = write!(body, r#","by":{}"#, json_string(by));
    }
    body.push('}');
    body
}

/// Sends an event. A client whose queue is full is disconnected: it comes back and reads the room, where
/// dropping the event would leave it stale without knowing.
fn deliver(
    metrics: &crate::metrics::Metrics,
    client: &crate::socket::Client,
    event: &'static str,
    body: &RawValue,
) {
    if client.send(event, body) == Delivery::QueueFull {
        metrics.skipped.with_label_values(&["queue_full"]).inc();
        client.disconnect();
    }
}
