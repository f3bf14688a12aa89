//! `media:publish` and `media:subscribe`: offers and answers of the embedded media server. `media:grant`: what lets a
//! member use an external one, made anew, or a monitor listen there.

use key_prefix::RoomKey;
use media_bridge::{Generation, Grant, MediaError, Member, PeerRef, Permissions, RoomRef, Router};
use std::sync::Arc;
use std::time::Duration;

use super::dispatch::{Answer, Asking, raw};
use super::requests::{InRoom, Media};
use crate::error::{ApiError, ErrorCode};
use crate::media::Placed;
use crate::room::desk::with_ice;
use crate::room::gateway;
use crate::room::names::json_string;
use crate::room::work::{Membership, Refusal, Work, not_in_room};

/// What a client offers to the media server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Publish,
    Subscribe,
}

pub(super) async fn negotiate(asking: &Asking, what: Offer, offer: Media) -> Answer {
    let Some(media) = asking.node.embedded_of(&asking.app) else {
        return Err(ApiError::new(ErrorCode::NotSupported, "this app has no embedded media server"));
    };
    let room = asking.room(offer.room.clone())?;
    let sid = asking.client.sid();
    let Some(handle) = asking.node.rooms.find(&room) else { return Err(not_in_room(offer.room.as_str())) };
    let Membership { peer, user, .. } = match handle.ask(|reply| Work::Membership(sid, reply)).await {
        Ok(membership) => membership,
        Err(Refusal::Gone) => return Err(not_in_room(offer.room.as_str())),
        Err(Refusal::Api(error)) => return Err(error),
    };
    let (room, peer) = (RoomRef::new(room.app(), room.room()), PeerRef::new(user, peer));
    if what == Offer::Publish {
        let answer = media.publish(&room, &peer, &offer.sdp).await.map_err(|error| refusal(&error))?;
        return raw(format!(r#"{{"ok":true,"sdp":{}}}"#, json_string(&answer)));
    }
    let answer = media.subscribe(&room, &peer, &offer.sdp).await.map_err(|error| refusal(&error))?;
    let mut body = serde_json::to_value(&answer).unwrap_or_default();
    body["ok"] = true.into();
    raw(body.to_string())
}

/// A fresh grant: the one that the client has may have ended.
pub(super) async fn grant(asking: &Asking, request: InRoom) -> Answer {
    if !asking.app.has_external_media() {
        return Err(ApiError::new(ErrorCode::NotSupported, "this app has no external media server"));
    }
    let room = asking.room(request.room.clone())?;
    let sid = asking.client.sid();
    let grant = if asking.node.watches.monitors(&room, sid) {
        listen(asking, &room).await?
    } else {
        let Some(handle) = asking.node.rooms.find(&room) else {
            return Err(not_in_room(request.room.as_str()));
        };
        match handle.ask(|reply| Work::Grant(sid, reply)).await {
            Ok(grant) => grant,
            Err(Refusal::Gone) => return Err(not_in_room(request.room.as_str())),
            Err(Refusal::Api(error)) => return Err(error),
        }
    };
    raw(format!(r#"{{"ok":true,"media":{}}}"#, serde_json::to_string(&grant).unwrap_or_default()))
}

/// Pauses between the attempts to put a monitor out.
const PUT_OUT: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// A monitor that was let into a room's router; put out when it is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    at: Placed,
    name: Arc<str>,
}

impl Listening {
    pub(super) const fn new(at: Placed, name: Arc<str>) -> Self {
        Self { at, name }
    }

    /// Its name, if it is in this router.
    pub(super) fn name_at(&self, at: &Placed) -> Option<Arc<str>> {
        (self.at.router == at.router).then(|| Arc::clone(&self.name))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (at, name) = (self.at.clone(), Arc::clone(&self.name));
        runtime.spawn(async move {
            for pause in PUT_OUT {
                let Err(error) = at.node.server().remove_participant(&at.router, &name).await else { return };
                tracing::debug!(error = &error as &dyn std::error::Error, "a monitor may still listen");
                tokio::time::sleep(pause).await;
            }
            tracing::warn!(node = %at.node.name, "a monitor could not be put out");
        });
    }
}

/// Lets a monitor listen. It is no peer of the room, so this instance lets it in and puts it out, whoever owns the room.
pub(super) async fn listen(asking: &Asking, room: &RoomKey) -> Result<Grant, ApiError> {
    let unavailable = || ApiError::new(ErrorCode::MediaUnavailable, "the room has no media router just now");
    let (node, sid) = (&asking.node, asking.client.sid());
    let remote = gateway::read(node, room).await?.ok_or_else(|| not_in_room(room.room()))?;
    let record = remote.cell().router.as_ref().ok_or_else(unavailable)?;
    let server = node.media.nodes.find(&record.node).ok_or_else(unavailable)?;
    let room_ref = RoomRef::new(room.app(), room.room());
    let router = Router {
        room: room_ref.clone(),
        name: Arc::clone(&record.name),
        generation: Generation(record.generation),
    };
    let at = Placed { node: Arc::clone(server), router };
    let identity = asking.connection().identity();
    let who = PeerRef::new(identity.user.shared(), sid.as_str());
    // Under another name each time that it comes, so that its earlier stay is put out and not this one.
    let known = node.watches.listens_as(room, sid, &at);
    let names = node.media.monitors(&at.node.name).ok_or_else(unavailable)?;
    let name = known.unwrap_or_else(|| names.name(&at.router.name, &uuid::Uuid::new_v4().to_string()));
    let member = Member { name: Arc::clone(&name), peer: who, display: None };
    let granted = at.node.server().grant(&at.router, &member, Permissions::LISTEN).await;
    let grant = granted.map_err(|error| refusal(&error))?;
    node.watches.listens(room, sid, at, name);
    Ok(with_ice(node, grant, &member))
}

fn refusal(error: &MediaError) -> ApiError {
    let code = match error {
        MediaError::BadSdp { .. } => ErrorCode::BadRequest,
        MediaError::NotPermitted { .. } => ErrorCode::Forbidden,
        MediaError::Timeout { .. } => ErrorCode::Timeout,
        MediaError::StaleGeneration { .. } => ErrorCode::LeaseLost,
        _ => ErrorCode::MediaUnavailable,
    };
    ApiError::new(code, error.to_string())
}
