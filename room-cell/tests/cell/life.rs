//! creating → active → closing → closed, and open again.

use room_cell::{
    Actor, Command, Event, MediaFact, Presence, Refusal, Role, Status, Timer, Unreadable, UserId,
};

use crate::room::{Room, START, create, joining, kick, names, outside, up};

fn ann() -> Actor {
    outside("ann", Role::Host)
}

const fn reopen(seats: Option<u16>) -> Command {
    Command::Reopen { seats, capacity: None, auto_close: None }
}

const CLOSE: Command = Command::Close { reason: None };

#[test]
fn without_an_external_server_a_room_is_active_at_once() {
    let mut room = Room::nowhere();
    assert_eq!(names(&room.does(&ann(), create(4))), ["Made"]);
    assert_eq!((room.cell.version, room.cell.status.clone()), (1, Status::Active));
    assert_eq!(room.cell.creator, Some(UserId::from("ann")));
    assert_eq!(room.cell.seats.len(), 4);
    assert_eq!(room.refuses(&ann(), create(4)), Refusal::AlreadyMade);
    let mut room = Room::nowhere();
    room.does(&Actor::Backend, create(0));
    assert_eq!(room.cell.creator, None);
}

#[test]
fn an_external_server_is_waited_for_and_given_up_in_time() {
    let mut room = Room::nowhere();
    room.rules.external_media = true;
    room.does(&ann(), create(4));
    assert_eq!(room.cell.status.word(), "creating");
    let join = Command::Join(joining("bob1", Role::Guest));
    assert_eq!(room.refuses(&outside("bob", Role::Guest), join), Refusal::Creating);
    assert_eq!(room.refuses(&Actor::Owner, Command::Due(Timer::Transition)), Refusal::NotDue);
    let mut made = room.clone();
    assert_eq!(names(&made.does(&Actor::Owner, Command::Created)), ["Opened"]);
    assert!(made.does(&Actor::Owner, Command::Created).is_empty());
    assert_eq!(made.refuses(&Actor::Owner, Command::CreateFailed), Refusal::NotDue);

    room.later(15_000);
    assert_eq!(names(&room.timers()), ["Failed"]);
    assert_eq!(room.cell.status, Status::Absent);
    assert!(room.cell.seats.is_empty() && room.cell.creator.is_none());
    assert_eq!(room.cell.version, 2, "versions only grow");
    assert_eq!(room.refuses(&Actor::Owner, Command::Created), Refusal::NoRoom);
}

#[test]
fn i_12_closing_frees_seats_and_keeps_their_numbers_and_locks() {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    let bob = room.joins("bob1", Role::Guest);
    let cat = room.joins("cat1", Role::Guest);
    room.does(&ann, Command::SeatLock { seat: 2, locked: true, force: false });
    room.does(&bob, up("mic"));
    room.does(&cat, Command::MicRequest { seat: None, withdraw: false });
    room.does(&ann, Command::MicInvite { user: "cat".into(), seat: None });
    room.does(&cat, Command::CallInvite { call: "call".into(), to: vec!["bob".into()] });
    let closed = room.does(&ann, CLOSE);
    let expected =
        ["SeatFreed", "RequestEnded", "InviteEnded", "CallEnded", "Left", "Left", "Left", "Closed"];
    assert_eq!(names(&closed), expected);
    let locks: Vec<(u16, bool)> = room.cell.seats.iter().map(|(number, it)| (*number, it.locked)).collect();
    assert_eq!(locks, [(1, false), (2, true), (3, false), (4, false)]);
    assert!(room.cell.users.is_empty() && room.cell.peers.is_empty() && room.cell.media.is_empty());
}

