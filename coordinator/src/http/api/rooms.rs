//! Rooms themselves: making, reading, listing, and changing what any instance may change.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use key_prefix::RoomKey;
use redis_scripts::SettingsVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;

use super::bodies::OpenRoom;
use super::call::{Call, idempotency_key, if_match, query};
use super::caller::{InApp, InRoom, OfUser};
use super::input::{Body, IdempotencyKey, IfMatch, Query, label, limit};
use super::shapes::{
    self, GuestPatch as GuestPatchShape, OpenedRoom, OpeningSettings, SettingsPatch as SettingsPatchShape,
    Snapshot,
};
use crate::classroom::guest::GuestPatch;
use crate::classroom::settings::SettingsPatch;
use crate::error::{ApiError, ErrorCode};
use crate::http::problem::Problem;
use crate::node::Node;
use crate::room::gateway::{self, Opened, Opening};
use crate::room::snapshot::Remote;
use crate::room::work::{GuestChange, SettingsChange};
use crate::store::index::{PageRequest, page};

/// Rooms in a page.
const PAGE: usize = 100;
const STATUSES: [&str; 4] = ["creating", "active", "closing", "closed"];
const PATCH_TYPES: &[&str] = &["application/merge-patch+json", "application/json"];

/// The room as Redis has it.
pub(super) async fn read(node: &Arc<Node>, room: &RoomKey) -> Result<Remote, ApiError> {
    let missing = || ApiError::new(ErrorCode::RoomNotFound, "there is no such room");
    gateway::read(node, room).await?.ok_or_else(missing)
}

fn snapshot_of(remote: &Remote, room: &RoomKey) -> Result<Map<String, Value>, ApiError> {
    match serde_json::to_value(remote.snapshot(room.app(), room.room())) {
        Ok(Value::Object(snapshot)) => Ok(snapshot),
        other => {
            tracing::error!(%room, ?other, "a snapshot cannot be encoded");
            Err(ApiError::new(ErrorCode::Internal, "the answer cannot be encoded"))
        }
    }
}

/// The settings version as an entity tag.
fn tag(sv: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(&format!("\"{sv}\"")) {
        headers.insert(header::ETAG, value);
    }
    headers
}

fn tag_of(snapshot: &Map<String, Value>) -> HeaderMap {
    let sv = snapshot.get("version").and_then(|version| version.get("settings")?.as_u64());
    sv.map(tag).unwrap_or_default()
}

async fn open_room(
    State(node): State<Arc<Node>>,
    InRoom { app, room, .. }: InRoom,
    _: IdempotencyKey,
    Body { value: body, .. }: Body<OpenRoom>,
) -> Result<Response, Problem> {
    if let Some(fault) = body.fault() {
        return Err(ApiError::bad_request(fault).into());
    }
    let settings = body.settings.filter(|settings| !settings.is_empty());
    let depth = node.config.limits.json_depth;
    let opening = Opening {
        settings: settings.map(|settings| SettingsPatch::validate(settings, depth)).transpose()?,
        seats: body.seats,
        capacity: body.capacity,
        auto_close: body.auto_close,
    };
    let opened = gateway::open(&node, &app, &room, opening).await?;
    let mut snapshot = snapshot_of(&read(&node, &room).await?, &room)?;
    let (status, word) = match opened {
        Opened::Made => (StatusCode::CREATED, "made"),
        Opened::Reopened => (StatusCode::OK, "reopened"),
        Opened::Found => (StatusCode::OK, "found"),
    };
    snapshot.insert("opened".to_owned(), word.into());
    Ok((status, tag_of(&snapshot), Json(snapshot)).into_response())
}

async fn read_room(State(node): State<Arc<Node>>, InRoom { room, .. }: InRoom) -> Result<Response, Problem> {
    let snapshot = snapshot_of(&read(&node, &room).await?, &room)?;
    Ok((tag_of(&snapshot), Json(snapshot)).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    cursor: Option<String>,
    limit: Option<usize>,
    prefix: Option<String>,
    status: Option<String>,
}

/// A page of an app's rooms, in byte order of their ids.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RoomPage {
    #[schema(value_type = Vec<ListedRoomShape>)]
    rooms: Vec<crate::store::index::ListedRoom>,
    /// Where the next page begins; absent: this was the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cursor: Option<String>,
}

/// A room of a list.
#[derive(Debug, ToSchema)]
#[schema(as = ListedRoom, rename_all = "camelCase")]
#[expect(dead_code, reason = "the schema of what the index itself writes")]
struct ListedRoomShape {
    id: String,
    status: String,
    peer_count: u64,
    version: shapes::Version,
}

