//! What a room may ask of a media server.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Generation, Grant, MediaError, Participant, PeerRef, Permissions, RoomRef};

/// Kinds of media servers, as in `Grant.kind` and `[[media]] kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MediaKind {
    /// The SFU inside the coordinator.
    Embedded,
}

/// What a media server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Whether it takes new routers.
    pub ok: bool,
    /// Routers it has.
    pub rooms: u64,
    /// What is wrong, if something is.
    pub detail: Option<String>,
}

/// A media server, embedded or remote.
///
/// Calls may be cancelled: what was asked may then happen or not, and reconciliation by
/// [`list_participants`](Self::list_participants) tells. No call waits longer than the implementation's own deadline.
#[async_trait]
pub trait MediaServer: Send + Sync {
    /// What kind of server this is.
    fn kind(&self) -> MediaKind;

    /// Makes the room's router, or does nothing if it has this generation already. An older router is closed first.
    ///
    /// # Errors
    /// `StaleGeneration` if the router is newer, `TooMany`, `Unavailable`, `Timeout`.
    async fn ensure_router(&self, room: &RoomRef, generation: Generation) -> Result<(), MediaError>;

    /// Closes the router of this or an older generation, and everything in it. A newer one is left alone, silently.
    ///
    /// # Errors
    /// `Unavailable`, `Timeout`.
    async fn close_router(&self, room: &RoomRef, generation: Generation) -> Result<(), MediaError>;

    /// Lets a peer use the room's media, and says how. Granting again replaces the permissions.
    ///
    /// # Errors
    /// `NotFound` without a router, `TooMany`, `Unavailable`, `Timeout`.
    async fn grant(
        &self,
        room: &RoomRef,
        peer: &PeerRef,
        permissions: Permissions,
    ) -> Result<Grant, MediaError>;

    /// Changes what a participant may do, at once. Muting somebody is taking `publish_audio`: their track stays, and
    /// carries nothing.
    ///
    /// # Errors
    /// `NotFound` without a router or a grant, `Unavailable`, `Timeout`.
    async fn set_permissions(
        &self,
        room: &RoomRef,
        peer: &PeerRef,
        permissions: Permissions,
    ) -> Result<(), MediaError>;

    /// Ends a peer's grant and connections. A peer or a room that is gone already is a success.
    ///
    /// # Errors
    /// `Unavailable`, `Timeout`.
    async fn remove_participant(&self, room: &RoomRef, peer: &PeerRef) -> Result<(), MediaError>;

    /// Who has a media connection.
    ///
    /// # Errors
    /// `NotFound` without a router, `Unavailable`, `Timeout`.
    async fn list_participants(&self, room: &RoomRef) -> Result<Vec<Participant>, MediaError>;

    /// Whether it works.
    async fn health(&self) -> Health;
}
