//! How many entries a second the ledger takes in: 200 rooms in 8 lanes, bodies of 300 bytes, in batches of 1, 100
//! and 1,000 entries. `cargo bench -p ledger`, with `sqlite`, `postgres` or `mysql` as arguments for some of them only.
//! Servers bring each transaction to disk, as they would where it counts.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use e2e::databases::{Database, Kind};
use key_prefix::{AppCode, RoomId, RoomKey};
use ledger::{
    Change, Claimed, Entry, Filter, LaneBatch, LaneOutcome, Ledger, Options, Subscription, Subscriptions,
};
use redis_scripts::{CellVersion, FenceToken, RedisMillis};

const ROOMS: usize = 200;
const LANES: usize = 8;
const BODY_BYTES: usize = 300;
const FOR: Duration = Duration::from_secs(4);

fn main() {
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut out = std::io::stdout();
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::Mysql] {
        let name = format!("{kind:?}").to_lowercase();
        if !chosen.is_empty() && !chosen.contains(&name) {
            continue;
        }
        for told in [false, true] {
            for batch in [1, 100, 1000] {
                let (rate, each) = runtime.block_on(measure(kind, batch, told));
                let events = if told { "an event for one sink each" } else { "no events" };
                writeln!(
                    out,
                    "{name:9} batches of {batch:4}, {events:26}: {rate:8.0} entries/s, {each:6.1} ms a batch"
                )
                .expect("somebody reads");
            }
        }
    }
}

async fn measure(kind: Kind, batch: usize, told: bool) -> (f64, f64) {
    let database = Database::durable(kind).await;
    let options = Options { deadline: Duration::from_secs(60), ..Options::default() };
    let ledger = Ledger::open(&database.url, &options).await.expect("a ledger");
    let subscription = Subscription { sink: "hook".into(), ordered: true, wants: Filter::all() };
    let subscriptions: Subscriptions =
        told.then(|| ("school".to_owned(), subscription)).into_iter().collect();
    let mut rooms = Rooms::new();
    let mut standing = BTreeMap::new();
    let (mut entries, mut batches) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < FOR {
        let mut by_lane: BTreeMap<u16, Vec<Entry>> = BTreeMap::new();
        for _ in 0..batch {
            let entry = rooms.next(told);
            by_lane.entry(key_prefix::lane_of(entry.room.route())).or_default().push(entry);
        }
        let token = FenceToken::new(1);
        let mut lanes = Vec::new();
        for (lane, entries) in by_lane {
            if let std::collections::btree_map::Entry::Vacant(unclaimed) = standing.entry(lane) {
                let claimed = ledger.claim_lane(lane, token, RedisMillis::new(1)).await.expect("a ledger");
                let Claimed::Ok { batches } = claimed else { panic!("{claimed:?}") };
                unclaimed.insert(batches);
            }
            lanes.push(LaneBatch { lane, token, batches: standing[&lane], entries, poison: Vec::new() });
        }
        let outcomes = ledger.archive(&lanes, &subscriptions, RedisMillis::new(1)).await.expect("a ledger");
        for (lane, outcome) in lanes.iter().zip(outcomes) {
            let LaneOutcome::Archived(archived) = outcome else { panic!("{outcome:?}") };
            standing.insert(lane.lane, archived.batches);
            entries += archived.written;
        }
        batches += 1;
    }
    let took = begun.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    (entries as f64 / took, took * 1000.0 / f64::from(batches))
}

/// Rooms of which one after the other commits something.
struct Rooms {
    rooms: Vec<(RoomKey, u64)>,
    turn: usize,
}

impl Rooms {
    fn new() -> Self {
        let all = (0..).map(|number| {
            let id = RoomId::new(&format!("room {number}")).expect("an id");
            RoomKey::new(AppCode::new("school").expect("a code"), id)
        });
        let in_few_lanes = all.filter(|room| usize::from(key_prefix::lane_of(room.route())) < LANES);
        Self { rooms: in_few_lanes.take(ROOMS).map(|room| (room, 0)).collect(), turn: 0 }
    }

    fn next(&mut self, told: bool) -> Entry {
        let at = self.turn % self.rooms.len();
        self.turn += 1;
        let (room, cv) = &mut self.rooms[at];
        *cv += 1;
        let event = match (told, *cv % 2) {
            (true, 1) => r#"{"event":"banned","user":"ann","ban":{"at":1}}"#,
            (true, _) => r#"{"event":"unbanned","user":"ann"}"#,
            (false, _) => r#"{"event":"door_locked","locked":true}"#,
        };
        let head =
            format!(r#"{{"id":"command-{cv}","actor":{{"kind":"backend"}},"events":[{event}],"command":""#);
        let filling = BODY_BYTES.saturating_sub(head.len() + 2);
        Entry {
            entry: format!("{}-0", self.turn),
            room: room.clone(),
            change: Change::Cell { cv: CellVersion::new(*cv) },
            token: FenceToken::new(1),
            owner: "coordinator-1/1700000000000".to_owned(),
            at: RedisMillis::new(1_700_000_000_000),
            body: format!("{head}{}\"}}", "x".repeat(filling)),
            answer: None,
        }
    }
}
