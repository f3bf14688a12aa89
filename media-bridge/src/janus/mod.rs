//! Janus, by its VideoRoom or its AudioBridge plugin.
//!
//! A router is a room of the plugin, made by request and named as the caller says. Its secret, and the token with
//! which each participant joins, are derived from one key, so that every coordinator knows them without telling
//! another. Requests go over one WebSocket; what happens comes back as events of Janus's event handlers, which
//! [`JanusCallbacks`] reads.
//!
//! What Janus cannot do: a token lets its holder join under any name that is free in that room; taking `subscribe`
//! has no effect; in an AudioBridge somebody who was muted can unmute themselves, which is told by
//! [`AudioStarted`](crate::VendorFact::AudioStarted) and by the list of participants.

mod callbacks;
mod keys;
mod link;
mod plugin;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use url::Url;

pub use callbacks::JanusCallbacks;
pub use keys::ApiTokens;
pub use plugin::JanusPlugin;

use crate::http::Http;
use crate::{
    Abilities, Grant, GrantBody, Load, MediaError, MediaKind, MediaServer, Member, Participant, Permissions,
    Router,
};
use keys::Keys;
use link::{Link, Target, To, Until};

/// Where a Janus is, and how it is set up.
#[derive(Clone)]
pub struct JanusConfig {
    /// Its WebSocket for the coordinators: `ws://host:8188`. Without TLS, as between machines that trust each other.
    pub url: String,
    /// Its WebSocket for browsers; `None`: the same.
    pub public_url: Option<String>,
    /// Its Admin API over HTTP, `http://host:7088/admin`. With it, [`MediaServer::health`] tells the load.
    pub admin_url: Option<String>,
    /// Its `api_secret`.
    pub api_secret: Option<String>,
    /// Its `admin_secret`.
    pub admin_secret: Option<String>,
    /// The plugin's `admin_key`.
    pub admin_key: Option<String>,
    /// How browsers are let into the Janus API; `None` for a server without `token_auth`.
    pub api_tokens: Option<ApiTokens>,
    /// Which plugin makes the rooms.
    pub plugin: JanusPlugin,
    /// Whether an AudioBridge takes participants that send plain RTP. They can have the mix sent to any address.
    pub plain_rtp: bool,
    /// From this the rooms' secrets and the participants' tokens are derived; the same for all coordinators.
    pub room_secret_key: Vec<u8>,
    /// How long a call may take.
    pub deadline: Duration,
}

impl fmt::Debug for JanusConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JanusConfig")
            .field("plugin", &self.plugin)
            .field("plain_rtp", &self.plain_rtp)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// One Janus.
#[derive(Clone)]
pub struct JanusServer {
    config: Arc<JanusConfig>,
    keys: Keys,
    link: Link,
    admin: Option<Admin>,
}

impl fmt::Debug for JanusServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JanusServer").field("config", &self.config).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Admin {
    http: Http,
    url: Url,
}

/// Who publishes in a video room, and what.
#[derive(Debug)]
struct Publisher {
    name: String,
    streams: Vec<Stream>,
}

#[derive(Debug)]
struct Stream {
    kind: String,
    mid: String,
    /// Flows to nobody, by request of a coordinator.
    moderated: bool,
    /// Is not sent any more.
    disabled: bool,
}

impl JanusServer {
    /// Begins to connect, and stays connected until it is dropped. Needs a Tokio runtime.
    ///
    /// # Errors
    /// `Refused` for a configuration that cannot work; it names what is wrong.
    pub fn new(config: JanusConfig) -> Result<Self, MediaError> {
        let url = parse(&config.url, &["ws"])?;
        config.public_url.as_deref().map(|url| parse(url, &["ws", "wss"])).transpose()?;
        let admin_url = config.admin_url.as_deref().map(|url| parse(url, &["http", "https"])).transpose()?;
        let admin =
            admin_url.map(|url| Http::new(config.deadline).map(|http| Admin { http, url })).transpose()?;
        let keys = Keys::new(&config.room_secret_key)?;
        let api_secret = config.api_secret.clone();
        let link = Link::open(Target { url, api_secret, plugin: config.plugin, deadline: config.deadline });
        Ok(Self { config: Arc::new(config), keys, link, admin })
    }

