use super::*;
use crate::socket::requests::{self as of, read};
use key_prefix::AppCode;
use serde_json::json;

fn limits() -> Limits {
    Limits {
        connections: 1,
        handshake_timeout: std::time::Duration::from_secs(1),
        max_event_bytes: 65_536,
        events_per_second: 1,
        events_burst: 1,
        joins_per_second: 1,
        joins_burst: 1,
        rooms_per_connection: 1,
        watch_rooms: 1,
        guests_per_room: 1,
        json_depth: 4,
        custom_bytes: 64,
        guest_custom_bytes: 64,
        attributes_bytes: 100,
        outgoing_queue: 16,
    }
}

fn ann(role_max: TokenRole) -> Identity {
    Identity {
        app: AppCode::new("school").unwrap(),
        user: UserId::new("ann").unwrap(),
        role_max,
        room_limit: None,
        name: None,
        auth_version: None,
        admin: false,
        expires_at_s: 9,
    }
}

/// What ann's request comes to: the command and whether it must be executed here.
fn ask<B: Commanding>(role: TokenRole, event: &str, mut body: Value) -> Result<(Command, bool), ApiError> {
    body["room"] = json!("math");
    let (identity, limits, fresh) = (ann(role), limits(), Arc::from("new"));
    let body: B = read(event, &body.to_string())?;
    let wanted = body.wanted(&Asks { me: &identity.user, fresh: &fresh, limits: &limits })?;
    assert_eq!(wanted.room.as_str(), "math");
    let room = RoomKey::new(identity.app.clone(), wanted.room);
    let order = ordered(&identity, event, B::REACH, room, wanted.command, &limits)?;
    let max_role = if role == TokenRole::Host { Role::Host } else { Role::Guest };
    assert_eq!(*order.order.actor(), Actor::User { user: "ann".into(), max_role, peer: None });
    Ok((order.order.command().clone(), order.only_here))
}

/// A request for each role: the command, and whether a guest may ask at all.
#[track_caller]
fn check<B: Commanding>(event: &str, body: impl Into<Value>, expected: Command) {
    let body = body.into();
    let code = |role| ask::<B>(role, event, body.clone()).map_err(|error| error.code);
    assert_eq!(code(TokenRole::Monitor), Err(ErrorCode::Forbidden), "{event}");
    let host = code(TokenRole::Host);
    assert_eq!(host, Ok((expected.clone(), B::REACH == Reach::Member)), "{event}");
    match B::REACH {
        Reach::Host => assert_eq!(code(TokenRole::Guest), Err(ErrorCode::Forbidden), "{event}"),
        _ => assert_eq!(code(TokenRole::Guest), Ok((expected, true)), "{event}"),
    }
}

#[test]
fn each_request_is_its_command() {
    let patch = json!({ "hat": "red" });
    let attributes = patch.as_object().unwrap().clone();
    check::<of::Leave>("room:leave", json!({}), Command::Leave);
    check::<of::PeerUpdate>(
        "peer:update",
        json!({ "attributes": patch }),
        Command::UpdatePeer { attributes, max_bytes: 100 },
    );
    check::<of::Kick>(
        "room:kick",
        json!({ "user": "bob", "reason": "noise", "banSeconds": 60 }),
        Command::Kick { user: "bob".into(), reason: Some("noise".into()), ban_seconds: Some(60) },
    );
    check::<of::Unban>("room:unban", json!({ "user": "bob" }), Command::Unban { user: "bob".into() });
    check::<of::SetRole>(
        "room:role",
        json!({ "user": "bob", "role": "host" }),
        Command::SetRole { user: "bob".into(), role: Role::Host },
    );
    check::<of::LockDoor>("room:lock", json!({ "locked": true }), Command::LockDoor { locked: true });
    check::<of::Close>("room:close", json!({}), Command::Close { reason: None });
    check::<of::CallInvite>(
        "call:invite",
        json!({ "to": ["bob", "eve"] }),
        Command::CallInvite { call: "new".into(), to: vec!["bob".into(), "eve".into()] },
    );
    check::<of::CallAccept>("call:accept", json!({}), Command::CallAccept { call: None });
    check::<of::CallDecline>(
        "call:decline",
        json!({ "call": "c" }),
        Command::CallDecline { call: Some("c".into()) },
    );
    check::<of::CallHangup>("call:hangup", json!({}), Command::CallHangup { call: None });
}

#[test]
fn each_mic_request_is_its_command() {
    let session = || room_cell::MicSession::from("new");
    check::<of::MicUp>(
        "mic:up",
        json!({ "seat": 2, "user": "bob" }),
        Command::MicUp { user: Some("bob".into()), seat: Some(2), session: session() },
    );
    check::<of::MicDown>(
        "mic:down",
        json!({ "micSession": "m" }),
        Command::MicDown { user: None, session: Some("m".into()) },
    );
    check::<of::MicMove>(
        "mic:move",
        json!({ "seat": 3 }),
        Command::MicMove { user: None, seat: 3, flowing: false },
    );
    check::<of::MicConfirm>(
        "mic:confirm",
        json!({ "micSession": "m" }),
        Command::MicConfirm { session: "m".into() },
    );
    check::<of::MicLock>(
        "mic:lock",
        json!({ "seat": 1, "locked": true }),
        Command::SeatLock { seat: 1, locked: true, force: false },
    );
    check::<of::MicMute>(
        "mic:mute",
        json!({ "user": "bob", "muted": true }),
        Command::MicMute { user: Some("bob".into()), muted: true },
    );
    check::<of::MicMuteAll>(
        "mic:muteAll",
        json!({ "muted": true, "except": ["bob"] }),
        Command::MicMuteAll { muted: true, except: vec!["bob".into()] },
    );
    check::<of::MicSeats>("mic:seats", json!({ "count": 8 }), Command::SetSeats { count: 8 });
    check::<of::MicRequest>(
        "mic:request",
        json!({ "seat": 1, "withdraw": true }),
        Command::MicRequest { seat: Some(1), withdraw: true },
    );
    check::<of::MicInvite>(
        "mic:invite",
        json!({ "user": "bob" }),
        Command::MicInvite { user: "bob".into(), seat: None },
    );
    check::<of::MicRespond>(
        "mic:respond",
        json!({ "user": "bob", "accept": true }),
        Command::MicRespond { user: Some("bob".into()), accept: true, session: session() },
    );
}

