//! What a cell can be asked, by whom, and within which rules.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

use crate::cell::{MediaIdentity, Role};
use crate::id::{CallId, MicSession, Millis, PeerId, SeatNumber, UserId};
use crate::router::Duty;

/// On whose behalf a command comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Actor {
    /// A person, with the most that their token allows.
    User {
        /// Who.
        user: UserId,
        /// The most that the token allows.
        max_role: Role,
        /// The connection, if it is a member here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<PeerId>,
    },
    /// The app's back end: may do what any host may, also to the creator.
    Backend,
    /// A media server.
    Media,
    /// The owner itself: timers, grace, closing.
    Owner,
}

/// What the app's configuration lays down; it may change from one command to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Second devices.
    pub devices: Devices,
    /// How long a seat waits for its audio.
    pub publish_deadline_ms: u64,
    /// How long a call rings.
    pub ring_ms: u64,
    /// How long creating and closing may take.
    pub transition_ms: u64,
    /// How far a media server's clock may be off.
    pub clock_tolerance_ms: u64,
    /// Whether the media server must be told before a room is closed, and made before it is active.
    pub external_media: bool,
    /// Whether the media server can say who is heard just now.
    pub live_list: bool,
}

/// What happens when a user comes with a second device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Devices {
    /// The new one replaces the old one.
    Replace,
    /// The new one is refused.
    Reject,
    /// Both stay.
    Allow,
}

/// A joining connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Joining {
    /// Its new peer.
    pub peer: PeerId,
    /// The role that it wants.
    pub role: Role,
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
    /// What the peer is called at an external media server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<Arc<str>>,
    /// Digest of its new resume secret.
    pub resume: Arc<str>,
    /// Digest of the secret of the peer that it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<Arc<str>>,
    /// Peers of the same user that have lost their connection: it takes their place whatever the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<PeerId>,
}

/// What a media server says happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MediaReport {
    /// What.
    pub what: MediaFact,
    /// About whom; nobody where it is about the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<MediaIdentity>,
    /// Generation of the router that it happened in, where the report names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<u64>,
    /// The participant's incarnation, where the vendor has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Arc<str>>,
    /// The vendor's own order within it, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// When it happened, the vendor's clock being corrected by what is known of its offset.
    pub at: Millis,
    /// The vendor's times are exact to so many milliseconds: it happened in `[at, at + resolution_ms]`.
    #[serde(default)]
    pub resolution_ms: u64,
}

/// Kinds of [`MediaReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaFact {
    /// Somebody came to the media server.
    ParticipantJoined,
    /// Audio flows.
    AudioStarted,
    /// It no longer does.
    AudioStopped,
    /// Somebody is gone from the media server.
    RoomExited,
    /// The router is closed.
    RoomFinished,
}

/// A time that has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "timer", rename_all = "snake_case")]
pub enum Timer {
    /// A seat waited for its audio; `flowing`: the media server says that it hears it.
    Publish {
        /// Which use of a seat.
        session: MicSession,
        /// Whether the media server hears it all the same.
        flowing: bool,
    },
    /// A call rang.
    Ring {
        /// Which.
        call: CallId,
    },
    /// Creating or closing took too long.
    Transition,
    /// Nobody was here for the idle time.
    Idle,
}

/// Why a peer ends without a word of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoneReason {
    /// Its grace is over.
    StaleLeft,
    /// Its instance died and it did not come back.
    InstanceLost,
    /// Its user is banned, which nobody knew when it came.
    Kicked,
}

