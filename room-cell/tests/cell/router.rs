//! The router at an external media server, and what is owed to it.

use room_cell::{Actor, Command, Duty, Event, MediaFact, Owed, Refusal, Role, Speaking, Status};

use crate::room::{Room, START, down, joining, kick, member, names, outside, up};

fn made(generation: u64) -> Command {
    Command::RouterMade { node: "one".into(), name: format!("router {generation}").into(), generation }
}

fn remove(peer: &str) -> Duty {
    Duty::Remove { user: peer.trim_end_matches(char::is_numeric).into(), peer: peer.into() }
}

fn permit(peer: &str) -> Duty {
    Duty::Permit { user: peer.trim_end_matches(char::is_numeric).into(), peer: peer.into() }
}

fn close(generation: u64) -> Duty {
    Duty::Close { node: "one".into(), name: format!("router {generation}").into(), generation }
}

fn duties(room: &Room) -> Vec<Duty> {
    room.cell.duties.keys().cloned().collect()
}

/// An active room whose router stands, with ann, a host, and bob.
fn standing() -> (Room, Actor, Actor) {
    let mut room = Room::open();
    room.rules.external_media = true;
    let (ann, bob) = (room.joins("ann1", Role::Host), room.joins("bob1", Role::Guest));
    assert_eq!(names(&room.does(&Actor::Owner, made(1))), ["RouterMade"]);
    (room, ann, bob)
}

fn settle(room: &mut Room) {
    let done = room.cell.duties.iter().map(|(duty, owed)| (duty.clone(), owed.version)).collect();
    room.does(&Actor::Owner, Command::DutiesDone { done });
    assert!(room.cell.duties.is_empty());
}

#[test]
fn whoever_ends_is_to_be_removed_however_it_ends() {
    let (mut room, ann, bob) = standing();
    assert!(duties(&room).is_empty());
    room.does(&bob, Command::Leave);
    assert_eq!(duties(&room), [remove("bob1")]);
    settle(&mut room);
    room.joins("cat1", Role::Guest);
    room.does(&ann, kick("cat", None));
    room.joins("dan1", Role::Guest);
    // Another connection replaces the one before.
    room.does(&outside("dan", Role::Guest), Command::Join(joining("dan2", Role::Guest)));
    assert_eq!(duties(&room), [remove("cat1"), remove("dan1")]);
    let gone = Command::Gone { peers: vec!["dan2".into()], reason: room_cell::GoneReason::StaleLeft };
    room.does(&Actor::Owner, gone);
    assert_eq!(duties(&room), [remove("cat1"), remove("dan1"), remove("dan2")]);
}

#[test]
fn whoevers_seat_mute_or_role_changes_is_to_be_permitted_anew() {
    let (mut room, ann, bob) = standing();
    let changes: [(&Actor, Command); 4] = [
        (&bob, up("mic")),
        (&ann, Command::MicMute { user: Some("bob".into()), muted: true }),
        (&ann, Command::MicMute { user: Some("bob".into()), muted: false }),
        (&bob, down()),
    ];
    for (actor, command) in changes {
        room.does(actor, command.clone());
        assert_eq!(duties(&room), [permit("bob1")], "{command:?}");
        settle(&mut room);
    }
    room.joins("cat1", Role::Host);
    for role in [Role::Guest, Role::Host] {
        room.does(&ann, Command::SetRole { user: "cat".into(), role });
        assert_eq!(duties(&room), [permit("cat1")], "{role:?}");
        settle(&mut room);
    }
    room.does(&ann, Command::LockDoor { locked: true });
    assert!(duties(&room).is_empty(), "what changes nothing for the media server owes it nothing");
    // Whoever comes to the media server has a grant that may be older than its seat.
    assert!(room.hears("bob", MediaFact::ParticipantJoined).is_ok());
    assert_eq!(duties(&room), [permit("bob1")]);
    settle(&mut room);
    assert_eq!(room.hears("bob", MediaFact::ParticipantJoined), Ok(Vec::new()), "said again");
    assert!(duties(&room).is_empty());
    // Gone, there is nothing to permit.
    room.does(&bob, up("mic 2"));
    room.does(&ann, kick("bob", None));
    assert_eq!(duties(&room), [remove("bob1")]);
}

#[test]
fn only_what_was_begun_for_the_newest_change_settles_a_duty() {
    let (mut room, ann, bob) = standing();
    room.does(&bob, up("mic"));
    let first = room.cell.duties.get(&permit("bob1")).copied().expect("owed");
    room.later(5);
    room.does(&ann, Command::MicMute { user: Some("bob".into()), muted: true });
    let second = room.cell.duties.get(&permit("bob1")).copied().expect("owed");
    assert_eq!(second, Owed { since: first.since, version: room.cell.version });
    let done = |owed: Owed| Command::DutiesDone { done: vec![(permit("bob1"), owed.version)] };
    assert!(room.does(&Actor::Owner, done(first)).is_empty());
    assert_eq!(names(&room.does(&Actor::Owner, done(second))), ["DutyDone"]);
    assert!(room.does(&Actor::Owner, done(second)).is_empty());
}

