//! Why a token is refused.

use super::keys::KeyAlgorithm;

/// Why a token is refused. Display is for the log; clients get [`AuthError::public`]. Neither holds the
/// token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Not given at all.
    #[error("no token")]
    Absent,
    /// More bytes than a token may have.
    #[error("token of {bytes} bytes")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not a JWT, or its parts are not what they should be.
    #[error("not a token: {0}")]
    Malformed(&'static str),
    /// An `alg` that is never accepted: `none`, or one that no key here is for.
    #[error("algorithm not accepted")]
    Algorithm,
    /// An `alg` that is not the one its key is for.
    #[error("the key is for {} alone", .key.name())]
    OtherAlgorithm {
        /// What the key is for.
        key: KeyAlgorithm,
    },
    /// An app that is not configured here.
    #[error("unknown app")]
    UnknownApp,
    /// A `kid` that is not among the app's keys.
    #[error("unknown kid")]
    UnknownKey,
    /// No `kid`, and the app has several keys.
    #[error("no kid, and the app has several keys")]
    KeyNotNamed,
    /// The signature is not the key's.
    #[error("wrong signature")]
    Signature,
    /// A claim that has to be there is not.
    #[error("claim `{0}` is missing")]
    MissingClaim(&'static str),
    /// A claim of the wrong type or out of bounds.
    #[error("claim `{claim}` should be {right}")]
    BadClaim {
        /// Its name.
        claim: &'static str,
        /// What it should be.
        right: &'static str,
    },
    /// `exp` has passed.
    #[error("expired {ago_s} s ago")]
    Expired {
        /// How long ago.
        ago_s: u64,
    },
    /// `nbf` is still to come.
    #[error("not valid for another {in_s} s")]
    NotYet {
        /// How long until then.
        in_s: u64,
    },
}

impl AuthError {
    /// What a client is told. Who cannot sign is not told whether app, key or signature was wrong.
    pub fn public(&self) -> String {
        match self {
            AuthError::Absent => "a token is needed".to_owned(),
            AuthError::TooLong { .. } | AuthError::Malformed(_) => "this is not a token".to_owned(),
            AuthError::Algorithm
            | AuthError::OtherAlgorithm { .. }
            | AuthError::UnknownApp
            | AuthError::UnknownKey
            | AuthError::KeyNotNamed
            | AuthError::Signature => "the token is not signed by a key that is known here".to_owned(),
            AuthError::MissingClaim(claim) => format!("the token lacks `{claim}`"),
            AuthError::BadClaim { claim, right } => format!("the token's `{claim}` should be {right}"),
            AuthError::Expired { .. } => "the token has expired".to_owned(),
            AuthError::NotYet { .. } => "the token is not valid yet".to_owned(),
        }
    }

    /// Bounded name for a metric's label.
    pub fn label(&self) -> &'static str {
        match self {
            AuthError::Absent => "absent",
            AuthError::TooLong { .. } | AuthError::Malformed(_) => "malformed",
            AuthError::Algorithm | AuthError::OtherAlgorithm { .. } => "algorithm",
            AuthError::UnknownApp => "app",
            AuthError::UnknownKey | AuthError::KeyNotNamed => "kid",
            AuthError::Signature => "signature",
            AuthError::MissingClaim(_) | AuthError::BadClaim { .. } => "claim",
            AuthError::Expired { .. } => "expired",
            AuthError::NotYet { .. } => "not_yet",
        }
    }
}
