//! What is to be told to all sessions of users, at whatever instance they are: one after another, so that what
//! happened later is told later, and in a bounded queue, so that a slow Redis costs no memory.

use prometheus::IntCounterVec;
use redis_scripts::Notify;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

use crate::node::Node;
use crate::paths::{Class as _, Control};

/// Notices that may wait to be told; the newest are dropped, and counted.
const QUEUE: usize = 4_096;

/// Something to be told to all sessions of users.
#[derive(Debug)]
pub struct Notice {
    /// The app.
    pub app: String,
    /// To whom.
    pub users: Vec<Arc<str>>,
    /// What.
    pub class: Control,
    /// Its body, as JSON.
    pub body: String,
    /// The connection that knows already.
    pub except: Option<String>,
}

/// The queue of notices.
#[derive(Debug)]
pub struct Notices {
    sender: mpsc::Sender<Notice>,
    receiver: Mutex<Option<mpsc::Receiver<Notice>>>,
    skipped: IntCounterVec,
}

impl Notices {
    /// An empty queue.
    pub fn new(skipped: IntCounterVec) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        Self { sender, receiver: Mutex::new(Some(receiver)), skipped }
    }

    /// Queues a notice; never waits.
    pub fn post(&self, notice: Notice) {
        if self.sender.try_send(notice).is_err() {
            self.skipped.with_label_values(&["notices_full"]).inc();
        }
    }
}

/// Tells what is queued, until the instance ends.
pub async fn deliver(node: Arc<Node>) {
    let taken = node.notices.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut notices) = taken else { return };
    loop {
        let notice = tokio::select! {
            () = node.ending.cancelled() => return,
            notice = notices.recv() => notice,
        };
        let Some(Notice { app, users, class, body, except }) = notice else { return };
        let users: Vec<&str> = users.iter().map(|user| &**user).collect();
        let store = &node.store;
        let with =
            Notify { app: &app, users: &users, event: class.name(), body: &body, except: except.as_deref() };
        if let Err(error) = store.timed("notify", store.scripts.notify(&store.keys, with)).await {
            tracing::warn!(error = &error as &dyn std::error::Error, ?class, "sessions were not told");
        }
    }
}
