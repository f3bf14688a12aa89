//! `auth:refresh`: another token for the same user, which may allow less than the one before.

use key_prefix::RoomKey;
use room_cell::Command;
use std::sync::Arc;

use super::commands::{execute, own_order};
use super::dispatch::{Answer, Asking, raw};
use super::requests::Refresh;
use crate::auth::{Identity, TokenRole};
use crate::clock::unix_seconds;
use crate::error::{ApiError, ErrorCode};
use crate::room::work::Work;

/// What becomes of a connection's rooms with another token.
#[derive(Debug, Default, PartialEq, Eq)]
struct Consequences {
    /// Rooms that it leaves.
    left: Vec<RoomKey>,
    /// Rooms whose owner is to know that the token allows another role.
    told: Vec<RoomKey>,
    /// Rooms that it no longer sees.
    unwatched: Vec<RoomKey>,
    /// Rooms that it no longer sees as a monitor.
    unmonitored: Vec<RoomKey>,
    /// It no longer hears which rooms there are.
    unlisted: bool,
}

impl Consequences {
    fn of(old: &Identity, new: &Identity, joined: &[RoomKey], watched: &[RoomKey]) -> Self {
        let is_out =
            |room: &RoomKey| new.room_limit.as_ref().is_some_and(|only| only.as_str() != room.room());
        let role_changed = old.role_max != new.role_max;
        let may_be_member = new.role_max != TokenRole::Monitor;
        let may_watch = new.role_max != TokenRole::Guest;
        let mut found = Self { unlisted: !may_watch, ..Self::default() };
        for room in joined {
            if is_out(room) || !may_be_member {
                found.left.push(room.clone());
            } else if role_changed {
                found.told.push(room.clone());
            }
        }
        for room in watched {
            if is_out(room) || !may_watch {
                found.unwatched.push(room.clone());
            } else if new.role_max != TokenRole::Monitor {
                found.unmonitored.push(room.clone());
            }
        }
        found
    }
}

/// The identity that `token` gives to a connection whose identity is `old`.
fn renewed(
    old: &Identity,
    verified: Result<Identity, crate::auth::AuthError>,
    now_s: u64,
) -> Result<Identity, ApiError> {
    let new = verified.map_err(|error| {
        tracing::debug!(error = &error as &dyn std::error::Error, "a token was refused");
        ApiError::new(ErrorCode::Unauthenticated, error.public())
    })?;
    if !old.same_user(&new) {
        return Err(ApiError::new(ErrorCode::Forbidden, "the token is for another user"));
    }
    if new.expires_at_s <= now_s {
        return Err(ApiError::new(ErrorCode::Unauthenticated, "the token has expired"));
    }
    Ok(new)
}

