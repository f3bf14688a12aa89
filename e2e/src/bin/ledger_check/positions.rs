//! The log by itself: nothing twice, no gap, and tokens that only rise.

use std::collections::BTreeMap;

use super::findings::Findings;
use super::tables::{Entry, Tables};

/// Where the log of a room stands.
#[derive(Debug, Default, Clone, Copy)]
struct Reached {
    token: i64,
    /// Of the cell; of settings and guests.
    versions: [i64; 2],
    /// A whole state came: the settings' next version may leap, which its row does not name.
    settings_may_leap: bool,
}

pub(crate) fn check(tables: &Tables, findings: &mut Findings) {
    let mut rooms: BTreeMap<&str, Reached> = BTreeMap::new();
    let mut commands: BTreeMap<(&str, &str, &str), i64> = BTreeMap::new();
    for entry in &tables.log {
        if entry.superseded {
            findings.count("log rows superseded", 1);
            continue;
        }
        findings.count("log rows", 1);
        let reached = rooms.entry(&entry.room_key).or_default();
        follow(tables, entry, reached, findings);
        if let (Some(caller), Some(command)) = (&entry.caller, &entry.command) {
            let first = commands.insert((&entry.room_key, caller, command), entry.seq);
            findings.demand(first.is_none(), || {
                format!("{}: {caller}'s {command} is there twice, also as {first:?}", place(tables, entry))
            });
        }
    }
    for (key, room) in &tables.rooms {
        let reached = rooms.get(&**key).copied().unwrap_or_default();
        let head = (room.token, [room.cv, room.sv]);
        findings.demand(head == (reached.token, reached.versions) || reached.settings_may_leap, || {
            format!("{}: its head {head:?} is not where its log ends: {reached:?}", room.name)
        });
        findings.demand(!room.gap, || format!("{}: the ledger says that it lacks something", room.name));
    }
    let homeless = rooms.keys().find(|key| !tables.rooms.contains_key(**key));
    findings.demand(homeless.is_none(), || format!("there is a log of {homeless:?}, and no such room"));
    findings.demand(tables.aside == 0, || format!("{} entries were set aside", tables.aside));
    findings.count("rooms", rooms.len());
    findings.count("commands with an answer", commands.len());
}

fn follow(tables: &Tables, entry: &Entry, reached: &mut Reached, findings: &mut Findings) {
    findings.demand(entry.token >= reached.token, || {
        format!("{}: its token is lower than {}", place(tables, entry), reached.token)
    });
    let token = reached.token;
    reached.token = reached.token.max(entry.token);
    let counter = usize::from(entry.counter != 0);
    let before = reached.versions[counter];
    if entry.kind == "state" {
        findings.count("whole states", 1);
        findings.demand(entry.version >= before, || format!("{}: it falls back", place(tables, entry)));
        reached.settings_may_leap = true;
    } else if counter == 1 && std::mem::take(&mut reached.settings_may_leap) {
        findings.demand(entry.version > before, || format!("{}: it falls back", place(tables, entry)));
    } else {
        findings.demand(entry.version == before + 1, || {
            let wrong = if entry.version <= before { "a repeat" } else { "a gap" };
            let at = place(tables, entry);
            format!("{at}: {wrong} after version {before}, that under {token}, this by {}", entry.owner)
        });
    }
    reached.versions[counter] = before.max(entry.version);
}

/// An entry, as a person finds it.
pub(crate) fn place(tables: &Tables, entry: &Entry) -> String {
    let Entry { seq, kind, token, version, .. } = entry;
    format!("log row {seq}, {} {kind} {version} under {token}", tables.name(&entry.room_key))
}
