//! What clients and a sink wrote down.

use serde_json::Value;
use std::fs;
use std::path::Path;

use super::Error;

/// Everything that was seen from outside.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) acknowledged: Vec<Acknowledged>,
    pub(crate) arrivals: Vec<Arrival>,
}

/// A command that its caller was told is done.
#[derive(Debug, Clone)]
pub(crate) struct Acknowledged {
    pub(crate) room: String,
    pub(crate) caller: String,
    /// The id that its caller gave. Where no answer is kept it stands somewhere in the change itself.
    pub(crate) id: String,
    /// `cell`, `settings` or `guest`
    pub(crate) kind: String,
    pub(crate) version: i64,
    pub(crate) ack: Value,
}

/// One try that reached the sink.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// `webhook-id`
    pub(crate) id: String,
    pub(crate) payload: String,
    /// Its number among all arrivals.
    pub(crate) seq: i64,
    /// Whether the sink took it.
    pub(crate) taken: bool,
}

impl Evidence {
    /// Reads every journal of a folder, and the file of the sink.
    pub(crate) fn read(journals: &Path, received: &Path) -> Result<Self, Error> {
        let mut evidence = Self::default();
        for journal in fs::read_dir(journals)? {
            for line in lines(&journal?.path())? {
                evidence.acknowledged.push(Acknowledged {
                    room: text(&line, "room")?,
                    caller: text(&line, "caller")?,
                    id: text(&line, "id")?,
                    kind: text(&line, "kind")?,
                    version: number(&line, "version")?,
                    ack: line["ack"].clone(),
                });
            }
        }
        for line in lines(received)? {
            evidence.arrivals.push(Arrival {
                id: text(&line, "id")?,
                payload: text(&line, "payload")?,
                seq: number(&line, "seq")?,
                taken: line["taken"] == true,
            });
        }
        Ok(evidence)
    }
}

fn lines(file: &Path) -> Result<Vec<Value>, Error> {
    let read = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let parse = |line: &str| {
        serde_json::from_str(line).map_err(|error| format!("{}: {error}: {line}", file.display()).into())
    };
    read.lines().map(parse).collect()
}

fn text(line: &Value, field: &str) -> Result<String, Error> {
    Ok(line[field].as_str().ok_or_else(|| format!("no text {field:?} in {line}"))?.to_owned())
}

fn number(line: &Value, field: &str) -> Result<i64, Error> {
    Ok(line[field].as_i64().ok_or_else(|| format!("no number {field:?} in {line}"))?)
}
