//! Everything between a room and the server that carries its media.
//!
//! Dais decides who may speak where; a *media server* moves the packets. This crate is the seam between the two:
//! the [`MediaServer`] trait says what a room may ask of any media server, [`MediaEvent`] is the one form in which
//! every media server reports what happened, and [`EmbeddedSfu`] is a media server that runs inside the process, for
//! development, tests and small installations. The crate knows neither Redis nor Socket.IO, reads no wall clock, and
//! holds nothing that would have to survive a restart.
//!
//! # The contract
//!
//! * A room's media lives in a **router**, made by [`MediaServer::ensure_router`] for one [`Generation`]. A command
//!   that names an older generation than the router's is refused, so one that leaves late never hits a newer router.
//! * A participant is somebody with a [`grant`](MediaServer::grant). Media without one is refused. Each
//!   *incarnation* of a participant — from the first connection to the last one's end — has its own `session`
//!   string; every event names it, so that a late [`RoomExited`](MediaEventKind::RoomExited) can be told from the
//!   exit of somebody who came back.
//! * [`AudioStarted`](MediaEventKind::AudioStarted) means that audio packets arrive, not that a track was negotiated.
//!   It is followed by exactly one [`AudioStopped`](MediaEventKind::AudioStopped) before the next `AudioStarted` or
//!   the `RoomExited` of that session.
//! * Removing what is gone is a success. Asking for something of what is gone is [`MediaError::NotFound`].
//! * Every limit is an error that names the limit ([`MediaError::TooMany`]); nothing is queued without a bound.
//! * No offer, packet or call by a client ends the process or disturbs another room.
//!
//! # Signalling of the embedded SFU
//!
//! Each client has up to two peer connections and is the offerer on both, so offers never collide:
//!
//! | connection | client offers | SFU answers |
//! | --- | --- | --- |
//! | publishing | `sendonly` audio (Opus) and video (VP8) | `recvonly` |
//! | subscribing | one `recvonly` section for each track it was told of | `sendonly` where a track is attached, else `inactive` |
//!
//! Answers carry every candidate; the candidates of the client are not needed and are ignored, its addresses are
//! learned from connectivity checks. The server therefore never sends a packet to an address that has not proved, by
//! a check with the right credentials, that it wants it.
//!
//! [`Grant::tracks`] lists what can be heard. When that list changes the SFU emits [`MediaSignal::TracksChanged`]; each
//! subscriber then re-offers on its existing connection, with more sections if it has too few, and learns from
//! [`SubscribeAnswer::tracks`] which `mid` carries whose track. A section whose track went away is free, and is
//! given to another one at a later offer. A new `RTCPeerConnection` simply sends its first offer: it replaces the
//! old one.
//!
//! The SFU stands on `rtc`, the WebRTC state machine without IO under the `webrtc` crate. A room is one task that
//! owns its sockets, its connections and its tracks, so no packet waits for a lock or crosses a channel; the tests
//! use `webrtc` itself as the client.

mod agora;
mod callback;
mod embedded;
mod error;
mod event;
mod generic;
mod guard;
mod http;
mod janus;
mod livekit;
mod mac;
mod model;
mod names;
mod nodes;
mod server;
mod trtc;

pub use agora::{AgoraCallbacks, AgoraConfig, AgoraServer};
pub use callback::{
    Callback, CallbackError, CallbackReader, CallbackRequest, MOST_EVENTS, NamedPeer, NamedRoom, VendorEvent,
    VendorFact,
};
pub use embedded::{EmbeddedConfig, EmbeddedSfu, MediaAddress, SfuStats, SubscribeAnswer, SubscribedTrack};
pub use error::MediaError;
pub use event::{ExitReason, MediaEvent, MediaEventKind, MediaSignal};
pub use generic::{GenericCallbacks, GenericConfig, GenericServer};
pub use guard::Guard;
pub use janus::{ApiTokens, JanusCallbacks, JanusConfig, JanusPlugin, JanusServer};
pub use livekit::{LivekitCallbacks, LivekitConfig, LivekitServer};
pub use model::{
    Connected, Generation, Grant, GrantBody, IceServer, PeerRef, Permissions, RoomRef, TrackKind, TrackRef,
};
pub use names::{MonitorNames, Names};
pub use nodes::{Checks, Node, NodeState, Nodes};
pub use server::{Abilities, Load, MediaKind, MediaServer, Member, Participant, Router};
pub use trtc::{TrtcCallbacks, TrtcConfig, TrtcServer};

/// The source of every `at_ms`: Unix milliseconds, by whichever clock the caller trusts.
pub type ClockMs = std::sync::Arc<dyn Fn() -> i64 + Send + Sync>;
