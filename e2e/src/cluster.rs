//! Several coordinators on one Redis.

use std::ops::{Index, IndexMut};

use crate::coordinator::{Coordinator, CoordinatorOptions};
use crate::servers::{Flavor, RedisServer};
use crate::token::Token;

/// Coordinators `a`, `b`, `c`, …; `cluster[0]` is `a`.
#[derive(Debug)]
pub struct Cluster {
    /// The running ones and those that a test has killed.
    pub coordinators: Vec<Coordinator>,
    /// Their Redis; ends after them.
    pub redis: RedisServer,
}

impl Cluster {
    /// So many on a Redis 7.
    pub async fn start(count: usize) -> Self {
        Self::start_with(count, |options| options).await
    }

    /// So many on a Redis 7, each with its options changed.
    pub async fn start_with(count: usize, change: impl Fn(CoordinatorOptions) -> CoordinatorOptions) -> Self {
        Self::start_on(RedisServer::start(Flavor::Redis).await, count, change).await
    }

    /// So many on this Redis. They start at once.
    pub async fn start_on(
        redis: RedisServer,
        count: usize,
        change: impl Fn(CoordinatorOptions) -> CoordinatorOptions,
    ) -> Self {
        let options = (0..count).map(|at| change(CoordinatorOptions::new(&name(at), &redis.url())));
        let starting: Vec<_> = options.map(CoordinatorOptions::launch).collect();
        let mut coordinators = Vec::with_capacity(count);
        for each in starting {
            let coordinator = each.listening().await;
            coordinator.ready().await;
            coordinators.push(coordinator);
        }
        Self { coordinators, redis }
    }

    /// Starts one more.
    pub async fn add(
        &mut self,
        change: impl FnOnce(CoordinatorOptions) -> CoordinatorOptions,
    ) -> &Coordinator {
        let options = change(CoordinatorOptions::new(&name(self.coordinators.len()), &self.redis.url()));
        let started = options.start().await;
        self.coordinators.push(started);
        &self.coordinators[self.coordinators.len() - 1]
    }

    /// Their URLs.
    pub fn urls(&self) -> Vec<String> {
        self.coordinators.iter().map(Coordinator::url).collect()
    }

    /// The one of this id.
    pub fn named(&self, id: &str) -> &Coordinator {
        self.coordinators.iter().find(|each| each.id() == id).unwrap_or_else(|| panic!("no coordinator {id}"))
    }

    /// A good token for a user of the app `demo`.
    pub fn token(&self, user: &str, role: &str) -> String {
        Token::new(user, role).sign()
    }
}

impl Index<usize> for Cluster {
    type Output = Coordinator;
    fn index(&self, at: usize) -> &Coordinator {
        &self.coordinators[at]
    }
}

impl IndexMut<usize> for Cluster {
    fn index_mut(&mut self, at: usize) -> &mut Coordinator {
        &mut self.coordinators[at]
    }
}

fn name(at: usize) -> String {
    const LETTERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    LETTERS.get(at).map_or_else(|| format!("n{at}"), |letter| (*letter).to_owned())
}
