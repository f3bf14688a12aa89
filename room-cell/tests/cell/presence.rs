//! absent → present → left, with one device or several.

use room_cell::{
    Actor, Command, Devices, Event, GoneReason, Joining, LeaveReason, MicEnd, Presence, Refusal, Role,
    Speaking,
};
use serde_json::{Map, Value, json};

use crate::room::{Room, joining, kick, member, names, outside, up};

fn bob() -> Actor {
    outside("bob", Role::Guest)
}

fn join(peer: &str, change: impl FnOnce(&mut Joining)) -> Command {
    let mut joining = joining(peer, Role::Guest);
    change(&mut joining);
    Command::Join(joining)
}

fn peers(room: &Room, user: &str) -> Vec<String> {
    let presence = room.cell.users.get(user).cloned().unwrap_or_default();
    presence.peers.iter().map(|peer| peer.peer.to_string()).collect()
}

fn gone(peers: &[&str]) -> Command {
    let peers = peers.iter().map(|peer| (*peer).into()).collect();
    Command::Gone { peers, reason: GoneReason::StaleLeft }
}

#[test]
fn somebody_joins_and_leaves() {
    let mut room = Room::open();
    let events = room.does(&bob(), join("bob1", |_| {}));
    assert!(matches!(&events[..], [Event::Joined { arrived: true, replaced, .. }] if replaced.is_empty()));
    assert!(room.does(&bob(), join("bob1", |_| {})).is_empty(), "a repeat");
    assert_eq!(room.refuses(&outside("cat", Role::Guest), join("bob1", |_| {})), Refusal::NotMember);
    let left = room.does(&member("bob1", Role::Guest), Command::Leave);
    let expected = Event::Left { user: "bob".into(), peers: vec!["bob1".into()], reason: LeaveReason::Left };
    assert_eq!(left, [expected]);
    assert_eq!(room.refuses(&member("bob1", Role::Guest), Command::Leave), Refusal::NotMember);
    assert_eq!(room.refuses(&Actor::Backend, Command::Leave), Refusal::NotMember);
}

#[test]
fn i_10_nothing_but_a_join_makes_somebody_present() {
    let mut room = Room::open();
    let bob1 = member("bob1", Role::Host);
    for command in [Command::TokenRenewed, Command::LockDoor { locked: true }, up("mic"), Command::Leave] {
        assert_eq!(room.refuses(&bob1, command), Refusal::NotMember);
    }
    assert!(room.does(&Actor::Owner, gone(&["bob1"])).is_empty());
    assert!(room.cell.users.is_empty());
}

#[test]
fn capacity_counts_users_and_the_door_keeps_guests_out() {
    let mut room = Room::nowhere();
    room.rules.devices = Devices::Allow;
    let create = Command::Create { seats: 1, capacity: Some(2), auto_close: false };
    room.does(&outside("ann", Role::Host), create);
    let ann = room.joins("ann1", Role::Host);
    room.joins("bob1", Role::Guest);
    let full = Refusal::Full { capacity: 2 };
    assert_eq!(room.refuses(&outside("cat", Role::Host), join("cat1", |_| {})), full);
    room.joins("bob2", Role::Guest);
    room.does(&member("bob1", Role::Guest), Command::Leave);
    room.does(&ann, Command::LockDoor { locked: true });
    assert!(room.does(&ann, Command::LockDoor { locked: true }).is_empty());
    room.joins("bob3", Role::Guest);
    room.does(&Actor::Owner, gone(&["bob2", "bob3"]));
    assert_eq!(room.refuses(&bob(), join("bob4", |_| {})), Refusal::DoorLocked);
    // A token that allows hosting lets in only who comes as a host.
    let host = outside("bob", Role::Host);
    assert_eq!(room.refuses(&host, join("bob4", |_| {})), Refusal::DoorLocked);
    room.does(&host, join("bob4", |joining| joining.role = Role::Host));
}

