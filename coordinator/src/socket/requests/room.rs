//! Bodies of `room:*` but moderation, `rooms:list`, `guest:update`, `peer:update`, `auth:refresh`, `media:*`.

use key_prefix::{RoomId, UserId};
use room_cell::Command;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

use crate::classroom::check_depth;
use crate::error::{ApiError, ErrorCode};
use crate::socket::commands::{Asks, Commanding, Reach, Wanted};

/// `room:join`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct Join {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default)]
    pub role: Option<WantedRole>,
    #[serde(default)]
    pub attributes: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "super::label")]
    pub resume: Option<Arc<str>>,
    #[serde(default)]
    pub hops: u32,
    #[serde(default, rename = "id", deserialize_with = "super::unneeded_id")]
    _id: (),
}

/// What a client wants to be in a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::socket) enum WantedRole {
    Guest,
    Host,
    Monitor,
}

/// `room:leave`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct Leave {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for Leave {
    const REACH: Reach = Reach::Member;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        Ok(Wanted { room: self.room, id: self.id, command: Command::Leave })
    }
}

/// `room:heartbeat`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct InRoom {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default, rename = "id", deserialize_with = "super::unneeded_id")]
    _id: (),
}

/// `room:peers`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct Peers {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default, deserialize_with = "super::label")]
    pub cursor: Option<Arc<str>>,
    #[serde(default)]
    pub limit: Option<usize>,
    #[serde(default, rename = "id", deserialize_with = "super::unneeded_id")]
    _id: (),
}

/// `room:update`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object", rename_all = "camelCase")]
pub(in crate::socket) struct Update {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    pub settings: Map<String, Value>,
    #[serde(default)]
    pub if_version: Option<u64>,
    #[serde(default, rename = "id", deserialize_with = "super::unneeded_id")]
    _id: (),
}

/// `guest:update`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object", rename_all = "camelCase")]
pub(in crate::socket) struct GuestUpdate {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default, deserialize_with = "super::some_user")]
    pub user: Option<UserId>,
    pub state: Map<String, Value>,
    #[serde(default)]
    pub if_version: Option<u64>,
    #[serde(default, rename = "id", deserialize_with = "super::unneeded_id")]
    _id: (),
}

/// `peer:update`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct PeerUpdate {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    pub attributes: Map<String, Value>,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for PeerUpdate {
    const REACH: Reach = Reach::Member;

    fn wanted(self, asks: &Asks<'_>) -> Result<Wanted, ApiError> {
        check_attributes(&self.attributes, asks.limits)?;
        let command =
            Command::UpdatePeer { attributes: self.attributes, max_bytes: asks.limits.attributes_bytes };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// Whether attributes, or a patch of them, are small enough.
pub(in crate::socket) fn check_attributes(
    attributes: &Map<String, Value>,
    limits: &crate::config::Limits,
) -> Result<(), ApiError> {
    let size = serde_json::to_string(attributes).map_or(0, |text| text.len());
    if size > limits.attributes_bytes {
        return Err(ApiError::new(
            ErrorCode::PayloadTooLarge,
            format!("`attributes` has {size} bytes, at most {} are allowed", limits.attributes_bytes),
        ));
    }
    attributes.values().try_for_each(|value| check_depth("attributes", value, limits.json_depth))
}

/// `room:watch`, `room:unwatch`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct Watch {
    #[serde(deserialize_with = "super::rooms")]
    pub rooms: Vec<RoomId>,
    #[serde(default, rename = "id", deserialize_with = "super::unneeded_id")]
    _id: (),
}

/// `rooms:list`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct List {
    #[serde(default, deserialize_with = "super::label")]
    pub cursor: Option<Arc<str>>,
    #[serde(default)]
    pub limit: Option<usize>,
    #[serde(default, deserialize_with = "super::label")]
    pub prefix: Option<Arc<str>>,
    #[serde(default, deserialize_with = "super::label")]
    pub status: Option<Arc<str>>,
    #[serde(default, rename = "id", deserialize_with = "super::unneeded_id")]
    _id: (),
}

/// `auth:refresh`. No `Debug`: a token is nobody's business.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct Refresh {
    pub token: String,
    #[serde(default, rename = "id", deserialize_with = "super::unneeded_id")]
    _id: (),
}

/// `media:publish`, `media:subscribe`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct Media {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    pub sdp: String,
    #[serde(default, rename = "id", deserialize_with = "super::unneeded_id")]
    _id: (),
}
