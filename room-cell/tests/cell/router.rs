//! The router at an external media server, and what is owed to it.

use room_cell::{
    Actor, Command, Devices, Duty, Event, MediaFact, MediaIdentity, MediaReport, Owed, Refusal, Role,
    Speaking, Status,
};

use crate::room::{Room, START, called, down, joining, kick, member, names, outside, report, up};

fn made(generation: u64) -> Command {
    Command::RouterMade { node: "one".into(), name: format!("router {generation}").into(), generation }
}

fn remove(peer: &str) -> Duty {
    Duty::Remove { name: called(peer) }
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
    // Gone, there is nothing to permit.
    room.does(&bob, up("mic 2"));
    room.does(&ann, kick("bob", None));
    assert_eq!(duties(&room), [remove("bob1")]);
}

#[test]
fn what_changes_nothing_of_what_may_be_published_owes_nothing() {
    let (mut room, ann, bob) = standing();
    room.does(&bob, up("mic"));
    settle(&mut room);
    let move_on = Command::MicMove { user: None, seat: 3, flowing: false };
    let changes: [(&Actor, Command); 5] = [
        (&bob, move_on),
        (&bob, Command::MicConfirm { session: "mic".into() }),
        (&ann, Command::LockDoor { locked: true }),
        (&ann, Command::SetSeats { count: 3 }),
        // As it is, but for good.
        (&ann, Command::SetRole { user: "bob".into(), role: Role::Guest }),
    ];
    for (actor, command) in changes {
        assert!(!room.does(actor, command.clone()).is_empty());
        assert!(duties(&room).is_empty(), "{command:?}");
    }
}

#[test]
fn only_the_device_that_sits_is_permitted_and_all_where_the_room_has_no_seats() {
    let mut room = Room::open();
    room.rules.external_media = true;
    room.rules.devices = Devices::Allow;
    let ann = room.joins("ann1", Role::Host);
    let bob = room.joins("bob1", Role::Guest);
    room.joins("bob2", Role::Guest);
    room.does(&Actor::Owner, made(1));
    room.does(&bob, up("mic"));
    assert_eq!(duties(&room), [permit("bob1")]);
    settle(&mut room);
    // Without seats everybody may speak, and with the first one only who sits there.
    for count in [0, 2] {
        room.does(&ann, Command::SetSeats { count });
        let without_seat = if count == 0 { &["ann1", "bob2"][..] } else { &["ann1", "bob1", "bob2"] };
        assert_eq!(
            duties(&room),
            without_seat.iter().map(|peer| permit(peer)).collect::<Vec<_>>(),
            "{count}"
        );
        settle(&mut room);
    }
    room.does(&bob, up("mic 2"));
    settle(&mut room);
    // A new connection is granted what it may; with the old one its seat is gone.
    room.rules.devices = Devices::Replace;
    room.does(&outside("bob", Role::Guest), Command::Join(joining("bob3", Role::Guest)));
    assert_eq!(duties(&room), [remove("bob1"), remove("bob2")]);
    assert!(room.cell.seat_of("bob").is_some_and(|(_, sitter)| sitter.peer.as_str() == "bob3"));
}

#[test]
fn whoever_comes_to_the_media_server_is_permitted_once() {
    let (mut room, _, bob) = standing();
    let (at, stay) = (room.now, |name: &str| Some(name.into()));
    let says = |room: &mut Room, what, after, incarnation| {
        let report = MediaReport { incarnation, ..report("bob", what, at.after(after)) };
        room.tries(&Actor::Media, Command::Media(report))
    };
    room.later(10_000);
    assert!(says(&mut room, MediaFact::ParticipantJoined, 100, stay("one")).is_ok());
    assert_eq!(duties(&room), [permit("bob1")], "the grant may be older than the seat");
    settle(&mut room);
    assert_eq!(says(&mut room, MediaFact::ParticipantJoined, 100, stay("one")), Ok(Vec::new()), "said again");
    for what in [MediaFact::AudioStarted, MediaFact::AudioStopped, MediaFact::RoomExited] {
        assert!(says(&mut room, what, 200, stay("one")).is_ok());
        assert!(duties(&room).is_empty(), "{what:?} of a stay that is known");
    }
    // What comes first of a stay tells of it, and what was overtaken is stale.
    assert!(says(&mut room, MediaFact::AudioStarted, 400, stay("two")).is_ok());
    assert_eq!(duties(&room), [permit("bob1")]);
    settle(&mut room);
    let overtaken = says(&mut room, MediaFact::ParticipantJoined, 300, stay("two"));
    assert_eq!(overtaken, Err(Refusal::StaleReport));
    assert!(duties(&room).is_empty());
    // Without incarnations a stay lasts until somebody exits.
    let (mut room, ..) = standing();
    for (what, comes) in [
        (MediaFact::AudioStarted, true),
        (MediaFact::AudioStopped, false),
        (MediaFact::RoomExited, false),
        (MediaFact::AudioStarted, true),
    ] {
        room.later(1_000);
        assert!(room.hears("bob", what).is_ok());
        assert_eq!(!duties(&room).is_empty(), comes, "{what:?}");
        settle(&mut room);
    }
    // Only the connection that is named.
    room.rules.devices = Devices::Allow;
    room.joins("bob2", Role::Guest);
    let who = Some(MediaIdentity { user: "bob".into(), peer: Some("bob2".into()) });
    let joined = MediaReport { who, ..report("bob", MediaFact::ParticipantJoined, room.now) };
    room.does(&Actor::Media, Command::Media(joined));
    assert_eq!(duties(&room), [permit("bob2")]);
    room.does(&bob, Command::Leave);
    assert_eq!(duties(&room), [permit("bob2"), remove("bob1")]);
}