    fn plugin(&self) -> JanusPlugin {
        self.config.plugin
    }

    /// A request about a room, by the handle that is for that: what the plugin answers, or its error code.
    async fn ask(&self, body: Value, by: Instant) -> Result<Result<Value, u64>, MediaError> {
        let message = json!({ "janus": "message", "body": body });
        Ok(plugin_answer(self.link.call(To::Room, message, Until::Answered, by).await?))
    }

    /// The same, where an error is one.
    async fn demand(&self, what: &str, body: Value, by: Instant) -> Result<Value, MediaError> {
        self.ask(body, by).await?.map_err(|code| self.plugin().fault(what, code))
    }

    async fn allow(&self, room: &str, action: &str, token: &str, by: Instant) -> Result<(), MediaError> {
        let request = json!({
            "request": "allowed",
            "room": room,
            "secret": self.keys.room_secret(room),
            "action": action,
            "allowed": [token],
        });
        self.demand("allowed", request, by).await.map(|_| ())
    }

    /// Who publishes what in a video room, which Janus tells only somebody who joins it. In a task of its own, so
    /// that a caller that gives up leaves nobody in the room.
    async fn publishers(&self, room: &Arc<str>, by: Instant) -> Result<Vec<Publisher>, MediaError> {
        let (server, room) = (self.clone(), Arc::clone(room));
        let look = tokio::spawn(async move {
            let attach =
                json!({ "janus": "attach", "plugin": server.plugin().package(), "opaque_id": "dais" });
            let handle = link::id(&server.link.call(To::Session, attach, Until::Answered, by).await?)?;
            let join = json!({
                "request": "join",
                "ptype": "publisher",
                "room": &*room,
                "id": server.keys.observer(&room, handle),
                "token": server.keys.own_token(&room),
            });
            let join = json!({ "janus": "message", "body": join });
            let joined = server.link.call(To::Handle(handle), join, Until::Answered, by).await;
            let detach = json!({ "janus": "detach" });
            // Fails only with the connection, and with that the handle ends.
            _ = server.link.call(To::Handle(handle), detach, Until::Answered, server.link.by()).await;
            plugin_answer(joined?).map_err(|code| server.plugin().fault("join", code))
        });
        let joined = look.await.map_err(|_| MediaError::unavailable("the coordinator is closing"))??;
        Ok(joined["publishers"].as_array().into_iter().flatten().filter_map(publisher).collect())
    }

    async fn mute(&self, router: &Router, name: &str, muted: bool, by: Instant) -> Result<(), MediaError> {
        let request = if muted { "mute" } else { "unmute" };
        let secret = self.keys.room_secret(&router.name);
        let request = json!({ "request": request, "room": &*router.name, "secret": secret, "id": name });
        absent_is_done(self.demand("mute", request, by).await)
    }

    async fn moderate(
        &self,
        router: &Router,
        name: &str,
        permissions: Permissions,
        by: Instant,
    ) -> Result<(), MediaError> {
        let publishers = self.publishers(&router.name, by).await?;
        let streams = publishers.into_iter().filter(|publisher| publisher.name == name);
        for stream in streams.flat_map(|publisher| publisher.streams) {
            let may = match stream.kind.as_str() {
                "audio" => permissions.publish_audio,
                "video" => permissions.publish_video,
                _ => continue,
            };
            if stream.moderated != may {
                continue;
            }
            let request = json!({
                "request": "moderate",
                "room": &*router.name,
                "secret": self.keys.room_secret(&router.name),
                "id": name,
                "mid": stream.mid,
                "mute": !may,
            });
            absent_is_done(self.demand("moderate", request, by).await)?;
        }
        Ok(())
    }

