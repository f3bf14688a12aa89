//! The handshake: a token, a place among the connections, and what happens when the client is gone.

use serde::Deserialize;
use socketioxide::SocketIo;
use socketioxide::extract::{SocketRef, TryData};
use socketioxide::handler::ConnectHandler as _;
use socketioxide::socket::DisconnectReason;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::inbound::Inbound;
use super::requests::Object;
use super::{Client, Connection, Opening};
use crate::clock::unix_seconds;
use crate::error::{ApiError, ErrorCode};
use crate::limits::TokenBucket;
use crate::node::{Node, random_pause};
use crate::room::work::Work;

/// The protocol that this server speaks; it also takes the one before.
const PROTOCOL: u32 = 1;
/// Longest device or platform in bytes.
const LABEL_BYTES: usize = 128;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Handshake {
    token: String,
    #[serde(default)]
    device: Option<Arc<str>>,
    #[serde(default)]
    platform: Option<Arc<str>>,
    #[serde(default)]
    protocol: Option<u32>,
}

/// A refused handshake. Its text is the error object as JSON, which the client finds as the error's
/// message: the library has no place for data beside it.
#[derive(Debug)]
struct RefusedHandshake(ApiError);

impl fmt::Display for RefusedHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = uuid::Uuid::now_v7().to_string();
        let object = serde_json::to_string(&self.0.with_request(&request)).map_err(|_| fmt::Error)?;
        f.write_str(&object)
    }
}

/// Registers the namespace that clients connect to.
pub fn serve(io: &SocketIo, node: &Arc<Node>) {
    let (checking, serving) = (Arc::clone(node), Arc::clone(node));
    let check = async move |socket: SocketRef, TryData(body): TryData<Object<Handshake>>| {
        let body = body
            .map_err(|_| ApiError::new(ErrorCode::Unauthenticated, "auth must be an object with a token"));
        let connection = body.and_then(|Object(body)| admit(&checking, body));
        match connection {
            Ok(connection) => {
                let connection = Arc::new(connection);
                socket.extensions.insert(Arc::clone(&connection));
                // Here and not in `connected`: the first request may be as fast as the answer to the handshake.
                socket.on_fallback(Inbound::new(Arc::clone(&checking), connection));
                Ok(())
            }
            Err(error) => {
                let result = error.code.as_str();
                checking.metrics.requests.with_label_values(&["handshake", result]).inc();
                Err(RefusedHandshake(error))
            }
        }
    };
    let connected = async move |socket: SocketRef| {
        let Some(connection) = socket.extensions.get::<Arc<Connection>>() else { return };
        let node = Arc::clone(&serving);
        node.metrics.sockets.inc();
        let client = Client::new(socket.clone(), Arc::clone(&connection));
        node.sessions.opened(&client);
        let is_over = Arc::new(AtomicBool::new(false));
        let end = move || {
            if !is_over.swap(true, Ordering::Relaxed) {
                gone(&node, &client, &connection);
            }
        };
        let ended = end.clone();
        socket.on_disconnect(async move |_: SocketRef, reason: DisconnectReason| {
            tracing::debug!(?reason, "disconnected");
            ended();
        });
        if !socket.connected() {
            // It went before anybody listened for its end.
            end();
        }
    };
    io.ns("/", connected.with(check));
}

fn admit(node: &Node, handshake: Handshake) -> Result<Connection, ApiError> {
    let limits = &node.config.limits;
    let open = usize::try_from(node.metrics.sockets.get()).unwrap_or(0);
    if open >= usize::try_from(limits.connections).unwrap_or(usize::MAX) {
        let pause = std::time::Duration::from_millis(500) + random_pause(std::time::Duration::from_secs(2));
        return Err(ApiError::new(ErrorCode::RateLimited, "this instance has all the connections it takes")
            .after(pause));
    }
    if handshake.protocol.is_some_and(|version| version != PROTOCOL) {
        return Err(ApiError::bad_request(format!("protocol must be {PROTOCOL}")));
    }
    for (what, label) in
        [("device", handshake.device.as_deref()), ("platform", handshake.platform.as_deref())]
    {
        if label.is_some_and(|it| it.is_empty() || it.len() > LABEL_BYTES || it.chars().any(char::is_control))
        {
            return Err(ApiError::bad_request(format!(
                "auth.{what} must be 1 to 128 bytes without control characters"
            )));
        }
    }
    let identity = node.verifier.verify(&handshake.token, unix_seconds()).map_err(|error| {
        tracing::debug!(error = &error as &dyn std::error::Error, "a token was refused");
        ApiError::new(ErrorCode::Unauthenticated, error.public())
    })?;
    let allowance = TokenBucket::new(limits.events_per_second, limits.events_burst);
    let Handshake { device, platform, .. } = handshake;
    let opening = Opening { device, platform, since_ms: node.redis_clock.now_ms() };
    Ok(Connection::new(identity, opening, allowance))
}

/// Tells every room that the connection is gone; each decides what that means.
fn gone(node: &Node, client: &Client, connection: &Connection) {
    node.metrics.sockets.dec();
    node.sessions.closed(client.sid());
    let rooms: Vec<_> = connection.rooms().drain().map(|(room, _)| room).collect();
    for room in rooms {
        if let Some(handle) = node.rooms.find(&room)
            && handle.tell(Work::Disconnected(client.sid())).is_err()
        {
            // A full mailbox must not make somebody immortal: the actor looks for itself.
            node.metrics.skipped.with_label_values(&["mailbox_full"]).inc();
        }
    }
    let watched: Vec<_> = connection.watched().drain().collect();
    node.watches.remove(node, client.sid(), &watched);
    node.watches.stop_listing(client.sid());
}
