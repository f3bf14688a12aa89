//! What is told where the log has a hole.

use room_cell::{Actor, Cell, Command, Role};
use serde_json::json;

use super::room::{Room, down, host, json, kinds, told, up};
use crate::entry::Entry;
use crate::events::{self, BusinessEvent};
use crate::state::RoomState;

fn between(entry: &Entry, before: &Cell, after: &Cell) -> Vec<BusinessEvent> {
    let state = |cell: &Cell| RoomState { cell: cell.clone(), ..RoomState::default() };
    events::between(entry, &state(before), &state(after))
}

#[test]
fn i_25_what_happened_unlogged_is_told_with_its_own_reason() {
    let mut room = Room::open();
    for (user, role) in [("ann", Role::Host), ("bob", Role::Guest), ("cat", Role::Guest)] {
        room.joins(user, role);
    }
    for (user, session) in [("bob", "mic-1"), ("cat", "mic-2")] {
        let who = room.member(user);
        room.does(&who, up(session));
        room.does(&who, Command::MicConfirm { session: session.into() });
    }
    let invite = Command::CallInvite { call: "c1".into(), to: vec!["bob".into()] };
    let ann = room.member("ann");
    room.does(&ann, invite);
    let before = room.cell.clone();

    // All of this is in the owner's memory only.
    room.later(1_000);
    let (bob, cat) = (room.member("bob"), room.member("cat"));
    room.does(&bob, Command::Leave);
    room.does(&cat, down());
    room.does(&cat, up("mic-3"));
    room.does(&cat, Command::MicConfirm { session: "mic-3".into() });
    room.joins("dan", Role::Guest);
    room.does(&ann, Command::Kick { user: "eve".into(), reason: None, ban_seconds: None });
    room.does(&ann, Command::CallHangup { call: None });
    room.does(&ann, Command::CallInvite { call: "c2".into(), to: vec!["dan".into()] });
    let dan = room.member("dan");
    room.does(&dan, Command::CallAccept { call: None });

    let entry = room.state_entry();
    assert_eq!(kinds(&events::of(&entry).unwrap()), [""; 0]);
    let events = between(&entry, &before, &room.cell);
    let recovered = |mut fields: serde_json::Value| {
        fields["recovered"] = true.into();
        fields
    };
    let mic_ended = |user: &str, seat: u16, session: &str| {
        let fields = json!({
            "user": user, "seat": seat, "session": session, "reason": "store_lost", "durationMs": 1_000
        });
        ("mic.ended", recovered(fields))
    };
    assert_eq!(
        told(&events),
        [
            mic_ended("bob", 1, "mic-1"),
            mic_ended("cat", 2, "mic-2"),
            ("call.missed", recovered(json!({ "call": "c1", "reason": "store_lost" }))),
            ("user.left", recovered(json!({ "user": "bob", "reason": "store_lost" }))),
            ("user.banned", recovered(json!({ "user": "eve" }))),
            ("user.joined", recovered(json!({ "user": "dan", "peer": "dan-13", "role": "guest" }))),
            ("call.started", recovered(json!({ "call": "c2", "from": "ann", "to": ["dan"] }))),
            ("call.accepted", recovered(json!({ "call": "c2", "user": "dan" }))),
            ("mic.started", recovered(json!({ "user": "cat", "seat": 1, "session": "mic-3" }))),
        ]
    );
    let data = &json(&events[0])["data"];
    assert_eq!(data["version"], json!({ "cell": room.cell.version, "settings": 1 }));
    assert_eq!(data["by"], json!({ "kind": "owner" }));
}

#[test]
fn i_25_a_stay_that_ended_and_one_that_began_are_two() {
    let mut room = Room::open();
    room.joins("ann", Role::Host);
    let before = room.cell.clone();
    assert_eq!(kinds(&between(&room.state_entry(), &before, &room.cell)), [""; 0]);
    room.later(10);
    room.joins("ann", Role::Host);
    let told = kinds(&between(&room.state_entry(), &before, &room.cell));
    assert_eq!(told, [""; 0], "another connection of the same stay");
    let ann = room.member("ann");
    room.does(&ann, Command::Leave);
    room.later(10);
    room.joins("ann", Role::Host);
    let told = kinds(&between(&room.state_entry(), &before, &room.cell));
    assert_eq!(told, ["user.left", "user.joined"]);
}

#[test]
fn a_room_that_was_made_or_closed_unlogged() {
    let mut room = Room::nowhere();
    let nothing = room.cell.clone();
    room.does(&host("ann"), super::room::create());
    room.joins("ann", Role::Host);
    let open = room.cell.clone();
    let told = kinds(&between(&room.state_entry(), &nothing, &open));
    assert_eq!(told, ["room.created", "user.joined"]);
    room.does(&Actor::Backend, Command::Close { reason: None });
    let closed = room.cell.clone();
    let told = kinds(&between(&room.state_entry(), &open, &closed));
    assert_eq!(told, ["user.left", "room.closed"]);
    room.does(&Actor::Backend, Command::Reopen { seats: None, capacity: None, auto_close: None });
    let told = kinds(&between(&room.state_entry(), &closed, &room.cell));
    assert_eq!(told, ["room.reopened"]);
}

#[test]
fn settings_and_guests_that_were_changed_unlogged_are_told_as_patches() {
    let room = Room::open();
    let state = |settings: serde_json::Value, guests: serde_json::Value| {
        let map = |value: serde_json::Value| value.as_object().cloned().expect("an object");
        let (settings, guests) = (map(settings), map(guests));
        RoomState { cell: room.cell.clone(), settings, guests, ..RoomState::default() }
    };
    let before = state(
        json!({ "noiseReduction": "off", "custom": { "of": "old", "kept": 1 } }),
        json!({ "ann": { "handRaised": true }, "bob": { "stage": true } }),
    );
    let after = state(
        json!({ "noiseReduction": "off", "custom": { "of": "new", "kept": 1 }, "chat": "all" }),
        json!({ "ann": { "handRaised": true, "stage": true }, "cat": { "stage": true } }),
    );
    let guest = |user: &str, patch: serde_json::Value| {
        ("guest.updated", json!({ "user": user, "patch": patch, "recovered": true }))
    };
    let patch = json!({ "custom": { "of": "new" }, "chat": "all" });
    assert_eq!(
        told(&events::between(&room.state_entry(), &before, &after)),
        [
            ("settings.updated", json!({ "patch": patch, "recovered": true })),
            guest("ann", json!({ "stage": true })),
            guest("bob", serde_json::Value::Null),
            guest("cat", json!({ "stage": true })),
        ]
    );
    assert_eq!(kinds(&events::between(&room.state_entry(), &after, &after)), [""; 0]);
}