    async fn admin(&self, admin: &Admin, command: &str) -> Result<Value, MediaError> {
        let mut body = json!({ "janus": command, "transaction": command });
        if let Some(secret) = &self.config.admin_secret {
            body["admin_secret"] = json!(secret);
        }
        let request = admin.http.client().post(admin.url.clone());
        let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body.to_string());
        let answer = admin.http.send(request).await?;
        if !answer.status.is_success() {
            let status = answer.status.as_u16();
            return Err(match status {
                429 | 500.. => MediaError::unavailable(format!("Admin API: status {status}")),
                _ => MediaError::Refused { reason: format!("Admin API: status {status}") },
            });
        }
        let strange = |_| MediaError::unavailable("it does not speak the Admin API");
        let answer: Value = serde_json::from_slice(&answer.body).map_err(strange)?;
        match answer["error"]["code"].as_u64() {
            Some(code) => Err(MediaError::Refused { reason: format!("Admin API error {code}") }),
            None => Ok(answer),
        }
    }
}

#[async_trait]
impl MediaServer for JanusServer {
    fn kind(&self) -> MediaKind {
        MediaKind::Janus
    }

    fn abilities(&self) -> Abilities {
        Abilities { live_list: true, makes_routers: true, tells_audio: true, takes_permissions: true }
    }

    async fn ensure_router(&self, router: &Router) -> Result<(), MediaError> {
        let by = self.link.by();
        let room = &*router.name;
        let (secret, token) = (self.keys.room_secret(room), self.keys.own_token(room));
        let mut request = self.plugin().create(room, &secret, &token, self.config.plain_rtp);
        if let Some(key) = &self.config.admin_key {
            request["admin_key"] = json!(key);
        }
        match self.ask(request, by).await? {
            Ok(_) => Ok(()),
            Err(code) if code == self.plugin().codes().room_exists => {
                self.allow(room, "add", &token, by).await
            }
            Err(code) => Err(self.plugin().fault("create", code)),
        }
    }

    /// Proves that the room is there, is closed to those without a token, and takes the secret.
    async fn adopt_router(&self, router: &Router) -> Result<(), MediaError> {
        self.allow(&router.name, "add", &self.keys.own_token(&router.name), self.link.by()).await
    }

    async fn close_router(&self, router: &Router) -> Result<(), MediaError> {
        let secret = self.keys.room_secret(&router.name);
        let request =
            json!({ "request": "destroy", "room": &*router.name, "secret": secret, "permanent": false });
        gone_is_done(self.demand("destroy", request, self.link.by()).await)
    }

    /// Janus has no permissions before somebody publishes: who may not is muted by
    /// [`set_permissions`](Self::set_permissions), once they do.
    async fn grant(&self, router: &Router, member: &Member, _: Permissions) -> Result<Grant, MediaError> {
        let token = self.keys.token(&router.name, &member.name);
        let api_token =
            self.config.api_tokens.as_ref().map(|tokens| tokens.token(self.plugin())).transpose()?;
        self.allow(&router.name, "add", &token, self.link.by()).await?;
        Ok(Grant {
            generation: router.generation,
            ice_servers: Vec::new(),
            body: GrantBody::Janus {
                url: self.config.public_url.as_ref().unwrap_or(&self.config.url).clone(),
                plugin: self.plugin().word().into(),
                room: Arc::clone(&router.name),
                id: Arc::clone(&member.name),
                token,
                api_token,
                opaque_id: format!("{}/{}", router.name, member.name),
            },
        })
    }

