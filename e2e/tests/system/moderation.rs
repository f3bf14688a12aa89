//! What hosts do to a room and the people in it, from wherever they are, and what nobody can do any more after it.

use e2e::http;
use e2e::token::{APP, Token};
use serde_json::{Value, json};

use crate::stage::{Person, ROOM, Stage, View};

/// An HTTP call of the app's back end, at an instance; the path is below the room's.
pub(crate) async fn backend(stage: &Stage, at: usize, method: &str, path: &str, body: Value) -> Value {
    let token = Token::new("back end", "host").claim("admin", true).sign();
    let url = format!("{}/v1/apps/{APP}/rooms/{ROOM}{path}", stage.cluster[at].url());
    let headers = [("authorization", &*format!("Bearer {token}")), ("content-type", "application/json")];
    let body = if method == "GET" { String::new() } else { body.to_string() };
    let answer = http::request(method, &url, &headers, &body).await.expect("an answer");
    let mut read = answer.json();
    read["httpStatus"] = json!(answer.status);
    read
}

/// Nobody gets in as `user`: with the token that they have, another one, another device, what they were given
/// to resume, at any instance, or over the connection that they had.
async fn stays_out(stage: &Stage, user: &str, resume: &Value, with: &str) {
    for (at, role, more) in [
        (0, "guest", json!({})),
        (0, "host", json!({ "device": "another" })),
        (1, "guest", json!({ "device": "a third" })),
    ] {
        let conn = format!("{user}-{role}-{at}");
        stage.connect_with(&conn, &Token::new(user, role), at, more).await;
        for body in [json!({}), json!({ "resume": resume }), json!({ "role": role, "hops": 1 })] {
            let ack = stage.answer(&conn, "room:join", body.clone()).await;
            let refused = crate::clients::code(&ack);
            let elsewhere = at == 1 && refused == "WRONG_INSTANCE";
            assert!(refused == with || elsewhere, "{conn} {body}: {ack}");
        }
        stage.driver.close(&conn).await.expect("closed");
    }
}

#[tokio::test]
async fn i_5_a_host_elsewhere_moderates_and_everybody_sees_it() {
    let stage = Stage::start(3).await;
    let mut ann = stage.enter("ann", "guest").await;
    let mut cem = stage.enter("cem", "host").await;
    let eve = stage.enter("eve", "guest").await;
    let mut hanna = stage.watch("hanna", 1).await;
    let (mut far, mut monitor) = (stage.watch("far", 2).await, stage.monitor("monitor", 2).await);
    let host = "hanna";
    let mut people = [&mut ann, &mut cem, &mut hanna, &mut far, &mut monitor];

    stage.ask(host, "mic:lock", json!({ "seat": 1, "locked": true })).await;
    stage.all_see(&mut people, "a seat is locked", |view| view.seat(1) == "locked").await;
    stage.ask(host, "mic:invite", json!({ "user": "ann", "seat": 2 })).await;
    stage.all_see(&mut people, "ann is invited", |view| view.invites.contains_key("ann")).await;
    stage.ask("ann", "mic:respond", json!({ "accept": true })).await;
    stage.ask(host, "mic:mute", json!({ "user": "ann", "muted": true })).await;
    stage.all_see(&mut people, "ann is muted", |view| view.seat_of("ann")["muted"] == true).await;
    stage.ask(host, "mic:move", json!({ "user": "ann", "seat": 5 })).await;
    stage.all_see(&mut people, "ann is moved", |view| view.seat_of("ann")["seat"] == 5).await;
    stage.ask(host, "mic:down", json!({ "user": "ann" })).await;
    stage.all_see(&mut people, "ann is down", |view| view.seat_of("ann").is_null()).await;
    stage.ask(host, "room:lock", json!({ "locked": true })).await;
    stage.all_see(&mut people, "the door is locked", |view| view.locked).await;
    stage.ask(host, "room:role", json!({ "user": "cem", "role": "guest" })).await;
    stage.all_see(&mut people, "cem is a guest", |view| view.hosts().is_empty()).await;
    stage.ask(host, "room:role", json!({ "user": "cem", "role": "host" })).await;
    stage.all_see(&mut people, "cem is a host", |view| view.hosts() == ["cem"]).await;
    stage.refused(host, "room:role", json!({ "user": "ann", "role": "host" }), "FORBIDDEN").await;
    stage.ask(host, "room:kick", json!({ "user": "eve", "reason": "noise" })).await;
    stage.all_see(&mut people, "eve is gone", |view| !view.peers.contains_key("eve")).await;
    let kicked = eve.told("room:kicked", |_| true).await;
    assert_eq!(kicked, json!({ "room": ROOM, "reason": "noise" }));
    eve.told("session:evicted", |body| body["reason"] == "kicked" && body["room"] == ROOM).await;
    for conn in ["ann", "cem"] {
        let left = stage.driver.events(conn, Some("room:presence")).await;
        let of_eve = left.iter().flat_map(|it| it.body["left"].as_array().into_iter().flatten());
        let of_eve: Vec<_> = of_eve.filter(|left| left["user"] == "eve").collect();
        assert_eq!(of_eve, [&json!({ "user": "eve", "reason": "kicked" })], "{conn}");
    }
    stage.agree(&mut people).await;

    // Each by the host, under the owner, newest first.
    let timeline = backend(&stage, 2, "GET", "/timeline?limit=100", Value::Null).await;
    let entries = timeline["entries"].as_array().unwrap_or_else(|| panic!("{timeline}")).iter().rev();
    let by_host = entries.filter(|passed| passed["entry"]["actor"]["user"] == host);
    let (commands, owners): (Vec<&Value>, Vec<&Value>) =
        by_host.map(|passed| (&passed["entry"]["command"], &passed["owner"])).unzip();
    let asked = [
        "seat_lock",
        "mic_invite",
        "mic_mute",
        "mic_move",
        "mic_down",
        "lock_door",
        "set_role",
        "set_role",
        "kick",
    ];
    assert_eq!(commands, asked, "{timeline}");
    assert!(
        owners.iter().all(|owner| owner.as_str().is_some_and(|owner| owner.starts_with("a/"))),
        "{timeline}"
    );
    let waited = stage.cluster[1].metrics().await.sum("dais_commands_total", &[]);
    assert_eq!(waited, 0.0, "the owner alone executes commands");
}

