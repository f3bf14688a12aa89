//! What the load bench wrote: every run, the limits measured beside them, the machine.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;

use super::spread::Spread;

/// A run of the load bench.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Load {
    /// Processor, system, versions.
    #[serde(default)]
    pub(super) machine: BTreeMap<String, String>,
    /// `full`, or `quick`, which only proves that the bench works.
    #[serde(default)]
    pub(super) mode: Option<String>,
    #[serde(default)]
    pub(super) limits: Vec<Limit>,
    runs: Vec<Run>,
}

/// What the machine can do at best.
#[derive(Debug, Deserialize)]
pub(super) struct Limit {
    pub(super) name: String,
    pub(super) unit: String,
    values: Vec<f64>,
}

/// One workload on one server, once.
#[derive(Debug, Deserialize)]
struct Run {
    workload: String,
    server: Server,
    round: u32,
    figures: BTreeMap<String, Option<f64>>,
}

/// Who was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Server {
    Dais,
    Peer,
}

impl Limit {
    pub(super) fn spread(&self) -> Option<Spread> {
        Spread::of(self.values.clone())
    }
}

impl Load {
    /// Reads a file of the bench. An error names the field, the line and what is wrong with it.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut json = serde_json::Deserializer::from_str(text);
        let load: Self = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            anyhow::Error::new(error.into_inner())
                .context(format!("`{path}` is not as the load bench writes it"))
        })?;
        json.end().context("more than one value")?;
        Ok(load)
    }

    /// Whether everything was so small that figures say nothing.
    pub(super) fn is_quick(&self) -> bool {
        self.mode.as_deref() == Some("quick")
    }

    /// Names of the workloads, in the order in which they were run first.
    pub(super) fn workloads(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.workload.as_str()) {
                names.push(&run.workload);
            }
        }
        names
    }

    /// Workloads that are called `base` and a number: number and whole name, smallest first.
    pub(super) fn sizes(&self, base: &str) -> Vec<(u32, &str)> {
        let size = |name: &str| name.strip_prefix(base)?.strip_prefix('_')?.parse().ok();
        let sizes = self.workloads().into_iter().filter_map(|name| Some((size(name)?, name)));
        let mut sizes: Vec<(u32, &str)> = sizes.collect();
        sizes.sort_unstable();
        sizes
    }

    /// How many rounds there are figures of.
    pub(super) fn rounds(&self) -> usize {
        let mut rounds: Vec<u32> = self.runs.iter().map(|run| run.round).collect();
        rounds.sort_unstable();
        rounds.dedup();
        rounds.len()
    }

    /// A figure over all rounds.
    pub(super) fn figure(&self, workload: &str, server: Server, column: &str) -> Option<Spread> {
        Spread::of(self.runs_of(workload, server).filter_map(|run| run.figure(column)).collect())
    }

    /// Dais's figure divided by the peer's, of each round in which both were measured.
    pub(super) fn ratio(&self, workload: &str, column: &str) -> Option<Spread> {
        let pairs = self.runs_of(workload, Server::Dais).filter_map(|dais| {
            let mut peers = self.runs_of(workload, Server::Peer);
            let peer = peers.find(|peer| peer.round == dais.round)?.figure(column)?;
            (peer > 0.0).then_some(dais.figure(column)? / peer)
        });
        Spread::of(pairs.collect())
    }

    /// A figure divided by a limit: by the one of the same round, where there is one of each.
    pub(super) fn of_limit(
        &self,
        workload: &str,
        server: Server,
        column: &str,
        limit: &str,
    ) -> Option<Spread> {
        let limit = self.limits.iter().find(|it| it.name == limit)?;
        let usual = limit.spread()?.median;
        let of_round = |round: u32| {
            let index = usize::try_from(round).ok()?.checked_sub(1)?;
            (limit.values.len() == self.rounds()).then(|| limit.values.get(index).copied()).flatten()
        };
        let shares = self.runs_of(workload, server).filter_map(|run| {
            let limit = of_round(run.round).unwrap_or(usual);
            (limit > 0.0).then_some(run.figure(column)? / limit)
        });
        Spread::of(shares.collect())
    }

    /// A column over all workloads and servers.
    pub(super) fn everywhere(&self, column: &str) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| run.figure(column)).collect())
    }

    fn runs_of<'a>(&'a self, workload: &'a str, server: Server) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.workload == workload && run.server == server)
    }
}

impl Run {
    fn figure(&self, column: &str) -> Option<f64> {
        self.figures.get(column).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performance::SAMPLE;

    #[test]
    fn ratios_are_of_the_pairs_of_a_round() {
        let load = Load::parse(SAMPLE).unwrap();
        assert_eq!(load.workloads(), ["join_own", "settings"]);
        assert_eq!(load.rounds(), 2);
        let cpu = load.figure("join_own", Server::Dais, "CPU us/op").unwrap();
        assert_eq!((cpu.lowest, cpu.median, cpu.highest), (20.0, 25.0, 30.0));
        let ratio = load.ratio("join_own", "CPU us/op").unwrap();
        assert_eq!((ratio.lowest, ratio.median, ratio.highest), (0.1, 0.2, 0.3));
    }

    #[test]
    fn what_is_missing_is_not_there() {
        let load = Load::parse(SAMPLE).unwrap();
        assert!(load.ratio("settings", "CPU us/op").is_none());
        assert!(load.figure("join_own", Server::Peer, "Redis us/op").is_none());
        assert!(load.figure("unknown", Server::Dais, "CPU us/op").is_none());
        assert!(load.of_limit("join_own", Server::Dais, "CPU us/op", "unknown").is_none());
        assert!(Load::parse(r#"{"runs": []}"#).unwrap().everywhere("others %").is_none());
    }

    #[test]
    fn sizes_are_numbers_at_the_end_of_a_name() {
        let run = |name: &str| {
            format!(r#"{{"workload": "{name}", "server": "dais", "round": 1, "figures": {{}}}}"#)
        };
        let runs = ["join_at_1000", "join_at_10", "join_at_once", "join_attic_1"].map(run).join(",");
        let load = Load::parse(&format!(r#"{{"runs": [{runs}]}}"#)).unwrap();
        assert_eq!(load.sizes("join_at"), [(10, "join_at_10"), (1000, "join_at_1000")]);
    }

    #[test]
    fn what_is_malformed_is_named() {
        let error = |text: &str| format!("{:#}", Load::parse(text).unwrap_err());
        let run = |server: &str, figure: &str| {
            format!(
                r#"{{"runs": [{{"workload": "a", "server": {server}, "round": 1, "figures": {{"op/s": {figure}}}}}]}}"#
            )
        };
        let figure = error(&run(r#""dais""#, r#""many""#));
        assert!(figure.contains("`runs[0].figures.op/s`") && figure.contains("line 1"), "{figure}");
        let server = error(&run(r#""other""#, "1"));
        assert!(server.contains("`runs[0].server`") && server.contains("other"), "{server}");
        assert!(error("{}").contains("missing field `runs`"));
        assert!(error(r#"{"runs": []} x"#).contains("more than one value"));
    }
}
