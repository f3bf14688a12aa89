//! What single reports of the media server do.

use room_cell::{
    Actor, Command, ConfirmedBy, Devices, Event, MediaFact, MediaIdentity, MediaReport, MicEnd, Millis,
    Refusal, Role, Speaking,
};

use crate::room::{Room, down, joining, names, outside, report, up};

/// A guest `bob` with a seat.
fn seated() -> (Room, Actor) {
    let mut room = Room::open();
    let bob = room.joins("bob1", Role::Guest);
    room.later(5_000);
    room.does(&bob, up("mic"));
    room.later(2_000);
    (room, bob)
}

fn speaks(room: &Room) -> Option<bool> {
    let (_, sitter) = room.cell.seat_of("bob")?;
    Some(matches!(sitter.speaking, Speaking::Publishing { .. }))
}

fn stay(room: &Room, what: MediaFact, incarnation: &str) -> MediaReport {
    MediaReport { incarnation: Some(incarnation.into()), ..report("bob", what, room.now) }
}

fn before(room: &Room, ms: u64) -> Millis {
    Millis(room.now.0 - ms)
}

#[test]
fn audio_confirms_and_its_end_frees() {
    let (mut room, _) = seated();
    let events = room.hears("bob", MediaFact::AudioStarted).unwrap();
    assert_eq!(names(&events), ["Heard", "Confirmed"]);
    assert!(matches!(events[1], Event::Confirmed { by: ConfirmedBy::Media, .. }));
    assert!(room.hears("bob", MediaFact::AudioStarted).unwrap().is_empty(), "a repeat");
    room.later(4_000);
    let events = room.hears("bob", MediaFact::AudioStopped).unwrap();
    assert!(matches!(
        events[1],
        Event::SeatFreed { reason: MicEnd::AudioStopped, heard_ms: Some(4_000), .. }
    ));
    assert_eq!(speaks(&room), None);
}

#[test]
fn a_stop_frees_no_seat_that_waits_and_outdates_an_older_start() {
    let (mut room, _) = seated();
    let started = report("bob", MediaFact::AudioStarted, room.now);
    room.later(500);
    assert_eq!(names(&room.hears("bob", MediaFact::AudioStopped).unwrap()), ["Heard"]);
    assert_eq!(room.refuses(&Actor::Media, Command::Media(started)), Refusal::StaleReport);
    assert_eq!(speaks(&room), Some(false));
    room.later(500);
    room.hears("bob", MediaFact::AudioStarted).unwrap();
    assert_eq!(speaks(&room), Some(true));
}

#[test]
fn i_9_room_exited_frees_the_seat_and_keeps_presence() {
    for confirmed in [false, true] {
        let (mut room, bob) = seated();
        if confirmed {
            room.does(&bob, Command::MicConfirm { session: "mic".into() });
        }
        let present = room.cell.users.clone();
        let events = room.hears("bob", MediaFact::RoomExited).unwrap();
        assert_eq!(names(&events), ["Heard", "SeatFreed"]);
        assert!(matches!(events[1], Event::SeatFreed { reason: MicEnd::RoomExited, .. }));
        assert_eq!(room.cell.users, present);
    }
}

#[test]
fn i_8_an_exit_from_before_the_session_or_the_connection_frees_nothing() {
    let (mut room, _) = seated();
    let stale = report("bob", MediaFact::RoomExited, before(&room, 2_001));
    room.does(&Actor::Media, Command::Media(stale));
    assert_eq!(speaks(&room), Some(false));
    let stale = report("bob", MediaFact::RoomExited, before(&room, 60_000));
    assert_eq!(room.refuses(&Actor::Media, Command::Media(stale)), Refusal::StaleReport);

    // The page was loaded anew while the seat was kept; the exit is the old page's.
    let (mut room, _) = seated();
    let exited = room.now;
    room.later(1_000);
    room.does(&outside("bob", Role::Guest), Command::Join(joining("bob2", Role::Guest)));
    room.later(1_000);
    room.does(&Actor::Media, Command::Media(report("bob", MediaFact::RoomExited, exited)));
    assert_eq!(speaks(&room), Some(false));
}

#[test]
fn i_21_what_comes_late_of_a_replaced_connection_leaves_the_seat_alone() {
    for (what, incarnation) in [
        (MediaFact::AudioStopped, None),
        (MediaFact::AudioStopped, Some("one")),
        (MediaFact::RoomExited, None),
        (MediaFact::RoomExited, Some("one")),
    ] {
        let (mut room, _) = seated();
        let said = |what, at| {
            let incarnation = incarnation.map(Into::into);
            Command::Media(MediaReport { incarnation, ..report("bob", what, at) })
        };
        let started = room.now;
        room.does(&Actor::Media, said(MediaFact::AudioStarted, started));
        room.later(1_000);
        let ended = room.now;
        room.later(600);
        let bob = outside("bob", Role::Guest);
        room.does(&bob, Command::Join(joining("bob2", Role::Guest)));
        room.does(&Actor::Media, said(what, ended));
        assert_eq!(speaks(&room), Some(true), "{what:?} {incarnation:?}");
    }
}

