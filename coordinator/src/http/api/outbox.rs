//! What a back end sees of its outgoing events, and what it does about dead letters.

use axum::Json;
use axum::extract::{FromRequestParts, RawPathParams, State};
use http::StatusCode;
use http::request::Parts;
use ledger::LedgerError;
use ledger::outbox::{Listed, Operated, State as EventState};
use redis_scripts::RedisMillis;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;

use super::call::{Call, query};
use super::caller::InApp;
use super::input::{Query, limit};
use super::shapes;
use crate::config::App;
use crate::error::{ApiError, ErrorCode};
use crate::http::problem::Problem;
use crate::node::Node;

const PAGE: usize = 100;
const MOST: usize = 200;
const STATES: [EventState; 4] =
    [EventState::Open, EventState::Delivered, EventState::Failed, EventState::Dropped];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutboxQuery {
    state: Option<String>,
    before: Option<u64>,
    limit: Option<usize>,
}

/// A page of outgoing events, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OutboxPage {
    events: Vec<EventView>,
    /// `before` of the next, older page; absent: this was the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<u64>,
}

/// An event on its way to one sink.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OutboxEvent)]
struct EventView {
    /// Its number at this sink.
    number: u64,
    /// The event's id.
    id: String,
    /// The sink's name.
    sink: String,
    /// What happened.
    r#type: String,
    /// When, in Unix milliseconds.
    at: u64,
    /// `open`, `delivered`, `failed` or `dropped`.
    #[schema(value_type = String)]
    state: &'static str,
    /// Tries so far.
    attempts: u64,
    /// What went wrong, last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_error: Option<String>,
    /// Whether it was opened again after later ones were delivered.
    out_of_order: bool,
    /// All of it.
    payload: Value,
}

impl EventView {
    fn of(app: &App, listed: Listed) -> Self {
        let prefix = format!("{}:", app.code);
        Self {
            number: listed.seq,
            id: listed.id,
            sink: listed.sink.strip_prefix(&prefix).unwrap_or(&listed.sink).to_owned(),
            r#type: listed.kind,
            at: listed.at.as_u64(),
            state: listed.state.as_str(),
            attempts: listed.attempts,
            last_error: listed.last_error,
            out_of_order: listed.out_of_order,
            payload: serde_json::from_str(&listed.payload).unwrap_or_default(),
        }
    }
}

/// What became of an event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventChanged {
    /// What it is now.
    #[schema(value_type = String)]
    state: &'static str,
}

/// An app's event, by its number.
#[derive(Debug)]
struct OfEvent {
    app: Arc<App>,
    number: u64,
}

impl FromRequestParts<Arc<Node>> for OfEvent {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, Problem> {
        let InApp { app, .. } = InApp::from_request_parts(parts, node).await?;
        let no_text = |_| ApiError::bad_request("the path is not UTF-8");
        let params = RawPathParams::from_request_parts(parts, &()).await.map_err(no_text)?;
        let event = params.iter().find(|(name, _)| *name == "event").map(|(_, text)| text);
        let number = event.and_then(|text| text.parse().ok()).filter(|number| i64::try_from(*number).is_ok());
        let wrong = || ApiError::bad_request("path: an event is named by its number");
        Ok(Self { app, number: number.ok_or_else(wrong)? })
    }
}

async fn asked<T>(
    node: &Node,
    question: impl Future<Output = Result<T, LedgerError>>,
) -> Result<T, ApiError> {
    let answer = node.books.ask(question).await;
    answer.ok_or_else(|| ApiError::new(ErrorCode::LedgerUnavailable, "the ledger is out of reach"))
}

async fn list_events(
    State(node): State<Arc<Node>>,
    InApp { app, .. }: InApp,
    Query(query): Query<OutboxQuery>,
) -> Result<Json<OutboxPage>, Problem> {
    let limit = limit(query.limit, PAGE, MOST)?;
    let word = query.state.as_deref().unwrap_or(EventState::Failed.as_str());
    let state = STATES.into_iter().find(|state| state.as_str() == word);
    let wrong = || ApiError::bad_request("`state` must be open, delivered, failed or dropped");
    let state = state.ok_or_else(wrong)?;
    if query.before.is_some_and(|before| i64::try_from(before).is_err()) {
        return Err(ApiError::bad_request("`before` must be the `next` of a page").into());
    }
    let listed = node.books.ledger.outbox_list(app.code.as_str(), state, query.before, limit);
    let listed = asked(&node, listed).await?;
    let next = listed.last().filter(|_| listed.len() == limit).map(|last| last.seq);
    let events = listed.into_iter().map(|listed| EventView::of(&app, listed)).collect();
    Ok(Json(OutboxPage { events, next }))
}

