//! Seats: taken, confirmed, moved, locked, muted, asked for, lost; and that everybody is told the same.

use e2e::token::Token;
use serde_json::{Value, json};
use std::time::Duration;

use crate::stage::{Person, Stage, View};

fn session(ack: &Value) -> Value {
    assert!(ack["seat"]["micSession"].is_string(), "{ack}");
    ack["seat"]["micSession"].clone()
}

#[tokio::test]
async fn a_seat_is_taken_confirmed_and_left_and_everybody_is_told() {
    let stage = Stage::start(2).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let mut ann = stage.enter("ann", "guest").await;
    let (mut card, mut monitor) = (stage.watch("away", 1).await, stage.monitor("monitor", 1).await);

    let up = ann.ask("mic:up", json!({ "seat": 3 })).await;
    let seat = &up["seat"];
    assert_eq!(
        (&seat["seat"], &seat["state"], &seat["user"], &seat["muted"]),
        (&json!(3), &json!("pending_publish"), &json!("ann"), &json!(false)),
        "{up}"
    );
    assert!(seat["deadline"].is_u64(), "{up}");
    let mut people = [&mut hanna, &mut ann, &mut card, &mut monitor];
    stage.all_see(&mut people, "ann is up", |view| view.seats[&3] == *seat).await;
    let confirm = json!({ "micSession": session(&up) });
    let heard = stage.ask("ann", "mic:confirm", confirm.clone()).await;
    assert_eq!((&heard["seat"]["state"], session(&heard)), (&json!("publishing"), session(&up)), "{heard}");
    stage.all_see(&mut people, "ann is heard", |view| view.seats[&3] == heard["seat"]).await;
    let again = stage.ask("ann", "mic:confirm", confirm).await;
    assert_eq!(again["version"], heard["version"], "to confirm again changes nothing");
    stage.ask("ann", "mic:down", json!({ "micSession": session(&up) })).await;
    let idle = json!({ "seat": 3, "state": "idle" });
    stage.all_see(&mut people, "ann is down", |view| view.seats[&3] == idle).await;
    stage.refused("ann", "mic:down", json!({}), "NOT_ON_SEAT").await;

    // A host gives somebody the first free seat, from an instance that does not own the room.
    let given = stage.ask("away", "mic:up", json!({ "user": "ann" })).await;
    assert_eq!((&given["seat"]["seat"], &given["seat"]["user"]), (&json!(1), &json!("ann")), "{given}");
    assert_ne!(session(&given), session(&up), "each use of a seat has a session of its own");
    stage.refused("ann", "mic:up", json!({ "seat": 2 }), "SEAT_TAKEN").await;
    stage.refused("hanna", "mic:up", json!({ "seat": 1 }), "SEAT_TAKEN").await;
    stage.refused("hanna", "mic:up", json!({ "seat": 9 }), "BAD_REQUEST").await;
    stage.refused("away", "mic:up", json!({ "user": "nobody" }), "NOT_IN_ROOM").await;
    stage.refused("ann", "mic:up", json!({ "user": "hanna" }), "FORBIDDEN").await;
    stage.ask("away", "mic:down", json!({ "user": "ann" })).await;
    stage.agree(&mut people).await;

    let sessions: Vec<Value> =
        stage.happened("seat_taken").await.iter().map(|it| it["session"].clone()).collect();
    assert_eq!(sessions, [session(&up), session(&given)]);
    assert_eq!(stage.happened("confirmed").await.len(), 1);
    assert_eq!(stage.freed("ann").await, ["down", "taken_down"]);
}

