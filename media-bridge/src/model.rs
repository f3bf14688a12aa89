//! Names of rooms, people and tracks, and what a client needs in order to join them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One room of one app.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RoomRef {
    /// The tenant.
    pub app: Arc<str>,
    /// The room within it.
    pub room: Arc<str>,
}

impl RoomRef {
    /// Names a room.
    pub fn new(app: impl Into<Arc<str>>, room: impl Into<Arc<str>>) -> Self {
        Self { app: app.into(), room: room.into() }
    }
}

/// One device of one user in a room.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PeerRef {
    /// The user.
    pub user: Arc<str>,
    /// The device's peer id, unique in the room.
    pub peer: Arc<str>,
}

impl PeerRef {
    /// Names a peer.
    pub fn new(user: impl Into<Arc<str>>, peer: impl Into<Arc<str>>) -> Self {
        Self { user: user.into(), peer: peer.into() }
    }
}

/// The generation of a room's router; grows when the router is made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

/// What a participant may do with media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Permissions {
    /// May send audio.
    pub publish_audio: bool,
    /// May send video.
    pub publish_video: bool,
    /// May receive what others send.
    pub subscribe: bool,
}

impl Permissions {
    /// Everything.
    pub const ALL: Self = Self { publish_audio: true, publish_video: true, subscribe: true };
    /// Listen and watch only.
    pub const LISTEN: Self = Self { publish_audio: false, publish_video: false, subscribe: true };

    /// Whether tracks of this kind may be sent.
    #[must_use]
    pub fn may_publish(self, kind: TrackKind) -> bool {
        match kind {
            TrackKind::Audio => self.publish_audio,
            TrackKind::Video => self.publish_video,
        }
    }
}

/// Audio or video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrackKind {
    /// Opus.
    Audio,
    /// VP8.
    Video,
}

/// A track that can be subscribed to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrackRef {
    /// Whose it is.
    pub user: Arc<str>,
    /// From which of their devices.
    pub peer: Arc<str>,
    /// Audio or video.
    pub kind: TrackKind,
}

/// A STUN or TURN server for a client's `RTCPeerConnection`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IceServer {
    /// `stun:`, `turn:` or `turns:` URLs.
    pub urls: Vec<String>,
    /// The user name, for TURN.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub username: Option<String>,
    /// The password, for TURN.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub credential: Option<String>,
}

impl std::fmt::Debug for IceServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IceServer").field("urls", &self.urls).finish_non_exhaustive()
    }
}

/// What a client gets in order to use a room's media: `{ kind, generation, iceServers, …what that kind needs }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The router's generation.
    pub generation: Generation,
    /// Servers for the client's ICE agent; empty for the embedded SFU.
    pub ice_servers: Vec<IceServer>,
    /// What only this kind of media server needs, tagged `kind`.
    #[serde(flatten)]
    pub body: GrantBody,
}

impl Grant {
    /// The tracks that can be subscribed to now; empty where the media server tells its clients itself.
    #[must_use]
    pub fn tracks(&self) -> &[TrackRef] {
        match &self.body {
            GrantBody::Embedded { tracks } => tracks,
            _ => &[],
        }
    }
}

/// The part of a [`Grant`] that depends on the kind of media server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum GrantBody {
    /// The SFU inside the coordinator: offers go over `media:publish` and `media:subscribe`.
    Embedded {
        /// Other peers' tracks, the receiver's own left out.
        tracks: Vec<TrackRef>,
    },
    /// Janus: the client speaks the Janus API over WebSocket, and joins with the plugin's `join` request.
    #[serde(rename_all = "camelCase")]
    Janus {
        /// Its WebSocket.
        url: String,
        /// `audiobridge` or `videoroom`.
        plugin: Arc<str>,
        /// The room.
        room: Arc<str>,
        /// Who the client is in it.
        id: Arc<str>,
        /// Lets it join.
        token: String,
        /// Token for the Janus API itself, where the server asks for one.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        api_token: Option<String>,
        /// To be given when attaching: it ties the server's events to the participant.
        opaque_id: String,
    },
    /// LiveKit: what its client SDKs connect with.
    #[serde(rename_all = "camelCase")]
    Livekit {
        /// Its WebSocket.
        url: String,
        /// The room.
        room: Arc<str>,
        /// Who the client is in it.
        identity: Arc<str>,
        /// Its access token.
        token: String,
    },
    /// Tencent TRTC: what its client SDKs enter a room with.
    #[serde(rename_all = "camelCase")]
    Trtc {
        /// The application.
        sdk_app_id: u32,
        /// The room, a string room.
        str_room_id: Arc<str>,
        /// Who the client is.
        user_id: Arc<str>,
        /// Proves it.
        user_sig: String,
        /// Binds room and rights, where the application demands it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        private_map_key: Option<String>,
    },
    /// Agora: what its client SDKs join a channel with.
    #[serde(rename_all = "camelCase")]
    Agora {
        /// The project.
        app_id: String,
        /// The room.
        channel: Arc<str>,
        /// Who the client is, to be given as a number.
        uid: u32,
        /// Its AccessToken2.
        token: String,
    },
    /// A server attached by signed HTTP.
    #[serde(rename_all = "camelCase")]
    Generic {
        /// The room.
        room: Arc<str>,
        /// Who the client is in it.
        id: Arc<str>,
        /// What the server says its clients need.
        data: serde_json::Value,
    },
}

/// Whoever reads a grant can use it: only its kind is shown.
impl std::fmt::Debug for GrantBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Embedded { .. } => "Embedded",
            Self::Janus { .. } => "Janus",
            Self::Livekit { .. } => "Livekit",
            Self::Trtc { .. } => "Trtc",
            Self::Agora { .. } => "Agora",
            Self::Generic { .. } => "Generic",
        })
    }
}

/// Somebody with at least one media connection to the embedded SFU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connected {
    /// The user.
    pub user: Arc<str>,
    /// The device.
    pub peer: Arc<str>,
    /// This incarnation's id, as in its events.
    pub session: Arc<str>,
    /// Kinds of the tracks they send, one entry a track.
    pub publishing: Vec<TrackKind>,
    /// Whether any of their connections is established.
    pub connected: bool,
    /// Whether their audio arrives now.
    pub audible: bool,
}
