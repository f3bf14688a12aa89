//! Answers to commands that this instance put into the inboxes of rooms.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

use super::answer::Answer;

/// Questions that wait for their answers.
#[derive(Debug, Default)]
pub struct Replies {
    waiting: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    next: AtomicU64,
}

/// A question; dropped, nobody waits for it any more.
#[derive(Debug)]
pub struct Waiting<'a> {
    replies: &'a Replies,
    /// Its number on the reply channel.
    pub number: u64,
    /// Its answer, when it comes.
    pub answer: oneshot::Receiver<Answer>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.replies.lock().remove(&self.number);
    }
}

#[derive(Deserialize)]
struct Reply<'a> {
    number: &'a str,
    #[serde(borrow)]
    answer: &'a RawValue,
}

impl Replies {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new question.
    pub fn wait(&self) -> Waiting<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.lock().insert(number, sender);
        Waiting { replies: self, number, answer }
    }

    /// Takes a message of the reply channel. Returns whether somebody waited for it.
    pub fn answered(&self, text: &str) -> bool {
        let Ok(reply) = serde_json::from_str::<Reply<'_>>(text) else { return false };
        let Some(waiting) = reply.number.parse().ok().and_then(|number| self.lock().remove(&number)) else {
            return false;
        };
        Answer::parse(reply.answer.get()).is_ok_and(|answer| waiting.send(answer).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::answer::Done;

    #[tokio::test]
    async fn an_answer_finds_who_waits_and_nobody_else() {
        let replies = Replies::default();
        let mut waiting = replies.wait();
        let done = Answer::Done(Done { cell: 3, result: serde_json::Map::new() });
        let text = format!(r#"{{"number":"{}","answer":{}}}"#, waiting.number, done.text());
        assert!(replies.answered(&text));
        assert_eq!((&mut waiting.answer).await.unwrap(), done);
        assert!(!replies.answered(&text), "answered once");
        assert!(!replies.answered("{}"), "no answer at all");
        let number = replies.wait().number;
        assert!(replies.lock().get(&number).is_none(), "who gave up is forgotten");
    }
}
