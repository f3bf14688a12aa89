//! `POST …/commands/{name}`: what a back end asks a room's owner to do, wherever that is.

use axum::Json;
use axum::extract::State;
use room_cell::{Actor, Limits, MicSession};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;

use super::bodies::{
    Close, Kick, LockDoor, LockSeat, MicDown, MicInvite, MicMove, MicMute, MicMuteAll, MicRespond, MicUp,
    Order, SetRole, SetSeats, Unban,
};
use super::call::{Call, idempotency_key};
use super::caller::InRoom;
use super::input::{Body, IdempotencyKey};
use crate::error::{ApiError, ErrorCode};
use crate::http::problem::Problem;
use crate::node::Node;
use crate::room::gateway::{self, Done, Idempotency, Request};

/// What a command did.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Executed {
    version: CellVersion,
    /// What else there is to say: `seat`, where somebody took one.
    #[serde(flatten)]
    result: Map<String, Value>,
}

/// Where the cell stands.
#[derive(Debug, Serialize, ToSchema)]
struct CellVersion {
    /// The cell's version after the command.
    cell: u64,
}

async fn order<B: Order>(
    State(node): State<Arc<Node>>,
    InRoom { app, caller, room }: InRoom,
    IdempotencyKey(key): IdempotencyKey,
    Body { value, digest }: Body<B>,
) -> Result<Json<Executed>, Problem> {
    let session = MicSession::from(uuid::Uuid::now_v7().to_string().as_str());
    let wrong = |error: room_cell::Invalid| ApiError::bad_request(error.to_string());
    let order = value.command(session).validate(Actor::Backend, &Limits::default()).map_err(wrong)?;
    let idempotency = key.map(|id| Idempotency { caller: caller.name, id, digest });
    let request = Request { room, order, idempotency, connection: None, only_here: false };
    let Done { cell, result } = gateway::execute(&node, &app, request).await?;
    Ok(Json(Executed { version: CellVersion { cell }, result }))
}

/// What any command may be refused with.
const COMMON: [ErrorCode; 8] = [
    ErrorCode::RoomNotFound,
    ErrorCode::RoomClosed,
    ErrorCode::RateLimited,
    ErrorCode::LeaseLost,
    ErrorCode::Draining,
    ErrorCode::LedgerUnavailable,
    ErrorCode::MediaUnavailable,
    ErrorCode::Timeout,
];

macro_rules! command {
    ($name:literal, $body:ty, $id:literal, $does:literal, $example:tt, $result:tt, $codes:expr) => {
        Call::new(
            HttpMethod::Post,
            concat!("/v1/apps/{app}/rooms/{room}/commands/", $name),
            $id,
            $does,
            order::<$body>,
        )
        .tagged("commands")
        .parameter(idempotency_key(
            "Repeats of the command with the same key and body within a day get its first answer.",
        ))
        .takes::<$body>(json!($example))
        .answers::<Executed>(200, "It was done.", json!($result))
        .refuses(&COMMON)
        .refuses($codes)
    };
}

/// Every command.
pub(super) fn calls() -> Vec<Call> {
    use ErrorCode::{NoFreeSeat, NotInRoom, NotOnSeat, SeatLocked, SeatTaken, StaleSession, VersionConflict};
    vec![
        command!("close", Close, "closeRoom", "Ends the room.",
            { "reason": "the lesson is over" }, { "version": { "cell": 42 } }, &[]),
        command!("kick", Kick, "kick", "Puts somebody out of the room and keeps them out.",
            { "user": "bob", "reason": "spam", "banSeconds": 3600 }, { "version": { "cell": 43 } }, &[]),
        command!("unban", Unban, "unban", "Lets somebody come again.",
            { "user": "bob" }, { "version": { "cell": 44 } }, &[VersionConflict]),
        command!("role", SetRole, "setRole", "Gives somebody a role, which outlasts their presence.",
            { "user": "ann", "role": "host" }, { "version": { "cell": 45 } }, &[NotInRoom]),
        command!("lock", LockDoor, "lockRoom", "Locks the room's door against guests, or opens it.",
            { "locked": true }, { "version": { "cell": 46 } }, &[]),
        command!("mic-up", MicUp, "micUp", "Gives somebody a seat.",
            { "user": "ann", "seat": 2 },
            { "version": { "cell": 47 }, "seat": { "seat": 2, "state": "pending_publish", "user": "ann",
                "micSession": "0199c6a1-7d7e-7c44-9d7b-2f6f6c9f1b11", "muted": false, "deadline": 1_764_468_015_000_u64 } },
            &[NotInRoom, SeatTaken, SeatLocked, NoFreeSeat]),
        command!("mic-down", MicDown, "micDown", "Takes somebody off a seat.",
            { "user": "ann" }, { "version": { "cell": 48 } }, &[NotInRoom, NotOnSeat, StaleSession]),
        command!("mic-move", MicMove, "micMove", "Moves somebody to another seat within their mic session.",
            { "user": "ann", "seat": 3 }, { "version": { "cell": 49 }, "seat": { "seat": 3, "state": "publishing", "user": "ann",
                "micSession": "0199c6a1-7d7e-7c44-9d7b-2f6f6c9f1b11", "muted": false } },
            &[NotInRoom, NotOnSeat, SeatTaken, SeatLocked]),
        command!("mic-lock", LockSeat, "lockSeat", "Locks a seat, or unlocks it.",
            { "seat": 4, "locked": true, "force": true }, { "version": { "cell": 50 } }, &[SeatTaken]),
        command!("mic-mute", MicMute, "micMute", "Silences somebody on a seat, or lets them be heard.",
            { "user": "ann", "muted": true }, { "version": { "cell": 51 } }, &[NotInRoom, NotOnSeat]),
        command!("mic-mute-all", MicMuteAll, "micMuteAll", "Silences every seat, or lets all be heard.",
            { "muted": true, "except": ["ann"] }, { "version": { "cell": 52 } }, &[]),
        command!("mic-seats", SetSeats, "setSeats", "Sets how many seats there are.",
            { "count": 12 }, { "version": { "cell": 53 } }, &[]),
        command!("mic-invite", MicInvite, "micInvite", "Asks somebody to take a seat.",
            { "user": "ann", "seat": 1 }, { "version": { "cell": 54 } },
            &[NotInRoom, SeatTaken, SeatLocked, NoFreeSeat]),
        command!("mic-respond", MicRespond, "micRespond", "Answers somebody who asked for a seat.",
            { "user": "ann", "accept": true },
            { "version": { "cell": 55 }, "seat": { "seat": 1, "state": "pending_publish", "user": "ann",
                "micSession": "0199c6a1-7d7e-7c44-9d7b-2f6f6c9f1b12", "muted": false, "deadline": 1_764_468_015_000_u64 } },
            &[NotInRoom, VersionConflict, SeatTaken, SeatLocked, NoFreeSeat]),
    ]
}