#[tokio::test]
async fn a_move_keeps_the_session_and_who_spoke_is_asked_for_again() {
    let stage = Stage::start(2).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let mut ann = stage.enter("ann", "guest").await;
    let mut card = stage.watch("away", 1).await;
    let up = ann.ask("mic:up", json!({ "seat": 1 })).await;
    let confirm = json!({ "micSession": session(&up) });
    ann.ask("mic:confirm", confirm.clone()).await;
    let moved = ann.ask("mic:move", json!({ "seat": 4 })).await;
    assert_eq!(
        (&moved["seat"]["seat"], &moved["seat"]["state"], session(&moved)),
        (&json!(4), &json!("pending_publish"), session(&up)),
        "the media server hears nothing of ann: {moved}"
    );
    let mut people = [&mut hanna, &mut ann, &mut card];
    let is_there = |view: &View| view.seats[&4] == moved["seat"] && view.seat(1) == "idle";
    stage.all_see(&mut people, "ann has moved", is_there).await;
    let heard = stage.ask("ann", "mic:confirm", confirm).await;
    assert_eq!(
        (&heard["seat"]["seat"], &heard["seat"]["state"]),
        (&json!(4), &json!("publishing")),
        "{heard}"
    );

    // By a host elsewhere; to where she is nothing happens.
    let moved = stage.ask("away", "mic:move", json!({ "seat": 2, "user": "ann" })).await;
    assert_eq!(session(&moved), session(&up));
    let same = stage.ask("away", "mic:move", json!({ "seat": 2, "user": "ann" })).await;
    assert_eq!(same["version"], moved["version"]);
    stage.ask("hanna", "mic:lock", json!({ "seat": 5, "locked": true })).await;
    stage.ask("hanna", "mic:up", json!({ "seat": 6 })).await;
    for (seat, code) in [(5, "SEAT_LOCKED"), (6, "SEAT_TAKEN"), (9, "BAD_REQUEST")] {
        stage.refused("ann", "mic:move", json!({ "seat": seat }), code).await;
    }
    stage.refused("away", "mic:move", json!({ "seat": 7, "user": "nobody" }), "NOT_IN_ROOM").await;
    stage.agree(&mut people).await;
    assert_eq!(stage.freed("ann").await, Vec::<String>::new(), "she sat all the time");
    assert_eq!(stage.happened("seat_moved").await.len(), 2);
}

#[tokio::test]
async fn a_locked_seat_is_nobodys_and_force_takes_its_sitter_down_first() {
    let stage = Stage::start_with(2, |options| options.value("app", "seats", 3)).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let mut ann = stage.enter("ann", "guest").await;
    let mut card = stage.watch("away", 1).await;
    stage.ask("away", "mic:lock", json!({ "seat": 1, "locked": true })).await;
    let mut people = [&mut hanna, &mut ann, &mut card];
    stage.all_see(&mut people, "seat 1 is locked", |view| view.seat(1) == "locked").await;
    stage.refused("ann", "mic:up", json!({ "seat": 1 }), "SEAT_LOCKED").await;
    let up = stage.ask("ann", "mic:up", json!({})).await;
    assert_eq!(up["seat"]["seat"], 2, "the first that is free: {up}");
    stage.refused("away", "mic:lock", json!({ "seat": 2, "locked": true }), "SEAT_TAKEN").await;
    stage.refused("ann", "mic:lock", json!({ "seat": 3, "locked": true }), "FORBIDDEN").await;
    let forced = stage.ask("away", "mic:lock", json!({ "seat": 2, "locked": true, "force": true })).await;
    let version = forced["version"]["cell"].as_i64();
    // One change: nobody sees the seat free in between.
    stage
        .all_see(&mut people, "seat 2 is locked", |view| {
            assert!(
                view.seat(2) != "idle" || Some(view.version) < up["version"]["cell"].as_i64(),
                "{view:?}"
            );
            Some(view.version) == version && view.seat(2) == "locked"
        })
        .await;
    assert_eq!(stage.freed("ann").await, ["seat_locked"]);

    // Every seat is taken or locked.
    stage.ask("hanna", "mic:up", json!({})).await;
    let full = stage.refused("ann", "mic:up", json!({}), "NO_FREE_SEAT").await;
    assert_eq!((&full["error"]["retryable"], full["error"]["retryAfterMs"].is_u64()), (&json!(true), true));
    stage.ask("away", "mic:lock", json!({ "seat": 1, "locked": false })).await;
    let up = stage.ask("ann", "mic:up", json!({})).await;
    assert_eq!(up["seat"]["seat"], 1);
    stage.agree(&mut people).await;
}

