//! The cell's state. Cloning it is cheap: what is staged shares everything else with what is acknowledged.

use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

use crate::command::MediaFact;
use crate::id::{CallId, MicSession, Millis, PeerId, SeatNumber, UserId};
use crate::router::{Duty, Owed, RouterRecord};

/// What somebody may do in a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Takes part.
    Guest,
    /// Runs the room.
    Host,
}

/// Where a room is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Status {
    /// It was never made, or making it failed.
    #[default]
    Absent,
    /// Its media router is being made.
    Creating {
        /// When that is given up.
        deadline: Millis,
        /// It was closed before, and is closed again if that fails.
        #[serde(default)]
        reopened: bool,
    },
    /// People may come.
    Active,
    /// Its media router is being ended.
    Closing {
        /// When the room closes all the same.
        deadline: Millis,
        /// Why it closes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
    },
    /// Nothing happens any more, unless it is opened again.
    Closed,
}

impl Status {
    /// The word for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Creating { .. } => "creating",
            Self::Active => "active",
            Self::Closing { .. } => "closing",
            Self::Closed => "closed",
        }
    }
}

/// One connection of a person to the room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its id.
    pub peer: PeerId,
    /// Whose it is.
    pub user: UserId,
    /// What the user may do here.
    pub role: Role,
    /// The most that the token of this connection allows.
    pub max_role: Role,
    /// The user's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The user's picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avatar: Option<Arc<str>>,
    /// What the app says of it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub attributes: Map<String, Value>,
    /// The device, where the client names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Arc<str>>,
    /// What it is called at an external media server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<Arc<str>>,
    /// Digest of the secret that makes a new connection this peer again.
    pub resume: Arc<str>,
    /// When the user came.
    pub joined_at: Millis,
    /// When this connection began.
    pub since: Millis,
}

/// A person who is present.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Presence {
    /// Its peers, oldest first (by [`Peer::since`], which no two of them share); never empty.
    pub peers: Vec<Arc<Peer>>,
}

impl Presence {
    /// What it may do: the same for all its peers.
    pub fn role(&self) -> Role {
        self.peers.iter().map(|peer| peer.role).max().unwrap_or(Role::Guest)
    }

    /// Its newest peer.
    pub fn newest(&self) -> Option<&Arc<Peer>> {
        self.peers.last()
    }
}

/// A place to speak.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seat {
    /// Nobody may take it.
    pub locked: bool,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sitter: Option<Sitter>,
}

/// Somebody on a seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sitter {
    /// Who.
    pub user: UserId,
    /// With which connection; the seat ends with it.
    pub peer: PeerId,
    /// This use of the seat.
    pub session: MicSession,
    /// Cell version at mic-up.
    pub version: u64,
    /// When the session began.
    pub started_at: Millis,
    /// Whether it is heard.
    pub speaking: Speaking,
    /// Whether it should be silent.
    #[serde(default)]
    pub muted: bool,
    /// What the media server last said that is about this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<Heard>,
    /// For how long the session was heard before it had to be heard again; none: it never had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
}

impl Sitter {
    /// For how long the session has been heard by `now`; none: never yet.
    pub fn heard_by(&self, now: Millis) -> Option<u64> {
        match self.speaking {
            Speaking::Publishing { since } => {
                Some(self.heard_ms.unwrap_or_default().saturating_add(now.since(since)))
            }
            Speaking::PendingPublish { .. } => self.heard_ms,
        }
    }
}

/// Whether somebody on a seat is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Speaking {
    /// Not yet.
    PendingPublish {
        /// When the seat is freed if not.
        deadline: Millis,
    },
    /// Yes.
    Publishing {
        /// Since when.
        since: Millis,
    },
}

/// A point in what a media server says of somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heard {
    /// The participant's incarnation at the media server, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Arc<str>>,
    /// The vendor's own order within it, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// Earliest time that it can have happened.
    pub from: Millis,
    /// Latest time that it can have happened.
    pub to: Millis,
    /// What it said.
    pub what: MediaFact,
    /// Whether audio flows by that, and no mic session has ended since.
    #[serde(default)]
    pub flowing: bool,
    /// Whether they were heard at any time of this stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spoke: bool,
}

/// Somebody who may not come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// Until when; none: for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// Since when.
    pub at: Millis,
}

impl Ban {
    /// Whether it holds at `now`.
    pub fn holds(&self, now: Millis) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Somebody who asks for a seat, or was asked to take one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Which seat, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<SeatNumber>,
    /// Since when.
    pub at: Millis,
}

