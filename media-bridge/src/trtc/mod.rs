//! Tencent TRTC, by its API and its room and media callbacks.
//!
//! A router is a string room, which comes with the first participant and goes with the last, so that nothing has to be
//! made or found. What lets a client in is signed here, so a grant asks nobody.
//!
//! What TRTC cannot do: say who is in a room just now; take `subscribe` from somebody who is there; let only one
//! `PrivateMapKey` be valid, so that whoever may publish after all needs a new grant, and an older one is good until it
//! expires.

mod callbacks;
mod tc3;
mod user_sig;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use serde::Deserialize;
use serde_json::{Value, json};
use url::{Position, Url};

pub use callbacks::TrtcCallbacks;

use crate::http::{Answer, Http};
use crate::{
    Abilities, ClockMs, Grant, GrantBody, Load, MediaError, MediaKind, MediaServer, Member, Participant,
    Permissions, Router,
};
use tc3::{Request, Signer};
use user_sig::Ticket;

const SERVICE: &str = "trtc";
const VERSION: &str = "2019-07-22";
/// The longest word that is taken for an error code.
const LONGEST_CODE: usize = 64;

/// A TRTC application, and an account that may control it.
#[derive(Clone)]
pub struct TrtcConfig {
    /// The application.
    pub sdk_app_id: u32,
    /// The application's key, with which `UserSig` is signed.
    pub secret_key: String,
    /// The id of an API key of the account.
    pub secret_id: String,
    /// The API key itself.
    pub api_secret_key: String,
    /// A region that takes commands for rooms: `ap-guangzhou`, `ap-beijing` or `ap-singapore`.
    pub region: String,
    /// The API: [`TrtcConfig::URL`], or `https://trtc.intl.tencentcloudapi.com/`.
    pub url: String,
    /// Whether grants hold a `PrivateMapKey`. Rights bite only where the application demands one.
    pub private_map_key: bool,
    /// How long a grant lets its holder enter; whole seconds.
    pub token_ttl: Duration,
    /// How long a call may take.
    pub deadline: Duration,
    /// For what is signed; Tencent allows for five minutes' difference.
    pub clock: ClockMs,
}

impl TrtcConfig {
    /// Tencent's API.
    pub const URL: &str = "https://trtc.tencentcloudapi.com/";

    fn now_s(&self) -> u64 {
        u64::try_from((self.clock)() / 1_000).unwrap_or_default()
    }
}

impl fmt::Debug for TrtcConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrtcConfig")
            .field("sdk_app_id", &self.sdk_app_id)
            .field("region", &self.region)
            .field("private_map_key", &self.private_map_key)
            .field("token_ttl", &self.token_ttl)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// One TRTC application.
#[derive(Debug, Clone)]
pub struct TrtcServer {
    config: Arc<TrtcConfig>,
    http: Http,
    url: Url,
    /// As reqwest sends it, and therefore as it is signed.
    host: Arc<str>,
    ttl_s: u32,
}

impl TrtcServer {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// `Refused` for a configuration that cannot work; it names what is wrong. `Unavailable` without TLS.
    pub fn new(config: TrtcConfig) -> Result<Self, MediaError> {
        let refused = |reason: &str| MediaError::Refused { reason: reason.to_owned() };
        let is_plain = |url: &Url| {
            let has_credentials = !url.username().is_empty() || url.password().is_some();
            let has_more = url.query().is_some() || url.fragment().is_some();
            ["http", "https"].contains(&url.scheme()) && url.has_host() && !has_credentials && !has_more
        };
        let url = Url::parse(&config.url).ok().filter(is_plain);
        let url = url.ok_or_else(|| refused("the URL of TRTC's API is not http or https and a host"))?;
        let words = [&config.secret_key, &config.secret_id, &config.api_secret_key, &config.region];
        if config.sdk_app_id == 0 || words.iter().any(|word| word.is_empty()) {
            return Err(refused("the application id, a key or the region of TRTC is empty"));
        }
        let ttl_s = u32::try_from(config.token_ttl.as_secs()).ok().filter(|ttl| *ttl > 0);
        let ttl_s = ttl_s.ok_or_else(|| refused("the life of TRTC's tokens is no number of seconds"))?;
        let host = url[Position::BeforeHost..Position::AfterPort].into();
        Ok(Self { http: Http::new(config.deadline)?, config: Arc::new(config), url, host, ttl_s })
    }

