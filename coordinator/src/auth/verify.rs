//! Proving tokens.

use std::collections::HashMap;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, dangerous, decode, decode_header};
use key_prefix::AppCode;
use serde::Deserialize;
use serde_json::Value;

use super::claims::{Identity, RawClaims};
use super::error::AuthError;
use super::keys::{KeyAlgorithm, TokenKey};
use crate::config::App;

/// How far `exp` and `nbf` may be off, in seconds: clocks of servers that keep time differ by less.
pub const LEEWAY_S: u64 = 5;

/// Longest token, in bytes.
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// The keys of all apps.
#[derive(Debug, Clone, Default)]
pub struct Verifier {
    pub(super) keys: HashMap<AppCode, Vec<TokenKey>>,
}

/// All that is read of a token before its signature is proved: whose key to take.
#[derive(Deserialize)]
struct Claimed {
    app: Option<Value>,
}

impl Verifier {
    /// Takes the keys of the configured apps.
    pub fn new<'a>(apps: impl IntoIterator<Item = &'a App>) -> Self {
        Verifier { keys: apps.into_iter().map(|app| (app.code.clone(), app.keys.clone())).collect() }
    }

    /// Proves a token at the time `now_s` (Unix, seconds) and says who it names.
    ///
    /// # Errors
    /// Each way in which a token can be wrong is a kind of its own.
    pub fn verify(&self, token: &str, now_s: u64) -> Result<Identity, AuthError> {
        if token.is_empty() {
            return Err(AuthError::Absent);
        }
        if token.len() > MAX_TOKEN_BYTES {
            return Err(AuthError::TooLong { bytes: token.len() });
        }
        let key = self.key_of(token)?;
        let mut validation = Validation::new(key.algorithm().algorithm());
        // Times are checked against the time handed in, and `aud` means nothing here.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let claims =
            decode::<RawClaims>(token, &key.decoding, &validation).map_err(|error| match error.kind() {
                ErrorKind::InvalidSignature => AuthError::Signature,
                ErrorKind::InvalidAlgorithm => AuthError::OtherAlgorithm { key: key.algorithm() },
                ErrorKind::Json(_) => AuthError::Malformed("claims"),
                _ => AuthError::Malformed("form"),
            })?;
        claims.claims.check(now_s, LEEWAY_S)
    }

    fn key_of(&self, token: &str) -> Result<&TokenKey, AuthError> {
        let header = decode_header(token).map_err(|error| match error.kind() {
            // An unknown `alg`, `none` among them, cannot be told from other faults of the header.
            ErrorKind::Json(_) => AuthError::Algorithm,
            _ => AuthError::Malformed("header"),
        })?;
        if !KeyAlgorithm::ALL.iter().any(|known| known.algorithm() == header.alg) {
            return Err(AuthError::Algorithm);
        }
        let claimed: Claimed =
            dangerous::insecure_decode_claims(token).map_err(|_| AuthError::Malformed("claims"))?;
        let app = claimed.app.ok_or(AuthError::MissingClaim("app"))?;
        let app = app.as_str().and_then(|app| AppCode::new(app).ok()).ok_or(AuthError::UnknownApp)?;
        let keys = self.keys.get(&app).ok_or(AuthError::UnknownApp)?;
        let key = match (&header.kid, keys.as_slice()) {
            (Some(kid), keys) => {
                keys.iter().find(|key| key.kid() == Some(kid)).ok_or(AuthError::UnknownKey)?
            }
            (None, [only]) => only,
            (None, _) => return Err(AuthError::KeyNotNamed),
        };
        if key.algorithm().algorithm() == header.alg {
            Ok(key)
        } else {
            Err(AuthError::OtherAlgorithm { key: key.algorithm() })
        }
    }
}
