//! From an event to who handles it, and back to an ack.

use key_prefix::{RoomId, RoomKey};
use redis_scripts::SettingsVersion;
use serde_json::value::RawValue;
use socketioxide::extract::AckSender;
use std::sync::Arc;

use super::inbound::Request;
use super::requests::{self, body};
use super::{Client, Connection, join, lists, media, watch};
use crate::auth::TokenRole;
use crate::classroom::guest::GuestPatch;
use crate::classroom::settings::SettingsPatch;
use crate::clock::unix_seconds;
use crate::config::App;
use crate::error::{ApiError, ErrorCode};
use crate::node::Node;
use crate::room::actor::refusal_of;
use crate::room::names::RoomNames;
use crate::room::owned::RemoteRoom;
use crate::room::peer::Role;
use crate::room::work::{GuestChange, Refusal, SettingsChange, Work, not_in_room};

/// Users in a page of `room:peers` at most.
const PEERS_PAGE: usize = 200;

/// Events of the protocol that this version does not serve yet.
const KNOWN: [&str; 25] = [
    "peer:update",
    "room:kick",
    "room:unban",
    "room:role",
    "room:lock",
    "room:close",
    "auth:refresh",
    "mic:up",
    "mic:down",
    "mic:move",
    "mic:confirm",
    "mic:lock",
    "mic:mute",
    "mic:muteAll",
    "mic:seats",
    "mic:request",
    "mic:invite",
    "mic:respond",
    "message:send",
    "message:ack",
    "message:history",
    "call:invite",
    "call:accept",
    "call:decline",
    "call:hangup",
];

/// What a handler answers: the whole body of a successful ack.
pub(super) type Answer = Result<Box<RawValue>, ApiError>;

/// Who asks, and where.
#[derive(Debug, Clone)]
pub(super) struct Asking {
    pub node: Arc<Node>,
    pub client: Client,
    pub app: Arc<App>,
}

impl Asking {
    pub(super) fn connection(&self) -> &Connection {
        &self.client.connection
    }

    pub(super) fn room(&self, room: RoomId) -> Result<RoomKey, ApiError> {
        let identity = &self.connection().identity;
        if !identity.allows_room(&room) {
            return Err(ApiError::new(ErrorCode::Forbidden, "the token is for another room"));
        }
        Ok(RoomKey::new(identity.app.clone(), room))
    }

    /// Its role in a room: the one that it joined with, else the highest that its token allows.
    pub(super) fn is_host(&self, room: &RoomKey) -> bool {
        let joined = self.connection().rooms().get(room).copied();
        joined.map_or(self.connection().identity.role_max == TokenRole::Host, |role| role == Role::Host)
    }

    /// The room that it asks to change; refused where another connection of its user took its place.
    fn room_to_change(&self, room: &RoomId) -> Result<RoomKey, ApiError> {
        let key = self.room(room.clone())?;
        if self.connection().evicted().contains(&key) {
            return Err(not_in_room(room));
        }
        Ok(key)
    }

    pub(super) fn require_watcher(&self) -> Result<(), ApiError> {
        match self.connection().identity.role_max {
            TokenRole::Host | TokenRole::Monitor => Ok(()),
            TokenRole::Guest => {
                Err(ApiError::new(ErrorCode::Forbidden, "only hosts and monitors may do this"))
            }
        }
    }
}

/// Answers one request.
pub(super) async fn answer(node: &Arc<Node>, client: &Client, mut request: Request) {
    let identity = &client.connection.identity;
    let answer = match node.app(identity.app.as_str()) {
        Some(app) if identity.expires_at_s > unix_seconds() => {
            let asking = Asking { node: Arc::clone(node), client: client.clone(), app };
            if request.event.starts_with("media:") {
                // Negotiation with a media server takes its time, and nothing else of the client waits for it.
                tokio::spawn(async move {
                    let answer = media::negotiate(&asking, &mut request).await;
                    acknowledge(&asking.node, request, answer);
                });
                return;
            }
            handle(&asking, &mut request).await
        }
        Some(_) => Err(ApiError::new(ErrorCode::Unauthenticated, "the token has expired")),
        None => Err(ApiError::new(ErrorCode::Unauthenticated, "the app is not served here")),
    };
    acknowledge(node, request, answer);
}

fn acknowledge(node: &Node, request: Request, answer: Answer) {
    let is_known = HANDLED.contains(&request.event.as_str());
    let event = if is_known { request.event.as_str() } else { "other" };
    match answer {
        Ok(body) => {
            node.metrics.requests.with_label_values(&[event, "ok"]).inc();
            _ = request.ack.send(&body);
        }
        Err(error) => {
            node.metrics.requests.with_label_values(&[event, error.code.as_str()]).inc();
            refuse(request.ack, &error, &request.event);
        }
    }
}

