//! Which rooms have an actor here.

use key_prefix::RoomKey;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

use super::actor;
use super::work::RoomHandle;
use crate::config::App;
use crate::node::Node;

/// Work that waits for one room's actor; more is refused with `RATE_LIMITED`.
const MAILBOX: usize = 1_024;

/// The rooms in memory, one actor each.
#[derive(Debug, Default)]
pub struct Rooms {
    actors: Mutex<HashMap<RoomKey, RoomHandle>>,
    next_id: AtomicU64,
}

impl Rooms {
    fn lock(&self) -> MutexGuard<'_, HashMap<RoomKey, RoomHandle>> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The room's actor, if there is one.
    pub fn find(&self, room: &RoomKey) -> Option<RoomHandle> {
        self.lock().get(room).cloned()
    }

    /// The room's actor, a new one if there is none. A new one pins before it does anything.
    pub fn enter(&self, node: &Arc<Node>, app: &Arc<App>, room: &RoomKey) -> RoomHandle {
        let mut actors = self.lock();
        if let Some(handle) = actors.get(room) {
            return handle.clone();
        }
        let (inbox, work) = mpsc::channel(MAILBOX);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let handle = RoomHandle { id, inbox, standing: Arc::default() };
        actors.insert(room.clone(), handle.clone());
        node.metrics.rooms.set(i64::try_from(actors.len()).unwrap_or(i64::MAX));
        drop(actors);
        actor::spawn(Arc::clone(node), Arc::clone(app), room.clone(), &handle, work);
        handle
    }

    /// Forgets the actor of this id; a newer one of the same room stays.
    pub(super) fn forget(&self, node: &Node, room: &RoomKey, id: u64) {
        let mut actors = self.lock();
        if actors.get(room).is_some_and(|handle| handle.id == id) {
            actors.remove(room);
        }
        node.metrics.rooms.set(i64::try_from(actors.len()).unwrap_or(i64::MAX));
    }

    /// All actors as they are now.
    pub fn all(&self) -> Vec<(RoomKey, RoomHandle)> {
        self.lock().iter().map(|(room, handle)| (room.clone(), handle.clone())).collect()
    }

    /// Number of rooms in memory.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}
