//! What receivers are told: the documented shape of each event.
//!
//! These types are a contract with whoever receives events; those of the cell may change without it. Fields are only
//! ever added.

use serde::Serialize;
use serde_json::{Map, Value};

#[cfg(test)]
use utoipa::ToSchema;

/// An event as it is sent: the body of a webhook.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Payload {
    /// What happened.
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// When, by Redis's clock.
    pub(super) timestamp: String,
    /// Its id: the same however often it is sent.
    pub(super) id: String,
    pub(super) data: Data,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Data {
    #[serde(flatten)]
    pub(super) origin: Origin,
    #[serde(flatten)]
    pub(super) what: What,
}

/// Where it happened, and on whose behalf: part of the data of every event.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Origin {
    /// The app.
    pub(super) app: String,
    /// The room; left out where it is about none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) room: Option<String>,
    /// The version that it made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<Version>,
    /// Fencing token of the room's owner: a higher one is a later owner.
    pub(super) token: u64,
    /// Id of the command that did it, where a command did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
    /// On whose behalf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<By>,
    /// Nobody saw it happen: it follows from what the room is after Redis lost something.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) recovered: bool,
}

/// Versions of a room.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct Version {
    /// Of its cell: people, seats, moderation, calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cell: Option<u64>,
    /// Of its settings and guest states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) settings: Option<u64>,
}

/// Somebody on whose behalf something happens.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct By {
    /// What it is.
    pub(super) kind: ByKind,
    /// Who, if it is a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum ByKind {
    /// A person.
    User,
    /// The app's back end.
    Backend,
    /// A media server.
    Media,
    /// The room's owner: timers, and connections that did not come back.
    Owner,
}

/// What is told of one kind of event only.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum What {
    RoomCreated(RoomCreated),
    RoomReopened(RoomReopened),
    RoomClosed(RoomClosed),
    UserJoined(UserJoined),
    UserLeft(UserLeft),
    UserKicked(UserKicked),
    UserBanned(UserBanned),
    UserUnbanned(UserUnbanned),
    MicStarted(MicStarted),
    MicEnded(MicEnded),
    SettingsUpdated(SettingsUpdated),
    GuestUpdated(GuestUpdated),
    CallStarted(CallStarted),
    CallAccepted(CallAccepted),
    CallDeclined(CallOver),
    CallMissed(CallOver),
    CallFinished(CallOver),
    CallDisconnected(CallOver),
    InstanceLost(InstanceLost),
}

impl What {
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::RoomCreated(_) => "room.created",
            Self::RoomReopened(_) => "room.reopened",
            Self::RoomClosed(_) => "room.closed",
            Self::UserJoined(_) => "user.joined",
            Self::UserLeft(_) => "user.left",
            Self::UserKicked(_) => "user.kicked",
            Self::UserBanned(_) => "user.banned",
            Self::UserUnbanned(_) => "user.unbanned",
            Self::MicStarted(_) => "mic.started",
            Self::MicEnded(_) => "mic.ended",
            Self::SettingsUpdated(_) => "settings.updated",
            Self::GuestUpdated(_) => "guest.updated",
            Self::CallStarted(_) => "call.started",
            Self::CallAccepted(_) => "call.accepted",
            Self::CallDeclined(_) => "call.declined",
            Self::CallMissed(_) => "call.missed",
            Self::CallFinished(_) => "call.finished",
            Self::CallDisconnected(_) => "call.disconnected",
            Self::InstanceLost(_) => "instance.lost",
        }
    }
}

/// A room was made. With an external media server people can come a little later, when its router stands.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct RoomCreated {
    /// Who made it; left out: the app's back end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) creator: Option<String>,
    /// With so many seats.
    pub(super) seats: usize,
    /// For so many users; left out: without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) capacity: Option<u32>,
    /// Whether it closes by itself when nobody is in it for a while.
    pub(super) auto_close: bool,
}

/// A closed room is open again.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct RoomReopened {
    /// For so many users; left out: without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) capacity: Option<u32>,
    /// Whether it closes by itself when nobody is in it for a while.
    pub(super) auto_close: bool,
}

/// A room closed; everybody in it left before, each with an event of their own.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct RoomClosed {
    /// How it ended.
    pub(super) how: Closing,
    /// What whoever closed it said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Closing {
    /// By command, or because nobody was in it.
    Closed,
    /// Its media router could not be made.
    CreateFailed,
    /// Redis lost it, and it is closed since.
    StoreLost,
}

