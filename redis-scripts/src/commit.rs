//! `commit`: everything that a room's owner decides.

use key_prefix::{ChannelKind, Incarnation, Instance, KeyKind, Keys, RoomKey, RoomKeys};

use crate::reply::{MalformedReply, Reply};
use crate::room::superseded;
use crate::script::{COMMIT, Call, ScriptError, Scripts};
use crate::{CellVersion, FenceToken, RedisMillis};

/// What a commit changes in a room's keys.
#[derive(Debug, Default)]
pub struct CellChanges<'a> {
    /// The room's status, if it changes.
    pub status: Option<&'a str>,
    /// Fields of the cell, as JSON.
    pub set: Vec<(&'a str, &'a str)>,
    /// Fields of the cell that end.
    pub removed: Vec<&'a str>,
    /// Peers by id, as JSON.
    pub peers_set: Vec<(&'a str, &'a str)>,
    /// Peers that end.
    pub peers_removed: Vec<&'a str>,
    /// Users who are present from now on.
    pub users_in: Vec<&'a str>,
    /// Users who are present no more.
    pub users_out: Vec<&'a str>,
}

/// By what a repeated command is known. None of the three may hold a line feed or a zero byte; caller and id are
/// never empty, and without a digest the answer is looked for and not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep<'a> {
    /// Who asked.
    pub caller: &'a str,
    /// The command's id.
    pub id: &'a str,
    /// Digest of the command's body: the same id with another body is another command.
    pub digest: &'a str,
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTo<'a> {
    /// `name/incarnation` of the instance that asked; it gets `{"number":"…","answer":…}`.
    pub instance: &'a str,
    /// Its number for the question.
    pub number: &'a str,
}

/// The inbox entry that a command came from. It leaves the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged<'a> {
    /// Its stream id.
    pub entry: &'a str,
    /// Why it could not be executed: a copy is set aside.
    pub aside: Option<&'a str>,
}

/// One command of a commit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Committing<'a> {
    /// JSON for the lane, if the command has events: it raises `cv` by one.
    pub entry: Option<&'a str>,
    /// JSON for who asked; empty: nothing.
    pub answer: &'a str,
    /// Keeps the answer for 24 hours, and refuses the commit if it is there already.
    pub keep: Option<Keep<'a>>,
    /// Where the answer is published.
    pub reply: Option<ReplyTo<'a>>,
    /// The inbox entry that it came from.
    pub inbox: Option<Acknowledged<'a>>,
    /// Not after this by Redis's clock.
    pub deadline: Option<RedisMillis>,
}

/// What `commit` is told.
#[derive(Debug)]
pub struct Commit<'a> {
    /// The caller.
    pub me: &'a Instance,
    /// The room.
    pub room: &'a RoomKey,
    /// Its keys.
    pub keys: &'a RoomKeys,
    /// The token of its lease.
    pub token: FenceToken,
    /// Cell version before the commit.
    pub cv: CellVersion,
    /// Names this commit: sent again unchanged, it is done once.
    pub batch: &'a str,
    /// The commands, in order. No two of them keep an answer under the same caller and id.
    pub commands: &'a [Committing<'a>],
    /// What all of them change together.
    pub changes: &'a CellChanges<'a>,
    /// When something falls due next; `None`: nothing does.
    pub due: Option<RedisMillis>,
    /// Messages for every watcher, verbatim.
    pub fanout: &'a [String],
    /// Nothing with events is committed while the room's lane has so many entries.
    pub lane_limit: u64,
}

/// What `commit` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Committed, now or by an earlier call of the same batch.
    Ok {
        /// The cell's new version.
        cv: CellVersion,
        /// Redis's time of the commit.
        now: RedisMillis,
    },
    /// Some commands have an answer already, or came too late; nothing was written.
    Again {
        /// Which, by position in [`Commit::commands`].
        repeats: Vec<(usize, Repeat)>,
    },
    /// The lease is not the caller's.
    Lost {
        /// What the owner key holds.
        held: String,
    },
    /// The room's lane is full: the ledger does not keep up. Nothing was written.
    Full {
        /// Entries that wait in it.
        entries: u64,
    },
    /// Redis lost the room's record, or the sizes of its keys are not what the record says.
    Missing,
    /// Redis stands at an earlier version than expected: it lost commits.
    Behind {
        /// Where it stands.
        cv: CellVersion,
    },
    /// Redis stands at a later version than expected, by another batch.
    Ahead {
        /// Where it stands.
        cv: CellVersion,
    },
    /// A newer incarnation of the caller's name lives.
    Superseded {
        /// Its incarnation.
        by: Incarnation,
    },
}

