//! Agora, by its channel management API and its notifications.
//!
//! A router is a channel, which comes with the first participant and goes with the last, so that nothing has to be made
//! or found. Tokens are signed here, so a grant asks nobody. Agora's API knows people by numbers only, and users with
//! accounts of letters cannot be listed or removed by it; so a participant's name here is a number from 1 to
//! 4294967295 in decimal, as [`Names::participant`](crate::Names::participant) gives it, and clients join with that
//! number.
//!
//! What Agora cannot do: say who is heard; take a permission from somebody who is there, other than by a rule that bans
//! them for a time and must be found and lifted again, so that a fault leaves them without a voice. Their client has to
//! be told, and to renew its token with one that permits less.

mod callbacks;
mod token;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use reqwest::RequestBuilder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

pub use callbacks::AgoraCallbacks;

use crate::http::{Answer, Http};
use crate::{
    Abilities, ClockMs, Grant, GrantBody, Load, MediaError, MediaKind, MediaServer, Member, Participant,
    Permissions, Router,
};
use token::Issuer;

/// Digits of an app id or a certificate.
const DIGITS: usize = 32;

/// An Agora project, and an account that may control it.
#[derive(Clone)]
pub struct AgoraConfig {
    /// The project: 32 hexadecimal digits.
    pub app_id: String,
    /// The project's certificate, with which tokens are signed: 32 hexadecimal digits.
    pub app_certificate: String,
    /// The customer id for the API.
    pub customer_id: String,
    /// The customer secret for the API.
    pub customer_secret: String,
    /// The API: [`AgoraConfig::URL`], or another host of it.
    pub url: String,
    /// How long a grant lets its holder join, and stay unless it is renewed; whole seconds, at most a day.
    pub token_ttl: Duration,
    /// How long a call may take; Agora advises against less than five seconds.
    pub deadline: Duration,
    /// For what tokens say of their validity.
    pub clock: ClockMs,
    /// Random numbers, one for each token.
    pub salts: Arc<dyn Fn() -> u32 + Send + Sync>,
}

impl AgoraConfig {
    /// Agora's API.
    pub const URL: &str = "https://api.agora.io";
    const LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);
}

impl fmt::Debug for AgoraConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgoraConfig")
            .field("app_id", &self.app_id)
            .field("token_ttl", &self.token_ttl)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// One Agora project.
#[derive(Debug, Clone)]
pub struct AgoraServer {
    config: Arc<AgoraConfig>,
    http: Http,
    url: Url,
    ttl_s: u32,
}

impl AgoraServer {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// `Refused` for a configuration that cannot work; it names what is wrong. `Unavailable` without TLS.
    pub fn new(config: AgoraConfig) -> Result<Self, MediaError> {
        let refused = |reason: &str| MediaError::Refused { reason: reason.to_owned() };
        let is_plain = |url: &Url| {
            let has_credentials = !url.username().is_empty() || url.password().is_some();
            let has_more = url.query().is_some() || url.fragment().is_some();
            ["http", "https"].contains(&url.scheme()) && url.has_host() && !has_credentials && !has_more
        };
        let url = Url::parse(&config.url).ok().filter(is_plain);
        let url = url.ok_or_else(|| refused("the URL of Agora's API is not http or https and a host"))?;
        let is_hex = |text: &str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex(&config.app_id) || !is_hex(&config.app_certificate) {
            return Err(refused("an app id or certificate of Agora is 32 hexadecimal digits"));
        }
        if config.customer_id.is_empty() || config.customer_secret.is_empty() {
            return Err(refused("the customer id of Agora, or its secret, is empty"));
        }
        let ttl = Some(config.token_ttl).filter(|ttl| *ttl <= AgoraConfig::LONGEST_TTL);
        let ttl_s = ttl.and_then(|ttl| u32::try_from(ttl.as_secs()).ok()).filter(|ttl| *ttl > 0);
        let ttl_s = ttl_s.ok_or_else(|| refused("the life of Agora's tokens is a second to a day"))?;
        Ok(Self { http: Http::new(config.deadline)?, config: Arc::new(config), url, ttl_s })
    }

    fn at(&self, path: &[&str]) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["dev", "v1"]).extend(path);
        }
        url
    }

    async fn ask<T: DeserializeOwned>(&self, what: &str, request: RequestBuilder) -> Result<T, MediaError> {
        let AgoraConfig { customer_id, customer_secret, .. } = &*self.config;
        let request = request.basic_auth(customer_id, Some(customer_secret));
        read(what, &self.http.send(request.header(CONTENT_TYPE, "application/json")).await?)
    }

    /// Sets whom a rule is about offline. A rule that lasts for no time forbids nobody to come back.
    async fn kick(&self, mut rule: Value) -> Result<(), MediaError> {
        rule["appid"] = json!(self.config.app_id);
        rule["time"] = json!(0);
        rule["privileges"] = json!(["join_channel"]);
        let request = self.http.client().post(self.at(&["kicking-rule"])).body(rule.to_string());
        let Ruled { status } = self.ask("kicking-rule", request).await?;
        if status == "success" {
            return Ok(());
        }
        Err(MediaError::Refused { reason: "kicking-rule: no success".to_owned() })
    }
}

