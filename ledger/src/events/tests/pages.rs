//! `docs/events.md` and `docs/events.schema.json` are made of the payload types and of events as they come of
//! commands. `DAIS_WRITE_DOCS=1` writes them anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use redis_scripts::SettingsVersion;
use room_cell::{Actor, Command, MediaFact, Role, Timer};
use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::room::{Room, create, down, host, json, up};
use crate::entry::Change;
use crate::events::{self, BusinessEvent, payload};

#[test]
fn the_pages_say_what_the_code_does() {
    let schema = schema();
    let pages = [
        ("events.md", page(&schema)),
        ("events.schema.json", format!("{}\n", serde_json::to_string_pretty(&schema).unwrap())),
    ];
    for (name, expected) in pages {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
        if std::env::var_os("DAIS_WRITE_DOCS").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "docs/{name}: DAIS_WRITE_DOCS=1 cargo test -p ledger pages");
    }
}

#[test]
fn every_example_is_what_the_schema_says() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let examples = examples();
    for event in &examples {
        let found: Vec<String> = validator.iter_errors(&json(event)).map(|it| it.to_string()).collect();
        assert_eq!(found, [""; 0], "{}", event.payload);
    }
    let told: std::collections::BTreeSet<&str> = examples.iter().map(|event| event.kind).collect();
    let documented: std::collections::BTreeSet<&str> = KINDS.iter().map(|kind| kind.0).collect();
    assert_eq!(told, documented);
    for wrong in [
        json!({ "type": "mic.ended", "timestamp": "2025-11-30T12:00:00.000Z", "id": "0", "data": {} }),
        json!({ "type": "unheard.of" }),
    ] {
        assert!(!validator.is_valid(&wrong), "{wrong}");
    }
}

type Described = fn(&mut Vec<(String, RefOr<Schema>)>) -> (String, RefOr<Schema>);

fn described<T: ToSchema>(others: &mut Vec<(String, RefOr<Schema>)>) -> (String, RefOr<Schema>) {
    T::schemas(others);
    (T::name().into_owned(), T::schema())
}

const KINDS: [(&str, Described); 19] = [
    ("room.created", described::<payload::RoomCreated>),
    ("room.closed", described::<payload::RoomClosed>),
    ("room.reopened", described::<payload::RoomReopened>),
    ("user.joined", described::<payload::UserJoined>),
    ("user.left", described::<payload::UserLeft>),
    ("user.kicked", described::<payload::UserKicked>),
    ("user.banned", described::<payload::UserBanned>),
    ("user.unbanned", described::<payload::UserUnbanned>),
    ("mic.started", described::<payload::MicStarted>),
    ("mic.ended", described::<payload::MicEnded>),
    ("settings.updated", described::<payload::SettingsUpdated>),
    ("guest.updated", described::<payload::GuestUpdated>),
    ("call.started", described::<payload::CallStarted>),
    ("call.accepted", described::<payload::CallAccepted>),
    ("call.declined", described::<payload::CallOver>),
    ("call.missed", described::<payload::CallOver>),
    ("call.finished", described::<payload::CallOver>),
    ("call.disconnected", described::<payload::CallOver>),
    ("instance.lost", described::<payload::InstanceLost>),
];

/// What the types alone do not say of a kind.
fn when(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "call.declined" => "Everybody who was called said no.",
        "call.missed" => "Nobody answered, or the caller gave up.",
        "call.finished" => "One of the two hung up.",
        "call.disconnected" => "Somebody in it is gone without a word.",
        _ => return None,
    })
}

fn schema() -> Value {
    let (mut found, mut kinds, mut of_kinds) = (Vec::new(), Vec::new(), Map::new());
    payload::Origin::schemas(&mut found);
    found.push((payload::Origin::name().into_owned(), payload::Origin::schema()));
    for (kind, described) in KINDS {
        let (name, schema) = described(&mut found);
        found.push((name.clone(), schema));
        kinds.push(json!({ "$ref": format!("#/$defs/{kind}") }));
        of_kinds.insert(kind.to_owned(), event(kind, &name));
    }
    let mut types: BTreeMap<String, Value> = BTreeMap::new();
    for (name, schema) in found {
        types.insert(name, plain(serde_json::to_value(schema).unwrap()));
    }
    of_kinds.extend(types);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Business events",
        "oneOf": kinds,
        "$defs": of_kinds,
    })
}

