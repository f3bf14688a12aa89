//! A media server of one's own, attached by signed HTTP in both directions.
//!
//! The server implements the API of `docs/media/generic.openapi.json` and posts what happens to the coordinators, where
//! [`GenericCallbacks`] reads it. Each request is signed over its time, method, path and body.
//!
//! A `404` counts as "gone" only if it says what is missing: the one of a proxy, or of a wrong address, must not make
//! a coordinator believe that its router is closed.

mod callbacks;
mod signature;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

pub use callbacks::GenericCallbacks;

use crate::http::Http;
use crate::{
    Abilities, ClockMs, Grant, GrantBody, Load, MediaError, MediaKind, MediaServer, Member, Participant,
    Permissions, Router,
};
use signature::{Key, SIGNATURE, TIMESTAMP};

/// Shortest secret, in bytes.
const LEAST_SECRET: usize = 32;
/// Longest answer to a grant, in bytes: it goes to the client, and again whenever that changes.
const MOST_GRANT_BYTES: usize = 32 << 10;

/// Where a media server is, and what it can do.
#[derive(Clone)]
pub struct GenericConfig {
    /// Under it the API is: `https://host:port/prefix`. Without user, query and fragment.
    pub url: String,
    /// Signs the requests; at least 32 bytes.
    pub secret: String,
    /// How long a call may take.
    pub deadline: Duration,
    /// The time that requests are signed with.
    pub clock: ClockMs,
    /// What it implements; calls that it does not are not made.
    pub abilities: Abilities,
}

impl GenericConfig {
    /// A server that implements the whole API.
    pub const ALL: Abilities =
        Abilities { live_list: true, makes_routers: true, tells_audio: true, takes_permissions: true };
}

impl fmt::Debug for GenericConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenericConfig")
            .field("deadline", &self.deadline)
            .field("abilities", &self.abilities)
            .finish_non_exhaustive()
    }
}

/// One media server that implements our own API.
#[derive(Clone)]
pub struct GenericServer {
    config: Arc<GenericConfig>,
    url: Url,
    key: Key,
    http: Http,
}

impl fmt::Debug for GenericServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenericServer").field("config", &self.config).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct RouterBody<'a> {
    app: &'a str,
    room: &'a str,
    generation: u64,
}

#[derive(Serialize)]
struct ParticipantBody<'a> {
    #[serde(flatten)]
    router: RouterBody<'a>,
    user: &'a str,
    peer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    display: Option<&'a str>,
    permissions: Permissions,
}

#[derive(Serialize)]
struct PermissionsBody {
    permissions: Permissions,
}

#[derive(Default, Deserialize)]
struct Granted {
    #[serde(default)]
    data: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    participant: Arc<str>,
    incarnation: Option<Arc<str>>,
    audible: Option<bool>,
    may_publish_audio: Option<bool>,
}

#[derive(Default, Deserialize)]
struct Health {
    participants: Option<u64>,
}

/// What a `404` says is not there.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Missing {
    Router,
    Participant,
}

#[derive(Deserialize)]
struct NotFound {
    missing: Missing,
}

#[derive(Deserialize)]
struct Conflict {
    generation: u64,
}

/// An answer of a kind that a call may have to deal with.
enum Reply {
    Done(Bytes),
    Missing(Missing),
    /// There is a router of this newer generation.
    Newer(u64),
}

const NO_ROUTER: MediaError = MediaError::NotFound { what: "room" };

impl GenericServer {
    /// Does not call the server yet.
    ///
    /// # Errors
    /// `Refused` for a configuration that cannot work; it names what is wrong. `Unavailable` if there is no TLS to be
    /// had.
    pub fn new(config: GenericConfig) -> Result<Self, MediaError> {
        let url = Url::parse(&config.url).ok();
        let url = url.filter(|url| {
            let bare = url.username().is_empty() && url.password().is_none();
            bare && matches!(url.scheme(), "http" | "https")
                && url.query().is_none()
                && url.fragment().is_none()
        });
        let url = url
            .ok_or_else(|| refused("url: http:// or https:// without user, query and fragment".to_owned()))?;
        let key = Key::new(&config.secret).filter(|_| config.secret.len() >= LEAST_SECRET);
        let key = key.ok_or_else(|| refused(format!("secret: at least {LEAST_SECRET} bytes")))?;
        let http = Http::new(config.deadline)?;
        Ok(Self { config: Arc::new(config), url, key, http })
    }

