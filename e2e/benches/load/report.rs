//! The table, the comparison by pairs, and the file.

use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::figures::Figures;
use crate::server::Kind;
use crate::workload::Workload;

/// One measurement.
#[derive(Debug)]
pub(crate) struct Run {
    /// Counted from 0; the runs of a round and a workload followed each other.
    pub(crate) round: usize,
    pub(crate) kind: Kind,
    pub(crate) workload: Workload,
    pub(crate) figures: Figures,
}

/// A column: its name, its digits after the point, its figure.
type Column = (&'static str, usize, fn(&Figures) -> f64);

const COLUMNS: [Column; 14] = [
    ("CPU us/op", 1, |it| it.each_us(it.server)),
    ("Redis us/op", 1, |it| it.each_us(it.redis)),
    ("scripts/op", 2, |it| it.each(it.scripts)),
    ("commands/op", 1, |it| it.each(it.commands.values().sum())),
    ("events/op", 1, |it| it.each(it.events)),
    ("commits/op", 2, |it| it.commits.commits / as_f64(it.operations)),
    ("batch", 1, |it| it.commits.batch()),
    ("op/s", 0, Figures::rate),
    ("p50 ms", 2, |it| it.ack_ms(500)),
    ("p99 ms", 2, |it| it.ack_ms(990)),
    ("max ms", 2, |it| it.ack_ms(1000)),
    ("RSS MiB", 0, |it| as_f64(it.resident.end) / 1024.0 / 1024.0),
    ("RSS KiB/op", 1, Figures::growth_kib),
    ("others %", 0, Figures::others_percent),
];

/// The columns of which ratios are told.
const COMPARED: [&str; 6] = ["CPU us/op", "Redis us/op", "op/s", "p50 ms", "p99 ms", "RSS KiB/op"];

impl Figures {
    fn each(&self, count: u64) -> f64 {
        as_f64(count) / as_f64(self.operations)
    }

    fn each_us(&self, sum: Duration) -> f64 {
        sum.as_secs_f64() * 1e6 / as_f64(self.operations)
    }

    fn rate(&self) -> f64 {
        as_f64(self.operations) / self.wall.as_secs_f64()
    }

    /// The wait that so many of a thousand requests did not exceed.
    fn ack_ms(&self, permille: usize) -> f64 {
        let rank = (self.acks.len() * permille).div_ceil(1000).max(1);
        self.acks.get(rank - 1).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }

    /// What the resident set grew by for each operation; after a rest, where there was one.
    fn growth_kib(&self) -> f64 {
        let end = self.resident.rested.unwrap_or(self.resident.end);
        as_f64(end.saturating_sub(self.resident.begin)) / 1024.0 / as_f64(self.operations)
    }

    /// What others took of one processor.
    fn others_percent(&self) -> f64 {
        self.others.as_secs_f64() / self.wall.as_secs_f64() * 100.0
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures of a bench are far below 2^52")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Tells on standard error that one measurement is done.
#[expect(clippy::print_stderr, reason = "the bench is a command")]
pub(crate) fn progress(run: &Run) {
    let Run { round, kind, workload, figures } = run;
    eprintln!(
        "round {}: {:11} {:5} {:8.1} us CPU/op",
        round + 1,
        workload.name(),
        kind.name(),
        figures.each_us(figures.server)
    );
}

/// Prints medians, and below them the ratios where two servers were measured.
#[expect(clippy::print_stdout, reason = "the table is what the bench is run for")]
pub(crate) fn table(workloads: &[Workload], runs: &[Run]) {
    let heads: Vec<_> = COLUMNS.iter().map(|(name, _, _)| format!("{name:>11}")).collect();
    println!("{:11} {:5} {}", "workload", "", heads.join(" "));
    for workload in workloads {
        for kind in [Kind::Dais, Kind::Peer] {
            let own: Vec<_> =
                runs.iter().filter(|run| run.workload == *workload && run.kind == kind).collect();
            if own.is_empty() {
                continue;
            }
            let cells = COLUMNS.map(|(_, digits, figure)| {
                let [_, median, _] = spread(own.iter().map(|run| figure(&run.figures)).collect());
                if median.is_nan() { format!("{:>11}", "-") } else { format!("{median:11.digits$}") }
            });
            println!("{:11} {:5} {}", workload.name(), kind.name(), cells.join(" "));
        }
    }
    if runs.iter().any(|run| run.kind == Kind::Peer) {
        println!("\nratio dais / peer, by pairs: median (lowest-highest)");
        for workload in workloads.iter().filter(|workload| workload.is_known_to(Kind::Peer)) {
            let compared = COLUMNS.iter().filter(|(name, _, _)| COMPARED.contains(name));
            let cells: Vec<_> = compared
                .map(|(name, _, figure)| {
                    let [lowest, median, highest] = spread(ratios(runs, *workload, *figure));
                    format!("{name} {median:.2} ({lowest:.2}-{highest:.2})")
                })
                .collect();
            println!("{:11} {}", workload.name(), cells.join("   "));
        }
    }
}

/// The ratio of each round in which both were measured.
fn ratios(runs: &[Run], workload: Workload, figure: fn(&Figures) -> f64) -> Vec<f64> {
    let of = |kind: Kind| runs.iter().filter(move |run| run.workload == workload && run.kind == kind);
    of(Kind::Dais)
        .filter_map(|dais| {
            let peer = of(Kind::Peer).find(|peer| peer.round == dais.round)?;
            Some(figure(&dais.figures) / figure(&peer.figures))
        })
        .collect()
}

/// Lowest, median, highest.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |rank: usize| values.get(rank).copied().unwrap_or(f64::NAN);
    let last = values.len().saturating_sub(1);
    [at(0), f64::midpoint(at(last / 2), at(last.div_ceil(2))), at(last)]
}

/// Writes every run to `bench/load.json` of the target folder.
#[expect(clippy::print_stdout, reason = "the bench is a command")]
pub(crate) fn save(runs: &[Run]) {
    let target = e2e::place::profile().parent().map_or_else(|| PathBuf::from("target"), ToOwned::to_owned);
    let folder = target.join("bench");
    let file = folder.join("load.json");
    let all: Vec<Value> = runs.iter().map(as_json).collect();
    let text = format!("{:#}\n", json!({ "runs": all }));
    match fs::create_dir_all(&folder).and_then(|()| fs::write(&file, text)) {
        Ok(()) => println!("\nevery run: {}", file.display()),
        Err(error) => println!("\n{} cannot be written: {error}", file.display()),
    }
}

fn as_json(run: &Run) -> Value {
    let Run { round, kind, workload, figures } = run;
    let columns: serde_json::Map<String, Value> =
        COLUMNS.iter().map(|(name, _, figure)| ((*name).to_owned(), json!(figure(figures)))).collect();
    json!({
        "workload": workload.name(),
        "server": kind.name(),
        "round": round + 1,
        "operations": figures.operations,
        "wallMs": figures.wall.as_secs_f64() * 1e3,
        "loadGeneratorUsPerOp": figures.each_us(figures.own),
        "figures": columns,
        "residentBytes": {
            "begin": figures.resident.begin, "end": figures.resident.end, "rested": figures.resident.rested,
        },
        "commits": {
            "commands": figures.commits.commands, "commits": figures.commits.commits,
            "sent": figures.commits.sent, "sizes": figures.commits.sizes,
        },
        "redisCommands": figures.commands,
    })
}