#[async_trait]
impl MediaServer for AgoraServer {
    fn kind(&self) -> MediaKind {
        MediaKind::Agora
    }

    /// The list says who is there, not who is heard.
    fn abilities(&self) -> Abilities {
        Abilities { live_list: true, makes_routers: false, tells_audio: false, takes_permissions: false }
    }

    async fn ensure_router(&self, _router: &Router) -> Result<(), MediaError> {
        Ok(())
    }

    async fn adopt_router(&self, _router: &Router) -> Result<(), MediaError> {
        Ok(())
    }

    async fn close_router(&self, router: &Router) -> Result<(), MediaError> {
        self.kick(json!({ "cname": &*router.name })).await
    }

    async fn grant(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<Grant, MediaError> {
        let uid = number(&member.name)?;
        let now_s = u32::try_from((self.config.clock)() / 1_000).unwrap_or_default();
        let issuer = Issuer {
            app_id: &self.config.app_id,
            certificate: &self.config.app_certificate,
            now_s,
            ttl_s: self.ttl_s,
            salt: (self.config.salts)(),
        };
        let body = GrantBody::Agora {
            app_id: self.config.app_id.clone(),
            channel: Arc::clone(&router.name),
            uid,
            token: issuer.token(&router.name, uid, permissions),
        };
        Ok(Grant { generation: router.generation, ice_servers: Vec::new(), body })
    }

    async fn set_permissions(
        &self,
        _router: &Router,
        _member: &Member,
        _permissions: Permissions,
    ) -> Result<(), MediaError> {
        Err(MediaError::NotSupported { what: "change what somebody at Agora may do" })
    }

    async fn remove_participant(&self, router: &Router, name: &str) -> Result<(), MediaError> {
        self.kick(json!({ "cname": &*router.name, "uid": number(name)? })).await
    }

    /// A channel that nobody is in does not exist, and has nobody in it. Of an audience Agora names the first ten
    /// thousand.
    async fn list_participants(&self, router: &Router) -> Result<Vec<Participant>, MediaError> {
        let url = self.at(&["channel", "user", &self.config.app_id, &router.name]);
        let listed: Listed<Users> = self.ask("channel/user", self.http.client().get(url)).await?;
        let Users { channel_exist, users, broadcasters, audience } = listed.get("channel/user")?;
        if !channel_exist {
            return Ok(Vec::new());
        }
        let all = [users, broadcasters, audience].into_iter().flatten().flatten();
        let participant = |uid: u32| Participant {
            name: uid.to_string().into(),
            incarnation: None,
            audible: None,
            may_publish_audio: None,
        };
        Ok(all.map(participant).collect())
    }

    /// Whether the API takes the credentials, by asking for a page of one channel.
    async fn health(&self) -> Result<Load, MediaError> {
        let mut url = self.at(&["channel", &self.config.app_id]);
        url.query_pairs_mut().append_pair("page_no", "0").append_pair("page_size", "1");
        let listed: Listed<Value> = self.ask("channel", self.http.client().get(url)).await?;
        listed.get("channel").map(|_| Load::default())
    }
}

/// Somebody's number: their name, which is written in one way only.
fn number(name: &str) -> Result<u32, MediaError> {
    let number = name.parse().ok().filter(|uid: &u32| *uid > 0 && uid.to_string() == name);
    number.ok_or_else(|| MediaError::Refused { reason: "a name at Agora is a number".to_owned() })
}

#[derive(Deserialize)]
struct Ruled {
    status: String,
}

#[derive(Deserialize)]
struct Listed<T> {
    success: bool,
    data: Option<T>,
}

impl<T> Listed<T> {
    fn get(self, what: &str) -> Result<T, MediaError> {
        let refused = || MediaError::Refused { reason: format!("{what}: no success") };
        self.data.filter(|_| self.success).ok_or_else(refused)
    }
}

/// `users` in a channel of the communication profile, the others in one of live broadcasting.
#[derive(Deserialize)]
struct Users {
    channel_exist: bool,
    users: Option<Vec<u32>>,
    broadcasters: Option<Vec<u32>>,
    audience: Option<Vec<u32>>,
}

fn read<T: DeserializeOwned>(what: &str, answer: &Answer) -> Result<T, MediaError> {
    let status = answer.status;
    let said = |problem: &str| format!("{what}: status {}{problem}", status.as_u16());
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(MediaError::unavailable(said("")));
    }
    if !status.is_success() {
        return Err(MediaError::Refused { reason: said("") });
    }
    let unread = |_| MediaError::Refused { reason: said(", no answer of Agora") };
    serde_json::from_slice(&answer.body).map_err(unread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, PeerRef, RoomRef};

