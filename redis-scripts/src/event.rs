//! `event_append`: business events, for whoever reads them out of Redis.

use key_prefix::Keys;
use std::time::Duration;

use crate::instance::ms;
use crate::reply::MalformedReply;
use crate::script::{Call, EVENT_APPEND, ScriptError, Scripts};

/// What `event_append` is told.
#[derive(Debug)]
pub struct EventAppend<'a> {
    /// The app.
    pub app: &'a str,
    /// Its id: it may come more than once.
    pub id: &'a str,
    /// What happened.
    pub kind: &'a str,
    /// The room; empty: it is about none.
    pub room: &'a str,
    /// All of it, as JSON.
    pub payload: &'a str,
    /// Entries that the stream keeps, about.
    pub cap: usize,
    /// How long the stream lives after its newest entry.
    pub life: Duration,
}

impl Scripts {
    /// Appends an event to the stream of its app, and says under which stream id.
    pub async fn event_append(&self, keys: &Keys, with: EventAppend<'_>) -> Result<String, ScriptError> {
        let call = Call::keys([&keys.events(with.app)])
            .count(with.cap.max(1))
            .number(ms(with.life))
            .text(with.id)
            .text(with.kind)
            .text(with.room)
            .text(with.payload);
        let mut reply = self.call(&EVENT_APPEND, call).await?;
        let read = |code: String, entry: String| match &*code {
            "ok" => Ok(entry),
            code => MalformedReply::code(code),
        };
        let read = reply.text().and_then(|code| read(code, reply.text()?));
        read.map_err(|source| EVENT_APPEND.malformed(source))
    }
}
