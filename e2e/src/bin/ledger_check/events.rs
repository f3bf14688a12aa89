//! The outbox against what the sink received.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::evidence::Arrival;
use super::findings::Findings;
use super::tables::{Event, State, Tables};

/// What begins something, what ends it, and the field that names it; a room needs no name within its own events.
const PAIRS: [(&[&str], &[&str], Option<&str>); 4] = [
    (&["user.joined"], &["user.left"], Some("user")),
    (&["mic.started"], &["mic.ended"], Some("session")),
    (&["room.created", "room.reopened"], &["room.closed"], None),
    (
        &["call.started"],
        &["call.declined", "call.missed", "call.finished", "call.disconnected"],
        Some("call"),
    ),
];

#[derive(Debug)]
struct Seen<'a> {
    first: i64,
    payload: &'a str,
    taken: bool,
}

pub(crate) fn check(tables: &Tables, arrivals: &[Arrival], findings: &mut Findings) {
    let seen = gather(arrivals, findings);
    let known: BTreeSet<&str> = tables.outbox.iter().map(|event| &*event.id).collect();
    for id in seen.keys().filter(|id| !known.contains(**id)) {
        findings.demand(false, || format!("event {id} was received, and is not in the outbox"));
    }
    let mut ids = BTreeSet::new();
    let mut last_of_room: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for event in &tables.outbox {
        findings
            .demand(ids.insert((&event.sink, &event.id)), || format!("{} is twice", place(tables, event)));
        let found = seen.get(&*event.id);
        match event.state {
            State::Open => findings.demand(false, || format!("{} is still open", place(tables, event))),
            State::Delivered => {
                findings.count("events delivered", 1);
                findings.demand(found.is_some_and(|seen| seen.taken), || {
                    format!("{} is said to be delivered, and was never taken", place(tables, event))
                });
            }
            State::Failed | State::Dropped => findings.count("events given up", 1),
        }
        let Some(seen) = found else { continue };
        let sent = if event.out_of_order { event.text.trim_end_matches('}').len() } else { event.text.len() };
        findings.demand(seen.payload.get(..sent) == event.text.get(..sent), || {
            format!("{} was received as {}", place(tables, event), seen.payload)
        });
        if !event.out_of_order {
            let last = last_of_room.entry((&event.sink, &event.room_key)).or_insert(0);
            findings.demand(seen.first > *last, || {
                format!(
                    "{} arrived as number {}, after a later one with {last}",
                    place(tables, event),
                    seen.first
                )
            });
            *last = (*last).max(seen.first);
        }
    }
    pairs(tables, findings);
}

fn gather<'a>(arrivals: &'a [Arrival], findings: &mut Findings) -> HashMap<&'a str, Seen<'a>> {
    let mut seen: HashMap<&str, Seen<'_>> = HashMap::new();
    for arrival in arrivals {
        findings.count("arrivals", 1);
        let fresh = Seen { first: arrival.seq, payload: &arrival.payload, taken: arrival.taken };
        if let Some(known) = seen.get_mut(&*arrival.id) {
            findings.count("arrivals again", 1);
            known.taken |= arrival.taken;
            known.first = known.first.min(arrival.seq);
            findings.demand(known.payload == arrival.payload, || {
                format!(
                    "event {} came with two payloads: {} and {}",
                    arrival.id, known.payload, arrival.payload
                )
            });
        } else {
            seen.insert(&arrival.id, fresh);
        }
    }
    seen
}

/// Whatever begins ends once, or still goes on.
fn pairs(tables: &Tables, findings: &mut Findings) {
    let mut open: BTreeSet<(&str, &str, usize, &str)> = BTreeSet::new();
    for event in &tables.outbox {
        let pair = PAIRS.iter().enumerate().find_map(|(at, (begin, end, name))| {
            let begins = begin.contains(&&*event.kind);
            (begins || end.contains(&&*event.kind)).then_some((at, begins, *name))
        });
        let Some((at, begins, name)) = pair else { continue };
        let name = name.map_or(Some(""), |name| event.payload["data"][name].as_str());
        let Some(name) = name else {
            findings.demand(false, || format!("{} does not say of what", place(tables, event)));
            continue;
        };
        let key = (&*event.sink, &*event.room_key, at, name);
        let is_right = if begins { open.insert(key) } else { open.remove(&key) };
        findings.count(if begins { "beginnings" } else { "endings" }, 1);
        findings.demand(is_right, || {
            let wrong = if begins { "begins what goes on" } else { "ends what does not go on" };
            format!("{} {wrong}: {name}", place(tables, event))
        });
    }
    findings.count("still so at the end", open.len());
}

fn place(tables: &Tables, event: &Event) -> String {
    let Event { seq, kind, id, payload, .. } = event;
    let version: &Value = &payload["data"]["version"];
    format!("outbox row {seq}, {} {kind} {version} ({id})", tables.name(&event.room_key))
}
