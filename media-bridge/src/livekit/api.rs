//! LiveKit's room service: Twirp, JSON over HTTP.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::LivekitConfig;
use super::callbacks::{Track, or_default};
use super::token::{Right, Source};
use crate::http::{Answer, Http};
use crate::{MediaError, Participant};

/// The longest word that is taken for an error code.
const LONGEST_CODE: usize = 32;

/// Calls to one LiveKit.
#[derive(Clone)]
pub(super) struct Api {
    http: Http,
    /// Ends with a slash.
    base: Url,
}

/// Answers say zero values, and `null` for messages that are not there.
#[derive(Debug, Deserialize)]
pub(super) struct Room {
    pub(super) name: String,
    #[serde(default)]
    pub(super) num_participants: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rooms {
    pub(super) rooms: Vec<Room>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Participants {
    pub(super) participants: Vec<Somebody>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Somebody {
    identity: String,
    #[serde(default)]
    sid: String,
    #[serde(default)]
    state: Value,
    #[serde(default)]
    kind: Value,
    #[serde(default, deserialize_with = "or_default")]
    tracks: Vec<Track>,
    permission: Option<Permission>,
}

#[derive(Debug, Deserialize)]
struct Permission {
    #[serde(default)]
    can_publish: bool,
    #[serde(default)]
    can_publish_sources: Vec<Value>,
}

#[derive(Deserialize)]
struct Fault {
    code: String,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Api {
    pub(super) fn new(http: Http, mut base: Url) -> Self {
        if !base.path().ends_with('/') {
            let path = format!("{}/", base.path());
            base.set_path(&path);
        }
        Self { http, base }
    }

    /// One call of the room service.
    ///
    /// # Errors
    /// `NotFound` where LiveKit says that, `Timeout`, `Unavailable`, `Refused`.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        config: &LivekitConfig,
        right: Right<'_>,
        method: &str,
        body: &Value,
    ) -> Result<T, MediaError> {
        let answer = self.http.send(self.request(config, right, method, body)?).await?;
        read(method, &answer)
    }

    /// The same, where the answer may be as large as LiveKit is; `None`: it is larger than `most` bytes.
    pub(super) async fn call_for_at_most<T: DeserializeOwned>(
        &self,
        most: usize,
        config: &LivekitConfig,
        right: Right<'_>,
        method: &str,
        body: &Value,
    ) -> Result<Option<T>, MediaError> {
        let answer = self.http.send_for_at_most(most, self.request(config, right, method, body)?).await?;
        answer.map(|answer| read(method, &answer)).transpose()
    }

    fn request(
        &self,
        config: &LivekitConfig,
        right: Right<'_>,
        method: &str,
        body: &Value,
    ) -> Result<reqwest::RequestBuilder, MediaError> {
        let url = self.base.join(&format!("twirp/livekit.RoomService/{method}"));
        let url = url.map_err(|_| MediaError::Refused { reason: "LiveKit's URL has no path".to_owned() })?;
        let token = config.signer().call(right);
        let request = self.http.client().post(url).header(AUTHORIZATION, format!("Bearer {token}"));
        Ok(request.header(CONTENT_TYPE, "application/json").body(body.to_string()))
    }
}

fn read<T: DeserializeOwned>(method: &str, answer: &Answer) -> Result<T, MediaError> {
    if answer.status.is_success() {
        let strange = |_| MediaError::Refused { reason: format!("{method}: not an answer of LiveKit") };
        return serde_json::from_slice(&answer.body).map_err(strange);
    }
    // The words beside the code may be anybody's, and where a token is refused they repeat it.
    let is_code = |code: &String| {
        code.len() <= LONGEST_CODE && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let fault: Option<Fault> = serde_json::from_slice(&answer.body).ok();
    let code = fault.map(|fault| fault.code).filter(is_code);
    if code.as_deref() == Some("not_found") {
        return Err(MediaError::NotFound { what: "room or participant" });
    }
    let status = answer.status;
    let reason = match code {
        Some(code) => format!("{method}: {code}"),
        None => format!("{method}: status {}", status.as_u16()),
    };
    let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS, StatusCode::CONFLICT];
    let may_pass = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
    if may_pass || passes.contains(&status) {
        return Err(MediaError::unavailable(reason));
    }
    Err(MediaError::Refused { reason })
}

impl Somebody {
    /// As rooms see them; `None` for who is gone, and for those whom no token of ours can have let in: recorders,
    /// agents, callers by telephone.
    pub(super) fn participant(self) -> Option<Participant> {
        let is_gone = self.state == "DISCONNECTED" || self.state == 3;
        let is_person = self.kind.is_null() || self.kind == "STANDARD" || self.kind == 0;
        if is_gone || !is_person {
            return None;
        }
        Some(Participant {
            audible: Some(self.tracks.iter().any(|track| track.is_voice() && !track.is_muted())),
            may_publish_audio: self.permission.as_ref().map(Permission::covers_voice),
            incarnation: Some(self.sid).filter(|sid| !sid.is_empty()).map(Arc::from),
            name: self.identity.into(),
        })
    }
}

impl Permission {
    fn covers_voice(&self) -> bool {
        let is_voice = |source: &Value| *source == Source::Microphone.name() || *source == 2;
        let sources = &self.can_publish_sources;
        self.can_publish && (sources.is_empty() || sources.iter().any(is_voice))
    }
}
