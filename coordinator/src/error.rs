//! What clients are told when something is refused: one table of codes, one type of error.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::borrow::Cow;
use std::time::Duration;

/// Who is told of a refusal.
enum Show {
    /// The client, which waits and asks again by itself.
    Hide,
    /// The app.
    Surface,
}

macro_rules! codes {
    ($($code:ident $text:literal $status:literal $retryable:literal $show:ident $meaning:literal)*) => {
        /// Every error code of the wire protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $code,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// The code of this text.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.as_str() == text)
            }

            /// The code as clients see it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$code => $text,)* }
            }

            /// The HTTP status that goes with it.
            pub const fn status(self) -> u16 {
                match self { $(Self::$code => $status,)* }
            }

            /// Whether the same request may succeed later.
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$code => $retryable,)* }
            }

            /// Whether a client waits and asks again by itself, rather than telling its app.
            pub const fn is_hidden(self) -> bool {
                match self { $(Self::$code => matches!(Show::$show, Show::Hide),)* }
            }

            /// What it means.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$code => $meaning,)* }
            }
        }
    };
}

codes! {
    BadRequest "BAD_REQUEST" 400 false Surface "the request is malformed; the message says where"
    Unauthenticated "UNAUTHENTICATED" 401 false Surface "the token is missing, wrong or expired"
    Forbidden "FORBIDDEN" 403 false Surface "the token does not allow this"
    RoomNotFound "ROOM_NOT_FOUND" 404 false Surface "there is no such room, and it may not be made"
    RoomClosed "ROOM_CLOSED" 410 false Surface "the room is closed"
    RoomFull "ROOM_FULL" 409 true Surface "the room is at its capacity"
    Banned "BANNED" 403 false Surface "the user is banned from the room"
    WrongInstance "WRONG_INSTANCE" 421 true Hide "another instance runs the room; the answer names it"
    NotInRoom "NOT_IN_ROOM" 409 false Surface "join the room first"
    SeatTaken "SEAT_TAKEN" 409 false Surface "somebody sits there"
    SeatLocked "SEAT_LOCKED" 409 false Surface "the seat is locked"
    NoFreeSeat "NO_FREE_SEAT" 409 true Surface "every seat is taken"
    NotOnSeat "NOT_ON_SEAT" 409 false Surface "the user has no seat"
    StaleSession "STALE_SESSION" 409 false Surface "the mic session is not the present one"
    VersionConflict "VERSION_CONFLICT" 409 false Surface "the version is not what `ifVersion` said; read and decide again"
    RateLimited "RATE_LIMITED" 429 true Hide "too much at once; wait `retryAfterMs`"
    MessageRejected "MESSAGE_REJECTED" 403 false Surface "the app refused the message"
    PayloadTooLarge "PAYLOAD_TOO_LARGE" 413 false Surface "larger than the limit that the message names"
    Timeout "TIMEOUT" 504 true Hide "no answer in time; whether it was done is unknown, repeat with the same id"
    Draining "DRAINING" 503 true Hide "this instance takes no new rooms"
    LeaseLost "LEASE_LOST" 503 true Hide "the room is changing its owner"
    RoomLocked "ROOM_LOCKED" 403 false Surface "the room's door is locked"
    NotSupported "NOT_SUPPORTED" 501 false Surface "known, but not built in this version"
    StoreUnavailable "STORE_UNAVAILABLE" 503 true Hide "Redis is out of reach"
    LedgerUnavailable "LEDGER_UNAVAILABLE" 503 true Hide "the ledger is out of reach and its lanes are full"
    MediaUnavailable "MEDIA_UNAVAILABLE" 503 true Hide "no media server can take this"
    Internal "INTERNAL" 500 false Surface "a fault of ours; the request id finds it in the log"
}

/// Where a client should go instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Name of the instance that owns the room.
    pub instance: String,
    /// Its public URL; empty if unknown just now.
    pub url: String,
    /// The owner's fencing token.
    pub token: u64,
}

/// A refusal, as it goes to a client. Never holds a secret, nor what an internal fault said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct ApiError {
    /// Which kind.
    pub code: ErrorCode,
    /// For people; names what and where.
    pub message: Cow<'static, str>,
    /// When to try again, for codes that are retryable.
    pub retry_after: Option<Duration>,
    /// Where to try instead, with `WRONG_INSTANCE`.
    pub redirect: Option<Box<Redirect>>,
}

