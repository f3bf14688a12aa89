//! Every metric, defined once. Label values are bounded; room and user ids are never labels.

use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};
use std::time::Duration;

/// All metrics of an instance, prefixed `dais_`.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    /// Rooms in memory.
    pub rooms: IntGauge,
    /// Peers of rooms in memory.
    pub peers: IntGauge,
    /// Open Socket.IO connections.
    pub sockets: IntGauge,
    /// Joins by result: an error code, or `ok`, `resumed`.
    pub joins: IntCounterVec,
    /// Requests by event and result.
    pub requests: IntCounterVec,
    /// Rooms whose lease was lost, by how: `taken`, `fenced`, `unowned`.
    pub lease_losses: IntCounterVec,
    /// Rooms taken over from an earlier owner.
    pub takeovers: IntCounter,
    /// Commands of rooms, by command and result: an error code, or `ok`, `repeated`.
    pub commands: IntCounterVec,
    /// Commits that Redis acknowledged.
    pub commits: IntCounter,
    /// Commands in one commit.
    pub commit_commands: Histogram,
    /// Inbox entries that could not be executed.
    pub inbox_aside: IntCounter,
    /// Rooms whose lease was not renewed because their actor hung.
    pub hung_rooms: IntCounter,
    /// Answers that came for nobody: whoever asked had given up.
    pub replies_unclaimed: IntCounter,
    /// Rooms taken because something in them was due and nobody had them.
    pub adoptions: IntCounter,
    /// Rooms written anew from memory because Redis lost data.
    pub restored: IntCounter,
    /// Rooms made anew from the ledger, by why: `absent`, `behind` or `damaged` in Redis.
    pub recovered: IntCounterVec,
    /// Lanes that this instance archives.
    pub lanes_held: IntGauge,
    /// Entries that wait in a lane, by lane.
    pub lane_length: IntGaugeVec,
    /// Seconds that the oldest entry of a lane has waited, by lane.
    pub lane_lag_seconds: GaugeVec,
    /// Seconds from a commit to its place in the ledger.
    pub archive_lag_seconds: Histogram,
    /// Entries that the ledger took, by what became of them, and what went wrong on the way.
    pub archived: IntCounterVec,
    /// 1 while the ledger answers the archiver.
    pub ledger_up: IntGauge,
    /// Tries to deliver an event, by sink and result.
    pub deliveries: IntCounterVec,
    /// Seconds from what happened to its delivery.
    pub delivery_seconds: Histogram,
    /// Events of the outbox, by sink and state: `open`, `failed`.
    pub outbox_events: IntGaugeVec,
    /// Seconds that the oldest open event of a sink has waited, by sink.
    pub outbox_age_seconds: GaugeVec,
    /// Seconds that a script call took, by script.
    pub script_seconds: HistogramVec,
    /// `router-sync` messages by what became of them.
    pub router_sync: IntCounterVec,
    /// Fanout messages by what became of them.
    pub fanout: IntCounterVec,
    /// Deliveries that were skipped, by reason.
    pub skipped: IntCounterVec,
    /// Heartbeats by result.
    pub heartbeats: IntCounterVec,
    /// Joins refused by the admission limit.
    pub admissions_refused: IntCounter,
    /// Events of media servers, by kind.
    pub media_events: IntCounterVec,
    /// Calls of external media servers, by call and result.
    pub media_calls: IntCounterVec,
    /// Comparisons with media servers' lists, and what they found.
    pub reconciled: IntCounterVec,
    /// Events of callbacks, by vendor and what became of them.
    pub rtc_callbacks: IntCounterVec,
    /// What the reaper's leader did, by action.
    pub reaper: IntCounterVec,
    /// 1 while ready.
    pub ready: IntGauge,
}

