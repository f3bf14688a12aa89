//! Hands raised, invitations, answers.

use room_cell::{Actor, AskEnd, Command, Event, Refusal, Role};

use crate::room::{Room, names, up};

fn room() -> (Room, Actor, Actor) {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    let bob = room.joins("bob1", Role::Guest);
    (room, ann, bob)
}

fn ask(seat: Option<u16>) -> Command {
    Command::MicRequest { seat, withdraw: false }
}

const WITHDRAW: Command = Command::MicRequest { seat: None, withdraw: true };

fn invite(user: &str, seat: Option<u16>) -> Command {
    Command::MicInvite { user: user.into(), seat }
}

fn answer(user: Option<&str>, accept: bool) -> Command {
    Command::MicRespond { user: user.map(Into::into), accept, session: "mic".into() }
}

#[test]
fn a_hand_is_raised_changed_and_lowered() {
    let (mut room, _, bob) = room();
    assert_eq!(names(&room.does(&bob, ask(None))), ["Requested"]);
    assert!(room.does(&bob, ask(None)).is_empty());
    assert_eq!(names(&room.does(&bob, ask(Some(2)))), ["Requested"]);
    assert_eq!(room.refuses(&bob, ask(Some(9))), Refusal::NoSuchSeat { seat: 9 });
    let events = room.does(&bob, WITHDRAW);
    assert!(matches!(events[..], [Event::RequestEnded { how: AskEnd::Withdrawn, .. }]));
    assert_eq!(room.refuses(&bob, WITHDRAW), Refusal::NothingAsked);
}

#[test]
fn a_host_accepts_a_request_onto_the_seat_that_was_asked_for() {
    for (taken, expected) in [(false, 3), (true, 1)] {
        let (mut room, ann, bob) = room();
        room.does(&bob, ask(Some(3)));
        room.does(&ann, invite("bob", None));
        if taken {
            room.does(&ann, Command::SeatLock { seat: 3, locked: true, force: false });
        }
        let events = room.does(&ann, answer(Some("bob"), true));
        assert!(matches!(
            &events[..],
            [
                Event::SeatTaken { seat, .. },
                Event::RequestEnded { how: AskEnd::Accepted, .. },
                Event::InviteEnded { how: AskEnd::Seated, .. }
            ] if *seat == expected
        ));
        assert_eq!(room.refuses(&ann, answer(Some("bob"), true)), Refusal::NothingAsked);
        assert_eq!(room.refuses(&bob, ask(None)), Refusal::AlreadySeated);
        assert_eq!(room.refuses(&ann, invite("bob", None)), Refusal::AlreadySeated);
    }
}

#[test]
fn a_request_stands_while_no_seat_is_free() {
    let (mut room, ann, bob) = room();
    room.does(&ann, Command::SetSeats { count: 1 });
    room.does(&ann, up("a"));
    room.does(&bob, ask(None));
    assert_eq!(room.refuses(&ann, answer(Some("bob"), true)), Refusal::NoFreeSeat);
    let events = room.does(&ann, answer(Some("bob"), false));
    assert!(matches!(events[..], [Event::RequestEnded { how: AskEnd::Declined, .. }]));
}

#[test]
fn somebody_invited_answers_for_themselves() {
    let (mut room, ann, bob) = room();
    assert_eq!(room.refuses(&ann, invite("dan", None)), Refusal::NotPresent);
    assert_eq!(room.refuses(&ann, invite("bob", Some(8))), Refusal::NoSuchSeat { seat: 8 });
    assert_eq!(room.refuses(&bob, answer(None, true)), Refusal::NothingAsked);
    room.does(&ann, invite("bob", Some(2)));
    assert!(room.does(&ann, invite("bob", Some(2))).is_empty());
    let events = room.does(&bob, answer(None, false));
    assert!(matches!(events[..], [Event::InviteEnded { how: AskEnd::Declined, .. }]));
    room.does(&ann, invite("bob", Some(2)));
    let events = room.does(&bob, answer(None, true));
    assert!(matches!(
        events[..],
        [Event::SeatTaken { seat: 2, .. }, Event::InviteEnded { how: AskEnd::Accepted, .. }]
    ));
}

#[test]
fn going_up_otherwise_ends_both() {
    let (mut room, ann, bob) = room();
    room.does(&bob, ask(None));
    room.does(&ann, invite("bob", None));
    let events = room.does(&bob, up("mic"));
    assert!(matches!(
        events[..],
        [
            Event::SeatTaken { .. },
            Event::RequestEnded { how: AskEnd::Seated, .. },
            Event::InviteEnded { how: AskEnd::Accepted, .. }
        ]
    ));
}

#[test]
fn a_session_that_stands_seats_nobody_else() {
    let (mut room, ann, bob) = room();
    room.does(&ann, up("mic"));
    room.does(&bob, ask(None));
    assert_eq!(room.refuses(&ann, answer(Some("bob"), true)), Refusal::StaleSession);
    assert_eq!(room.refuses(&Actor::Backend, answer(None, true)), Refusal::NotMember);
}