#[tokio::test]
async fn who_is_muted_stays_on_the_seat_and_all_are_muted_but_some() {
    let stage = Stage::start(2).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let mut ann = stage.enter("ann", "guest").await;
    let bob = stage.enter("bob", "guest").await;
    let mut card = stage.watch("away", 1).await;
    for person in ["hanna", "ann", "bob"] {
        stage.ask(person, "mic:up", json!({})).await;
    }
    bob.refused("mic:mute", json!({ "user": "ann", "muted": true }), "FORBIDDEN").await;
    stage.refused("away", "mic:mute", json!({ "user": "eve", "muted": true }), "NOT_IN_ROOM").await;
    bob.ask("mic:mute", json!({ "muted": true })).await;
    let muted = |view: &View| -> Vec<bool> {
        ["hanna", "ann", "bob"].map(|user| view.seat_of(user)["muted"] == true).to_vec()
    };
    let mut people = [&mut hanna, &mut ann, &mut card];
    stage.all_see(&mut people, "bob is muted", |view| muted(view) == [false, false, true]).await;
    stage.ask("away", "mic:mute", json!({ "user": "ann", "muted": true })).await;
    stage.ask("away", "mic:mute", json!({ "user": "bob", "muted": false })).await;
    stage.all_see(&mut people, "ann is muted", |view| muted(view) == [false, true, false]).await;
    // It is an intent: whoever is muted may say otherwise.
    stage.ask("ann", "mic:mute", json!({ "muted": false })).await;
    stage.refused("ann", "mic:muteAll", json!({ "muted": true }), "FORBIDDEN").await;
    stage.ask("away", "mic:muteAll", json!({ "muted": true, "except": ["hanna"] })).await;
    stage.all_see(&mut people, "all but one are muted", |view| muted(view) == [false, true, true]).await;
    stage.ask("hanna", "mic:muteAll", json!({ "muted": false })).await;
    stage.all_see(&mut people, "nobody is muted", |view| muted(view) == [false; 3]).await;
    bob.ask("mic:down", json!({})).await;
    bob.refused("mic:mute", json!({ "muted": true }), "NOT_ON_SEAT").await;
    stage.agree(&mut people).await;
}

#[tokio::test]
async fn seats_grow_and_shrink_and_who_sits_beyond_is_taken_down() {
    let stage = Stage::start(2).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let mut ann = stage.enter("ann", "guest").await;
    let mut card = stage.watch("away", 1).await;
    ann.ask("mic:up", json!({ "seat": 5 })).await;
    hanna.ask("mic:up", json!({ "seat": 2 })).await;
    ann.refused("mic:seats", json!({ "count": 2 }), "FORBIDDEN").await;
    stage.ask("away", "mic:seats", json!({ "count": 2 })).await;
    let mut people = [&mut hanna, &mut ann, &mut card];
    let is_small = |view: &View| view.seats.len() == 2 && view.seat_of("ann").is_null();
    stage.all_see(&mut people, "there are two seats", is_small).await;
    assert_eq!(
        (stage.freed("ann").await, stage.freed("hanna").await),
        (vec!["seat_removed".to_owned()], vec![])
    );
    let same = stage.ask("away", "mic:seats", json!({ "count": 2 })).await;
    stage.refused("ann", "mic:up", json!({ "seat": 3 }), "BAD_REQUEST").await;
    let more = stage.ask("hanna", "mic:seats", json!({ "count": 12 })).await;
    assert_eq!(more["version"]["cell"].as_i64(), same["version"]["cell"].as_i64().map(|version| version + 1));
    stage.all_see(&mut people, "there are twelve", |view| view.seats.len() == 12).await;
    stage.ask("ann", "mic:up", json!({ "seat": 12 })).await;
    stage.agree(&mut people).await;
    stage.ask("away", "mic:seats", json!({ "count": 0 })).await;
    stage.all_see(&mut people, "there are none", |view| view.seats.is_empty()).await;
    stage.refused("ann", "mic:up", json!({}), "NO_FREE_SEAT").await;
    stage.agree(&mut people).await;
}