#[test]
fn a_second_device_follows_the_policy() {
    let cases = [
        (Devices::Replace, Ok(vec!["bob2"])),
        (Devices::Reject, Err(Refusal::SecondDevice)),
        (Devices::Allow, Ok(vec!["bob1", "bob2"])),
    ];
    for (devices, expected) in cases {
        let mut room = Room::open();
        room.rules.devices = devices;
        room.does(&bob(), join("bob1", |joining| joining.device = Some("phone".into())));
        let joined = room.tries(&bob(), join("bob2", |joining| joining.device = Some("tablet".into())));
        match expected {
            Ok(there) => assert_eq!(peers(&room, "bob"), there),
            Err(refusal) => assert_eq!(joined, Err(refusal)),
        }
        // One's own device, a lost connection and a resumed one are the same again, whatever the policy.
        room.does(&bob(), join("bob3", |joining| joining.device = Some("phone".into())));
        let last = peers(&room, "bob").pop();
        assert_eq!(last.as_deref(), Some("bob3"));
        let there = peers(&room, "bob");
        room.does(
            &bob(),
            join("bob4", |joining| {
                joining.away = there.iter().map(|peer| peer.as_str().into()).collect();
            }),
        );
        assert_eq!(peers(&room, "bob"), ["bob4"]);
        room.does(&bob(), join("bob5", |joining| joining.resumes = Some("digest of bob4".into())));
        assert_eq!(peers(&room, "bob"), ["bob5"]);
    }
}

#[test]
fn a_user_has_eight_devices_at_most() {
    let mut room = Room::open();
    room.rules.devices = Devices::Allow;
    for number in 1..=8 {
        room.joins(&format!("bob{number}"), Role::Guest);
    }
    let refusal = room.refuses(&bob(), join("bob9", |_| {}));
    assert_eq!(refusal.to_string(), "the room has 8 devices of the user already");
    room.does(&bob(), join("bob9", |joining| joining.away = vec!["bob3".into()]));
}

#[test]
fn i_21_a_connection_that_was_replaced_can_no_longer_change_anything() {
    let mut room = Room::open();
    let old = room.joins("ann1", Role::Host);
    room.joins("ann2", Role::Host);
    room.joins("bob1", Role::Guest);
    let late = [
        Command::Leave,
        kick("bob", None),
        up("mic"),
        Command::TokenRenewed,
        Command::Close { reason: None },
        Command::UpdatePeer { attributes: Map::new(), max_bytes: 100 },
    ];
    for command in late {
        assert_eq!(room.refuses(&old, command), Refusal::NotMember);
    }
    assert!(room.does(&Actor::Owner, gone(&["ann1"])).is_empty(), "a queued disconnect");
    assert_eq!(peers(&room, "ann"), ["ann2"]);
}

#[test]
fn a_seat_is_kept_by_whatever_connection_takes_the_place_of_the_sitters() {
    for devices in [Devices::Replace, Devices::Allow] {
        let mut room = Room::open();
        room.rules.devices = devices;
        let bob1 = room.joins("bob1", Role::Guest);
        room.does(&bob1, up("mic"));
        room.later(1_000);
        let events = room.does(&bob(), join("bob2", |joining| joining.away = vec!["bob1".into()]));
        assert_eq!(names(&events), ["Joined", "SeatKept"]);
        assert!(
            matches!(&events[0], Event::Joined { arrived: false, peer, .. } if peer.joined_at < peer.since)
        );
        let (_, sitter) = room.cell.seat_of("bob").unwrap();
        assert_eq!((sitter.peer.as_str(), sitter.session.as_str()), ("bob2", "mic"));
        assert!(matches!(sitter.speaking, Speaking::PendingPublish { .. }));
    }
}

#[test]
fn i_25_a_mic_session_ends_with_its_connection_and_a_stay_with_the_last() {
    let mut room = Room::open();
    room.rules.devices = Devices::Allow;
    let bob1 = room.joins("bob1", Role::Guest);
    let bob2 = room.joins("bob2", Role::Guest);
    room.does(&bob1, up("mic"));
    let events = room.does(&Actor::Owner, gone(&["bob1", "nobody"]));
    assert_eq!(names(&events), ["SeatFreed", "PeerEnded"]);
    assert!(matches!(events[0], Event::SeatFreed { reason: MicEnd::StaleLeft, heard_ms: None, .. }));
    room.does(&bob2, up("again"));
    room.does(&bob2, Command::MicConfirm { session: "again".into() });
    room.later(700);
    let events = room.does(&bob2, Command::Leave);
    assert_eq!(names(&events), ["SeatFreed", "Left"]);
    assert!(matches!(events[0], Event::SeatFreed { reason: MicEnd::Left, heard_ms: Some(700), .. }));
}

#[test]
fn leaving_ends_what_was_asked() {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    let bob = room.joins("bob1", Role::Guest);
    room.does(&bob, Command::MicRequest { seat: None, withdraw: false });
    room.does(&ann, Command::MicInvite { user: "bob".into(), seat: None });
    let lost = Command::Gone { peers: vec!["bob1".into()], reason: GoneReason::InstanceLost };
    assert_eq!(names(&room.does(&Actor::Owner, lost)), ["RequestEnded", "InviteEnded", "Left"]);
}

