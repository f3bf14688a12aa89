//! Kick, ban, roles, and who is spared.

use room_cell::{Actor, Command, Event, LeaveReason, Refusal, Role};

use crate::room::{Room, joining, kick, member, names, outside, up};

fn set_role(user: &str, role: Role) -> Command {
    Command::SetRole { user: user.into(), role }
}

fn unban(user: &str) -> Command {
    Command::Unban { user: user.into() }
}

#[test]
fn i_11_a_kicked_user_comes_back_only_after_an_unban() {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    let bob = room.joins("bob1", Role::Guest);
    room.does(&bob, up("mic"));
    let events = room.does(&ann, kick("bob", None));
    assert_eq!(names(&events), ["Banned", "SeatFreed", "Left"]);
    assert!(matches!(events[2], Event::Left { reason: LeaveReason::Kicked, .. }));
    room.later(1_000_000_000);
    let join = Command::Join(joining("bob2", Role::Guest));
    for command in [join.clone(), Command::Leave, up("again"), unban("bob")] {
        assert_eq!(room.refuses(&bob, command), Refusal::Banned);
    }
    room.does(&ann, unban("bob"));
    assert_eq!(room.refuses(&ann, unban("bob")), Refusal::NotBanned);
    room.joins("bob2", Role::Guest);
}

#[test]
fn i_11_a_timed_ban_is_over_in_its_time_and_lifted_by_the_next_join() {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    assert_eq!(names(&room.does(&ann, kick("bob", Some(10)))), ["Banned"], "somebody absent");
    let bob = outside("bob", Role::Guest);
    let join = Command::Join(joining("bob1", Role::Guest));
    room.later(9_999);
    assert_eq!(room.refuses(&bob, join.clone()), Refusal::Banned);
    room.later(1);
    assert_eq!(names(&room.does(&bob, join)), ["Unbanned", "Joined"]);
}

#[test]
fn who_may_do_what_to_whom() {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    let cat = room.joins("cat1", Role::Host);
    let bob = room.joins("bob1", Role::Guest);
    room.joins("dan1", Role::Host);
    for command in [
        kick("cat", None),
        unban("cat"),
        set_role("cat", Role::Guest),
        Command::LockDoor { locked: true },
        Command::Close { reason: None },
        Command::SeatLock { seat: 1, locked: true, force: false },
        Command::MicMuteAll { muted: true, except: Vec::new() },
        Command::SetSeats { count: 1 },
        Command::MicInvite { user: "cat".into(), seat: None },
        Command::MicUp { user: Some("cat".into()), seat: None, session: "mic".into() },
        Command::MicRespond { user: Some("cat".into()), accept: true, session: "mic".into() },
    ] {
        assert_eq!(room.refuses(&bob, command.clone()), Refusal::HostsOnly, "{command:?}");
    }
    assert_eq!(room.refuses(&cat, kick("cat", None)), Refusal::Outranked);
    assert_eq!(room.refuses(&cat, kick("ann", None)), Refusal::Creator);
    assert_eq!(room.refuses(&cat, set_role("ann", Role::Guest)), Refusal::Creator);
    room.does(&ann, up("mic"));
    room.does(&cat, Command::MicMute { user: Some("ann".into()), muted: true });
    room.does(&cat, Command::MicDown { user: Some("ann".into()), session: None });
    room.does(&cat, kick("dan", None));
    room.does(&ann, set_role("ann", Role::Guest));
    room.does(&Actor::Backend, kick("ann", None));
    assert_eq!(room.refuses(&ann, Command::LockDoor { locked: true }), Refusal::Banned);
}

#[test]
fn a_role_is_given_to_who_is_present_within_their_token() {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    room.joins("bob1", Role::Guest);
    room.joins("cat1", Role::Host);
    assert_eq!(room.refuses(&ann, set_role("dan", Role::Host)), Refusal::NotPresent);
    assert_eq!(room.refuses(&Actor::Backend, set_role("bob", Role::Host)), Refusal::TokenForbids);
    room.does(&ann, set_role("cat", Role::Guest));
    assert!(room.does(&ann, set_role("cat", Role::Guest)).is_empty());
    let cat = member("cat1", Role::Host);
    assert_eq!(room.refuses(&cat, set_role("cat", Role::Host)), Refusal::HostsOnly);
    room.does(&ann, set_role("cat", Role::Host));
    room.does(&cat, Command::LockDoor { locked: true });
}

#[test]
fn a_host_acts_also_without_being_in_the_room() {
    let mut room = Room::open();
    room.joins("bob1", Role::Guest);
    let cat = outside("cat", Role::Host);
    room.does(&cat, Command::LockDoor { locked: true });
    room.does(&cat, Command::MicUp { user: Some("bob".into()), seat: None, session: "mic".into() });
    assert_eq!(room.refuses(&cat, up("own")), Refusal::NotMember);
    // From elsewhere, but present: with the connection that is.
    room.joins("cat1", Role::Host);
    room.does(&cat, up("own"));
    assert_eq!(room.cell.seat_of("cat").map(|(_, sitter)| sitter.peer.to_string()), Some("cat1".into()));
    assert_eq!(
        room.refuses(&outside("bob", Role::Guest), Command::MicDown { user: None, session: None }),
        Refusal::NotMember
    );
}

#[test]
fn bans_are_bounded_and_those_that_are_over_make_room() {
    let mut room = Room::open();
    let ann = outside("ann", Role::Host);
    for number in 0..10_000 {
        let seconds = if number < 150 { 1 } else { 1_000 };
        room.does(&ann, kick(&format!("u{number}"), Some(seconds)));
    }
    let refusal = room.refuses(&ann, kick("one more", None));
    assert_eq!(refusal.to_string(), "the room has 10000 bans already");
    room.does(&ann, kick("u3", Some(1)));
    room.later(2_000);
    let events = room.does(&ann, kick("one more", None));
    assert_eq!(events.iter().filter(|it| matches!(it, Event::Unbanned { .. })).count(), 100);
    assert_eq!(room.cell.bans.len(), 9_901);
}
