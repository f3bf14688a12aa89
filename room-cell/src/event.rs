//! What happened to a cell. Events are facts: applying one never fails and asks nothing.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

use crate::cell::{Ban, Call, CallReason, Heard, MediaIdentity, Peer, Role, Speaking};
use crate::id::{CallId, MicSession, Millis, PeerId, SeatNumber, UserId};
use crate::router::{Duty, RouterRecord};

/// Why somebody is no longer present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaveReason {
    /// By its own word.
    Left,
    /// It did not come back within the grace period.
    StaleLeft,
    /// Its instance died, and it did not come back.
    InstanceLost,
    /// It was put out.
    Kicked,
    /// The room closed.
    ClosedLeft,
}

/// Why a mic session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MicEnd {
    /// By the sitter's own word.
    Down,
    /// A host took the sitter down.
    TakenDown,
    /// No audio came in time.
    PublishTimeout,
    /// The media server hears it no more.
    AudioStopped,
    /// The sitter is gone from the media server.
    RoomExited,
    /// The sitter left the room.
    Left,
    /// The sitter's connection did not come back.
    StaleLeft,
    /// The sitter's instance died.
    InstanceLost,
    /// The sitter was put out.
    Kicked,
    /// The seat was locked by force.
    SeatLocked,
    /// The seat is no longer there.
    SeatRemoved,
    /// The room closed.
    RoomClosed,
}

/// Who confirmed that a sitter is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmedBy {
    /// The client.
    Client,
    /// The media server.
    Media,
}

/// How a request for a seat, or an invitation to one, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskEnd {
    /// Yes.
    Accepted,
    /// No.
    Declined,
    /// Taken back.
    Withdrawn,
    /// They took a seat otherwise.
    Seated,
    /// They left.
    Gone,
    /// The room closed.
    RoomClosed,
}

