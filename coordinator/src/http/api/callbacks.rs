//! `POST /rtc/generic/{app}`: what a media server of the app's own says happened, in our own signed form.
//!
//! The raw body is proved before it is parsed. Every event is checked before the first is taken, and the
//! answer is 200 only when all of them are in the inboxes of their rooms; a sender repeats anything else, and
//! an event that is there already is counted and not taken again.

use axum::Json;
use axum::extract::{Path, Request, State};
use http::StatusCode;
use key_prefix::{RoomId, RoomKey, UserId};
use room_cell::{MediaFact, MediaIdentity, MediaReport, Millis};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::{OneOfBuilder, RefOr, Required, Schema};

use super::call::{Call, header};
use super::input::{decode, from_value, whole};
use super::{shapes, signature};
use crate::clock::unix_seconds;
use crate::config::{App, Role, Secret};
use crate::error::{ApiError, ErrorCode};
use crate::http::problem::Problem;
use crate::node::Node;
use crate::room::gateway::{self, Reported};

/// Events in one request.
const MOST_EVENTS: usize = 100;
const VENDOR: &str = "generic";

/// Something that happened at a media server.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub(super) struct CallbackEvent {
    /// The sender's own id of it: the second of the same id is not taken.
    #[schema(schema_with = shapes::id)]
    id: String,
    /// `audio_started`, `audio_stopped`, `room_exited`, `participant_joined` or `room_finished`; anything else
    /// is counted and skipped.
    #[serde(rename = "type")]
    _kind: String,
    /// The room.
    #[schema(schema_with = shapes::id)]
    room: String,
    /// About whom; only `room_finished` may go without.
    #[schema(schema_with = some_id, required = false)]
    user: Option<String>,
    /// When it happened, in Unix milliseconds by the sender's clock.
    at: u64,
    /// The participant's incarnation at the media server, where there is one.
    #[schema(schema_with = some_id, required = false)]
    session: Option<String>,
    /// Why, for the log.
    #[schema(schema_with = reason, required = false)]
    #[serde(rename = "reason")]
    _reason: Option<String>,
}

fn some_id() -> utoipa::openapi::Object {
    shapes::or_null(shapes::id())
}

fn reason() -> utoipa::openapi::Object {
    shapes::or_null(shapes::text(0, 256, ""))
}

/// One event, or a list of at most 100.
#[derive(Debug)]
pub(super) struct Callback;

impl utoipa::PartialSchema for Callback {
    fn schema() -> RefOr<Schema> {
        let one = utoipa::openapi::Ref::from_schema_name("CallbackEvent");
        let list = utoipa::openapi::ArrayBuilder::new()
            .items(one.clone())
            .min_items(Some(1))
            .max_items(Some(MOST_EVENTS));
        let doc = format!("One event, or a list of at most {MOST_EVENTS}.");
        Schema::OneOf(OneOfBuilder::new().description(Some(doc)).item(one).item(list).build()).into()
    }
}

impl ToSchema for Callback {}

/// What became of the events.
#[derive(Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Received {
    /// In the inboxes of their rooms now.
    appended: usize,
    /// There before.
    repeated: usize,
    /// Of a kind, or for a room, that is not known here.
    unknown: usize,
}

/// An event that is known, and where it goes.
#[derive(Debug, PartialEq)]
struct Known {
    id: String,
    room: RoomKey,
    report: MediaReport,
}

fn fact(kind: &str) -> Option<MediaFact> {
    Some(match kind {
        "audio_started" => MediaFact::AudioStarted,
        "audio_stopped" => MediaFact::AudioStopped,
        "room_exited" => MediaFact::RoomExited,
        "participant_joined" => MediaFact::ParticipantJoined,
        "room_finished" => MediaFact::RoomFinished,
        _ => return None,
    })
}

/// Reads a proved body: the known events in their order, and how many are of no known kind.
fn parse(app: &App, body: &[u8]) -> Result<(Vec<Known>, usize), ApiError> {
    let (events, is_list) = match decode(body)? {
        Value::Array(events) => (events, true),
        one => (vec![one], false),
    };
    if events.is_empty() || events.len() > MOST_EVENTS {
        return Err(ApiError::bad_request(format!("the list must have 1 to {MOST_EVENTS} events")));
    }
    let mut known = Vec::with_capacity(events.len());
    let mut unknown = 0;
    for (n, event) in events.into_iter().enumerate() {
        let place = if is_list { format!("[{n}]") } else { String::new() };
        match parse_one(app, event, &place)? {
            Some(event) => known.push(event),
            None => unknown += 1,
        }
    }
    Ok((known, unknown))
}