    /// Makes one request; `what` names it in errors.
    async fn call(
        &self,
        what: &'static str,
        method: Method,
        segments: &[&str],
        body: Option<Vec<u8>>,
    ) -> Result<Reply, MediaError> {
        let mut url = self.url.clone();
        // A path is normalised: these would name something else.
        let is_name = |segment: &&str| !matches!(*segment, "" | "." | "..");
        match url.path_segments_mut() {
            Ok(mut path) if segments.iter().all(is_name) => _ = path.pop_if_empty().extend(segments),
            _ => return Err(refused(format!("cannot {what}: a name that no path can hold"))),
        }
        let at_s = u64::try_from((self.config.clock)() / 1_000).unwrap_or_default();
        let content = body.unwrap_or_default();
        let signature = self.key.of_request(at_s, method.as_str(), url.path(), &content);
        let mut request = self.http.client().request(method, url);
        request = request.header(TIMESTAMP, at_s).header(SIGNATURE, signature);
        if !content.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json").body(content);
        }
        let answer = self.http.send(request).await?;
        let status = answer.status;
        if status.is_success() {
            return Ok(Reply::Done(answer.body));
        }
        let plain = || refused(format!("{} to: {what}", status.as_u16()));
        match status {
            StatusCode::NOT_FOUND => {
                let said: Option<NotFound> = serde_json::from_slice(&answer.body).ok();
                said.map(|said| Reply::Missing(said.missing)).ok_or_else(plain)
            }
            StatusCode::CONFLICT => {
                let said: Option<Conflict> = serde_json::from_slice(&answer.body).ok();
                said.map(|said| Reply::Newer(said.generation)).ok_or_else(plain)
            }
            StatusCode::NOT_IMPLEMENTED => Err(MediaError::NotSupported { what }),
            StatusCode::TOO_MANY_REQUESTS => Err(MediaError::unavailable("it answers 429")),
            status if status.is_server_error() => {
                Err(MediaError::unavailable(format!("it answers {}", status.as_u16())))
            }
            _ => Err(plain()),
        }
    }
}

fn refused(reason: String) -> MediaError {
    MediaError::Refused { reason }
}

fn json(body: &impl Serialize) -> Result<Option<Vec<u8>>, MediaError> {
    serde_json::to_vec(body).map(Some).map_err(|_| refused("a request that is no JSON".to_owned()))
}

/// Reads an answer; its text, which may name somebody, is not repeated.
fn read<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, MediaError> {
    serde_json::from_slice(body).map_err(|_| refused(format!("an answer of another form to: {what}")))
}

fn stale(router: &Router, current: u64) -> MediaError {
    MediaError::StaleGeneration { current, asked: router.generation.0 }
}

fn body_of(router: &Router) -> RouterBody<'_> {
    RouterBody { app: &router.room.app, room: &router.room.room, generation: router.generation.0 }
}

#[async_trait]
impl MediaServer for GenericServer {
    fn kind(&self) -> MediaKind {
        MediaKind::Generic
    }

    fn abilities(&self) -> Abilities {
        self.config.abilities
    }

    async fn ensure_router(&self, router: &Router) -> Result<(), MediaError> {
        if !self.config.abilities.makes_routers {
            return Ok(());
        }
        let body = json(&body_of(router))?;
        match self.call("make a router", Method::PUT, &["routers", &router.name], body).await? {
            Reply::Done(_) => Ok(()),
            Reply::Missing(_) => Err(NO_ROUTER),
            Reply::Newer(current) => Err(stale(router, current)),
        }
    }

