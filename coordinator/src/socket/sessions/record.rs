//! What Redis knows of the sessions here: openings and closings in batches, all of them anew where some were
//! lost, and a touch now and then without which they are forgotten.

use redis_scripts::ScriptError;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

use super::store::{SESSIONS_LIFE, SessionOpen, sessions_close, sessions_open, sessions_touch};
use super::{Held, Sessions, Turn, UserKey};
use crate::clock::instant;
use crate::node::{Node, Store};
use crate::socket::Connection;

/// Sessions that one call to Redis carries.
const BATCH: usize = 256;
/// From one touch to the next.
const TOUCH_EVERY: Duration = Duration::from_secs(20 * 60);
/// From one attempt to tell Redis everything anew to the next.
const RETRY: Duration = Duration::from_secs(2);

/// What is known of a session, as Redis keeps it.
pub(super) fn json(connection: &Connection) -> String {
    let identity = connection.identity();
    let mut known = serde_json::Map::new();
    for (name, value) in [("device", &connection.device), ("platform", &connection.platform)] {
        if let Some(value) = value {
            known.insert(name.to_owned(), value.as_ref().into());
        }
    }
    known.insert("since".to_owned(), connection.since_ms.into());
    if let Some(version) = identity.auth_version {
        known.insert("av".to_owned(), version.into());
    }
    serde_json::Value::Object(known).to_string()
}

/// Keeps Redis told until the instance ends.
pub async fn keep(node: Arc<Node>) {
    let mut touching = tokio::time::interval_at(instant() + TOUCH_EVERY, TOUCH_EVERY);
    touching.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut disturbances = node.disturbances.subscribe();
    let (sessions, mut retry_at) = (&node.sessions, None::<Instant>);
    loop {
        tokio::select! {
            () = node.ending.cancelled() => return,
            () = sessions.turned.notified() => {}
            Ok(()) = disturbances.changed() => sessions.lock().is_behind = true,
            () = tokio::time::sleep_until(retry_at.unwrap_or_else(instant)), if retry_at.is_some() => {}
            _ = touching.tick() => {
                if let Err(error) = touch(sessions, &node.store).await {
                    // Not touched, they may be forgotten: they are told anew.
                    failed(&error);
                    sessions.lock().is_behind = true;
                }
            }
        }
        if retry_at.is_some_and(|at| at > instant()) {
            continue;
        }
        retry_at = None;
        if let Err(error) = catch_up(sessions, &node.store).await {
            failed(&error);
            sessions.lock().is_behind = true;
            retry_at = Some(instant() + RETRY);
        } else if sessions.lock().is_behind {
            retry_at = Some(instant() + RETRY);
        }
    }
}

fn failed(error: &ScriptError) {
    tracing::debug!(error = error as &dyn std::error::Error, "Redis was not told of sessions");
}

/// Tells what waits; everything where something was lost.
async fn catch_up(sessions: &Sessions, store: &Store) -> Result<(), ScriptError> {
    if std::mem::take(&mut sessions.lock().is_behind) {
        let all: Vec<Turn> = everything(&sessions.lock());
        for batch in all.chunks(BATCH) {
            tell(store, batch).await?;
        }
    }
    loop {
        let batch: Vec<Turn> = {
            let mut held = sessions.lock();
            let count = held.turns.len().min(BATCH);
            held.turns.drain(..count).collect()
        };
        if batch.is_empty() {
            return Ok(());
        }
        if let Err(error) = tell(store, &batch).await {
            // Who is here is told anew; who is gone is told by nothing else.
            let is_closed = |turn: &Turn| matches!(turn, Turn::Closed { .. });
            let mut held = sessions.lock();
            batch.into_iter().filter(is_closed).rev().for_each(|turn| held.turns.push_front(turn));
            return Err(error);
        }
    }
}

fn everything(held: &Held) -> Vec<Turn> {
    let opened = |(sid, user, client): (_, &UserKey, &crate::socket::Client)| Turn::Opened {
        sid,
        user: user.clone(),
        json: json(&client.connection),
    };
    held.book.iter().map(opened).collect()
}

