//! How loud people are: told a few times a second, never stored, and lost without regret.
//!
//! What media servers say of one room is gathered, the newest for each person, and passed on at most five times a
//! second: to the room's actor if it runs here, else to its owner, who gathers it likewise. The owner tells the room's
//! members and, through Redis, the instances that watch it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use key_prefix::RoomKey;
use redis_scripts::LevelsTo;
use serde::{Deserialize, Serialize};

use crate::node::Node;
use crate::room::names::json_string;
use crate::room::work::Work;

/// One room's levels are told no more often.
const PAUSE: Duration = Duration::from_millis(200);
/// Rooms whose levels are under way.
const MOST_ROOMS: usize = 10_000;
/// People of one room whose levels are told together.
const MOST_PEOPLE: usize = 256;

/// Somebody who is heard.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaker {
    /// By the id that the app gave the user.
    User(Arc<str>),
    /// By the name at the vendor.
    Participant(Arc<str>),
}

/// How loud somebody is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Who.
    #[serde(flatten)]
    pub who: Speaker,
    /// 0 is silence, 1 as loud as it gets.
    pub level: f32,
}

/// Levels on their way, by room.
#[derive(Debug, Default)]
pub struct Levels {
    rooms: Mutex<HashMap<RoomKey, HashMap<Speaker, f32>>>,
}

impl Levels {
    fn rooms(&self) -> MutexGuard<'_, HashMap<RoomKey, HashMap<Speaker, f32>>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes levels on, soon. What is too much is dropped.
    pub fn hear(&self, node: &Arc<Node>, room: &RoomKey, levels: impl IntoIterator<Item = Level>) {
        if self.gather(room, levels) {
            let (node, room) = (Arc::clone(node), room.clone());
            tokio::spawn(async move {
                while let Some(levels) = node.levels.take(&room) {
                    pass_on(&node, &room, levels).await;
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
    }

    /// Notes levels. Returns whether nobody passes this room's on yet.
    fn gather(&self, room: &RoomKey, levels: impl IntoIterator<Item = Level>) -> bool {
        let mut rooms = self.rooms();
        let is_full = rooms.len() >= MOST_ROOMS;
        let (waiting, is_new) = match rooms.entry(room.clone()) {
            Entry::Occupied(entry) => (entry.into_mut(), false),
            Entry::Vacant(_) if is_full => return false,
            Entry::Vacant(entry) => (entry.insert(HashMap::new()), true),
        };
        for Level { who, level } in levels {
            if waiting.len() < MOST_PEOPLE || waiting.contains_key(&who) {
                waiting.insert(who, level);
            }
        }
        is_new
    }

    /// What was noted since; `None`: nothing, and the room is forgotten.
    fn take(&self, room: &RoomKey) -> Option<Vec<Level>> {
        let mut rooms = self.rooms();
        let waiting = rooms.get_mut(room)?;
        if waiting.is_empty() {
            rooms.remove(room);
            return None;
        }
        Some(std::mem::take(waiting).into_iter().map(|(who, level)| Level { who, level }).collect())
    }
}

async fn pass_on(node: &Arc<Node>, room: &RoomKey, levels: Vec<Level>) {
    if let Some(handle) = node.rooms.find(room) {
        if handle.tell(Work::Levels(levels)).is_err() {
            node.metrics.skipped.with_label_values(&["levels"]).inc();
        }
        return;
    }
    tell(node, room, LevelsTo::Owner, &levels).await;
}

/// Tells other instances.
pub async fn tell(node: &Node, room: &RoomKey, to: LevelsTo<'_>, levels: &[Level]) {
    let Ok(levels) = serde_json::to_string(levels) else { return };
    let message = format!(r#"{{"room":{},"levels":{levels}}}"#, json_string(room.route()));
    let store = &node.store;
    let keys = store.keys.room(room);
    let told = store.scripts.levels(&store.keys, &keys, to, &message);
    match store.timed("levels", told).await {
        Ok(Some(_)) => {}
        Ok(None) => node.metrics.skipped.with_label_values(&["levels"]).inc(),
        Err(error) => {
            node.metrics.skipped.with_label_values(&["levels"]).inc();
            tracing::debug!(error = &error as &dyn std::error::Error, "levels are not told");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use key_prefix::{AppCode, RoomId};
    use serde_json::json;

    fn room(id: &str) -> RoomKey {
        RoomKey::new(AppCode::new("a").unwrap(), RoomId::new(id).unwrap())
    }

    fn of(user: &str, level: f32) -> Level {
        Level { who: Speaker::User(user.into()), level }
    }

    #[test]
    fn the_newest_of_each_is_told_and_a_quiet_room_is_forgotten() {
        let levels = Levels::default();
        assert!(levels.gather(&room("r"), [of("ann", 0.1), of("bob", 0.2)]));
        assert!(!levels.gather(&room("r"), [of("ann", 0.9)]), "somebody passes them on");
        let mut taken = levels.take(&room("r")).unwrap();
        taken.sort_by(|a, b| a.level.total_cmp(&b.level));
        assert_eq!(taken, [of("bob", 0.2), of("ann", 0.9)]);
        assert!(!levels.gather(&room("r"), [of("ann", 0.3)]));
        assert_eq!(levels.take(&room("r")), Some(vec![of("ann", 0.3)]));
        assert_eq!(levels.take(&room("r")), None);
        assert!(levels.rooms().is_empty());
        assert!(levels.gather(&room("r"), [of("ann", 0.3)]), "and begins anew");
    }

    #[test]
    fn what_is_too_much_is_dropped() {
        let levels = Levels::default();
        let crowd: Vec<Level> = (0..2 * MOST_PEOPLE).map(|n| of(&n.to_string(), 0.5)).collect();
        levels.gather(&room("r"), crowd);
        assert_eq!(levels.take(&room("r")).unwrap().len(), MOST_PEOPLE);
        for n in 0..2 * MOST_ROOMS {
            levels.gather(&room(&n.to_string()), [of("ann", 0.5)]);
        }
        assert_eq!(levels.rooms().len(), MOST_ROOMS);
    }

    #[test]
    fn a_level_names_a_user_or_a_participant() {
        let both = vec![of("ann", 0.5), Level { who: Speaker::Participant("x7".into()), level: 0.0 }];
        let text = json!([{ "user": "ann", "level": 0.5 }, { "participant": "x7", "level": 0.0 }]);
        assert_eq!(serde_json::to_value(&both).unwrap(), text);
        assert_eq!(serde_json::from_value::<Vec<Level>>(text).unwrap(), both);
    }
}
