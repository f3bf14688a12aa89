//! `enqueue`, `inbox_read`, `answer`: work for a room's owner, from anybody.

use key_prefix::{Instance, KeyKind, Keys, RoomKey, RoomKeys};

use crate::RedisMillis;
use crate::commit::Keep;
use crate::reply::{MalformedReply, Reply};
use crate::script::{ANSWER, Call, ENQUEUE, INBOX_READ, ScriptError, Scripts};

/// What `enqueue` is told.
#[derive(Debug)]
pub struct Enqueue<'a> {
    /// The caller, who need not own the room.
    pub me: &'a Instance,
    /// The room.
    pub room: &'a RoomKey,
    /// Its keys.
    pub keys: &'a RoomKeys,
    /// The route as a JSON string.
    pub route_json: &'a str,
    /// What is to be done, as JSON.
    pub payload: &'a str,
    /// By what a repeat is known; one that has its answer is not appended.
    pub keep: Option<Keep<'a>>,
    /// The caller's number for the question, if it waits for an answer.
    pub number: Option<&'a str>,
    /// Not to be executed after this by Redis's clock.
    pub deadline: Option<RedisMillis>,
    /// Entries that may wait in the inbox.
    pub cap: usize,
}

/// What `enqueue` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// Appended.
    Ok {
        /// Its stream id.
        entry: String,
        /// `name/incarnation` of the owner, who was told unless it is the caller; empty: nobody owns the room.
        owner: String,
    },
    /// The room is not there.
    Missing {
        /// Who owns it all the same, and will restore it; empty: nobody.
        owner: String,
    },
    /// Too many entries wait.
    Full {
        /// How many.
        length: usize,
    },
    /// The command has been executed.
    Answered {
        /// Digest of the body that was executed.
        digest: String,
        /// What its caller got, as JSON.
        answer: String,
    },
}

/// By what a repeated command is known: [`Keep`], owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedKeep {
    /// Who asked.
    pub caller: String,
    /// The command's id.
    pub id: String,
    /// Digest of the command's body.
    pub digest: String,
}

impl OwnedKeep {
    /// The same, borrowed for a commit.
    pub fn as_keep(&self) -> Keep<'_> {
        Keep { caller: &self.caller, id: &self.id, digest: &self.digest }
    }
}

/// An entry of an inbox. One that cannot be read has an empty payload, so that the owner sets it aside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InboxEntry {
    /// Its stream id.
    pub entry: String,
    /// When it was appended.
    pub at: RedisMillis,
    /// What is to be done, as JSON.
    pub payload: String,
    /// By what a repeat is known.
    pub keep: Option<OwnedKeep>,
    /// Instance that waits for an answer, and its number for the question.
    pub reply: Option<(String, String)>,
    /// Not to be executed after this by Redis's clock.
    pub deadline: Option<RedisMillis>,
}

impl InboxEntry {
    fn read(mut item: Reply) -> Result<Self, MalformedReply> {
        let entry = item.text()?;
        let time = entry.split('-').next().and_then(|time| time.parse().ok());
        let unread =
            Self { at: RedisMillis::new(time.unwrap_or_default()), entry: entry.clone(), ..Self::default() };
        let Ok(fields) = item.nested()?.pairs() else { return Ok(unread) };
        let mut read = unread.clone();
        let mut keep = OwnedKeep { caller: String::new(), id: String::new(), digest: String::new() };
        let (mut instance, mut number) = (String::new(), String::new());
        for (field, value) in fields {
            match field.as_str() {
                "payload" => read.payload = value,
                "caller" => keep.caller = value,
                "id" => keep.id = value,
                "digest" => keep.digest = value,
                "reply" => instance = value,
                "number" => number = value,
                "deadline" => match value.parse() {
                    Ok(deadline) => read.deadline = Some(RedisMillis::new(deadline)),
                    Err(_) => return Ok(unread),
                },
                _ => {}
            }
        }
        read.keep = (!keep.id.is_empty()).then_some(keep);
        read.reply = (!number.is_empty()).then_some((instance, number));
        Ok(read)
    }
}

impl Scripts {
    /// Appends work to a room's inbox and tells the owner.
    pub async fn enqueue(&self, keys: &Keys, with: Enqueue<'_>) -> Result<Enqueued, ScriptError> {
        let room = with.keys;
        let keep = with.keep.unwrap_or(Keep { caller: "", id: "", digest: "" });
        let call = Call::keys([&room.room, &room.owner, &room.inbox, &keys.due()])
            .text(with.me.as_str())
            .texts([with.room.route(), with.route_json])
            .owner_bases(keys)
            .bytes(keys.base(KeyKind::Answer).bytes())
            .count(with.cap)
            .text(with.payload)
            .texts([keep.caller, keep.id, keep.digest])
            .text(with.number.unwrap_or_default())
            .moment(with.deadline);
        self.read(&ENQUEUE, call, |code, reply| match code {
            "ok" => Ok(Enqueued::Ok { entry: reply.text()?, owner: reply.text()? }),
            "missing" => Ok(Enqueued::Missing { owner: reply.text()? }),
            "full" => Ok(Enqueued::Full { length: reply.count()? }),
            "answered" => Ok(Enqueued::Answered { digest: reply.text()?, answer: reply.text()? }),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Reads a room's inbox in order, `after` an entry or from its beginning.
    pub async fn inbox_read(
        &self,
        room: &RoomKeys,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<InboxEntry>, ScriptError> {
        let call = Call::keys([&room.inbox]).text(after.unwrap_or_default()).count(limit);
        self.read(&INBOX_READ, call, |code, reply| match code {
            "ok" => {
                let mut found = reply.nested()?;
                let mut entries = Vec::new();
                while !found.is_empty() {
                    entries.push(InboxEntry::read(found.nested()?)?);
                }
                Ok(entries)
            }
            code => MalformedReply::code(code),
        })
        .await
    }

    /// The answer that a command got in the last 24 hours: digest of its body, and JSON.
    pub async fn answer(
        &self,
        keys: &Keys,
        room: &RoomKey,
        caller: &str,
        id: &str,
    ) -> Result<Option<(String, String)>, ScriptError> {
        let call = Call::keys([&keys.answer(room, caller, id)]);
        self.read(&ANSWER, call, |code, reply| match code {
            "ok" => Ok(Some((reply.text()?, reply.text()?))),
            "none" => Ok(None),
            code => MalformedReply::code(code),
        })
        .await
    }
}
