//! One window of coalesced presence: who came and went since it opened.

use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

use super::peer::{Departure, LeaveReason, PeerView};

/// What a window says of one user, at its end.
#[derive(Debug, Clone, PartialEq)]
enum Net {
    Joined(PeerView),
    Left(LeaveReason),
}

/// Changes of presence that have not been broadcast yet.
///
/// Each user appears at most once, as it stands at the window's end; so the same body is right for
/// everyone, from whatever version within the window they start.
#[derive(Debug)]
pub struct PresenceWindow {
    to: u64,
    due: Instant,
    users: BTreeMap<Arc<str>, Net>,
}

impl PresenceWindow {
    /// A window that opens with the change that made version `to`.
    pub const fn open(to: u64, due: Instant) -> Self {
        Self { to, due, users: BTreeMap::new() }
    }

    /// When it is to be broadcast.
    pub const fn due(&self) -> Instant {
        self.due
    }

    /// The version that it leads to.
    pub const fn to(&self) -> u64 {
        self.to
    }

    /// Notes a version that it reaches, whether or not others see a difference.
    pub const fn reach(&mut self, to: u64) {
        self.to = to;
    }

    /// Notes that a user is there, as it looks now.
    pub fn joined(&mut self, view: PeerView) {
        self.users.insert(Arc::clone(&view.user), Net::Joined(view));
    }

    /// Notes that a user is gone.
    pub fn left(&mut self, user: &Arc<str>, reason: LeaveReason) {
        // Somebody who came and went within the window may be in the snapshot of a third who joined
        // in between: the departure is told all the same.
        self.users.insert(Arc::clone(user), Net::Left(reason));
    }

    /// The body, without `from`: `"to":…,"joined":[…],"left":[…],"peerCount":…}`.
    pub fn body(&self, peer_count: usize) -> Result<String, serde_json::Error> {
        let mut joined: Vec<&PeerView> = Vec::new();
        let mut left: Vec<Departure> = Vec::new();
        for (user, net) in &self.users {
            match net {
                Net::Joined(view) => joined.push(view),
                Net::Left(reason) => left.push(Departure { user: Arc::clone(user), reason: *reason }),
            }
        }
        Ok(format!(
            r#""to":{},"joined":{},"left":{},"peerCount":{peer_count}}}"#,
            self.to,
            serde_json::to_string(&joined)?,
            serde_json::to_string(&left)?
        ))
    }

    /// The event for somebody who knows the cell up to `seen`; `None` if it says nothing new to them. Versions
    /// between that and the window changed nothing that anybody is told of.
    pub fn event_for(&self, seen: u64, head: &str, body: &str) -> Option<Box<RawValue>> {
        if seen >= self.to {
            return None;
        }
        RawValue::from_string(format!("{head}{seen},{body}")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::peer::Role;
    use super::*;
    use serde_json::{Value, json};

    fn view(user: &str) -> PeerView {
        PeerView {
            user: user.into(),
            name: None,
            avatar: None,
            role: Role::Guest,
            attributes: serde_json::Map::new(),
            devices: 1,
            media: Vec::new(),
            joined_at: 3,
        }
    }

    fn event(window: &PresenceWindow, seen: u64) -> Option<Value> {
        let body = window.body(2).unwrap();
        let event = window.event_for(seen, r#"{"room":"r","of":"cell","from":"#, &body)?;
        Some(serde_json::from_str(event.get()).unwrap())
    }

    #[test]
    fn each_hears_from_where_it_stands() {
        let mut window = PresenceWindow::open(5, Instant::now());
        window.joined(view("ann"));
        window.reach(6);
        window.joined(view("bob"));
        let old = event(&window, 4).unwrap();
        assert_eq!(
            (&old["from"], &old["to"], old["joined"].as_array().unwrap().len()),
            (&json!(4), &json!(6), 2)
        );
        assert_eq!(event(&window, 5).unwrap()["from"], json!(5), "who joined within the window");
        assert_eq!(
            event(&window, 2).unwrap()["from"],
            json!(2),
            "what came before the window was not for them"
        );
        assert_eq!(event(&window, 6), None, "the last to join knows it all");
    }

    #[test]
    fn a_user_is_told_once_as_it_stands_at_the_end() {
        let mut window = PresenceWindow::open(5, Instant::now());
        window.left(&"ann".into(), LeaveReason::Left);
        window.joined(view("ann"));
        window.joined(view("bob"));
        window.left(&"bob".into(), LeaveReason::StaleLeft);
        window.reach(8);
        let told = event(&window, 4).unwrap();
        assert_eq!(told["joined"], json!([{ "user": "ann", "role": "guest", "devices": 1, "joinedAt": 3 }]));
        assert_eq!(told["left"], json!([{ "user": "bob", "reason": "stale_left" }]));
    }
}