#[test]
fn what_a_session_was_heard_to_start_it_is_heard_to_end() {
    // The vendor's clock is behind by as much as is tolerated.
    let mut room = Room::open();
    let bob = room.joins("bob1", Role::Guest);
    room.later(5_000);
    room.does(&bob, up("mic"));
    let (started, stopped) = (before(&room, 900), before(&room, 400));
    room.later(1_000);
    room.does(&Actor::Media, Command::Media(report("bob", MediaFact::AudioStarted, started)));
    room.does(&Actor::Media, Command::Media(report("bob", MediaFact::AudioStopped, stopped)));
    assert_eq!(speaks(&room), None);
    // A client's own word has no place in the vendor's order.
    room.later(10_000);
    room.does(&bob, up("again"));
    room.does(&bob, Command::MicConfirm { session: "again".into() });
    let stopped = before(&room, 400);
    room.does(&Actor::Media, Command::Media(report("bob", MediaFact::AudioStopped, stopped)));
    assert_eq!(speaks(&room), Some(true));
}

#[test]
fn i_8_an_exit_or_stop_of_another_incarnation_frees_nothing() {
    for ends in [MediaFact::RoomExited, MediaFact::AudioStopped] {
        let (mut room, _) = seated();
        let first = stay(&room, MediaFact::AudioStarted, "first");
        room.does(&Actor::Media, Command::Media(first));
        room.later(3_000);
        let second = stay(&room, MediaFact::AudioStarted, "second");
        room.does(&Actor::Media, Command::Media(second));
        room.later(3_000);
        let late = stay(&room, ends, "first");
        assert_eq!(room.refuses(&Actor::Media, Command::Media(late)), Refusal::StaleReport);
        assert_eq!(speaks(&room), Some(true));
        let own = stay(&room, ends, "second");
        room.does(&Actor::Media, Command::Media(own));
        assert_eq!(speaks(&room), None);
    }
}

#[test]
fn nothing_more_comes_of_an_incarnation_that_is_gone() {
    let (mut room, bob) = seated();
    let exit = stay(&room, MediaFact::RoomExited, "first");
    room.does(&Actor::Media, Command::Media(exit));
    room.later(5_000);
    room.does(&bob, up("again"));
    room.later(5_000);
    let late = stay(&room, MediaFact::AudioStarted, "first");
    assert_eq!(room.refuses(&Actor::Media, Command::Media(late)), Refusal::StaleReport);
}

#[test]
fn nothing_of_a_stay_comes_before_its_beginning() {
    // The vendor gives the coming a later second than the track that came with it.
    for joined_first in [true, false] {
        let (mut room, _) = seated();
        let started = stay(&room, MediaFact::AudioStarted, "one");
        room.later(1_000);
        let joined = stay(&room, MediaFact::ParticipantJoined, "one");
        if joined_first {
            room.does(&Actor::Media, Command::Media(joined));
            room.does(&Actor::Media, Command::Media(started));
        } else {
            room.does(&Actor::Media, Command::Media(started));
            assert_eq!(room.refuses(&Actor::Media, Command::Media(joined)), Refusal::StaleReport);
        }
        assert_eq!(speaks(&room), Some(true), "{joined_first}");
    }
}

#[test]
fn a_sequence_orders_what_happened_within_one_second() {
    let (mut room, _) = seated();
    let at = room.now;
    let said = |what, sequence| {
        Command::Media(MediaReport {
            sequence: Some(sequence),
            resolution_ms: 1_000,
            incarnation: Some("one".into()),
            ..report("bob", what, at)
        })
    };
    room.does(&Actor::Media, said(MediaFact::AudioStopped, 6));
    assert_eq!(room.refuses(&Actor::Media, said(MediaFact::AudioStarted, 5)), Refusal::StaleReport);
    room.does(&Actor::Media, said(MediaFact::AudioStarted, 7));
    assert_eq!(speaks(&room), Some(true));
    assert_eq!(room.refuses(&Actor::Media, said(MediaFact::AudioStopped, 6)), Refusal::StaleReport);
    assert_eq!(speaks(&room), Some(true));
}

#[test]
fn at_the_same_time_a_stop_comes_after_a_start() {
    let (mut room, _) = seated();
    let second = |what| {
        let at = Millis(room.now.0 / 1_000 * 1_000);
        Command::Media(MediaReport { resolution_ms: 1_000, ..report("bob", what, at) })
    };
    let (started, stopped) = (second(MediaFact::AudioStarted), second(MediaFact::AudioStopped));
    room.does(&Actor::Media, stopped);
    assert_eq!(room.refuses(&Actor::Media, started), Refusal::StaleReport);
    assert_eq!(speaks(&room), Some(false));
}