#[tokio::test]
async fn i_11_who_was_kicked_does_not_come_back_before_an_unban() {
    let stage = Stage::start(2).await;
    let mut hanna = stage.enter("hanna", "host").await;
    stage.connect("eve", "eve", "guest", 0).await;
    let joined = stage.ask("eve", "room:join", json!({})).await;
    let resume = &joined["self"]["resume"];
    assert!(resume.is_string(), "{joined}");
    stage.ask("eve", "mic:up", json!({ "seat": 1 })).await;
    // Sessions of hers that are not in the room hear of it too, on any instance.
    stage.connect("eve elsewhere", "eve", "guest", 1).await;
    stage.connect("away", "away", "host", 1).await;
    stage.ask("away", "room:kick", json!({ "user": "eve" })).await;
    for conn in ["eve", "eve elsewhere"] {
        let kicked = stage.driver.wait_named(conn, "room:kicked", e2e::wait::SOON).await;
        assert_eq!(kicked.body, json!({ "room": ROOM, "reason": null }));
    }
    hanna.until("eve is gone", |view| !view.peers.contains_key("eve") && view.seat(1) == "idle").await;
    assert_eq!(stage.freed("eve").await, ["kicked"]);
    // Nothing over the connection that she had; not even by its token's word.
    for (event, body) in [
        ("mic:up", json!({})),
        ("room:heartbeat", json!({})),
        ("room:leave", json!({})),
        ("peer:update", json!({ "attributes": {} })),
        ("guest:update", json!({ "state": { "handRaised": true } })),
    ] {
        stage.refused("eve", event, body, "NOT_IN_ROOM").await;
    }
    stage.refused("eve", "room:join", json!({ "resume": resume }), "BANNED").await;
    stays_out(&stage, "eve", resume, "BANNED").await;
    // A host's token makes no difference, nor does being kicked before one comes.
    stage.connect("eve as host", "eve", "host", 1).await;
    stage.refused("eve as host", "mic:lock", json!({ "seat": 1, "locked": true }), "BANNED").await;
    stage.refused("eve as host", "room:unban", json!({ "user": "eve" }), "BANNED").await;
    stage.ask("hanna", "room:kick", json!({ "user": "never there" })).await;
    stays_out(&stage, "never there", &Value::Null, "BANNED").await;
    let guard = backend(&stage, 1, "GET", "/users/eve", Value::Null).await;
    assert_eq!((&guard["present"], &guard["banned"]), (&json!(false), &json!(true)), "{guard}");

    stage.ask("away", "room:unban", json!({ "user": "eve" })).await;
    stage.refused("away", "room:unban", json!({ "user": "eve" }), "VERSION_CONFLICT").await;
    stage.ask("eve", "room:join", json!({})).await;
    hanna.until("eve is back", |view| view.peers.contains_key("eve")).await;
    stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn i_11_a_ban_for_a_time_ends_by_itself_and_only_then() {
    let stage = Stage::start(1).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let eve = stage.enter("eve", "guest").await;
    eve.until_kicked(json!({ "user": "eve", "banSeconds": 2 })).await;
    stage.connect("again", "eve", "guest", 0).await;
    stage.refused("again", "room:join", json!({}), "BANNED").await;
    e2e::wait::until("the ban is over", e2e::wait::SOON, || async {
        stage.answer("again", "room:join", json!({})).await["ok"] == true
    })
    .await;
    hanna.until("eve is back", |view| view.peers.contains_key("eve")).await;
    let banned = stage.happened("banned").await;
    let back = stage.happened("joined").await.into_iter().rfind(|event| event["peer"]["user"] == "eve");
    let (until, at) =
        (banned[0]["ban"]["until"].as_u64(), back.and_then(|event| event["peer"]["since"].as_u64()));
    assert!(until.is_some() && at >= until, "{at:?} before {until:?}");
    assert_eq!(stage.happened("unbanned").await.len(), 1);
}

impl Person<'_> {
    /// Is kicked by hanna, and has been told.
    async fn until_kicked(&self, kick: Value) {
        self.stage.ask("hanna", "room:kick", kick).await;
        self.told("session:evicted", |body| body["reason"] == "kicked").await;
    }
}

