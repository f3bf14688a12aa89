//! What members are told, never before Redis has acknowledged it.

use room_cell::{Cell, Event, LeaveReason};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Actor, State};
use crate::error::Redirect;
use crate::node::random_pause;
use crate::paths::{Control, Owner};
use crate::room::batch::{Batch, Step};
use crate::room::delta::Delta;
use crate::room::links::Links;
use crate::room::names::json_string;
use crate::room::peer::PeerView;
use crate::room::presence::PresenceWindow;
use crate::room::projection::StateChange;
use crate::socket::sessions::notices::Notice;
use crate::socket::{Client, Delivery};

/// An event as those are told it who know the room up to a version: encoded once for each version.
type ByVersion = BTreeMap<u64, Option<Box<RawValue>>>;

impl Actor {
    /// Tells everybody concerned what a batch did.
    pub(super) async fn tell_batch(&mut self, batch: &Batch) {
        let delta = batch.delta();
        if let Some(reason) = delta.closed() {
            self.tell_closed(reason.as_deref());
        }
        for step in &batch.steps {
            for event in step.events() {
                self.cut_off(event).await;
                self.notify_of(step, event, &batch.cell);
            }
        }
        self.roles_changed(batch).await;
        self.tell_delta(&delta, batch.cell.version);
    }