/// Somebody came. They are present until `user.left`, with however many connections.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct UserJoined {
    /// Who.
    pub(super) user: String,
    /// Their first connection.
    pub(super) peer: String,
    /// `host` or `guest`.
    pub(super) role: &'static str,
    /// Their name, where the app gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
}

/// Somebody left, with their last connection.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct UserLeft {
    /// Who.
    pub(super) user: String,
    /// Why.
    pub(super) reason: Leaving,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Leaving {
    /// By their own word.
    Left,
    /// Their connection did not come back in time.
    StaleLeft,
    /// Their instance died, and they did not come back in time.
    InstanceLost,
    /// They were put out.
    Kicked,
    /// The room closed.
    ClosedLeft,
    /// Redis lost them, and they are gone since.
    StoreLost,
}

/// Somebody who was present was put out; `user.banned` came before, `user.left` follows.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct UserKicked {
    /// Who.
    pub(super) user: String,
    /// Why, as whoever did it said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// Somebody may not come any more.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct UserBanned {
    /// Who.
    pub(super) user: String,
    /// Until when, in RFC 3339; left out: for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    /// Why, as whoever did it said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// Somebody may come again. A ban that is over ends without an event until they come, or the room needs its place.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct UserUnbanned {
    /// Who.
    pub(super) user: String,
}

/// Somebody on a seat is heard for the first time: taking a seat is not speaking.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct MicStarted {
    /// Who.
    pub(super) user: String,
    /// On which seat.
    pub(super) seat: u16,
    /// This use of a seat, also across a move to another.
    pub(super) session: String,
}

/// A mic session that was heard is over.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct MicEnded {
    /// Who.
    pub(super) user: String,
    /// On which seat, last.
    pub(super) seat: u16,
    /// The session that began with `mic.started`.
    pub(super) session: String,
    /// Why.
    pub(super) reason: MicEnding,
    /// For how long it was heard, in milliseconds: not while it was waited for again.
    pub(super) duration_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum MicEnding {
    /// By the sitter's own word.
    Down,
    /// A host took the sitter down.
    TakenDown,
    /// It had to be heard again, and was not in time.
    PublishTimeout,
    /// The media server hears it no more.
    AudioStopped,
    /// The sitter is gone from the media server.
    RoomExited,
    /// The sitter left.
    Left,
    /// The sitter's connection did not come back in time.
    StaleLeft,
    /// The sitter's instance died, and they did not come back in time.
    InstanceLost,
    /// The sitter was put out.
    Kicked,
    /// The seat was locked by force.
    SeatLocked,
    /// The seat is no longer there.
    SeatRemoved,
    /// The room closed.
    RoomClosed,
    /// Redis lost it, and it is over since.
    StoreLost,
}

/// Settings of the room changed.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct SettingsUpdated {
    /// What changed, as a JSON merge patch (RFC 7396).
    pub(super) patch: Map<String, Value>,
}

/// What the room keeps of a guest changed.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct GuestUpdated {
    /// Of whom.
    pub(super) user: String,
    /// What changed, as a JSON merge patch (RFC 7396).
    pub(super) patch: Value,
}

/// A call rings.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct CallStarted {
    /// Its id.
    pub(super) call: String,
    /// Who calls.
    pub(super) from: String,
    /// Who is called.
    pub(super) to: Vec<String>,
}

/// A call was answered.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct CallAccepted {
    /// Its id.
    pub(super) call: String,
    /// Who answered.
    pub(super) user: String,
}

/// A call is over.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct CallOver {
    /// Its id.
    pub(super) call: String,
    /// Who ended it, if somebody did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    /// Why, where there is more to say than how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<CallEnding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum CallEnding {
    /// The caller hung up while it rang.
    Cancelled,
    /// It rang for as long as it may.
    Timeout,
    /// A party left the room.
    PartyLeft,
    /// The room closed.
    RoomClosed,
    /// Redis lost it, and it is over since.
    StoreLost,
}

/// An instance died. Rooms that it owned go on elsewhere.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct InstanceLost {
    /// `name/incarnation` of the dead one.
    pub(super) instance: String,
    /// How many rooms it owned.
    pub(super) rooms: u64,
}
