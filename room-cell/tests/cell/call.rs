//! started → accepted → finished or disconnected; started → missed or declined.

use room_cell::{Actor, CallReason, CallState, Command, Event, Refusal, Role, Timer};

use crate::room::{Room, kick, names, outside};

fn room() -> (Room, Actor, Actor, Actor) {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    let bob = room.joins("bob1", Role::Guest);
    let cat = room.joins("cat1", Role::Guest);
    (room, ann, bob, cat)
}

fn invite(call: &str, to: &[&str]) -> Command {
    Command::CallInvite { call: call.into(), to: to.iter().map(|user| (*user).into()).collect() }
}

const ACCEPT: Command = Command::CallAccept { call: None };
const DECLINE: Command = Command::CallDecline { call: None };
const HANG_UP: Command = Command::CallHangup { call: None };

fn ended(events: &[Event]) -> Option<(CallState, Option<CallReason>)> {
    events.iter().find_map(|event| match event {
        Event::CallEnded { state, reason, .. } => Some((*state, *reason)),
        _ => None,
    })
}

fn stands(state: CallState) -> Refusal {
    Refusal::CallStands { state }
}

#[test]
fn the_first_accept_wins_and_either_may_finish() {
    let (mut room, ann, bob, cat) = room();
    for command in [ACCEPT, DECLINE, HANG_UP] {
        assert_eq!(room.refuses(&bob, command), Refusal::NoCall);
    }
    room.does(&ann, invite("one", &["bob", "cat", "bob", "ann"]));
    assert_eq!(room.cell.call.as_ref().unwrap().to.len(), 2, "each once, and not the caller");
    assert!(room.does(&ann, invite("one", &["bob"])).is_empty(), "a repeat");
    assert_eq!(room.refuses(&cat, invite("two", &["bob"])), Refusal::CallGoingOn);
    assert_eq!(room.refuses(&ann, ACCEPT), Refusal::NotInCall);
    assert_eq!(names(&room.does(&bob, ACCEPT)), ["CallAccepted"]);
    assert!(room.does(&bob, ACCEPT).is_empty());
    assert_eq!(room.refuses(&cat, ACCEPT), stands(CallState::Accepted));
    assert_eq!(room.refuses(&cat, HANG_UP), Refusal::NotInCall);
    let events = room.does(&bob, HANG_UP);
    assert_eq!(ended(&events), Some((CallState::Finished, None)));
    for actor in [&ann, &bob] {
        assert_eq!(room.refuses(actor, HANG_UP), stands(CallState::Finished));
    }
    assert_eq!(room.refuses(&ann, invite("one", &["bob"])), stands(CallState::Finished));
    room.does(&cat, invite("two", &["dan"]));
}

#[test]
fn i_19_an_accepted_call_is_neither_missed_nor_declined() {
    let (mut room, ann, bob, cat) = room();
    room.does(&ann, invite("call", &["bob", "cat"]));
    room.does(&bob, ACCEPT);
    room.later(60_000);
    assert!(room.timers().is_empty());
    let late = Command::Due(Timer::Ring { call: "call".into() });
    assert_eq!(room.refuses(&Actor::Owner, late), Refusal::NotDue);
    for actor in [&bob, &cat] {
        assert_eq!(room.refuses(actor, DECLINE), stands(CallState::Accepted));
    }
    assert_eq!(room.cell.call.as_ref().map(|call| call.state), Some(CallState::Accepted));
}

#[test]
fn everybody_says_no() {
    let (mut room, ann, bob, cat) = room();
    room.does(&ann, invite("call", &["bob", "cat"]));
    assert_eq!(names(&room.does(&bob, DECLINE)), ["CallDeclinedBy"]);
    assert!(room.does(&bob, DECLINE).is_empty());
    assert_eq!(room.refuses(&ann, DECLINE), Refusal::NotInCall);
    // Hanging up while it rings is a no.
    let events = room.does(&cat, HANG_UP);
    assert_eq!(ended(&events), Some((CallState::Declined, None)));
    assert_eq!(room.refuses(&bob, ACCEPT), stands(CallState::Declined));
    assert_eq!(room.cell.call.as_ref().map(|call| call.declined_by.len()), Some(2));
}

#[test]
fn nobody_answers_in_time() {
    let (mut room, ann, bob, _) = room();
    room.does(&ann, invite("call", &["bob"]));
    let ring = Command::Due(Timer::Ring { call: "call".into() });
    assert_eq!(room.refuses(&Actor::Owner, ring.clone()), Refusal::NotDue);
    let other = Command::CallAccept { call: Some("other".into()) };
    assert_eq!(room.refuses(&bob, other), Refusal::NoCall);
    room.later(45_000);
    assert_eq!(ended(&room.timers()), Some((CallState::Missed, Some(CallReason::Timeout))));
    assert_eq!(room.refuses(&Actor::Owner, ring), Refusal::NotDue);
    assert_eq!(room.refuses(&bob, ACCEPT), stands(CallState::Missed));
}

#[test]
fn what_leaving_does_to_a_call() {
    let cases = [
        (false, "ann", Some((CallState::Missed, Some(CallReason::Cancelled)))),
        (false, "bob", None),
        (true, "ann", Some((CallState::Disconnected, Some(CallReason::PartyLeft)))),
        (true, "bob", Some((CallState::Disconnected, Some(CallReason::PartyLeft)))),
        (true, "cat", None),
    ];
    for (accepted, who, expected) in cases {
        for kicked in [false, true] {
            let (mut room, ann, bob, cat) = room();
            room.does(&ann, invite("call", &["bob", "cat"]));
            if accepted {
                room.does(&bob, ACCEPT);
            }
            let events = if kicked {
                room.does(&Actor::Backend, kick(who, None))
            } else {
                let actor = [&ann, &bob, &cat][usize::from(who > "ann") + usize::from(who > "bob")];
                room.does(actor, Command::Leave)
            };
            assert_eq!(ended(&events), expected, "{who}, accepted: {accepted}, kicked: {kicked}");
        }
    }
}

#[test]
fn closing_the_room_ends_a_call() {
    for (accepted, state) in [(false, CallState::Missed), (true, CallState::Disconnected)] {
        let (mut room, ann, bob, _) = room();
        room.does(&ann, invite("call", &["bob"]));
        if accepted {
            room.does(&bob, ACCEPT);
        }
        let events = room.does(&ann, Command::Close { reason: None });
        assert_eq!(ended(&events), Some((state, Some(CallReason::RoomClosed))));
    }
}

#[test]
fn only_members_call_and_they_hang_up_while_it_rings() {
    let (mut room, _, bob, _) = room();
    assert_eq!(room.refuses(&outside("dan", Role::Guest), invite("call", &["bob"])), Refusal::NotMember);
    assert_eq!(room.refuses(&bob, invite("call", &["bob"])), Refusal::NotInCall);
    room.does(&bob, invite("call", &["dan"]));
    let events = room.does(&bob, HANG_UP);
    assert_eq!(ended(&events), Some((CallState::Missed, Some(CallReason::Cancelled))));
}
