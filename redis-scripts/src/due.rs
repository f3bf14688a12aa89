//! `due`, `offer`: rooms in which something falls due while nobody owns them.

use key_prefix::{ChannelKind, Instance, KeyKind, Keys, RoomKey};
use std::time::Duration;

use crate::FenceToken;
use crate::instance::ms;
use crate::reply::MalformedReply;
use crate::script::{Call, DUE, OFFER, ScriptError, Scripts};

/// What `due` is told.
#[derive(Debug)]
pub struct DueRooms<'a> {
    /// The key name of the reaper's lease.
    pub lease: &'static str,
    /// The leader.
    pub me: &'a Instance,
    /// Its token.
    pub token: FenceToken,
    /// Time to live of an owner key: a room that was looked at is looked at again after it, and an instance that
    /// has not been heard of for as long takes no rooms.
    pub owner_ttl: Duration,
    /// Rooms to look at.
    pub limit: usize,
}

/// What `due` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// What was found.
    Ok {
        /// Rooms that are due and that nobody owns.
        rooms: Vec<RoomKey>,
        /// Instances that take rooms: they live, have the role `signaling` and do not drain. Empty also where
        /// there are no rooms.
        instances: Vec<Instance>,
    },
    /// The caller's leadership is over.
    NotLeader {
        /// What the lease holds.
        held: String,
    },
}

/// What `offer` is told.
#[derive(Debug)]
pub struct Offer<'a> {
    /// The key name of the reaper's lease.
    pub lease: &'static str,
    /// The leader.
    pub me: &'a Instance,
    /// Its token.
    pub token: FenceToken,
    /// Each room with who shall adopt it.
    pub offers: &'a [(&'a RoomKey, &'a Instance)],
}

/// What `offer` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offered {
    /// They were told.
    Ok,
    /// The caller's leadership is over.
    NotLeader {
        /// What the lease holds.
        held: String,
    },
}

impl Scripts {
    /// Finds rooms that are due and unowned.
    pub async fn due(&self, keys: &Keys, with: DueRooms<'_>) -> Result<Due, ScriptError> {
        let call = Call::keys([&keys.lease(with.lease), &keys.due(), &keys.instances()])
            .text(with.me.as_str())
            .number(with.token.as_u64())
            .number(ms(with.owner_ttl))
            .count(with.limit)
            .bases(keys, [KeyKind::Owner, KeyKind::Room, KeyKind::Instance]);
        self.read(&DUE, call, |code, reply| match code {
            "ok" => {
                let (mut routes, mut names) = (reply.nested()?, reply.nested()?);
                let (mut rooms, mut instances) = (Vec::new(), Vec::new());
                while !routes.is_empty() {
                    rooms.extend(RoomKey::from_route(&routes.text()?));
                }
                while !names.is_empty() {
                    instances.extend(names.text()?.parse::<Instance>());
                }
                Ok(Due::Ok { rooms, instances })
            }
            "not_leader" => Ok(Due::NotLeader { held: reply.text()? }),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Offers rooms to instances: `{"room":…,"adopt":true}` on the sync channel of each.
    pub async fn offer(&self, keys: &Keys, with: Offer<'_>) -> Result<Offered, ScriptError> {
        let offers = with.offers.iter().flat_map(|(room, instance)| [room.route(), instance.as_str()]);
        let call = Call::keys([&keys.lease(with.lease)])
            .text(with.me.as_str())
            .number(with.token.as_u64())
            .bytes(keys.channel_base(ChannelKind::Sync).bytes())
            .texts(offers);
        self.read(&OFFER, call, |code, reply| match code {
            "ok" => Ok(Offered::Ok),
            "not_leader" => Ok(Offered::NotLeader { held: reply.text()? }),
            code => MalformedReply::code(code),
        })
        .await
    }
}
