//! What a back end asks about a room: one user in it, its bans, and what happened.

use axum::Json;
use axum::extract::State;
use room_cell::{Cell, Role, Status};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::str::FromStr as _;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;

use super::call::{Call, query};
use super::caller::{InRoom, OfUser};
use super::input::{Query, label, limit};
use super::{rooms, shapes};
use crate::error::{ApiError, ErrorCode};
use crate::http::problem::Problem;
use crate::node::Node;
use crate::room::timeline::{self, Bookmark};

/// Bans, and entries of a timeline, in a page.
const PAGE: usize = 100;
const MOST: usize = 200;

/// A user in a room: what a back end asks before it lets somebody do something there.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct UserInRoom {
    user: String,
    /// The room's status.
    #[schema(value_type = String)]
    status: &'static str,
    /// Whether the user is present.
    present: bool,
    /// The user's role, if it is present or one was given to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = role, required = false)]
    role: Option<Role>,
    /// The user's seat, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    seat: Option<SeatOfUser>,
    /// Whether the user may not come.
    banned: bool,
    /// Until when, in Unix milliseconds; absent where it is for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    banned_until: Option<u64>,
}

fn role() -> utoipa::openapi::Object {
    shapes::word(&["guest", "host"])
}

/// The seat of a user.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SeatOfUser {
    /// Its number.
    seat: u16,
    /// `pending_publish` or `publishing`.
    #[schema(value_type = String)]
    state: &'static str,
    /// The present use of it.
    mic_session: String,
    /// Whether the user should be silent.
    muted: bool,
}

fn guard(cell: &Cell, user: &str, now_ms: u64) -> Result<UserInRoom, ApiError> {
    match cell.status {
        Status::Absent => return Err(ApiError::new(ErrorCode::RoomNotFound, "there is no such room")),
        Status::Closed => return Err(ApiError::new(ErrorCode::RoomClosed, "the room is closed")),
        _ => {}
    }
    let presence = cell.users.get(user);
    let ban = cell.bans.get(user).filter(|ban| ban.holds(room_cell::Millis(now_ms)));
    let seat = cell.seat_of(user).map(|(seat, sitter)| SeatOfUser {
        seat,
        state: match sitter.speaking {
            room_cell::Speaking::PendingPublish { .. } => "pending_publish",
            room_cell::Speaking::Publishing { .. } => "publishing",
        },
        mic_session: sitter.session.to_string(),
        muted: sitter.muted,
    });
    Ok(UserInRoom {
        user: user.to_owned(),
        status: cell.status.word(),
        present: presence.is_some(),
        role: presence.map(room_cell::Presence::role).or_else(|| cell.roles.get(user).copied()),
        seat,
        banned: ban.is_some(),
        banned_until: ban.and_then(|ban| Some(ban.until?.0)),
    })
}

