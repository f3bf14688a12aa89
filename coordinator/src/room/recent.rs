//! Answers of the last commands that named an id, so that a repeat is answered at once, and also after
//! Redis lost what it kept of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::answer::Answer;

/// Answers remembered for one room.
const ANSWERS: usize = 512;

/// Caller and id.
type Key = (Arc<str>, Arc<str>);

/// What a command was answered.
#[derive(Debug)]
struct Answered {
    digest: Arc<str>,
    answer: Answer,
    /// It was refused then: whoever asks again after that is heard again.
    refused_at: Option<u64>,
}

/// The newest answers, by caller and id.
#[derive(Debug, Default)]
pub struct Recent {
    by_key: HashMap<Key, Answered>,
    order: VecDeque<Key>,
}

impl Recent {
    /// Remembers what a command was answered.
    pub fn remember(&mut self, key: (&str, &str, &str), answer: Answer) {
        self.keep(key, answer, None);
    }

    /// Remembers that a command was refused at this time: a copy of it that is on its way since before is, too.
    pub fn refused(&mut self, key: (&str, &str, &str), answer: Answer, at_ms: u64) {
        self.keep(key, answer, Some(at_ms));
    }

    fn keep(&mut self, (caller, id, digest): (&str, &str, &str), answer: Answer, refused_at: Option<u64>) {
        let key: Key = (caller.into(), id.into());
        let answered = Answered { digest: digest.into(), answer, refused_at };
        if self.by_key.insert(key.clone(), answered).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > ANSWERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }

    /// What a command of this caller and id, sent at this time, was answered, and the digest of what was asked.
    pub fn of(&self, caller: &str, id: &str, sent_at_ms: u64) -> Option<(&str, &Answer)> {
        let known = self.by_key.get(&(caller.into(), id.into()))?;
        let is_older = known.refused_at.is_none_or(|refused_at| sent_at_ms <= refused_at);
        is_older.then_some((&*known.digest, &known.answer))
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
        assert_eq!(recent.of("user:ann", "599", 0), Some(("d", &answer(599))));
        assert_eq!(recent.of("user:bob", "599", 0), None, "another caller's");
        assert_eq!(recent.of("user:ann", "0", 0), None);
        assert!(recent.by_key.len() <= ANSWERS && recent.order.len() <= ANSWERS);
    }

    #[test]
    fn i_13_what_was_refused_may_be_sent_again_and_an_older_copy_is_not_executed() {
        let mut recent = Recent::default();
        let refused = Answer::Refused { code: "NOT_IN_ROOM".to_owned(), message: String::new() };
        recent.refused(("user:ann", "7", "d"), refused.clone(), 100);
        assert_eq!(recent.of("user:ann", "7", 99), Some(("d", &refused)));
        assert_eq!(recent.of("user:ann", "7", 101), None);
        let done = Answer::Done(Done { cell: 1, result: serde_json::Map::new() });
        recent.remember(("user:ann", "7", "d"), done.clone());
        assert_eq!(recent.of("user:ann", "7", 102), Some(("d", &done)));
    }
}
