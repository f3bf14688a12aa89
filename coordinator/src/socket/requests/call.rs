//! Bodies of `call:*`.

use key_prefix::{RoomId, UserId};
use room_cell::Command;
use serde::Deserialize;
use std::sync::Arc;

use crate::error::ApiError;
use crate::socket::commands::{Asks, Commanding, Reach, Wanted};

/// `call:invite`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(in crate::socket) struct CallInvite {
    #[serde(deserialize_with = "super::room")]
    pub room: RoomId,
    #[serde(deserialize_with = "super::users")]
    pub to: Vec<UserId>,
    #[serde(default, deserialize_with = "super::id")]
    pub id: Option<Arc<str>>,
}

impl Commanding for CallInvite {
    const REACH: Reach = Reach::Member;

    fn wanted(self, asks: &Asks<'_>) -> Result<Wanted, ApiError> {
        let to = self.to.iter().map(|user| user.shared().into()).collect();
        let command = Command::CallInvite { call: Arc::clone(asks.fresh).into(), to };
        Ok(Wanted { room: self.room, id: self.id, command })
    }
}

macro_rules! answers {
    ($($(#[$doc:meta])* $body:ident $command:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize)]
        #[serde(expecting = "an object")]
        pub(in crate::socket) struct $body {
            #[serde(deserialize_with = "super::room")]
            pub room: RoomId,
            #[serde(default, deserialize_with = "super::some_made")]
            pub call: Option<Arc<str>>,
            #[serde(default, deserialize_with = "super::id")]
            pub id: Option<Arc<str>>,
        }

        impl Commanding for $body {
            const REACH: Reach = Reach::Member;

            fn wanted(self, _: &Asks<'_>) -> Result<Wanted, ApiError> {
                let command = Command::$command { call: self.call.map(Into::into) };
                Ok(Wanted { room: self.room, id: self.id, command })
            }
        }
    )*};
}

answers! {
    /// `call:accept`
    CallAccept CallAccept
    /// `call:decline`
    CallDecline CallDecline
    /// `call:hangup`
    CallHangup CallHangup
}
