//! Prometheus's text, read.

use std::collections::BTreeMap;

/// One line of `/metrics`.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The metric's name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// All lines of `/metrics`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics {
    /// In the order of the text.
    pub samples: Vec<Sample>,
}

impl Metrics {
    /// Reads the text format; lines that are none of it are left out.
    pub fn parse(text: &str) -> Self {
        Self { samples: text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect() }
    }

    /// The sum of the samples of this name that have these labels; 0 if there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|it| it == value))
        };
        self.samples.iter().filter(has).map(|sample| sample.value).sum()
    }

    /// Whether there is any sample of this name.
    pub fn has(&self, name: &str) -> bool {
        self.samples.iter().any(|sample| sample.name == name)
    }
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, read_labels(labels.strip_suffix('}')?)),
        None => (series, BTreeMap::new()),
    };
    Some(Sample { name: name.to_owned(), labels, value: value.parse().ok()? })
}

fn read_labels(mut text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => match characters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other)) => value.push(other),
                    None => {}
                },
                other => value.push(other),
            }
        }
        labels.insert(name.trim_start_matches(',').to_owned(), value);
        text = &rest[end..];
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_over_the_labels_that_are_not_named() {
        let text = "# TYPE dais_rooms gauge\ndais_rooms 3\n\
                    dais_calls_total{script=\"pin\",code=\"ok\"} 2\ndais_calls_total{script=\"pin\",code=\"a,\\\"}\"} 4\n\
                    dais_seconds_bucket{le=\"+Inf\"} 7\n";
        let metrics = Metrics::parse(text);
        assert_eq!(metrics.sum("dais_rooms", &[]), 3.0);
        assert_eq!(metrics.sum("dais_calls_total", &[("script", "pin")]), 6.0);
        assert_eq!(metrics.sum("dais_calls_total", &[("code", "a,\"}")]), 4.0);
        assert_eq!(metrics.sum("dais_seconds_bucket", &[("le", "+Inf")]), 7.0);
        assert_eq!(metrics.sum("dais_nothing", &[]), 0.0);
        assert!(!metrics.has("dais_nothing"));
    }
}
