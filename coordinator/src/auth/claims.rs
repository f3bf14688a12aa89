//! From a token's claims, whose signature has been proved, to an identity.

use key_prefix::{AppCode, RoomId, UserId};
use serde::Deserialize;
use serde_json::Value;

use super::error::AuthError;

/// Latest time a token may name, in seconds: the end of the year 9999.
const LAST_TIME_S: u64 = 253_402_300_799;

/// Longest display name, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Highest role a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenRole {
    /// Takes part.
    Guest,
    /// Leads.
    Host,
    /// Sees without being seen. Neither above nor below the others.
    Monitor,
}

impl TokenRole {
    /// Name in tokens and requests.
    pub const fn name(self) -> &'static str {
        match self {
            TokenRole::Guest => "guest",
            TokenRole::Host => "host",
            TokenRole::Monitor => "monitor",
        }
    }

    /// The role of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [TokenRole::Guest, TokenRole::Host, TokenRole::Monitor].into_iter().find(|role| role.name() == name)
    }

    /// Whether a token of this role allows to act as `wanted`: its own role, and a host as a guest.
    pub fn allows(self, wanted: TokenRole) -> bool {
        self == wanted || (self == TokenRole::Host && wanted == TokenRole::Guest)
    }
}

/// Who a valid token names, and what it allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `app`
    pub app: AppCode,
    /// `sub`
    pub user: UserId,
    /// `role`; without the claim a guest.
    pub role_max: TokenRole,
    /// `room`: the only room it is for.
    pub room_limit: Option<RoomId>,
    /// `name`, to be shown to others.
    pub name: Option<String>,
    /// `av`: the user's auth version this token was made under.
    pub auth_version: Option<u64>,
    /// `admin`: the token is a back end's, for the HTTP API of its app.
    pub admin: bool,
    /// `exp`, Unix time in seconds.
    pub expires_at_s: u64,
}

impl Identity {
    /// Whether the token is for this room.
    pub fn allows_room(&self, room: &RoomId) -> bool {
        self.room_limit.as_ref().is_none_or(|only| only == room)
    }

    /// Whether both tokens speak for the same user, as a refresh must.
    pub fn same_user(&self, other: &Identity) -> bool {
        self.app == other.app && self.user == other.user
    }
}

/// Claims as they come: nothing is assumed of their types, so that each fault can be named. `null` is absent.
#[derive(Deserialize)]
pub(super) struct RawClaims {
    app: Option<Value>,
    sub: Option<Value>,
    exp: Option<Value>,
    nbf: Option<Value>,
    room: Option<Value>,
    role: Option<Value>,
    name: Option<Value>,
    av: Option<Value>,
    admin: Option<Value>,
}

const ID: &str = "a text of 1 to 128 bytes without control characters";
const TIME: &str = "a time in seconds";

impl RawClaims {
    /// The claims, checked at `now_s`, tokens being accepted `leeway_s` beyond their times.
    pub(super) fn check(self, now_s: u64, leeway_s: u64) -> Result<Identity, AuthError> {
        let expires_at_s = time("exp", self.exp.as_ref())?.ok_or(AuthError::MissingClaim("exp"))?;
        let until_s = expires_at_s + leeway_s;
        if until_s <= now_s {
            return Err(AuthError::Expired { ago_s: now_s - expires_at_s });
        }
        if let Some(from_s) = time("nbf", self.nbf.as_ref())?
            && from_s > now_s.saturating_add(leeway_s)
        {
            return Err(AuthError::NotYet { in_s: from_s - now_s });
        }
        let app = text("app", self.app.as_ref(), ID)?.ok_or(AuthError::MissingClaim("app"))?;
        let user = text("sub", self.sub.as_ref(), ID)?.ok_or(AuthError::MissingClaim("sub"))?;
        let room = text("room", self.room.as_ref(), ID)?;
        let role = "guest, host or monitor";
        let role_max = match text("role", self.role.as_ref(), role)? {
            None => TokenRole::Guest,
            Some(name) => {
                TokenRole::of_name(name).ok_or(AuthError::BadClaim { claim: "role", right: role })?
            }
        };
        let shown = "a text of at most 256 bytes without control characters";
        let name = text("name", self.name.as_ref(), shown)?;
        if name.is_some_and(|name| name.len() > MAX_NAME_BYTES || name.contains(char::is_control)) {
            return Err(AuthError::BadClaim { claim: "name", right: shown });
        }
        let auth_version = match self.av {
            None => None,
            Some(value) => Some(
                value
                    .as_u64()
                    .ok_or(AuthError::BadClaim { claim: "av", right: "a whole number, 0 or more" })?,
            ),
        };
        let admin = match self.admin {
            None => false,
            Some(value) => {
                value.as_bool().ok_or(AuthError::BadClaim { claim: "admin", right: "true or false" })?
            }
        };
        let id = |claim| move |_| AuthError::BadClaim { claim, right: ID };
        Ok(Identity {
            app: AppCode::new(app).map_err(id("app"))?,
            user: UserId::new(user).map_err(id("sub"))?,
            role_max,
            room_limit: room.map(RoomId::new).transpose().map_err(id("room"))?,
            name: name.filter(|name| !name.is_empty()).map(str::to_owned),
            auth_version,
            admin,
            expires_at_s,
        })
    }
}

fn text<'v>(
    claim: &'static str,
    value: Option<&'v Value>,
    right: &'static str,
) -> Result<Option<&'v str>, AuthError> {
    match value {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or(AuthError::BadClaim { claim, right }),
    }
}

/// A NumericDate: seconds, perhaps with a fraction, which is dropped.
#[expect(clippy::cast_possible_truncation, reason = "in range by the comparison before")]
fn time(claim: &'static str, value: Option<&Value>) -> Result<Option<u64>, AuthError> {
    let Some(value) = value else { return Ok(None) };
    let bad = AuthError::BadClaim { claim, right: TIME };
    if let Some(whole) = value.as_u64() {
        return if whole <= LAST_TIME_S { Ok(Some(whole)) } else { Err(bad) };
    }
    match value.as_f64() {
        Some(fraction) if (0.0..=253_402_300_799.0).contains(&fraction) => Ok(Some(fraction as u64)),
        _ => Err(bad),
    }
}