#[test]
fn a_connection_that_is_back_is_not_put_out() {
    let (mut room, _, bob) = standing();
    room.does(&bob, Command::Leave);
    assert_eq!(duties(&room), [remove("bob1")]);
    room.joins("bob1", Role::Guest);
    assert_eq!(duties(&room), [permit("bob1")], "it may be there still, with what it was allowed before");
}

#[test]
fn a_page_that_lost_its_connection_keeps_its_name_at_the_media_server() {
    let (mut room, ann, bob) = standing();
    room.does(&bob, up("mic"));
    settle(&mut room);
    let who = |peer: &str| MediaIdentity { user: "bob".into(), peer: Some(peer.into()) };
    let started = MediaReport { who: Some(who("bob1")), ..report("bob", MediaFact::AudioStarted, room.now) };
    room.does(&Actor::Media, Command::Media(started));
    settle(&mut room);
    room.later(1_000);
    let again = |peer: &str, of: &str| {
        let mut joining = joining(peer, Role::Guest);
        joining.resumes = Some(format!("digest of {of}").into());
        Command::Join(joining)
    };
    assert_eq!(
        names(&room.does(&outside("bob", Role::Guest), again("bob2", "bob1"))),
        ["Joined", "SeatKept"]
    );
    assert_eq!(room.cell.peer("bob2").expect("here").media, Some(called("bob1")));
    assert!(duties(&room).is_empty(), "it is there, and may what it might");
    assert!(room.cell.media.contains_key(&who("bob2")) && !room.cell.media.contains_key(&who("bob1")));
    room.does(&ann, Command::MicMute { user: Some("bob".into()), muted: true });
    assert_eq!(duties(&room), [permit("bob2")]);
    // What was owed to the connection before is owed to the next.
    room.does(&outside("bob", Role::Guest), again("bob3", "bob2"));
    assert_eq!(duties(&room), [permit("bob3")]);
    // Loaded anew, the page knows no secret.
    room.does(&outside("bob", Role::Guest), Command::Join(joining("bob4", Role::Guest)));
    assert_eq!(duties(&room), [remove("bob1")]);
    assert_eq!(room.cell.peer("bob4").expect("here").media, Some(called("bob4")));
}

#[test]
fn whoever_is_muted_keeps_the_seat_and_is_to_be_heard_again() {
    let (mut room, ann, bob) = standing();
    room.does(&bob, up("mic"));
    assert!(room.hears("bob", MediaFact::AudioStarted).is_ok());
    let mute = |muted| Command::MicMute { user: Some("bob".into()), muted };
    room.later(1_000);
    room.does(&ann, mute(true));
    room.later(1_000);
    assert!(room.hears("bob", MediaFact::AudioStopped).is_ok());
    let speaking = |room: &Room| room.cell.seat_of("bob").map(|(_, sitter)| sitter.speaking);
    assert!(
        matches!(speaking(&room), Some(Speaking::Publishing { .. })),
        "the media server did as it was told"
    );
    room.later(60_000);
    assert_eq!(names(&room.does(&ann, mute(false))), ["Muted", "Awaited", "Owed"]);
    assert!(matches!(speaking(&room), Some(Speaking::PendingPublish { .. })));
    room.later(1_000);
    assert!(room.hears("bob", MediaFact::AudioStarted).is_ok());
    assert!(matches!(speaking(&room), Some(Speaking::Publishing { .. })));
    // Loaded anew, the page has to be heard too.
    room.does(&outside("bob", Role::Guest), Command::Join(joining("bob2", Role::Guest)));
    assert!(matches!(speaking(&room), Some(Speaking::PendingPublish { .. })));
}