#[test]
fn who_names_itself_means_itself() {
    let session = room_cell::MicSession::from("new");
    let me = json!({ "user": "ann" });
    check::<of::MicUp>("mic:up", me.clone(), Command::MicUp { user: None, seat: None, session });
    check::<of::MicDown>("mic:down", me, Command::MicDown { user: None, session: None });
}

#[track_caller]
fn refused<B: Commanding>(event: &str, body: Value, code: ErrorCode, said: &[&str]) {
    let error = ask::<B>(TokenRole::Host, event, body).unwrap_err();
    assert_eq!(error.code, code, "{event}: {error}");
    for text in said {
        assert!(error.message.contains(text), "no {text:?} in {:?}", error.message);
    }
}

#[test]
fn what_is_out_of_bounds_is_named_with_its_bound() {
    let bad = ErrorCode::BadRequest;
    let kick = |more: Value| json!({ "user": "bob", "banSeconds": more });
    refused::<of::Kick>("room:kick", kick(json!(0)), bad, &["room:kick: banSeconds", "1 to "]);
    refused::<of::Kick>("room:kick", kick(json!(u64::MAX)), bad, &["room:kick: banSeconds", "1 to "]);
    let long = "x".repeat(257);
    refused::<of::Kick>(
        "room:kick",
        json!({ "user": "bob", "reason": long }),
        bad,
        &["room:kick: reason", "256 bytes"],
    );
    refused::<of::Close>("room:close", json!({ "reason": long }), bad, &["room:close: reason", "256 bytes"]);
    for seat in [0, 1_001] {
        let body = json!({ "seat": seat, "locked": true, "user": "bob" });
        refused::<of::MicUp>("mic:up", body.clone(), bad, &["mic:up: seat", "1 to 1000"]);
        refused::<of::MicMove>("mic:move", body.clone(), bad, &["mic:move: seat", "1 to 1000"]);
        refused::<of::MicLock>("mic:lock", body.clone(), bad, &["mic:lock: seat", "1 to 1000"]);
        refused::<of::MicRequest>("mic:request", body.clone(), bad, &["mic:request: seat", "1 to 1000"]);
        refused::<of::MicInvite>("mic:invite", body, bad, &["mic:invite: seat", "1 to 1000"]);
    }
    refused::<of::MicSeats>("mic:seats", json!({ "count": 1_001 }), bad, &["mic:seats: count", "1000"]);
    let users = |count: usize| (0..count).map(|n| format!("u{n}")).collect::<Vec<_>>();
    for count in [0, 17] {
        let body = json!({ "to": users(count) });
        refused::<of::CallInvite>("call:invite", body, bad, &["call:invite: to", "1 to 16"]);
    }
    let body = json!({ "muted": true, "except": users(101) });
    refused::<of::MicMuteAll>("mic:muteAll", body, bad, &["mic:muteAll: except", "100"]);
    let body = json!({ "attributes": { "a": "x".repeat(100) } });
    refused::<of::PeerUpdate>("peer:update", body, ErrorCode::PayloadTooLarge, &["`attributes`", "100"]);
    let body = json!({ "attributes": { "a": [[[[[1]]]]] } });
    refused::<of::PeerUpdate>("peer:update", body, bad, &["`attributes`", "5 deep", "at most 4"]);
}

#[test]
fn a_digest_is_of_the_request_and_not_of_how_it_is_written() {
    let one =
        digest("mic:up", r#"["mic:up",{"room":"math","id":"x","user":"bob","more":{"b":1,"a":[1,2]}}]"#);
    let same = [
        r#"["mic:up",{"more":{"a":[1,2],"b":1},"user":"bob","room":"math","id":"y"}]"#,
        r#"["mic:up", { "room": "math", "user": "\u0062ob", "more": { "b": 1, "a": [1, 2] } }]"#,
    ];
    for text in same {
        assert_eq!(digest("mic:up", text), one, "{text}");
    }
    let others = [
        r#"["mic:up",{"room":"math","user":"bob","more":{"b":1,"a":[2,1]}}]"#,
        r#"["mic:up",{"room":"math","user":"bob"}]"#,
        r#"["mic:up",{"room":"math","user":"eve","more":{"b":1,"a":[1,2]}}]"#,
    ];
    for text in others {
        assert_ne!(digest("mic:up", text), one, "{text}");
    }
    assert_ne!(digest("mic:down", same[0]), one, "another request");
    assert_eq!(one.len(), 64);
}

#[test]
fn an_ack_says_where_the_cell_stands_and_what_came_of_it() {
    let mut result = Map::new();
    result.insert("seat".to_owned(), json!({ "seat": 1 }));
    let ack = acked(Done { cell: 7, result }).unwrap();
    let ack: Value = serde_json::from_str(ack.get()).unwrap();
    assert_eq!(ack, json!({ "ok": true, "version": { "cell": 7 }, "seat": { "seat": 1 } }));
}