#[test]
fn without_a_router_or_an_external_server_nothing_is_owed() {
    let mut room = Room::open();
    room.rules.external_media = true;
    let bob = room.joins("bob1", Role::Guest);
    room.does(&bob, up("mic"));
    room.does(&bob, Command::Leave);
    assert!(duties(&room).is_empty());
    let (mut room, _, bob) = standing();
    room.rules.external_media = false;
    room.does(&bob, Command::Leave);
    assert!(duties(&room).is_empty());
}

#[test]
fn a_new_router_keeps_every_seat_and_waits_for_it_to_be_heard() {
    let (mut room, ann, bob) = standing();
    room.does(&bob, up("mic"));
    assert!(room.hears("bob", MediaFact::AudioStarted).is_ok());
    room.later(60_000);
    room.does(&ann, up("mic of ann"));
    room.later(10_000);
    room.does(&ann, kick("cat", None));
    let events = room.does(&Actor::Owner, made(2));
    assert_eq!(names(&events), ["RouterDropped", "Owed", "RouterMade", "Awaited", "Awaited"]);
    assert_eq!(duties(&room), [close(1)], "nobody is in the new one, and the old one is to be ended");
    assert!(room.cell.media.is_empty());
    for user in ["ann", "bob"] {
        let (_, sitter) = room.cell.seat_of(user).expect("still seated");
        let Speaking::PendingPublish { deadline } = sitter.speaking else { panic!("{user}") };
        assert_eq!(deadline.0 - START, 85_000, "{user}");
    }
    let generation = |room: &Room| room.cell.router.as_ref().map(|router| router.generation);
    assert_eq!(generation(&room), Some(2));
    room.later(1);
    assert!(room.hears("bob", MediaFact::AudioStarted).is_ok());
    room.later(15_000);
    assert_eq!(names(&room.timers()), ["SeatFreed", "Owed"], "ann was never heard again");
    assert!(room.cell.seat_of("bob").is_some());
}

#[test]
fn no_generation_is_given_twice() {
    let (mut room, ann, _) = standing();
    assert_eq!(room.refuses(&Actor::Owner, made(1)), Refusal::StaleRouter);
    assert_eq!(names(&room.does(&Actor::Owner, Command::RouterDropped)), ["RouterDropped", "Owed"]);
    assert_eq!((room.cell.router.clone(), duties(&room)), (None, vec![close(1)]));
    assert!(room.does(&Actor::Owner, Command::RouterDropped).is_empty());
    assert_eq!(room.refuses(&Actor::Owner, made(1)), Refusal::StaleRouter);
    room.does(&Actor::Owner, made(2));
    room.does(&ann, Command::Close { reason: None });
    assert_eq!(room.refuses(&Actor::Owner, made(3)), Refusal::RoomClosed);
    room.does(&Actor::Owner, Command::Ended);
    room.does(&Actor::Backend, Command::Reopen { seats: None, capacity: None, auto_close: None });
    room.does(&Actor::Owner, Command::Created);
    assert_eq!(room.refuses(&Actor::Owner, made(2)), Refusal::StaleRouter);
    room.does(&Actor::Owner, made(3));
    assert_eq!(Room::nowhere().refuses(&Actor::Owner, made(1)), Refusal::NoRoom);
}

#[test]
fn closing_waits_for_the_router_and_leaves_it_behind_in_the_end() {
    for in_time in [true, false] {
        let (mut room, ann, _) = standing();
        room.does(&ann, up("mic"));
        room.does(&ann, Command::Close { reason: None });
        assert_eq!(room.cell.status.word(), "closing");
        assert!(!duties(&room).contains(&remove("ann1")), "with the router goes everybody");
        if in_time {
            assert_eq!(names(&room.does(&Actor::Owner, Command::Ended)), ["Closed"]);
            assert!(duties(&room).is_empty());
        } else {
            room.later(15_000);
            assert_eq!(names(&room.timers()), ["RouterDropped", "Owed", "Closed"]);
            assert_eq!(duties(&room), [close(1)], "it is tried again for as long as it takes");
        }
        assert_eq!((room.cell.status.clone(), room.cell.router.clone()), (Status::Closed, None));
    }
    let mut room = Room::open();
    room.rules.external_media = true;
    let closed = room.does(&outside("ann", Role::Host), Command::Close { reason: None });
    assert!(matches!(closed[..], [Event::Closed { .. }]), "there is no router to wait for");
}

#[test]
fn only_the_owner_speaks_of_routers() {
    let (mut room, ann, _) = standing();
    let owners = [made(2), Command::RouterDropped, Command::DutiesDone { done: Vec::new() }];
    for command in owners {
        for actor in [&ann, &Actor::Backend, &Actor::Media, &member("bob1", Role::Guest)] {
            assert_eq!(room.refuses(actor, command.clone()), Refusal::HostsOnly, "{command:?}");
        }
    }
}
