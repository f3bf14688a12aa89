//! `rooms:list`, and `rooms:update` to those who listed: one digest a second, only while somebody lists.

use key_prefix::AppCode;
use serde_json::value::RawValue;
use socketioxide::socket::Sid;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::dispatch::{Answer, Asking, raw};
use super::requests::List;
use super::watch::Watches;
use super::{Client, Delivery};
use crate::error::ApiError;
use crate::node::Node;
use crate::paths::Fanout;
use crate::store::index::{ListedRoom, PageRequest, page};

/// Rooms in a page.
const PAGE: usize = 100;
/// Rooms of an app that a digest covers, in byte order of their ids.
const DIGEST_ROOMS: usize = 1_000;
const DIGEST_EVERY: Duration = Duration::from_secs(1);

/// Who lists which app, and what they were last told.
#[derive(Debug, Default)]
pub struct Listing {
    apps: HashMap<AppCode, Listers>,
}

#[derive(Debug, Default)]
struct Listers {
    clients: HashMap<Sid, Client>,
    told: Option<BTreeMap<String, ListedRoom>>,
}

impl Watches {
    fn listing(&self) -> MutexGuard<'_, Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection is gone.
    pub fn stop_listing(&self, sid: Sid) {
        self.listing().apps.retain(|_, listers| {
            listers.clients.remove(&sid);
            !listers.clients.is_empty()
        });
    }
}

pub(super) async fn list(asking: &Asking, body: List) -> Answer {
    asking.require_watcher()?;
    let (node, app) = (&asking.node, &asking.app.code);
    let limit = body.limit.unwrap_or(PAGE);
    if !(1..=PAGE).contains(&limit) {
        return Err(ApiError::bad_request(format!("`limit` must be 1 to {PAGE}")));
    }
    if let Some(status) = body.status.as_deref()
        && !["creating", "active", "closing", "closed"].contains(&status)
    {
        return Err(ApiError::bad_request("`status` must be creating, active, closing or closed"));
    }
    let is_new = {
        let mut listing = node.watches.listing();
        let listers = listing.apps.entry(app.clone()).or_default();
        listers.clients.insert(asking.client.sid(), asking.client.clone());
        listers.told.is_none()
    };
    if is_new && let Ok(rooms) = digest_of(node, app).await {
        let mut listing = node.watches.listing();
        if let Some(listers) = listing.apps.get_mut(app) {
            listers.told.get_or_insert(rooms);
        }
    }
    let want = PageRequest {
        after: body.cursor.as_deref().unwrap_or_default(),
        prefix: body.prefix.as_deref().unwrap_or_default(),
        limit,
    };
    let mut found = page(&node.store.scripts, &node.store.keys, app, want).await.map_err(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "rooms cannot be listed");
        ApiError::store_unavailable()
    })?;
    if let Some(status) = body.status {
        found.rooms.retain(|room| *room.status == *status);
    }
    let answer = serde_json::json!({ "ok": true, "rooms": found.rooms, "cursor": found.cursor });
    raw(answer.to_string())
}

async fn digest_of(node: &Node, app: &AppCode) -> Result<BTreeMap<String, ListedRoom>, fred::error::Error> {
    let (mut rooms, mut after) = (BTreeMap::new(), String::new());
    while rooms.len() < DIGEST_ROOMS {
        let want = PageRequest { after: &after, prefix: "", limit: PAGE };
        let found = page(&node.store.scripts, &node.store.keys, app, want).await?;
        rooms.extend(found.rooms.into_iter().map(|room| (room.id.clone(), room)));
        match found.cursor {
            Some(cursor) => after = cursor,
            None => break,
        }
    }
    Ok(rooms)
}

/// Tells listers each second what changed.
pub async fn digest(node: Arc<Node>) {
    let mut every = tokio::time::interval(DIGEST_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = node.ending.cancelled() => return,
            _ = every.tick() => {}
        }
        let apps: Vec<AppCode> = node.watches.listing().apps.keys().cloned().collect();
        for app in apps {
            if let Ok(rooms) = digest_of(&node, &app).await {
                tell(&node, &app, rooms);
            }
        }
    }
}

fn tell(node: &Node, app: &AppCode, rooms: BTreeMap<String, ListedRoom>) {
    let mut listing = node.watches.listing();
    let Some(listers) = listing.apps.get_mut(app) else { return };
    let Some(told) = listers.told.replace(rooms) else { return };
    let Some(rooms) = &listers.told else { return };
    let added: Vec<_> = rooms.values().filter(|room| !told.contains_key(&room.id)).collect();
    let changed: Vec<_> =
        rooms.values().filter(|room| told.get(&room.id).is_some_and(|old| old != *room)).collect();
    let removed: Vec<_> = told.keys().filter(|id| !rooms.contains_key(*id)).collect();
    if added.is_empty() && changed.is_empty() && removed.is_empty() {
        return;
    }
    let body = serde_json::json!({ "added": added, "changed": changed, "removed": removed });
    let Ok(body) = RawValue::from_string(body.to_string()) else { return };
    for client in listers.clients.values() {
        if client.send(Fanout::Rooms, &body) == Delivery::QueueFull {
            node.metrics.skipped.with_label_values(&["queue_full"]).inc();
            client.disconnect();
        }
    }
}
