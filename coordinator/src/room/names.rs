//! What a room is called, in every form it is needed, made once.

use key_prefix::{AppCode, Keys, RoomId, RoomKey, RoomKeys};
use media_bridge::RoomRef;

/// A room's key, its Redis keys, and its texts for the wire.
#[derive(Debug)]
pub struct RoomNames {
    /// App and id.
    pub key: RoomKey,
    /// Its Redis keys.
    pub keys: RoomKeys,
    /// The route key as a JSON string, as scripts publish it.
    pub route_json: String,
    /// `{"room":"…"`, the head of every event to clients.
    pub event_head: String,
}

impl RoomNames {
    /// The names of `key`.
    pub fn new(key: RoomKey, keys: &Keys) -> Self {
        Self {
            keys: keys.room(&key),
            route_json: json_string(key.route()),
            event_head: format!("{{\"room\":{}", json_string(key.room())),
            key,
        }
    }
}

/// A text as a JSON string.
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Digest of a secret that is kept in its place.
pub fn digest(secret: &str) -> std::sync::Arc<str> {
    blake3::hash(secret.as_bytes()).to_hex().as_str()[..32].into()
}

/// The room that a media server's events name.
pub fn key_of(room: &RoomRef) -> Option<RoomKey> {
    Some(RoomKey::new(AppCode::new(&room.app).ok()?, RoomId::new(&room.room).ok()?))
}
