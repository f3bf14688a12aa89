//! Socket.IO: who is connected, what they ask, what they are told.
//!
//! A connection is checked at its handshake ([`handshake`]), then asks one thing after another: its
//! requests wait in a bounded queue and are answered in order ([`inbound`]), each validated into a typed
//! body ([`requests`]) before anything acts on it ([`dispatch`]); one that commands a room becomes an order
//! for its owner ([`commands`]). Who is connected to this instance, and until when, is in [`sessions`].

pub mod commands;
pub mod dispatch;
pub mod handshake;
pub mod inbound;
pub mod join;
pub mod lists;
pub mod media;
pub mod refresh;
pub mod requests;
pub mod sessions;
pub mod watch;

use key_prefix::RoomKey;
use serde_json::value::RawValue;
use socketioxide::SendError;
use socketioxide::SocketError;
use socketioxide::extract::SocketRef;
use socketioxide::socket::Sid;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use crate::auth::Identity;
use crate::limits::TokenBucket;
use crate::paths::{Class, Owner};
use crate::room::names::RoomNames;
use crate::room::peer::Role;

/// From one attempt to close a connection whose queue is full to the next.
const DISCONNECT_RETRY: Duration = Duration::from_millis(50);

/// What became of an event that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It is on its way.
    Sent,
    /// The client does not read fast enough.
    QueueFull,
    /// The client is gone.
    Closed,
}

/// A connected client. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    socket: SocketRef,
    connection: Arc<Connection>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.socket.id)
    }
}

impl Client {
    /// The client of this socket.
    pub const fn new(socket: SocketRef, connection: Arc<Connection>) -> Self {
        Self { socket, connection }
    }

    /// The connection's id.
    pub fn sid(&self) -> Sid {
        self.socket.id
    }

    /// Whether it is still there.
    pub fn is_connected(&self) -> bool {
        self.socket.connected()
    }

    /// Sends an event, which has come by the path of its class; never waits.
    pub fn send(&self, class: impl Class, body: &RawValue) -> Delivery {
        if self.connection.is_doomed.load(Ordering::Relaxed) {
            return Delivery::Closed;
        }
        let event = class.name();
        match self.socket.emit(event, body) {
            Ok(()) => Delivery::Sent,
            Err(SendError::Socket(SocketError::InternalChannelFull)) => Delivery::QueueFull,
            Err(SendError::Socket(SocketError::Closed)) => Delivery::Closed,
            Err(SendError::Serialize(error)) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    event,
                    "an event cannot be encoded"
                );
                Delivery::Closed
            }
        }
    }

    /// Closes the connection. What is sent to it from now on is dropped.
    ///
    /// The library refuses while its queue is full: then it is closed once it reads again, or by its
    /// missing heartbeats.
    pub fn disconnect(&self) {
        let is_closed = self.socket.clone().disconnect().is_ok();
        if is_closed || self.connection.is_doomed.swap(true, Ordering::Relaxed) {
            return;
        }
        let socket = self.socket.clone();
        tokio::spawn(async move {
            while socket.connected() && socket.clone().disconnect().is_err() {
                tokio::time::sleep(DISCONNECT_RETRY).await;
            }
        });
    }

    /// It is no longer a member of the room.
    pub fn forget(&self, room: &RoomKey) {
        self.connection.rooms().remove(room);
    }

    /// Notes its role in a room that it is a member of.
    pub fn has_role(&self, room: &RoomKey, role: Role) {
        if let Some(known) = self.connection.rooms().get_mut(room) {
            *known = role;
        }
    }

    /// Tells it that its session in a room is over: until it joins again it changes nothing there.
    pub fn evict(&self, names: &RoomNames, reason: &str) {
        self.forget(&names.key);
        self.connection.evicted().insert(names.key.clone());
        if let Ok(body) = RawValue::from_string(format!(r#"{},"reason":"{reason}"}}"#, names.event_head)) {
            self.send(Owner::Replaced, &body);
        }
    }
}

/// What a handshake says beside the token.
#[derive(Debug, Clone, Default)]
pub struct Opening {
    /// The device.
    pub device: Option<Arc<str>>,
    /// The platform.
    pub platform: Option<Arc<str>>,
    /// When it came, by Redis's clock.
    pub since_ms: u64,
}

/// What is known of a connection.
#[derive(Debug)]
pub struct Connection {
    /// The device that its handshake named.
    pub device: Option<Arc<str>>,
    /// The platform that its handshake named.
    pub platform: Option<Arc<str>>,
    /// When it began, by Redis's clock.
    pub since_ms: u64,
    /// Requests that it may make.
    pub allowance: TokenBucket,
    identity: RwLock<Arc<Identity>>,
    queue: Mutex<inbound::Queue>,
    rooms: Mutex<HashMap<RoomKey, Role>>,
    watched: Mutex<HashSet<RoomKey>>,
    evicted: Mutex<HashSet<RoomKey>>,
    is_doomed: AtomicBool,
}

impl Connection {
    /// A connection that has done nothing yet.
    pub fn new(identity: Identity, opening: Opening, allowance: TokenBucket) -> Self {
        let Opening { device, platform, since_ms } = opening;
        Self {
            device,
            platform,
            since_ms,
            allowance,
            identity: RwLock::new(Arc::new(identity)),
            queue: Mutex::default(),
            rooms: Mutex::default(),
            watched: Mutex::default(),
            evicted: Mutex::default(),
            is_doomed: AtomicBool::new(false),
        }
    }

    /// Who it is, by the token that it showed last.
    pub fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.identity.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// It showed another token.
    fn identify(&self, identity: Arc<Identity>) {
        *self.identity.write().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    /// Rooms that it is in or joining, with its role there.
    pub fn rooms(&self) -> MutexGuard<'_, HashMap<RoomKey, Role>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rooms that it watches.
    pub fn watched(&self) -> MutexGuard<'_, HashSet<RoomKey>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rooms where another connection of its user took its place.
    fn evicted(&self) -> MutexGuard<'_, HashSet<RoomKey>> {
        self.evicted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, inbound::Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
