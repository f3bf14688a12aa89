//! LiveKit, by its room service and its webhooks.
//!
//! A router is a room, named as the caller says. Tokens to join it are signed here, so a grant asks nobody. What a
//! participant may do can be changed while they are there, and holds until they leave: a token that was granted before
//! lets its holder in again, with what it allowed, until it expires.
//!
//! Whoever loses `publish_audio` has their audio tracks closed by LiveKit, and publishes anew once they may again.

mod api;
mod callbacks;
mod jwt;
mod token;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use url::Url;

pub use callbacks::LivekitCallbacks;

use crate::http::Http;
use crate::{
    Abilities, ClockMs, Grant, GrantBody, Load, MediaError, MediaKind, MediaServer, Member, Participant,
    Permissions, Router,
};
use api::{Api, Participants, Room, Rooms};
use token::{Right, Signer, Source};

/// A room that nobody is in stays for so long, in seconds: rooms end when their coordinator says so, and this is for
/// those whose coordinator never does.
const EMPTY_S: u32 = 24 * 60 * 60;
/// Lists of rooms that are larger are not read for the load.
const MOST_FOR_LOAD: usize = 1 << 20;

/// Where a LiveKit is, and how it is set up.
#[derive(Clone)]
pub struct LivekitConfig {
    /// Its API for the coordinators: `http://host:7880` or `https://…`.
    pub url: String,
    /// Its WebSocket for clients, `ws://…` or `wss://…`; `None`: that of `url`.
    pub public_url: Option<String>,
    /// One of its API keys.
    pub api_key: String,
    /// The key's secret.
    pub api_secret: String,
    /// How long a grant lets its holder join.
    pub token_ttl: Duration,
    /// How long a call may take.
    pub deadline: Duration,
    /// For what tokens say of their validity; LiveKit allows for a minute's difference.
    pub clock: ClockMs,
}

impl fmt::Debug for LivekitConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivekitConfig")
            .field("token_ttl", &self.token_ttl)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl LivekitConfig {
    fn signer(&self) -> Signer<'_> {
        Signer { key: &self.api_key, secret: &self.api_secret, now_ms: (self.clock)() }
    }
}

/// One LiveKit, of one node or many.
#[derive(Debug, Clone)]
pub struct LivekitServer {
    config: Arc<LivekitConfig>,
    public_url: Arc<str>,
    api: Api,
}

impl LivekitServer {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// `Refused` for a configuration that cannot work; it names what is wrong. `Unavailable` without TLS.
    pub fn new(config: LivekitConfig) -> Result<Self, MediaError> {
        let refused = |reason: &str| MediaError::Refused { reason: reason.to_owned() };
        let url = parse(&config.url, &["http", "https"])
            .ok_or_else(|| refused("the URL of LiveKit's API is not http or https and a host"))?;
        let public_url = match &config.public_url {
            Some(public) => parse(public, &["ws", "wss"]),
            None => as_websocket(url.clone()),
        };
        let public_url =
            public_url.ok_or_else(|| refused("LiveKit's URL for clients is not ws or wss and a host"))?;
        if config.api_key.is_empty() || config.api_secret.is_empty() {
            return Err(refused("the API key of LiveKit, or its secret, is empty"));
        }
        let api = Api::new(Http::new(config.deadline)?, url);
        let public_url = public_url.as_str().trim_end_matches('/').into();
        Ok(Self { config: Arc::new(config), public_url, api })
    }

    async fn exists(&self, router: &Router) -> Result<bool, MediaError> {
        let body = json!({ "names": [&*router.name] });
        let Rooms { rooms } = self.api.call(&self.config, Right::List, "ListRooms", &body).await?;
        Ok(rooms.iter().any(|room| room.name == *router.name))
    }

    async fn found(&self, router: &Router) -> Result<(), MediaError> {
        if self.exists(router).await? { Ok(()) } else { Err(MediaError::NotFound { what: "room" }) }
    }

    /// A command within a room, whatever it answers.
    async fn command(&self, router: &Router, method: &str, body: &Value) -> Result<(), MediaError> {
        let right = Right::Admin(&router.name);
        self.api.call::<IgnoredAny>(&self.config, right, method, body).await.map(drop)
    }

