//! How long an answer takes: half of them, all but one in a hundred, all but one in a thousand.

use std::fmt::Write as _;

use super::super::load::{Load, Server};
use super::super::plan::{WAITS, WITH_INSTANCES, WITH_ROOMS};
use super::super::spread::number;
use super::super::table::groups;
use super::{Chart, LEFT, WIDTH, class, decades, logarithmic};

const TOP: f64 = 60.0;
const ROW: f64 = 34.0;
const RIGHT: f64 = 50.0;
const RADII: [f64; 3] = [5.0, 4.0, 3.0];
const QUANTILES: [&str; 3] = ["p50", "p99", "p99.9"];

/// Medians of a workload's waits, as far as they were measured.
struct Row<'a> {
    workload: &'a str,
    server: Server,
    waits: Vec<f64>,
}

pub(super) fn chart(load: &Load) -> Option<Chart> {
    // Curves are another chart's.
    let curves = WITH_ROOMS.iter().chain(&WITH_INSTANCES).flat_map(|base| load.sizes(base));
    let curves: Vec<&str> = curves.map(|(_, name)| name).collect();
    let workloads: Vec<&str> =
        groups(load).into_iter().flat_map(|(_, names)| names).filter(|it| !curves.contains(it)).collect();
    let row = |workload, server| {
        let wait = |column: &&str| load.figure(workload, server, column).map(|it| it.median);
        let waits: Vec<f64> = WAITS.iter().filter_map(wait).filter(|wait| *wait > 0.0).collect();
        (!waits.is_empty()).then_some(Row { workload, server, waits })
    };
    let rows: Vec<Row<'_>> = workloads
        .iter()
        .flat_map(|workload| [Server::Dais, Server::Peer].into_iter().filter_map(|it| row(workload, it)))
        .collect();
    let all = || rows.iter().flat_map(|row| row.waits.iter().copied());
    let scale = decades(all().reduce(f64::min)?, all().reduce(f64::max)?);
    let (lowest, highest) = (*scale.first()?, *scale.last()?);
    let place = |wait: f64| LEFT + logarithmic(wait, lowest, highest) * (WIDTH - LEFT - RIGHT);

    let mut words = String::from("Medians of the rounds, in ms, on a logarithmic scale: p50, p99, p99.9.");
    for Row { workload, server, waits } in &rows {
        let waits: Vec<String> = waits.iter().copied().map(number).collect();
        _ = write!(words, " {workload}, {}: {}.", super::name(*server), waits.join(", "));
    }
    let mut names: Vec<&str> = rows.iter().map(|row| row.workload).collect();
    names.dedup();
    let height = ROW.mul_add(f64::from(u16::try_from(names.len()).ok()?), TOP + 4.0);
    let mut chart = Chart::new("How long an answer takes: p50, p99, p99.9", words, height);
    chart.legend(&[Server::Dais, Server::Peer]);
    let mut x = WIDTH - 220.0;
    for (quantile, radius) in QUANTILES.iter().zip(RADII) {
        chart.dot(x, 16.0, radius, "quiet");
        chart.text(x + 9.0, 20.5, "", quantile);
        x += 60.0;
    }
    for decade in scale {
        chart.line((place(decade), TOP - 12.0), (place(decade), height - 10.0), "grid");
        chart.text(place(decade), TOP - 18.0, "quiet middle", &format!("{} ms", number(decade)));
    }
    for (name, y) in names.iter().zip((0_u16..).map(|index| ROW.mul_add(f64::from(index), TOP))) {
        chart.text(LEFT - 12.0, y + 12.0, "end", name);
        for row in rows.iter().filter(|row| row.workload == *name) {
            let y = if row.server == Server::Dais { y + 2.0 } else { y + 14.0 };
            if let (Some(&first), Some(&last)) = (row.waits.first(), row.waits.last()) {
                chart.line((place(first), y), (place(last), y), class(row.server));
            }
            for (&wait, radius) in row.waits.iter().zip(RADII) {
                chart.dot(place(wait), y, radius, class(row.server));
            }
        }
    }
    Some(chart)
}
