//! What a room may ask of a media server.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Generation, Grant, MediaError, PeerRef, Permissions, RoomRef};

/// Kinds of media servers, as in `Grant.kind` and `[[media]] kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaKind {
    /// The SFU inside the coordinator.
    Embedded,
    /// Janus, by its VideoRoom or AudioBridge.
    Janus,
    /// LiveKit.
    Livekit,
    /// Tencent TRTC.
    Trtc,
    /// Agora.
    Agora,
    /// Signed HTTP both ways, for mediasoup and home-grown servers.
    Generic,
}

impl MediaKind {
    /// Whether a grant is made without asking the server.
    #[must_use]
    pub const fn grants_by_itself(self) -> bool {
        matches!(self, Self::Livekit | Self::Trtc | Self::Agora)
    }

    /// Whether it can say, at any time, who is there and whose audio arrives.
    #[must_use]
    pub const fn tells_who_is_heard(self) -> bool {
        matches!(self, Self::Embedded | Self::Janus | Self::Livekit | Self::Generic)
    }

    /// Whether it knows people by numbers only, which [`Names::participant`](crate::Names::participant) gives.
    #[must_use]
    pub const fn numbers_people(self) -> bool {
        matches!(self, Self::Agora)
    }

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Janus => "janus",
            Self::Livekit => "livekit",
            Self::Trtc => "trtc",
            Self::Agora => "agora",
            Self::Generic => "generic",
        }
    }
}

/// What a kind of media server can be asked, and what it tells by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// It can say who is there and who is heard, at any time.
    pub live_list: bool,
    /// Its routers are made and closed by command; else they come with the first participant and go with the last.
    pub makes_routers: bool,
    /// It reports that audio starts and stops.
    pub tells_audio: bool,
    /// It can take the permission to publish from somebody who has a grant.
    pub takes_permissions: bool,
}

/// A room's router, as its media server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Router {
    /// Whose it is.
    pub room: RoomRef,
    /// Its name at the vendor: another one for each generation, so that what was meant for an older router cannot
    /// reach a newer one.
    pub name: Arc<str>,
    /// Its generation.
    pub generation: Generation,
}

/// One device of a user, as the media server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Whose it is.
    pub peer: PeerRef,
    /// Its name at the vendor.
    pub name: Arc<str>,
    /// The user's name as others see it, where there is one.
    pub display: Option<Arc<str>>,
}

/// Somebody who is at the media server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// The name at the vendor.
    pub name: Arc<str>,
    /// This stay's id, as in its events, where there is one.
    pub incarnation: Option<Arc<str>>,
    /// Whether their audio arrives now; `None`: that cannot be known.
    pub audible: Option<bool>,
    /// Whether they may send audio as the media server sees it; `None`: that cannot be known.
    pub may_publish_audio: Option<bool>,
}

/// What a media server says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// Participants it has, or another measure that grows with its work; `None`: it does not say.
    pub participants: Option<u64>,
}

/// A media server, embedded or remote.
///
/// Calls may be cancelled, or repeated: each can be made any number of times with the same effect. What was asked by a
/// call that was cancelled or that failed may have happened or not; [`list_participants`](Self::list_participants)
/// tells. No call waits longer than the implementation's own deadline.
#[async_trait]
pub trait MediaServer: Send + Sync + fmt::Debug {
    /// What kind of server this is.
    fn kind(&self) -> MediaKind;

    /// What it can do.
    fn abilities(&self) -> Abilities;

    /// Makes the router, or finds it.
    ///
    /// # Errors
    /// `StaleGeneration` if there is a newer one, `TooMany`, `Unavailable`, `Timeout`, `Refused`.
    async fn ensure_router(&self, router: &Router) -> Result<(), MediaError>;

    /// Finds a router that another coordinator made, and makes it usable from here. Where routers come and go by
    /// themselves that is always so.
    ///
    /// # Errors
    /// `NotFound` if it is gone, `Unavailable`, `Timeout`, `Refused`.
    async fn adopt_router(&self, router: &Router) -> Result<(), MediaError>;

    /// Closes the router, and everything in it. One that is gone already is a success.
    ///
    /// # Errors
    /// `Unavailable`, `Timeout`, `Refused`.
    async fn close_router(&self, router: &Router) -> Result<(), MediaError>;

    /// Lets a member use the router, and says how. Granting again replaces the permissions. Where nothing has to be
    /// asked of the server for that, the future is ready at once.
    ///
    /// # Errors
    /// `NotFound` without a router, `TooMany`, `Unavailable`, `Timeout`, `Refused`.
    async fn grant(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<Grant, MediaError>;

    /// Changes what a participant may do, at once. Muting somebody is taking `publish_audio`: their track stays, and
    /// carries nothing. Somebody who is not there, or not yet, is a success.
    ///
    /// # Errors
    /// `NotFound` without a router, `Unavailable`, `Timeout`, `Refused`, `NotSupported`.
    async fn set_permissions(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<(), MediaError>;

    /// Ends the grant and the connections of whoever has this name at the vendor. Somebody who is gone already, or a
    /// router that is, is a success.
    ///
    /// # Errors
    /// `Unavailable`, `Timeout`, `Refused`.
    async fn remove_participant(&self, router: &Router, name: &str) -> Result<(), MediaError>;

    /// Who is there.
    ///
    /// # Errors
    /// `NotFound` without a router, `NotSupported` without [`Abilities::live_list`], `Unavailable`, `Timeout`,
    /// `Refused`.
    async fn list_participants(&self, router: &Router) -> Result<Vec<Participant>, MediaError>;

    /// Whether it works, and how much it has to do.
    ///
    /// # Errors
    /// `Unavailable` if it does not, `Timeout` if it does not say.
    async fn health(&self) -> Result<Load, MediaError>;
}
