//! `pin`: winning a room's lease, and making the room.

use key_prefix::{ChannelKind, Incarnation, Instance, KeyKind, Keys, RoomKey};
use std::time::Duration;

use crate::commit::{CellChanges, Committing};
use crate::instance::ms;
use crate::reply::MalformedReply;
use crate::room::{RoomState, superseded};
use crate::script::{Call, PIN, ScriptError, Scripts};
use crate::{CellVersion, FenceToken, RedisMillis, SettingsVersion};

/// What `pin` is told.
#[derive(Debug)]
pub struct Pin<'a> {
    /// The caller.
    pub me: &'a Instance,
    /// The room.
    pub room: &'a RoomKey,
    /// Time to live of the owner key.
    pub owner_ttl: Duration,
    /// The token will be larger than this: what is known of the room from elsewhere.
    pub floor: FenceToken,
    /// Keep the token if the lease is mine already.
    pub renew: bool,
    /// What the room is made of if it is not there; `None`: do not make it.
    pub birth: Option<Birth<'a>>,
    /// Do not take a closed room.
    pub open_only: bool,
    /// Not after this by Redis's clock: whoever asks does not wait for longer. A call that a stalled Redis
    /// finds in its sockets when it goes on would else win a room for nobody.
    pub deadline: Option<RedisMillis>,
}

/// What a room begins with. Used only if it is not there.
#[derive(Debug, Clone, Copy)]
pub struct Birth<'a> {
    /// Settings by name, as JSON.
    pub settings: &'a [(&'a str, String)],
    /// The same for the ledger, as the scripts that change settings write it; empty: nothing for the ledger.
    pub entry: &'a str,
    /// Settings version to begin with.
    pub sv: SettingsVersion,
    /// Cell version before the first command.
    pub cv: CellVersion,
    /// The room is not made while its lane has so many entries.
    pub lane_limit: u64,
    /// The cell, its peers and who is present; without a status it is active.
    pub changes: &'a CellChanges<'a>,
    /// The commands that make it; each of those with events raises its `cv` by one. Their deadlines do not count
    /// here, that of the pin does, and an answer that one of them has already is replaced.
    pub commands: &'a [Committing<'a>],
    /// When something falls due first; `None`: nothing does.
    pub due: Option<RedisMillis>,
}

/// What `pin` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pinned {
    /// The lease is the caller's.
    Owned {
        /// Its token.
        token: FenceToken,
        /// The token of the lease before; 0 if there was none.
        previous: FenceToken,
        /// Whether the room was made by this call, of its birth.
        made: bool,
        /// Whether the room's keys are as its record says; if not, something was lost.
        whole: bool,
        /// Whether it was written, or proved, in the history of its data that Redis tells now; if not, the
        /// last of what was acknowledged may be lost.
        proved: bool,
        /// Redis's time.
        now: RedisMillis,
        /// Number of watching instances.
        watchers: usize,
        /// Number of entries in its inbox.
        inbox: usize,
        /// Redis's time of the last commit; 0 if there was none.
        committed_at: RedisMillis,
        /// The room.
        state: Box<RoomState>,
    },
    /// A living instance owns it.
    Other {
        /// `name/incarnation`.
        owner: String,
        /// Its token.
        token: FenceToken,
        /// Its public URL; empty if its record is missing just now.
        url: String,
    },
    /// The room is not there and was not to be made.
    Absent,
    /// The room is closed, and only an open one was wanted; nothing was done.
    Closed,
    /// The deadline is over; nothing was done.
    Late,
    /// The room is not there, and its lane is full; nothing was done.
    Full {
        /// Entries that wait in it.
        entries: u64,
    },
    /// A newer incarnation of the caller's name lives.
    Superseded {
        /// Its incarnation.
        by: Incarnation,
    },
}

