//! Why a media server did not do what it was asked.

/// A refusal or a failure. `Display` is fit for logs; it never holds an SDP or a name of a person.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediaError {
    /// The named thing does not exist: `room`, `participant`.
    #[error("no such {what}")]
    NotFound {
        /// What was looked for.
        what: &'static str,
    },
    /// A limit was reached.
    #[error("{limit} is {max}")]
    TooMany {
        /// The configuration key of the limit.
        limit: &'static str,
        /// Its value.
        max: u64,
    },
    /// The offer cannot be answered. The client's existing connection, if any, goes on, unless `reason` says not.
    #[error("offer refused: {reason}")]
    BadSdp {
        /// What is wrong with it.
        reason: String,
    },
    /// The participant's permissions do not cover this.
    #[error("not permitted to {action}")]
    NotPermitted {
        /// What was not permitted: `publish audio`, `publish video`, `subscribe`.
        action: &'static str,
    },
    /// The router is of a newer generation than the command.
    #[error("router has generation {current}, the command {asked}")]
    StaleGeneration {
        /// The router's generation.
        current: u64,
        /// The command's.
        asked: u64,
    },
    /// This kind of media server cannot do that.
    #[error("cannot {what}")]
    NotSupported {
        /// What was asked.
        what: &'static str,
    },
    /// The media server answered, and would not: it is set up otherwise than the coordinator, or has a fault.
    #[error("the media server refused: {reason}")]
    Refused {
        /// What it said, without a name or a secret.
        reason: String,
    },
    /// No answer within the deadline; what was asked may still happen.
    #[error("no answer within {after_ms} ms")]
    Timeout {
        /// The deadline.
        after_ms: u64,
    },
    /// The media server cannot work now: it is closing, overloaded, or has no socket.
    #[error("media server unavailable: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
}

impl MediaError {
    /// Whether the same call may succeed later without the caller changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Unavailable { .. } | Self::TooMany { .. } => true,
            Self::NotFound { .. }
            | Self::NotSupported { .. }
            | Self::Refused { .. }
            | Self::BadSdp { .. }
            | Self::NotPermitted { .. }
            | Self::StaleGeneration { .. } => false,
        }
    }

    pub(crate) fn bad_sdp(reason: impl Into<String>) -> Self {
        Self::BadSdp { reason: reason.into() }
    }

    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }
}
