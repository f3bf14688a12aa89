//! `POST /rtc/{vendor}/{app}`: what an app's media servers say happened, each vendor's in its own form.
//!
//! The raw body is proved before it is parsed. Every event is checked before the first is taken, and the
//! answer is 200 only when all of them are in the inboxes of their rooms; a sender repeats anything else, and
//! an event that is there already is counted and not taken again. A vendor is answered before it gives up waiting:
//! while Redis is slow with 503, so that it comes again. Janus does not come again whatever it is answered, so there
//! it is tried for as long as Janus waits.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use http::{HeaderMap, StatusCode};
use media_bridge::{CallbackError, CallbackReader, CallbackRequest};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;
use utoipa::openapi::Required;
use utoipa::openapi::path::HttpMethod;

use super::call::{Call, header};
use super::input::whole;
use super::{callback_shapes as bodies, janus_socket, shapes};
use crate::callbacks::intake::{Intake, Taken};
use crate::clock::{instant, unix_millis};
use crate::config::{App, Role};
use crate::error::{ApiError, ErrorCode};
use crate::http::problem::Problem;
use crate::node::Node;

/// Longest text of an error that quotes what somebody sent.
const ERROR_CHARS: usize = 300;
/// From one try to the next.
const RETRY: Duration = Duration::from_millis(250);

/// How a vendor wants to be answered.
pub(super) struct Vendor {
    /// Its word in the path.
    pub name: &'static str,
    /// It is answered within this time; it waits some seconds longer.
    pub deadline: Duration,
    /// Largest body.
    pub most_bytes: usize,
    /// `WWW-Authenticate` of a refusal.
    pub challenge: &'static str,
    /// Whether whatever answer counts as delivered.
    pub never_repeats: bool,
}

const GENERIC: Vendor = Vendor {
    name: "generic",
    deadline: Duration::from_secs(6),
    most_bytes: crate::http::BODY_BYTES,
    challenge: "Dais-Signature",
    never_repeats: false,
};

pub(super) const JANUS: Vendor = Vendor {
    name: "janus",
    deadline: Duration::from_secs(8),
    most_bytes: 1024 * 1024,
    challenge: "Basic realm=\"callbacks\"",
    never_repeats: true,
};

const LIVEKIT: Vendor =
    Vendor { name: "livekit", most_bytes: 256 * 1024, challenge: "LiveKit-Webhook", ..GENERIC };

const TRTC: Vendor = Vendor {
    name: "trtc",
    deadline: Duration::from_secs(3),
    most_bytes: 256 * 1024,
    challenge: "Sign",
    never_repeats: false,
};

const AGORA: Vendor =
    Vendor { name: "agora", most_bytes: 256 * 1024, challenge: "Agora-Signature-V2", ..GENERIC };

/// What became of the events. How loud people are is not among them.
#[derive(Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Received {
    /// In the inboxes of their rooms now.
    appended: usize,
    /// There before.
    repeated: usize,
    /// Of a kind, or for a room, that is not known here.
    unknown: usize,
}

impl From<Taken> for Received {
    fn from(taken: Taken) -> Self {
        let Taken { appended, repeated, unknown_type, unknown_room, other_app, levels: _ } = taken;
        Self { appended, repeated, unknown: unknown_type + unknown_room + other_app }
    }
}

/// Who takes the callbacks of one vendor for one app.
pub(super) struct Receiver {
    node: Arc<Node>,
    pub app: Arc<App>,
    vendor: &'static Vendor,
    reader: Arc<dyn CallbackReader>,
}

impl Receiver {
    pub(super) fn of(node: &Arc<Node>, app: &str, vendor: &'static Vendor) -> Result<Self, Problem> {
        let missing = |message: String| Problem::of_request(StatusCode::NOT_FOUND, message);
        if !node.config.instance.has(Role::Callbacks) {
            return Err(missing("this instance takes no callbacks".to_owned()));
        }
        let reader = node.readers.of(app, vendor.name).cloned();
        let (Some(app), Some(reader)) = (node.app(app), reader) else {
            return Err(missing(format!("the app takes no {} callbacks", vendor.name)));
        };
        Ok(Self { node: Arc::clone(node), app, vendor, reader })
    }

    pub(super) fn count(&self, result: &str, by: usize) {
        let counter = self.node.metrics.rtc_callbacks.with_label_values(&[self.vendor.name, result]);
        counter.inc_by(u64::try_from(by).unwrap_or(u64::MAX));
    }

    pub(super) fn refused(&self, reason: String) -> Problem {
        self.count("refused", 1);
        tracing::warn!(app = %self.app.code, vendor = self.vendor.name, reason, "a callback is not believed");
        Problem::unauthenticated(self.vendor.challenge, reason)
    }

