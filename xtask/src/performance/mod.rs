//! The figures of `docs/performance.md`: from what the load bench wrote to tables, charts and aims.
//!
//! `docs/performance.json` is a run of the bench as it was written; everything between marks in the page, and each chart
//! of `docs/performance/`, comes of it and of nothing else. [`check`] finds what does not.

mod aims;
mod chart;
mod load;
mod page;
mod plan;
mod spread;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::problem::Problem;
use crate::tree::Tree;

use chart::CHARTS;
use load::{Load, Server};
use plan::{COMPARED, CPU};
use spread::{Spread, number};

const PAGE: &str = "docs/performance.md";
const DATA: &str = "docs/performance.json";
/// Beside the page.
const CHART_FOLDER: &str = "performance";
const CHART_FILES: &str = "docs/performance/";

/// What a run gives.
struct Rendered {
    page: String,
    /// By name of file.
    charts: BTreeMap<String, String>,
}

impl Rendered {
    fn of(load: &Load, template: &str) -> anyhow::Result<Self> {
        let drawn: Vec<_> = CHARTS.iter().filter_map(|(name, draw)| Some((*name, draw(load)?))).collect();
        let block = |name: &str| match name {
            "machine" => Some(table::machine(load)),
            "aims" => Some(aims::table(load)),
            "results" => Some(table::results(load)),
            "limits" => Some(table::limits(load)),
            name if CHARTS.iter().any(|(chart, _)| *chart == name) => {
                let found = drawn.iter().find(|(chart, _)| *chart == name);
                let image = |(name, chart): &(&str, chart::Chart)| {
                    format!("![{}]({CHART_FOLDER}/{name}.svg)\n", chart.title())
                };
                Some(found.map(image).unwrap_or_default())
            }
            _ => None,
        };
        let page = page::filled(template, block).context(PAGE)?;
        let charts = drawn.iter().map(|(name, chart)| (format!("{name}.svg"), chart.svg())).collect();
        Ok(Self { page, charts })
    }
}

/// Where a page goes.
pub(crate) enum Into {
    /// `docs/`, with the run that it is made of.
    Docs,
    /// A folder of its own.
    Folder(PathBuf),
}