fn changed(operated: Operated, to: EventState) -> Result<Json<EventChanged>, Problem> {
    match operated {
        Operated::Done => Ok(Json(EventChanged { state: to.as_str() })),
        Operated::Missing => Err(Problem::of_request(StatusCode::NOT_FOUND, "there is no such event")),
        Operated::Stands(state) => {
            let message = format!("the event is {}: only a failed one can be changed", state.as_str());
            Err(ApiError::new(ErrorCode::VersionConflict, message).into())
        }
    }
}

async fn retry_event(
    State(node): State<Arc<Node>>,
    OfEvent { app, number }: OfEvent,
) -> Result<Json<EventChanged>, Problem> {
    let now = RedisMillis::new(node.redis_clock.now_ms());
    let operated = asked(&node, node.books.ledger.outbox_retry(app.code.as_str(), number, now)).await?;
    node.bell.ring();
    changed(operated, EventState::Open)
}

async fn drop_event(
    State(node): State<Arc<Node>>,
    OfEvent { app, number }: OfEvent,
) -> Result<Json<EventChanged>, Problem> {
    let now = RedisMillis::new(node.redis_clock.now_ms());
    let operated = asked(&node, node.books.ledger.outbox_drop(app.code.as_str(), number, now)).await?;
    changed(operated, EventState::Dropped)
}

/// The calls of this module.
pub(super) fn calls() -> Vec<Call> {
    let refusals = [ErrorCode::LedgerUnavailable];
    vec![
        Call::new(
            HttpMethod::Get,
            "/v1/apps/{app}/outbox",
            "listEvents",
            "Outgoing events of the app in one state, newest first: its dead letters, if nothing is said.",
            list_events,
        )
        .tagged("events")
        .parameter(query("state", "Which; `failed` if left out.", shapes::word(&["open", "delivered", "failed", "dropped"])))
        .parameter(query("before", "Where the page begins: `next` of the page before.", shapes::number(0, i64::MAX.unsigned_abs())))
        .parameter(query("limit", "Most events of the page; 100 if left out.", shapes::number(1, 200)))
        .answers::<OutboxPage>(
            200,
            "A page of events.",
            json!({
                "events": [{
                    "number": 41, "id": "4c490fbe0e37c7f8053cf0ee43ba267c", "sink": "back-end", "type": "room.closed",
                    "at": 1_764_468_000_000_u64, "state": "failed", "attempts": 152, "lastError": "500 Internal Server Error",
                    "outOfOrder": false,
                    "payload": { "id": "4c490fbe0e37c7f8053cf0ee43ba267c", "type": "room.closed",
                        "timestamp": "2025-11-30T02:00:00.000Z", "data": { "app": "school", "room": "maths-1" } },
                }],
                "next": 41,
            }),
        )
        .refuses(&refusals),
        Call::new(
            HttpMethod::Post,
            "/v1/apps/{app}/outbox/{event}/retry",
            "retryEvent",
            "Sends a dead letter again; it says of itself that it is out of order.",
            retry_event,
        )
        .tagged("events")
        .answers::<EventChanged>(200, "It is open again.", json!({ "state": "open" }))
        .refuses(&refusals)
        .refuses(&[ErrorCode::VersionConflict])
        .refuses_as(404, ErrorCode::BadRequest),
        Call::new(
            HttpMethod::Post,
            "/v1/apps/{app}/outbox/{event}/drop",
            "dropEvent",
            "Puts a dead letter away for good.",
            drop_event,
        )
        .tagged("events")
        .answers::<EventChanged>(200, "It is dropped.", json!({ "state": "dropped" }))
        .refuses(&refusals)
        .refuses(&[ErrorCode::VersionConflict])
        .refuses_as(404, ErrorCode::BadRequest),
    ]
}
