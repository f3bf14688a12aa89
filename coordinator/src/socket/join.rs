//! `room:join` and `room:leave`.

use std::time::Duration;

use super::dispatch::{Answer, Asking, raw};
use super::inbound::Request;
use super::requests::{Join, Leave, WantedRole, body, check_attributes};
use super::{commands, watch};
use crate::auth::TokenRole;
use crate::error::{ApiError, ErrorCode};
use crate::node::random_pause;
use crate::room::peer::Role;
use crate::room::work::{JoinRequest, Refusal, Work, not_in_room};

/// Actors that may end under a joiner before it is told to come again.
const ATTEMPTS: usize = 4;
/// Joins over the admission limit are spread over this.
const ADMISSION_SPREAD: Duration = Duration::from_secs(2);

pub(super) async fn join(asking: &Asking, body: Join) -> Answer {
    let result = try_join(asking, body).await;
    let label = result.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok");
    asking.node.metrics.joins.with_label_values(&[label]).inc();
    result
}

async fn try_join(asking: &Asking, body: Join) -> Answer {
    let room = asking.room(body.room)?;
    let identity = asking.connection().identity();
    let role = match body.role {
        None if identity.role_max == TokenRole::Monitor => WantedRole::Monitor,
        wanted => wanted.unwrap_or(WantedRole::Guest),
    };
    let wanted = match role {
        WantedRole::Guest => TokenRole::Guest,
        WantedRole::Host => TokenRole::Host,
        WantedRole::Monitor => TokenRole::Monitor,
    };
    if !identity.role_max.allows(wanted) {
        return Err(ApiError::new(
            ErrorCode::Forbidden,
            format!("the token does not allow the role {}", wanted.name()),
        ));
    }
    let role = match role {
        WantedRole::Guest => Role::Guest,
        WantedRole::Host => Role::Host,
        WantedRole::Monitor => return watch::monitor(asking, room).await,
    };
    let limits = &asking.node.config.limits;
    let attributes = body.attributes.unwrap_or_default();
    check_attributes(&attributes, limits)?;
    enter(asking, &room, role)?;
    let request = JoinRequest {
        client: asking.client.clone(),
        user: identity.user.shared(),
        name: identity.name.as_deref().map(Into::into),
        role,
        max_role: match identity.role_max {
            TokenRole::Host => Role::Host,
            TokenRole::Guest | TokenRole::Monitor => Role::Guest,
        },
        attributes,
        device: asking.connection().device.clone(),
        resume: body.resume,
        hops: body.hops,
        peer: uuid::Uuid::now_v7().to_string().into(),
        secret: uuid::Uuid::new_v4().simple().to_string().into(),
    };
    for _ in 0..ATTEMPTS {
        let handle = asking.node.rooms.enter(&asking.node, &asking.app, &room);
        let work = Box::new(request.clone());
        match handle.ask(|reply| Work::Join(work, reply)).await {
            Ok(answer) => return Ok(answer),
            Err(Refusal::Gone) => {}
            Err(Refusal::Api(error)) => {
                asking.connection().rooms().remove(&room);
                return Err(error);
            }
        }
    }
    asking.connection().rooms().remove(&room);
    Err(ApiError::lease_lost())
}

/// Notes the room before anything is awaited, so that a disconnect meanwhile is told to it.
fn enter(asking: &Asking, room: &key_prefix::RoomKey, role: Role) -> Result<(), ApiError> {
    let limit = asking.node.config.limits.rooms_per_connection;
    let mut rooms = asking.connection().rooms();
    if rooms.contains_key(room) {
        return Ok(());
    }
    if rooms.len() >= limit {
        return Err(ApiError::bad_request(format!("this connection is in {limit} rooms already")));
    }
    if let Err(wait) = asking.node.admission.take() {
        asking.node.metrics.admissions_refused.inc();
        let pause = wait + random_pause(ADMISSION_SPREAD);
        return Err(ApiError::new(ErrorCode::RateLimited, "too many joins at once").after(pause));
    }
    rooms.insert(room.clone(), role);
    asking.connection().evicted().remove(room);
    Ok(())
}

pub(super) async fn leave(asking: &Asking, request: &mut Request) -> Answer {
    let body: Leave = body(request)?;
    let room = asking.room(body.room.clone())?;
    if watch::stop_monitoring(asking, &room) {
        return raw(r#"{"ok":true}"#.to_owned());
    }
    if asking.connection().identity().role_max == TokenRole::Monitor {
        return Err(not_in_room(room.room()));
    }
    let done = commands::execute(asking, commands::order(asking, request, body)?).await?;
    asking.connection().rooms().remove(&room);
    commands::acked(done)
}
