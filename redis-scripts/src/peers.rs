//! `join`, `leave`, `touch`: the peers of a room, changed by its owner alone.

use key_prefix::{ChannelKind, Incarnation, Instance, KeyKind, Keys, RoomKey, RoomKeys};

use crate::reply::{MalformedReply, Reply};
use crate::room::{RecordedPeer, superseded};
use crate::script::{Call, JOIN, LEAVE, ScriptError, Scripts, TOUCH};
use crate::{CellVersion, FenceToken, RedisMillis};

/// What `join` is told.
#[derive(Debug)]
pub struct Join<'a> {
    /// The caller.
    pub me: &'a Instance,
    /// The room's keys.
    pub keys: &'a RoomKeys,
    /// The token of its lease.
    pub token: FenceToken,
    /// Who joins.
    pub peer: RecordedPeer<'a>,
    /// Peers that it replaces.
    pub replaced: &'a [&'a str],
    /// The route as a JSON string, for watchers.
    pub route_json: &'a str,
    /// `"joined":[…],"left":[…]`, for watchers; empty: nothing to tell them.
    pub fanout: &'a str,
}

/// What `leave` is told.
#[derive(Debug)]
pub struct Leave<'a> {
    /// The caller.
    pub me: &'a Instance,
    /// The room's keys.
    pub keys: &'a RoomKeys,
    /// The token of its lease.
    pub token: FenceToken,
    /// Peers that end.
    pub peers: &'a [&'a str],
    /// Users whose last peer ends.
    pub users: &'a [&'a str],
    /// The route as a JSON string, for watchers.
    pub route_json: &'a str,
    /// `"joined":[],"left":[…]`, for watchers; empty: nothing to tell them.
    pub fanout: &'a str,
}

/// What `join` and `leave` answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// Committed.
    Ok {
        /// The cell's new version.
        cv: CellVersion,
        /// Size of the peer set.
        peer_count: usize,
        /// Number of watching instances.
        watchers: usize,
        /// Redis's time.
        now: RedisMillis,
    },
    /// The lease is not the caller's.
    Lost {
        /// What the owner key holds.
        held: String,
    },
    /// Redis lost the room's record or peers.
    Missing,
    /// The room is not active.
    Closed {
        /// What it is.
        status: String,
    },
    /// A newer incarnation of the caller's name lives.
    Superseded {
        /// Its incarnation.
        by: Incarnation,
    },
}

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
    /// Adds a peer to a room that the caller owns.
    pub async fn join(&self, keys: &Keys, with: Join<'_>) -> Result<Changed, ScriptError> {
        let (me, room) = (with.me, with.keys);
        let call = Call::keys([
            &keys.incarnation_of(me),
            &room.owner,
            &room.room,
            &room.peers,
            &room.presence,
            &room.watchers,
        ])
        .text(me.as_str())
        .number(me.incarnation().as_u64())
        .number(with.token.as_u64())
        .texts([with.peer.peer, with.peer.user, with.peer.json])
        .bytes(keys.channel_base(ChannelKind::Fanout).bytes())
        .texts([with.route_json, with.fanout])
        .texts(with.replaced.iter().copied());
        self.read(&JOIN, call, read_changed).await
    }

    /// Removes peers from a room that the caller owns.
    pub async fn leave(&self, keys: &Keys, with: Leave<'_>) -> Result<Changed, ScriptError> {
        let (me, room) = (with.me, with.keys);
        let call = Call::keys([
            &keys.incarnation_of(me),
            &room.owner,
            &room.room,
            &room.peers,
            &room.presence,
            &room.watchers,
        ])
        .text(me.as_str())
        .number(me.incarnation().as_u64())
        .number(with.token.as_u64())
        .bytes(keys.channel_base(ChannelKind::Fanout).bytes())
        .texts([with.route_json, with.fanout])
        .count(with.peers.len())
        .texts(with.peers.iter().copied())
        .texts(with.users.iter().copied());
        self.read(&LEAVE, call, read_changed).await
    }

    /// Notes that users are still there; never makes a presence. At most 5,000 users in a call.
    pub async fn touch(
        &self,
        keys: &Keys,
        me: &Instance,
        rooms: &[Touch<'_>],
    ) -> Result<Touched, ScriptError> {
        let mut call = Call::keys([&keys.incarnation_of(me)])
            .text(me.as_str())
            .number(me.incarnation().as_u64())
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

fn read_changed(code: &str, reply: &mut Reply) -> Result<Changed, MalformedReply> {
    match code {
        "ok" => Ok(Changed::Ok {
            cv: reply.cell()?,
            peer_count: reply.count()?,
            watchers: reply.count()?,
            now: reply.millis()?,
        }),
        "lost" => Ok(Changed::Lost { held: reply.text()? }),
        "missing" => Ok(Changed::Missing),
        "closed" => Ok(Changed::Closed { status: reply.text()? }),
        "superseded" => Ok(Changed::Superseded { by: superseded(reply)? }),
        code => MalformedReply::code(code),
    }
}
