//! `touch`: that people are still there.

use key_prefix::{Incarnation, Instance, KeyKind, Keys, RoomKey};
use std::time::Duration;

use crate::FenceToken;
use crate::instance::ms;
use crate::reply::MalformedReply;
use crate::room::superseded;
use crate::script::{Call, ScriptError, Scripts, TOUCH};

/// One room of a `touch`.
#[derive(Debug)]
pub struct Touch<'a> {
    /// The room.
    pub room: &'a RoomKey,
    /// The token of its lease.
    pub token: FenceToken,
    /// Users seen.
    pub users: &'a [&'a str],
}

/// What `touch` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// Done, for the rooms whose lease is the caller's.
    Ok {
        /// Number of users.
        users: usize,
    },
    /// A newer incarnation of the caller's name lives.
    Superseded {
        /// Its incarnation.
        by: Incarnation,
    },
}

impl Scripts {
    /// Notes that users are still there; never makes a presence. Each of these rooms falls due after `horizon`
    /// at the earliest, and then at the latest if nobody owns it any more. At most 5,000 users in a call.
    pub async fn touch(
        &self,
        keys: &Keys,
        me: &Instance,
        horizon: Duration,
        rooms: &[Touch<'_>],
    ) -> Result<Touched, ScriptError> {
        let mut call = Call::keys([&keys.incarnation_of(me), &keys.due()])
            .text(me.as_str())
            .number(me.incarnation().as_u64())
            .number(ms(horizon))
            .bytes(keys.base(KeyKind::Owner).bytes())
            .bytes(keys.base(KeyKind::Presence).bytes());
        for touch in rooms {
            call = call
                .text(touch.room.route())
                .number(touch.token.as_u64())
                .count(touch.users.len())
                .texts(touch.users.iter().copied());
        }
        self.read(&TOUCH, call, |code, reply| match code {
            "ok" => Ok(Touched::Ok { users: reply.count()? }),
            "superseded" => Ok(Touched::Superseded { by: superseded(reply)? }),
            code => MalformedReply::code(code),
        })
        .await
    }
}