    /// Proves and reads what came, and takes its events within the vendor's patience.
    pub(super) async fn take(&self, headers: &HeaderMap, body: &[u8]) -> Result<Taken, Problem> {
        let due = instant() + self.vendor.deadline;
        let request = CallbackRequest { headers, body, now_ms: unix_millis() };
        let intake = self.read(request)?;
        loop {
            let result = match tokio::time::timeout_at(due, intake.take()).await {
                Ok(result) => result,
                Err(_) => Err(ApiError::store_unavailable()),
            };
            let error = match result {
                Ok(taken) => {
                    self.tally(taken);
                    return Ok(taken);
                }
                Err(error) => error,
            };
            if self.vendor.never_repeats && error.code.is_retryable() && instant() + RETRY < due {
                tokio::time::sleep(RETRY).await;
                continue;
            }
            return Err(self.failed(&intake, error));
        }
    }

    /// The same, for a sender that waits for as long as it takes.
    pub(super) async fn take_at_last(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
        let request = CallbackRequest { headers, body, now_ms: unix_millis() };
        let intake = self.read(request)?;
        let due = instant() + self.vendor.deadline;
        loop {
            match intake.take().await {
                Ok(taken) => {
                    self.tally(taken);
                    return Ok(());
                }
                Err(error)
                    if error.code == ErrorCode::StoreUnavailable
                        || error.code.is_retryable() && instant() < due => {}
                Err(error) => return Err(self.failed(&intake, error)),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn read<'a>(&'a self, request: CallbackRequest<'a>) -> Result<Intake<'a>, Problem> {
        let callback = self.reader.read(&request).map_err(|error| match error {
            CallbackError::Unproved(reason) => self.refused(reason),
            CallbackError::Malformed(reason) => {
                self.count("malformed", 1);
                let reason: String = reason.chars().take(ERROR_CHARS).collect();
                ApiError::bad_request(reason).into()
            }
        })?;
        Ok(Intake::new(&self.node, &self.app, self.vendor.name, request, callback))
    }

    fn failed(&self, intake: &Intake<'_>, error: ApiError) -> Problem {
        if !error.code.is_retryable() {
            self.count(if error.code == ErrorCode::BadRequest { "malformed" } else { "failed" }, 1);
            return error.into();
        }
        self.count("failed", 1);
        if self.vendor.never_repeats {
            self.count("lost", intake.len());
            tracing::error!(
                app = %self.app.code, vendor = self.vendor.name, events = intake.len(), %error,
                "events are lost: the media server does not repeat them"
            );
        }
        let is_rate = error.code == ErrorCode::RateLimited && self.vendor.name == GENERIC.name;
        // Some vendors take 429 for delivered.
        if is_rate { error.into() } else { Problem::from(error).under(StatusCode::SERVICE_UNAVAILABLE) }
    }

    fn tally(&self, taken: Taken) {
        let Taken { appended, repeated, unknown_type, unknown_room, other_app, levels } = taken;
        for (result, count) in [
            ("appended", appended),
            ("repeated", repeated),
            ("unknown_type", unknown_type),
            ("unknown_room", unknown_room),
            ("other_app", other_app),
            ("level", levels),
        ] {
            if count > 0 {
                self.count(result, count);
            }
        }
    }
}

async fn receive(
    vendor: &'static Vendor,
    node: Arc<Node>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Json<Received>, Problem> {
    let Path(app) = path.map_err(|_| ApiError::bad_request("the path is not UTF-8"))?;
    let receiver = Receiver::of(&node, &app, vendor)?;
    let headers = request.headers().clone();
    let body = whole(request, &node, vendor.most_bytes).await;
    let body = body.inspect_err(|_| receiver.count("malformed", 1))?;
    Ok(Json(receiver.take(&headers, &body).await?.into()))
}

/// The calls of this module.
pub(super) fn calls() -> Vec<Call> {
    let required = |name: &'static str, says: &str, schema: utoipa::openapi::Object| {
        let mut parameter = header(name, says, schema);
        parameter.required = Required::True;
        parameter
    };
    let line = || shapes::text(1, 4_096, "");
    let timestamp = "When the request was signed, in Unix seconds; at most 300 s off.";
    let signed = "`v1=` and HMAC-SHA256 over `Dais-Timestamp`, a dot and the body, in hexadecimal; several may \
                  stand here, separated by commas, while a secret is changed.";
    let generic = call(
        &GENERIC,
        "/rtc/generic/{app}",
        "receiveCallback",
        "Takes what a media server of the app's own says happened.",
    )
    .proved_by("Dais-Timestamp: 1764468005\nDais-Signature: v1=7d0e…\n")
    .notes("200 means that all events are in the inboxes of their rooms: repeat anything else, with the same ids.")
    .parameter(required("Dais-Timestamp", timestamp, shapes::text(1, 20, "^[0-9]{1,20}$")))
    .parameter(required("Dais-Signature", signed, shapes::text(1, 1024, "")))
    .takes::<bodies::Callback>(json!([
        { "id": "e-71", "type": "audio_started", "room": "maths-1", "user": "ann", "at": 1_764_468_003_500_u64, "session": "s-9" },
        { "id": "e-72", "type": "room_exited", "room": "maths-1", "user": "bob", "at": 1_764_468_004_000_u64, "reason": "network" },
    ]))
    .including::<bodies::CallbackEvent>()
    .refuses(&[ErrorCode::RateLimited]);

    let janus = call(
        &JANUS,
        "/rtc/janus/{app}",
        "receiveJanusEvents",
        "Takes the events of Janus's `sampleevh`.",
    )
    .proved_by("Authorization: Basic amFudXM6…\n")
    .notes(
        "It is not answered before the events are in the inboxes of their rooms, for up to 8 s, because Janus repeats \
         nothing that was answered.",
    )
    .parameter(header("Authorization", "`Basic` with `backend_user` and `backend_pwd`.", line()))
    .takes::<bodies::JanusEvents>(json!([{
        "emitter": "janus-1", "type": 64, "timestamp": 1_764_468_003_500_000_u64, "session_id": 7, "handle_id": 8,
        "event": { "plugin": "janus.plugin.audiobridge", "data": {
            "event": "joined", "room": "k5x2mzq4ta7rw3bnd6hcvuyoel", "id": "p3bq7ncx5tzm2wkra4hvd6yuoe",
        } },
    }]));

    let livekit =
        call(&LIVEKIT, "/rtc/livekit/{app}", "receiveLivekitWebhook", "Takes a webhook of LiveKit.")
            .proved_by("Authorization: eyJhbGciOi…\n")
            .parameter(header(
                "Authorization",
                "The token that LiveKit signs the body's digest with.",
                line(),
            ))
            .takes::<bodies::LivekitWebhook>(json!({
                "event": "participant_joined", "id": "EV_eugWmGhovZmm", "createdAt": "1764468003",
                "room": { "sid": "RM_hycBMAjmt6Ub", "name": "k5x2mzq4ta7rw3bnd6hcvuyoel" },
                "participant": { "sid": "PA_7Q2m9xYz", "identity": "p3bq7ncx5tzm2wkra4hvd6yuoe" },
            }));

    let trtc = call(&TRTC, "/rtc/trtc/{app}", "receiveTrtcCallback", "Takes a callback of TRTC.")
        .proved_by("Sign: kkoFeO3O…\n")
        .parameter(header("Sign", "HMAC-SHA256 over the body, in Base64.", line()))
        .takes::<bodies::TrtcCallback>(json!({
            "EventGroupId": 2, "EventType": 203, "CallbackTs": 1_764_468_003_700_u64,
            "EventInfo": {
                "RoomId": "k5x2mzq4ta7rw3bnd6hcvuyoel", "UserId": "p3bq7ncx5tzm2wkra4hvd6yuoe",
                "EventTs": 1_764_468_003, "EventMsTs": 1_764_468_003_500_u64,
            },
        }));

    let signature = "HMAC-SHA256 over the body, in hexadecimal.";
    let agora =
        call(&AGORA, "/rtc/agora/{app}", "receiveAgoraNotification", "Takes a notification of Agora.")
            .proved_by("Agora-Signature-V2: e1d701f6…\n")
            .parameter(header("Agora-Signature-V2", signature, line()))
            .takes::<bodies::AgoraNotification>(json!({
                "noticeId": "2000001428:4330:107", "productId": 1, "eventType": 103,
                "notifyMs": 1_764_468_003_700_u64,
                "payload": {
                    "channelName": "k5x2mzq4ta7rw3bnd6hcvuyoel", "account": "p3bq7ncx5tzm2wkra4hvd6yuoe",
                    "uid": 12_121_212, "clientSeq": 1_764_468_003_500_u64, "ts": 1_764_468_003,
                },
            }));
    let proof = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Protocol: dais.janus.7d0e…\n";
    let socket = Call::new(
        HttpMethod::Get,
        "/rtc/janus/{app}",
        "connectJanus",
        "Takes the events of Janus's `wsevh` over a WebSocket.",
        janus_socket::connect,
    )
    .proved_by(proof)
    .notes(
        "The subprotocol `dais.{username}.{password}` proves it. Each message is taken as the body of a callback \
         would be. Nothing is answered: while the rooms cannot take the events, no more is read.",
    )
    .tagged("callbacks")
    .switching()
    .refuses_as(404, ErrorCode::BadRequest)
    .refuses_as(426, ErrorCode::BadRequest);
    vec![generic, janus, socket, livekit, trtc, agora]
}

fn call(vendor: &'static Vendor, path: &'static str, id: &'static str, does: &'static str) -> Call {
    let example: Value = json!({ "appended": 2, "repeated": 0, "unknown": 0 });
    let handler = move |State(node): State<Arc<Node>>,
                        path: Result<Path<String>, PathRejection>,
                        request: Request| receive(vendor, node, path, request);
    Call::new(HttpMethod::Post, path, id, does, handler)
        .limited(DefaultBodyLimit::max(vendor.most_bytes))
        .tagged("callbacks")
        .answers::<Received>(200, "All events are taken.", example)
        .refuses_as(404, ErrorCode::BadRequest)
        .refuses(&[ErrorCode::LedgerUnavailable, ErrorCode::LeaseLost])
}
