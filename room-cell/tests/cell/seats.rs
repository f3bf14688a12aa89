//! idle ⇄ locked, idle → pending → publishing → idle.

use room_cell::{Actor, Command, ConfirmedBy, Event, MediaFact, MicEnd, Refusal, Role, Speaking, Timer};

use crate::room::{Room, down, names, outside, up};

/// A room with a host `ann` and two guests, all present.
fn room() -> (Room, Actor, Actor, Actor) {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    let bob = room.joins("bob1", Role::Guest);
    let cat = room.joins("cat1", Role::Guest);
    (room, ann, bob, cat)
}

fn up_to(seat: u16, session: &str) -> Command {
    Command::MicUp { user: None, seat: Some(seat), session: session.into() }
}

fn lock(seat: u16, locked: bool, force: bool) -> Command {
    Command::SeatLock { seat, locked, force }
}

fn to(seat: u16, flowing: bool) -> Command {
    Command::MicMove { user: None, seat, flowing }
}

fn confirm(session: &str) -> Command {
    Command::MicConfirm { session: session.into() }
}

fn seat(room: &Room, user: &str) -> Option<(u16, bool)> {
    let (number, sitter) = room.cell.seat_of(user)?;
    Some((number, matches!(sitter.speaking, Speaking::Publishing { .. })))
}

#[test]
fn taking_a_seat_is_not_yet_speaking() {
    let (mut room, _, bob, cat) = room();
    let version = room.cell.version;
    let events = room.does(&bob, up_to(2, "mic"));
    assert!(matches!(&events[..], [Event::SeatTaken { seat: 2, version: at, .. }] if *at == version + 1));
    assert_eq!(seat(&room, "bob"), Some((2, false)));
    assert_eq!(room.refuses(&bob, up("more")), Refusal::AlreadySeated);
    assert_eq!(room.refuses(&cat, up_to(2, "other")), Refusal::SeatTaken);
    assert_eq!(room.refuses(&cat, up_to(5, "other")), Refusal::NoSuchSeat { seat: 5 });
    assert_eq!(room.refuses(&cat, up("mic")), Refusal::StaleSession, "a session is one use of one seat");
    room.does(&cat, up("other"));
    assert_eq!(seat(&room, "cat"), Some((1, false)));
    let events = room.does(&bob, confirm("mic"));
    assert!(matches!(events[..], [Event::Confirmed { by: ConfirmedBy::Client, .. }]));
    assert!(room.does(&bob, confirm("mic")).is_empty());
}

#[test]
fn a_host_gives_a_seat_to_who_is_present() {
    let (mut room, ann, _, _) = room();
    let give = |user: &str, seat| Command::MicUp { user: Some(user.into()), seat, session: "mic".into() };
    assert_eq!(room.refuses(&ann, give("dan", None)), Refusal::NotPresent);
    assert_eq!(room.refuses(&Actor::Backend, up("mic")), Refusal::NotMember);
    room.does(&ann, lock(1, true, false));
    assert_eq!(room.refuses(&ann, give("bob", Some(1))), Refusal::SeatLocked);
    room.does(&Actor::Backend, give("bob", None));
    assert_eq!(seat(&room, "bob"), Some((2, false)));
}

#[test]
fn no_seat_is_free() {
    let (mut room, ann, bob, cat) = room();
    room.does(&ann, Command::SetSeats { count: 2 });
    room.does(&ann, lock(1, true, false));
    room.does(&bob, up("mic"));
    assert_eq!(room.refuses(&cat, up("other")), Refusal::NoFreeSeat);
}

#[test]
fn i_7_an_old_session_says_nothing_about_a_newer_one() {
    let (mut room, ann, bob, _) = room();
    assert_eq!(room.refuses(&bob, confirm("old")), Refusal::NotSeated);
    room.does(&bob, up("old"));
    room.does(&bob, down());
    room.does(&bob, up("new"));
    assert_eq!(room.refuses(&bob, confirm("old")), Refusal::StaleSession);
    for actor in [&bob, &ann] {
        let stop = Command::MicDown { user: Some("bob".into()), session: Some("old".into()) };
        assert_eq!(room.refuses(actor, stop), Refusal::StaleSession);
    }
    room.later(60_000);
    let late = Command::Due(Timer::Publish { session: "old".into(), flowing: false });
    assert_eq!(room.refuses(&Actor::Owner, late), Refusal::NotDue);
    assert_eq!(seat(&room, "bob"), Some((1, false)));
}

#[test]
fn who_is_not_heard_in_time_is_taken_down() {
    let (mut room, _, bob, cat) = room();
    room.does(&bob, up("mic"));
    room.does(&cat, up("other"));
    room.later(14_999);
    assert!(room.timers().is_empty());
    let early = Command::Due(Timer::Publish { session: "mic".into(), flowing: true });
    assert_eq!(room.refuses(&Actor::Owner, early), Refusal::NotDue);
    room.later(1);
    let heard = Command::Due(Timer::Publish { session: "mic".into(), flowing: true });
    assert_eq!(names(&room.does(&Actor::Owner, heard)), ["Confirmed"]);
    let events = room.timers();
    assert!(
        matches!(&events[..], [Event::SeatFreed { reason: MicEnd::PublishTimeout, user, .. }] if user.as_str() == "cat")
    );
}