/// Acks an error, with a request id that finds it in the log.
pub(super) fn refuse(ack: AckSender, error: &ApiError, event: &str) {
    let request = uuid::Uuid::now_v7().to_string();
    if error.code == ErrorCode::Internal {
        tracing::error!(request, event, message = %error.message, "a request failed");
    } else {
        tracing::debug!(request, event, code = error.code.as_str(), message = %error.message, "refused");
    }
    let object = serde_json::to_string(&error.with_request(&request)).unwrap_or_default();
    if let Ok(body) = RawValue::from_string(format!(r#"{{"ok":false,"error":{object}}}"#)) {
        _ = ack.send(&body);
    }
}

const HANDLED: [&str; 11] = [
    "room:join",
    "room:leave",
    "room:heartbeat",
    "room:peers",
    "room:update",
    "guest:update",
    "room:watch",
    "room:unwatch",
    "rooms:list",
    "media:publish",
    "media:subscribe",
];

async fn handle(asking: &Asking, request: &mut Request) -> Answer {
    match request.event.as_str() {
        "room:join" => join::join(asking, body(request)?).await,
        "room:leave" => join::leave(asking, body(request)?).await,
        "room:heartbeat" => heartbeat(asking, body(request)?).await,
        "room:peers" => peers(asking, body(request)?).await,
        "room:update" => update(asking, body(request)?).await,
        "guest:update" => guest_update(asking, body(request)?).await,
        "room:watch" => watch::watch(asking, body(request)?).await,
        "room:unwatch" => watch::unwatch(asking, body(request)?).await,
        "rooms:list" => lists::list(asking, body(request)?).await,
        known if KNOWN.contains(&known) => {
            Err(ApiError::new(ErrorCode::NotSupported, format!("{known} is not built in this version")))
        }
        unknown => {
            let shown: String = unknown.chars().take(40).collect();
            Err(ApiError::bad_request(format!("there is no event {shown:?}")))
        }
    }
}

async fn heartbeat(asking: &Asking, body: requests::InRoom) -> Answer {
    let room = asking.room(body.room.clone())?;
    let sid = asking.client.sid();
    let Some(handle) = asking.node.rooms.find(&room) else { return Err(not_in_room(&body.room)) };
    match handle.ask(|reply| Work::Membership(sid, reply)).await {
        Ok(_) => raw(format!(r#"{{"ok":true,"serverTime":{}}}"#, asking.node.redis_clock.now_ms())),
        Err(Refusal::Gone) => Err(not_in_room(&body.room)),
        Err(Refusal::Api(error)) => Err(error),
    }
}

async fn peers(asking: &Asking, body: requests::Peers) -> Answer {
    let room = asking.room(body.room.clone())?;
    let sid = asking.client.sid();
    let limit = body.limit.unwrap_or(PEERS_PAGE).clamp(1, PEERS_PAGE);
    let after = body.cursor.as_deref().map(str::to_owned);
    let Some(handle) = asking.node.rooms.find(&room) else { return Err(not_in_room(&body.room)) };
    match handle.ask(|reply| Work::Peers(sid, after, limit, reply)).await {
        Ok(answer) => Ok(answer),
        Err(Refusal::Gone) => Err(not_in_room(&body.room)),
        Err(Refusal::Api(error)) => Err(error),
    }
}

async fn update(asking: &Asking, body: requests::Update) -> Answer {
    let room = asking.room_to_change(&body.room)?;
    if !asking.is_host(&room) {
        return Err(ApiError::new(ErrorCode::Forbidden, "only a host may change settings"));
    }
    let limits = &asking.node.config.limits;
    let change = SettingsChange {
        patch: SettingsPatch::validate(body.settings, limits.json_depth)?,
        if_version: body.if_version.map(SettingsVersion::new),
        max_bytes: limits.custom_bytes,
        by: asking.connection().identity.user.shared(),
    };
    if let Some(handle) = asking.node.rooms.find(&room) {
        let work = Box::new(change.clone());
        match handle.ask(|reply| Work::Settings(work, reply)).await {
            Ok(sv) => return updated(sv),
            Err(Refusal::Api(error)) => return Err(error),
            Err(Refusal::Gone) => {}
        }
    }
    let store = &asking.node.store;
    let remote = RemoteRoom::new(Arc::new(RoomNames::new(room, &store.keys)));
    let (sv, _) = refusal_of(remote.update_settings(store, &change).await?)?;
    updated(sv)
}

async fn guest_update(asking: &Asking, body: requests::GuestUpdate) -> Answer {
    let room = asking.room_to_change(&body.room)?;
    let me = &asking.connection().identity.user;
    let user = body.user.unwrap_or_else(|| me.clone());
    let is_host = asking.is_host(&room);
    if !is_host && user != *me {
        return Err(ApiError::new(ErrorCode::Forbidden, "only a host may change the state of others"));
    }
    let limits = &asking.node.config.limits;
    let change = GuestChange {
        user: user.shared(),
        patch: GuestPatch::validate(body.state, is_host, limits.json_depth)?,
        if_version: body.if_version.map(SettingsVersion::new),
        must_be_present: !is_host,
        max_bytes: limits.guest_custom_bytes,
        max_guests: limits.guests_per_room,
        by: me.shared(),
    };
    if let Some(handle) = asking.node.rooms.find(&room) {
        let work = Box::new(change.clone());
        match handle.ask(|reply| Work::Guest(work, reply)).await {
            Ok(sv) => return updated(sv),
            Err(Refusal::Api(error)) => return Err(error),
            Err(Refusal::Gone) => {}
        }
    }
    let store = &asking.node.store;
    let remote = RemoteRoom::new(Arc::new(RoomNames::new(room, &store.keys)));
    let (sv, _) = refusal_of(remote.update_guest(store, &change).await?)?;
    updated(sv)
}

fn updated(sv: SettingsVersion) -> Answer {
    raw(format!(r#"{{"ok":true,"version":{{"settings":{sv}}}}}"#))
}

pub(super) fn raw(text: String) -> Answer {
    RawValue::from_string(text).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an answer is no JSON");
        ApiError::new(ErrorCode::Internal, "the answer cannot be encoded")
    })
}
