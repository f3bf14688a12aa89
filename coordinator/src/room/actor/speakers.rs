//! Who is heard how loudly.

use redis_scripts::LevelsTo;
use serde_json::value::RawValue;
use std::sync::Arc;

use super::{Actor, State};
use crate::callbacks::levels::{self, Level, Speaker};
use crate::paths::Owner;

impl Actor {
    /// Tells members, and who watches, how loud people in the room are. Whoever is too slow for it goes without.
    pub(super) fn tell_levels(&mut self, heard: Vec<Level>) {
        if !self.serves() {
            return;
        }
        let mut told = Vec::with_capacity(heard.len());
        for Level { who, level } in heard {
            let user = match who {
                Speaker::User(user) => Some(user),
                Speaker::Participant(name) => self.who_is(&name).map(|who| who.user.shared()),
            };
            let State::Owned(room) = &self.state else { return };
            let present = user.filter(|user| room.cell().users.contains_key(&**user));
            told.extend(present.map(|user| Level { who: Speaker::User(user), level }));
        }
        let State::Owned(room) = &self.state else { return };
        if told.is_empty() {
            return;
        }
        let Ok(levels) = serde_json::to_string(&told) else { return };
        let event = format!(r#"{},"levels":{levels}}}"#, self.names.event_head);
        let Ok(event) = RawValue::from_string(event) else { return };
        for client in room.links().clients() {
            client.send(Owner::RoomSpeakers, &event);
        }
        let (node, room) = (Arc::clone(&self.node), self.names.key.clone());
        tokio::spawn(async move {
            levels::tell(&node, &room, LevelsTo::Watchers(&node.store.me), &told).await;
        });
    }
}