#[test]
fn down_by_oneself_or_by_a_host() {
    let (mut room, ann, bob, cat) = room();
    assert_eq!(room.refuses(&bob, down()), Refusal::NotSeated);
    room.does(&bob, up("one"));
    let other = Command::MicDown { user: Some("bob".into()), session: None };
    assert_eq!(room.refuses(&cat, other.clone()), Refusal::HostsOnly);
    let events = room.does(&ann, other.clone());
    assert!(matches!(events[..], [Event::SeatFreed { reason: MicEnd::TakenDown, .. }]));
    room.does(&bob, up("two"));
    let events = room.does(&bob, other);
    assert!(matches!(events[..], [Event::SeatFreed { reason: MicEnd::Down, .. }]));
}

#[test]
fn a_move_keeps_the_session_and_waits_for_audio_again() {
    let (mut room, ann, bob, cat) = room();
    assert_eq!(room.refuses(&bob, to(2, false)), Refusal::NotSeated);
    room.does(&bob, up("mic"));
    room.does(&bob, confirm("mic"));
    room.does(&bob, Command::MicMute { user: None, muted: true });
    room.does(&cat, up_to(2, "other"));
    room.does(&ann, lock(3, true, false));
    assert!(room.does(&bob, to(1, false)).is_empty());
    assert_eq!(room.refuses(&bob, to(2, false)), Refusal::SeatTaken);
    assert_eq!(room.refuses(&bob, to(3, false)), Refusal::SeatLocked);
    assert_eq!(room.refuses(&bob, to(9, false)), Refusal::NoSuchSeat { seat: 9 });
    room.does(&bob, to(4, false));
    assert_eq!(seat(&room, "bob"), Some((4, false)));
    let (_, sitter) = room.cell.seat_of("bob").unwrap();
    assert!(sitter.session.as_str() == "mic" && sitter.muted);
    room.does(&bob, to(1, true));
    assert_eq!(seat(&room, "bob"), Some((1, true)), "the media server hears them");
    room.rules.live_list = false;
    room.does(&bob, to(4, false));
    assert_eq!(seat(&room, "bob"), Some((4, true)), "nobody could say so later");
    room.does(&cat, to(1, false));
    assert_eq!(seat(&room, "cat"), Some((1, false)));
}

#[test]
fn a_taken_seat_is_locked_only_by_force() {
    let (mut room, ann, bob, _) = room();
    room.does(&bob, up("mic"));
    assert_eq!(room.refuses(&ann, lock(1, true, false)), Refusal::SeatTaken);
    assert_eq!(room.refuses(&ann, lock(7, true, true)), Refusal::NoSuchSeat { seat: 7 });
    let events = room.does(&ann, lock(1, true, true));
    assert!(matches!(
        events[..],
        [Event::SeatFreed { reason: MicEnd::SeatLocked, .. }, Event::SeatLocked { .. }]
    ));
    assert!(room.does(&ann, lock(1, true, true)).is_empty());
    room.does(&ann, lock(1, false, false));
    room.does(&bob, up_to(1, "again"));
}

#[test]
fn mute_is_an_intent_for_one_or_all() {
    let (mut room, ann, bob, cat) = room();
    let mute = |user: Option<&str>, muted| Command::MicMute { user: user.map(Into::into), muted };
    assert_eq!(room.refuses(&bob, mute(None, true)), Refusal::NotSeated);
    room.does(&ann, up("a"));
    room.does(&bob, up("b"));
    room.does(&cat, up("c"));
    assert_eq!(room.refuses(&bob, mute(Some("cat"), true)), Refusal::HostsOnly);
    room.does(&bob, mute(None, true));
    assert!(room.does(&ann, mute(Some("bob"), true)).is_empty());
    let all = |muted| Command::MicMuteAll { muted, except: vec!["ann".into()] };
    let events = room.does(&ann, all(true));
    assert!(matches!(&events[..], [Event::Muted { user, .. }] if user.as_str() == "cat"));
    assert!(room.does(&ann, all(true)).is_empty());
    assert_eq!(names(&room.does(&Actor::Backend, all(false))), ["Muted", "Muted"]);
}

#[test]
fn more_seats_and_fewer() {
    let (mut room, ann, bob, cat) = room();
    room.does(&bob, up_to(2, "b"));
    room.does(&cat, up_to(4, "c"));
    room.does(&ann, lock(1, true, false));
    assert!(room.does(&ann, Command::SetSeats { count: 4 }).is_empty());
    let events = room.does(&ann, Command::SetSeats { count: 2 });
    assert!(matches!(
        events[..],
        [Event::SeatFreed { reason: MicEnd::SeatRemoved, .. }, Event::SeatsSet { count: 2 }]
    ));
    room.does(&outside("ann", Role::Host), Command::SetSeats { count: 3 });
    let locks: Vec<(u16, bool)> = room.cell.seats.iter().map(|(number, it)| (*number, it.locked)).collect();
    assert_eq!(locks, [(1, true), (2, false), (3, false)]);
    assert_eq!(seat(&room, "bob"), Some((2, false)));
}

#[test]
fn audio_that_flows_already_confirms_a_seat_at_once() {
    let (mut room, _, bob, _) = room();
    room.later(5_000);
    assert_eq!(names(&room.hears("bob", MediaFact::AudioStarted).unwrap()), ["Heard"]);
    room.later(60_000);
    let events = room.does(&bob, up("mic"));
    assert_eq!(names(&events), ["SeatTaken", "Confirmed"]);
    // What was heard of one session does not count for the next.
    room.does(&bob, down());
    assert_eq!(names(&room.does(&bob, up("next"))), ["SeatTaken"]);
}