    fn config() -> AgoraConfig {
        AgoraConfig {
            app_id: "970CA35de60c44645bbae8a215061b33".to_owned(),
            app_certificate: "5CFd2fd1755d40ecb72977518be15d3b".to_owned(),
            customer_id: "id-secret".to_owned(),
            customer_secret: "key-secret".to_owned(),
            url: AgoraConfig::URL.to_owned(),
            token_ttl: Duration::from_secs(600),
            deadline: Duration::from_secs(5),
            clock: Arc::new(|| 1_760_000_000_000),
            salts: Arc::new(|| 1),
        }
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused() {
        let refused =
            |config: AgoraConfig| matches!(AgoraServer::new(config), Err(MediaError::Refused { .. }));
        assert!(!refused(config()));
        for url in ["", "agora", "ws://a/", "https://u:p@a/", "https://a/?b"] {
            assert!(refused(AgoraConfig { url: url.to_owned(), ..config() }), "{url}");
        }
        assert!(refused(AgoraConfig { app_id: "970CA35de60c44645bbae8a215061b3".to_owned(), ..config() }));
        assert!(refused(AgoraConfig { app_certificate: "x".repeat(32), ..config() }));
        assert!(refused(AgoraConfig { customer_secret: String::new(), ..config() }));
        assert!(refused(AgoraConfig { token_ttl: Duration::from_millis(999), ..config() }));
        assert!(refused(AgoraConfig { token_ttl: Duration::from_secs(86_401), ..config() }));
        assert!(!refused(AgoraConfig { token_ttl: Duration::from_secs(86_400), ..config() }));
    }

    #[test]
    fn no_secret_is_shown() {
        let shown = format!("{:?}", AgoraServer::new(config()).unwrap());
        assert!(
            shown.contains("970CA35d") && !shown.contains("secret") && !shown.contains("5CFd"),
            "{shown}"
        );
    }

    #[test]
    fn names_are_numbers() {
        for (name, uid) in [("1", 1), ("4294967295", u32::MAX)] {
            assert_eq!(number(name), Ok(uid));
        }
        for name in ["", "0", "01", "+1", "-1", "4294967296", "1.0", "alice", " 1"] {
            assert!(matches!(number(name), Err(MediaError::Refused { .. })), "{name}");
        }
    }

    #[tokio::test]
    async fn a_grant_is_ready_at_once() {
        let server = AgoraServer::new(config()).unwrap();
        let router = Router { room: RoomRef::new("a", "r"), name: "ward7".into(), generation: Generation(3) };
        let member = |name: &str| Member { peer: PeerRef::new("ann", "p"), name: name.into(), display: None };
        let ann = member("2882341273");
        let grant = server.grant(&router, &ann, Permissions::ALL);
        let grant = futures_util::FutureExt::now_or_never(grant).expect("nobody is asked").unwrap();
        let grant = serde_json::to_value(&grant).unwrap();
        assert_eq!(grant["kind"], "agora");
        assert_eq!((&grant["channel"], &grant["uid"]), (&json!("ward7"), &json!(2_882_341_273_u32)));
        assert!(grant["token"].as_str().unwrap().starts_with("007"));
        let refused = server.grant(&router, &member("alice"), Permissions::ALL).await;
        assert!(matches!(refused, Err(MediaError::Refused { .. })));
    }

    #[test]
    fn paths_are_below_the_url() {
        for (url, expected) in [
            (AgoraConfig::URL, "https://api.agora.io/dev/v1/a/b%2Fc"),
            ("http://127.0.0.1:1/agora/", "http://127.0.0.1:1/agora/dev/v1/a/b%2Fc"),
        ] {
            let server = AgoraServer::new(AgoraConfig { url: url.to_owned(), ..config() }).unwrap();
            assert_eq!(server.at(&["a", "b/c"]).as_str(), expected);
        }
    }

    #[test]
    fn what_the_api_says_is_told_apart() {
        let says = |status: u16, body: &str| {
            let answer =
                Answer { status: StatusCode::from_u16(status).unwrap(), body: body.to_owned().into() };
            read::<Ruled>("act", &answer).map(|ruled| ruled.status)
        };
        assert_eq!(says(200, r#"{"status":"success","id":1953}"#).as_deref(), Ok("success"));
        for status in [429, 500, 504] {
            assert!(matches!(says(status, ""), Err(MediaError::Unavailable { .. })), "{status}");
        }
        for (status, body) in [(401, ""), (404, "{}"), (302, ""), (200, "<html>"), (200, "{}")] {
            assert!(matches!(says(status, body), Err(MediaError::Refused { .. })), "{status} {body}");
        }
        let listed = |body: &str| {
            serde_json::from_str::<Listed<Users>>(body).unwrap().get("l").map(|it| it.channel_exist)
        };
        assert_eq!(listed(r#"{"success":true,"data":{"channel_exist":false}}"#), Ok(false));
        assert!(listed(r#"{"success":false,"data":{"channel_exist":false}}"#).is_err());
        assert!(listed(r#"{"success":true}"#).is_err());
    }
}