    async fn adopt_router(&self, router: &Router) -> Result<(), MediaError> {
        if !self.config.abilities.makes_routers {
            return Ok(());
        }
        match self.call("find a router", Method::GET, &["routers", &router.name], None).await? {
            Reply::Done(_) => Ok(()),
            Reply::Missing(_) => Err(NO_ROUTER),
            Reply::Newer(current) => Err(stale(router, current)),
        }
    }

    async fn close_router(&self, router: &Router) -> Result<(), MediaError> {
        match self.call("close a router", Method::DELETE, &["routers", &router.name], None).await? {
            Reply::Done(_) | Reply::Missing(_) => Ok(()),
            Reply::Newer(current) => Err(stale(router, current)),
        }
    }

    async fn grant(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<Grant, MediaError> {
        let what = "let somebody in";
        let body = json(&ParticipantBody {
            router: body_of(router),
            user: &member.peer.user,
            peer: &member.peer.peer,
            display: member.display.as_deref(),
            permissions,
        })?;
        let path = ["routers", &*router.name, "participants", &*member.name];
        let answer = match self.call(what, Method::PUT, &path, body).await? {
            Reply::Done(answer) => answer,
            Reply::Missing(_) => return Err(NO_ROUTER),
            Reply::Newer(current) => return Err(stale(router, current)),
        };
        if answer.len() > MOST_GRANT_BYTES {
            return Err(refused(format!("more than {MOST_GRANT_BYTES} bytes for a client")));
        }
        let granted = if answer.is_empty() { Granted::default() } else { read(what, &answer)? };
        Ok(Grant {
            generation: router.generation,
            ice_servers: Vec::new(),
            body: GrantBody::Generic {
                room: Arc::clone(&router.name),
                id: Arc::clone(&member.name),
                data: granted.data,
            },
        })
    }

    async fn set_permissions(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<(), MediaError> {
        let what = "change what somebody may do";
        if !self.config.abilities.takes_permissions {
            return Err(MediaError::NotSupported { what });
        }
        let body = json(&PermissionsBody { permissions })?;
        let path = ["routers", &*router.name, "participants", &*member.name];
        match self.call(what, Method::PATCH, &path, body).await? {
            Reply::Done(_) | Reply::Missing(Missing::Participant) => Ok(()),
            Reply::Missing(Missing::Router) => Err(NO_ROUTER),
            Reply::Newer(current) => Err(stale(router, current)),
        }
    }

    async fn remove_participant(&self, router: &Router, name: &str) -> Result<(), MediaError> {
        let path = ["routers", &*router.name, "participants", name];
        match self.call("remove somebody", Method::DELETE, &path, None).await? {
            Reply::Done(_) | Reply::Missing(_) => Ok(()),
            Reply::Newer(current) => Err(stale(router, current)),
        }
    }

    async fn list_participants(&self, router: &Router) -> Result<Vec<Participant>, MediaError> {
        let what = "say who is there";
        if !self.config.abilities.live_list {
            return Err(MediaError::NotSupported { what });
        }
        let path = ["routers", &*router.name, "participants"];
        let answer = match self.call(what, Method::GET, &path, None).await? {
            Reply::Done(answer) => answer,
            Reply::Missing(_) => return Err(NO_ROUTER),
            Reply::Newer(current) => return Err(stale(router, current)),
        };
        let listed: Vec<Listed> = read(what, &answer)?;
        let participants = listed.into_iter().map(|one| Participant {
            name: one.participant,
            incarnation: one.incarnation,
            audible: one.audible,
            may_publish_audio: one.may_publish_audio,
        });
        Ok(participants.collect())
    }

    async fn health(&self) -> Result<Load, MediaError> {
        let what = "say how it is";
        match self.call(what, Method::GET, &["health"], None).await {
            Ok(Reply::Done(answer)) if answer.is_empty() => Ok(Load::default()),
            Ok(Reply::Done(answer)) => {
                let health: Health = read(what, &answer)?;
                Ok(Load { participants: health.participants })
            }
            Ok(_) => Err(MediaError::unavailable("it does not say how it is")),
            // Whatever it says, it does not work.
            Err(MediaError::Refused { reason }) => Err(MediaError::unavailable(reason)),
            Err(error) => Err(error),
        }
    }
}
