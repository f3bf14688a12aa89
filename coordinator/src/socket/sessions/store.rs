//! What Redis is told of sessions.

use redis_scripts::ScriptError;
pub(super) use redis_scripts::{SESSIONS_LIFE, SessionOpen};
use std::time::Duration;

use crate::node::Store;

pub(super) async fn sessions_open(store: &Store, sessions: &[SessionOpen<'_>]) -> Result<(), ScriptError> {
    store.timed("sessions_open", store.scripts.sessions_open(&store.keys, &store.me, sessions)).await
}

pub(super) async fn sessions_close(
    store: &Store,
    sessions: &[(&str, &str, &str)],
) -> Result<(), ScriptError> {
    store.timed("sessions_close", store.scripts.sessions_close(&store.keys, &store.me, sessions)).await
}

pub(super) async fn sessions_touch(
    store: &Store,
    users: &[(&str, &str)],
    life: Duration,
) -> Result<(), ScriptError> {
    store.timed("sessions_touch", store.scripts.sessions_touch(&store.keys, users, life)).await
}
