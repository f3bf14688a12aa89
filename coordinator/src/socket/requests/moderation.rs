//! Bodies of `room:kick`, `room:unban`, `room:role`, `room:lock`, `room:close`: what hosts do to a room.

use key_prefix::{RoomId, UserId};
use room_cell::{Command, Role};
use serde::Deserialize;
use std::sync::Arc;

use crate::error::ApiError;
use crate::socket::commands::{Asks, Commanding, Reach, Wanted};

/// `room:kick`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object", rename_all = "camelCase")]
pub(in crate::socket) struct Kick {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(deserialize_with = "super::user")]
    pub user: UserId,
    #[serde(default)]
    pub reason: Option<Arc<str>>,
    #[serde(default)]
    pub ban_seconds: Option<u64>,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for Kick {
    const REACH: Reach = Reach::Host;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        let command = Command::Kick {
            user: self.user.shared().into(),
            reason: self.reason,
            ban_seconds: self.ban_seconds,
        };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `room:unban`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct Unban {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(deserialize_with = "super::user")]
    pub user: UserId,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for Unban {
    const REACH: Reach = Reach::Host;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        let command = Command::Unban { user: self.user.shared().into() };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `room:role`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct SetRole {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(deserialize_with = "super::user")]
    pub user: UserId,
    pub role: Role,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for SetRole {
    const REACH: Reach = Reach::Host;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        let command = Command::SetRole { user: self.user.shared().into(), role: self.role };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

/// `room:lock`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct LockDoor {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    pub locked: bool,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for LockDoor {
    const REACH: Reach = Reach::Host;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        Ok(Wanted { room: self.room, id: self.id, command: Command::LockDoor { locked: self.locked } })
    }
}

/// `room:close`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct Close {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(default)]
    pub reason: Option<Arc<str>>,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for Close {
    const REACH: Reach = Reach::Host;

    fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
        Ok(Wanted { room: self.room, id: self.id, command: Command::Close { reason: self.reason } })
    }
}