#[test]
fn who_was_heard_once_is_known_as_long_as_they_stay() {
    let (mut room, _, bob) = standing();
    let spoke = |room: &Room| room.cell.media.values().any(|heard| heard.spoke);
    let after = |room: &mut Room, what| {
        room.later(2_000);
        room.hears("bob", what).expect("it is news");
        spoke(room)
    };
    assert!(!after(&mut room, MediaFact::AudioStopped), "silent from the beginning");
    room.does(&bob, up("mic"));
    assert!(after(&mut room, MediaFact::AudioStarted));
    assert!(after(&mut room, MediaFact::AudioStopped), "silent by now");
    assert!(after(&mut room, MediaFact::RoomExited));
    assert!(!after(&mut room, MediaFact::AudioStopped), "another stay");
}

#[test]
fn i_25_a_session_that_has_to_be_heard_again_is_one_session_and_its_time_one_sum() {
    let (mut room, ann, bob) = standing();
    let heard_so_far = |events: &[Event]| {
        events.iter().find_map(|event| match event {
            Event::Confirmed { heard_ms, .. } | Event::SeatFreed { heard_ms, .. } => Some(*heard_ms),
            _ => None,
        })
    };
    room.does(&bob, up("mic"));
    let first = room.hears("bob", MediaFact::AudioStarted).expect("it is heard");
    assert_eq!(heard_so_far(&first), Some(None), "this is the first time");
    room.later(4_000);
    let mute = |muted| Command::MicMute { user: Some("bob".into()), muted };
    room.does(&ann, mute(true));
    room.later(1_000);
    assert_eq!(names(&room.does(&ann, mute(false))), ["Muted", "Awaited", "Owed"]);
    room.later(2_000);
    let again = room.hears("bob", MediaFact::AudioStarted).expect("it is heard");
    assert_eq!(heard_so_far(&again), Some(Some(5_000)), "it was heard before");
    room.later(700);
    let freed = room.does(&bob, down());
    assert_eq!(heard_so_far(&freed), Some(Some(5_700)), "not the time in which it was waited for");
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
        assert_eq!(sitter.heard, None, "{user}");
        let Speaking::PendingPublish { deadline } = sitter.speaking else { panic!("{user}") };
        assert_eq!(deadline.0 - START, 85_000, "{user}");
    }
    let generation = |room: &Room| room.cell.router.as_ref().map(|router| router.generation);
    assert_eq!(generation(&room), Some(2));
    room.later(1);
    assert!(room.hears("bob", MediaFact::AudioStarted).is_ok());
    settle(&mut room);
    room.later(15_000);
    assert_eq!(names(&room.timers()), ["SeatFreed", "Owed"], "ann was never heard again");
    assert!(room.cell.seat_of("bob").is_some());
}

#[test]
fn a_new_router_shortens_no_deadline_and_remembers_no_earlier_stay() {
    let (mut room, _, bob) = standing();
    room.does(&bob, up("mic"));
    let old = MediaReport {
        incarnation: Some("old".into()),
        ..report("bob", MediaFact::ParticipantJoined, room.now)
    };
    room.does(&Actor::Media, Command::Media(old));
    room.does(&Actor::Owner, Command::Shift { by_ms: 60_000 });
    assert_eq!(names(&room.does(&Actor::Owner, made(2))), ["RouterDropped", "Owed", "RouterMade"]);
    let (_, sitter) = room.cell.seat_of("bob").expect("still seated");
    assert!(matches!(sitter.speaking, Speaking::PendingPublish { deadline } if deadline.0 - START == 75_000));
    room.later(1);
    let new =
        MediaReport { incarnation: Some("new".into()), ..report("bob", MediaFact::RoomExited, room.now) };
    let left = room.does(&Actor::Media, Command::Media(new));
    assert!(names(&left).contains(&"SeatFreed"), "what it was in the old one is of no consequence");
}

#[test]
fn what_happened_in_another_router_is_of_no_consequence() {
    let (mut room, ann, bob) = standing();
    room.does(&bob, up("mic"));
    assert!(room.hears("bob", MediaFact::AudioStarted).is_ok());
    room.does(&Actor::Owner, made(2));
    let says = |room: &Room, router, what| {
        Command::Media(MediaReport { router: Some(router), ..report("bob", what, room.now) })
    };
    room.later(1);
    for router in [1, 3] {
        let exit = says(&room, router, MediaFact::RoomExited);
        assert_eq!(room.refuses(&Actor::Media, exit), Refusal::StaleRouter, "{router}");
    }
    let started = says(&room, 2, MediaFact::AudioStarted);
    assert!(names(&room.does(&Actor::Media, started)).contains(&"Confirmed"));
    room.does(&ann, Command::Close { reason: None });
    let finished = says(&room, 1, MediaFact::RoomFinished);
    assert_eq!(room.refuses(&Actor::Media, finished), Refusal::StaleRouter, "the present one is not gone");
    let finished = says(&room, 2, MediaFact::RoomFinished);
    assert_eq!(names(&room.does(&Actor::Media, finished)), ["Closed"]);
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
