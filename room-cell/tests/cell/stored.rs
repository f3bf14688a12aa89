//! The cell as it is stored.

use room_cell::{Actor, Cell, Changes, Command, MediaFact, Role, changes};

use crate::room::{Room, down, kick, up};

fn fields(set: &[(String, String)]) -> Vec<&str> {
    set.iter().map(|(field, _)| field.as_str()).collect()
}

/// A room in which every part is there.
fn full() -> (Room, Actor) {
    let mut room = Room::open();
    let ann = room.joins("ann1", Role::Host);
    let bob = room.joins("bob1", Role::Host);
    room.joins("cat:1", Role::Guest);
    room.does(&ann, Command::SetRole { user: "bob".into(), role: Role::Guest });
    room.does(&ann, kick("dan", Some(60)));
    room.does(&ann, kick("eve:x", None));
    room.does(&bob, Command::MicRequest { seat: Some(2), withdraw: false });
    room.does(&ann, Command::MicInvite { user: "bob".into(), seat: None });
    room.does(&ann, up("mic"));
    room.hears("ann", MediaFact::AudioStarted).expect("it is new");
    room.does(&ann, down());
    room.does(&ann, up("again"));
    room.does(&ann, Command::CallInvite { call: "call".into(), to: vec!["bob".into()] });
    (room, ann)
}

/// The same at an external media server.
fn routed() -> (Room, Actor) {
    let (mut room, ann) = full();
    room.rules.external_media = true;
    room.has_router();
    let again = Command::RouterMade { node: "two".into(), name: "router 2".into(), generation: 2 };
    room.does(&Actor::Owner, again);
    room.does(&ann, Command::MicMute { user: None, muted: true });
    room.does(&ann, kick("cat:", None));
    (room, ann)
}

fn read(cell: &Cell, stored: &Changes) -> Result<Cell, room_cell::Unreadable> {
    let peers: Vec<(String, String)> =
        stored.peers_set.iter().map(|(peer, json)| (peer.to_string(), json.clone())).collect();
    Cell::read(cell.version, stored.status.unwrap_or_default(), &stored.set, &peers)
}

#[test]
fn what_is_stored_reads_as_the_same_cell() {
    let (room, _) = full();
    let stored = room.cell.stored();
    assert_eq!(
        fields(&stored.set),
        [
            "room",
            "call",
            "seat:1",
            "seat:2",
            "seat:3",
            "seat:4",
            "ban:dan",
            "ban:eve:x",
            "role:bob",
            "request:bob",
            "invite:bob",
            "freed:ann",
            r#"media:{"user":"ann"}"#
        ]
    );
    assert_eq!(read(&room.cell, &stored), Ok(room.cell.clone()));
    let absent = Cell::default();
    assert_eq!(read(&absent, &absent.stored()), Ok(absent));
}

#[test]
fn a_command_writes_only_what_it_changed() {
    let (mut room, ann) = full();
    let before = room.cell.clone();
    room.does(&ann, Command::MicMute { user: None, muted: true });
    let muted = changes(&before, &room.cell);
    assert_eq!(fields(&muted.set), ["seat:1"]);
    let before = room.cell.clone();
    room.does(&ann, kick("cat:", None));
    let kicked = changes(&before, &room.cell);
    assert_eq!(fields(&kicked.set), ["ban:cat:"]);
    assert_eq!((kicked.peers_removed.len(), kicked.users_out.len()), (1, 1));
    let before = room.cell.clone();
    room.does(&ann, Command::Close { reason: None });
    let closed = changes(&before, &room.cell);
    assert_eq!(closed.status, Some("closed"));
    assert_eq!(fields(&closed.set), ["room", "call", "seat:1"]);
    assert_eq!(closed.removed, ["request:bob", "invite:bob", "freed:ann", r#"media:{"user":"ann"}"#]);
    assert_eq!(changes(&before, &before), Changes::default());
}

#[test]
fn the_router_and_what_is_owed_there_are_stored() {
    let (mut room, ann) = routed();
    let stored = room.cell.stored();
    let duties = [
        r#"duty:{"duty":"permit","user":"ann","peer":"ann1"}"#,
        r#"duty:{"duty":"remove","name":"cat:1 there"}"#,
        r#"duty:{"duty":"close","node":"one","name":"router","generation":1}"#,
    ];
    let written = fields(&stored.set);
    assert!(written.contains(&"router"));
    assert_eq!(written.iter().filter(|it| it.starts_with("duty:")).copied().collect::<Vec<_>>(), duties);
    assert_eq!(read(&room.cell, &stored), Ok(room.cell.clone()));
    let before = room.cell.clone();
    let owed = before.duties.iter().map(|(duty, owed)| (duty.clone(), owed.version)).take(1);
    room.does(&Actor::Owner, Command::DutiesDone { done: owed.collect() });
    let done = changes(&before, &room.cell);
    assert_eq!((done.set.len(), &done.removed[..]), (0, &[duties[0].to_owned()][..]));
    room.does(&ann, Command::Close { reason: None });
    let before = room.cell.clone();
    room.does(&Actor::Owner, Command::Ended);
    assert_eq!(changes(&before, &room.cell).removed, ["router"]);
    // The generation outlasts the router.
    assert_eq!(read(&room.cell, &room.cell.stored()).map(|cell| cell.router_generation), Ok(2));
}

#[test]
fn a_ban_is_readable_for_a_script() {
    let (room, _) = full();
    let stored = room.cell.stored();
    let ban = |user: &str| {
        let field = format!("ban:{user}");
        let (_, json) = stored.set.iter().find(|(it, _)| *it == field).unwrap();
        json.clone()
    };
    let at = room.now.0;
    assert_eq!(ban("dan"), format!(r#"{{"until":{},"at":{at}}}"#, at + 60_000));
    assert_eq!(ban("eve:x"), format!(r#"{{"at":{at}}}"#));
}

#[test]
fn what_is_no_cell_is_refused_with_the_field_that_is_wrong() {
    let (room, _) = routed();
    let whole = room.cell.stored();
    let missing = Cell::read(1, "active", &[], &[]).unwrap_err();
    assert_eq!(missing.to_string(), "stored field `room`: missing");
    let wrong = [
        "seat:x", "seat:", "ban:dan", "role:bob", "call", "media:no", "room", "nonsense", "freed:a",
        "router", "duty:no",
    ];
    for field in wrong {
        let mut stored = whole.clone();
        stored.set.retain(|(it, _)| it != field);
        stored.set.push((field.into(), "[not json".into()));
        assert_eq!(read(&room.cell, &stored).unwrap_err().field, field);
    }
    let mut stored = whole.clone();
    stored.status = Some("closed");
    let unreadable = read(&room.cell, &stored).unwrap_err();
    assert_eq!(unreadable.why, "`active`, where the record says `closed`");
    let mut stored = whole;
    stored.peers_set[0].0 = "other".into();
    assert_eq!(read(&room.cell, &stored).unwrap_err().why, "it is peer `ann1`");
}
