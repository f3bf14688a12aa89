//! A peer: one device of one user in one room.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// What a member may do in a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Takes part.
    Guest,
    /// Runs the room.
    Host,
}

/// A peer as Redis keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerRecord {
    /// Its id, new for each connection that joins.
    pub peer: Arc<str>,
    /// Whose it is.
    pub user: Arc<str>,
    /// What it may do.
    pub role: Role,
    /// The user's name, from the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// What the app says of it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub attributes: Map<String, Value>,
    /// The device, where the client names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Arc<str>>,
    /// What a client without a device names to be this peer again.
    pub resume: Arc<str>,
    /// When the user came, by Redis's clock.
    pub joined_at: u64,
}

/// A user as others see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerView {
    /// The user.
    pub user: Arc<str>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The highest role of its peers.
    pub role: Role,
    /// Attributes of its newest peer.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub attributes: Map<String, Value>,
    /// Number of its peers.
    pub devices: usize,
    /// When it came.
    pub joined_at: u64,
}

/// Why somebody left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaveReason {
    /// By its own word.
    Left,
    /// It did not come back within the grace period.
    StaleLeft,
}

/// Somebody who left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Departure {
    /// Who.
    pub user: Arc<str>,
    /// Why.
    pub reason: LeaveReason,
}