/// One change of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Event {
    /// The room was made; with `deadline` its media router is still to come.
    Made {
        /// By whom.
        creator: Option<UserId>,
        /// With so many seats.
        seats: u16,
        /// For so many users.
        capacity: Option<u32>,
        /// Closes when idle.
        auto_close: bool,
        /// When making it is given up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Millis>,
    },
    /// Its media router stands.
    Opened,
    /// It could not be made; nothing of it stays.
    Failed,
    /// Somebody's connection came in.
    Joined {
        /// The connection.
        peer: Arc<Peer>,
        /// Peers of the same user that ended with that.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        replaced: Vec<PeerId>,
        /// Whether the user was absent before.
        arrived: bool,
    },
    /// A connection ended; its user has others.
    PeerEnded {
        /// Which.
        peer: PeerId,
        /// Whose.
        user: UserId,
        /// Why.
        reason: LeaveReason,
    },
    /// Somebody left, with all their peers.
    Left {
        /// Who.
        user: UserId,
        /// Their peers.
        peers: Vec<PeerId>,
        /// Why.
        reason: LeaveReason,
    },
    /// What the app says of a peer changed.
    PeerUpdated {
        /// Which.
        peer: PeerId,
        /// Whose.
        user: UserId,
        /// What it says now.
        attributes: Map<String, Value>,
    },
    /// A connection's token allows another role at most.
    TokenAllows {
        /// Which.
        peer: PeerId,
        /// The most that it allows.
        max_role: Role,
    },
    /// Somebody has another role.
    RoleChanged {
        /// Who.
        user: UserId,
        /// Which.
        role: Role,
        /// Whether it was given by command, and outlasts presence.
        given: bool,
    },
    /// The door was locked, or unlocked.
    DoorLocked {
        /// Which.
        locked: bool,
    },
    /// Somebody may not come any more.
    Banned {
        /// Who.
        user: UserId,
        /// For how long.
        ban: Ban,
    },
    /// Somebody may come again.
    Unbanned {
        /// Who.
        user: UserId,
    },
    /// Somebody took a seat.
    SeatTaken {
        /// Which.
        seat: SeatNumber,
        /// Who.
        user: UserId,
        /// With which connection.
        peer: PeerId,
        /// The new session.
        session: MicSession,
        /// Cell version that it begins with.
        version: u64,
        /// When.
        at: Millis,
        /// When it must be heard by.
        deadline: Millis,
    },
    /// A mic session ended and its seat is free.
    SeatFreed {
        /// Which.
        seat: SeatNumber,
        /// Who sat there.
        user: UserId,
        /// The session.
        session: MicSession,
        /// Why.
        reason: MicEnd,
        /// When.
        at: Millis,
        /// For how long it was heard in all, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heard_ms: Option<u64>,
    },
    /// Somebody changed seats within a session.
    SeatMoved {
        /// From which.
        from: SeatNumber,
        /// To which.
        to: SeatNumber,
        /// Who.
        user: UserId,
        /// The session.
        session: MicSession,
        /// Whether it is heard there.
        speaking: Speaking,
        /// For how long it was heard so far, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heard_ms: Option<u64>,
    },
    /// A sitter's connection was replaced by another of the same user, who keeps the seat.
    SeatKept {
        /// Which.
        seat: SeatNumber,
        /// The session.
        session: MicSession,
        /// The connection that sits there now.
        peer: PeerId,
    },
    /// A sitter is heard.
    Confirmed {
        /// Where.
        seat: SeatNumber,
        /// Who.
        user: UserId,
        /// The session.
        session: MicSession,
        /// Who says so.
        by: ConfirmedBy,
        /// Since when.
        at: Millis,
        /// For how long it was heard earlier in the session; none: this is the first time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heard_ms: Option<u64>,
    },
    /// A seat was locked, or unlocked.
    SeatLocked {
        /// Which.
        seat: SeatNumber,
        /// Which.
        locked: bool,
    },
    /// A sitter should be silent, or heard.
    Muted {
        /// Where.
        seat: SeatNumber,
        /// Who.
        user: UserId,
        /// Which.
        muted: bool,
    },
    /// There are so many seats now.
    SeatsSet {
        /// How many.
        count: u16,
    },
    /// Somebody asks for a seat.
    Requested {
        /// Who.
        user: UserId,
        /// Which.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seat: Option<SeatNumber>,
        /// When.
        at: Millis,
    },
    /// Somebody no longer asks for a seat.
    RequestEnded {
        /// Who.
        user: UserId,
        /// Why.
        how: AskEnd,
    },
    /// Somebody was invited to a seat.
    Invited {
        /// Who.
        user: UserId,
        /// Which.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seat: Option<SeatNumber>,
        /// When.
        at: Millis,
    },
    /// An invitation is over.
    InviteEnded {
        /// Whose.
        user: UserId,
        /// Why.
        how: AskEnd,
    },
    /// A call rings.
    CallStarted {
        /// The call as it stands.
        call: Call,
    },
    /// A call was answered.
    CallAccepted {
        /// Which.
        call: CallId,
        /// By whom.
        by: UserId,
        /// When.
        at: Millis,
    },
    /// One of several who are called said no; it rings on for the others.
    CallDeclinedBy {
        /// Which.
        call: CallId,
        /// Who.
        by: UserId,
    },
    /// A call is over.
    CallEnded {
        /// Which.
        call: CallId,
        /// As what.
        state: crate::cell::CallState,
        /// By whom, if by somebody.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<UserId>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<CallReason>,
        /// When.
        at: Millis,
    },
    /// How far the media server has been heard of somebody.
    Heard {
        /// Whom.
        who: MediaIdentity,
        /// How far.
        heard: Heard,
        /// The session that it is about, where it is about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<MicSession>,
    },
    /// The room has another router.
    RouterMade {
        /// Which.
        router: RouterRecord,
    },
    /// The room has no router any more.
    RouterDropped,
    /// Somebody on a seat must be heard, again or for the first time, in a new router.
    Awaited {
        /// Where.
        seat: SeatNumber,
        /// Who.
        user: UserId,
        /// The session.
        session: MicSession,
        /// When it must be heard by.
        deadline: Millis,
        /// For how long it was heard so far, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heard_ms: Option<u64>,
    },
    /// Something must be done at a media server.
    Owed {
        /// What.
        duty: Duty,
        /// The cell version that owes it.
        version: u64,
        /// When.
        at: Millis,
    },
    /// It was done.
    DutyDone {
        /// What.
        duty: Duty,
    },
    /// Deadlines moved.
    Shifted {
        /// By how much.
        by_ms: u64,
    },
    /// The room is being closed.
    Closing {
        /// When it closes all the same.
        deadline: Millis,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
    },
    /// The room closed.
    Closed {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
    },
    /// The room is open again, with bans and versions as they were.
    Reopened {
        /// For so many users.
        capacity: Option<u32>,
        /// Closes when idle.
        auto_close: bool,
        /// When making its media router is given up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Millis>,
    },
}