/// What a cell can be asked. A member's own commands name their peer in the [`Actor`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Command {
    /// Make the room.
    Create {
        /// Number of seats.
        seats: u16,
        /// Most users.
        capacity: Option<u32>,
        /// Close when idle.
        auto_close: bool,
    },
    /// Its media router stands.
    Created,
    /// Its media router could not be made.
    CreateFailed,
    /// Let a connection in.
    Join(Box<Joining>),
    /// The actor's peer goes; with its last peer the user leaves.
    Leave,
    /// These peers end without a word.
    Gone {
        /// Which.
        peers: Vec<PeerId>,
        /// Why.
        reason: GoneReason,
    },
    /// Change what the app says of the actor's peer.
    UpdatePeer {
        /// A merge patch.
        attributes: Map<String, Value>,
        /// Bytes that the result may have.
        max_bytes: usize,
    },
    /// The actor's token was renewed: it may allow less.
    TokenRenewed,
    /// Put somebody out, and keep them out.
    Kick {
        /// Whom; need not be present.
        user: UserId,
        /// Why.
        reason: Option<Arc<str>>,
        /// For so long; none: for good.
        ban_seconds: Option<u64>,
    },
    /// Let somebody come again.
    Unban {
        /// Whom.
        user: UserId,
    },
    /// Give somebody a role.
    SetRole {
        /// Whom.
        user: UserId,
        /// Which.
        role: Role,
    },
    /// Keep guests out, or let them in.
    LockDoor {
        /// Which.
        locked: bool,
    },
    /// End the room.
    Close {
        /// Why.
        reason: Option<Arc<str>>,
    },
    /// Its media router is gone.
    Ended,
    /// Open a closed room again.
    Reopen {
        /// Seats, where they should be others.
        seats: Option<u16>,
        /// Capacity, where it should be another.
        capacity: Option<u32>,
        /// Close when idle, where it should be otherwise.
        auto_close: Option<bool>,
    },
    /// Take a seat, or give one to somebody.
    MicUp {
        /// Whom, if not the actor.
        user: Option<UserId>,
        /// Which seat; none: the first free one.
        seat: Option<SeatNumber>,
        /// The new session.
        session: MicSession,
    },
    /// Leave a seat, or take somebody off one.
    MicDown {
        /// Whom, if not the actor.
        user: Option<UserId>,
        /// Only this session.
        session: Option<MicSession>,
    },
    /// Change seats.
    MicMove {
        /// Whom, if not the actor.
        user: Option<UserId>,
        /// Where to.
        seat: SeatNumber,
        /// Whether the media server hears them just now.
        flowing: bool,
    },
    /// The actor says that it is heard.
    MicConfirm {
        /// Its session.
        session: MicSession,
    },
    /// Lock a seat, or unlock it.
    SeatLock {
        /// Which.
        seat: SeatNumber,
        /// Which.
        locked: bool,
        /// Take who sits there down first.
        force: bool,
    },
    /// Silence a seat, or let it be heard.
    MicMute {
        /// Whom, if not the actor.
        user: Option<UserId>,
        /// Which.
        muted: bool,
    },
    /// Silence every seat, or let all be heard.
    MicMuteAll {
        /// Which.
        muted: bool,
        /// But not these.
        except: Vec<UserId>,
    },
    /// Have so many seats.
    SetSeats {
        /// How many.
        count: u16,
    },
    /// Ask for a seat, or no longer (`withdraw`).
    MicRequest {
        /// Which, if it matters.
        seat: Option<SeatNumber>,
        /// Ask no longer.
        withdraw: bool,
    },
    /// Ask somebody to take a seat.
    MicInvite {
        /// Whom.
        user: UserId,
        /// Which, if it matters.
        seat: Option<SeatNumber>,
    },
    /// Answer: a host to a request (`user` names who asked), a member to an invitation (`user` is none).
    MicRespond {
        /// Whose request.
        user: Option<UserId>,
        /// Yes or no.
        accept: bool,
        /// The session, if somebody goes up with it.
        session: MicSession,
    },
    /// Call people.
    CallInvite {
        /// The new call.
        call: CallId,
        /// Whom.
        to: Vec<UserId>,
    },
    /// Answer a call.
    CallAccept {
        /// Which; none: the present one.
        call: Option<CallId>,
    },
    /// Refuse a call.
    CallDecline {
        /// Which; none: the present one.
        call: Option<CallId>,
    },
    /// End a call.
    CallHangup {
        /// Which; none: the present one.
        call: Option<CallId>,
    },
    /// A router stands at an external media server.
    RouterMade {
        /// Name of the media server.
        node: Arc<str>,
        /// The router's name there.
        name: Arc<str>,
        /// Its generation.
        generation: u64,
    },
    /// The router is lost, or needed no more.
    RouterDropped,
    /// Duties were done, each as it was owed at that cell version.
    DutiesDone {
        /// Which.
        done: Vec<(Duty, u64)>,
    },
    /// Something happened at the media server.
    Media(MediaReport),
    /// A time has come.
    Due(Timer),
    /// Nobody owned the room, or Redis was out of reach, for so long: deadlines move, bans do not.
    Shift {
        /// For how long.
        by_ms: u64,
    },
}

