//! `settings_update`, `guest_update`: the multi-writer part of a room.

use key_prefix::{ChannelKind, Instance, Keys, RoomKey, RoomKeys};

use crate::SettingsVersion;
use crate::reply::{MalformedReply, Reply};
use crate::script::{Call, GUEST_UPDATE, SETTINGS_UPDATE, ScriptError, Scripts};

/// What `settings_update` is told.
#[derive(Debug)]
pub struct SettingsUpdate<'a> {
    /// The caller, who need not own the room.
    pub me: &'a Instance,
    /// The room.
    pub room: &'a RoomKey,
    /// Its keys.
    pub keys: &'a RoomKeys,
    /// The user who wants it, whom the cell may ban; `None`: a back end.
    pub by: Option<&'a str>,
    /// Refuse unless `sv` is this.
    pub if_version: Option<SettingsVersion>,
    /// Bytes allowed in one setting.
    pub max_bytes: usize,
    /// A merge patch by setting, compact JSON of one serializer.
    pub patch: &'a [(&'a str, String)],
    /// The route as a JSON string.
    pub route_json: &'a str,
    /// `"settings":{…},"by":…`: of the message, and in braces the lane's entry.
    pub message: &'a str,
    /// Refuse while the room's lane has so many entries.
    pub lane_limit: u64,
}

/// What `guest_update` is told.
#[derive(Debug)]
pub struct GuestUpdate<'a> {
    /// The caller, who need not own the room.
    pub me: &'a Instance,
    /// The room.
    pub room: &'a RoomKey,
    /// Its keys.
    pub keys: &'a RoomKeys,
    /// The user who wants it, whom the cell may ban; `None`: a back end.
    pub by: Option<&'a str>,
    /// Refuse unless `sv` is this.
    pub if_version: Option<SettingsVersion>,
    /// Bytes allowed in one user's state.
    pub max_bytes: usize,
    /// Users with a state allowed in one room.
    pub max_guests: usize,
    /// Whose state.
    pub user: &'a str,
    /// Refuse unless the user is in the room.
    pub present: bool,
    /// A merge patch, compact JSON of one serializer.
    pub patch: &'a str,
    /// The route as a JSON string.
    pub route_json: &'a str,
    /// `"guests":{…},"by":…`: of the message, and in braces the lane's entry.
    pub message: &'a str,
    /// Refuse while the room's lane has so many entries.
    pub lane_limit: u64,
}

/// What both answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// Merged.
    Ok {
        /// The new version.
        sv: SettingsVersion,
        /// `name/incarnation` of the owner, empty if there is none.
        owner: String,
    },
    /// The room's record is not there.
    Missing {
        /// `name/incarnation` of the owner, empty if there is none.
        owner: String,
    },
    /// The record is there, but settings or guest states were lost, or the last of them may have been.
    Damaged {
        /// `name/incarnation` of the owner, empty if there is none.
        owner: String,
    },
    /// The room is not active.
    Closed {
        /// What it is.
        status: String,
    },
    /// `sv` is not what the caller wanted.
    Conflict {
        /// What it is.
        sv: SettingsVersion,
    },
    /// The room's lane is full: the ledger does not keep up.
    Full {
        /// Entries that wait in it.
        entries: u64,
    },
    /// The result would be too large.
    TooLarge {
        /// The setting or user.
        field: String,
        /// How large it would be.
        bytes: usize,
    },
    /// Too many users have a state.
    TooMany {
        /// How many.
        guests: usize,
    },
    /// The user is not in the room.
    NotPresent,
    /// The user who wants it is banned.
    Banned,
    /// The user who wants it as a host is none any more.
    Demoted,
}

fn read_updated(code: &str, reply: &mut Reply) -> Result<Updated, MalformedReply> {
    match code {
        "ok" => Ok(Updated::Ok { sv: reply.settings()?, owner: reply.text()? }),
        "missing" => Ok(Updated::Missing { owner: reply.text()? }),
        "damaged" => Ok(Updated::Damaged { owner: reply.text()? }),
        "closed" => Ok(Updated::Closed { status: reply.text()? }),
        "conflict" => Ok(Updated::Conflict { sv: reply.settings()? }),
        "full" => Ok(Updated::Full { entries: reply.number()? }),
        "too_large" => Ok(Updated::TooLarge { field: reply.text()?, bytes: reply.count()? }),
        "too_many" => Ok(Updated::TooMany { guests: reply.count()? }),
        "not_present" => Ok(Updated::NotPresent),
        "banned" => Ok(Updated::Banned),
        "demoted" => Ok(Updated::Demoted),
        code => MalformedReply::code(code),
    }
}

fn if_version(version: Option<SettingsVersion>) -> String {
    version.map(|version| version.to_string()).unwrap_or_default()
}

impl Scripts {
    /// Merges a patch into a room's settings.
    pub async fn settings_update(
        &self,
        keys: &Keys,
        with: SettingsUpdate<'_>,
    ) -> Result<Updated, ScriptError> {
        let room = with.keys;
        let call = Call::keys([
            &room.room,
            &room.settings,
            &room.owner,
            &room.watchers,
            &room.fence,
            &room.cell,
            &room.lane,
        ])
        .texts([with.me.as_str(), with.room.route(), with.by.unwrap_or_default()])
        .text(&if_version(with.if_version))
        .count(with.max_bytes)
        .owner_bases(keys)
        .bytes(keys.channel_base(ChannelKind::Fanout).bytes())
        .texts([with.route_json, with.message])
        .number(with.lane_limit)
        .texts(with.patch.iter().flat_map(|(field, json)| [*field, json.as_str()]));
        self.read(&SETTINGS_UPDATE, call, read_updated).await
    }

    /// Merges a patch into one user's guest state.
    pub async fn guest_update(&self, keys: &Keys, with: GuestUpdate<'_>) -> Result<Updated, ScriptError> {
        let room = with.keys;
        let call = Call::keys([
            &room.room,
            &room.guests,
            &room.presence,
            &room.owner,
            &room.watchers,
            &room.fence,
            &room.cell,
            &room.lane,
        ])
        .texts([with.me.as_str(), with.room.route(), with.by.unwrap_or_default()])
        .text(&if_version(with.if_version))
        .count(with.max_bytes)
        .count(with.max_guests)
        .text(with.user)
        .flag(with.present)
        .text(with.patch)
        .owner_bases(keys)
        .bytes(keys.channel_base(ChannelKind::Fanout).bytes())
        .texts([with.route_json, with.message])
        .number(with.lane_limit);
        self.read(&GUEST_UPDATE, call, read_updated).await
    }
}
