//! The tables of the page.

use super::load::{Load, Server};
use super::plan::{BOUNDED, Bounded, COLUMNS, COMPARED, GROUPS, Group, OTHER_PROGRAMS, OTHERS};
use super::spread::{Spread, number};

/// Rows of cells as Markdown, with nothing in it if there are no rows.
pub(super) fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let cell = |cell: &&str| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") };
    let line = |cells: &[&str]| format!("|{}\n", cells.iter().map(cell).collect::<String>());
    let mut out = line(head) + &line(&vec!["---"; head.len()]);
    for row in rows {
        out += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    out
}

/// What was measured on what, and how much it was disturbed.
pub(super) fn machine(load: &Load) -> String {
    let named = |(name, value): (&String, &String)| vec![name.clone(), value.clone()];
    let mut rows: Vec<Vec<String>> = load.machine.iter().map(named).collect();
    let rounds = load.rounds().to_string();
    rows.push(vec!["rounds".to_owned(), rounds]);
    rows.extend(load.mode.as_ref().map(|mode| vec!["mode".to_owned(), mode.clone()]));
    if let Some(others) = load.everywhere(OTHER_PROGRAMS) {
        rows.push(vec!["other programs, % of one processor".to_owned(), others.as_numbers()]);
    }
    markdown(&["", ""], &rows)
}

/// Workloads of each group, in the order of the groups; then those of no group.
pub(super) fn groups(load: &Load) -> Vec<(&'static Group, Vec<&str>)> {
    let workloads = load.workloads();
    let of = |title| workloads.iter().copied().filter(|it| group_of(it).title == title).collect::<Vec<_>>();
    let all = GROUPS.iter().chain([&OTHERS]).map(|group| (group, of(group.title)));
    all.filter(|(_, workloads)| !workloads.is_empty()).collect()
}

/// The group with the longest beginning of the name.
fn group_of(workload: &str) -> &'static Group {
    let longest = |group: &Group| {
        let beginnings = group.beginnings.iter().filter(|beginning| workload.starts_with(**beginning));
        beginnings.map(|beginning| beginning.len()).max()
    };
    let matching = GROUPS.iter().filter_map(|group| Some((longest(group)?, group)));
    matching.max_by_key(|(length, _)| *length).map_or(&OTHERS, |(_, group)| group)
}

/// A table for each group: medians, Dais : the peer.
pub(super) fn results(load: &Load) -> String {
    let tables = groups(load).into_iter().map(|(group, workloads)| {
        let all = COLUMNS.iter().chain(group.columns).copied();
        let columns: Vec<&str> = all.filter(|it| is_known(load, &workloads, it)).collect();
        let mut head = vec!["workload"];
        for column in &columns {
            head.push(column);
            if is_compared(load, &workloads, column) {
                head.push("ratio");
            }
        }
        let row = |workload: &&str| {
            let mut row = vec![format!("`{workload}`")];
            for column in &columns {
                row.push(pair(load, workload, column));
                if is_compared(load, &workloads, column) {
                    row.push(load.ratio(workload, column).map(Spread::as_ratio).unwrap_or_default());
                }
            }
            row
        };
        let rows: Vec<Vec<String>> = workloads.iter().map(row).collect();
        format!("### {}\n\n{}", group.title, markdown(&head, &rows))
    });
    tables.collect::<Vec<_>>().join("\n")
}

fn is_known(load: &Load, workloads: &[&str], column: &str) -> bool {
    workloads.iter().any(|it| load.figure(it, Server::Dais, column).is_some())
}

fn is_compared(load: &Load, workloads: &[&str], column: &str) -> bool {
    COMPARED.contains(&column) && workloads.iter().any(|it| load.ratio(it, column).is_some())
}

/// `465 : 316`; where the peer was not measured, `465`.
fn pair(load: &Load, workload: &str, column: &str) -> String {
    let figure = |server| load.figure(workload, server, column).map(|spread| number(spread.median));
    match (figure(Server::Dais), figure(Server::Peer)) {
        (Some(dais), Some(peer)) => format!("{dais} : {peer}"),
        (Some(dais), None) => dais,
        (None, Some(peer)) => format!("- : {peer}"),
        (None, None) => String::new(),
    }
}

/// The limits, and the results that come close to one.
pub(super) fn limits(load: &Load) -> String {
    let row = |limit: &super::load::Limit| {
        let values = limit.spread()?.as_numbers();
        Some(vec![format!("`{}`", limit.name), values, limit.unit.clone()])
    };
    let known: Vec<Vec<String>> = load.limits.iter().filter_map(row).collect();
    let held = BOUNDED.iter().filter_map(|Bounded { workload, column, limit }| {
        let share = |server| load.of_limit(workload, server, column, limit).map(Spread::as_ratio);
        let dais = share(Server::Dais)?;
        let peer = share(Server::Peer).unwrap_or_default();
        Some(vec![format!("`{workload}`"), (*column).to_owned(), format!("`{limit}`"), dais, peer])
    });
    let held: Vec<Vec<String>> = held.collect();
    let tables = [
        markdown(&["limit", "median (lowest-highest)", "unit"], &known),
        markdown(&["workload", "figure", "divided by", "Dais", "the Node.js server"], &held),
    ];
    tables.into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performance::SAMPLE;

    #[test]
    fn what_was_not_measured_has_no_column_and_an_empty_cell() {
        let text = results(&Load::parse(SAMPLE).unwrap());
        assert_eq!(
            text,
            "### Connections and joins\n\n\
             | workload | CPU us/op | ratio | Redis us/op | p50 ms | p99 ms | ratio | p99.9 ms |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |\n\
             | `join_own` | 25 : 150 | 0.20 (0.10-0.30) | 12.5 | 2 : 4 | 3 : 9 | 0.33 | 4 |\n\
             \n### Changes in a room\n\n\
             | workload | CPU us/op |\n| --- | --- |\n| `settings` | 40 |\n"
        );
    }

    #[test]
    fn the_longest_beginning_decides() {
        let title = |workload| group_of(workload).title;
        assert_eq!(title("settings"), "Changes in a room");
        assert_eq!(title("settings_elsewhere_16"), "Across instances");
        assert_eq!((title("join_one"), title("join_on_8")), ("Connections and joins", "With growth"));
        assert_eq!(title("unheard_of"), OTHERS.title);
    }

    #[test]
    fn results_are_divided_by_their_limits() {
        let load = Load::parse(
            r#"{"limits": [{"name": "script_50_connections", "unit": "calls/s", "values": [100000, 50000]},
                           {"name": "nothing", "unit": "us", "values": []}],
                "runs": [{"workload": "join_own", "server": "dais", "round": 1, "figures": {"op/s": 60000}},
                         {"workload": "join_own", "server": "dais", "round": 2, "figures": {"op/s": 40000}}]}"#,
        )
        .unwrap();
        assert_eq!(
            limits(&load),
            "| limit | median (lowest-highest) | unit |\n| --- | --- | --- |\n\
             | `script_50_connections` | 75,000 (50,000-100,000) | calls/s |\n\n\
             | workload | figure | divided by | Dais | the Node.js server |\n| --- | --- | --- | --- | --- |\n\
             | `join_own` | op/s | `script_50_connections` | 0.70 (0.60-0.80) | |\n"
        );
    }

    #[test]
    fn the_machine_is_named() {
        let text = machine(&Load::parse(SAMPLE).unwrap());
        assert!(text.contains("| redis | 7.0.15 |\n") && text.contains("| rounds | 2 |\n"), "{text}");
        assert!(text.contains("| other programs, % of one processor | 3 (2-4) |\n"), "{text}");
    }
}
