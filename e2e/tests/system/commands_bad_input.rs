//! Commands with bodies that are wrong, each with its code and with what is wrong named; and by whom and where they
//! cannot be asked at all.

use e2e::token::Token;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::stage::{ROOM, Stage};

/// Every command with a body that is right, the fields that it must have, and who may ask for it where.
fn commands() -> Vec<(&'static str, Value, &'static [&'static str], Who)> {
    vec![
        ("room:leave", json!({}), &[], Who::MemberHere),
        ("peer:update", json!({ "attributes": { "a": 1 } }), &["attributes"], Who::MemberHere),
        ("room:kick", json!({ "user": "bob", "reason": "r", "banSeconds": 60 }), &["user"], Who::Host),
        ("room:unban", json!({ "user": "bob" }), &["user"], Who::Host),
        ("room:role", json!({ "user": "bob", "role": "guest" }), &["user", "role"], Who::Host),
        ("room:lock", json!({ "locked": true }), &["locked"], Who::Host),
        ("room:close", json!({ "reason": "over" }), &[], Who::Host),
        ("mic:up", json!({ "seat": 1, "user": "bob" }), &[], Who::Member),
        ("mic:down", json!({ "user": "bob", "micSession": "m" }), &[], Who::Member),
        ("mic:move", json!({ "seat": 2, "user": "bob" }), &["seat"], Who::Member),
        ("mic:confirm", json!({ "micSession": "m" }), &["micSession"], Who::MemberHere),
        ("mic:lock", json!({ "seat": 1, "locked": true, "force": true }), &["seat", "locked"], Who::Host),
        ("mic:mute", json!({ "user": "bob", "muted": true }), &["muted"], Who::Member),
        ("mic:muteAll", json!({ "muted": true, "except": ["bob"] }), &["muted"], Who::Host),
        ("mic:seats", json!({ "count": 8 }), &["count"], Who::Host),
        ("mic:request", json!({ "seat": 1, "withdraw": false }), &[], Who::Member),
        ("mic:invite", json!({ "user": "bob", "seat": 1 }), &["user"], Who::Host),
        ("mic:respond", json!({ "user": "bob", "accept": true }), &["accept"], Who::Member),
        ("call:invite", json!({ "to": ["bob"] }), &["to"], Who::MemberHere),
        ("call:accept", json!({ "call": "c" }), &[], Who::MemberHere),
        ("call:decline", json!({ "call": "c" }), &[], Who::MemberHere),
        ("call:hangup", json!({ "call": "c" }), &[], Who::MemberHere),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    /// Members, at the instance where they joined.
    MemberHere,
    /// Members there, and hosts anywhere.
    Member,
    /// Hosts anywhere.
    Host,
}

/// Sends every case, and says of all at once which were not refused as they should be.
async fn all_refused(stage: &Stage, conn: &str, cases: Vec<(&str, Value, &str, String)>) {
    let mut wrong = Vec::new();
    for (event, body, code, said) in cases {
        let ack = stage.answer(conn, event, body.clone()).await;
        let message = ack["error"]["message"].as_str().unwrap_or_default();
        let is_named = message.starts_with(event) || code != "BAD_REQUEST";
        if crate::clients::code(&ack) != code || !message.contains(&said) || !is_named {
            wrong.push(format!("{event} {body}: {code} with {said:?} expected, answered {ack}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn with(body: &Value, field: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[field] = value;
    body
}

/// Nothing of what was refused was done, and the process has no fault of its own to report.
async fn unmoved(stage: &Stage, before: &Value) {
    let after = stage.snapshot(0).await;
    assert_eq!(
        (&after["version"], &after["seats"], &after["call"]),
        (&before["version"], &before["seats"], &before["call"])
    );
    for instance in &stage.cluster.coordinators {
        assert_eq!(instance.process().exit_status(), None);
        let log = instance.log_lines();
        let bad: Vec<_> =
            log.iter().filter(|it| it.contains("panicked") || it.contains("\"level\":\"ERROR\"")).collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
}

#[tokio::test]
async fn a_field_that_is_missing_or_of_a_wrong_type_is_named() {
    let stage = Stage::start(1).await;
    stage.enter("ann", "host").await;
    let before = stage.snapshot(0).await;
    let bad = "BAD_REQUEST";
    let mut cases = Vec::new();
    for (event, body, needed, _) in commands() {
        for field in needed {
            let mut less = body.clone();
            less.as_object_mut().expect("an object").remove(*field);
            cases.push((event, less, bad, format!("missing field `{field}`")));
            cases.push((event, with(&body, field, Value::Null), bad, format!("`{field}`")));
        }
        for (field, right) in body.as_object().expect("an object") {
            let wrong = if right.is_array() { json!({}) } else { json!([{}]) };
            cases.push((event, with(&body, field, wrong), bad, format!("`{field}`")));
        }
        for room in [json!(""), json!(7), json!("x".repeat(129)), json!("a\u{0}b"), json!(null)] {
            cases.push((event, with(&body, "room", room), bad, "`room`".to_owned()));
        }
        for id in [json!(""), json!("x".repeat(65)), json!(7), json!({})] {
            cases.push((event, with(&body, "id", id), bad, "`id`".to_owned()));
        }
    }
    cases.push(("auth:refresh", json!({}), bad, "missing field `token`".to_owned()));
    cases.push(("auth:refresh", json!({ "token": 7 }), bad, "`token`".to_owned()));
    all_refused(&stage, "ann", cases).await;
    unmoved(&stage, &before).await;
}

#[tokio::test]
async fn names_numbers_and_lists_have_their_bounds() {
    let stage = Stage::start(1).await;
    stage.enter("ann", "host").await;
    let before = stage.snapshot(0).await;
    let bad = "BAD_REQUEST";
    let long = "x".repeat(257);
    let users = |count: usize| json!((0..count).map(|n| format!("u{n}")).collect::<Vec<_>>());
    let names = [json!(""), json!("x".repeat(129)), json!("a\u{7}b")];
    let no_numbers = [json!(-1), json!(1.5), json!("1"), json!(1e30)];
    let mut bounds: BTreeMap<&str, Vec<(Value, &str)>> = BTreeMap::new();
    for name in ["user", "micSession", "call"] {
        bounds.insert(name, names.iter().map(|value| (value.clone(), "")).collect());
    }
    for number in ["seat", "count", "banSeconds"] {
        bounds.insert(number, no_numbers.iter().map(|value| (value.clone(), "")).collect());
    }
    let mut more = |field: &'static str, value: Value, said: &'static str| {
        bounds.entry(field).or_default().push((value, said));
    };
    more("seat", json!(0), "1 to 1000");
    more("seat", json!(1_001), "1 to 1000");
    more("seat", json!(65_536), "u16");
    more("count", json!(1_001), "at most 1000");
    more("count", json!(65_536), "u16");
    more("banSeconds", json!(0), "1 to ");
    more("banSeconds", json!(316_224_001), "1 to 316224000");
    more("reason", json!(long), "at most 256 bytes");
    more("reason", json!(7), "string");
    more("role", json!("monitor"), "monitor");
    more("role", json!("owner"), "owner");
    more("to", json!([]), "1 to 16");
    more("to", users(17), "1 to 16");
    more("to", json!(["ok", ""]), "empty");
    more("except", users(101), "at most 100");
    more("except", json!([7]), "string");
    let mut cases = Vec::new();
    let mut tried = std::collections::BTreeSet::new();
    for (event, body, _, _) in commands() {
        for (field, wrong) in &bounds {
            if body.get(*field).is_none() {
                continue;
            }
            tried.insert(*field);
            for (value, said) in wrong {
                cases.push((event, with(&body, field, value.clone()), bad, (*said).to_owned()));
                cases.push((event, with(&body, field, value.clone()), bad, (*field).to_owned()));
            }
        }
    }
    assert_eq!(tried, bounds.keys().copied().collect(), "each is a field of some command");
    let attributes = |value: Value| json!({ "attributes": value });
    cases.push((
        "peer:update",
        attributes(json!({ "a": "x".repeat(5_000) })),
        "PAYLOAD_TOO_LARGE",
        "`attributes`".into(),
    ));
    cases.push(("peer:update", attributes(json!({ "a": { "$nested": 100 } })), bad, "`attributes`".into()));
    // Depth is said without the event's name, as that of settings is.
    let nested = cases.pop().expect("the last");
    all_refused(&stage, "ann", cases).await;
    let ack = stage.answer("ann", nested.0, nested.1).await;
    assert_eq!(crate::clients::code(&ack), nested.2, "{ack}");
    assert!(ack["error"]["message"].as_str().is_some_and(|text| text.contains("`attributes`")), "{ack}");
    unmoved(&stage, &before).await;
}

#[tokio::test]
async fn who_may_not_ask_is_told_so_wherever_it_asks() {
    let stage = Stage::start(2).await;
    stage.enter("ann", "host").await;
    stage.enter("guest", "guest").await;
    stage.connect("monitor", "monitor", "monitor", 0).await;
    stage.connect("outside", "outside", "guest", 0).await;
    stage.connect("elsewhere", "elsewhere", "guest", 1).await;
    stage.connect("host elsewhere", "host", "host", 1).await;
    let limited = Token::new("limited", "host").room("another room");
    stage.connect_with("limited", &limited, 0, json!({})).await;
    let before = stage.snapshot(1).await;
    for (event, body, _, who) in commands() {
        stage.refused("limited", event, body.clone(), "FORBIDDEN").await;
        // Who is nobody's member has nothing to leave.
        let of_monitors = if event == "room:leave" { "NOT_IN_ROOM" } else { "FORBIDDEN" };
        stage.refused("monitor", event, body.clone(), of_monitors).await;
        let of_guests = if who == Who::Host { "FORBIDDEN" } else { "NOT_IN_ROOM" };
        stage.refused("elsewhere", event, body.clone(), of_guests).await;
        // Where the room runs it knows that a guest may not do it for somebody else, member or not.
        let for_another = who == Who::Member && body.get("user").is_some();
        let of_guests = if for_another { "FORBIDDEN" } else { of_guests };
        stage.refused("outside", event, body.clone(), of_guests).await;
        if who == Who::Host {
            stage.refused("guest", event, body.clone(), "FORBIDDEN").await;
        }
        if who == Who::MemberHere {
            stage.refused("host elsewhere", event, body.clone(), "NOT_IN_ROOM").await;
        }
    }
    // What a host may from anywhere for others, it may not for itself where it is not in the room.
    for (event, body) in [("mic:up", json!({})), ("mic:down", json!({})), ("mic:request", json!({}))] {
        stage.refused("host elsewhere", event, body, "NOT_IN_ROOM").await;
    }
    let ack = stage.answer("ann", "room:kick", json!({ "room": ROOM, "user": "ann" })).await;
    assert_eq!(crate::clients::code(&ack), "FORBIDDEN", "{ack}");
    unmoved(&stage, &before).await;
}
