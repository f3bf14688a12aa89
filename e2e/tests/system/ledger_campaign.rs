//! Commands in many rooms while instances, Redis and the database are killed again and again: every acknowledged one
//! is in the ledger once, and the receiver of events was told of everything. A program that knows none of the
//! product's code compares the tables with what callers and the receiver wrote down.
//!
//! `DAIS_CAMPAIGN_KILLS` (of each), `DAIS_CAMPAIGN_COMMANDS`, `DAIS_CAMPAIGN_DATABASE` (`sqlite`, `postgres` or `mysql`)
//! and `DAIS_CAMPAIGN_SEED` make another campaign of it.

mod load;
mod receiver;

use e2e::cluster::Cluster;
use e2e::coordinator::{Coordinator, CoordinatorOptions};
use e2e::databases::{Database, Kind};
use e2e::driver::Driver;
use e2e::process::Process;
use e2e::servers::{Flavor, Fsync, ServerOptions};
use e2e::streams;
use e2e::wait::{self, SOON};
use futures_util::future::join_all;
use key_prefix::LANES;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::callbacks_under_fire::{Chance, now_ms};
use load::{BackEnd, Concern, Load, Person};
use receiver::Receiver;

const HEARTBEAT: Duration = Duration::from_millis(500);
const INSTANCES: usize = 3;
const ROOMS: usize = 24;
/// Until so many commands more are acknowledged, or all that was archived is delivered.
const PATIENCE: Duration = Duration::from_secs(180);
/// Entries that may wait in all lanes before more is killed: on a slow machine nothing would get on between kills.
const BACKLOG: i64 = 3_000;
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// The system, and everybody who uses it.
struct Campaign {
    cluster: Cluster,
    database: Database,
    _receiver: Receiver,
    load: Arc<Load>,
    callers: Vec<JoinHandle<()>>,
    chance: Chance,
    seed: u64,
    folder: TempDir,
}

/// What can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Instance,
    Redis,
    Database,
}

/// A number or a word that the environment gives, or this.
fn given<T: FromStr>(name: &str, otherwise: T) -> T {
    env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

impl Campaign {
    async fn begin(kind: Kind) -> Self {
        let seed = given("DAIS_CAMPAIGN_SEED", now_ms()) | 1;
        let mut chance = Chance::new(seed);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let journals = folder.path().join("journals");
        fs::create_dir(&journals).expect("an own folder");
        let database = Database::durable(kind).await;
        let receiver = Receiver::start(&folder.path().join("received.jsonl"), chance.another()).await;
        let redis = ServerOptions::new(Flavor::Redis).aof(Some(Fsync::Always)).start().await;
        let sink = format!(
            "[[app.sinks]]\nname = \"fire\"\nurl = \"{}\"\nsecrets = [\"{SECRET}\"]\ntimeout_ms = 1000\n",
            receiver.url()
        );
        let change = |options: CoordinatorOptions| {
            options
                .heartbeat(HEARTBEAT)
                .grace(Duration::from_secs(5))
                .text("ledger", "url", &database.url)
                .value("ledger", "batch", 500)
                .value("app", "publish_deadline_ms", 120_000)
                .value("limits", "events_per_second", 100_000)
                .value("limits", "events_burst", 100_000)
                .value("limits", "joins_per_second", 10_000)
                .toml(&sink)
        };
        let cluster = Cluster::start_on(redis, INSTANCES, change).await;
        let load = Arc::new(Load::new(cluster.urls()));
        let driver = Arc::new(Driver::start().await);
        let mut callers = Vec::new();
        for room in 0..ROOMS {
            let room = format!("room-{room}");
            let mut back_ends =
                Concern::ALL.map(|concern| BackEnd::new(&load, &journals, &room, concern, chance.another()));
            back_ends[0].open().await;
            callers.extend(back_ends.map(|back_end| tokio::spawn(back_end.work())));
            callers.push(tokio::spawn(Person::new(&load, &driver, &journals, &room).work()));
        }
        Self { cluster, database, _receiver: receiver, load, callers, chance, seed, folder }
    }

    /// Waits until so many commands more are acknowledged.
    async fn acknowledges(&self, more: usize) {
        let enough = self.load.acknowledged() + more;
        wait::until("so many are acknowledged", PATIENCE, || async { self.load.acknowledged() >= enough })
            .await;
    }

    /// Kills each once, at moments within about so many commands, and brings them back.
    async fn round(&mut self, commands: usize) {
        let mut victims = vec![Victim::Instance, Victim::Redis];
        if self.database.server().is_some() {
            victims.push(Victim::Database);
        }
        self.chance.shuffle(&mut victims);
        let at = self.chance.below(INSTANCES);
        let part = commands / (victims.len() + 2) + 1;
        for victim in victims {
            let more = self.chance.below(part);
            self.acknowledges(more).await;
            match victim {
                Victim::Instance => self.cluster[at].kill().await,
                Victim::Database => self.database.kill().await,
                // Without it nothing is acknowledged: it is missed, and comes back.
                Victim::Redis => {
                    self.cluster.redis.kill().await;
                    let missed = self.load.refused() + self.chance.below(50);
                    let is_missed = || async { self.load.refused() >= missed };
                    wait::until("it is missed", PATIENCE, is_missed).await;
                    self.cluster.redis.repair();
                    self.cluster.redis.restart().await;
                }
            }
        }
        let more = self.chance.below(part);
        self.acknowledges(more).await;
        self.database.restart().await;
        self.cluster[at].restart().await;
        let keeps_up = || async {
            streams::waiting_in_lanes(&self.cluster.redis).await.is_some_and(|waiting| waiting < BACKLOG)
        };
        wait::until("the archivers keep up", PATIENCE, keeps_up).await;
    }

    /// Ends the load, and waits until everything that is in the lanes is in the ledger and everything that is in the
    /// outbox is delivered.
    async fn settle(&mut self) {
        self.load.end();
        for caller in join_all(std::mem::take(&mut self.callers)).await {
            caller.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        }
        wait::eventually(PATIENCE, || async {
            let waiting = streams::waiting_in_lanes(&self.cluster.redis).await.ok_or("Redis does not say")?;
            let mut ledger = self.database.connect().await.map_err(|error| error.to_string())?;
            let open = sqlx::query_scalar("SELECT COUNT(*) FROM outbox WHERE open = 1");
            let open: i64 = open.fetch_one(&mut ledger).await.map_err(|error| error.to_string())?;
            let left = (waiting, open);
            if left == (0, 0) { Ok(()) } else { Err(format!("in lanes and open: {left:?}")) }
        })
        .await;
    }

    /// Has the independent program compare it all. Returns what it said.
    async fn check(&self) -> Vec<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ledger_check"));
        command.arg(&self.database.url);
        command.args(["journals", "received.jsonl"].map(|name| self.folder.path().join(name)));
        let checker = Process::start("ledger_check", command);
        let is_clean = checker.exit(PATIENCE).await.success();
        let last = |line: &str| line.starts_with("contradictions: ").then_some(());
        checker.line("count of contradictions", 0, SOON, last).await;
        let said = checker.log_lines();
        assert!(is_clean, "seed {}: {}", self.seed, said.join("\n"));
        said
    }
}