fn parse_one(app: &App, event: Value, place: &str) -> Result<Option<Known>, ApiError> {
    let dot = if place.is_empty() { "" } else { "." };
    let wrong = |field: &str, right: &str| ApiError::bad_request(format!("{place}{dot}{field}: {right}"));
    let Some(kind) = event.get("type").filter(|_| event.is_object()).and_then(Value::as_str) else {
        return Err(wrong("type", "an object with a text here is expected"));
    };
    let Some(what) = fact(kind) else { return Ok(None) };
    let event: CallbackEvent = from_value(event, place)?;
    let id = |field: &str, text: &str| {
        let fits = (1..=128).contains(&text.len()) && !text.contains(char::is_control);
        if fits {
            Ok(())
        } else {
            Err(wrong(field, "1 to 128 bytes without control characters are expected"))
        }
    };
    id("id", &event.id)?;
    id("session", event.session.as_deref().unwrap_or("-"))?;
    let room = RoomId::new(&event.room).map_err(|error| wrong("room", &error.to_string()))?;
    let user = event.user.as_deref().map(UserId::new).transpose();
    let user = user.map_err(|error| wrong("user", &error.to_string()))?;
    if user.is_none() && what != MediaFact::RoomFinished {
        return Err(wrong("user", "missing"));
    }
    let report = MediaReport {
        what,
        who: user.map(|user| MediaIdentity { user: user.shared().into(), peer: None }),
        incarnation: event.session.map(Into::into),
        sequence: None,
        at: Millis(event.at),
        resolution_ms: 0,
    };
    Ok(Some(Known { id: event.id, room: RoomKey::new(app.code.clone(), room), report }))
}

/// The app, and the secret of its generic callbacks.
fn receiver(node: &Node, app: &str) -> Result<(Arc<App>, Secret), Problem> {
    let missing = |message: &'static str| Problem::of_request(StatusCode::NOT_FOUND, message);
    if !node.config.instance.has(Role::Callbacks) {
        return Err(missing("this instance takes no callbacks"));
    }
    let app = node.app(app).ok_or_else(|| missing("the app takes no generic callbacks"))?;
    let secret = app.callbacks.generic.clone();
    let secret = secret.ok_or_else(|| missing("the app takes no generic callbacks"))?;
    Ok((app, secret))
}

async fn receive(
    State(node): State<Arc<Node>>,
    path: Result<Path<String>, axum::extract::rejection::PathRejection>,
    request: Request,
) -> Result<Json<Received>, Problem> {
    let Path(app) = path.map_err(|_| ApiError::bad_request("the path is not UTF-8"))?;
    let (app, secret) = receiver(&node, &app)?;
    let count = |result: &str| node.metrics.rtc_callbacks.with_label_values(&[VENDOR, result]);
    let headers = request.headers().clone();
    let body = whole(request, &node).await.inspect_err(|_| count("malformed").inc())?;
    signature::verify(&headers, &body, &secret, unix_seconds()).map_err(|error| {
        count("refused").inc();
        tracing::warn!(app = %app.code, reason = %error, "a callback is not believed");
        Problem::unauthenticated("Dais-Signature", error.to_string())
    })?;
    let (known, unknown) = parse(&app, &body).inspect_err(|_| count("malformed").inc())?;
    let mut received = Received { unknown, ..Received::default() };
    count("unknown_type").inc_by(u64::try_from(unknown).unwrap_or(u64::MAX));
    for Known { id, room, mut report } in known {
        let now_ms = node.redis_clock.now_ms();
        let (at_ms, resolution_ms) = node.vendor_clocks.heard(&app.code, report.at.0, now_ms);
        (report.at, report.resolution_ms) = (Millis(at_ms), resolution_ms);
        let result =
            gateway::report(&node, &app, &room, &id, report).await.inspect_err(|_| count("failed").inc())?;
        let (counter, label) = match result {
            Reported::Appended => (&mut received.appended, "appended"),
            Reported::Repeated => (&mut received.repeated, "repeated"),
            Reported::NoRoom => (&mut received.unknown, "unknown_room"),
        };
        *counter += 1;
        count(label).inc();
    }
    Ok(Json(received))
}