async fn list_rooms(
    State(node): State<Arc<Node>>,
    InApp { app, .. }: InApp,
    Query(query): Query<ListQuery>,
) -> Result<Json<RoomPage>, Problem> {
    let limit = limit(query.limit, PAGE, PAGE)?;
    let (cursor, prefix) = (label("cursor", query.cursor)?, label("prefix", query.prefix)?);
    if query.status.as_deref().is_some_and(|status| !STATUSES.contains(&status)) {
        let right = STATUSES.join(", ");
        return Err(ApiError::bad_request(format!("`status` must be one of {right}")).into());
    }
    let want = PageRequest { after: &cursor, prefix: &prefix, limit };
    let found = page(&node.store.scripts, &node.store.keys, &app.code, want).await;
    let mut found = found.map_err(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "rooms cannot be listed");
        ApiError::store_unavailable()
    })?;
    if let Some(status) = query.status {
        found.rooms.retain(|room| room.status == status);
    }
    Ok(Json(RoomPage { rooms: found.rooms, cursor: found.cursor }))
}

/// What a change made.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Updated {
    version: SettingsVersionView,
}

/// Where the settings stand.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChangedVersion)]
struct SettingsVersionView {
    /// The settings version after the change.
    settings: u64,
}

fn updated(sv: SettingsVersion) -> (HeaderMap, Json<Updated>) {
    let settings = sv.as_u64();
    (tag(settings), Json(Updated { version: SettingsVersionView { settings } }))
}

/// A version that `If-Match` named and that is no longer the present one is a failed precondition.
fn precondition(error: ApiError) -> Problem {
    let failed = error.code == ErrorCode::VersionConflict;
    let problem = Problem::from(error);
    if failed { problem.under(StatusCode::PRECONDITION_FAILED) } else { problem }
}

async fn patch_settings(
    State(node): State<Arc<Node>>,
    InRoom { room, .. }: InRoom,
    IfMatch(if_version): IfMatch,
    _: IdempotencyKey,
    Body { value: patch, .. }: Body<Map<String, Value>>,
) -> Result<impl IntoResponse, Problem> {
    let limits = &node.config.limits;
    let change = SettingsChange {
        patch: SettingsPatch::validate(patch, limits.json_depth)?,
        if_version,
        max_bytes: limits.custom_bytes,
        by: None,
    };
    gateway::update_settings(&node, &room, change).await.map(updated).map_err(precondition)
}

async fn patch_guest(
    State(node): State<Arc<Node>>,
    OfUser { room: InRoom { room, .. }, user }: OfUser,
    IfMatch(if_version): IfMatch,
    _: IdempotencyKey,
    Body { value: patch, .. }: Body<Map<String, Value>>,
) -> Result<impl IntoResponse, Problem> {
    let limits = &node.config.limits;
    let change = GuestChange {
        user: user.shared(),
        patch: GuestPatch::validate(patch, true, limits.json_depth)?,
        if_version,
        must_be_present: false,
        max_bytes: limits.guest_custom_bytes,
        max_guests: limits.guests_per_room,
        by: None,
    };
    gateway::update_guest(&node, &room, change).await.map(updated).map_err(precondition)
}

fn example() -> Map<String, Value> {
    let room = json!({
        "app": "school", "id": "maths-1", "status": "active", "creator": "ann", "hosts": ["ann"], "locked": false,
        "owner": { "instance": "a", "token": 1_764_468_000_000_u64 },
        "version": { "settings": 7, "cell": 41 },
        "settings": shapes::default_settings(),
        "guests": { "bob": { "handRaised": true } },
        "seats": [
            { "seat": 1, "state": "publishing", "user": "ann", "micSession": "0199c6a1-7d7e-7c44-9d7b-2f6f6c9f1b10", "muted": false },
            { "seat": 2, "state": "idle" },
        ],
        "requests": { "bob": { "at": 1_764_468_012_500_u64 } },
        "invites": {},
        "peers": [
            { "user": "ann", "name": "Ann", "role": "host", "devices": 1, "joinedAt": 1_764_468_003_120_u64 },
            { "user": "bob", "role": "guest", "devices": 1, "joinedAt": 1_764_468_011_840_u64 },
        ],
        "peerCount": 2,
    });
    match room {
        Value::Object(room) => room,
        _ => Map::new(),
    }
}

const NATURALLY_REPEATABLE: &str = "Taken for uniformity: the call can be repeated as it is.";

