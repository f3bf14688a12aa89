use super::*;
use crate::error::ErrorCode;
use serde_json::{Value, json};

/// What reading a request answers to a body, as an error's code and message.
type Read = fn(&str, &str) -> Result<(), ApiError>;

fn reads<T: DeserializeOwned>(event: &str, text: &str) -> Result<(), ApiError> {
    read::<T>(event, text).map(drop)
}

/// Every request: how it is read, a body that is right, and the fields it must have.
fn all() -> Vec<(&'static str, Read, Value, &'static [&'static str])> {
    vec![
        (
            "room:join",
            reads::<Join>,
            json!({ "room": "math", "role": "host", "attributes": {}, "hops": 1 }),
            &["room"],
        ),
        ("room:leave", reads::<Leave>, json!({ "room": "math" }), &["room"]),
        ("room:heartbeat", reads::<InRoom>, json!({ "room": "math" }), &["room"]),
        ("room:peers", reads::<Peers>, json!({ "room": "math", "cursor": "a", "limit": 5 }), &["room"]),
        (
            "room:update",
            reads::<Update>,
            json!({ "room": "math", "settings": {}, "ifVersion": 3 }),
            &["room", "settings"],
        ),
        (
            "guest:update",
            reads::<GuestUpdate>,
            json!({ "room": "math", "user": "bob", "state": {} }),
            &["room", "state"],
        ),
        (
            "peer:update",
            reads::<PeerUpdate>,
            json!({ "room": "math", "attributes": {} }),
            &["room", "attributes"],
        ),
        (
            "room:kick",
            reads::<Kick>,
            json!({ "room": "math", "user": "bob", "reason": "r", "banSeconds": 60 }),
            &["room", "user"],
        ),
        ("room:unban", reads::<Unban>, json!({ "room": "math", "user": "bob" }), &["room", "user"]),
        (
            "room:role",
            reads::<SetRole>,
            json!({ "room": "math", "user": "bob", "role": "host" }),
            &["room", "user", "role"],
        ),
        ("room:lock", reads::<LockDoor>, json!({ "room": "math", "locked": true }), &["room", "locked"]),
        ("room:close", reads::<Close>, json!({ "room": "math", "reason": "over" }), &["room"]),
        ("room:watch", reads::<Watch>, json!({ "rooms": ["math"] }), &["rooms"]),
        ("rooms:list", reads::<List>, json!({ "limit": 5, "prefix": "m" }), &[]),
        ("auth:refresh", reads::<Refresh>, json!({ "token": "t" }), &["token"]),
        ("mic:up", reads::<MicUp>, json!({ "room": "math", "seat": 1, "user": "bob" }), &["room"]),
        (
            "mic:down",
            reads::<MicDown>,
            json!({ "room": "math", "user": "bob", "micSession": "m" }),
            &["room"],
        ),
        (
            "mic:move",
            reads::<MicMove>,
            json!({ "room": "math", "seat": 2, "user": "bob" }),
            &["room", "seat"],
        ),
        (
            "mic:confirm",
            reads::<MicConfirm>,
            json!({ "room": "math", "micSession": "m" }),
            &["room", "micSession"],
        ),
        (
            "mic:lock",
            reads::<MicLock>,
            json!({ "room": "math", "seat": 1, "locked": true, "force": true }),
            &["room", "seat", "locked"],
        ),
        (
            "mic:mute",
            reads::<MicMute>,
            json!({ "room": "math", "user": "bob", "muted": true }),
            &["room", "muted"],
        ),
        (
            "mic:muteAll",
            reads::<MicMuteAll>,
            json!({ "room": "math", "muted": true, "except": ["bob"] }),
            &["room", "muted"],
        ),
        ("mic:seats", reads::<MicSeats>, json!({ "room": "math", "count": 8 }), &["room", "count"]),
        (
            "mic:request",
            reads::<MicRequest>,
            json!({ "room": "math", "seat": 1, "withdraw": false }),
            &["room"],
        ),
        (
            "mic:invite",
            reads::<MicInvite>,
            json!({ "room": "math", "user": "bob", "seat": 1 }),
            &["room", "user"],
        ),
        (
            "mic:respond",
            reads::<MicRespond>,
            json!({ "room": "math", "user": "bob", "accept": true }),
            &["room", "accept"],
        ),
        ("call:invite", reads::<CallInvite>, json!({ "room": "math", "to": ["bob"] }), &["room", "to"]),
        ("call:accept", reads::<CallAccept>, json!({ "room": "math", "call": "c" }), &["room"]),
        ("call:decline", reads::<CallDecline>, json!({ "room": "math", "call": "c" }), &["room"]),
        ("call:hangup", reads::<CallHangup>, json!({ "room": "math", "call": "c" }), &["room"]),
        ("media:publish", reads::<Media>, json!({ "room": "math", "sdp": "v=0" }), &["room", "sdp"]),
    ]
}

#[track_caller]
fn refused(read: Read, event: &str, body: &Value, said: &[&str]) {
    let error = read(event, &body.to_string()).expect_err(&format!("{event} {body}"));
    assert_eq!(error.code, ErrorCode::BadRequest, "{event} {body}");
    for text in [event].iter().chain(said) {
        assert!(error.message.contains(text), "{event} {body}: no {text:?} in {:?}", error.message);
    }
}

fn with(body: &Value, field: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[field] = value;
    body
}

#[test]
fn what_is_right_is_read() {
    for (event, read, body, _) in all() {
        read(event, &body.to_string()).unwrap_or_else(|error| panic!("{event}: {error}"));
        read(event, &with(&body, "id", json!("é".repeat(64))).to_string()).expect(event);
        read(event, &with(&body, "id", Value::Null).to_string()).expect(event);
        read(event, &with(&body, "somethingNew", json!({ "a": [1] })).to_string()).expect(event);
    }
}

#[test]
fn what_is_no_object_is_refused() {
    for (event, read, body, _) in all() {
        let fields: Vec<&Value> = body.as_object().unwrap().values().collect();
        for wrong in [json!(null), json!(7), json!("math"), json!([]), json!([body]), json!(fields)] {
            refused(read, event, &wrong, &["expected an object"]);
        }
    }
}

#[test]
fn a_field_that_is_missing_is_named() {
    for (event, read, body, needed) in all() {
        for field in needed {
            let mut less = body.clone();
            less.as_object_mut().unwrap().remove(*field);
            refused(read, event, &less, &[&format!("missing field `{field}`")]);
        }
    }
}

#[test]
fn a_field_of_a_wrong_type_is_named() {
    for (event, read, body, needed) in all() {
        for (field, right) in body.as_object().unwrap() {
            let named = format!("`{field}`: ");
            let wrong = if right.is_array() { json!({}) } else { json!([{}]) };
            refused(read, event, &with(&body, field, wrong), &[&named]);
            if needed.contains(&field.as_str()) {
                refused(read, event, &with(&body, field, Value::Null), &[&named]);
            }
        }
    }
}

#[test]
fn an_id_has_its_bounds() {
    for (event, read, body, _) in all() {
        for id in [json!(7), json!(""), json!("x".repeat(65)), json!({})] {
            refused(read, event, &with(&body, "id", id), &["`id`: "]);
        }
    }
}

#[test]
fn names_have_their_bounds() {
    let wrong = [json!(""), json!("x".repeat(129)), json!("a\u{7}b"), json!(7)];
    for (event, read, body, _) in all() {
        for field in ["room", "user", "micSession", "call"] {
            if body.get(field).is_none() {
                continue;
            }
            for name in &wrong {
                refused(read, event, &with(&body, field, name.clone()), &[&format!("`{field}`: ")]);
            }
        }
        for field in ["to", "except", "rooms"] {
            if body.get(field).is_some() {
                refused(read, event, &with(&body, field, json!(["ok", ""])), &[&format!("`{field}")]);
            }
        }
    }
}

#[test]
fn numbers_have_their_bounds() {
    for (event, read, body, _) in all() {
        for field in ["seat", "count", "banSeconds", "ifVersion", "limit", "hops"] {
            if body.get(field).is_none() {
                continue;
            }
            for number in [json!(-1), json!(1.5), json!("1"), json!(1e30)] {
                refused(read, event, &with(&body, field, number), &[&format!("`{field}`: ")]);
            }
        }
        for field in ["seat", "count"] {
            if body.get(field).is_some() {
                refused(read, event, &with(&body, field, json!(65_536)), &[&format!("`{field}`: ")]);
            }
        }
    }
}

#[test]
fn a_long_text_is_not_quoted_back_in_full() {
    let body = json!({ "room": "math", "user": "bob", "role": "x".repeat(5_000) });
    let error = read::<SetRole>("room:role", &body.to_string()).unwrap_err();
    assert!(error.message.len() < 300, "{}", error.message.len());
}