#[test]
fn who_turns_out_to_be_banned_goes_as_if_kicked() {
    let mut room = Room::open();
    let bob = room.joins("bob1", Role::Guest);
    room.does(&bob, Command::MicUp { user: None, seat: None, session: "mic-1".into() });
    let out = Command::Gone { peers: vec!["bob1".into()], reason: GoneReason::Kicked };
    let events = room.does(&Actor::Owner, out);
    let is_kicked = |event: &Event| match event {
        Event::SeatFreed { reason, .. } => *reason == MicEnd::Kicked,
        Event::Left { reason, .. } => *reason == LeaveReason::Kicked,
        _ => false,
    };
    assert!(events.len() == 2 && events.iter().all(is_kicked), "{events:?}");
}

#[test]
fn a_role_is_what_was_given_else_what_is_wanted_and_never_above_the_token() {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    let role = |room: &Room| room.cell.users.get("bob").map(Presence::role);
    room.does(&bob(), join("bob1", |joining| joining.role = Role::Host));
    assert_eq!(role(&room), Some(Role::Guest), "the token");
    let host = outside("bob", Role::Host);
    room.does(&host, join("bob2", |joining| joining.role = Role::Host));
    assert_eq!(role(&room), Some(Role::Host));
    room.does(&ann, Command::SetRole { user: "bob".into(), role: Role::Guest });
    room.does(&member("bob2", Role::Host), Command::Leave);
    room.does(&host, join("bob3", |joining| joining.role = Role::Host));
    assert_eq!(role(&room), Some(Role::Guest), "a demotion outlasts presence");
    let bob3 = member("bob3", Role::Host);
    assert_eq!(room.refuses(&bob3, Command::LockDoor { locked: true }), Refusal::HostsOnly);
}

#[test]
fn a_renewed_token_that_allows_less_counts_at_once() {
    let mut room = Room::open();
    let bob1 = room.joins("bob1", Role::Host);
    assert!(room.does(&bob1, Command::TokenRenewed).is_empty());
    let lower = member("bob1", Role::Guest);
    assert_eq!(names(&room.does(&lower, Command::TokenRenewed)), ["TokenAllows", "RoleChanged"]);
    assert_eq!(names(&room.does(&bob1, Command::TokenRenewed)), ["TokenAllows"], "it is not given back");
    assert_eq!(room.refuses(&bob1, Command::LockDoor { locked: true }), Refusal::HostsOnly);
    assert!(room.cell.roles.is_empty());

    let mut room = Room::open();
    room.rules.devices = Devices::Allow;
    room.joins("bob1", Role::Guest);
    let bob2 = room.joins("bob2", Role::Host);
    let roles: Vec<Role> = room.cell.users.get("bob").unwrap().peers.iter().map(|it| it.role).collect();
    assert_eq!(roles, [Role::Host; 2], "one role for all connections");
    assert_eq!(
        room.refuses(&member("bob1", Role::Guest), Command::LockDoor { locked: true }),
        Refusal::HostsOnly
    );
    assert_eq!(names(&room.does(&bob2, Command::Leave)), ["PeerEnded", "RoleChanged"]);
}

#[test]
fn attributes_are_merged_and_bounded() {
    let mut room = Room::open();
    let bob = room.joins("bob1", Role::Guest);
    let update = |patch: Value, max_bytes| {
        let Value::Object(attributes) = patch else { panic!("an object") };
        Command::UpdatePeer { attributes, max_bytes }
    };
    let attributes = |room: &Room| Value::Object(room.cell.peer("bob1").unwrap().attributes.clone());
    room.does(&bob, update(json!({ "a": { "b": 1, "c": 2 }, "d": 3 }), 100));
    room.does(&bob, update(json!({ "a": { "b": null, "e": 4 }, "d": { "f": null } }), 100));
    assert_eq!(attributes(&room), json!({ "a": { "c": 2, "e": 4 }, "d": {} }));
    assert!(room.does(&bob, update(json!({ "a": { "c": 2 }, "x": null }), 100)).is_empty());
    let refusal = room.refuses(&bob, update(json!({ "a": "0123456789" }), 20));
    assert_eq!(refusal, Refusal::TooLarge { bytes: 25, max: 20 });
}

#[test]
fn a_clock_that_goes_back_keeps_connections_in_their_order() {
    let mut room = Room::open();
    room.rules.devices = Devices::Allow;
    room.joins("bob2", Role::Guest);
    room.now = room_cell::Millis(room.now.0 - 700);
    room.joins("bob1", Role::Guest);
    assert_eq!(peers(&room, "bob"), ["bob2", "bob1"]);
}
