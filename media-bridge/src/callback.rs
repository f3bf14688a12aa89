//! What vendors send to us, proved and brought into one form.

use std::sync::Arc;

use http::HeaderMap;

/// Events that one callback may carry.
pub const MOST_EVENTS: usize = 100;

/// A callback as it came.
#[derive(Debug, Clone, Copy)]
pub struct CallbackRequest<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its raw body.
    pub body: &'a [u8],
    /// When it came, in Unix milliseconds.
    pub now_ms: u64,
}

/// Why a callback is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// It cannot be told that it comes from the media server: `401`. Names the header or field.
    #[error("{0}")]
    Unproved(String),
    /// It is proved, and no event can be read from it: `400`. Names what and where.
    #[error("{0}")]
    Malformed(String),
}

/// What a proved callback holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Callback {
    /// The events that are known here, in the order in which they happened.
    pub events: Vec<VendorEvent>,
    /// Events of other kinds.
    pub unknown: usize,
}

/// One thing that happened at a media server, in the vendor's names.
#[derive(Debug, Clone, PartialEq)]
pub struct VendorEvent {
    /// The vendor's id of it; made from what it says where there is none. The second of the same id is not taken.
    pub id: String,
    /// Where.
    pub room: NamedRoom,
    /// To whom; `None` for what is about the room.
    pub who: Option<NamedPeer>,
    /// What.
    pub what: VendorFact,
    /// The participant's incarnation, where the vendor has one.
    pub incarnation: Option<Arc<str>>,
    /// The vendor's own order of a participant's events, where it has one.
    pub sequence: Option<u64>,
    /// When, in Unix milliseconds by the vendor's clock.
    pub at_ms: u64,
    /// The vendor's times are exact to so many milliseconds.
    pub resolution_ms: u64,
}

/// A room, as the sender names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedRoom {
    /// By the id that its app gave it.
    Ours(String),
    /// By its router's name at the vendor, as [`Names`](crate::Names) gave it.
    Router(String),
}

/// Somebody, as the sender names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedPeer {
    /// By the id that the app gave the user, and perhaps the peer's.
    Ours {
        /// The user.
        user: String,
        /// The device.
        peer: Option<String>,
    },
    /// By the name at the vendor, as [`Names`](crate::Names) gave it.
    Participant(String),
}

/// Kinds of [`VendorEvent`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum VendorFact {
    /// Somebody came to the media server.
    ParticipantJoined,
    /// Audio flows.
    AudioStarted,
    /// It no longer does.
    AudioStopped,
    /// Somebody is gone from the media server. Implies that audio stopped.
    RoomExited,
    /// The router is closed.
    RoomFinished,
    /// How loud somebody is: 0 is silence, 1 as loud as it gets. Never stored.
    Level(f32),
}

/// Proves and reads the callbacks of one vendor for one app.
pub trait CallbackReader: Send + Sync {
    /// The vendor, as in `POST /rtc/{vendor}/{app}`.
    fn vendor(&self) -> &'static str;

    /// Proves a callback by its raw body, and then reads it.
    ///
    /// # Errors
    /// [`CallbackError`]; never because of an event, a field or a value that is not known here.
    fn read(&self, request: &CallbackRequest<'_>) -> Result<Callback, CallbackError>;
}