    /// Keeps what takes more than one request within the deadline of one.
    async fn in_time<T>(&self, calls: impl Future<Output = Result<T, MediaError>>) -> Result<T, MediaError> {
        let deadline = self.config.deadline;
        let late =
            || MediaError::Timeout { after_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX) };
        tokio::time::timeout(deadline, calls).await.unwrap_or_else(|_| Err(late()))
    }
}

#[async_trait]
impl MediaServer for LivekitServer {
    fn kind(&self) -> MediaKind {
        MediaKind::Livekit
    }

    fn abilities(&self) -> Abilities {
        Abilities { live_list: true, makes_routers: true, tells_audio: true, takes_permissions: true }
    }

    async fn ensure_router(&self, router: &Router) -> Result<(), MediaError> {
        let body = json!({
            "name": &*router.name,
            "empty_timeout": EMPTY_S,
            "departure_timeout": EMPTY_S,
        });
        let room: Room = self.api.call(&self.config, Right::Create, "CreateRoom", &body).await?;
        if room.name == *router.name {
            return Ok(());
        }
        Err(MediaError::Refused { reason: "CreateRoom: another room".to_owned() })
    }

    async fn adopt_router(&self, router: &Router) -> Result<(), MediaError> {
        self.found(router).await
    }

    async fn close_router(&self, router: &Router) -> Result<(), MediaError> {
        let body = json!({ "room": &*router.name });
        let closed = self.api.call::<IgnoredAny>(&self.config, Right::Create, "DeleteRoom", &body).await;
        gone_is_done(closed.map(drop))
    }

    async fn grant(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<Grant, MediaError> {
        let token = self.config.signer().join(&router.name, member, permissions, self.config.token_ttl);
        let body = GrantBody::Livekit {
            url: self.public_url.to_string(),
            room: Arc::clone(&router.name),
            identity: Arc::clone(&member.name),
            token,
        };
        Ok(Grant { generation: router.generation, ice_servers: Vec::new(), body })
    }

    async fn set_permissions(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<(), MediaError> {
        let sources: Vec<_> = Source::allowed(permissions).into_iter().map(Source::name).collect();
        // What is not said here is taken.
        let body = json!({
            "room": &*router.name,
            "identity": &*member.name,
            "permission": {
                "can_publish": !sources.is_empty(),
                "can_publish_sources": sources,
                "can_subscribe": permissions.subscribe,
            },
        });
        self.in_time(async {
            match self.command(router, "UpdateParticipant", &body).await {
                // LiveKit does not tell a room without them from no room.
                Err(MediaError::NotFound { .. }) => self.found(router).await,
                done => done,
            }
        })
        .await
    }

    async fn remove_participant(&self, router: &Router, name: &str) -> Result<(), MediaError> {
        let body = json!({ "room": &*router.name, "identity": name });
        gone_is_done(self.command(router, "RemoveParticipant", &body).await)
    }

    async fn list_participants(&self, router: &Router) -> Result<Vec<Participant>, MediaError> {
        let body = json!({ "room": &*router.name });
        self.in_time(async {
            let right = Right::Admin(&router.name);
            let Participants { participants } =
                self.api.call(&self.config, right, "ListParticipants", &body).await?;
            if participants.is_empty() {
                // Nor an empty room from no room.
                self.found(router).await?;
            }
            Ok(participants.into_iter().filter_map(api::Somebody::participant).collect())
        })
        .await
    }

    async fn health(&self) -> Result<Load, MediaError> {
        let all = json!({});
        let rooms: Option<Rooms> =
            self.api.call_for_at_most(MOST_FOR_LOAD, &self.config, Right::List, "ListRooms", &all).await?;
        let sum = |rooms: Rooms| rooms.rooms.iter().map(|room| u64::from(room.num_participants)).sum();
        Ok(Load { participants: rooms.map(sum) })
    }
}

/// A URL of one of these schemes, without credentials.
fn parse(url: &str, schemes: &[&str]) -> Option<Url> {
    Url::parse(url).ok().filter(|url| {
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        let is_plain = url.query().is_none() && url.fragment().is_none();
        schemes.contains(&url.scheme()) && url.has_host() && !has_credentials && is_plain
    })
}

fn as_websocket(mut url: Url) -> Option<Url> {
    let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
    url.set_scheme(scheme).ok().map(|()| url)
}

/// Closing or removing what is not there has nothing left to do.
fn gone_is_done(done: Result<(), MediaError>) -> Result<(), MediaError> {
    match done {
        Err(MediaError::NotFound { .. }) => Ok(()),
        other => other,
    }
}
