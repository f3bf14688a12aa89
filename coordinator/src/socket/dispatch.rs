//! From an event to who handles it, and back to an ack.

use key_prefix::{RoomId, RoomKey};
use redis_scripts::SettingsVersion;
use serde_json::value::RawValue;
use socketioxide::extract::AckSender;
use std::sync::Arc;

use super::commands::command;
use super::inbound::Request;
use super::media::Offer;
use super::requests::{self, body};
use super::{Client, Connection, join, lists, media, refresh, watch};
use crate::auth::TokenRole;
use crate::classroom::guest::GuestPatch;
use crate::classroom::settings::SettingsPatch;
use crate::clock::unix_seconds;
use crate::config::App;
use crate::error::{ApiError, ErrorCode};
use crate::node::Node;
use crate::room::gateway;
use crate::room::peer::Role;
use crate::room::work::{GuestChange, Refusal, SettingsChange, Work, not_in_room};

/// Users in a page of `room:peers` at most.
const PEERS_PAGE: usize = 200;

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
        let identity = self.connection().identity();
        if !identity.allows_room(&room) {
            return Err(ApiError::new(ErrorCode::Forbidden, "the token is for another room"));
        }
        Ok(RoomKey::new(identity.app.clone(), room))
    }

    /// Whether it is a host of a room: by its role where it is a member, and never beyond its token.
    pub(super) fn is_host(&self, room: &RoomKey) -> bool {
        let joined = self.connection().rooms().get(room).copied();
        self.connection().identity().role_max == TokenRole::Host
            && joined.is_none_or(|role| role == Role::Host)
    }

    /// The room that it asks to change; refused where another connection of its user took its place.
    pub(super) fn room_to_change(&self, room: &RoomId) -> Result<RoomKey, ApiError> {
        let key = self.room(room.clone())?;
        if self.connection().evicted().contains(&key) {
            return Err(not_in_room(room.as_str()));
        }
        Ok(key)
    }

    pub(super) fn require_watcher(&self) -> Result<(), ApiError> {
        match self.connection().identity().role_max {
            TokenRole::Host | TokenRole::Monitor => Ok(()),
            TokenRole::Guest => {
                Err(ApiError::new(ErrorCode::Forbidden, "only hosts and monitors may do this"))
            }
        }
    }
}

