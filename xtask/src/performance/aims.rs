//! What was asked, what was reached.

use super::load::{Load, Server};
use super::plan::{AIMS, Aim, Bound, Measure};
use super::spread::{Spread, number, ratio};
use super::table::markdown;

/// A row for each aim.
pub(super) fn table(load: &Load) -> String {
    if load.is_quick() {
        return "A quick run shows that the bench works, and nothing about the aims.\n".to_owned();
    }
    let row = |aim: &Aim| {
        let reached = reached(load, aim);
        vec![
            aim.work.to_owned(),
            figure(aim),
            asked(aim, aim.must),
            aim.stretch.map(|stretch| asked(aim, stretch)).unwrap_or_default(),
            reached.map(|spread| shown(aim, spread)).unwrap_or_default(),
            verdict(aim, reached).to_owned(),
        ]
    };
    markdown(&["work", "figure", "must", "stretch", "reached", ""], &AIMS.iter().map(row).collect::<Vec<_>>())
}

fn figure(aim: &Aim) -> String {
    match aim.measure {
        Measure::OfPeer => format!("{}, Dais : the Node.js server", aim.column),
        Measure::OfLimit(limit) => format!("{} : `{limit}`", aim.column),
        Measure::Absolute => aim.column.to_owned(),
        Measure::Growth => format!("{}, largest : smallest", aim.column),
    }
}

fn reached(load: &Load, aim: &Aim) -> Option<Spread> {
    let dais = |workload: &str| load.figure(workload, Server::Dais, aim.column);
    match aim.measure {
        Measure::OfPeer => load.ratio(aim.workload, aim.column),
        Measure::OfLimit(limit) => load.of_limit(aim.workload, Server::Dais, aim.column, limit),
        Measure::Absolute => dais(aim.workload),
        Measure::Growth => {
            let sizes = load.sizes(aim.workload);
            let ((_, smallest), (_, largest)) = (sizes.first()?, sizes.last()?);
            (sizes.len() > 1).then_some(dais(largest)?.over(dais(smallest)?.median))
        }
    }
}

fn shown(aim: &Aim, spread: Spread) -> String {
    match aim.measure {
        Measure::Absolute => spread.as_numbers(),
        _ => spread.as_ratio(),
    }
}

fn asked(aim: &Aim, value: f64) -> String {
    let sign = match aim.bound {
        Bound::AtMost => "≤",
        Bound::AtLeast => "≥",
    };
    match aim.measure {
        Measure::Absolute => format!("{sign} {}", number(value)),
        _ => format!("{sign} {}", ratio(value)),
    }
}

/// By the median, as it is and not as it is written.
fn verdict(aim: &Aim, reached: Option<Spread>) -> &'static str {
    let Some(reached) = reached else { return "not measured" };
    let holds = |value: f64| match aim.bound {
        Bound::AtMost => reached.median <= value,
        Bound::AtLeast => reached.median >= value,
    };
    match (holds(aim.must), aim.stretch) {
        (true, Some(stretch)) if holds(stretch) => "met, stretch too",
        (true, _) => "met",
        (false, _) => "**not met**",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performance::SAMPLE;

    #[test]
    fn aims_are_met_or_not_or_not_measured() {
        let text = table(&Load::parse(SAMPLE).unwrap());
        let row = |beginning: &str| text.lines().find(|line| line.starts_with(beginning)).unwrap();
        assert_eq!(
            row("| join, own room | CPU"),
            "| join, own room | CPU us/op, Dais : the Node.js server | ≤ 0.33 | ≤ 0.20 | 0.20 (0.10-0.30) | met, stretch too |"
        );
        assert!(row("| 1,000 joins of one room | CPU").ends_with("| ≤ 0.050 | ≤ 0.020 | | not measured |"));
    }

    #[test]
    fn a_rate_is_to_be_at_least_something_and_growth_is_flat() {
        let figure = |workload: &str, column: &str, value: f64| {
            format!(
                r#"{{"workload": "{workload}", "server": "dais", "round": 1, "figures": {{"{column}": {value}}}}}"#
            )
        };
        let runs = [
            figure("join_own", "op/s", 40_000.0),
            figure("join_at_100", "CPU us/op", 10.0),
            figure("join_at_100000", "CPU us/op", 12.0),
        ];
        let limits = r#"[{"name": "script_50_connections", "unit": "calls/s", "values": [100000]}]"#;
        let load = format!(r#"{{"limits": {limits}, "runs": [{}]}}"#, runs.join(","));
        let text = table(&Load::parse(&load).unwrap());
        let row = |beginning: &str| text.lines().find(|line| line.starts_with(beginning)).unwrap();
        assert!(row("| join rate ").ends_with("| ≥ 0.50 | ≥ 0.80 | 0.40 | **not met** |"));
        assert!(row("| joins, 100 to 100,000 rooms ").ends_with("| ≤ 1.25 | | 1.20 | met |"));
    }
}