fn event(kind: &str, data: &str) -> Value {
    json!({
        "type": "object",
        "required": ["type", "timestamp", "id", "data"],
        "properties": {
            "type": { "const": kind },
            "timestamp": { "type": "string", "format": "date-time" },
            "id": { "type": "string", "pattern": "^[0-9a-f]{32}$" },
            "outOfOrder": { "const": true },
            "data": { "allOf": [{ "$ref": "#/$defs/Origin" }, { "$ref": format!("#/$defs/{data}") }] },
        },
    })
}

/// Fields that are left out are never null, and what a schema names stands in the same document.
fn plain(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let choices =
                fields.get("oneOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let is_null = |choice: &&Value| choice["type"] == "null";
            if let ([_, _], Some(choice)) = (choices, choices.iter().find(|choice| !is_null(choice)))
                && choices.iter().any(|choice| is_null(&choice))
            {
                return plain(choice.clone());
            }
            let fields = fields.into_iter().filter_map(|(name, value)| match (&*name, value) {
                ("type", Value::Array(types)) => {
                    Some((name, types.into_iter().find(|of| of != "null").unwrap_or_default()))
                }
                ("$ref", Value::String(to)) => {
                    Some((name, to.replace("#/components/schemas/", "#/$defs/").into()))
                }
                // Where the type says it already.
                ("format", Value::String(format)) if format.starts_with("int") => None,
                (_, value) => Some((name, plain(value))),
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.into_iter().map(plain).collect(),
        other => other,
    }
}

const INTRODUCTION: &str = "\
# Business events

What the outside is told of a committed change, by webhook or in a stream. Made of the code by its tests; the schema is
[`events.schema.json`](events.schema.json).

- An event is sent at least once: remember `id`, which is the same however often it is sent.
- Events of a room come to a sink in the order in which they happened, unless the sink is unordered. One that was given up
  and sent again by an operator says `\"outOfOrder\": true`, beside `data`.
- Every `user.joined` has one `user.left`, every `mic.started` one `mic.ended`, every `room.created` and `room.reopened` one
  `room.closed`. What happened while Redis was losing data is told as soon as it is known, with `\"recovered\": true`.
- Fields may be added. What is not known is to be left alone.

## By webhook

A webhook is a `POST` of the event as JSON, as [Standard Webhooks](https://www.standardwebhooks.com) has it: `webhook-id` is
the event's id, `webhook-timestamp` the second in which this try was made, `webhook-signature` has `v1,` and the base64 of
HMAC-SHA256 over `id.timestamp.body` for each secret of the sink, with spaces between: while receivers change from one secret
to the next, both are good. A secret is `whsec_` and the base64 of 24 to 64 bytes.

| answer | what comes of it |
| --- | --- |
| 2xx | delivered, whatever becomes of the body |
| 410 | a dead letter at once: the receiver never wants it |
| any other, a redirect too, or none in time | it is tried again, no sooner than `Retry-After` says (at most 10 minutes) |

Waits double from one second to 10 minutes. After a day it is a dead letter. It stays listed, and an operator may retry it.

## In a stream

Events of an app are appended to its stream `events` in Redis (see [`keys.md`](keys.md)), each with the fields `id`, `type`,
`room` (empty: about none) and `payload`, which is the event as JSON. An event may stand there twice, with one `id`.

## Every event

`type` and `timestamp` (RFC 3339, by Redis's clock) are what happened and when, `id` names it, and `data` holds the fields of
its kind, and these:

";

fn page(schema: &Value) -> String {
    let mut page = String::from(INTRODUCTION);
    fields(&mut page, schema, "Origin");
    let examples = examples();
    for (kind, described) in KINDS {
        let (name, _) = described(&mut Vec::new());
        let of_type = schema["$defs"][&name]["description"].as_str().unwrap_or_default();
        _ = writeln!(page, "\n## {kind}\n\n{}\n", when(kind).unwrap_or(of_type));
        fields(&mut page, schema, &name);
        let example = examples.iter().find(|event| event.kind == kind).map(json).unwrap_or_default();
        _ = writeln!(page, "\n```json\n{}\n```", serde_json::to_string_pretty(&example).unwrap());
    }
    page
}

fn fields(page: &mut String, schema: &Value, name: &str) {
    page.push_str("| field | type | |\n| --- | --- | --- |\n");
    let schema = &schema["$defs"][name];
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (field, of) in schema["properties"].as_object().into_iter().flatten() {
        let what = of["description"].as_str().unwrap_or_default();
        let optional = if required.contains(&&**field) { "" } else { ", or left out" };
        _ = writeln!(page, "| `{field}` | {}{optional} | {what} |", type_of(of, &self::schema()));
    }
}

fn type_of(of: &Value, schema: &Value) -> String {
    let reference = of["$ref"].as_str().and_then(|to| to.strip_prefix("#/$defs/"));
    if let Some(name) = reference {
        let named = &schema["$defs"][name];
        if let Some(words) = named["enum"].as_array() {
            let words: Vec<String> =
                words.iter().filter_map(Value::as_str).map(|it| format!("`{it}`")).collect();
            return words.join(", ");
        }
        let fields = named["properties"].as_object().into_iter().flatten();
        let fields: Vec<String> =
            fields.map(|(name, of)| format!("`{name}`: {}", type_of(of, schema))).collect();
        return fields.join("; ");
    }
    match of["type"].as_str() {
        Some("array") => "array of strings".to_owned(),
        Some(name) => name.to_owned(),
        None => "JSON".to_owned(),
    }
}

/// Each kind at least once, in the order in which a lesson would have them.
fn examples() -> Vec<BusinessEvent> {
    let mut room = Room::nowhere();
    let mut told = room.does(&host("ann"), create());
    told.extend(room.joins("ann", Role::Host));
    room.later(2_000);
    told.extend(room.joins("bob", Role::Guest));
    let (ann, bob) = (room.member("ann"), room.member("bob"));
    let sv = SettingsVersion::new(8);
    let settings = json!({ "settings": { "noiseReduction": "near_field" }, "by": "ann" });
    told.extend(events::of(&room.entry(Change::Settings { sv }, &settings)).unwrap());
    let guests = json!({ "guests": { "bob": { "stage": true } }, "by": "ann" });
    told.extend(events::of(&room.entry(Change::Guest { sv: sv.next() }, &guests)).unwrap());
    told.extend(room.does(&bob, up("mic-1")));
    told.extend(room.hears("bob", MediaFact::AudioStarted));
    room.later(61_250);
    told.extend(room.does(&bob, down()));
    let call = |id: &str| Command::CallInvite { call: id.into(), to: vec!["bob".into()] };
    for (id, end) in [
        (
            "call-1",
            vec![(&bob, Command::CallAccept { call: None }), (&ann, Command::CallHangup { call: None })],
        ),
        ("call-2", vec![(&bob, Command::CallDecline { call: None })]),
        ("call-3", vec![(&Actor::Owner, Command::Due(Timer::Ring { call: "call-3".into() }))]),
        ("call-4", vec![(&bob, Command::CallAccept { call: None })]),
    ] {
        told.extend(room.does(&ann, call(id)));
        room.later(45_000);
        for (who, command) in end {
            told.extend(room.does(who, command));
        }
    }
    let kick = Command::Kick { user: "bob".into(), reason: Some("noise".into()), ban_seconds: Some(600) };
    told.extend(room.does(&ann, kick));
    told.extend(room.does(&ann, Command::Unban { user: "bob".into() }));
    let close = Command::Close { reason: Some("the lesson is over".into()) };
    told.extend(room.does(&Actor::Backend, close));
    let reopen = Command::Reopen { seats: None, capacity: None, auto_close: Some(false) };
    told.extend(room.does(&Actor::Backend, reopen));
    let lost = json!({ "instance": "a/1764503980000", "rooms": 12 });
    told.extend(events::of(&room.entry(Change::Instance, &lost)).unwrap());
    told
}
