//! A member as others see it.

use room_cell::Presence;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;

pub use room_cell::{LeaveReason, Role};

/// A user as others see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerView {
    /// The user.
    pub user: Arc<str>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Its picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avatar: Option<Arc<str>>,
    /// What it may do.
    pub role: Role,
    /// Attributes of its newest peer.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub attributes: Map<String, Value>,
    /// Number of its peers.
    pub devices: usize,
    /// What its peers are called at an external media server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Arc<str>>,
    /// When it came.
    pub joined_at: u64,
}

impl PeerView {
    /// Somebody who is present.
    pub fn of(presence: &Presence) -> Option<Self> {
        let newest = presence.peers.last()?;
        Some(Self {
            user: newest.user.shared(),
            name: newest.name.clone(),
            avatar: newest.avatar.clone(),
            role: presence.role(),
            attributes: newest.attributes.clone(),
            devices: presence.peers.len(),
            media: presence.peers.iter().filter_map(|peer| peer.media.clone()).collect(),
            joined_at: presence.peers.iter().map(|peer| peer.joined_at.0).min().unwrap_or(0),
        })
    }
}

/// Somebody who left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Departure {
    /// Who.
    pub user: Arc<str>,
    /// Why.
    pub reason: LeaveReason,
}
