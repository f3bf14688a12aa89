//! Requests that command a room: from a checked body to a validated order for whoever owns the room.

use key_prefix::{RoomId, RoomKey, UserId};
use room_cell::{Actor, Command, Role};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};
use socketioxide::socket::Sid;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::dispatch::{Answer, Asking, raw};
use super::inbound::Request;
use super::requests::body;
use crate::auth::{Identity, TokenRole};
use crate::config::Limits;
use crate::error::{ApiError, ErrorCode};
use crate::room::gateway::{self, Done, Idempotency};

/// Who may ask for a command, and from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Members, where the room runs.
    Member,
    /// Members where the room runs, hosts from anywhere.
    MemberOrHost,
    /// Hosts, from anywhere.
    Host,
}

/// Body of a request that commands a room.
pub(super) trait Commanding: DeserializeOwned {
    /// Who may ask, and from where.
    const REACH: Reach;

    /// What it asks for.
    fn wanted(self, asks: &Asks<'_>) -> Result<Wanted, ApiError>;
}

/// What a body is read with.
#[derive(Debug)]
pub(super) struct Asks<'a> {
    /// Who asks.
    pub me: &'a UserId,
    /// A name for what begins with the command: a mic session, a call.
    pub fresh: &'a Arc<str>,
    pub limits: &'a Limits,
}

impl Asks<'_> {
    /// The user that a body names, unless it is the one who asks.
    pub(super) fn somebody_else(&self, user: Option<UserId>) -> Option<room_cell::UserId> {
        user.filter(|user| user != self.me).map(|user| user.shared().into())
    }
}

/// What a body asks for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub room: RoomId,
    pub id: Option<Arc<str>>,
    pub command: Command,
}

/// Answers a request that commands a room.
pub(super) async fn command<B: Commanding>(asking: &Asking, request: &mut Request) -> Answer {
    let body: B = body(request)?;
    let order = order(asking, request, body)?;
    acked(execute(asking, order).await?)
}

/// The order that a request with this body is.
pub(super) fn order<B: Commanding>(
    asking: &Asking,
    request: &Request,
    body: B,
) -> Result<gateway::Request, ApiError> {
    let identity = asking.connection().identity();
    let limits = &asking.node.config.limits;
    let fresh = uuid::Uuid::now_v7().to_string().into();
    let wanted = body.wanted(&Asks { me: &identity.user, fresh: &fresh, limits })?;
    let room = asking.room_to_change(&wanted.room)?;
    let digest = wanted.id.is_some().then(|| match &request.body {
        socketioxide_core::Value::Str(packet, _) => digest(&request.event, packet),
        socketioxide_core::Value::Bytes(packet) => blake3::hash(packet).to_hex().as_str().into(),
    });
    let mut order = ordered(&identity, &request.event, B::REACH, room, wanted.command, limits)?;
    order.idempotency = wanted.id.zip(digest).map(|(id, digest)| Idempotency {
        caller: format!("user:{}", identity.user).into(),
        id,
        digest,
    });
    order.connection = Some(asking.client.sid());
    Ok(order)
}

/// Has an order executed by whoever owns its room.
pub(super) async fn execute(asking: &Asking, order: gateway::Request) -> Result<Done, ApiError> {
    gateway::execute(&asking.node, &asking.app, order).await
}

/// What the cell is told of who asks.
pub(super) fn actor(identity: &Identity) -> Result<Actor, ApiError> {
    let max_role = match identity.role_max {
        TokenRole::Host => Role::Host,
        TokenRole::Guest => Role::Guest,
        TokenRole::Monitor => {
            return Err(ApiError::new(ErrorCode::Forbidden, "monitors change nothing"));
        }
    };
    Ok(Actor::User { user: identity.user.shared().into(), max_role, peer: None })
}

/// Checks a command against who asks and against the limits.
fn ordered(
    identity: &Identity,
    event: &str,
    reach: Reach,
    room: RoomKey,
    command: Command,
    limits: &Limits,
) -> Result<gateway::Request, ApiError> {
    let actor = actor(identity)?;
    let is_host = identity.role_max == TokenRole::Host;
    if reach == Reach::Host && !is_host {
        return Err(ApiError::new(ErrorCode::Forbidden, format!("{event}: only a host may do this")));
    }
    let bounds = room_cell::Limits { attributes_bytes: limits.attributes_bytes, ..Default::default() };
    let order = command
        .validate(actor, &bounds)
        .map_err(|invalid| ApiError::bad_request(format!("{event}: {invalid}")))?;
    let only_here = match reach {
        Reach::Member => true,
        Reach::MemberOrHost => !is_host,
        Reach::Host => false,
    };
    Ok(gateway::Request { room, order, idempotency: None, connection: None, only_here })
}

/// An order of a connection that nobody asked for by a request.
pub(super) fn own_order(
    identity: &Identity,
    sid: Sid,
    room: RoomKey,
    command: Command,
    limits: &Limits,
) -> Result<gateway::Request, ApiError> {
    let order = ordered(identity, "auth:refresh", Reach::Member, room, command, limits)?;
    Ok(gateway::Request { connection: Some(sid), ..order })
}

/// The ack of what was done.
pub(super) fn acked(done: Done) -> Answer {
    let mut body = done.result;
    body.insert("ok".to_owned(), true.into());
    body.insert("version".to_owned(), serde_json::json!({ "cell": done.cell }));
    raw(Value::Object(body).to_string())
}

/// Digest of a request without its id: the same for the same request, however its body is written.
fn digest(event: &str, packet: &str) -> Arc<str> {
    let (_, mut body) =
        serde_json::from_str::<(IgnoredAny, Map<String, Value>)>(packet).unwrap_or((IgnoredAny, Map::new()));
    body.remove("id");
    let mut hasher = blake3::Hasher::new();
    hasher.update(event.as_bytes());
    hasher.update(&[0]);
    hasher.update(canonical(&Value::Object(body)).as_bytes());
    hasher.finalize().to_hex().as_str().into()
}

/// JSON without white space, the names of each object in byte order.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            let fields: Vec<String> = sorted
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests;