    /// Tells members what changed, or notes it for the window if it is presence alone.
    pub(super) fn tell_delta(&mut self, delta: &Delta, to: u64) {
        if delta.is_empty() || !self.serves() {
            return;
        }
        if delta.is_presence_alone() {
            self.presence_moved(to, delta);
            return;
        }
        self.flush_presence();
        let State::Owned(room) = &mut self.state else { return };
        let body = format!(r#","to":{to}{}}}"#, delta.parts(room.cell()));
        let names: Vec<Owner> = delta.names().collect();
        let head = format!("{},\"of\":\"cell\",\"from\":", self.names.event_head);
        let mut events = ByVersion::new();
        for linked in room.links_mut().iter_mut().filter(|linked| linked.seen < to) {
            let seen = std::mem::replace(&mut linked.seen, to);
            let Some(client) = linked.client() else { continue };
            let event = events
                .entry(seen)
                .or_insert_with(|| RawValue::from_string(format!("{head}{seen}{body}")).ok());
            let Some(event) = event else { continue };
            for name in &names {
                deliver(&self.node.metrics, client, *name, event);
            }
        }
    }

    /// Whoever a batch put out is reached no more.
    async fn cut_off(&mut self, event: &Event) {
        let (user, peers, reason) = match event {
            Event::Joined { peer, replaced, .. } => (&peer.user, replaced.as_slice(), None),
            Event::PeerEnded { peer, user, reason } => (user, std::slice::from_ref(peer), Some(*reason)),
            Event::Left { user, peers, reason } => (user, peers.as_slice(), Some(*reason)),
            _ => return,
        };
        let names = Arc::clone(&self.names);
        for peer in peers {
            let links = match &mut self.state {
                State::Owned(room) => room.links_mut(),
                State::Suspended(room) => &mut room.links,
                State::New | State::Refused(_) | State::Ended => return,
            };
            let gone = links.remove(peer.as_str());
            match (gone.as_ref().and_then(|linked| linked.client()), reason) {
                (Some(client), None) => client.evict(&names, "replaced"),
                (Some(client), Some(LeaveReason::Kicked)) => client.evict(&names, "kicked"),
                (Some(client), Some(_)) => client.forget(&names.key),
                (None, _) => {}
            }
            self.leave_media(&user.shared(), &peer.shared()).await;
        }
    }

    /// Connections know their role in the room, and the media server what comes with it.
    async fn roles_changed(&self, batch: &Batch) {
        let State::Owned(room) = &self.state else { return };
        let mut users: Vec<&room_cell::UserId> = Vec::new();
        for event in batch.steps.iter().flat_map(Step::events) {
            match event {
                Event::RoleChanged { user, .. } => users.push(user),
                Event::Joined { peer, arrived: false, .. } => users.push(&peer.user),
                _ => {}
            }
        }
        for user in users {
            let role = |cell: &Cell| cell.users.get(user).map(room_cell::Presence::role);
            let (was, Some(is)) = (role(&batch.before), role(&batch.cell)) else { continue };
            if was == Some(is) {
                continue;
            }
            for (_, linked) in room.links().iter().filter(|(_, linked)| *linked.user == *user.as_str()) {
                if let Some(client) = linked.client() {
                    client.has_role(&self.names.key, is);
                }
            }
            self.set_permissions(user.as_str()).await;
        }
    }

    fn tell_closed(&self, reason: Option<&str>) {
        let State::Owned(room) = &self.state else { return };
        let reason = reason.map_or_else(|| "null".to_owned(), json_string);
        let Ok(event) = RawValue::from_string(format!(r#"{},"reason":{reason}}}"#, self.names.event_head))
        else {
            return;
        };
        for client in room.links().clients() {
            deliver(&self.node.metrics, client, Owner::RoomClosed, &event);
        }
    }

    /// Tells users who need not be in the room, at whatever instance they are.
    fn notify_of(&self, step: &Step, event: &Event, cell: &Cell) {
        let head = &self.names.event_head;
        let rang = |id: &room_cell::CallId| cell.call.as_ref().filter(|call| call.id == *id);
        let of_call = |call: &room_cell::Call| {
            let users: Vec<Arc<str>> = call.to.iter().map(room_cell::UserId::shared).collect();
            let call = serde_json::to_string(call).unwrap_or_default();
            (users, format!(r#"{head},"call":{call}}}"#))
        };
        let mut except = None;
        let (class, (users, body)) = match event {
            Event::Banned { user, ban } => {
                let reason = ban.reason.as_deref().map_or_else(|| "null".to_owned(), json_string);
                (Control::RoomKicked, (vec![user.shared()], format!(r#"{head},"reason":{reason}}}"#)))
            }
            Event::CallStarted { call } => (Control::CallIncoming, of_call(call)),
            Event::CallAccepted { call, .. } => {
                let Some(call) = rang(call) else { return };
                let answerer = match (&self.state, step.order.as_ref().map(room_cell::Validated::actor)) {
                    (State::Owned(room), Some(room_cell::Actor::User { peer: Some(peer), .. })) => {
                        room.links().get(peer.as_str()).and_then(|linked| linked.client())
                    }
                    _ => None,
                };
                except = answerer.map(|client| client.sid().to_string());
                (Control::CallEndedElsewhere, of_call(call))
            }
            Event::CallEnded { call, .. } => {
                // Who was in it hears by `call:update`; this is for those where it rang to its end.
                let Some(call) = rang(call).filter(|call| call.accepted_by.is_none()) else { return };
                (Control::CallEndedElsewhere, of_call(call))
            }
            _ => return,
        };
        let app = self.names.key.app().to_owned();
        // Who is not reached makes up by reading the call: its state does not depend on the telling.
        self.node.notices.post(Notice { app, users, class, body, except });
    }

    /// Notes that presence moved; it is told when the window closes.
    fn presence_moved(&mut self, to: u64, delta: &Delta) {
        let State::Owned(room) = &self.state else { return };
        let due = crate::clock::instant() + self.app.presence_window;
        let window = self.window.get_or_insert_with(|| PresenceWindow::open(to, due));
        window.reach(to);
        for user in delta.arrived() {
            if let Some(view) = room.cell().users.get(user).and_then(PeerView::of) {
                window.joined(view);
            }
        }
        for (user, reason) in delta.departed() {
            window.left(&user.shared(), *reason);
        }
    }

    /// Closes the window and tells everybody, each from where it stands.
    pub(super) fn flush_presence(&mut self) {
        if !self.serves() {
            return;
        }
        let Some(window) = self.window.take() else { return };
        let State::Owned(room) = &mut self.state else { return };
        let body = match window.body(room.cell().peers.len()) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "presence cannot be encoded");
                return;
            }
        };
        let head = format!("{},\"of\":\"cell\",\"from\":", self.names.event_head);
        let mut events = ByVersion::new();
        for linked in room.links_mut().iter_mut() {
            let seen = linked.seen;
            linked.seen = window.to().max(seen);
            let Some(client) = linked.client() else { continue };
            let event = events.entry(seen).or_insert_with(|| window.event_for(seen, &head, &body));
            let Some(event) = event else { continue };
            deliver(&self.node.metrics, client, Owner::RoomPresence, event);
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
        for client in room.links().clients() {
            deliver(&self.node.metrics, client, Owner::RoomUpdate, &event);
        }
    }

    /// Tells everybody to move. Returns how many were told.
    pub(super) fn tell_to_move(
        &self,
        links: &Links,
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
        links.clients().filter(|client| self.tell_one_to_move(client, reason, &to, spread)).count()
    }

    /// Tells a client to move, after a pause up to `spread`; `to` says where, as members of the event.
    pub(super) fn tell_one_to_move(&self, client: &Client, reason: &str, to: &str, spread: Duration) -> bool {
        let pause = random_pause(spread).as_millis();
        let event = format!(r#"{},"reason":"{reason}"{to},"afterMs":{pause}}}"#, self.names.event_head);
        let Ok(event) = RawValue::from_string(event) else { return false };
        deliver(&self.node.metrics, client, Owner::RoomMoved, &event);
        client.forget(&self.names.key);
        true
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
pub(super) fn deliver(metrics: &crate::metrics::Metrics, client: &Client, event: Owner, body: &RawValue) {
    if client.send(event, body) == Delivery::QueueFull {
        metrics.skipped.with_label_values(&["queue_full"]).inc();
        client.disconnect();
    }
}
