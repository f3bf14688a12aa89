//! Running a script by its digest, loading it where the server does not know it.

use bytes::Bytes;
use fred::bytes_utils::Str;
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::LuaInterface;
use fred::types::{Key, Value};
use std::sync::LazyLock;

use crate::reply::{MalformedReply, Reply};

/// A script with its source, its includes expanded.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    source: &'static str,
    digest: LazyLock<Str>,
}

impl Script {
    /// The file's name without `.lua`; also its label in metrics.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The text that Redis gets.
    pub const fn source(&self) -> &'static str {
        self.source
    }

    pub(crate) const fn malformed(&'static self, source: MalformedReply) -> ScriptError {
        ScriptError::Malformed { script: self.name, source }
    }
}

macro_rules! scripts {
    ($($constant:ident $name:literal),* $(,)?) => {
        $(pub(crate) static $constant: Script = Script {
            name: $name,
            source: include_str!(concat!(env!("OUT_DIR"), "/", $name, ".lua")),
            digest: LazyLock::new(|| digest(&$constant)),
        };)*

        /// Every script.
        pub static SCRIPTS: &[&Script] = &[$(&$constant),*];
    };
}

fn digest(script: &Script) -> Str {
    fred::types::scripts::Script::from_lua(script.source).sha1().clone()
}

scripts! {
    REGISTER "register",
    DEREGISTER "deregister",
    HEARTBEAT "heartbeat",
    PIN "pin",
    COMMIT "commit",
    TOUCH "touch",
    RELEASE "release",
    RESTORE "restore",
    SETTINGS_UPDATE "settings_update",
    GUEST_UPDATE "guest_update",
    ENQUEUE "enqueue",
    REPORT "report",
    LEVELS "levels",
    ROUTER_CLAIM "router_claim",
    ROUTER_FIND "router_find",
    INBOX_READ "inbox_read",
    ANSWER "answer",
    ANSWERS_RESTORE "answers_restore",
    TIMELINE "timeline",
    SESSIONS_OPEN "sessions_open",
    SESSIONS_CLOSE "sessions_close",
    SESSIONS_TOUCH "sessions_touch",
    SESSIONS_OF "sessions_of",
    NOTIFY "notify",
    READ "read",
    WATCH "watch",
    UNWATCH "unwatch",
    LEASE_ACQUIRE "lease_acquire",
    LEASE_RENEW "lease_renew",
    LEASE_RELEASE "lease_release",
    LANES_HOLD "lanes_hold",
    LANES_READ "lanes_read",
    LANES_ARCHIVED "lanes_archived",
    LANES_KEPT "lanes_kept",
    FACTS "facts",
    EVENT_APPEND "event_append",
    INSTANCES "instances",
    REMAINS "remains",
    DUE "due",
    OFFER "offer",
    REAP "reap",
    SWEEP "sweep",
}

/// Why a script gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Redis could not be reached in time, or refused. Whether the script ran is unknown.
    #[error("{script}: Redis did not answer")]
    Unavailable {
        /// The script's name.
        script: &'static str,
        /// What the client library said.
        source: Error,
    },
    /// A key holds another type than the table says.
    #[error("{script}: a key has the wrong type")]
    WrongType {
        /// The script's name.
        script: &'static str,
    },
    /// The script failed while it ran: a fault of ours.
    #[error("{script}: the script failed")]
    Failed {
        /// The script's name.
        script: &'static str,
        /// What Redis said.
        source: Error,
    },
    /// The script answered something that its header does not name: a fault of ours.
    #[error("{script}: malformed reply")]
    Malformed {
        /// The script's name.
        script: &'static str,
        /// Where it departs from the header.
        source: MalformedReply,
    },
}

impl ScriptError {
    /// Whether Redis itself was the trouble, so that repeating may help.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// Runs scripts over one connection; calls made at once are pipelined. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scripts {
    client: Client,
}

impl Scripts {
    /// Scripts over `client`, which must not repeat commands by itself.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// The connection underneath.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) async fn call(&self, script: &'static Script, call: Call) -> Result<Reply, ScriptError> {
        let Call { keys, arguments } = call;
        let digest = script.digest.clone();
        let mut answer = self.client.evalsha::<Value, _, _, _>(digest, keys.clone(), arguments.clone()).await;
        if answer.as_ref().is_err_and(|error| error.details().starts_with("NOSCRIPT")) {
            answer = self.client.eval(script.source, keys, arguments).await;
        }
        match answer {
            Ok(value) => Ok(Reply::new(value)),
            Err(error) => Err(classify(script.name, error)),
        }
    }
}

fn classify(script: &'static str, source: Error) -> ScriptError {
    let details = source.details();
    if details.contains("WRONGTYPE") {
        return ScriptError::WrongType { script };
    }
    // What Redis says of a fault within a script names the script; whatever else goes wrong on the way,
    // a cut connection or a server that is loading or shutting down, may be over the next time.
    let is_ours = details.contains("script") && details.starts_with("ERR");
    if is_ours { ScriptError::Failed { script, source } } else { ScriptError::Unavailable { script, source } }
}

/// Keys and arguments of one call, in the order of the script's header.
#[derive(Debug, Default)]
pub struct Call {
    keys: Vec<Key>,
    arguments: Vec<Value>,
}

impl Call {
    pub(crate) fn keys<const N: usize>(keys: [&key_prefix::Key; N]) -> Self {
        Self { keys: keys.iter().map(|key| Key::from(key.bytes())).collect(), arguments: Vec::new() }
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        self.arguments.push(Value::from(text));
        self
    }

    pub(crate) fn bytes(mut self, bytes: Bytes) -> Self {
        self.arguments.push(Value::Bytes(bytes));
        self
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.arguments.push(Value::from(number.to_string()));
        self
    }

    pub(crate) fn count(self, count: usize) -> Self {
        self.number(count as u64)
    }

    pub(crate) fn flag(self, flag: bool) -> Self {
        self.text(if flag { "1" } else { "0" })
    }

    pub(crate) fn texts<'a>(mut self, texts: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.extend(texts.into_iter().map(Value::from));
        self
    }

    pub(crate) fn bases<const N: usize>(
        self,
        keys: &key_prefix::Keys,
        kinds: [key_prefix::KeyKind; N],
    ) -> Self {
        let bases = kinds.map(|kind| keys.base(kind).to_string());
        self.text(&bases.join("\n"))
    }

    /// By which scripts tell a room's owner what they did to the room.
    pub(crate) fn owner_bases(self, keys: &key_prefix::Keys) -> Self {
        let channel = keys.channel_base(key_prefix::ChannelKind::Sync);
        let marks = keys.base(key_prefix::KeyKind::Unheard);
        self.text(&format!("{channel}\n{marks}"))
    }
}