/// Makes page and charts of a run, and says where the page is.
pub(crate) fn write(root: &Path, data: &Path, into: &Into) -> anyhow::Result<PathBuf> {
    let text = read(data)?;
    let load = Load::parse(&text).with_context(|| data.display().to_string())?;
    let rendered = Rendered::of(&load, &read(&root.join(PAGE))?)?;
    let folder = match into {
        Into::Docs => {
            ensure!(!load.is_quick(), "{}: a quick run is not one to keep", data.display());
            fs::write(root.join(DATA), text)?;
            root.join("docs")
        }
        Into::Folder(folder) => folder.clone(),
    };
    let charts = folder.join(CHART_FOLDER);
    fs::create_dir_all(&charts).with_context(|| charts.display().to_string())?;
    for (chart, _) in CHARTS {
        let file = charts.join(format!("{chart}.svg"));
        match rendered.charts.get(&format!("{chart}.svg")) {
            Some(svg) => fs::write(&file, svg)?,
            None if file.exists() => fs::remove_file(&file)?,
            None => {}
        }
    }
    let page = folder.join("performance.md");
    fs::write(&page, rendered.page).with_context(|| page.display().to_string())?;
    Ok(page)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// The ratios of a run, a line for each workload that both servers know.
pub(crate) fn ratios(data: &Path) -> anyhow::Result<String> {
    let load = Load::parse(&read(data)?).with_context(|| data.display().to_string())?;
    let mut out = String::new();
    for workload in load.workloads() {
        let told: Vec<String> = COMPARED
            .iter()
            .filter_map(|column| Some(format!("{column} {:18}", load.ratio(workload, column)?.as_ratio())))
            .collect();
        let cost = |server| load.figure(workload, server, CPU).map(|it: Spread| number(it.median));
        if let (Some(dais), Some(peer), false) = (cost(Server::Dais), cost(Server::Peer), told.is_empty()) {
            out += format!("{workload:24} {:>18}   {}", format!("{dais} : {peer} us"), told.join("  "))
                .trim_end();
            out.push('\n');
        }
    }
    Ok(out)
}

/// What on the page does not come of the run beside it.
pub(crate) fn check(tree: &Tree, problems: &mut Vec<Problem>) {
    let (Some(page), Some(data)) = (tree.text(PAGE), tree.text(DATA)) else {
        if tree.text(PAGE).is_some() {
            problems.push(Problem::new(DATA, 1, format!("missing: the figures of {PAGE} come of it")));
        }
        return;
    };
    let rendered = match Load::parse(data) {
        Ok(load) => Rendered::of(&load, page),
        Err(error) => {
            problems.push(Problem::new(DATA, 1, format!("{error:#}")));
            return;
        }
    };
    let rendered = match rendered {
        Ok(rendered) => rendered,
        Err(error) => {
            problems.push(Problem::new(PAGE, 1, format!("{error:#}")));
            return;
        }
    };
    compare(PAGE, page, &rendered.page, problems);
    for (name, svg) in &rendered.charts {
        let path = format!("{CHART_FILES}{name}");
        compare(&path, tree.text(&path).unwrap_or_default(), svg, problems);
    }
    for file in tree.files() {
        if file.path.strip_prefix(CHART_FILES).is_some_and(|name| !rendered.charts.contains_key(name)) {
            problems.push(Problem::new(&file.path, 1, format!("no chart of {DATA}")));
        }
    }
}

fn compare(path: &str, found: &str, expected: &str, problems: &mut Vec<Problem>) {
    if found == expected {
        return;
    }
    let same = found.lines().zip(expected.lines()).take_while(|(found, expected)| found == expected).count();
    let message = format!("not what {DATA} gives; `cargo xtask performance {DATA}` makes it so");
    problems.push(Problem::new(path, same + 1, message));
}

/// Two rounds: a workload on both servers, one on Dais alone.
#[cfg(test)]
const SAMPLE: &str = r#"{
  "machine": {"redis": "7.0.15", "processor": "two of them"},
  "mode": "full",
  "rounds": 2,
  "limits": [],
  "runs": [
    {"workload": "join_own", "server": "dais", "round": 1, "operations": 10, "wallMs": 5.0,
     "figures": {"CPU us/op": 30, "Redis us/op": 12.5, "p50 ms": 2, "p99 ms": 3, "p99.9 ms": 4, "others %": 2}},
    {"workload": "join_own", "server": "peer", "round": 1, "operations": 10, "wallMs": 5.0,
     "figures": {"CPU us/op": 100, "Redis us/op": null, "p50 ms": 4, "p99 ms": 9}},
    {"workload": "settings", "server": "dais", "round": 1, "operations": 10, "wallMs": 5.0,
     "figures": {"CPU us/op": 40, "others %": 4}},
    {"workload": "join_own", "server": "dais", "round": 2, "operations": 10, "wallMs": 5.0,
     "figures": {"CPU us/op": 20, "p50 ms": 2, "p99 ms": 3, "p99.9 ms": 4, "others %": 3}},
    {"workload": "join_own", "server": "peer", "round": 2, "operations": 10, "wallMs": 5.0,
     "figures": {"CPU us/op": 200, "p50 ms": 4, "p99 ms": 9}}
  ]
}"#;

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "# Performance\n\n<!-- figures: cost -->\n<!-- end of figures -->\n\n\
        <!-- figures: rooms -->\n<!-- end of figures -->\n\n<!-- figures: aims -->\n<!-- end of figures -->\n";

    fn rendered() -> Rendered {
        Rendered::of(&Load::parse(SAMPLE).unwrap(), TEMPLATE).unwrap()
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut problems = Vec::new();
        check(&Tree::of(files), &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_page_comes_of_its_run() {
        let Rendered { page, charts } = rendered();
        assert!(page.contains("(performance/cost.svg)") && !page.contains("rooms.svg"), "{page}");
        assert_eq!(charts.keys().collect::<Vec<_>>(), ["cost.svg", "waits.svg"]);
        let files = [
            (PAGE, page.as_str()),
            (DATA, SAMPLE),
            ("docs/performance/cost.svg", &charts["cost.svg"]),
            ("docs/performance/waits.svg", &charts["waits.svg"]),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }

    #[test]
    fn a_page_is_written_where_it_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let (root, into) = (folder.path(), folder.path().join("bench"));
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::create_dir_all(into.join(CHART_FOLDER)).unwrap();
        fs::write(root.join(PAGE), TEMPLATE).unwrap();
        let (run, old) = (root.join("load.json"), into.join("performance/rooms.svg"));
        fs::write(&run, SAMPLE).unwrap();
        fs::write(&old, "of another run").unwrap();

        let page = write(root, &run, &Into::Folder(into.clone())).unwrap();
        assert_eq!(read(&page).unwrap(), rendered().page);
        assert!(into.join("performance/cost.svg").exists() && !old.exists());
        assert!(!root.join(DATA).exists());

        let page = write(root, &run, &Into::Docs).unwrap();
        assert_eq!((page, read(&root.join(DATA)).unwrap()), (root.join(PAGE), SAMPLE.to_owned()));
        fs::write(&run, SAMPLE.replace("full", "quick")).unwrap();
        assert!(write(root, &run, &Into::Docs).is_err_and(|error| error.to_string().contains("quick run")));
        let page = write(root, &run, &Into::Folder(into)).unwrap();
        assert!(read(&page).unwrap().contains("nothing about the aims"));

        let told = ratios(&run).unwrap();
        assert!(told.starts_with("join_own ") && told.contains("CPU us/op 0.20 (0.10-0.30)"), "{told}");
        assert_eq!(told.lines().count(), 1);
    }

    #[test]
    fn what_does_not_is_found() {
        let Rendered { page, charts } = rendered();
        let better = page.replace("0.20 (0.10-0.30)", "0.02 (0.01-0.03)");
        let not_so = "not what docs/performance.json gives; `cargo xtask performance docs/performance.json` makes it so";
        assert_eq!(
            found(&[
                (PAGE, &better),
                (DATA, SAMPLE),
                ("docs/performance/cost.svg", &charts["cost.svg"].replace("25 us", "5 us")),
                ("docs/performance/other.svg", "<svg/>\n"),
            ]),
            [
                format!("docs/performance.md:17: {not_so}"),
                format!("docs/performance/cost.svg:3: {not_so}"),
                format!("docs/performance/waits.svg:1: {not_so}"),
                "docs/performance/other.svg:1: no chart of docs/performance.json".to_owned(),
            ]
        );
        assert_eq!(found(&[(PAGE, &page)]).len(), 1);
        let broken = found(&[(PAGE, &page), (DATA, "{\"runs\": 3}")]);
        assert!(
            broken[0].starts_with("docs/performance.json:1: `runs` is not as the load bench"),
            "{broken:?}"
        );
    }
}
