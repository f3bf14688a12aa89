//! Answers of the last commands that named an id, so that a repeat is answered at once, and also after
//! Redis lost what it kept of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::answer::Answer;

/// Answers remembered for one room.
const ANSWERS: usize = 512;

/// Caller and id.
type Key = (Arc<str>, Arc<str>);

/// The newest answers, by caller and id.
#[derive(Debug, Default)]
pub struct Recent {
    by_key: HashMap<Key, (Arc<str>, Answer)>,
    order: VecDeque<Key>,
}

impl Recent {
    /// Remembers what a command was answered.
    pub fn remember(&mut self, (caller, id, digest): (&str, &str, &str), answer: Answer) {
        let key: Key = (caller.into(), id.into());
        if self.by_key.insert(key.clone(), (digest.into(), answer)).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > ANSWERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }

    /// What a command of this caller and id was answered, and the digest of what was asked.
    pub fn of(&self, caller: &str, id: &str) -> Option<(&str, &Answer)> {
        let (digest, answer) = self.by_key.get(&(caller.into(), id.into()))?;
        Some((digest, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::answer::Done;

    #[test]
    fn i_13_the_newest_answers_are_remembered_and_the_oldest_forgotten() {
        let mut recent = Recent::default();
        let answer = |cell| Answer::Done(Done { cell, result: serde_json::Map::new() });
        for n in 0..600_u64 {
            recent.remember(("user:ann", &n.to_string(), "d"), answer(n));
        }
        assert_eq!(recent.of("user:ann", "599"), Some(("d", &answer(599))));
        assert_eq!(recent.of("user:bob", "599"), None, "another caller's");
        assert_eq!(recent.of("user:ann", "0"), None);
        assert!(recent.by_key.len() <= ANSWERS && recent.order.len() <= ANSWERS);
    }
}