#[tokio::test]
async fn a_hand_is_raised_and_an_invitation_answered_both_ways() {
    let stage = Stage::start(2).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let mut ann = stage.enter("ann", "guest").await;
    let mut card = stage.watch("away", 1).await;
    let mut people = [&mut hanna, &mut ann, &mut card];

    // A guest asks; a host says no, and then yes.
    for accept in [false, true] {
        stage.ask("ann", "mic:request", json!({ "seat": 4 })).await;
        let asks = |view: &View| view.requests.get("ann").is_some_and(|asked| asked["seat"] == 4);
        stage.all_see(&mut people, "ann asks", asks).await;
        stage.refused("ann", "mic:respond", json!({ "user": "ann", "accept": true }), "FORBIDDEN").await;
        let said = stage.ask("away", "mic:respond", json!({ "user": "ann", "accept": accept })).await;
        assert_eq!(said["seat"]["seat"], if accept { json!(4) } else { Value::Null }, "{said}");
        let answered = |view: &View| {
            view.requests.is_empty() && view.seat(4) == if accept { "pending_publish" } else { "idle" }
        };
        stage.all_see(&mut people, "ann is answered", answered).await;
    }
    stage.refused("ann", "mic:request", json!({}), "SEAT_TAKEN").await;
    stage.ask("ann", "mic:down", json!({})).await;
    stage.refused("away", "mic:respond", json!({ "user": "ann", "accept": true }), "VERSION_CONFLICT").await;

    // She thinks better of it.
    stage.ask("ann", "mic:request", json!({})).await;
    stage.ask("ann", "mic:request", json!({ "withdraw": true })).await;
    stage.refused("ann", "mic:request", json!({ "withdraw": true }), "VERSION_CONFLICT").await;

    // A host invites; she says no, and then yes.
    for accept in [false, true] {
        stage.refused("ann", "mic:invite", json!({ "user": "hanna" }), "FORBIDDEN").await;
        stage.refused("away", "mic:invite", json!({ "user": "nobody" }), "NOT_IN_ROOM").await;
        stage.ask("away", "mic:invite", json!({ "user": "ann", "seat": 7 })).await;
        let invited = |view: &View| view.invites.get("ann").is_some_and(|asked| asked["seat"] == 7);
        stage.all_see(&mut people, "ann is invited", invited).await;
        let said = stage.ask("ann", "mic:respond", json!({ "accept": accept })).await;
        assert_eq!(said["seat"]["seat"], if accept { json!(7) } else { Value::Null }, "{said}");
        stage.all_see(&mut people, "she has answered", |view| view.invites.is_empty()).await;
    }
    stage.refused("ann", "mic:respond", json!({ "accept": true }), "VERSION_CONFLICT").await;
    stage.ask("ann", "mic:down", json!({})).await;

    // What is open ends with her presence, and with a seat that she takes otherwise.
    stage.ask("ann", "mic:request", json!({})).await;
    stage.ask("ann", "mic:up", json!({})).await;
    stage.ask("ann", "mic:down", json!({})).await;
    stage.ask("ann", "mic:request", json!({})).await;
    stage.ask("away", "mic:invite", json!({ "user": "ann" })).await;
    stage.ask("ann", "room:leave", json!({})).await;
    let mut people = [&mut hanna, &mut card];
    let is_over = |view: &View| !view.peers.contains_key("ann") && view.requests.is_empty();
    stage.all_see(&mut people, "ann is gone", is_over).await;
    let ends: Vec<Value> =
        stage.happened("request_ended").await.iter().map(|end| end["how"].clone()).collect();
    assert_eq!(ends, ["declined", "accepted", "withdrawn", "seated", "gone"]);
    let ends: Vec<Value> =
        stage.happened("invite_ended").await.iter().map(|end| end["how"].clone()).collect();
    assert_eq!(ends, ["declined", "accepted", "gone"]);
    stage.agree(&mut people).await;
}