async fn tell(store: &Store, turns: &[Turn]) -> Result<(), ScriptError> {
    let (opened, closed) = settled(turns);
    if !opened.is_empty() {
        sessions_open(store, &opened).await?;
    }
    if !closed.is_empty() {
        sessions_close(store, &closed).await?;
    }
    Ok(())
}

/// What is left to tell of turns that come together: a session that came and went is not worth a word.
fn settled(turns: &[Turn]) -> (Vec<SessionOpen<'_>>, Vec<(&str, &str, &str)>) {
    let gone: HashSet<_> = turns
        .iter()
        .filter_map(|turn| match turn {
            Turn::Closed { sid, .. } => Some(*sid),
            Turn::Opened { .. } => None,
        })
        .collect();
    let (mut opened, mut closed) = (Vec::new(), Vec::new());
    for turn in turns {
        match turn {
            Turn::Opened { sid, user, json } if !gone.contains(sid) => opened.push(SessionOpen {
                app: user.app.as_str(),
                user: user.user.as_str(),
                socket: sid.as_str(),
                json,
            }),
            // It may have been told of in an earlier batch.
            Turn::Closed { sid, user } => closed.push((user.app.as_str(), user.user.as_str(), sid.as_str())),
            Turn::Opened { .. } => {}
        }
    }
    (opened, closed)
}

async fn touch(sessions: &Sessions, store: &Store) -> Result<(), ScriptError> {
    let users: Vec<UserKey> = sessions.lock().book.users().cloned().collect();
    for batch in users.chunks(BATCH) {
        let users: Vec<_> = batch.iter().map(|key| (key.app.as_str(), key.user.as_str())).collect();
        sessions_touch(store, &users, SESSIONS_LIFE).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Identity, TokenRole};
    use crate::limits::TokenBucket;
    use crate::socket::Opening;
    use key_prefix::{AppCode, UserId};
    use socketioxide::socket::Sid;

    fn ann() -> UserKey {
        UserKey { app: AppCode::new("school").unwrap(), user: UserId::new("ann").unwrap() }
    }

    fn identity(auth_version: Option<u64>) -> Identity {
        let UserKey { app, user } = ann();
        Identity {
            app,
            user,
            role_max: TokenRole::Guest,
            room_limit: None,
            name: None,
            auth_version,
            admin: false,
            expires_at_s: 9,
        }
    }

    #[test]
    fn redis_keeps_what_session_control_asks_for() {
        let bucket = || TokenBucket::new(1, 1);
        let bare = Connection::new(identity(None), Opening { since_ms: 7, ..Opening::default() }, bucket());
        assert_eq!(json(&bare), r#"{"since":7}"#);
        let opening = Opening { device: Some("d\"1".into()), platform: Some("ios".into()), since_ms: 7 };
        let full: serde_json::Value =
            serde_json::from_str(&json(&Connection::new(identity(Some(3)), opening, bucket()))).unwrap();
        assert_eq!(full, serde_json::json!({ "device": "d\"1", "platform": "ios", "since": 7, "av": 3 }));
    }

    #[test]
    fn who_came_and_went_is_not_told_of_as_here() {
        let [stays, passes, left] = std::array::from_fn(|_| Sid::new());
        let opened = |sid| Turn::Opened { sid, user: ann(), json: "{}".to_owned() };
        let closed = |sid| Turn::Closed { sid, user: ann() };
        let turns = [opened(stays), closed(left), opened(passes), closed(passes)];
        let (opened, closed) = settled(&turns);
        assert_eq!(opened.iter().map(|it| it.socket).collect::<Vec<_>>(), [stays.as_str()]);
        let gone: Vec<_> = closed.iter().map(|(_, _, socket)| *socket).collect();
        assert_eq!(gone, [left.as_str(), passes.as_str()]);
    }
}