    async fn command(&self, action: &str, mut body: Value) -> Result<(), MediaError> {
        body["SdkAppId"] = json!(self.config.sdk_app_id);
        let body = body.to_string();
        let at = self.config.now_s();
        let signer =
            Signer { id: &self.config.secret_id, key: &self.config.api_secret_key, service: SERVICE };
        let request =
            Request { host: &self.host, path: self.url.path(), action: Some(action), body: &body, at };
        let authorization = signer.authorization(&request);
        let request = self
            .http
            .client()
            .post(self.url.clone())
            .header(HOST, &*self.host)
            .header(CONTENT_TYPE, tc3::JSON)
            .header(AUTHORIZATION, authorization)
            .header("X-TC-Action", action)
            .header("X-TC-Version", VERSION)
            .header("X-TC-Region", &self.config.region)
            .header("X-TC-Timestamp", at)
            .body(body);
        read(action, &self.http.send(request).await?)
    }
}

#[async_trait]
impl MediaServer for TrtcServer {
    fn kind(&self) -> MediaKind {
        MediaKind::Trtc
    }

    fn abilities(&self) -> Abilities {
        Abilities { live_list: false, makes_routers: false, tells_audio: true, takes_permissions: true }
    }

    async fn ensure_router(&self, _router: &Router) -> Result<(), MediaError> {
        Ok(())
    }

    async fn adopt_router(&self, _router: &Router) -> Result<(), MediaError> {
        Ok(())
    }

    async fn close_router(&self, router: &Router) -> Result<(), MediaError> {
        let body = json!({ "RoomId": &*router.name });
        nobody_is_done(self.command("DismissRoomByStrRoomId", body).await)
    }

