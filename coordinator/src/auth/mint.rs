//! Making tokens, for the `token` subcommand and for development.

use std::time::Duration;

use jsonwebtoken::{EncodingKey, Header, encode};
use key_prefix::{AppCode, RoomId, UserId};
use serde::Serialize;

use super::claims::TokenRole;
use super::keys::KeyAlgorithm;
use super::verify::Verifier;

/// What a token is to say.
#[derive(Debug, Clone)]
pub struct MintRequest {
    /// `app`
    pub app: AppCode,
    /// `sub`
    pub user: UserId,
    /// `role`
    pub role: TokenRole,
    /// `room`
    pub room: Option<RoomId>,
    /// `name`
    pub name: Option<String>,
    /// `av`
    pub auth_version: Option<u64>,
    /// `admin`
    pub admin: bool,
    /// From now to `exp`; at least a second.
    pub ttl: Duration,
}

/// Why no token can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The app is not configured.
    #[error("the app {0:?} is not configured")]
    UnknownApp(AppCode),
    /// The app has public keys only, whose private halves are elsewhere.
    #[error("the app {0:?} has no shared secret to sign with")]
    NoSecret(AppCode),
    /// Signing failed.
    #[error("the token could not be signed")]
    Signing,
}

#[derive(Serialize)]
struct Claims<'a> {
    app: &'a str,
    sub: &'a str,
    exp: u64,
    role: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    av: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    admin: bool,
}

impl Verifier {
    /// Makes a token with the app's first shared secret; `now_s` is Unix time in seconds.
    ///
    /// # Errors
    /// Where the app or a secret of it is not known.
    pub fn mint(&self, request: &MintRequest, now_s: u64) -> Result<String, MintError> {
        let keys = self.keys.get(&request.app).ok_or_else(|| MintError::UnknownApp(request.app.clone()))?;
        let signing = keys.iter().find_map(|key| Some((key, key.signing.as_ref()?)));
        let (key, secret) = signing.ok_or_else(|| MintError::NoSecret(request.app.clone()))?;
        let mut header = Header::new(KeyAlgorithm::Hs256.algorithm());
        header.kid = key.kid().map(str::to_owned);
        let claims = Claims {
            app: request.app.as_str(),
            sub: request.user.as_str(),
            exp: now_s.saturating_add(request.ttl.as_secs().max(1)),
            role: request.role.name(),
            room: request.room.as_ref().map(RoomId::as_str),
            name: request.name.as_deref(),
            av: request.auth_version,
            admin: request.admin,
        };
        let encoding =
            EncodingKey::from_secret(secret.expose().as_bytes()).map_err(|_| MintError::Signing)?;
        encode(&header, &claims, &encoding).map_err(|_| MintError::Signing)
    }
}
