//! `media:publish` and `media:subscribe`: offers and answers of the embedded media server. `media:grant`: what lets a
//! member use an external one, made anew.

use media_bridge::{MediaError, PeerRef, RoomRef};

use super::dispatch::{Answer, Asking, raw};
use super::requests::{InRoom, Media};
use crate::error::{ApiError, ErrorCode};
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
    let Some(handle) = asking.node.rooms.find(&room) else { return Err(not_in_room(request.room.as_str())) };
    match handle.ask(|reply| Work::Grant(sid, reply)).await {
        Ok(grant) => {
            raw(format!(r#"{{"ok":true,"media":{}}}"#, serde_json::to_string(&grant).unwrap_or_default()))
        }
        Err(Refusal::Gone) => Err(not_in_room(request.room.as_str())),
        Err(Refusal::Api(error)) => Err(error),
    }
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