#[test]
fn a_clock_within_the_tolerance_confirms_and_one_beyond_it_does_not() {
    for (behind, expected) in [(900, true), (1_500, false)] {
        let mut room = Room::open();
        let bob = room.joins("bob1", Role::Guest);
        room.later(5_000);
        room.does(&bob, up("mic"));
        let at = before(&room, behind);
        let _ = room.tries(&Actor::Media, Command::Media(report("bob", MediaFact::AudioStarted, at)));
        assert_eq!(speaks(&room), Some(expected), "{behind} ms behind");
    }
}

#[test]
fn reports_of_another_connection_do_not_touch_the_seat() {
    let mut room = Room::open();
    room.rules.devices = Devices::Allow;
    let bob = room.joins("bob1", Role::Guest);
    room.joins("bob2", Role::Guest);
    room.later(1);
    room.does(&bob, up("mic"));
    room.later(3_000);
    let of = |peer: &str, what, at| {
        let who = Some(MediaIdentity { user: "bob".into(), peer: Some(peer.into()) });
        Command::Media(MediaReport { who, ..report("bob", what, at) })
    };
    let now = room.now;
    room.does(&Actor::Media, of("bob2", MediaFact::AudioStarted, now));
    assert_eq!(speaks(&room), Some(false));
    room.does(&Actor::Media, of("bob1", MediaFact::AudioStarted, now));
    room.does(&Actor::Media, of("bob2", MediaFact::RoomExited, now));
    assert_eq!(speaks(&room), Some(true));
    assert_eq!(room.refuses(&Actor::Media, of("bob3", MediaFact::RoomExited, now)), Refusal::NobodyConcerned);
}

#[test]
fn reports_about_nobody_here_concern_nobody_and_nothing_is_kept_of_who_left() {
    let (mut room, bob) = seated();
    assert_eq!(room.hears("dan", MediaFact::AudioStarted), Err(Refusal::NobodyConcerned));
    assert_eq!(room.hears("bob", MediaFact::RoomFinished), Err(Refusal::NobodyConcerned));
    let nobody = MediaReport { who: None, ..report("bob", MediaFact::AudioStarted, room.now) };
    assert_eq!(room.refuses(&Actor::Media, Command::Media(nobody)), Refusal::NobodyConcerned);
    room.hears("bob", MediaFact::AudioStarted).unwrap();
    room.does(&bob, down());
    assert!(!room.cell.media.is_empty() && !room.cell.freed.is_empty());
    room.does(&bob, Command::Leave);
    assert!(room.cell.media.is_empty() && room.cell.freed.is_empty());
}

#[test]
fn a_sequence_orders_within_one_second_also_without_incarnations() {
    let (mut room, _) = seated();
    let at = room.now;
    let said = |what, sequence, at| {
        let report = report("bob", what, at);
        Command::Media(MediaReport { sequence: Some(sequence), resolution_ms: 1_000, ..report })
    };
    room.does(&Actor::Media, said(MediaFact::AudioStopped, 6, at));
    assert_eq!(room.refuses(&Actor::Media, said(MediaFact::AudioStarted, 5, at)), Refusal::StaleReport);
    room.does(&Actor::Media, said(MediaFact::AudioStarted, 7, at));
    assert_eq!(speaks(&room), Some(true));
    // A client that begins anew counts from one again.
    room.later(4_000);
    let at = room.now;
    room.does(&Actor::Media, said(MediaFact::AudioStopped, 1, at));
    assert_eq!(speaks(&room), None);
}

#[test]
fn i_7_i_8_a_clock_ahead_does_not_mix_two_sessions_close_to_each_other() {
    let (mut room, bob) = seated();
    let started = report("bob", MediaFact::AudioStarted, room.now.after(900));
    let exited = report("bob", MediaFact::RoomExited, room.now.after(1_100));
    room.does(&Actor::Media, Command::Media(started.clone()));
    room.later(100);
    room.does(&bob, down());
    room.later(900);
    room.does(&bob, up("again"));
    assert_eq!(room.refuses(&Actor::Media, Command::Media(started)), Refusal::StaleReport, "said again");
    assert_eq!(speaks(&room), Some(false));
    room.does(&Actor::Media, Command::Media(exited));
    assert_eq!(speaks(&room), Some(false));
}

#[test]
fn audio_of_an_earlier_stay_does_not_count_for_the_next_seat() {
    let (mut room, bob) = seated();
    let started = report("bob", MediaFact::AudioStarted, room.now);
    room.does(&bob, Command::Leave);
    room.later(3_000);
    room.does(&outside("bob", Role::Guest), Command::Join(joining("bob2", Role::Guest)));
    assert_eq!(room.refuses(&Actor::Media, Command::Media(started)), Refusal::StaleReport);
    // Soon after a session it is not clear whose audio it is: it does not count, but is not forgotten.
    let bob = crate::room::member("bob2", Role::Guest);
    room.does(&bob, up("first"));
    room.does(&bob, down());
    room.later(500);
    room.hears("bob", MediaFact::AudioStarted).unwrap();
    room.later(2_000);
    assert_eq!(names(&room.does(&bob, up("second"))), ["SeatTaken"]);
}
