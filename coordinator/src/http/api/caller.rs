//! Who calls, and what of an app they may touch.
//!
//! A caller is an app's back end: it shows one of the app's API keys, or a token of the app with `admin`. Who
//! cannot prove to be somebody gets 401; who is somebody, but not for this app or room, 403, whether or not
//! there is such an app.

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use http::{HeaderMap, header};
use key_prefix::{AppCode, RoomId, RoomKey, UserId};
use std::sync::Arc;

use crate::auth::{AuthError, Identity, Verifier};
use crate::clock::unix_seconds;
use crate::config::App;
use crate::error::{ApiError, ErrorCode};
use crate::http::problem::Problem;
use crate::node::Node;

const CHALLENGE: &str = r#"Bearer realm="dais""#;
const REFUSED: &str = r#"Bearer realm="dais", error="invalid_token""#;
/// Hexadecimal digits of a key's digest that tell it from the app's other keys.
const DIGEST_DIGITS: usize = 16;

/// A back end that proved who it is, acting for one app.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// Tells it from the app's other callers: `key:` and a digest, or `user:` and the token's user.
    pub name: Arc<str>,
    room_limit: Option<RoomId>,
}

/// What a request showed, its proof done.
#[derive(Debug)]
enum Shown {
    /// An API key of this app.
    Key { app: AppCode, digest: String },
    /// A token.
    Token(Box<Identity>),
}

/// An app, and a caller who may act for it.
#[derive(Debug)]
pub(super) struct InApp {
    pub app: Arc<App>,
    pub caller: Caller,
}

/// A room of an app, and a caller who may act for both.
#[derive(Debug)]
pub(super) struct InRoom {
    pub app: Arc<App>,
    pub caller: Caller,
    pub room: RoomKey,
}

/// Somebody in a room.
#[derive(Debug)]
pub(super) struct OfUser {
    pub room: InRoom,
    pub user: UserId,
}

/// What a path names.
#[derive(Debug)]
struct Names {
    app: AppCode,
    room: Option<RoomId>,
    user: Option<UserId>,
}

/// The token or key of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = given.next() else {
        return Err(Problem::unauthenticated(CHALLENGE, "an API key or a token with `admin` is needed"));
    };
    let shown = value.to_str().ok().filter(|_| given.next().is_none());
    let (scheme, rest) = shown.and_then(|text| text.split_once(' ')).unwrap_or_default();
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !rest.is_empty() {
        Ok(rest)
    } else {
        Err(Problem::unauthenticated(CHALLENGE, "`Authorization` must be `Bearer` and an API key or a token"))
    }
}

/// Proves what was shown; every key of every app is compared, whichever fits.
fn prove(apps: &[App], verifier: &Verifier, shown: &str, now_s: u64) -> Result<Shown, Problem> {
    let fits = |found: Option<AppCode>, app: &App| {
        let fits = app.api_keys.matches(shown);
        found.or_else(|| fits.then(|| app.code.clone()))
    };
    if let Some(app) = apps.iter().fold(None, fits) {
        let digest = blake3::hash(shown.as_bytes()).to_hex();
        return Ok(Shown::Key { app, digest: digest[..DIGEST_DIGITS].to_owned() });
    }
    verifier.verify(shown, now_s).map(|identity| Shown::Token(Box::new(identity))).map_err(|error| {
        let message = match error {
            AuthError::Malformed(_) | AuthError::TooLong { .. } => {
                "neither an API key nor a token".to_owned()
            }
            other => other.public(),
        };
        Problem::unauthenticated(REFUSED, message)
    })
}

impl Shown {
    fn caller(self, app: &AppCode) -> Result<Caller, Problem> {
        let forbidden = |message: &'static str| Err(ApiError::new(ErrorCode::Forbidden, message).into());
        match self {
            Self::Key { app: of, .. } if of != *app => forbidden("the API key is for another app"),
            Self::Key { digest, .. } => Ok(Caller { name: format!("key:{digest}").into(), room_limit: None }),
            Self::Token(identity) if identity.app != *app => forbidden("the token is for another app"),
            Self::Token(identity) if !identity.admin => forbidden("the token lacks `admin`"),
            Self::Token(identity) => {
                Ok(Caller { name: format!("user:{}", identity.user).into(), room_limit: identity.room_limit })
            }
        }
    }
}

impl Names {
    async fn of(parts: &mut Parts) -> Result<Self, Problem> {
        let no_text = |_| ApiError::bad_request("the path is not UTF-8");
        let params = RawPathParams::from_request_parts(parts, &()).await.map_err(no_text)?;
        let named = |name| params.iter().find(|(param, _)| *param == name).map(|(_, text)| text);
        let wrong = |error: key_prefix::IdError| ApiError::bad_request(format!("path: {error}"));
        Ok(Self {
            app: AppCode::new(named("app").unwrap_or_default()).map_err(wrong)?,
            room: named("room").map(RoomId::new).transpose().map_err(wrong)?,
            user: named("user").map(UserId::new).transpose().map_err(wrong)?,
        })
    }
}

async fn admit(parts: &mut Parts, node: &Node) -> Result<(InApp, Option<RoomKey>, Option<UserId>), Problem> {
    let shown = prove(&node.config.apps, &node.verifier, bearer(&parts.headers)?, unix_seconds())?;
    let names = Names::of(parts).await?;
    let caller = shown.caller(&names.app)?;
    let elsewhere = caller.room_limit.as_ref().is_some_and(|only| names.room.as_ref() != Some(only));
    if elsewhere {
        return Err(ApiError::new(ErrorCode::Forbidden, "the token is for one room, and not this").into());
    }
    let app = node.app(names.app.as_str());
    let app = app.ok_or_else(|| ApiError::new(ErrorCode::Forbidden, "the app is not served here"))?;
    let room = names.room.map(|room| RoomKey::new(names.app, room));
    Ok((InApp { app, caller }, room, names.user))
}

fn unrouted() -> Problem {
    ApiError::new(ErrorCode::Internal, "the path lacks a name that its call needs").into()
}

impl FromRequestParts<Arc<Node>> for InApp {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, Problem> {
        Ok(admit(parts, node).await?.0)
    }
}

impl FromRequestParts<Arc<Node>> for InRoom {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, Problem> {
        let (InApp { app, caller }, room, _) = admit(parts, node).await?;
        Ok(Self { app, caller, room: room.ok_or_else(unrouted)? })
    }
}

impl FromRequestParts<Arc<Node>> for OfUser {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, Problem> {
        let (InApp { app, caller }, room, user) = admit(parts, node).await?;
        let room = InRoom { app, caller, room: room.ok_or_else(unrouted)? };
        Ok(Self { room, user: user.ok_or_else(unrouted)? })
    }
}