impl Birth<'_> {
    /// The room that was made of it.
    fn state(&self, token: FenceToken, now: RedisMillis) -> RoomState {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, json)| ((*name).to_owned(), (*json).to_owned())).collect()
        };
        let commands =
            self.commands.iter().filter(|command| command.entry.is_some_and(|entry| !entry.is_empty()));
        RoomState {
            status: self.changes.status.unwrap_or("active").to_owned(),
            created_at: now,
            token,
            sv: self.sv,
            cv: CellVersion::new(self.cv.as_u64() + commands.count() as u64),
            batch: String::new(),
            committed_at: now,
            settings: self.settings.iter().map(|(name, json)| ((*name).to_owned(), json.clone())).collect(),
            guests: Vec::new(),
            peers: owned(&self.changes.peers_set),
            presence: self.changes.users_in.iter().map(|user| ((*user).to_owned(), now)).collect(),
            cell: owned(&self.changes.set),
        }
    }
}

impl Pin<'_> {
    /// As the script takes it. Public for the bench alone.
    #[doc(hidden)]
    pub fn call(&self, keys: &Keys) -> Call {
        let (me, room) = (self.me, keys.room(self.room));
        let mut call = Call::keys([
            &keys.incarnation_of(me),
            &keys.instances(),
            &keys.instance_rooms(me),
            &room.owner,
            &room.fence,
            &room.room,
            &room.settings,
            &room.guests,
            &room.peers,
            &room.presence,
            &room.cell,
            &room.watchers,
            &room.rooms,
            &room.lane,
            &room.inbox,
            &room.aside,
            &keys.due(),
        ])
        .text(me.as_str())
        .number(me.incarnation().as_u64())
        .number(ms(self.owner_ttl))
        .number(self.floor.as_u64())
        .flag(self.renew)
        .flag(self.open_only)
        .texts([self.room.room(), self.room.route()])
        .bytes(keys.base(KeyKind::Instance).bytes())
        .bytes(keys.base(KeyKind::Answer).bytes())
        .bytes(keys.channel_base(ChannelKind::Reply).bytes())
        .moment(self.deadline)
        .flag(self.birth.is_some());
        if let Some(birth) = self.birth {
            call = call
                .number(birth.lane_limit)
                .number(birth.sv.as_u64())
                .number(birth.cv.as_u64())
                .text(birth.entry)
                .text(birth.changes.status.unwrap_or("active"))
                .moment(birth.due)
                .count(birth.settings.len())
                .texts(birth.settings.iter().flat_map(|(field, json)| [*field, json.as_str()]))
                .changes(birth.changes)
                .commands(birth.commands);
        }
        call
    }
}

impl Scripts {
    /// Takes a room's lease and loads the room.
    pub async fn pin(&self, keys: &Keys, with: Pin<'_>) -> Result<Pinned, ScriptError> {
        self.read(&PIN, with.call(keys), |code, reply| match code {
            "owned" => {
                let (token, previous) = (reply.token()?, reply.token()?);
                let (made, whole, proved, now) =
                    (reply.flag()?, reply.flag()?, reply.flag()?, reply.millis()?);
                let (watchers, inbox) = (reply.count()?, reply.count()?);
                let state = Box::new(match &with.birth {
                    Some(birth) if made => birth.state(token, now),
                    _ => RoomState::read(reply)?,
                });
                let committed_at = state.committed_at;
                Ok(Pinned::Owned {
                    token,
                    previous,
                    made,
                    whole,
                    proved,
                    now,
                    watchers,
                    inbox,
                    committed_at,
                    state,
                })
            }
            "other" => Ok(Pinned::Other { owner: reply.text()?, token: reply.token()?, url: reply.text()? }),
            "absent" => Ok(Pinned::Absent),
            "closed" => Ok(Pinned::Closed),
            "late" => Ok(Pinned::Late),
            "full" => Ok(Pinned::Full { entries: reply.number()? }),
            "superseded" => Ok(Pinned::Superseded { by: superseded(reply)? }),
            code => MalformedReply::code(code),
        })
        .await
    }
}
