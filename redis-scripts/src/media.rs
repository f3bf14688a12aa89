//! `report`, `levels`, `router_claim`, `router_find`: what media servers say, and the names that they say it in.

use std::time::Duration;

use key_prefix::{ChannelKind, Instance, KeyKind, Keys, RoomKey, RoomKeys, RouterName};

use crate::instance::ms;
use crate::reply::MalformedReply;
use crate::script::{Call, LEVELS, REPORT, ROUTER_CLAIM, ROUTER_FIND, ScriptError, Scripts};

/// What `report` is told.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The caller, who need not own the room.
    pub me: &'a Instance,
    /// The room.
    pub room: &'a RoomKey,
    /// Its keys.
    pub keys: &'a RoomKeys,
    /// The route as a JSON string.
    pub route_json: &'a str,
    /// What happened, in order: the id of each, and what is to be done, as JSON. One whose id came in the last 10
    /// minutes is not appended again.
    pub reports: &'a [(&'a str, &'a str)],
    /// Entries that may wait in the inbox.
    pub cap: usize,
}

/// What `report` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// All of them are in the inbox.
    Ok {
        /// How many were not there before.
        appended: usize,
        /// `name/incarnation` of the owner, who was told unless it is the caller; empty: nobody owns the room.
        owner: String,
    },
    /// The room is not there.
    Missing {
        /// Who owns it all the same, and will restore it; empty: nobody.
        owner: String,
    },
    /// Too many entries would wait; none was appended.
    Full {
        /// How many do.
        length: usize,
    },
}

/// Whom `levels` tells.
#[derive(Debug, Clone, Copy)]
pub enum LevelsTo<'a> {
    /// The room's owner, whoever that is.
    Owner,
    /// Who watches the room: this is its owner, if it still is.
    Watchers(&'a Instance),
}

/// What `router_claim` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The name stands for this router now.
    Mine,
    /// It stands for another one.
    Taken,
}

/// What the name of a router stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterOf {
    /// The room's route key.
    pub route: String,
    /// The router's generation.
    pub generation: u64,
}

impl Scripts {
    /// Appends what a media server reported to a room's inbox and tells the owner.
    pub async fn report(&self, keys: &Keys, with: Report<'_>) -> Result<Reported, ScriptError> {
        let room = with.keys;
        let call = Call::keys([&room.room, &room.owner, &room.inbox, &keys.due()])
            .text(with.me.as_str())
            .texts([with.room.route(), with.route_json])
            .owner_bases(keys)
            .bytes(keys.base(KeyKind::Seen).bytes())
            .count(with.cap)
            .texts(with.reports.iter().flat_map(|(id, payload)| [*id, *payload]));
        self.read(&REPORT, call, |code, reply| match code {
            "ok" => Ok(Reported::Ok { appended: reply.count()?, owner: reply.text()? }),
            "missing" => Ok(Reported::Missing { owner: reply.text()? }),
            "full" => Ok(Reported::Full { length: reply.count()? }),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Publishes how loud people in a room are. Returns how many instances were told, `None` if nobody owns the
    /// room, or not who says so.
    pub async fn levels(
        &self,
        keys: &Keys,
        room: &RoomKeys,
        to: LevelsTo<'_>,
        message: &str,
    ) -> Result<Option<usize>, ScriptError> {
        let from = match to {
            LevelsTo::Owner => "",
            LevelsTo::Watchers(owner) => owner.as_str(),
        };
        let call = Call::keys([&room.owner, &room.watchers])
            .text(from)
            .bytes(keys.channel_base(ChannelKind::Sync).bytes())
            .bytes(keys.channel_base(ChannelKind::Fanout).bytes())
            .text(message);
        self.read(&LEVELS, call, |code, reply| match code {
            "ok" => reply.count().map(Some),
            "unowned" => Ok(None),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Notes for so long what the name of a media router stands for. The same again renews it.
    pub async fn router_claim(
        &self,
        keys: &Keys,
        name: &RouterName,
        room: &RoomKey,
        generation: u64,
        ttl: Duration,
    ) -> Result<Claimed, ScriptError> {
        let call = Call::keys([&keys.router(name)]).text(room.route()).number(generation).number(ms(ttl));
        self.read(&ROUTER_CLAIM, call, |code, _| match code {
            "mine" => Ok(Claimed::Mine),
            "taken" => Ok(Claimed::Taken),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// What the name of a media router stands for; `None`: nobody claims it.
    pub async fn router_find(&self, keys: &Keys, name: &RouterName) -> Result<Option<RouterOf>, ScriptError> {
        let call = Call::keys([&keys.router(name)]);
        self.read(&ROUTER_FIND, call, |code, reply| match code {
            "ok" => {
                let generation = reply.number()?;
                Ok(Some(RouterOf { route: reply.text()?, generation }))
            }
            "none" => Ok(None),
            code => MalformedReply::code(code),
        })
        .await
    }
}
