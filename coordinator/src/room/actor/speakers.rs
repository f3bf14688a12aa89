//! Who is heard how loudly.

use redis_scripts::LevelsTo;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

use super::{Actor, State};
use crate::callbacks::levels::{self, Level, Speaker};
use crate::paths::Owner;

/// Whoever goes on speaking is told again so often: what was missed is mended, and silence tells nothing.
const REPEATED: Duration = Duration::from_secs(1);
/// Whoever was last heard to be loud so long ago is taken for silent: word of it must have been lost.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Users who are not silent.
#[derive(Default)]
pub(super) struct Speakers {
    heard: HashMap<Arc<str>, (f32, Instant)>,
    due: Option<Instant>,
}

impl Speakers {
    /// When they are to be told again.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    fn hear(&mut self, user: Arc<str>, level: f32, now: Instant) {
        if level > 0.0 {
            self.heard.insert(user, (level, now));
        } else {
            self.heard.remove(&user);
        }
    }

    /// Levels of those who still count as loud.
    fn still(&mut self, now: Instant, is_here: impl Fn(&str) -> bool) -> Vec<Level> {
        self.heard.retain(|user, (_, since)| now.duration_since(*since) < FORGOTTEN && is_here(user));
        let levels = self.heard.iter();
        levels
            .map(|(user, (level, _))| Level { who: Speaker::User(Arc::clone(user)), level: *level })
            .collect()
    }
}

impl Actor {
    /// Takes how loud people in the room are, and tells who is loud and who fell silent.
    pub(super) fn hear_levels(&mut self, heard: Vec<Level>) {
        if !self.serves() {
            return;
        }
        let now = crate::clock::instant();
        let mut silent = Vec::new();
        for Level { who, level } in heard {
            let user = match who {
                Speaker::User(user) => Some(user),
                Speaker::Participant(name) => self.who_is(&name).map(|who| who.user.shared()),
            };
            let State::Owned(room) = &self.state else { return };
            let Some(user) = user.filter(|user| room.cell().users.contains_key(&**user)) else { continue };
            self.speakers.hear(Arc::clone(&user), level, now);
            if level <= 0.0 {
                silent.push(Level { who: Speaker::User(user), level });
            }
        }
        self.tell_speakers(silent, now);
    }

    /// Tells again who is still speaking.
    pub(super) fn repeat_levels(&mut self) {
        let now = crate::clock::instant();
        if self.speakers.due.take_if(|due| *due <= now).is_some() {
            self.tell_speakers(Vec::new(), now);
        }
    }

    fn tell_speakers(&mut self, mut told: Vec<Level>, now: Instant) {
        let State::Owned(room) = &self.state else { return };
        let loud = self.speakers.still(now, |user| room.cell().users.contains_key(user));
        self.speakers.due = (!loud.is_empty()).then(|| now + REPEATED);
        told.extend(loud);
        self.tell_levels(told);
    }

    /// Tells members, and who watches. Whoever is too slow for it goes without.
    fn tell_levels(&self, told: Vec<Level>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_goes_on_is_told_again_until_silent_gone_or_forgotten() {
        let (mut speakers, start) = (Speakers::default(), Instant::now());
        for user in ["ann", "bob", "cat"] {
            speakers.hear(user.into(), 0.5, start);
        }
        speakers.hear("bob".into(), 0.0, start);
        let mut still = speakers.still(start, |user| user != "cat");
        assert_eq!(still.pop(), Some(Level { who: Speaker::User("ann".into()), level: 0.5 }));
        assert!(still.is_empty());
        assert!(speakers.still(start + FORGOTTEN, |_| true).is_empty());
        assert!(speakers.heard.is_empty());
    }
}
