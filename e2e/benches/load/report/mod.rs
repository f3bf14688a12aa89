//! What is told of a run: progress, a table, and the file.

mod columns;
mod progress;
mod table;

pub(crate) use progress::Progress;

use serde_json::{Map, Value, json};
use std::fs;
use std::path::PathBuf;

use crate::figures::Figures;
use crate::limits::Limits;
use crate::server::Kind;
use crate::workloads::Size;
use columns::COLUMNS;

/// One measurement.
#[derive(Debug)]
pub(crate) struct Run {
    /// Counted from 0; the runs of a round and a workload followed each other.
    pub(crate) round: usize,
    pub(crate) kind: Kind,
    /// Of the workload, or of a part of it.
    pub(crate) name: String,
    pub(crate) figures: Figures,
}

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) machine: Value,
    pub(crate) size: Size,
    pub(crate) rounds: usize,
    pub(crate) limits: Limits,
    pub(crate) runs: Vec<Run>,
    /// What went wrong.
    pub(crate) failures: Vec<String>,
    /// Measurements of further rounds for which there was no time.
    pub(crate) left_out: usize,
}

impl Report {
    /// Adds what a workload, or each of its parts, cost.
    pub(crate) fn add(&mut self, round: usize, workload: &str, kind: Kind, parts: Vec<Figures>) {
        for mut figures in parts {
            let name = figures.part.take().unwrap_or_else(|| workload.to_owned());
            figures.limit = self.limits.of(&name);
            self.runs.push(Run { round, kind, name, figures });
        }
    }

    /// Writes every run to `bench/load.json` of the target folder.
    #[expect(clippy::print_stdout, reason = "the bench is a command")]
    pub(crate) fn save(&self) {
        let target =
            e2e::place::profile().parent().map_or_else(|| PathBuf::from("target"), ToOwned::to_owned);
        let folder = target.join("bench");
        let file = folder.join("load.json");
        let text = format!("{:#}\n", self.as_json());
        match fs::create_dir_all(&folder).and_then(|()| fs::write(&file, text)) {
            Ok(()) => println!("\nevery run: {}", file.display()),
            Err(error) => println!("\n{} cannot be written: {error}", file.display()),
        }
    }

    fn as_json(&self) -> Value {
        let limits = self.limits.all.iter();
        let limits: Vec<Value> = limits
            .map(|(name, (unit, values))| json!({ "name": name, "unit": unit, "values": values }))
            .collect();
        json!({
            "machine": self.machine,
            "mode": if self.size == Size::Full { "full" } else { "quick" },
            "rounds": self.rounds,
            "limits": limits,
            "leftOut": self.left_out,
            "failures": self.failures,
            "runs": self.runs.iter().map(Run::as_json).collect::<Vec<_>>(),
        })
    }
}

impl Run {
    fn as_json(&self) -> Value {
        let Self { round, kind, name, figures } = self;
        // What does not exist is no number, which is written as null.
        let columns: Map<String, Value> =
            COLUMNS.iter().map(|(name, _, figure)| ((*name).to_owned(), json!(figure(figures)))).collect();
        json!({
            "workload": name,
            "server": kind.name(),
            "round": round + 1,
            "operations": figures.operations,
            "wallMs": figures.wall.as_secs_f64() * 1e3,
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
}
