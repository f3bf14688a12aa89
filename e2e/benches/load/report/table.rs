//! Lowest, median and highest of each figure, and the comparison by pairs.

use super::columns::{COLUMNS, Column};
use super::{Report, Run};
use crate::figures::Figures;
use crate::server::Kind;

/// The columns of which ratios are told.
const COMPARED: [&str; 8] = [
    "CPU us/op",
    "Redis us/op",
    "op/s",
    "p50 ms",
    "p99 ms",
    "delivery p50 ms",
    "delivery p99 ms",
    "RSS KiB/op",
];
/// Figures in one line.
const IN_LINE: usize = 5;

impl Report {
    /// Prints what was measured, and below it the ratios where two servers were.
    #[expect(clippy::print_stdout, reason = "the table is what the bench is run for")]
    pub(crate) fn print(&self) {
        if self.left_out > 0 {
            println!("out of time: {} measurements of further rounds are left out", self.left_out);
        }
        println!("median (lowest-highest)");
        for (name, (unit, values)) in &self.limits.all {
            println!("{name} {} {unit}", shown(spread(values.clone()), 1));
        }
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.name.as_str()) {
                names.push(&run.name);
            }
        }
        for name in &names {
            for kind in [Kind::Dais, Kind::Peer] {
                let own: Vec<&Run> = self.of(name, kind).collect();
                if !own.is_empty() {
                    println!("\n{name} {}", kind.name());
                    lines(&own).iter().for_each(|line| println!("    {line}"));
                }
            }
            let ratios = self.ratios(name);
            if !ratios.is_empty() {
                println!("  dais / peer, by pairs");
                ratios.chunks(IN_LINE).for_each(|line| println!("    {}", line.join("   ")));
            }
        }
    }

    fn of<'a>(&'a self, name: &'a str, kind: Kind) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.name == name && run.kind == kind)
    }

    fn ratios(&self, name: &str) -> Vec<String> {
        let compared = COLUMNS.iter().filter(|(column, _, _)| COMPARED.contains(column));
        let told = compared.filter_map(|(column, _, figure)| {
            let all = spread(self.pairs(name, *figure));
            all[1].is_finite().then(|| format!("{column} {}", shown(all, 2)))
        });
        told.collect()
    }

    /// The ratio of each round in which both were measured.
    fn pairs(&self, name: &str, figure: fn(&Figures) -> f64) -> Vec<f64> {
        let dais = self.of(name, Kind::Dais);
        dais.filter_map(|dais| {
            let peer = self.of(name, Kind::Peer).find(|peer| peer.round == dais.round)?;
            Some(figure(&dais.figures) / figure(&peer.figures))
        })
        .collect()
    }
}

fn lines(runs: &[&Run]) -> Vec<String> {
    let told = |(name, digits, figure): &Column| {
        let all = spread(runs.iter().map(|run| figure(&run.figures)).collect());
        all[1].is_finite().then(|| format!("{name} {}", shown(all, *digits)))
    };
    let cells: Vec<String> = COLUMNS.iter().filter_map(told).collect();
    cells.chunks(IN_LINE).map(|line| line.join("   ")).collect()
}

fn shown([lowest, median, highest]: [f64; 3], digits: usize) -> String {
    if lowest.total_cmp(&highest).is_eq() {
        return format!("{median:.digits$}");
    }
    format!("{median:.digits$} ({lowest:.digits$}-{highest:.digits$})")
}

/// Lowest, median, highest.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |rank: usize| values.get(rank).copied().unwrap_or(f64::NAN);
    let last = values.len().saturating_sub(1);
    [at(0), f64::midpoint(at(last / 2), at(last.div_ceil(2))), at(last)]
}