/// A call within the room; the newest one, whatever became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// What became of it.
    pub state: CallState,
    /// Who calls.
    pub from: UserId,
    /// Who is called.
    pub to: Vec<UserId>,
    /// Who accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<UserId>,
    /// Who declined so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declined_by: Vec<UserId>,
    /// Since when it is in this state.
    pub at: Millis,
    /// When it is missed; none once it was answered or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Millis>,
    /// Why it ended, where there is more to say than its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<CallReason>,
}

/// States of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallState {
    /// It rings.
    Started,
    /// They talk.
    Accepted,
    /// Ended by one of them.
    Finished,
    /// Ended because a party is gone.
    Disconnected,
    /// Nobody answered, or the caller gave up.
    Missed,
    /// Everybody who was called said no.
    Declined,
}

impl CallState {
    /// Whether it is over.
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Started | Self::Accepted)
    }
}

/// More of why a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallReason {
    /// The caller hung up while it rang.
    Cancelled,
    /// It rang for as long as it may.
    Timeout,
    /// A party left the room.
    PartyLeft,
    /// The room closed.
    RoomClosed,
}

/// Everything that a room's owner decides.
///
/// It is looked at freely, and changed only by events: [`Cell::advance`] takes in those of one command. What must be
/// stored is said by [`changes`](crate::changes), what falls due by [`Cell::next_deadline`] and [`Cell::due`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    /// Raised by one with each command that has events.
    pub version: u64,
    /// Where it is in its life.
    pub status: Status,
    /// Who made it.
    pub creator: Option<UserId>,
    /// Most users who may be present.
    pub capacity: Option<u32>,
    /// Whether it closes when its idle time is over.
    pub auto_close: bool,
    /// Whether anybody has been here since it was opened: idle time begins when the last one leaves.
    pub used: bool,
    /// Whether guests are kept out.
    pub locked: bool,
    /// Seats by number.
    pub seats: OrdMap<SeatNumber, Seat>,
    /// Who is present; each with at least one peer.
    pub users: OrdMap<UserId, Presence>,
    /// The user of each peer: the other way into `users`.
    pub peers: OrdMap<PeerId, UserId>,
    /// Roles that were given by command; they outlast presence.
    pub roles: OrdMap<UserId, Role>,
    /// Who may not come.
    pub bans: OrdMap<UserId, Ban>,
    /// Who asks for a seat.
    pub requests: OrdMap<UserId, Asked>,
    /// Who was invited to one.
    pub invites: OrdMap<UserId, Asked>,
    /// The newest call.
    pub call: Option<Call>,
    /// How far the media server has been heard, by user and, where the vendor names it, peer.
    pub media: OrdMap<MediaIdentity, Heard>,
    /// When the last mic session of somebody present ended.
    pub freed: OrdMap<UserId, Millis>,
    /// Its router at an external media server.
    pub router: Option<RouterRecord>,
    /// The highest generation that a router of the room had.
    pub router_generation: u64,
    /// What must still be done at external media servers.
    pub duties: OrdMap<Duty, Owed>,
}

/// Somebody at the media server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MediaIdentity {
    /// Who.
    pub user: UserId,
    /// With which connection, where the vendor says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerId>,
}

impl Cell {
    /// The peer of this id.
    pub fn peer(&self, peer: &str) -> Option<&Arc<Peer>> {
        let user = self.peers.get(peer)?;
        self.users.get(user.as_str())?.peers.iter().find(|it| it.peer.as_str() == peer)
    }

    /// The seat that a user has.
    pub fn seat_of(&self, user: &str) -> Option<(SeatNumber, &Sitter)> {
        self.seats.iter().find_map(|(number, seat)| {
            let sitter = seat.sitter.as_ref().filter(|sitter| sitter.user.as_str() == user)?;
            Some((*number, sitter))
        })
    }

    /// Whether a peer may be heard, as far as the cell decides that: from a seat where the room has any, unmuted.
    pub fn may_speak(&self, peer: &Peer) -> bool {
        match self.seat_of(peer.user.as_str()) {
            Some((_, sitter)) => sitter.peer == peer.peer && !sitter.muted,
            None => self.seats.is_empty(),
        }
    }

    /// The earliest time at which something in the cell falls due.
    pub fn next_deadline(&self) -> Option<Millis> {
        let status = match self.status {
            Status::Creating { deadline, .. } | Status::Closing { deadline, .. } => Some(deadline),
            _ => None,
        };
        let seats = self.seats.values().filter_map(|seat| match seat.sitter.as_ref()?.speaking {
            Speaking::PendingPublish { deadline } => Some(deadline),
            Speaking::Publishing { .. } => None,
        });
        let call = self.call.as_ref().and_then(|call| call.deadline);
        seats.chain(status).chain(call).min()
    }
}
