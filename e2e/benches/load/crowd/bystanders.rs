//! People who join rooms of their own while something else goes on.

use futures_util::future::join_all;
use serde_json::json;
use std::cell::Cell;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

use super::{connect, tokens};
use crate::client::Client;

/// So few that none waits for another.
const COUNT: usize = 8;
/// Each joins once in this time: less than what the machine can do, so that a wait has a reason.
const EVERY: Duration = Duration::from_millis(10);

/// People at one instance, who have joined nothing so far.
pub(crate) struct Bystanders {
    name: String,
    clients: Vec<Client>,
}

impl Bystanders {
    /// Connects them.
    pub(crate) async fn at(address: &str, name: &str) -> Self {
        Self { name: name.to_owned(), clients: connect(address, &tokens(name, COUNT)).await }
    }

    /// Each joins one new room after the other, and leaves it again, while `work` is done. Returns how long each join
    /// waited, beside what came of the work.
    pub(crate) async fn join_while<T>(&self, work: impl Future<Output = T>) -> (Vec<Duration>, T) {
        let ended = Cell::new(false);
        let joining = join_all(self.clients.iter().enumerate().map(|(at, client)| {
            let ended = &ended;
            async move {
                let (mut took, mut ticks) = (Vec::new(), interval(EVERY));
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while !ended.get() {
                    ticks.tick().await;
                    let room = format!("{}-{at}-{}", self.name, took.len());
                    let body = json!({ "room": room, "role": "host" });
                    took.push(client.insist("room:join", &body).await);
                    client.insist("room:leave", &body).await;
                }
                took
            }
        }));
        let working = async {
            let done = work.await;
            ended.set(true);
            done
        };
        let (took, done) = tokio::join!(joining, working);
        (took.concat(), done)
    }

    /// The connections.
    pub(crate) fn clients(&self) -> &[Client] {
        &self.clients
    }
}