#[test]
fn i_12_a_room_that_is_over_takes_nothing() {
    for external in [false, true] {
        let mut room = Room::open();
        room.rules.external_media = external;
        room.has_router();
        let bob = room.joins("bob1", Role::Guest);
        room.does(&ann(), CLOSE);
        assert_eq!(room.cell.status.word(), if external { "closing" } else { "closed" });
        let commands = [
            Command::Join(joining("bob2", Role::Guest)),
            Command::Leave,
            up("mic"),
            kick("bob", None),
            create(4),
            Command::LockDoor { locked: true },
            Command::CallInvite { call: "call".into(), to: vec!["ann".into()] },
        ];
        for command in commands {
            assert_eq!(room.refuses(&bob, command.clone()), Refusal::RoomClosed, "{command:?}");
            assert_eq!(
                room.refuses(&Actor::Backend, command.clone()),
                match command {
                    Command::Join(_) => Refusal::HostsOnly,
                    _ => Refusal::RoomClosed,
                }
            );
        }
        assert_eq!(room.hears("bob", MediaFact::AudioStarted), Err(Refusal::RoomClosed));
        assert!(room.does(&ann(), CLOSE).is_empty());
        let gone = Command::Gone { peers: vec!["bob1".into()], reason: room_cell::GoneReason::StaleLeft };
        assert!(room.does(&Actor::Owner, gone).is_empty());
    }
}

#[test]
fn closing_ends_when_the_router_is_gone_or_by_its_deadline() {
    for way in 0..3 {
        let mut room = Room::open();
        room.rules.external_media = true;
        room.has_router();
        let close = Command::Close { reason: Some("over".into()) };
        room.does(&ann(), close);
        assert_eq!(room.refuses(&ann(), reopen(None)), Refusal::RoomClosed);
        let ended = match way {
            0 => room.does(&Actor::Owner, Command::Ended),
            1 => {
                room.later(15_000);
                room.timers().into_iter().skip(2).collect()
            }
            _ => {
                let mut report = crate::room::report("bob", MediaFact::RoomFinished, room.now);
                report.who = None;
                room.does(&Actor::Media, Command::Media(report))
            }
        };
        assert_eq!(ended, [Event::Closed { reason: Some("over".into()) }]);
        assert!(room.does(&Actor::Owner, Command::Ended).is_empty());
    }
}

#[test]
fn a_reopened_room_inherits_bans_roles_seats_and_version() {
    let mut room = Room::open();
    let ann1 = room.joins("ann1", Role::Host);
    room.joins("cat1", Role::Host);
    room.does(&ann1, Command::SeatLock { seat: 2, locked: true, force: false });
    room.does(&ann1, Command::SetRole { user: "cat".into(), role: Role::Guest });
    room.does(&ann1, kick("bob", None));
    assert_eq!(room.refuses(&ann1, reopen(None)), Refusal::AlreadyMade);
    room.does(&ann1, CLOSE);
    let version = room.cell.version;
    assert_eq!(room.refuses(&outside("dan", Role::Guest), reopen(None)), Refusal::HostsOnly);
    assert_eq!(names(&room.does(&ann1, reopen(None))), ["Reopened"]);
    assert_eq!(room.cell.version, version + 1);
    assert!(room.cell.seats.get(&2).is_some_and(|seat| seat.locked));
    let join = Command::Join(joining("bob1", Role::Guest));
    assert_eq!(room.refuses(&outside("bob", Role::Host), join), Refusal::Banned);
    room.joins("cat2", Role::Host);
    assert_eq!(room.cell.users.get("cat").map(Presence::role), Some(Role::Guest));
    room.does(&Actor::Backend, CLOSE);
    assert_eq!(names(&room.does(&Actor::Backend, reopen(Some(6)))), ["Reopened", "SeatsSet"]);
    assert_eq!(room.cell.seats.len(), 6);
}

#[test]
fn a_reopening_that_fails_leaves_the_room_closed_with_its_bans() {
    let mut room = Room::open();
    room.does(&ann(), kick("bob", None));
    room.does(&ann(), CLOSE);
    room.rules.external_media = true;
    room.does(&ann(), reopen(None));
    assert_eq!(names(&room.does(&Actor::Owner, Command::CreateFailed)), ["Closed"]);
    assert!(room.cell.bans.contains_key("bob"));
    assert_eq!(Room::nowhere().refuses(&ann(), reopen(None)), Refusal::NoRoom);
}

