//! What no command may carry.

use room_cell::{Actor, Command, Duty, Limits, Role};
use serde_json::Map;

use crate::room::{Room, create, joining, kick, outside, report, up};

fn wrong(command: Command) -> &'static str {
    let shown = format!("{command:?}");
    match command.validate(Actor::Backend, &Limits::default()) {
        Ok(_) => panic!("not refused: {shown}"),
        Err(invalid) => invalid.field,
    }
}

#[test]
fn each_part_out_of_bounds_is_named() {
    let long = "x".repeat(129);
    let many = |count: usize| (0..count).map(|it| it.to_string().as_str().into()).collect::<Vec<_>>();
    let made =
        |node: &str, name: &str| Command::RouterMade { node: node.into(), name: name.into(), generation: 1 };
    let done = vec![(Duty::Remove { name: "bob".into() }, 1); 100_001];
    let join = |change: fn(&mut room_cell::Joining)| {
        let mut joining = joining("bob1", Role::Guest);
        change(&mut joining);
        Command::Join(joining)
    };
    let attributes = Map::from_iter([("a".to_owned(), "x".repeat(5_000).into())]);
    let cases = [
        (create(1_001), "seats"),
        (Command::SetSeats { count: 1_001 }, "count"),
        (Command::Reopen { seats: Some(1_001), capacity: None, auto_close: None }, "seats"),
        (kick("", None), "user"),
        (kick(&long, None), "user"),
        (kick("a\nb", None), "user"),
        (kick("bob", Some(0)), "banSeconds"),
        (kick("bob", Some(u64::MAX)), "banSeconds"),
        (
            Command::Kick { user: "bob".into(), reason: Some("x".repeat(257).into()), ban_seconds: None },
            "reason",
        ),
        (Command::Close { reason: Some("x".repeat(257).into()) }, "reason"),
        (up(""), "micSession"),
        (Command::MicUp { user: None, seat: Some(0), session: "mic".into() }, "seat"),
        (Command::MicMove { user: None, seat: 1_001, flowing: false }, "seat"),
        (Command::SeatLock { seat: 0, locked: true, force: false }, "seat"),
        (Command::MicRequest { seat: Some(0), withdraw: false }, "seat"),
        (Command::MicMuteAll { muted: true, except: many(101) }, "except"),
        (Command::CallInvite { call: "call".into(), to: many(0) }, "to"),
        (Command::CallInvite { call: "call".into(), to: many(17) }, "to"),
        (Command::CallInvite { call: "".into(), to: many(1) }, "call"),
        (Command::CallAccept { call: Some("".into()) }, "call"),
        (Command::UpdatePeer { attributes, max_bytes: 100_000 }, "attributes"),
        (Command::Shift { by_ms: u64::MAX }, "byMs"),
        (made("", "router"), "node"),
        (made("one", &long), "name"),
        (Command::DutiesDone { done }, "done"),
        (join(|joining| joining.peer = "".into()), "peer"),
        (join(|joining| joining.name = Some("x".repeat(1_025).into())), "name"),
        (join(|joining| joining.avatar = Some("x".repeat(2_049).into())), "avatar"),
        (join(|joining| joining.device = Some("".into())), "device"),
        (join(|joining| joining.resume = "x".repeat(257).into()), "resume"),
    ];
    for (command, field) in cases {
        assert_eq!(wrong(command.clone()), field, "{command:?}");
    }
    let mut report = report("bob", room_cell::MediaFact::AudioStarted, room_cell::Millis(0));
    report.incarnation = Some("x".repeat(257).into());
    assert_eq!(wrong(Command::Media(report)), "incarnation");
    let invalid = up("mic").validate(outside("", Role::Guest), &Limits::default()).unwrap_err();
    assert_eq!(invalid.to_string(), "user: must be 1 to 128 bytes without control characters");
}

#[test]
fn the_largest_values_break_nothing() {
    let mut room = Room::open();
    room.now = room_cell::Millis(u64::MAX);
    let bob = room.joins("bob1", Role::Guest);
    room.does(&bob, up("mic"));
    room.does(&bob, Command::CallInvite { call: "call".into(), to: vec!["ann".into()] });
    room.does(&Actor::Backend, kick("dan", Some(1_000)));
    room.does(&Actor::Owner, Command::Shift { by_ms: 1_000 });
    room.hears("bob", room_cell::MediaFact::RoomExited).unwrap();
    room.now = room_cell::Millis(0);
    room.does(&bob, up("early"));
    room.hears("bob", room_cell::MediaFact::RoomExited).unwrap_err();
    assert!(room.timers().is_empty());
    room.does(&bob, Command::Leave);
}
