//! Why a cell does not do what it is asked.

use serde::{Deserialize, Serialize};

use crate::cell::CallState;

/// A refusal. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Refusal {
    /// There is no such room.
    #[error("there is no such room")]
    NoRoom,
    /// The room is being made: soon.
    #[error("the room is being made")]
    Creating,
    /// The room is closed, or about to be.
    #[error("the room is closed")]
    RoomClosed,
    /// It is there already and open.
    #[error("the room is there already")]
    AlreadyMade,
    /// The user is banned.
    #[error("the user is banned from the room")]
    Banned,
    /// The door is locked.
    #[error("the room's door is locked")]
    DoorLocked,
    /// So many users are present already.
    #[error("the room holds {capacity} users")]
    Full {
        /// How many.
        capacity: u32,
    },
    /// The user is present on another device, and the app allows one.
    #[error("the user is in the room on another device")]
    SecondDevice,
    /// Only hosts may.
    #[error("only a host may do this")]
    HostsOnly,
    /// Only somebody of a higher role may do this to them.
    #[error("not to somebody of a higher role")]
    Outranked,
    /// Not to who made the room.
    #[error("not to the room's creator")]
    Creator,
    /// The token of whoever should have that role does not allow it.
    #[error("the user's token does not allow that role")]
    TokenForbids,
    /// The user is not present.
    #[error("the user is not in the room")]
    NotPresent,
    /// The connection is not a member.
    #[error("this connection is not in the room")]
    NotMember,
    /// Somebody sits there.
    #[error("somebody sits there")]
    SeatTaken,
    /// The seat is locked.
    #[error("the seat is locked")]
    SeatLocked,
    /// Every seat is taken or locked.
    #[error("no seat is free")]
    NoFreeSeat,
    /// There is no seat of that number.
    #[error("there is no seat {seat}")]
    NoSuchSeat {
        /// Which.
        seat: u16,
    },
    /// The user has a seat already.
    #[error("the user has a seat")]
    AlreadySeated,
    /// The user has no seat.
    #[error("the user has no seat")]
    NotSeated,
    /// The mic session is not the present one.
    #[error("the mic session is not the present one")]
    StaleSession,
    /// Nobody asked, or was asked.
    #[error("there is nothing to answer")]
    NothingAsked,
    /// Nobody is banned of that name.
    #[error("the user is not banned")]
    NotBanned,
    /// A call is going on.
    #[error("a call is going on")]
    CallGoingOn,
    /// There is no such call.
    #[error("there is no such call")]
    NoCall,
    /// The call is not in a state for this.
    #[error("the call is {}", state.word())]
    CallStands {
        /// Where it stands.
        state: CallState,
    },
    /// The actor has no part in the call.
    #[error("the call is not the user's")]
    NotInCall,
    /// What the media server says is older than what is known.
    #[error("older than what is known")]
    StaleReport,
    /// It is about nobody here, or nobody on a seat.
    #[error("about nobody on a seat")]
    NobodyConcerned,
    /// It is about a router that is not the room's, or no longer.
    #[error("another router is the room's")]
    StaleRouter,
    /// It is not time, or no longer.
    #[error("not due")]
    NotDue,
    /// More bans, requests or invitations than a room may have.
    #[error("the room has {limit} {what} already")]
    TooMany {
        /// Of what.
        what: Bounded,
        /// How many.
        limit: u32,
    },
    /// What it would make is too large.
    #[error("the attributes would have {bytes} bytes, at most {max} are allowed")]
    TooLarge {
        /// How large.
        bytes: u32,
        /// How large it may be.
        max: u32,
    },
}

/// What a room may have so many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bounded {
    /// Bans.
    Bans,
    /// Roles given by command.
    Roles,
    /// Peers of one user.
    Devices,
}

impl std::fmt::Display for Bounded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bans => "bans",
            Self::Roles => "given roles",
            Self::Devices => "devices of the user",
        })
    }
}

impl CallState {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Started => "ringing",
            Self::Accepted => "accepted",
            Self::Finished => "finished",
            Self::Disconnected => "disconnected",
            Self::Missed => "missed",
            Self::Declined => "declined",
        }
    }
}
