//! Who is connected to this instance: each connection, by its socket and by its user, and until when its
//! token lets it be.
//!
//! The book of them is pure. One task follows the expiry of tokens ([`expiry`]); one tells Redis which sessions
//! are here, so that other instances find them ([`record`]); what those send is in [`control`].

mod book;
pub mod control;
pub mod expiry;
pub mod notices;
pub mod record;
mod store;

use key_prefix::{AppCode, UserId};
use prometheus::IntCounterVec;
use serde_json::value::RawValue;
use socketioxide::socket::Sid;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

use self::book::Book;
use super::{Client, Delivery};
use crate::paths::{Class as _, Control};

/// Openings and closings that may wait to be told to Redis.
const TURNS: usize = 8_192;

/// A user of an app.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserKey {
    /// The app.
    pub app: AppCode,
    /// The user in it.
    pub user: UserId,
}

/// What Redis is to be told of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Turn {
    Opened { sid: Sid, user: UserKey, json: String },
    Closed { sid: Sid, user: UserKey },
}

#[derive(Debug, Default)]
struct Held {
    book: Book<Client>,
    turns: VecDeque<Turn>,
    /// Turns were lost: Redis is to be told of every session anew.
    is_behind: bool,
}

/// The connections of this instance.
#[derive(Debug)]
pub struct Sessions {
    held: Mutex<Held>,
    skipped: IntCounterVec,
    /// Something falls due earlier than what was waited for.
    earlier: Notify,
    /// There are turns to tell.
    turned: Notify,
}

impl Sessions {
    /// Nobody is connected; what is not delivered is counted by reason.
    pub fn new(skipped: IntCounterVec) -> Self {
        Self { held: Mutex::default(), skipped, earlier: Notify::new(), turned: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, reason: &str) {
        self.skipped.with_label_values(&[reason]).inc();
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.lock().book.len()
    }

    /// Whether nobody is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A connection began.
    pub(super) fn opened(&self, client: &Client) {
        self.noted(client, false);
    }

    /// A connection showed another token.
    pub(super) fn renewed(&self, client: &Client) {
        self.noted(client, true);
    }

    fn noted(&self, client: &Client, only_known: bool) {
        let mut held = self.lock();
        if only_known && !held.book.has(client.sid()) {
            return;
        }
        // Read under the lock: a token that is shown meanwhile is noted after this one.
        let identity = client.connection.identity();
        let user = UserKey { app: identity.app.clone(), user: identity.user.clone() };
        let json = record::json(&client.connection);
        let expires_at_ms = identity.expires_at_s.saturating_mul(1_000);
        let is_earlier = held.book.open(client.sid(), user.clone(), client.clone(), expires_at_ms);
        self.turn(&mut held, Turn::Opened { sid: client.sid(), user, json });
        drop(held);
        if is_earlier {
            self.earlier.notify_one();
        }
    }

    /// A connection is gone.
    pub(super) fn closed(&self, sid: Sid) {
        let mut held = self.lock();
        if let Some(user) = held.book.close(sid) {
            self.turn(&mut held, Turn::Closed { sid, user });
        }
    }

    fn turn(&self, held: &mut Held, turn: Turn) {
        if held.turns.len() >= TURNS {
            held.is_behind = true;
            self.count("sessions_queue");
        } else {
            held.turns.push_back(turn);
        }
        self.turned.notify_one();
    }

    /// The connections of a user.
    pub fn of_user(&self, app: &AppCode, user: &UserId) -> Vec<Client> {
        let key = UserKey { app: app.clone(), user: user.clone() };
        self.lock().book.of_user(&key).cloned().collect()
    }

    /// Sends an event to every connection of a user here; returns how many it is on its way to.
    pub fn tell(
        &self,
        app: &AppCode,
        user: &UserId,
        event: Control,
        body: &RawValue,
        except: Option<&str>,
    ) -> usize {
        let mut told = 0;
        let is_told = |client: &Client| except.is_none_or(|sid| client.sid().as_str() != sid);
        for client in self.of_user(app, user).into_iter().filter(is_told) {
            match client.send(event, body) {
                Delivery::Sent => told += 1,
                Delivery::Closed => {}
                Delivery::QueueFull => {
                    tracing::debug!(event = event.name(), "a client does not read fast enough");
                    self.count("queue_full");
                    client.disconnect();
                }
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Opts;

    #[test]
    fn i_22_what_a_full_queue_drops_is_counted_and_told_anew() {
        let skipped = IntCounterVec::new(Opts::new("skipped", "by reason"), &["reason"]).unwrap();
        let sessions = Sessions::new(skipped.clone());
        let user = UserKey { app: AppCode::new("school").unwrap(), user: UserId::new("ann").unwrap() };
        let mut held = sessions.lock();
        for _ in 0..TURNS + 2 {
            sessions.turn(&mut held, Turn::Closed { sid: Sid::ZERO, user: user.clone() });
        }
        assert_eq!((held.turns.len(), held.is_behind), (TURNS, true));
        assert_eq!(skipped.with_label_values(&["sessions_queue"]).get(), 2);
    }
}
