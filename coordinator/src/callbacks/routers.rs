//! What names of routers at media servers stand for.
//!
//! The truth is in Redis, where a room's owner notes a name before it is used. A name is never given to another
//! router, so what was found once is remembered here; that there is no such name is believed for a moment only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use key_prefix::{RoomKey, RouterName};
use redis_scripts::ScriptError;
use tokio::time::Instant;

use crate::clock::instant;
use crate::node::Store;

/// Names remembered at least, if they are asked for; twice as many at most.
const REMEMBERED: usize = 16_384;
/// That a name stands for nothing is believed for so long.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);

/// A room's router, as its name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The room.
    pub room: RoomKey,
    /// Its generation.
    pub generation: u64,
}

/// What names stand for, as far as it was asked.
#[derive(Debug, Default)]
pub struct Routers {
    known: Mutex<Recall>,
}

/// Two generations of a cache: what is asked for moves to the newer one, and the older is dropped when that is full.
#[derive(Debug, Default)]
struct Recall {
    newer: HashMap<RouterName, Found>,
    older: HashMap<RouterName, Found>,
}

#[derive(Debug, Clone)]
enum Found {
    Router(Named),
    Nothing { since: Instant },
}

impl Recall {
    fn get(&mut self, name: &RouterName, now: Instant) -> Option<Found> {
        if !self.newer.contains_key(name)
            && let Some(found) = self.older.remove(name)
        {
            self.keep(name, found);
        }
        self.newer.get(name).filter(|found| found.holds(now)).cloned()
    }

    fn keep(&mut self, name: &RouterName, found: Found) {
        if self.newer.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(name.clone(), found);
    }
}

impl Found {
    fn holds(&self, now: Instant) -> bool {
        match self {
            Self::Router(_) => true,
            Self::Nothing { since } => now.duration_since(*since) < UNKNOWN_FOR,
        }
    }
}

impl Routers {
    fn known(&self) -> MutexGuard<'_, Recall> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a name stands for; `None`: nobody noted it, or it is no name of ours.
    ///
    /// # Errors
    /// Redis did not answer.
    pub async fn find(&self, store: &Store, name: &str) -> Result<Option<Named>, ScriptError> {
        let Ok(name) = RouterName::new(name) else { return Ok(None) };
        let now = instant();
        match self.known().get(&name, now) {
            Some(Found::Router(named)) => return Ok(Some(named)),
            Some(Found::Nothing { .. }) => return Ok(None),
            None => {}
        }
        let found = store.timed("router_find", store.scripts.router_find(&store.keys, &name)).await?;
        let named = found.and_then(|found| {
            let room = RoomKey::from_route(&found.route).ok()?;
            Some(Named { room, generation: found.generation })
        });
        let found = named.clone().map_or(Found::Nothing { since: now }, Found::Router);
        self.known().keep(&name, found);
        Ok(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use key_prefix::{AppCode, RoomId};

    fn named(room: &str) -> Named {
        Named { room: RoomKey::new(AppCode::new("a").unwrap(), RoomId::new(room).unwrap()), generation: 1 }
    }

    fn name(n: usize) -> RouterName {
        RouterName::new(&format!("r{n}")).unwrap()
    }

    #[test]
    fn what_is_asked_for_is_remembered_and_the_rest_makes_room() {
        let (mut recall, now) = (Recall::default(), instant());
        for n in 0..10 * REMEMBERED {
            recall.keep(&name(n), Found::Router(named("r")));
            assert!(recall.get(&name(0), now).is_some(), "{n}");
        }
        assert!(recall.get(&name(1), now).is_none());
        assert!(recall.newer.len() + recall.older.len() <= 2 * REMEMBERED);
    }

    #[test]
    fn that_there_is_nothing_is_believed_for_a_moment() {
        let (mut recall, now) = (Recall::default(), instant());
        recall.keep(&name(1), Found::Nothing { since: now });
        assert!(recall.get(&name(1), now).is_some());
        assert!(recall.get(&name(1), now + UNKNOWN_FOR).is_none());
        recall.keep(&name(1), Found::Router(named("r")));
        assert!(matches!(recall.get(&name(1), now + 100 * UNKNOWN_FOR), Some(Found::Router(_))));
    }
}