impl Metrics {
    /// A registry with every metric at zero.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new_custom(Some("dais".to_owned()), None)?;
        let gauge = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let counters =
            |name: &str, help: &str, labels: &[&str]| -> Result<IntCounterVec, prometheus::Error> {
                let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
                registry.register(Box::new(counters.clone()))?;
                Ok(counters)
            };
        let script_seconds = HistogramVec::new(
            HistogramOpts::new("script_seconds", "seconds that a script call took").buckets(vec![
                0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
            ]),
            &["script"],
        )?;
        registry.register(Box::new(script_seconds.clone()))?;
        let commit_commands = Histogram::with_opts(
            HistogramOpts::new("commit_commands", "commands in one commit")
                .buckets(vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]),
        )?;
        registry.register(Box::new(commit_commands.clone()))?;
        let lane_length =
            IntGaugeVec::new(Opts::new("lane_entries", "entries that wait in a lane"), &["lane"])?;
        registry.register(Box::new(lane_length.clone()))?;
        let lane_lag_seconds =
            GaugeVec::new(Opts::new("lane_lag_seconds", "age of the oldest entry of a lane"), &["lane"])?;
        registry.register(Box::new(lane_lag_seconds.clone()))?;
        let archive_lag_seconds = Histogram::with_opts(
            HistogramOpts::new("archive_lag_seconds", "seconds from a commit to its place in the ledger")
                .buckets(vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0]),
        )?;
        registry.register(Box::new(archive_lag_seconds.clone()))?;
        let delivery_seconds = Histogram::with_opts(
            HistogramOpts::new("delivery_seconds", "seconds from what happened to its delivery")
                .buckets(vec![0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 600.0, 3600.0]),
        )?;
        registry.register(Box::new(delivery_seconds.clone()))?;
        let outbox_events = IntGaugeVec::new(
            Opts::new("outbox_events", "events of the outbox that wait or were given up"),
            &["sink", "state"],
        )?;
        registry.register(Box::new(outbox_events.clone()))?;
        let outbox_age_seconds =
            GaugeVec::new(Opts::new("outbox_age_seconds", "age of a sink's oldest open event"), &["sink"])?;
        registry.register(Box::new(outbox_age_seconds.clone()))?;
        let ledger_up = gauge("ledger_up", "1 while the ledger answers the archiver")?;
        ledger_up.set(1);
        Ok(Self {
            recovered: counters(
                "rooms_recovered_total",
                "rooms made anew from the ledger, by what Redis had of them",
                &["cause"],
            )?,
            lanes_held: gauge("lanes_held", "lanes that this instance archives")?,
            lane_length,
            lane_lag_seconds,
            archive_lag_seconds,
            archived: counters(
                "archived_total",
                "entries that the ledger took, and what went wrong on the way",
                &["what"],
            )?,
            ledger_up,
            deliveries: counters(
                "deliveries_total",
                "tries to deliver an event by sink and result",
                &["sink", "result"],
            )?,
            delivery_seconds,
            outbox_events,
            outbox_age_seconds,
            rooms: gauge("rooms", "rooms in memory")?,
            peers: gauge("peers", "peers of rooms in memory")?,
            sockets: gauge("sockets", "open Socket.IO connections")?,
            joins: counters("joins_total", "joins by result", &["result"])?,
            requests: counters("requests_total", "requests by event and result", &["event", "result"])?,
            lease_losses: counters("lease_losses_total", "rooms whose lease was lost", &["how"])?,
            takeovers: counter("takeovers_total", "rooms taken over from an earlier owner")?,
            commands: counters("commands_total", "commands of rooms", &["command", "result"])?,
            commits: counter("commits_total", "commits that Redis acknowledged")?,
            commit_commands,
            inbox_aside: counter("inbox_aside_total", "inbox entries that could not be executed")?,
            hung_rooms: counter("hung_rooms_total", "rooms not renewed because their actor hung")?,
            replies_unclaimed: counter("replies_unclaimed_total", "answers for nobody")?,
            adoptions: counter("adoptions_total", "unowned rooms taken because something was due")?,
            restored: counter("rooms_restored_total", "rooms written anew because Redis lost data")?,
            script_seconds,
            router_sync: counters(
                "router_sync_total",
                "router-sync messages by what became of them",
                &["outcome"],
            )?,
            fanout: counters("fanout_total", "fanout messages by what became of them", &["outcome"])?,
            skipped: counters("skipped_total", "deliveries skipped, by reason", &["reason"])?,
            heartbeats: counters("heartbeats_total", "heartbeats by result", &["result"])?,
            admissions_refused: counter("admissions_refused_total", "joins refused by the admission limit")?,
            media_events: counters("media_events_total", "events of media servers", &["kind"])?,
            media_calls: counters(
                "media_calls_total",
                "calls of external media servers by result",
                &["call", "result"],
            )?,
            reconciled: counters(
                "reconciled_total",
                "rooms compared with their media server's list, and what was found wrong",
                &["what"],
            )?,
            rtc_callbacks: counters(
                "rtc_callbacks_total",
                "events of callbacks by vendor and what became of them",
                &["vendor", "result"],
            )?,
            reaper: counters("reaper_total", "what the reaper's leader did", &["action"])?,
            ready: gauge("ready", "1 while ready")?,
            registry,
        })
    }

    /// Notes how long a script call took.
    pub fn script_took(&self, script: &'static str, took: Duration) {
        self.script_seconds.with_label_values(&[script]).observe(took.as_secs_f64());
    }

    /// The text exposition.
    pub fn exposition(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut out) {
            tracing::error!(error = &error as &dyn std::error::Error, "metrics cannot be encoded");
        }
        out
    }
}