    async fn set_permissions(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<(), MediaError> {
        let by = self.link.by();
        match self.plugin() {
            JanusPlugin::AudioBridge => self.mute(router, &member.name, !permissions.publish_audio, by).await,
            JanusPlugin::VideoRoom => self.moderate(router, &member.name, permissions, by).await,
        }
    }

    async fn remove_participant(&self, router: &Router, name: &str) -> Result<(), MediaError> {
        let by = self.link.by();
        let room = &*router.name;
        // The token first, or they could be back before it is taken.
        gone_is_done(self.allow(room, "remove", &self.keys.token(room, name), by).await)?;
        let secret = self.keys.room_secret(room);
        let request = json!({ "request": "kick", "room": room, "secret": secret, "id": name });
        gone_is_done(self.demand("kick", request, by).await)
    }

    async fn list_participants(&self, router: &Router) -> Result<Vec<Participant>, MediaError> {
        let by = self.link.by();
        let request = json!({ "request": "listparticipants", "room": &*router.name });
        let list = self.demand("listparticipants", request, by).await?;
        let there = list["participants"].as_array().map(Vec::as_slice).unwrap_or_default();
        if self.plugin() == JanusPlugin::AudioBridge {
            return Ok(there.iter().filter_map(mixed).collect());
        }
        let is_published = there.iter().any(|one| one["publisher"] == true);
        let publishers = if is_published { self.publishers(&router.name, by).await? } else { Vec::new() };
        let names = there.iter().filter_map(|one| one["id"].as_str());
        let members = names.filter(|name| !self.keys.is_observer(&router.name, name));
        Ok(members.map(|name| forwarded(name, &publishers)).collect())
    }

    async fn health(&self) -> Result<Load, MediaError> {
        let by = self.link.by();
        let Some(admin) = &self.admin else {
            let info = json!({ "janus": "info" });
            return self.link.call(To::Server, info, Until::Answered, by).await.map(|_| Load::default());
        };
        let asked = async {
            self.admin(admin, "ping").await?;
            let list = self.admin(admin, "list_sessions").await?;
            Ok(Load { participants: list["sessions"].as_array().map(|sessions| sessions.len() as u64) })
        };
        timeout_at(by, asked).await.unwrap_or_else(|_| Err(link::late(self.config.deadline)))
    }
}

fn parse(url: &str, schemes: &[&str]) -> Result<Url, MediaError> {
    let fits = |url: &Url| {
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        schemes.contains(&url.scheme()) && url.has_host() && !has_credentials
    };
    let wrong = || MediaError::Refused {
        reason: format!("a URL of Janus is not {} and a host", schemes.join(" or ")),
    };
    Url::parse(url).ok().filter(fits).ok_or_else(wrong)
}

/// What a plugin answered, or its error code.
fn plugin_answer(mut message: Value) -> Result<Value, u64> {
    let data = message["plugindata"]["data"].take();
    match data["error_code"].as_u64() {
        Some(code) => Err(code),
        None => Ok(data),
    }
}

/// Closing or removing what is not there has nothing left to do.
fn gone_is_done<T>(answer: Result<T, MediaError>) -> Result<(), MediaError> {
    match answer {
        Ok(_) | Err(MediaError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Nor has muting somebody who is not there, in a room that is.
fn absent_is_done<T>(answer: Result<T, MediaError>) -> Result<(), MediaError> {
    match answer {
        Ok(_) | Err(MediaError::NotFound { what: "participant" }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn publisher(publisher: &Value) -> Option<Publisher> {
    let streams = publisher["streams"].as_array().into_iter().flatten();
    let stream = |stream: &Value| {
        Some(Stream {
            kind: stream["type"].as_str()?.to_owned(),
            mid: stream["mid"].as_str()?.to_owned(),
            moderated: stream["moderated"] == true,
            disabled: stream["disabled"] == true,
        })
    };
    Some(Publisher {
        name: publisher["id"].as_str()?.to_owned(),
        streams: streams.filter_map(stream).collect(),
    })
}

/// A participant of an AudioBridge. It does not say who muted them, so that being muted says nothing of permission.
fn mixed(one: &Value) -> Option<Participant> {
    let muted = one["muted"].as_bool()?;
    Some(Participant {
        name: one["id"].as_str()?.into(),
        incarnation: None,
        audible: one["setup"].as_bool().map(|setup| setup && !muted),
        may_publish_audio: (!muted).then_some(true),
    })
}

/// A participant of a VideoRoom. That packets of a published stream arrive is taken for granted.
fn forwarded(name: &str, publishers: &[Publisher]) -> Participant {
    let streams = publishers.iter().filter(|publisher| publisher.name == name).flat_map(|one| &one.streams);
    let audio: Vec<_> = streams.filter(|stream| stream.kind == "audio" && !stream.disabled).collect();
    let flows = audio.iter().any(|stream| !stream.moderated);
    Participant {
        name: name.into(),
        incarnation: None,
        audible: Some(flows),
        may_publish_audio: (!audio.is_empty()).then_some(flows),
    }
}

#[cfg(test)]
mod tests;