#[tokio::test]
async fn the_creator_and_oneself_are_spared_and_guests_moderate_nothing() {
    let stage = Stage::start(2).await;
    let mut creator = stage.enter("cleo", "host").await;
    let hanna = stage.enter("hanna", "host").await;
    let ann = stage.enter("ann", "guest").await;
    assert_eq!(stage.snapshot(1).await["creator"], "cleo");
    stage.connect("away", "away", "host", 1).await;
    for conn in ["hanna", "away"] {
        stage.refused(conn, "room:kick", json!({ "user": "cleo" }), "FORBIDDEN").await;
        stage.refused(conn, "room:role", json!({ "user": "cleo", "role": "guest" }), "FORBIDDEN").await;
        stage.refused(conn, "room:kick", json!({ "user": conn }), "FORBIDDEN").await;
    }
    creator.refused("room:kick", json!({ "user": "cleo" }), "FORBIDDEN").await;
    for (event, body) in [
        ("room:kick", json!({ "user": "hanna" })),
        ("room:unban", json!({ "user": "hanna" })),
        ("room:role", json!({ "user": "ann", "role": "host" })),
        ("room:lock", json!({ "locked": true })),
        ("room:close", json!({})),
        ("room:update", json!({ "settings": { "noiseReduction": "off" } })),
        ("guest:update", json!({ "user": "hanna", "state": { "handRaised": true } })),
    ] {
        ann.refused(event, body, "FORBIDDEN").await;
    }
    // Equals may: one host kicks another, and the app's back end whom it wants.
    creator.ask("room:kick", json!({ "user": "hanna" })).await;
    creator.until("hanna is gone", |view| !view.peers.contains_key("hanna")).await;
    hanna.told("room:kicked", |_| true).await;
    let kicked = backend(&stage, 1, "POST", "/commands/kick", json!({ "user": "cleo" })).await;
    assert_eq!(kicked["httpStatus"], 200, "{kicked}");
    creator.told("room:kicked", |_| true).await;
    assert_eq!(stage.snapshot(0).await["peerCount"], 1);
}

