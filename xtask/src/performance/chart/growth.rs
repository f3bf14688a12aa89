//! What an operation costs where there is more of everything, as a multiple of its cost at the smallest size.

use std::fmt::Write as _;

use super::super::load::{Load, Server};
use super::super::plan::{CPU, WITH_INSTANCES, WITH_ROOMS};
use super::super::spread::{Spread, number};
use super::{Chart, WIDTH, logarithmic};

const TOP: f64 = 30.0;
const LEFT: f64 = 50.0;
/// For the name at the end of a curve.
const RIGHT: f64 = 200.0;
const BOTTOM: f64 = 300.0;
/// A curve has a shape from three points on.
const POINTS: usize = 3;
const NAME_HEIGHT: f64 = 16.0;
const CLASSES: [&str; 3] = ["dais", "dais long", "dais short"];

struct Curve {
    name: &'static str,
    /// Sizes, and what an operation costs there.
    costs: Vec<(f64, Spread)>,
    /// The cost at the smallest size.
    unit: f64,
}

/// With more rooms.
pub(super) fn rooms(load: &Load) -> Option<Chart> {
    let title = "Processor time of the server for an operation, by number of rooms";
    chart(title, &curves(load, &WITH_ROOMS))
}

/// With more instances.
pub(super) fn instances(load: &Load) -> Option<Chart> {
    let title = "Processor time of the servers for an operation, by number of instances";
    chart(title, &curves(load, &WITH_INSTANCES))
}

fn curves(load: &Load, names: &[&'static str]) -> Vec<Curve> {
    let cost = |workload| load.figure(workload, Server::Dais, CPU).filter(|cost| cost.median > 0.0);
    let curve = |name: &&'static str| {
        let sizes = load.sizes(name).into_iter();
        let costs = sizes.filter_map(|(size, workload)| Some((f64::from(size), cost(workload)?)));
        let costs: Vec<(f64, Spread)> = costs.collect();
        let unit = costs.first().filter(|_| costs.len() >= POINTS)?.1.median;
        Some(Curve { name, costs, unit })
    };
    names.iter().filter_map(curve).collect()
}

fn chart(title: &'static str, curves: &[Curve]) -> Option<Chart> {
    let mut sizes: Vec<f64> = curves.iter().flat_map(|it| it.costs.iter().map(|(size, _)| *size)).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let (smallest, largest) = (*sizes.first()?, *sizes.last()?);
    let heights = curves.iter().flat_map(|it| it.costs.iter().map(|(_, cost)| cost.highest / it.unit));
    let tallest = heights.fold(2.0, f64::max).ceil();
    let x = |size: f64| LEFT + logarithmic(size, smallest, largest) * (WIDTH - LEFT - RIGHT);
    let y = |multiple: f64| BOTTOM - multiple / tallest * (BOTTOM - TOP);

    let mut chart = Chart::new(title, in_words(curves), BOTTOM + 30.0);
    for size in sizes {
        chart.line((x(size), TOP), (x(size), BOTTOM), "grid");
        chart.text(x(size), BOTTOM + 18.0, "quiet middle", &number(size));
    }
    for multiple in [0.0, 1.0, tallest] {
        chart.line((LEFT, y(multiple)), (WIDTH - RIGHT, y(multiple)), "grid");
        chart.text(LEFT - 8.0, y(multiple) + 4.0, "quiet end", &number(multiple));
    }
    let mut names: Vec<(f64, &str)> = Vec::new();
    for (Curve { name, costs, unit }, class) in curves.iter().zip(CLASSES.into_iter().cycle()) {
        let points = costs.iter().map(|(size, cost)| (x(*size), y(cost.median / unit)));
        let points: Vec<(f64, f64)> = points.collect();
        chart.path(&points, class);
        for (&(x, middle), (_, cost)) in points.iter().zip(costs) {
            chart.line((x, y(cost.lowest / unit)), (x, y(cost.highest / unit)), "spread");
            chart.dot(x, middle, 3.5, "dais");
        }
        names.extend(points.last().map(|(_, end)| (*end, *name)));
    }
    // Curves that end near to each other would have their names on top of each other.
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut below = f64::MIN;
    for (end, name) in names {
        below = end.max(below + NAME_HEIGHT);
        chart.text(WIDTH - RIGHT + 10.0, below + 4.0, "", name);
    }
    Some(chart)
}

fn in_words(curves: &[Curve]) -> String {
    let mut words = String::from("Multiples of the cost at the smallest size. In us:");
    for Curve { name, costs, .. } in curves {
        let cost = |(size, cost): &(f64, Spread)| format!("{} at {}", number(cost.median), number(*size));
        let costs: Vec<String> = costs.iter().map(cost).collect();
        _ = write!(words, " {name}: {}.", costs.join(", "));
    }
    words
}
