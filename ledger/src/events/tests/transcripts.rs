//! One command, and exactly what is told of it.

use redis_scripts::SettingsVersion;
use room_cell::{Actor, Command, GoneReason, MediaFact, Role, Timer};
use serde_json::json;

use super::room::{Room, create, down, host, json, kinds, told, up};
use crate::entry::Change;
use crate::events;

#[test]
fn an_event_says_where_when_and_on_whose_behalf() {
    let mut room = Room::open();
    let events = room.joins("ann", Role::Host);
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event.kind, "user.joined");
    assert_eq!(
        json(event),
        json!({
            "type": "user.joined",
            "timestamp": "2025-11-30T12:00:00.000Z",
            "id": event.id.as_str(),
            "data": {
                "app": "school",
                "room": "maths-1",
                "version": { "cell": 2 },
                "token": 1_764_503_990_000_u64,
                "command": "command-2",
                "by": { "kind": "user", "user": "ann" },
                "user": "ann",
                "peer": "ann-1",
                "role": "host",
            },
        })
    );
}

#[test]
fn a_room_from_beginning_to_end() {
    let mut room = Room::nowhere();
    assert_eq!(
        told(&room.does(&host("ann"), create())),
        [("room.created", json!({ "creator": "ann", "seats": 4, "capacity": 50, "autoClose": true }))]
    );
    room.joins("ann", Role::Host);
    room.joins("bob", Role::Guest);
    assert_eq!(kinds(&room.joins("bob", Role::Guest)), [""; 0], "another connection is no other stay");
    let (ann, bob) = (room.member("ann"), room.member("bob"));
    assert_eq!(kinds(&room.does(&bob, up("mic-1"))), [""; 0], "taking a seat is not speaking");
    let confirm = Command::MicConfirm { session: "mic-1".into() };
    let mic = json!({ "user": "bob", "seat": 1, "session": "mic-1" });
    assert_eq!(told(&room.does(&bob, confirm)), [("mic.started", mic)]);
    room.later(2_500);
    let kick = Command::Kick { user: "bob".into(), reason: Some("noise".into()), ban_seconds: Some(60) };
    assert_eq!(
        told(&room.does(&ann, kick)),
        [
            ("user.banned", json!({ "user": "bob", "until": "2025-11-30T12:01:02.500Z", "reason": "noise" })),
            (
                "mic.ended",
                json!({ "user": "bob", "seat": 1, "session": "mic-1", "reason": "kicked", "durationMs": 2_500 })
            ),
            ("user.kicked", json!({ "user": "bob", "reason": "noise" })),
            ("user.left", json!({ "user": "bob", "reason": "kicked" })),
        ]
    );
    let unban = Command::Unban { user: "bob".into() };
    assert_eq!(told(&room.does(&ann, unban)), [("user.unbanned", json!({ "user": "bob" }))]);
    let close = Command::Close { reason: Some("the lesson is over".into()) };
    assert_eq!(
        told(&room.does(&ann, close)),
        [
            ("user.left", json!({ "user": "ann", "reason": "closed_left" })),
            ("room.closed", json!({ "how": "closed", "reason": "the lesson is over" })),
        ]
    );
    let reopen = Command::Reopen { seats: Some(2), capacity: Some(9), auto_close: Some(false) };
    assert_eq!(
        told(&room.does(&Actor::Backend, reopen)),
        [("room.reopened", json!({ "capacity": 9, "autoClose": false }))]
    );
}

#[test]
fn a_room_whose_router_could_not_be_made_has_its_ending() {
    let mut room = Room::nowhere();
    room.rules.external_media = true;
    assert_eq!(kinds(&room.does(&Actor::Backend, create())), ["room.created"]);
    let failed = room.does(&Actor::Owner, Command::CreateFailed);
    assert_eq!(told(&failed), [("room.closed", json!({ "how": "create_failed" }))]);
    assert_eq!(kinds(&room.does(&Actor::Backend, create())), ["room.created"]);
    assert_eq!(kinds(&room.does(&Actor::Owner, Command::Created)), [""; 0]);
    let router = Command::RouterMade { node: "one".into(), name: "router".into(), generation: 1 };
    room.does(&Actor::Owner, router);
    assert_eq!(kinds(&room.does(&Actor::Backend, Command::Close { reason: None })), [""; 0], "not yet");
    let ended = room.does(&Actor::Owner, Command::Ended);
    assert_eq!(told(&ended), [("room.closed", json!({ "how": "closed" }))]);
}