/// A command with who asks; its limits have been checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validated {
    actor: Actor,
    command: Command,
}

impl Validated {
    pub(crate) const fn checked(actor: Actor, command: Command) -> Self {
        Self { actor, command }
    }

    /// The same of a member: the command is its peer's.
    #[must_use]
    pub fn by_peer(mut self, peer: Option<PeerId>) -> Self {
        if let Actor::User { peer: of_peer, .. } = &mut self.actor {
            *of_peer = peer;
        }
        self
    }

    /// The same with what the media server says just now, for commands that depend on it.
    #[must_use]
    pub fn heard(mut self, is_flowing: impl Fn(&UserId) -> bool) -> Self {
        if let (Command::MicMove { user, flowing, .. }, Actor::User { user: me, .. }) =
            (&mut self.command, &self.actor)
        {
            *flowing = is_flowing(user.as_ref().unwrap_or(me));
        } else if let Command::MicMove { user: Some(user), flowing, .. } = &mut self.command {
            *flowing = is_flowing(user);
        }
        self
    }

    /// Who asks.
    pub const fn actor(&self) -> &Actor {
        &self.actor
    }

    /// What.
    pub const fn command(&self) -> &Command {
        &self.command
    }
}

impl Command {
    /// Whether it begins something that others must be told the end of, or can wait: such a command is refused while
    /// what was done cannot be written down. Whatever ends something, or answers, is none.
    pub const fn begins(&self) -> bool {
        match self {
            Self::Create { .. }
            | Self::Reopen { .. }
            | Self::Join(_)
            | Self::UpdatePeer { .. }
            | Self::SetRole { .. }
            | Self::LockDoor { .. }
            | Self::MicUp { .. }
            | Self::MicMove { .. }
            | Self::MicRequest { .. }
            | Self::MicInvite { .. }
            | Self::SetSeats { .. }
            | Self::CallInvite { .. } => true,
            Self::Created
            | Self::CreateFailed
            | Self::Leave
            | Self::Gone { .. }
            | Self::TokenRenewed
            | Self::Kick { .. }
            | Self::Unban { .. }
            | Self::Close { .. }
            | Self::Ended
            | Self::MicDown { .. }
            | Self::MicConfirm { .. }
            | Self::SeatLock { .. }
            | Self::MicMute { .. }
            | Self::MicMuteAll { .. }
            | Self::MicRespond { .. }
            | Self::CallAccept { .. }
            | Self::CallDecline { .. }
            | Self::CallHangup { .. }
            | Self::RouterMade { .. }
            | Self::RouterDropped
            | Self::DutiesDone { .. }
            | Self::Media(_)
            | Self::Due(_)
            | Self::Shift { .. } => false,
        }
    }

    /// The word for it in logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Created => "created",
            Self::CreateFailed => "create_failed",
            Self::Join(_) => "join",
            Self::Leave => "leave",
            Self::Gone { .. } => "gone",
            Self::UpdatePeer { .. } => "update_peer",
            Self::TokenRenewed => "token_renewed",
            Self::Kick { .. } => "kick",
            Self::Unban { .. } => "unban",
            Self::SetRole { .. } => "set_role",
            Self::LockDoor { .. } => "lock_door",
            Self::Close { .. } => "close",
            Self::Ended => "ended",
            Self::Reopen { .. } => "reopen",
            Self::MicUp { .. } => "mic_up",
            Self::MicDown { .. } => "mic_down",
            Self::MicMove { .. } => "mic_move",
            Self::MicConfirm { .. } => "mic_confirm",
            Self::SeatLock { .. } => "seat_lock",
            Self::MicMute { .. } => "mic_mute",
            Self::MicMuteAll { .. } => "mic_mute_all",
            Self::SetSeats { .. } => "set_seats",
            Self::MicRequest { .. } => "mic_request",
            Self::MicInvite { .. } => "mic_invite",
            Self::MicRespond { .. } => "mic_respond",
            Self::CallInvite { .. } => "call_invite",
            Self::CallAccept { .. } => "call_accept",
            Self::CallDecline { .. } => "call_decline",
            Self::CallHangup { .. } => "call_hangup",
            Self::RouterMade { .. } => "router_made",
            Self::RouterDropped => "router_dropped",
            Self::DutiesDone { .. } => "duties_done",
            Self::Media(_) => "media",
            Self::Due(_) => "due",
            Self::Shift { .. } => "shift",
        }
    }
}