impl ApiError {
    /// A refusal of this kind.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        let retry_after = code.is_retryable().then_some(Duration::from_millis(500));
        Self { code, message: message.into(), retry_after, redirect: None }
    }

    /// The request is malformed.
    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    /// The ledger does not keep up, and what waits for it is all that may.
    pub fn ledger_full() -> Self {
        Self::new(ErrorCode::LedgerUnavailable, "the ledger does not keep up; nothing new is begun")
            .after(Duration::from_secs(2))
    }

    /// Retry after this long.
    #[must_use]
    pub const fn after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// The room is changing its owner.
    pub fn lease_lost() -> Self {
        Self::new(ErrorCode::LeaseLost, "the room is changing its owner")
    }

    /// Redis is out of reach.
    pub fn store_unavailable() -> Self {
        Self::new(ErrorCode::StoreUnavailable, "the store is out of reach")
    }

    /// Another instance runs the room.
    pub fn wrong_instance(redirect: Redirect) -> Self {
        let mut error = Self::new(ErrorCode::WrongInstance, "another instance runs this room");
        error.retry_after = Some(Duration::ZERO);
        error.redirect = Some(Box::new(redirect));
        error
    }

    /// The error object of the wire protocol.
    pub const fn with_request<'a>(&'a self, request: &'a str) -> ErrorObject<'a> {
        ErrorObject { error: self, request }
    }
}

/// The error object of the wire protocol, with the id that finds the request in the log.
#[derive(Debug)]
pub struct ErrorObject<'a> {
    error: &'a ApiError,
    request: &'a str,
}

impl Serialize for ErrorObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let error = self.error;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", error.code.as_str())?;
        map.serialize_entry("message", &error.message)?;
        map.serialize_entry("retryable", &error.code.is_retryable())?;
        map.serialize_entry("requestId", self.request)?;
        if let Some(pause) = error.retry_after {
            map.serialize_entry("retryAfterMs", &pause.as_millis())?;
        }
        if let Some(redirect) = &error.redirect {
            map.serialize_entry("redirectInstance", &redirect.instance)?;
            if !redirect.url.is_empty() {
                map.serialize_entry("redirectUrl", &redirect.url)?;
            }
            map.serialize_entry("token", &redirect.token)?;
        }
        map.end()
    }
}

impl From<redis_scripts::ScriptError> for ApiError {
    fn from(error: redis_scripts::ScriptError) -> Self {
        if error.is_unavailable() {
            return Self::store_unavailable();
        }
        tracing::error!(error = &error as &dyn std::error::Error, "a script failed");
        Self::new(ErrorCode::Internal, "the store answered something unexpected")
    }
}

/// The table of codes as Markdown, as the documentation holds it.
pub fn markdown() -> String {
    use std::fmt::Write as _;
    let mut out = String::from("| code | HTTP | retryable | meaning |\n| --- | --- | --- | --- |\n");
    for code in ErrorCode::ALL {
        let retryable = if code.is_retryable() { "yes" } else { "no" };
        _ = writeln!(out, "| `{}` | {} | {retryable} | {} |", code.as_str(), code.status(), code.meaning());
    }
    out
}

/// The table of codes as TypeScript, as the client's package holds it.
pub fn typescript() -> String {
    use std::fmt::Write as _;
    let mut out = String::from(
        "// What `coordinator errors --typescript` prints.\n\n\
         /** `retryable`: the same request may succeed later. `hide`: the client waits and asks again by itself. */\n\
         export const ERRORS = {\n",
    );
    for code in ErrorCode::ALL {
        let show = if code.is_hidden() { "hide" } else { "surface" };
        let retryable = code.is_retryable();
        _ = writeln!(out, "  {}: {{ retryable: {retryable}, show: \"{show}\" }},", code.as_str());
    }
    out.push_str("} as const;\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_object_says_what_the_protocol_promises() {
        let error =
            ApiError::wrong_instance(Redirect { instance: "b".into(), url: "http://b".into(), token: 7 });
        let object = serde_json::to_value(error.with_request("r1")).unwrap();
        assert_eq!(
            object,
            serde_json::json!({
                "code": "WRONG_INSTANCE", "message": "another instance runs this room", "retryable": true,
                "requestId": "r1", "retryAfterMs": 0, "redirectInstance": "b", "redirectUrl": "http://b", "token": 7,
            })
        );
    }

    #[test]
    fn every_retryable_code_says_when() {
        for code in ErrorCode::ALL {
            assert_eq!(ApiError::new(*code, "").retry_after.is_some(), code.is_retryable(), "{code:?}");
        }
    }
}