#[test]
fn i_25_a_session_that_has_to_be_heard_again_starts_once_and_ends_once() {
    let mut room = Room::open();
    room.rules.external_media = true;
    room.joins("ann", Role::Host);
    let ann = room.member("ann");
    room.does(&ann, up("mic-1"));
    assert_eq!(kinds(&room.hears("ann", MediaFact::AudioStarted)), ["mic.started"]);
    room.later(3_000);
    let router = Command::RouterMade { node: "one".into(), name: "router".into(), generation: 1 };
    assert_eq!(kinds(&room.does(&Actor::Owner, router)), [""; 0]);
    room.later(1_000);
    let moved = Command::MicMove { user: None, seat: 3, flowing: true };
    assert_eq!(kinds(&room.does(&ann, moved)), [""; 0], "it was heard before");
    room.later(500);
    let ended = told(&room.does(&ann, down()));
    let expected =
        json!({ "user": "ann", "seat": 3, "session": "mic-1", "reason": "down", "durationMs": 3_500 });
    assert_eq!(ended, [("mic.ended", expected)]);

    room.later(60_000);
    room.does(&ann, up("mic-2"));
    let moved = Command::MicMove { user: None, seat: 2, flowing: true };
    assert_eq!(kinds(&room.does(&ann, moved)), ["mic.started"], "the move found that it is heard");
    let router = Command::RouterMade { node: "one".into(), name: "router".into(), generation: 2 };
    room.later(700);
    room.does(&Actor::Owner, router);
    room.later(20_000);
    let due = Command::Due(Timer::Publish { session: "mic-2".into(), flowing: false });
    let expected = json!({
        "user": "ann", "seat": 2, "session": "mic-2", "reason": "publish_timeout", "durationMs": 700
    });
    assert_eq!(told(&room.does(&Actor::Owner, due)), [("mic.ended", expected)]);

    room.does(&ann, up("mic-3"));
    assert_eq!(kinds(&room.does(&ann, down())), [""; 0], "what never started does not end");
}

#[test]
fn whoever_does_not_come_back_has_left() {
    let mut room = Room::open();
    room.joins("ann", Role::Host);
    room.joins("bob", Role::Guest);
    let peers =
        |room: &Room, user: &str| room.cell.users[user].peers.iter().map(|it| it.peer.clone()).collect();
    let gone = Command::Gone { peers: peers(&room, "ann"), reason: GoneReason::StaleLeft };
    let ann = room.does(&Actor::Owner, gone);
    assert_eq!(told(&ann), [("user.left", json!({ "user": "ann", "reason": "stale_left" }))]);
    assert_eq!(json(&ann[0])["data"]["by"], json!({ "kind": "owner" }));
    let gone = Command::Gone { peers: peers(&room, "bob"), reason: GoneReason::InstanceLost };
    let bob = room.does(&Actor::Owner, gone);
    assert_eq!(told(&bob), [("user.left", json!({ "user": "bob", "reason": "instance_lost" }))]);
}

#[test]
fn calls_from_ring_to_end() {
    let mut room = Room::open();
    for user in ["ann", "bob"] {
        room.joins(user, Role::Host);
    }
    let (ann, bob) = (room.member("ann"), room.member("bob"));
    let invite = |call: &str| Command::CallInvite { call: call.into(), to: vec!["bob".into(), "cat".into()] };
    let started = |call: &str| ("call.started", json!({ "call": call, "from": "ann", "to": ["bob", "cat"] }));
    assert_eq!(told(&room.does(&ann, invite("c1"))), [started("c1")]);
    let accepted = room.does(&bob, Command::CallAccept { call: None });
    assert_eq!(told(&accepted), [("call.accepted", json!({ "call": "c1", "user": "bob" }))]);
    let finished = room.does(&ann, Command::CallHangup { call: None });
    assert_eq!(told(&finished), [("call.finished", json!({ "call": "c1", "user": "ann" }))]);

    room.does(&ann, invite("c2"));
    assert_eq!(kinds(&room.does(&bob, Command::CallDecline { call: None })), [""; 0], "it rings on for cat");
    room.later(60_000);
    let over = room.does(&Actor::Owner, Command::Due(Timer::Ring { call: "c2".into() }));
    assert_eq!(told(&over), [("call.missed", json!({ "call": "c2", "reason": "timeout" }))]);

    let one = Command::CallInvite { call: "c3".into(), to: vec!["bob".into()] };
    room.does(&ann, one);
    let declined = room.does(&bob, Command::CallDecline { call: None });
    assert_eq!(told(&declined), [("call.declined", json!({ "call": "c3", "user": "bob" }))]);

    room.does(&ann, invite("c4"));
    room.does(&bob, Command::CallAccept { call: None });
    assert_eq!(
        told(&room.does(&bob, Command::Leave)),
        [
            ("call.disconnected", json!({ "call": "c4", "user": "bob", "reason": "party_left" })),
            ("user.left", json!({ "user": "bob", "reason": "left" })),
        ]
    );
}