pub(super) async fn refresh(asking: &Asking, body: Refresh) -> Answer {
    let (node, connection) = (&asking.node, asking.connection());
    let (old, now_s) = (connection.identity(), unix_seconds());
    let new = Arc::new(renewed(&old, node.verifier.verify(&body.token, now_s), now_s)?);
    let joined: Vec<RoomKey> = connection.rooms().keys().cloned().collect();
    let watched: Vec<RoomKey> = connection.watched().iter().cloned().collect();
    let after = Consequences::of(&old, &new, &joined, &watched);

    // From here on it may do what the new token says, whether or not the rooms are heard from.
    connection.identify(Arc::clone(&new));
    node.sessions.renewed(&asking.client);
    let sid = asking.client.sid();
    if after.unlisted {
        node.watches.stop_listing(sid);
    }
    node.watches.remove(node, sid, &after.unwatched);
    node.watches.stop_monitoring(node, sid, &after.unmonitored);
    for room in &after.unwatched {
        connection.watched().remove(room);
    }
    for room in after.left {
        leave(asking, &old, room).await;
    }
    for room in after.told {
        let limits = &node.config.limits;
        let told = own_order(&new, sid, room, Command::TokenRenewed, limits);
        // Not heard, it makes no difference to what is allowed: each command says what the token allows.
        if let Err(error) = execute_order(asking, told).await {
            tracing::debug!(code = error.code.as_str(), "a room was not told of another token");
        }
    }
    raw(format!(r#"{{"ok":true,"expiresAt":{}}}"#, new.expires_at_s.saturating_mul(1000)))
}

async fn execute_order(
    asking: &Asking,
    order: Result<crate::room::gateway::Request, ApiError>,
) -> Result<(), ApiError> {
    execute(asking, order?).await.map(drop)
}

/// Leaves a room that the new token is not for, by the word of the old one.
async fn leave(asking: &Asking, old: &Identity, room: RoomKey) {
    let (node, sid) = (&asking.node, asking.client.sid());
    let order = own_order(old, sid, room.clone(), Command::Leave, &node.config.limits);
    let left = execute_order(asking, order).await;
    asking.client.forget(&room);
    if left.is_err()
        && let Some(handle) = node.rooms.find(&room)
        && handle.tell(Work::Disconnected(sid)).is_err()
    {
        // Its grace period ends it instead; the actor looks for itself where its mailbox is full.
        node.metrics.skipped.with_label_values(&["mailbox_full"]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::AuthError;
    use key_prefix::{AppCode, RoomId, UserId};

    fn identity(role_max: TokenRole, room_limit: Option<&str>) -> Identity {
        Identity {
            app: AppCode::new("school").unwrap(),
            user: UserId::new("ann").unwrap(),
            role_max,
            room_limit: room_limit.map(|room| RoomId::new(room).unwrap()),
            name: None,
            auth_version: None,
            admin: false,
            expires_at_s: 2_000,
        }
    }

    fn rooms(names: &[&str]) -> Vec<RoomKey> {
        let room = |name: &&str| RoomKey::new(AppCode::new("school").unwrap(), RoomId::new(name).unwrap());
        names.iter().map(room).collect()
    }

    #[test]
    fn the_same_user_gets_another_token_and_nobody_else() {
        let old = identity(TokenRole::Guest, None);
        let code = |verified| renewed(&old, verified, 1_000).map_err(|error| error.code);
        let same = identity(TokenRole::Host, None);
        assert_eq!(code(Ok(same.clone())), Ok(same.clone()));
        let other_user = Identity { user: UserId::new("bob").unwrap(), ..same.clone() };
        assert_eq!(code(Ok(other_user)), Err(ErrorCode::Forbidden));
        let other_app = Identity { app: AppCode::new("office").unwrap(), ..same.clone() };
        assert_eq!(code(Ok(other_app)), Err(ErrorCode::Forbidden));
        assert_eq!(code(Ok(Identity { expires_at_s: 1_000, ..same })), Err(ErrorCode::Unauthenticated));
        assert_eq!(code(Err(AuthError::Signature)), Err(ErrorCode::Unauthenticated));
    }

    #[test]
    fn a_token_that_allows_the_same_changes_nothing() {
        let host = identity(TokenRole::Host, None);
        let longer = Identity { expires_at_s: 9_000, ..host.clone() };
        let found = Consequences::of(&host, &longer, &rooms(&["a", "b"]), &[]);
        assert_eq!(found, Consequences::default());
    }

    #[test]
    fn rooms_hear_of_another_role_and_a_guest_watches_nothing() {
        let (host, guest) = (identity(TokenRole::Host, None), identity(TokenRole::Guest, None));
        let lowered = Consequences::of(&host, &guest, &rooms(&["a"]), &rooms(&["c"]));
        let expected = Consequences {
            told: rooms(&["a"]),
            unwatched: rooms(&["c"]),
            unlisted: true,
            ..Consequences::default()
        };
        assert_eq!(lowered, expected);
        let raised = Consequences::of(&guest, &host, &rooms(&["a"]), &[]);
        assert_eq!(raised, Consequences { told: rooms(&["a"]), ..Consequences::default() });
    }

    #[test]
    fn a_token_for_one_room_ends_the_others() {
        let (any, one) = (identity(TokenRole::Host, None), identity(TokenRole::Host, Some("a")));
        let found = Consequences::of(&any, &one, &rooms(&["a", "b"]), &rooms(&["a", "c"]));
        assert_eq!((found.left, found.told), (rooms(&["b"]), rooms(&[])));
        assert_eq!((found.unwatched, found.unmonitored), (rooms(&["c"]), rooms(&["a"])));
        let lifted = Consequences::of(&one, &any, &rooms(&["a"]), &[]);
        assert_eq!(lifted, Consequences::default());
    }

    #[test]
    fn a_monitor_is_no_member_and_a_member_no_monitor() {
        let (guest, monitor) = (identity(TokenRole::Guest, None), identity(TokenRole::Monitor, None));
        let found = Consequences::of(&guest, &monitor, &rooms(&["a"]), &[]);
        assert_eq!(found, Consequences { left: rooms(&["a"]), ..Consequences::default() });
        let host = identity(TokenRole::Host, None);
        let back = Consequences::of(&monitor, &host, &[], &rooms(&["b"]));
        assert_eq!(back, Consequences { unmonitored: rooms(&["b"]), ..Consequences::default() });
    }
}