/// Why a command is not to be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repeat {
    /// It has been.
    Answered {
        /// Digest of the body that was executed.
        digest: String,
        /// What its caller got, as JSON.
        answer: String,
    },
    /// Its deadline is over.
    Late,
}

impl Call {
    /// Counts and items, as the include `cell` takes them apart.
    pub(crate) fn changes(self, changes: &CellChanges<'_>) -> Self {
        self.count(changes.set.len())
            .count(changes.removed.len())
            .count(changes.peers_set.len())
            .count(changes.peers_removed.len())
            .count(changes.users_in.len())
            .count(changes.users_out.len())
            .texts(changes.set.iter().flat_map(|(field, json)| [*field, *json]))
            .texts(changes.removed.iter().copied())
            .texts(changes.peers_set.iter().flat_map(|(peer, json)| [*peer, *json]))
            .texts(changes.peers_removed.iter().copied())
            .texts(changes.users_in.iter().copied())
            .texts(changes.users_out.iter().copied())
    }

    /// Their number and ten items each, as the include `commands` takes them apart.
    pub(crate) fn commands(self, commands: &[Committing<'_>]) -> Self {
        let mut call = self.count(commands.len());
        for command in commands {
            let keep = command.keep.unwrap_or(Keep { caller: "", id: "", digest: "" });
            let reply = command.reply.unwrap_or(ReplyTo { instance: "", number: "" });
            let inbox = command.inbox.unwrap_or(Acknowledged { entry: "", aside: None });
            call = call
                .texts([command.entry.unwrap_or_default(), command.answer])
                .texts([keep.caller, keep.id, keep.digest])
                .texts([reply.instance, reply.number])
                .texts([inbox.entry, inbox.aside.unwrap_or_default()])
                .moment(command.deadline);
        }
        call
    }

    /// Milliseconds by Redis's clock; empty: never.
    pub(crate) fn moment(self, moment: Option<RedisMillis>) -> Self {
        self.text(&moment.map(|moment| moment.to_string()).unwrap_or_default())
    }
}

impl Commit<'_> {
    /// As the script takes it. Public for the bench alone.
    #[doc(hidden)]
    pub fn call(&self, keys: &Keys) -> Call {
        let (me, room) = (self.me, self.keys);
        Call::keys([
            &keys.incarnation_of(me),
            &room.owner,
            &room.room,
            &room.cell,
            &room.peers,
            &room.presence,
            &room.watchers,
            &room.lane,
            &room.inbox,
            &room.aside,
            &keys.due(),
        ])
        .text(me.as_str())
        .number(me.incarnation().as_u64())
        .number(self.token.as_u64())
        .text(self.room.route())
        .number(self.cv.as_u64())
        .texts([self.batch, self.changes.status.unwrap_or_default()])
        .moment(self.due)
        .bytes(keys.base(KeyKind::Answer).bytes())
        .bytes(keys.channel_base(ChannelKind::Reply).bytes())
        .bytes(keys.channel_base(ChannelKind::Fanout).bytes())
        .number(self.lane_limit)
        .changes(self.changes)
        .commands(self.commands)
        .texts(self.fanout.iter().map(String::as_str))
    }
}

impl Scripts {
    /// Writes what the owner of a room decided: all of it, or nothing.
    pub async fn commit(&self, keys: &Keys, with: Commit<'_>) -> Result<Committed, ScriptError> {
        self.read(&COMMIT, with.call(keys), |code, reply| match code {
            "ok" => Ok(Committed::Ok { cv: reply.cell()?, now: reply.millis()? }),
            "again" => Ok(Committed::Again { repeats: read_repeats(reply)? }),
            "lost" => Ok(Committed::Lost { held: reply.text()? }),
            "full" => Ok(Committed::Full { entries: reply.number()? }),
            "missing" => Ok(Committed::Missing),
            "behind" => Ok(Committed::Behind { cv: reply.cell()? }),
            "ahead" => Ok(Committed::Ahead { cv: reply.cell()? }),
            "superseded" => Ok(Committed::Superseded { by: superseded(reply)? }),
            code => MalformedReply::code(code),
        })
        .await
    }
}

fn read_repeats(reply: &mut Reply) -> Result<Vec<(usize, Repeat)>, MalformedReply> {
    let mut found = reply.nested()?;
    let mut repeats = Vec::new();
    while !found.is_empty() {
        let (at, is_late) = (found.count()?, found.flag()?);
        let (digest, answer) = (found.text()?, found.text()?);
        repeats.push((at, if is_late { Repeat::Late } else { Repeat::Answered { digest, answer } }));
    }
    Ok(repeats)
}
