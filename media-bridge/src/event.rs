//! What a media server reports, in the one form every media server's reports are brought into.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Generation, PeerRef, RoomRef};

/// One thing that happened to a room's media.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MediaEvent {
    /// The room.
    pub room: RoomRef,
    /// The router's generation, where the media server knows it: what an older router reports is of no consequence
    /// for a newer one.
    pub generation: Option<Generation>,
    /// The peer it is about; `None` for what is about the room.
    pub peer: Option<PeerRef>,
    /// The participant's incarnation; `None` for what is about the room.
    pub session: Option<Arc<str>>,
    /// What happened.
    #[serde(flatten)]
    pub kind: MediaEventKind,
    /// When, in Unix milliseconds by the injected clock.
    pub at_ms: i64,
}

/// Kinds of [`MediaEvent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MediaEventKind {
    /// The first connection of an incarnation is established.
    ParticipantJoined,
    /// Audio packets arrive.
    AudioStarted,
    /// They no longer do, or the track ended.
    AudioStopped,
    /// The incarnation's last connection ended.
    RoomExited {
        /// Why.
        reason: ExitReason,
    },
    /// The router is closed; nothing follows from it.
    RoomFinished,
}

/// Why a participant is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// The client closed its connection.
    Closed,
    /// The client can no longer be reached.
    Failed,
    /// The connection was never established within its deadline.
    NeverConnected,
    /// [`remove_participant`](crate::MediaServer::remove_participant) was called.
    Removed,
    /// The router was closed.
    RoomClosed,
}

/// What comes out of a media server's channel.
///
/// The channel is bounded. While it is full a room keeps the newest 256 of its events and delivers them in order when
/// there is space; older ones are dropped and counted in [`SfuStats::events_dropped`](crate::SfuStats). `TracksChanged`
/// is never dropped, only merged.
#[derive(Debug, Clone, PartialEq)]
pub enum MediaSignal {
    /// A business event.
    Event(MediaEvent),
    /// The tracks of a room changed: tell these peers to re-offer on their subscribing connection.
    TracksChanged {
        /// The room.
        room: RoomRef,
        /// Everyone with a grant to subscribe whose list of tracks is another than before.
        subscribers: Vec<PeerRef>,
    },
    /// Somebody began to speak, or fell silent; dropped while the channel is full.
    Level {
        /// The room.
        room: RoomRef,
        /// Who.
        peer: PeerRef,
        /// How loud they began, from 0 to 1 by decibels; 0: they fell silent.
        level: f32,
    },
}
