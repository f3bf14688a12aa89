//! Events on their way out.

mod claims;
mod dispatching;
mod hands;
mod letters;
mod many;
mod outage;

use ledger::outbox::{Claim, Claimed, Recorded, Tried, TryResult};
use redis_scripts::RedisMillis;
use serde_json::{Value, json};

use super::life::{Life, START};
use super::world::World;

/// An ordered sink, and one without order.
const HOOK: &str = "hook";
const TAP: &str = "tap";

const fn at(ms: u64) -> RedisMillis {
    RedisMillis::new(START + ms)
}

/// A ledger, and rooms of which something is told.
struct Outside {
    world: World,
    rooms: Vec<Life>,
    claims: u64,
}

impl Outside {
    /// Rooms without history: they begin with what is told of them.
    async fn new(rooms: usize) -> Self {
        Self::on(World::new().await, rooms)
    }

    fn on(world: World, rooms: usize) -> Self {
        let rooms = (0..rooms).map(|n| Life::new(&format!("room {n}"), n as u64)).collect();
        Self { world, rooms, claims: 0 }
    }

    /// Each of some rooms has so many events more, for each sink.
    async fn happens(&mut self, rooms: std::ops::Range<usize>, events: usize) {
        let mut entries = Vec::new();
        for life in &mut self.rooms[rooms] {
            let before = life.entries.len();
            for n in 0..events {
                life.settings(&json!({ "custom": { "level": before + n } }));
            }
            entries.extend_from_slice(&life.entries[before..]);
        }
        self.world.archiver.feeds(&entries).await;
    }

    /// Claims until a time.
    async fn claims(&mut self, sink: &str, now: u64, until: u64, limit: usize) -> Vec<Claimed> {
        self.claims += 1;
        let id = format!("claim {}", self.claims);
        let claim = Claim { sink, id: &id, now: at(now), until: at(until), limit };
        self.world.ledger.outbox_claim(claim).await.expect("a ledger")
    }

    async fn records(&self, sink: &str, now: u64, claimed: &Claimed, result: TryResult) -> Recorded {
        let tried = Tried { claimed: claimed.clone(), result };
        let recorded = self.world.ledger.outbox_record(sink, &[tried], at(now)).await.expect("a ledger");
        recorded[0]
    }
}

/// The room and the version that an event tells of.
fn told(payload: &str) -> (String, u64) {
    let payload: Value = serde_json::from_str(payload).expect("JSON");
    let room = payload["data"]["room"].as_str().expect("a room").to_owned();
    (room, payload["data"]["version"]["settings"].as_u64().expect("a version"))
}

fn versions(claimed: &[Claimed]) -> Vec<(String, u64)> {
    let mut versions: Vec<_> = claimed.iter().map(|it| told(&it.payload)).collect();
    versions.sort();
    versions
}
