//! Bodies of `mic:*`.

use key_prefix::{RoomId, UserId};
use room_cell::{Command, SeatNumber};
use serde::Deserialize;
use std::sync::Arc;

use crate::error::ApiError;
use crate::socket::commands::{Asks, Commanding, Reach, Wanted};

/// `mic:up`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct MicUp {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default)]
    pub seat: Option<SeatNumber>,
    #[serde(default, deserialize_with = "super::some_user")]
    pub user: Option<UserId>,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicUp {
    const REACH: Reach = Reach::MemberOrHost;

    fn wanted(self, asks: &Asks<'_>) -> Result<Wanted, ApiError> {
        let command = Command::MicUp {
            user: asks.somebody_else(self.user),
            seat: self.seat,
            session: Arc::clone(asks.fresh).into(),
        };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `mic:down`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object", rename_all = "camelCase")]
pub(in crate::socket) struct MicDown {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default, deserialize_with = "super::some_user")]
    pub user: Option<UserId>,
    #[serde(default, deserialize_with = "super::some_made")]
    pub mic_session: Option<Arc<str>>,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicDown {
    const REACH: Reach = Reach::MemberOrHost;

    fn wanted(self, asks: &Asks<'_>) -> Result<Wanted, ApiError> {
        let command = Command::MicDown {
            user: asks.somebody_else(self.user),
            session: self.mic_session.map(Into::into),
        };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `mic:move`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct MicMove {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    pub seat: SeatNumber,
    #[serde(default, deserialize_with = "super::some_user")]
    pub user: Option<UserId>,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicMove {
    const REACH: Reach = Reach::MemberOrHost;

    fn wanted(self, asks: &Asks<'_>) -> Result<Wanted, ApiError> {
        // Whether they are heard is for the owner to ask the media server.
        let command =
            Command::MicMove { user: asks.somebody_else(self.user), seat: self.seat, flowing: false };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `mic:confirm`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object", rename_all = "camelCase")]
pub(in crate::socket) struct MicConfirm {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(deserialize_with = "super::made")]
    pub mic_session: Arc<str>,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicConfirm {
    const REACH: Reach = Reach::Member;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        let command = Command::MicConfirm { session: self.mic_session.into() };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `mic:lock`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct MicLock {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    pub seat: SeatNumber,
    pub locked: bool,
    #[serde(default)]
    pub force: bool,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicLock {
    const REACH: Reach = Reach::Host;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        let command = Command::SeatLock { seat: self.seat, locked: self.locked, force: self.force };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `mic:mute`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct MicMute {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default, deserialize_with = "super::some_user")]
    pub user: Option<UserId>,
    pub muted: bool,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicMute {
    const REACH: Reach = Reach::MemberOrHost;

    fn wanted(self, asks: &Asks<'_>) -> Result<Wanted, ApiError> {
        let command = Command::MicMute { user: asks.somebody_else(self.user), muted: self.muted };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `mic:muteAll`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct MicMuteAll {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    pub muted: bool,
    #[serde(default, deserialize_with = "super::users")]
    pub except: Vec<UserId>,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicMuteAll {
    const REACH: Reach = Reach::Host;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        let except = self.except.iter().map(|user| user.shared().into()).collect();
        Ok(Wanted {
            room: self.room,
            id: self.id,
            command: Command::MicMuteAll { muted: self.muted, except },
        })
    }
}

/// `mic:seats`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct MicSeats {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    pub count: u16,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicSeats {
    const REACH: Reach = Reach::Host;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        Ok(Wanted { room: self.room, id: self.id, command: Command::SetSeats { count: self.count } })
    }
}

/// `mic:request`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct MicRequest {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default)]
    pub seat: Option<SeatNumber>,
    #[serde(default)]
    pub withdraw: bool,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicRequest {
    const REACH: Reach = Reach::MemberOrHost;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        let command = Command::MicRequest { seat: self.seat, withdraw: self.withdraw };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `mic:invite`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct MicInvite {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(deserialize_with = "super::user")]
    pub user: UserId,
    #[serde(default)]
    pub seat: Option<SeatNumber>,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicInvite {
    const REACH: Reach = Reach::Host;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        let command = Command::MicInvite { user: self.user.shared().into(), seat: self.seat };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `mic:respond`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct MicRespond {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default, deserialize_with = "super::some_user")]
    pub user: Option<UserId>,
    pub accept: bool,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for MicRespond {
    const REACH: Reach = Reach::MemberOrHost;

    fn wanted(self, asks: &Asks<'_>) -> Result<Wanted, ApiError> {
        // Whoever is named asked for a seat, even if it is the one who answers; nobody: an invitation.
        let command = Command::MicRespond {
            user: self.user.map(|user| user.shared().into()),
            accept: self.accept,
            session: Arc::clone(asks.fresh).into(),
        };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}