#[tokio::test]
async fn a_demoted_host_acts_nowhere_any_more() {
    let stage = Stage::start(2).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let cem = stage.enter("cem", "host").await;
    stage.connect("cem elsewhere", "cem", "host", 1).await;
    let acts = [
        ("mic:lock", json!({ "seat": 1, "locked": true })),
        ("mic:muteAll", json!({ "muted": true })),
        ("mic:invite", json!({ "user": "hanna" })),
        ("room:kick", json!({ "user": "hanna" })),
        ("room:role", json!({ "user": "cem", "role": "host" })),
        ("room:lock", json!({ "locked": true })),
        ("room:close", json!({})),
        ("room:update", json!({ "settings": { "noiseReduction": "far_field" } })),
        ("guest:update", json!({ "user": "hanna", "state": { "handRaised": true } })),
    ];
    for conn in ["cem", "cem elsewhere"] {
        stage.ask(conn, "mic:lock", json!({ "seat": 8, "locked": conn == "cem" })).await;
        stage.ask(conn, "room:update", json!({ "settings": { "noiseReduction": "off" } })).await;
    }
    stage.connect("away", "away", "host", 1).await;
    stage.ask("away", "room:role", json!({ "user": "cem", "role": "guest" })).await;
    for (event, body) in &acts {
        for conn in ["cem", "cem elsewhere"] {
            stage.refused(conn, event, body.clone(), "FORBIDDEN").await;
        }
    }
    // It outlasts presence: neither leaving nor the token makes a host again.
    cem.ask("room:leave", json!({})).await;
    for (event, body) in &acts {
        stage.refused("cem elsewhere", event, body.clone(), "FORBIDDEN").await;
    }
    stage.connect("cem again", "cem", "host", 0).await;
    let back = stage.join("cem again", json!({ "role": "host" })).await;
    assert_eq!(back.view.peers["cem"]["role"], "guest");
    for (event, body) in &acts {
        back.refused(event, body.clone(), "FORBIDDEN").await;
    }
    // Until a host says so.
    stage.ask("hanna", "room:role", json!({ "user": "cem", "role": "host" })).await;
    back.ask("room:update", json!({ "settings": { "noiseReduction": "far_field" } })).await;
    stage.ask("cem elsewhere", "room:update", json!({ "settings": { "noiseReduction": "off" } })).await;
    stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn a_locked_door_keeps_guests_out_and_lets_back_who_is_present() {
    let stage = Stage::start_with(1, |options| options.value("app", "capacity", 4)).await;
    let mut hanna = stage.enter("hanna", "host").await;
    stage.enter("ann", "guest").await;
    stage.ask("hanna", "room:lock", json!({ "locked": true })).await;
    stage.connect("bob", "bob", "guest", 0).await;
    stage.refused("bob", "room:join", json!({}), "ROOM_LOCKED").await;
    stage.driver.abort("ann").await.expect("cut");
    stage.connect("ann again", "ann", "guest", 0).await;
    stage.ask("ann again", "room:join", json!({})).await;
    stage.connect("cem", "cem", "host", 0).await;
    stage.refused("cem", "room:join", json!({}), "ROOM_LOCKED").await;
    stage.ask("cem", "room:join", json!({ "role": "host" })).await;
    stage.ask("ann again", "room:leave", json!({})).await;
    stage.refused("ann again", "room:join", json!({}), "ROOM_LOCKED").await;
    stage.ask("cem", "room:lock", json!({ "locked": false })).await;
    stage.ask("bob", "room:join", json!({})).await;

    // Four are in, if ann comes; a fifth is one too many, and another device of somebody is nobody more.
    stage.ask("ann again", "room:join", json!({})).await;
    stage.connect("eve", "eve", "guest", 0).await;
    let full = stage.refused("eve", "room:join", json!({}), "ROOM_FULL").await;
    assert_eq!((&full["error"]["retryable"], full["error"]["retryAfterMs"].is_u64()), (&json!(true), true));
    stage.connect("bob again", "bob", "guest", 0).await;
    stage.ask("bob again", "room:join", json!({})).await;
    stage.ask("bob again", "room:leave", json!({})).await;
    stage.ask("eve", "room:join", json!({})).await;
    stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn i_12_a_closed_room_frees_its_seats_and_accepts_nothing_until_it_is_opened_again() {
    let stage = Stage::start(2).await;
    let hanna = stage.enter("hanna", "host").await;
    let ann = stage.enter("ann", "guest").await;
    let mut card = stage.watch("away", 1).await;
    stage.ask("hanna", "room:kick", json!({ "user": "eve" })).await;
    stage.ask("hanna", "mic:lock", json!({ "seat": 4, "locked": true })).await;
    ann.ask("mic:up", json!({ "seat": 2 })).await;
    hanna.ask("mic:up", json!({ "seat": 3 })).await;
    ann.ask("call:invite", json!({ "to": ["hanna"] })).await;
    stage.connect("bob", "bob", "guest", 0).await;
    stage.ask("bob", "room:join", json!({})).await;
    stage.ask("bob", "mic:request", json!({})).await;

    stage.ask("away", "room:close", json!({ "reason": "the end" })).await;
    for conn in ["hanna", "ann", "bob"] {
        let closed = stage.driver.wait_named(conn, "room:closed", e2e::wait::SOON).await;
        assert_eq!(closed.body, json!({ "room": ROOM, "reason": "the end" }), "{conn}");
    }
    card.until("it is closed", |view| view.status == "closed").await;
    let is_over = |view: &View| {
        view.seats.len() == 8
            && (1..=8).all(|seat| view.seat(seat) == if seat == 4 { "locked" } else { "idle" })
            && view.peers.is_empty()
            && view.requests.is_empty()
            && view.call["state"] == "missed"
    };
    assert!(is_over(&card.view), "{:#?}", card.view);
    assert_eq!(
        (stage.freed("ann").await, stage.freed("hanna").await),
        (vec!["room_closed".into()], vec!["room_closed".into()])
    );
    let left: Vec<Value> = stage.happened("left").await.iter().map(|left| left["reason"].clone()).collect();
    assert_eq!(left, ["closed_left"; 3]);
    let last = stage.past().await.entries.len();

    nothing_is_accepted(&stage).await;
    // Closing it again is no change.
    stage.ask("away", "room:close", json!({})).await;
    let guard = backend(&stage, 1, "GET", "/users/ann", Value::Null).await;
    assert_eq!((&guard["httpStatus"], &guard["code"]), (&json!(410), &json!("ROOM_CLOSED")), "{guard}");
    assert_eq!(stage.past().await.entries.len(), last, "nothing was written");

    let opened = backend(&stage, 1, "PUT", "", json!({})).await;
    assert_eq!((&opened["httpStatus"], &opened["opened"]), (&json!(200), &json!("reopened")), "{opened}");
    card.until("it is open", |view| view.status == "active").await;
    assert_eq!((card.view.seats.len(), card.view.seat(4)), (8, "locked"));
    let mut ann = stage.enter("ann", "guest").await;
    assert!(ann.view.version > hanna.view.version, "versions go on");
    stage.connect("eve", "eve", "guest", 1).await;
    stage.refused("eve", "room:join", json!({}), "BANNED").await;
    stage.agree(&mut [&mut card, &mut ann]).await;
}

/// Every command, at the instance that had the room and at another.
async fn nothing_is_accepted(stage: &Stage) {
    let all = [
        ("room:update", json!({ "settings": { "noiseReduction": "off" } })),
        ("guest:update", json!({ "user": "ann", "state": { "handRaised": true } })),
        ("room:kick", json!({ "user": "ann" })),
        ("room:unban", json!({ "user": "eve" })),
        ("room:role", json!({ "user": "ann", "role": "guest" })),
        ("room:lock", json!({ "locked": true })),
        ("mic:up", json!({ "user": "ann" })),
        ("mic:down", json!({ "user": "ann" })),
        ("mic:move", json!({ "user": "ann", "seat": 1 })),
        ("mic:lock", json!({ "seat": 1, "locked": true })),
        ("mic:mute", json!({ "user": "ann", "muted": true })),
        ("mic:muteAll", json!({ "muted": true })),
        ("mic:seats", json!({ "count": 4 })),
        ("mic:invite", json!({ "user": "ann" })),
        ("mic:respond", json!({ "user": "bob", "accept": true })),
    ];
    stage.connect("host here", "host", "host", 0).await;
    for (event, body) in &all {
        for conn in ["host here", "away"] {
            stage.refused(conn, event, body.clone(), "ROOM_CLOSED").await;
        }
    }
    // Wherever the room was taken up for those.
    for (user, role) in [("ann", "guest"), ("host", "host")] {
        let (token, url) = (Token::new(user, role).sign(), stage.cluster[0].url());
        let (conn, fields) = (format!("{user} late"), json!({ "role": role }));
        let late = stage.driver.join_with(&conn, &url, &token, ROOM, fields);
        assert_eq!(late.await.expect_err("a closed room").code(), "ROOM_CLOSED");
    }
    // Members are none any more, whatever they ask.
    for (event, body) in [
        ("mic:confirm", json!({ "micSession": "m" })),
        ("mic:request", json!({})),
        ("call:invite", json!({ "to": ["hanna"] })),
        ("call:accept", json!({})),
        ("call:decline", json!({})),
        ("call:hangup", json!({})),
        ("peer:update", json!({ "attributes": {} })),
        ("room:leave", json!({})),
        ("room:heartbeat", json!({})),
    ] {
        let ack = stage.answer("ann", event, body).await;
        assert!(["ROOM_CLOSED", "NOT_IN_ROOM"].contains(&crate::clients::code(&ack)), "{event}: {ack}");
    }
    for (call, body) in [
        ("kick", json!({ "user": "ann" })),
        ("mic-up", json!({ "user": "ann" })),
        ("mic-seats", json!({ "count": 2 })),
        ("lock", json!({ "locked": true })),
    ] {
        let refused = backend(stage, 1, "POST", &format!("/commands/{call}"), body).await;
        assert_eq!(
            (&refused["httpStatus"], &refused["code"]),
            (&json!(410), &json!("ROOM_CLOSED")),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn another_token_counts_at_once_and_a_token_that_ends_ends_the_connection() {
    let stage = Stage::start(2).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let cem = stage.enter("cem", "host").await;
    let refresh = |token: Token| json!({ "token": token.sign() });
    for (token, code) in [
        (Token::new("ann", "host"), "FORBIDDEN"),
        (Token::new("cem", "host").claim("app", "other"), "UNAUTHENTICATED"),
        (Token::new("cem", "host").expired(5), "UNAUTHENTICATED"),
        (Token::new("cem", "host").secret("another secret of 32 bytes and more.."), "UNAUTHENTICATED"),
    ] {
        cem.refused("auth:refresh", refresh(token), code).await;
    }
    cem.ask("mic:lock", json!({ "seat": 1, "locked": true })).await;
    let renewed = cem.ask("auth:refresh", refresh(Token::new("cem", "guest"))).await;
    assert!(renewed["expiresAt"].is_u64(), "{renewed}");
    for (event, body) in [
        ("mic:lock", json!({ "seat": 1, "locked": false })),
        ("room:update", json!({ "settings": { "noiseReduction": "off" } })),
        ("room:watch", json!({ "rooms": [ROOM] })),
    ] {
        cem.refused(event, body, "FORBIDDEN").await;
    }
    hanna.until("cem is a guest", |view| view.hosts() == ["hanna"]).await;
    // A token that allows more gives nothing back by itself.
    cem.ask("auth:refresh", refresh(Token::new("cem", "host"))).await;
    cem.refused("mic:lock", json!({ "seat": 1, "locked": false }), "FORBIDDEN").await;
    hanna.ask("room:role", json!({ "user": "cem", "role": "host" })).await;
    cem.ask("mic:lock", json!({ "seat": 1, "locked": false })).await;

    // A token that has less than the warning time left; another one puts its end off.
    for conn in ["short", "renewed"] {
        stage.connect_with(conn, &Token::new(conn, "guest").expires_in(4), 0, json!({})).await;
        let warned = stage.driver.wait_named(conn, "auth:expiring", e2e::wait::SOON).await;
        assert!(warned.body["expiresInMs"].as_u64().is_some_and(|left| left <= 4_000), "{warned:?}");
    }
    stage.ask("renewed", "auth:refresh", refresh(Token::new("renewed", "guest"))).await;
    let evicted = stage.driver.wait_named("short", "session:evicted", e2e::wait::SOON).await;
    assert_eq!(evicted.body["reason"], "token_expired");
    stage.driver.wait_named("short", "disconnect", e2e::wait::SOON).await;
    // Its end came later than that of the other one, which would have been put out before.
    stage.connect_with("last", &Token::new("last", "guest").expires_in(2), 0, json!({})).await;
    stage.driver.wait_named("last", "disconnect", e2e::wait::SOON).await;
    stage.ask("renewed", "room:join", json!({})).await;
    assert!(stage.driver.events("renewed", Some("session:evicted")).await.is_empty());
    stage.agree(&mut [&mut hanna]).await;
}