async fn read_user(
    State(node): State<Arc<Node>>,
    OfUser { room: InRoom { room, .. }, user }: OfUser,
) -> Result<Json<UserInRoom>, Problem> {
    let remote = rooms::read(&node, &room).await?;
    Ok(Json(guard(remote.cell(), user.as_str(), node.redis_clock.now_ms())?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BansQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

/// A page of a room's bans, in order of the users' ids.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct BanPage {
    bans: Vec<BanView>,
    /// Where the next page begins; absent: this was the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cursor: Option<String>,
}

/// Somebody who may not come.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Ban)]
struct BanView {
    user: String,
    /// Until when, in Unix milliseconds; absent: for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    until: Option<u64>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// Since when, in Unix milliseconds.
    at: u64,
}

fn bans(cell: &Cell, after: &str, limit: usize, now_ms: u64) -> BanPage {
    let now = room_cell::Millis(now_ms);
    let mut holding = cell.bans.iter().filter(|(user, ban)| user.as_str() > after && ban.holds(now));
    let bans: Vec<BanView> = holding
        .by_ref()
        .take(limit)
        .map(|(user, ban)| BanView {
            user: user.to_string(),
            until: ban.until.map(|until| until.0),
            reason: ban.reason.as_deref().map(str::to_owned),
            at: ban.at.0,
        })
        .collect();
    let cursor = holding.next().and(bans.last()).map(|last| last.user.clone());
    BanPage { bans, cursor }
}

async fn list_bans(
    State(node): State<Arc<Node>>,
    InRoom { room, .. }: InRoom,
    Query(query): Query<BansQuery>,
) -> Result<Json<BanPage>, Problem> {
    let limit = limit(query.limit, PAGE, MOST)?;
    let after = label("cursor", query.cursor)?;
    let remote = rooms::read(&node, &room).await?;
    Ok(Json(bans(remote.cell(), &after, limit, node.redis_clock.now_ms())))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimelineQuery {
    before: Option<String>,
    limit: Option<usize>,
}

/// A page of what happened in a room, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TimelinePage {
    entries: Vec<EntryView>,
    /// `before` of the next, older page; absent: this was the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
}

/// One committed command or change.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TimelineEntry)]
struct EntryView {
    /// Its name, for as long as it is kept.
    id: String,
    /// `cell`, `settings`, `guest`, or `state` of a room that was written anew.
    kind: String,
    /// When, in Unix milliseconds.
    at: u64,
    /// `name/incarnation` of the instance that committed it.
    owner: String,
    /// The fencing token under which it did.
    token: u64,
    /// The version that it made.
    version: u64,
    /// Committed by an owner whose time was over, on data that was lost since: without effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    superseded: bool,
    /// The command's `id`, its `actor`, its name and its `events`, or the patch.
    entry: Value,
}

async fn read_timeline(
    State(node): State<Arc<Node>>,
    InRoom { room, .. }: InRoom,
    Query(query): Query<TimelineQuery>,
) -> Result<Json<TimelinePage>, Problem> {
    let limit = limit(query.limit, PAGE, MOST)?;
    let before = match query.before.as_deref().map(Bookmark::from_str) {
        Some(Err(_)) => return Err(ApiError::bad_request("`before` must be the `next` of a page").into()),
        Some(Ok(before)) => Some(before),
        None => None,
    };
    let found = timeline::page(&node, &room, before.as_ref(), limit).await?;
    if found.entries.is_empty() && before.is_none() {
        rooms::read(&node, &room).await?;
    }
    let entries = found.entries.into_iter().map(|passed| EntryView {
        token: passed.id.token.as_u64(),
        version: passed.id.version,
        id: passed.id.to_string(),
        kind: passed.kind,
        at: passed.at,
        owner: passed.owner,
        superseded: passed.superseded,
        entry: passed.entry,
    });
    Ok(Json(TimelinePage { entries: entries.collect(), next: found.next.map(|next| next.to_string()) }))
}

/// The calls of this module.
pub(super) fn calls() -> Vec<Call> {
    vec![
        Call::new(
            HttpMethod::Get,
            "/v1/apps/{app}/rooms/{room}/users/{user}",
            "readUser",
            "How a user stands in the room: present, role, seat, banned.",
            read_user,
        )
        .notes("For a back end that guards something by who is in a room, or on a seat. A closed room answers `ROOM_CLOSED`.")
        .answers::<UserInRoom>(
            200,
            "The user.",
            json!({
                "user": "ann", "status": "active", "present": true, "role": "host",
                "seat": { "seat": 1, "state": "publishing", "micSession": "0199c6a1-7d7e-7c44-9d7b-2f6f6c9f1b10", "muted": false },
                "banned": false,
            }),
        )
        .refuses(&[ErrorCode::RoomNotFound, ErrorCode::RoomClosed]),
        Call::new(
            HttpMethod::Get,
            "/v1/apps/{app}/rooms/{room}/bans",
            "listBans",
            "Who may not come, a page at a time.",
            list_bans,
        )
        .parameter(query("cursor", "Where the page begins: `cursor` of the page before.", shapes::label()))
        .parameter(query("limit", "Most bans of the page; 100 if left out.", shapes::number(1, 200)))
        .answers::<BanPage>(
            200,
            "A page of bans.",
            json!({ "bans": [{ "user": "bob", "until": 1_764_471_600_000_u64, "reason": "spam", "at": 1_764_468_000_000_u64 }] }),
        )
        .refuses(&[ErrorCode::RoomNotFound]),
        Call::new(
            HttpMethod::Get,
            "/v1/apps/{app}/rooms/{room}/timeline",
            "readTimeline",
            "What happened in the room, newest first: who did what, when, under which owner and token.",
            read_timeline,
        )
        .parameter(query("before", "Where the page begins: `next` of the page before.", shapes::text(3, Bookmark::LONGEST, &Bookmark::pattern())))
        .parameter(query("limit", "Most entries of the page; 100 if left out.", shapes::number(1, 200)))
        .answers::<TimelinePage>(
            200,
            "A page of the timeline.",
            json!({
                "entries": [{
                    "id": "cell-1764468000000-41-5d41402abc4b2a76", "kind": "cell", "at": 1_764_468_000_000_u64, "owner": "a/1764460000000",
                    "token": 1_764_468_000_000_u64, "version": 41,
                    "entry": { "id": "unban-bob-1", "actor": { "kind": "backend" }, "command": "unban", "events": [{ "event": "unbanned", "user": "bob" }] },
                }],
                "next": "cell-1764468000000-41-5d41402abc4b2a76",
            }),
        )
        .refuses(&[ErrorCode::RoomNotFound, ErrorCode::LedgerUnavailable]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use room_cell::{Ban, Millis, Seat, Sitter, Speaking, UserId};

    fn banned(until: Option<u64>) -> Ban {
        Ban { until: until.map(Millis), reason: Some("spam".into()), at: Millis(1) }
    }

    fn open() -> Cell {
        Cell { status: Status::Active, ..Cell::default() }
    }

    #[test]
    fn a_user_who_was_never_there_is_absent() {
        let found = serde_json::to_value(guard(&open(), "ann", 5).unwrap()).unwrap();
        assert_eq!(found, json!({ "user": "ann", "status": "active", "present": false, "banned": false }));
    }

    #[test]
    fn a_seat_a_given_role_and_a_ban_are_told() {
        let mut cell = open();
        let sitter = Sitter {
            user: "ann".into(),
            peer: "p".into(),
            session: "m".into(),
            version: 3,
            started_at: Millis(1),
            speaking: Speaking::PendingPublish { deadline: Millis(9) },
            muted: true,
            heard: None,
            heard_ms: None,
        };
        cell.seats.insert(2, Seat { locked: false, sitter: Some(sitter) });
        cell.roles.insert("ann".into(), Role::Host);
        cell.bans.insert("ann".into(), banned(Some(10)));
        let found = serde_json::to_value(guard(&cell, "ann", 9).unwrap()).unwrap();
        assert_eq!(
            found,
            json!({
                "user": "ann", "status": "active", "present": false, "role": "host", "banned": true, "bannedUntil": 10,
                "seat": { "seat": 2, "state": "pending_publish", "micSession": "m", "muted": true },
            })
        );
        assert!(!guard(&cell, "ann", 10).unwrap().banned, "its time is over");
    }

    #[test]
    fn i_12_a_closed_room_is_told_as_closed_and_an_absent_one_as_missing() {
        let closed = Cell { status: Status::Closed, ..Cell::default() };
        assert_eq!(guard(&closed, "ann", 0).unwrap_err().code, ErrorCode::RoomClosed);
        assert_eq!(guard(&Cell::default(), "ann", 0).unwrap_err().code, ErrorCode::RoomNotFound);
    }

    #[test]
    fn bans_are_paged_and_those_that_ended_left_out() {
        let mut cell = open();
        for (user, until) in [("a", None), ("b", Some(5)), ("c", Some(50)), ("d", None)] {
            cell.bans.insert(UserId::from(user), banned(until));
        }
        let users = |page: &BanPage| page.bans.iter().map(|ban| ban.user.clone()).collect::<Vec<_>>();
        let first = bans(&cell, "", 2, 10);
        assert_eq!(
            (users(&first), first.cursor.as_deref()),
            (vec!["a".to_owned(), "c".to_owned()], Some("c"))
        );
        let last = bans(&cell, "c", 2, 10);
        assert_eq!((users(&last), last.cursor), (vec!["d".to_owned()], None));
    }
}