#[tokio::test]
async fn i_7_a_seat_that_is_never_heard_is_freed_at_its_own_deadline_and_old_sessions_do_nothing() {
    let stage = Stage::start_with(1, |options| options.value("app", "publish_deadline_ms", 700)).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let ann = stage.enter("ann", "guest").await;
    let heard = hanna.ask("mic:up", json!({ "seat": 1 })).await;
    hanna.ask("mic:confirm", json!({ "micSession": session(&heard) })).await;
    let first = ann.ask("mic:up", json!({ "seat": 2 })).await;
    ann.ask("mic:down", json!({})).await;
    let second = ann.ask("mic:up", json!({ "seat": 2 })).await;
    // What names the first session does nothing to the second.
    ann.refused("mic:confirm", json!({ "micSession": session(&first) }), "STALE_SESSION").await;
    ann.refused("mic:down", json!({ "micSession": session(&first) }), "STALE_SESSION").await;
    hanna.refused("mic:down", json!({ "user": "ann", "micSession": session(&first) }), "STALE_SESSION").await;

    let of_second = second["seat"].clone();
    hanna.until("ann waits", |view| view.seats[&2] == of_second).await;
    hanna.until("ann's seat is free", |view| view.seat(2) == "idle").await;
    assert_eq!(hanna.view.seat(1), "publishing", "who is heard stays");
    let freed = stage.happened("seat_freed").await;
    let [down, timeout] = &freed[..] else { panic!("two sessions of ann's ended: {freed:?}") };
    assert_eq!((&down["reason"], &down["session"]), (&json!("down"), &session(&first)));
    assert_eq!((&timeout["reason"], &timeout["session"]), (&json!("publish_timeout"), &session(&second)));
    assert!(timeout["at"].as_u64() >= of_second["deadline"].as_u64(), "{timeout} after {of_second}");
    ann.refused("mic:confirm", json!({ "micSession": session(&second) }), "NOT_ON_SEAT").await;
    stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn i_21_a_seat_is_kept_through_a_reconnect_and_the_old_connection_does_nothing_to_it() {
    let stage = Stage::start(2).await;
    let mut hanna = stage.enter("hanna", "host").await;
    stage.connect("old", "ann", "guest", 0).await;
    stage.join("old", json!({})).await;
    let up = stage.ask("old", "mic:up", json!({ "seat": 2 })).await;

    // The connection is cut, and another takes its place within grace.
    stage.driver.abort("old").await.expect("cut");
    stage.connect("new", "ann", "guest", 0).await;
    let ann = stage.join("new", json!({})).await;
    assert_eq!(ann.view.seats[&2], up["seat"], "the same seat and session");
    ann.ask("mic:confirm", json!({ "micSession": session(&up) })).await;
    hanna.until("ann is heard", |view| view.seat(2) == "publishing").await;

    // Another takes its place while it is there: what it asks late is not done.
    stage.connect("newest", "ann", "guest", 0).await;
    let newest = stage.join("newest", json!({})).await;
    assert_eq!(newest.view.seat(2), "publishing");
    for (event, body) in [
        ("mic:down", json!({})),
        ("mic:down", json!({ "micSession": session(&up) })),
        ("mic:move", json!({ "seat": 3 })),
        ("mic:mute", json!({ "muted": true })),
        ("mic:confirm", json!({ "micSession": session(&up) })),
        ("mic:request", json!({})),
        ("call:invite", json!({ "to": ["hanna"] })),
        ("peer:update", json!({ "attributes": { "late": true } })),
    ] {
        ann.refused(event, body, "NOT_IN_ROOM").await;
    }
    newest.ask("mic:move", json!({ "seat": 4 })).await;
    hanna.until("ann has moved", |view| view.seat(4) == "pending_publish").await;
    assert_eq!(hanna.view.seats[&4]["micSession"], session(&up));
    assert_eq!(stage.freed("ann").await, Vec::<String>::new());
    stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn i_25_a_seat_ends_with_who_does_not_come_back() {
    let stage = Stage::start_with(1, |options| options.grace(Duration::from_millis(400))).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let ann = stage.enter("ann", "guest").await;
    let up = ann.ask("mic:up", json!({ "seat": 2 })).await;
    ann.ask("mic:confirm", json!({ "micSession": session(&up) })).await;
    hanna.until("ann is heard", |view| view.seat(2) == "publishing").await;
    stage.driver.abort("ann").await.expect("cut");
    hanna.until("ann is gone", |view| !view.peers.contains_key("ann")).await;
    // Both in one change: a seat of somebody who is not there is never seen.
    assert_eq!(hanna.view.seat(2), "idle");
    assert_eq!(stage.freed("ann").await, ["stale_left"]);
    let left = stage.happened("left").await;
    assert_eq!((left.len(), &left[0]["reason"]), (1, &json!("stale_left")), "{left:?}");
    stage.agree(&mut [&mut hanna]).await;
}

/// Joins as ann's device of that name.
async fn device<'a>(stage: &'a Stage, name: &str) -> Person<'a> {
    stage.connect_with(name, &Token::new("ann", "guest"), 0, json!({ "device": name })).await;
    stage.join(name, json!({})).await
}

#[tokio::test]
async fn a_seat_ends_with_the_device_that_took_it_and_its_user_stays() {
    let stage =
        Stage::start_with(1, |it| it.text("app", "devices", "allow").grace(Duration::from_millis(400))).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let (phone, desk) = (device(&stage, "phone").await, device(&stage, "desk").await);
    let tablet = device(&stage, "tablet").await;
    let on = |devices: u64| move |view: &View| view.peers["ann"]["devices"] == devices;
    hanna.until("ann has three devices", |view| view.peers.contains_key("ann") && on(3)(view)).await;
    phone.ask("mic:up", json!({ "seat": 1 })).await;
    desk.refused("mic:up", json!({ "seat": 2 }), "SEAT_TAKEN").await;

    // Another device goes: the seat stays.
    tablet.ask("room:leave", json!({})).await;
    hanna.until("two are left", on(2)).await;
    assert_eq!(hanna.view.seat(1), "pending_publish");
    // The one that sits goes: its seat is free, its user is there.
    phone.ask("room:leave", json!({})).await;
    hanna.until("one is left", on(1)).await;
    assert_eq!(hanna.view.seat(1), "idle");
    // And so where the one that sits loses its connection.
    let phone = device(&stage, "phone").await;
    phone.ask("mic:up", json!({ "seat": 3 })).await;
    hanna.until("the phone sits", |view| view.seat(3) == "pending_publish" && on(2)(view)).await;
    stage.driver.abort("phone").await.expect("cut");
    hanna.until("the desk is left", on(1)).await;
    assert_eq!(hanna.view.seat(3), "idle");
    assert_eq!(stage.freed("ann").await, ["left", "stale_left"]);
    assert!(stage.happened("left").await.is_empty(), "ann never left");
    stage.agree(&mut [&mut hanna]).await;
}