/// The calls of this module.
pub(super) fn calls() -> Vec<Call> {
    let opened = |word: &str| {
        let mut room = example();
        room.insert("opened".to_owned(), word.into());
        Value::Object(room)
    };
    vec![
        Call::new(
            HttpMethod::Put,
            "/v1/apps/{app}/rooms/{room}",
            "openRoom",
            "Makes a room, opens a closed one again, or finds it.",
            open_room,
        )
        .notes("A room that is there and open stays as it is. One that is opened again keeps its settings, versions and bans; `settings` are for one that is made.")
        .parameter(idempotency_key(NATURALLY_REPEATABLE))
        .takes::<OpenRoom>(json!({ "settings": { "noiseReduction": "near_field" }, "seats": 2, "capacity": 50 }))
        .including::<OpeningSettings>()
        .answers::<OpenedRoom>(201, "The room was made.", opened("made"))
        .answers::<OpenedRoom>(200, "The room was there, or is open again.", opened("found"))
        .with_etag()
        .refuses(&[
            ErrorCode::RoomNotFound,
            ErrorCode::RoomClosed,
            ErrorCode::RateLimited,
            ErrorCode::LeaseLost,
            ErrorCode::Draining,
            ErrorCode::LedgerUnavailable,
            ErrorCode::MediaUnavailable,
            ErrorCode::Timeout,
        ]),
        Call::new(
            HttpMethod::Get,
            "/v1/apps/{app}/rooms/{room}",
            "readRoom",
            "The room as it stands.",
            read_room,
        )
        .answers::<Snapshot>(200, "The room.", Value::Object(example()))
        .with_etag()
        .refuses(&[ErrorCode::RoomNotFound]),
        Call::new(
            HttpMethod::Get,
            "/v1/apps/{app}/rooms",
            "listRooms",
            "The app's rooms, a page at a time.",
            list_rooms,
        )
        .notes("Where `status` is given a page may have fewer rooms than `limit`, even none, and still not be the last.")
        .parameter(query("cursor", "Where the page begins: `cursor` of the page before.", shapes::label()))
        .parameter(query("limit", "Most rooms of the page.", shapes::number(1, 100)))
        .parameter(query("prefix", "Only rooms whose ids begin so.", shapes::label()))
        .parameter(query("status", "Only rooms of this status.", shapes::word(&STATUSES)))
        .answers::<RoomPage>(
            200,
            "A page of rooms.",
            json!({
                "rooms": [{ "id": "maths-1", "status": "active", "peerCount": 2, "version": { "settings": 7, "cell": 41 } }],
                "cursor": "maths-1",
            }),
        ),
        Call::new(
            HttpMethod::Patch,
            "/v1/apps/{app}/rooms/{room}/settings",
            "changeSettings",
            "Changes the room's settings by a merge patch (RFC 7396).",
            patch_settings,
        )
        .parameter(if_match())
        .parameter(idempotency_key(NATURALLY_REPEATABLE))
        .takes::<SettingsPatchShape>(json!({ "vad": { "threshold": 0.6 }, "noiseReduction": null }))
        .in_types(PATCH_TYPES)
        .answers::<Updated>(200, "It was changed.", json!({ "version": { "settings": 8 } }))
        .with_etag()
        .refuses(&CHANGING)
        .refuses_as(412, ErrorCode::VersionConflict),
        Call::new(
            HttpMethod::Patch,
            "/v1/apps/{app}/rooms/{room}/guests/{user}",
            "changeGuest",
            "Changes a guest's state by a merge patch (RFC 7396).",
            patch_guest,
        )
        .notes("The user need not be present.")
        .parameter(if_match())
        .parameter(idempotency_key(NATURALLY_REPEATABLE))
        .takes::<GuestPatchShape>(json!({ "micAllowed": false, "custom": { "group": "blue" } }))
        .in_types(PATCH_TYPES)
        .answers::<Updated>(200, "It was changed.", json!({ "version": { "settings": 9 } }))
        .with_etag()
        .refuses(&CHANGING)
        .refuses_as(412, ErrorCode::VersionConflict),
    ]
}

/// What a change of settings or a guest's state may be refused with.
const CHANGING: [ErrorCode; 6] = [
    ErrorCode::RoomNotFound,
    ErrorCode::RoomClosed,
    ErrorCode::RateLimited,
    ErrorCode::LeaseLost,
    ErrorCode::LedgerUnavailable,
    ErrorCode::Timeout,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_precondition_changes_its_status() {
        let conflict = precondition(ApiError::new(ErrorCode::VersionConflict, "it is 8"));
        assert_eq!((conflict.status().as_u16(), conflict.error().code), (412, ErrorCode::VersionConflict));
        let closed = precondition(ApiError::new(ErrorCode::RoomClosed, "closed"));
        assert_eq!(closed.status().as_u16(), 410);
    }

    #[test]
    fn the_entity_tag_is_the_settings_version() {
        assert_eq!(tag_of(&example())[header::ETAG], "\"7\"");
        assert!(tag_of(&Map::new()).is_empty());
    }
}