#[test]
fn only_auto_close_ends_an_idle_room() {
    let idle = Command::Due(Timer::Idle);
    let mut room = Room::open();
    assert_eq!(room.refuses(&Actor::Owner, idle.clone()), Refusal::NotDue);
    let mut room = Room::nowhere();
    room.does(&ann(), Command::Create { seats: 1, capacity: None, auto_close: true });
    assert_eq!(room.refuses(&Actor::Owner, idle.clone()), Refusal::NotDue, "nobody has come yet");
    let bob = room.joins("bob1", Role::Guest);
    assert_eq!(room.refuses(&Actor::Owner, idle.clone()), Refusal::NotDue);
    room.does(&bob, Command::Leave);
    assert_eq!(names(&room.does(&Actor::Owner, idle)), ["Closed"]);
}

#[test]
fn deadlines_move_by_the_time_without_an_owner_and_bans_do_not() {
    let mut room = Room::open();
    let bob = room.joins("bob1", Role::Guest);
    room.does(&ann(), kick("dan", Some(10)));
    room.does(&bob, up("mic"));
    room.does(&bob, Command::CallInvite { call: "call".into(), to: vec!["ann".into()] });
    assert_eq!(room.cell.next_deadline().map(|at| at.0 - START), Some(15_000));
    assert_eq!(names(&room.does(&Actor::Owner, Command::Shift { by_ms: 20_000 })), ["Shifted"]);
    assert_eq!(room.cell.next_deadline().map(|at| at.0 - START), Some(35_000));
    assert_eq!(room.cell.call.as_ref().and_then(|call| call.deadline).map(|at| at.0 - START), Some(65_000));
    assert_eq!(room.cell.bans.get("dan").and_then(|ban| ban.until).map(|at| at.0 - START), Some(10_000));
    assert!(room.does(&Actor::Owner, Command::Shift { by_ms: 0 }).is_empty());
}

#[test]
fn what_only_the_owner_and_the_media_server_say_is_refused_to_others() {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    let owners = [
        Command::Created,
        Command::CreateFailed,
        Command::Ended,
        Command::Gone { peers: Vec::new(), reason: room_cell::GoneReason::StaleLeft },
        Command::Due(Timer::Idle),
        Command::Shift { by_ms: 1 },
    ];
    for command in owners {
        for actor in [&ann, &Actor::Backend, &Actor::Media] {
            assert_eq!(room.refuses(actor, command.clone()), Refusal::HostsOnly, "{command:?}");
        }
    }
    let report = Command::Media(crate::room::report("ann", MediaFact::AudioStarted, room.now));
    for actor in [&ann, &Actor::Backend, &Actor::Owner] {
        assert_eq!(room.refuses(actor, report.clone()), Refusal::HostsOnly);
    }
    for actor in [Actor::Media, Actor::Owner] {
        assert_eq!(room.refuses(&actor, up("mic")), Refusal::HostsOnly);
        assert_eq!(room.refuses(&actor, create(1)), Refusal::HostsOnly);
    }
    assert_eq!(room.refuses(&Actor::Media, CLOSE), Refusal::HostsOnly);
    assert_eq!(names(&room.does(&Actor::Owner, CLOSE)), ["Left", "Closed"]);
    assert_eq!(Room::nowhere().refuses(&Actor::Owner, CLOSE), Refusal::NoRoom);
}

#[test]
fn errors_read_as_sentences_without_their_source() {
    let unreadable = Unreadable { field: "seat:x".into(), why: "no seat number".into() };
    assert_eq!(unreadable.to_string(), "stored field `seat:x`: no seat number");
    assert_eq!(Refusal::NoSuchSeat { seat: 9 }.to_string(), "there is no seat 9");
}