/// The calls of this module.
pub(super) fn calls() -> Vec<Call> {
    let required = |name: &'static str, says: &str, schema: utoipa::openapi::Object| {
        let mut parameter = header(name, says, schema);
        parameter.required = Required::True;
        parameter
    };
    let timestamp = "When the request was signed, in Unix seconds; at most 300 s off.";
    let signed = "`v1=` and HMAC-SHA256 over `Dais-Timestamp`, a dot and the body, in hexadecimal; several may \
                  stand here, separated by commas, while a secret is changed.";
    vec![
        Call::new(
            HttpMethod::Post,
            "/rtc/generic/{app}",
            "receiveCallback",
            "Takes what a media server of the app's own says happened.",
            receive,
        )
        .tagged("callbacks")
        .unauthorized()
        .notes("200 means that all events are in the inboxes of their rooms: repeat anything else, with the same ids.")
        .parameter(required("Dais-Timestamp", timestamp, shapes::text(1, 20, "^[0-9]{1,20}$")))
        .parameter(required("Dais-Signature", signed, shapes::text(1, 1024, "")))
        .takes::<Callback>(json!([
            { "id": "e-71", "type": "audio_started", "room": "maths-1", "user": "ann", "at": 1_764_468_003_500_u64, "session": "s-9" },
            { "id": "e-72", "type": "room_exited", "room": "maths-1", "user": "bob", "at": 1_764_468_004_000_u64, "reason": "network" },
        ]))
        .including::<CallbackEvent>()
        .answers::<Received>(200, "All events are taken.", json!({ "appended": 2, "repeated": 0, "unknown": 0 }))
        .refuses_as(404, ErrorCode::BadRequest)
        .refuses(&[ErrorCode::LedgerUnavailable, ErrorCode::RateLimited, ErrorCode::LeaseLost]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

    fn app() -> App {
        let overrides = Overrides { dev: true, ..Overrides::default() };
        Config::from_text("dais.toml", "", &overrides, []).unwrap().apps.remove(0)
    }

    fn read(body: &Value) -> Result<(Vec<Known>, usize), String> {
        parse(&app(), body.to_string().as_bytes()).map_err(|error| error.message.into_owned())
    }

    #[test]
    fn one_event_or_a_list_of_them_is_read() {
        let event = json!({ "id": "e", "type": "room_exited", "room": "r", "user": "ann", "at": 5, "session": "s", "more": 1 });
        let (known, unknown) = read(&event).unwrap();
        assert_eq!((known.len(), unknown), (1, 0));
        let Known { id, room, report } = &known[0];
        assert_eq!((id.as_str(), room.app(), room.room()), ("e", "demo", "r"));
        assert_eq!(
            *report,
            MediaReport {
                what: MediaFact::RoomExited,
                who: Some(MediaIdentity { user: "ann".into(), peer: None }),
                incarnation: Some("s".into()),
                sequence: None,
                at: Millis(5),
                resolution_ms: 0,
            }
        );
        let finished = json!({ "id": "f", "type": "room_finished", "room": "r", "at": 6 });
        let (known, unknown) = read(&json!([event, { "type": "weather" }, finished])).unwrap();
        assert_eq!((known.len(), unknown), (2, 1));
        assert_eq!(known[1].report.who, None);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let good = json!({ "id": "e", "type": "audio_started", "room": "r", "user": "ann", "at": 5 });
        let with = |field: &str, value: Value| {
            let mut event = good.clone();
            event[field] = value;
            event
        };
        let without = |field: &str| {
            let mut event = good.clone();
            event.as_object_mut().unwrap().remove(field);
            event
        };
        for (bad, message) in [
            (json!([]), "the list must have 1 to 100 events"),
            (json!(vec![good.clone(); 101]), "the list must have 1 to 100 events"),
            (json!("x"), "type: an object with a text here is expected"),
            (json!([good, 3]), "[1].type: an object with a text here is expected"),
            (without("type"), "type: an object with a text here is expected"),
            (with("type", json!(1)), "type: an object with a text here is expected"),
            (without("id"), "missing field `id`"),
            (with("id", json!("")), "id: 1 to 128 bytes without control characters are expected"),
            (with("session", json!("\n")), "session: 1 to 128 bytes without control characters are expected"),
            (with("room", json!("")), "room: room is empty"),
            (json!([with("room", json!(7))]), "[0].room: invalid type: integer `7`, expected a string"),
            (without("user"), "user: missing"),
            (with("at", json!(-1)), "at: invalid value: integer `-1`, expected u64"),
            (with("at", json!(1.5)), "at: invalid type: floating point `1.5`, expected u64"),
        ] {
            assert_eq!(read(&bad).unwrap_err(), message, "{bad}");
        }
        assert!(parse(&app(), b"{").unwrap_err().message.starts_with("the body: EOF"));
    }
}
