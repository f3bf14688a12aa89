//! Every acknowledged command is in the log once, as it was acknowledged.

use serde_json::Value;
use std::collections::HashMap;

use super::evidence::Acknowledged;
use super::findings::Findings;
use super::positions::place;
use super::tables::{Entry, Tables};

pub(crate) fn check(tables: &Tables, acknowledged: &[Acknowledged], findings: &mut Findings) {
    let mut by_command: HashMap<(&str, &str, &str), Vec<&Entry>> = HashMap::new();
    let mut by_version: HashMap<(&str, i64), Vec<&Entry>> = HashMap::new();
    for entry in &tables.log {
        let room = tables.name(&entry.room_key);
        if let (Some(caller), Some(command)) = (&entry.caller, &entry.command) {
            by_command.entry((room, caller, command)).or_default().push(entry);
        }
        if entry.counter == 1 {
            by_version.entry((room, entry.version)).or_default().push(entry);
        }
    }
    for command in acknowledged {
        findings.count("acknowledged commands", 1);
        let found = if command.kind == "cell" {
            by_command.get(&(&*command.room, &*command.caller, &*command.id))
        } else {
            by_version.get(&(&*command.room, command.version))
        };
        one(tables, command, found.map_or(&[], Vec::as_slice), findings);
    }
}

fn one(tables: &Tables, command: &Acknowledged, found: &[&Entry], findings: &mut Findings) {
    let Acknowledged { room, caller, id, kind, version, ack } = command;
    let named = || format!("{room}: {kind} {id} of {caller}, acknowledged at {version}");
    let standing: Vec<&&Entry> = found.iter().filter(|entry| !entry.superseded).collect();
    let [entry] = standing.as_slice() else {
        findings.demand(false, || match (standing.len(), found.len()) {
            (0, 0) => format!("{} is not in the log", named()),
            (0, _) => format!("{} is superseded", named()),
            (many, _) => format!("{} is in the log {many} times", named()),
        });
        return;
    };
    findings.demand(entry.version == *version && entry.kind == *kind, || {
        format!("{} stands elsewhere: {}", named(), place(tables, entry))
    });
    findings.demand(entry.token > 0, || format!("{} has no token", named()));
    // Settings can be changed while nobody owns the room.
    findings.demand(!entry.owner.is_empty() || entry.kind != "cell", || format!("{} has no owner", named()));
    if entry.owner.is_empty() {
        findings.count("acknowledged without an owner", 1);
    }
    if kind == "cell" {
        let kept = entry.answer.as_deref().and_then(|answer| serde_json::from_str::<Value>(answer).ok());
        findings.demand(kept.is_some_and(|kept| agrees(&kept, ack)), || {
            format!("{} was answered {ack}, and {:?} is kept", named(), entry.answer)
        });
    } else {
        findings.demand(entry.body.to_string().contains(id), || {
            format!("{} stands where another change is: {}", named(), entry.body)
        });
    }
}

/// What is kept is what was said: the version, and the result beside it.
fn agrees(kept: &Value, said: &Value) -> bool {
    let done = &kept["done"];
    let result = done["result"].as_object();
    done["cell"].is_i64()
        && done["cell"] == said["version"]["cell"]
        && result.into_iter().flatten().all(|(name, value)| said[name] == *value)
}