    async fn grant(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<Grant, MediaError> {
        let ticket = Ticket {
            sdk_app_id: self.config.sdk_app_id,
            key: &self.config.secret_key,
            user: &member.name,
            from: self.config.now_s(),
            lasts: self.ttl_s,
        };
        let private_map_key =
            self.config.private_map_key.then(|| ticket.private_map_key(&router.name, permissions));
        let body = GrantBody::Trtc {
            sdk_app_id: self.config.sdk_app_id,
            str_room_id: Arc::clone(&router.name),
            user_id: Arc::clone(&member.name),
            user_sig: ticket.user_sig(),
            private_map_key,
        };
        Ok(Grant { generation: router.generation, ice_servers: Vec::new(), body })
    }

    async fn set_permissions(
        &self,
        router: &Router,
        member: &Member,
        permissions: Permissions,
    ) -> Result<(), MediaError> {
        let blocked = match (permissions.publish_audio, permissions.publish_video) {
            (true, true) => 0,
            (false, false) => 1,
            (false, true) => 2,
            (true, false) => 3,
        };
        let body = json!({ "StrRoomId": &*router.name, "UserId": &*member.name, "IsMute": blocked });
        // Whoever comes later is asked about again, when it is told that they came.
        nobody_is_done(self.command("SetUserBlockedByStrRoomId", body).await)
    }

    async fn remove_participant(&self, router: &Router, name: &str) -> Result<(), MediaError> {
        let body = json!({ "RoomId": &*router.name, "UserIds": [name] });
        nobody_is_done(self.command("RemoveUserByStrRoomId", body).await)
    }

    async fn list_participants(&self, _router: &Router) -> Result<Vec<Participant>, MediaError> {
        Err(MediaError::NotSupported { what: "list who is in a room of TRTC" })
    }

    /// Whether the API answers at all, by a request that asks for nothing: there is none that is free and proves the
    /// keys.
    async fn health(&self) -> Result<Load, MediaError> {
        let answer = self.http.send(self.http.client().get(self.url.clone())).await?;
        if answer.status.is_server_error() {
            return Err(MediaError::unavailable(format!("it answers with {}", answer.status.as_u16())));
        }
        Ok(Load::default())
    }
}

/// A room without participants is none; so with a command about nobody there is nothing left to do.
fn nobody_is_done(done: Result<(), MediaError>) -> Result<(), MediaError> {
    match done {
        Err(MediaError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Envelope {
    response: Response,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Response {
    error: Option<Fault>,
    request_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Fault {
    code: String,
}

/// What the API answered: faults are told by their code alone, as their texts may name rooms and people.
fn read(action: &str, answer: &Answer) -> Result<(), MediaError> {
    let status = answer.status;
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(MediaError::unavailable(format!("{action}: status {}", status.as_u16())));
    }
    let response = serde_json::from_slice::<Envelope>(&answer.body).ok().map(|envelope| envelope.response);
    let refused =
        || MediaError::Refused { reason: format!("{action}: status {}, no answer of TRTC", status.as_u16()) };
    match response.ok_or_else(refused)? {
        Response { error: Some(fault), .. } => Err(fault.meaning(action)),
        Response { request_id: Some(_), .. } if status.is_success() => Ok(()),
        Response { .. } => Err(refused()),
    }
}

impl Fault {
    fn meaning(self, action: &str) -> MediaError {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
        let is_code = self.code.len() <= LONGEST_CODE && self.code.bytes().all(is_word);
        let code = if is_code { self.code.as_str() } else { "a code that is none" };
        let is_of = |group: &str| code.split('.').next() == Some(group);
        match code {
            "FailedOperation.RoomNotExist" => MediaError::NotFound { what: "room" },
            "FailedOperation.UserNotExist" => MediaError::NotFound { what: "participant" },
            _ if is_of("InternalError") || is_of("RequestLimitExceeded") || is_of("ServiceUnavailable") => {
                MediaError::unavailable(format!("{action}: {code}"))
            }
            _ => MediaError::Refused { reason: format!("{action}: {code}") },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, PeerRef, RoomRef};

    fn config() -> TrtcConfig {
        TrtcConfig {
            sdk_app_id: 1_400_000_000,
            secret_key: "sig-secret".to_owned(),
            secret_id: "AKID-secret".to_owned(),
            api_secret_key: "api-secret".to_owned(),
            region: "ap-guangzhou".to_owned(),
            url: TrtcConfig::URL.to_owned(),
            private_map_key: false,
            token_ttl: Duration::from_secs(600),
            deadline: Duration::from_secs(5),
            clock: Arc::new(|| 1_760_000_000_000),
        }
    }

    fn says(status: u16, body: &str) -> Result<(), MediaError> {
        let status = StatusCode::from_u16(status).unwrap();
        read("Act", &Answer { status, body: body.to_owned().into() })
    }

    fn fault(code: &str) -> String {
        let error = json!({ "Code": code, "Message": "alice is not in ward-7" });
        json!({ "Response": { "Error": error, "RequestId": "r" } }).to_string()
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused() {
        let refused = |config: TrtcConfig| matches!(TrtcServer::new(config), Err(MediaError::Refused { .. }));
        assert!(!refused(config()));
        for url in ["", "trtc", "ws://a/", "https://u:p@a/", "https://a/?b", "https://a/#b"] {
            assert!(refused(TrtcConfig { url: url.to_owned(), ..config() }), "{url}");
        }
        assert!(refused(TrtcConfig { sdk_app_id: 0, ..config() }));
        assert!(refused(TrtcConfig { secret_key: String::new(), ..config() }));
        assert!(refused(TrtcConfig { region: String::new(), ..config() }));
        assert!(refused(TrtcConfig { token_ttl: Duration::from_millis(999), ..config() }));
        assert!(refused(TrtcConfig { token_ttl: Duration::MAX, ..config() }));
    }

    #[test]
    fn the_host_that_is_signed_is_the_one_that_is_sent() {
        for (url, host) in [
            (TrtcConfig::URL, "trtc.tencentcloudapi.com"),
            ("https://trtc.tencentcloudapi.com:443", "trtc.tencentcloudapi.com"),
            ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
            ("http://[::1]:8080/", "[::1]:8080"),
        ] {
            let server = TrtcServer::new(TrtcConfig { url: url.to_owned(), ..config() }).unwrap();
            assert_eq!(&*server.host, host);
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let shown = format!("{:?}", TrtcServer::new(config()).unwrap());
        assert!(shown.contains("1400000000") && !shown.contains("secret"), "{shown}");
    }

    #[tokio::test]
    async fn a_grant_is_ready_at_once() {
        let server = TrtcServer::new(TrtcConfig { private_map_key: true, ..config() }).unwrap();
        let router = Router { room: RoomRef::new("a", "r"), name: "ward7".into(), generation: Generation(3) };
        let member = Member { peer: PeerRef::new("ann", "p"), name: "alice".into(), display: None };
        let grant = server.grant(&router, &member, Permissions::LISTEN);
        let grant = futures_util::FutureExt::now_or_never(grant).expect("nobody is asked").unwrap();
        let grant = serde_json::to_value(&grant).unwrap();
        assert_eq!(grant["kind"], "trtc");
        assert_eq!(grant["generation"], 3);
        assert_eq!((&grant["sdkAppId"], &grant["strRoomId"]), (&json!(1_400_000_000), &json!("ward7")));
        assert_eq!(grant["userId"], "alice");
        assert!(grant["userSig"].is_string() && grant["privateMapKey"].is_string());
        let without = TrtcServer::new(config()).unwrap().grant(&router, &member, Permissions::ALL).await;
        assert!(serde_json::to_value(without.unwrap()).unwrap().get("privateMapKey").is_none());
    }

    #[test]
    fn what_the_api_says_is_told_apart() {
        let refused = |reason: &str| Err(MediaError::Refused { reason: format!("Act: {reason}") });
        assert_eq!(says(200, r#"{"Response":{"RequestId":"r"}}"#), Ok(()));
        assert_eq!(
            says(200, &fault("FailedOperation.RoomNotExist")),
            Err(MediaError::NotFound { what: "room" })
        );
        assert_eq!(
            says(200, &fault("FailedOperation.UserNotExist")),
            Err(MediaError::NotFound { what: "participant" })
        );
        assert_eq!(
            says(200, &fault("AuthFailure.SignatureFailure")),
            refused("AuthFailure.SignatureFailure")
        );
        assert_eq!(says(200, &fault("alice said: no")), refused("a code that is none"));
        assert_eq!(says(200, &fault("InternalErrorOfSorts")), refused("InternalErrorOfSorts"));
        for code in ["InternalError", "InternalError.DBError", "RequestLimitExceeded", "ServiceUnavailable"] {
            assert_eq!(says(200, &fault(code)), Err(MediaError::unavailable(format!("Act: {code}"))));
        }
        for status in [429, 500, 503] {
            assert!(matches!(says(status, ""), Err(MediaError::Unavailable { .. })), "{status}");
        }
        for (status, body) in
            [(200, "{}"), (200, "<html>"), (200, r#"{"Response":{}}"#), (301, ""), (403, "no")]
        {
            assert!(matches!(says(status, body), Err(MediaError::Refused { .. })), "{status} {body}");
        }
        assert!(matches!(says(302, r#"{"Response":{"RequestId":"r"}}"#), Err(MediaError::Refused { .. })));
    }
}