#[test]
fn settings_guests_and_instances() {
    let room = Room::open();
    let sv = SettingsVersion::new(8);
    let patch = json!({ "noiseReduction": null, "custom": { "topic": "sets" } });
    let entry = room.entry(Change::Settings { sv }, &json!({ "settings": patch, "by": "ann" }));
    let events = events::of(&entry).unwrap();
    assert_eq!(told(&events), [("settings.updated", json!({ "patch": patch }))]);
    let data = &json(&events[0])["data"];
    assert_eq!(data["version"], json!({ "settings": 8 }));
    assert_eq!(data["by"], json!({ "kind": "user", "user": "ann" }));

    let entry = room.entry(
        Change::Guest { sv },
        &json!({ "guests": { "bob": { "stage": true }, "cat": null }, "by": null }),
    );
    let events = events::of(&entry).unwrap();
    assert_eq!(
        told(&events),
        [
            ("guest.updated", json!({ "user": "bob", "patch": { "stage": true } })),
            ("guest.updated", json!({ "user": "cat", "patch": null })),
        ]
    );
    assert_eq!(json(&events[0])["data"]["by"], json!({ "kind": "backend" }));

    let entry = room.entry(Change::Instance, &json!({ "instance": "a/1764503980000", "rooms": 12 }));
    let events = events::of(&entry).unwrap();
    assert_eq!(told(&events), [("instance.lost", json!({ "instance": "a/1764503980000", "rooms": 12 }))]);
    assert_eq!(json(&events[0])["data"].get("room"), None);
}

#[test]
fn i_15_an_event_has_one_id_however_often_it_is_derived() {
    let room = Room::open();
    let guests = json!({ "guests": { "bob": { "a": 1 }, "cat": { "a": 1 } }, "by": null });
    let entry = room.entry(Change::Guest { sv: SettingsVersion::new(8) }, &guests);
    let events = events::of(&entry).unwrap();
    let mut again = entry.clone();
    again.entry = "1-1".to_owned();
    assert_eq!(events, events::of(&again).unwrap(), "whatever its stream id is");
    let mut all: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
    for sv in [9, 10] {
        let next = room.entry(Change::Guest { sv: SettingsVersion::new(sv) }, &guests);
        all.extend(events::of(&next).unwrap().iter().map(|event| event.id.to_string()));
    }
    let mut later = entry;
    later.token = redis_scripts::FenceToken::new(1);
    all.extend(events::of(&later).unwrap().iter().map(|event| event.id.to_string()));
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "no two events share one");
    assert!(all.iter().all(|id| id.len() == 32 && id.bytes().all(|c| c.is_ascii_hexdigit())));
}

#[test]
fn a_body_of_another_kind_is_refused() {
    let room = Room::open();
    let settings = Change::Settings { sv: SettingsVersion::new(8) };
    for (change, body) in [
        (settings, json!({ "guests": {}, "by": null })),
        (settings, json!([])),
        (Change::Instance, json!({ "instance": 1, "rooms": 1 })),
        (
            Change::Cell { cv: redis_scripts::CellVersion::new(1) },
            json!({ "events": [{ "event": "unheard_of" }] }),
        ),
    ] {
        assert!(events::of(&room.entry(change, &body)).is_err(), "{body}");
    }
}
