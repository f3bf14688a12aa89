//! What the log says happened is in the outbox, for each sink, and nothing else.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

use super::findings::Findings;
use super::positions::place;
use super::tables::{Entry, Tables};

/// Room, token, which version and its number.
type At<'a> = (&'a str, i64, &'static str, i64);

pub(crate) fn check(tables: &Tables, findings: &mut Findings) {
    let sinks: BTreeSet<&str> = tables.outbox.iter().map(|event| &*event.sink).collect();
    let mut told: BTreeMap<(&str, At<'_>), Vec<&str>> = BTreeMap::new();
    for event in &tables.outbox {
        let data = &event.payload["data"];
        // What follows from a whole state is in no row by itself, and instances are in no room.
        if data["recovered"] == true || event.kind == "instance.lost" {
            findings.count("events beside the log", 1);
            continue;
        }
        let version = ["cell", "settings"]
            .into_iter()
            .find_map(|counter| Some((counter, data["version"][counter].as_i64()?)));
        let (Some((counter, version)), Some(token)) = (version, data["token"].as_i64()) else {
            findings.demand(false, || format!("outbox row {} says of no version: {data}", event.seq));
            continue;
        };
        let at = (&*event.room_key, token, counter, version);
        told.entry((&event.sink, at)).or_default().push(&event.kind);
    }
    for entry in tables.log.iter().filter(|entry| !entry.superseded && entry.kind != "state") {
        let implied = kinds(entry);
        findings.count("events implied", implied.len() * sinks.len());
        let counter = if entry.counter == 0 { "cell" } else { "settings" };
        for sink in &sinks {
            let at = (&*entry.room_key, entry.token, counter, entry.version);
            let told = told.remove(&(*sink, at)).unwrap_or_default();
            findings.demand(told == implied, || {
                format!("{} implies {implied:?}, and {sink} is told {told:?}", place(tables, entry))
            });
        }
    }
    for ((sink, (room, token, counter, version)), kinds) in told {
        findings.demand(false, || {
            let room = tables.name(room);
            format!("{sink} is told {kinds:?} of {room} at {counter} {version} under {token}, which is not in the log")
        });
    }
}

/// Kinds of the events that an entry of the log implies, in order.
fn kinds(entry: &Entry) -> Vec<&'static str> {
    let body = &entry.body;
    match &*entry.kind {
        "settings" => vec!["settings.updated"],
        "guest" => vec!["guest.updated"; body["guests"].as_object().map_or(0, serde_json::Map::len)],
        _ => body["events"].as_array().into_iter().flatten().flat_map(of_cell).copied().collect(),
    }
}

fn of_cell(event: &Value) -> &'static [&'static str] {
    let is_first = event["heardMs"].is_null();
    match event["event"].as_str().unwrap_or_default() {
        "made" => &["room.created"],
        "reopened" => &["room.reopened"],
        "closed" | "failed" => &["room.closed"],
        "joined" if event["arrived"] == true => &["user.joined"],
        "left" if event["reason"] == "kicked" => &["user.kicked", "user.left"],
        "left" => &["user.left"],
        "banned" => &["user.banned"],
        "unbanned" => &["user.unbanned"],
        "confirmed" if is_first => &["mic.started"],
        "seat_moved" if is_first && event["speaking"]["state"] == "publishing" => &["mic.started"],
        "seat_freed" if !is_first => &["mic.ended"],
        "call_started" => &["call.started"],
        "call_accepted" => &["call.accepted"],
        "call_ended" => match event["state"].as_str().unwrap_or_default() {
            "finished" => &["call.finished"],
            "disconnected" => &["call.disconnected"],
            "missed" => &["call.missed"],
            "declined" => &["call.declined"],
            _ => &[],
        },
        _ => &[],
    }
}
