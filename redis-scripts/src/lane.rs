//! `timeline`: what was committed to a room, as far back as its lane reaches.

use key_prefix::{Keys, RoomKey};

use crate::reply::{MalformedReply, Reply};
use crate::script::{Call, ScriptError, Scripts, TIMELINE};
use crate::{FenceToken, RedisMillis};

/// A committed change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneEntry {
    /// Its stream id.
    pub id: String,
    /// `cell`, `settings` or `guest`.
    pub kind: String,
    /// When it was committed.
    pub at: RedisMillis,
    /// `name/incarnation` of the owner at that time; empty: nobody owned the room.
    pub owner: String,
    /// The owner's token, or the last one before.
    pub token: FenceToken,
    /// `cv` of a cell entry, else `sv`.
    pub version: u64,
    /// What was changed, as JSON: what the owner wrote, or `{"settings":{…},"by":…}`, `{"guests":{…},"by":…}`.
    pub entry: String,
}

/// A page of a room's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// Newest first.
    pub entries: Vec<LaneEntry>,
    /// Where the next page begins; `None`: the lane reaches no further back.
    pub next: Option<String>,
}

impl Scripts {
    /// Reads a room's history, newest first, from just `before` a stream id or from its end: at most `limit`
    /// entries, out of at most `scan` that all rooms of the lane have. A page may be empty and not the last.
    pub async fn timeline(
        &self,
        keys: &Keys,
        room: &RoomKey,
        before: Option<&str>,
        scan: usize,
        limit: usize,
    ) -> Result<Timeline, ScriptError> {
        let call = Call::keys([&keys.lane(room)])
            .text(room.route())
            .text(before.unwrap_or_default())
            .count(scan.max(1))
            .count(limit.max(1));
        self.read(&TIMELINE, call, |code, reply| match code {
            "ok" => read_timeline(reply),
            code => MalformedReply::code(code),
        })
        .await
    }
}

fn read_timeline(reply: &mut Reply) -> Result<Timeline, MalformedReply> {
    let next = Some(reply.text()?).filter(|next| !next.is_empty());
    let mut found = reply.nested()?;
    let mut entries = Vec::new();
    while !found.is_empty() {
        entries.push(LaneEntry {
            id: found.text()?,
            kind: found.text()?,
            at: found.millis()?,
            owner: found.text()?,
            token: found.token()?,
            version: found.number()?,
            entry: found.text()?,
        });
    }
    Ok(Timeline { entries, next })
}