/// Answers one request.
pub(super) async fn answer(node: &Arc<Node>, client: &Client, mut request: Request) {
    let identity = client.connection.identity();
    let answer = match node.app(identity.app.as_str()) {
        Some(app) if identity.expires_at_s > unix_seconds() => {
            let asking = Asking { node: Arc::clone(node), client: client.clone(), app };
            if request.event.starts_with("media:") {
                // Negotiation with a media server takes its time, and nothing else of the client waits for it.
                tokio::spawn(async move {
                    let answer = handle(&asking, &mut request).await;
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

macro_rules! requests {
    (($asking:ident, $request:ident) $($event:literal => $answer:expr,)+ unbuilt $($unbuilt:literal)+) => {
        /// Every event that has a handler.
        const HANDLED: &[&str] = &[$($event),+];

        async fn handle($asking: &Asking, $request: &mut Request) -> Answer {
            match $request.event.as_str() {
                $($event => $answer,)+
                known @ ($($unbuilt)|+) => {
                    let message = format!("{known} is not built in this version");
                    Err(ApiError::new(ErrorCode::NotSupported, message))
                }
                unknown => {
                    let shown: String = unknown.chars().take(40).collect();
                    Err(ApiError::bad_request(format!("there is no event {shown:?}")))
                }
            }
        }
    };
}

requests! {
    (asking, request)
    "room:join" => join::join(asking, body(request)?).await,
    "room:leave" => join::leave(asking, request).await,
    "room:heartbeat" => heartbeat(asking, body(request)?).await,
    "room:peers" => peers(asking, body(request)?).await,
    "room:update" => update(asking, body(request)?).await,
    "guest:update" => guest_update(asking, body(request)?).await,
    "peer:update" => command::<requests::PeerUpdate>(asking, request).await,
    "room:kick" => command::<requests::Kick>(asking, request).await,
    "room:unban" => command::<requests::Unban>(asking, request).await,
    "room:role" => command::<requests::SetRole>(asking, request).await,
    "room:lock" => command::<requests::LockDoor>(asking, request).await,
    "room:close" => command::<requests::Close>(asking, request).await,
    "room:watch" => watch::watch(asking, body(request)?).await,
    "room:unwatch" => watch::unwatch(asking, body(request)?).await,
    "rooms:list" => lists::list(asking, body(request)?).await,
    "auth:refresh" => refresh::refresh(asking, body(request)?).await,
    "mic:up" => command::<requests::MicUp>(asking, request).await,
    "mic:down" => command::<requests::MicDown>(asking, request).await,
    "mic:move" => command::<requests::MicMove>(asking, request).await,
    "mic:confirm" => command::<requests::MicConfirm>(asking, request).await,
    "mic:lock" => command::<requests::MicLock>(asking, request).await,
    "mic:mute" => command::<requests::MicMute>(asking, request).await,
    "mic:muteAll" => command::<requests::MicMuteAll>(asking, request).await,
    "mic:seats" => command::<requests::MicSeats>(asking, request).await,
    "mic:request" => command::<requests::MicRequest>(asking, request).await,
    "mic:invite" => command::<requests::MicInvite>(asking, request).await,
    "mic:respond" => command::<requests::MicRespond>(asking, request).await,
    "call:invite" => command::<requests::CallInvite>(asking, request).await,
    "call:accept" => command::<requests::CallAccept>(asking, request).await,
    "call:decline" => command::<requests::CallDecline>(asking, request).await,
    "call:hangup" => command::<requests::CallHangup>(asking, request).await,
    "media:grant" => media::grant(asking, body(request)?).await,
    "media:publish" => media::negotiate(asking, Offer::Publish, body(request)?).await,
    "media:subscribe" => media::negotiate(asking, Offer::Subscribe, body(request)?).await,
    unbuilt "message:send" "message:ack" "message:history"
}

async fn heartbeat(asking: &Asking, body: requests::InRoom) -> Answer {
    let room = asking.room(body.room.clone())?;
    let sid = asking.client.sid();
    let Some(handle) = asking.node.rooms.find(&room) else { return Err(not_in_room(body.room.as_str())) };
    match handle.ask(|reply| Work::Membership(sid, reply)).await {
        Ok(_) => raw(format!(r#"{{"ok":true,"serverTime":{}}}"#, asking.node.redis_clock.now_ms())),
        Err(Refusal::Gone) => Err(not_in_room(body.room.as_str())),
        Err(Refusal::Api(error)) => Err(error),
    }
}

async fn peers(asking: &Asking, body: requests::Peers) -> Answer {
    let room = asking.room(body.room.clone())?;
    let sid = asking.client.sid();
    let limit = body.limit.unwrap_or(PEERS_PAGE).clamp(1, PEERS_PAGE);
    let after = body.cursor.as_deref().map(str::to_owned);
    let Some(handle) = asking.node.rooms.find(&room) else { return Err(not_in_room(body.room.as_str())) };
    match handle.ask(|reply| Work::Peers(sid, after, limit, reply)).await {
        Ok(answer) => Ok(answer),
        Err(Refusal::Gone) => Err(not_in_room(body.room.as_str())),
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
        by: Some(asking.connection().identity().user.shared()),
    };
    updated(gateway::update_settings(&asking.node, &room, change).await?)
}

async fn guest_update(asking: &Asking, body: requests::GuestUpdate) -> Answer {
    let room = asking.room_to_change(&body.room)?;
    let identity = asking.connection().identity();
    let me = &identity.user;
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
        by: Some(me.shared()),
    };
    updated(gateway::update_guest(&asking.node, &room, change).await?)
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