#[tokio::test]
async fn i_14_i_15_what_is_acknowledged_is_archived_and_told_once_whatever_is_killed() {
    let kind = Kind::named(&given("DAIS_CAMPAIGN_DATABASE", "postgres".to_owned()));
    let kills: usize = given("DAIS_CAMPAIGN_KILLS", 20);
    let commands: usize = given("DAIS_CAMPAIGN_COMMANDS", 10_000);
    let mut campaign = Campaign::begin(kind).await;
    println!("seed {}", campaign.seed);
    let begun = Instant::now();
    for round in 0..kills {
        let left = commands.saturating_sub(campaign.load.acknowledged()) / (kills - round);
        campaign.round(left).await;
    }
    let left = commands.saturating_sub(campaign.load.acknowledged());
    campaign.acknowledges(left).await;
    let loaded = begun.elapsed();
    campaign.settle().await;
    println!(
        "{kills} kills of each; {} acknowledged, {} tries failed; load {loaded:?}, settled after {:?}",
        campaign.load.acknowledged(),
        campaign.load.refused(),
        begun.elapsed()
    );
    let said = campaign.check().await;
    println!("{}\nchecked after {:?}", said.join("\n"), begun.elapsed());
}

#[tokio::test]
async fn i_14_an_archiver_that_stalls_past_its_leases_archives_nothing_more() {
    let mut campaign = Campaign::begin(Kind::Postgres).await;
    for at in 0..INSTANCES {
        campaign.acknowledges(100).await;
        let stalled = &campaign.cluster[at];
        let holds = || async { stalled.metrics().await.sum("dais_lanes_held", &[]) > 0.0 };
        wait::until("it holds lanes", SOON, holds).await;
        let told = || async {
            let metrics = stalled.metrics().await;
            let told = ["fenced_lanes", "lost_lanes"];
            told.iter().map(|what| metrics.sum("dais_archived_total", &[("what", *what)])).sum::<f64>()
        };
        let before = told().await;
        stalled.pause();
        let others = || async {
            let others = (0..INSTANCES).filter(|other| *other != at).map(|other| &campaign.cluster[other]);
            let held = join_all(others.map(Coordinator::metrics)).await;
            held.iter().map(|metrics| metrics.sum("dais_lanes_held", &[])).sum::<f64>()
        };
        wait::until("the others hold every lane", SOON, || async { others().await >= f64::from(LANES) })
            .await;
        campaign.acknowledges(200).await;
        stalled.resume();
        wait::until("it is told that its lanes are others'", SOON, || async { told().await > before }).await;
    }
    campaign.settle().await;
    campaign.check().await;
}
