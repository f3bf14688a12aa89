//! What clients send by mistake or by malice: a clear error or a closed socket, and a process that does not care.

#![expect(clippy::unwrap_used, reason = "helpers of tests: what fails here fails the test")]

use e2e::cluster::Cluster;
use e2e::coordinator::Coordinator;
use e2e::driver::{Driver, Failure};
use e2e::http;
use e2e::token::Token;
use e2e::wait::SOON;
use serde_json::{Value, json};

const ROOM: &str = "math";

/// Every request that this version serves.
const SERVED: [&str; 33] = [
    "room:join",
    "room:leave",
    "room:heartbeat",
    "room:peers",
    "room:update",
    "guest:update",
    "peer:update",
    "room:kick",
    "room:unban",
    "room:role",
    "room:lock",
    "room:close",
    "room:watch",
    "room:unwatch",
    "rooms:list",
    "auth:refresh",
    "mic:up",
    "mic:down",
    "mic:move",
    "mic:confirm",
    "mic:lock",
    "mic:mute",
    "mic:muteAll",
    "mic:seats",
    "mic:request",
    "mic:invite",
    "mic:respond",
    "call:invite",
    "call:accept",
    "call:decline",
    "call:hangup",
    "media:publish",
    "media:subscribe",
];

/// Requests of the protocol that it does not serve yet.
const NOT_BUILT: [&str; 3] = ["message:send", "message:ack", "message:history"];

async fn one() -> (Cluster, Driver) {
    let generous =
        |options: e2e::coordinator::CoordinatorOptions| options.value("limits", "events_per_second", 10_000);
    (Cluster::start_with(1, generous).await, Driver::start().await)
}

async fn connect(driver: &Driver, cluster: &Cluster, conn: &str, role: &str) {
    driver.connect(conn, &cluster[0].url(), &cluster.token(conn, role)).await.expect("connected");
}

/// Joined as a host, under its name.
async fn join(driver: &Driver, cluster: &Cluster, conn: &str) {
    let (token, role) = (cluster.token(conn, "host"), json!({ "role": "host" }));
    driver.join_with(conn, &cluster[0].url(), &token, ROOM, role).await.expect("joined");
}

/// The process answers, has not panicked, and still lets people in.
async fn unmoved(driver: &Driver, cluster: &Cluster) {
    let coordinator: &Coordinator = &cluster[0];
    assert_eq!(coordinator.process().exit_status(), None);
    assert_eq!(http::get(&format!("{}/healthz", coordinator.url())).await.unwrap().status, 200);
    let log = coordinator.log_lines();
    let bad: Vec<_> =
        log.iter().filter(|line| line.contains("panicked") || line.contains("\"level\":\"ERROR\"")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let token = cluster.token("newcomer", "guest");
    driver
        .join("newcomer", &coordinator.url(), &token, "another room")
        .await
        .expect("the next one is let in");
}

fn expect(ack: &Value, code: &str, said: &[&str]) {
    assert_eq!((&ack["ok"], &ack["error"]["code"]), (&json!(false), &json!(code)), "{ack}");
    let message = ack["error"]["message"].as_str().unwrap_or_default();
    for text in said {
        assert!(message.contains(text), "no {text:?} in {ack}");
    }
    assert!(ack["error"]["requestId"].as_str().is_some_and(|id| !id.is_empty()), "{ack}");
    assert!(ack["error"]["retryable"].is_boolean(), "{ack}");
}

async fn ask(driver: &Driver, conn: &str, event: &str, body: Value) -> Value {
    let shown = body.to_string().chars().take(80).collect::<String>();
    driver.emit(conn, event, body).await.unwrap_or_else(|failure| panic!("{event} {shown}: {failure:?}"))
}

#[tokio::test]
async fn bodies_of_a_wrong_form_are_refused_by_every_request() {
    let (cluster, driver) = one().await;
    join(&driver, &cluster, "ann").await;
    for event in SERVED {
        for body in [
            json!(null),
            json!(true),
            json!(7),
            json!("math"),
            json!([]),
            json!([ROOM, {}, {}]),
            json!([[ROOM]]),
        ] {
            let ack = ask(&driver, "ann", event, body.clone()).await;
            assert_eq!(ack["error"]["code"], "BAD_REQUEST", "{event} {body}: {ack}");
            expect(&ack, "BAD_REQUEST", &[event, "expected an object"]);
        }
        if event != "rooms:list" {
            expect(&ask(&driver, "ann", event, json!({})).await, "BAD_REQUEST", &[event, "missing field"]);
        }
        // No body at all, and a binary one.
        let bare =
            driver.ask("emitRaw", json!({ "conn": "ann", "args": [event], "ack": true })).await.unwrap();
        expect(&bare["ack"], "BAD_REQUEST", &[event]);
        for binary in [json!({ "$binary": 16 }), json!({ "room": ROOM, "more": { "$binary": 16 } })] {
            expect(
                &ask(&driver, "ann", event, binary).await,
                "BAD_REQUEST",
                &["binary attachments are not taken"],
            );
        }
    }
    unmoved(&driver, &cluster).await;
}

#[tokio::test]
async fn fields_of_a_wrong_type_are_refused_with_their_name() {
    let (cluster, driver) = one().await;
    join(&driver, &cluster, "ann").await;
    let cases = [
        ("room:join", json!({ "room": 7 }), "string"),
        ("room:join", json!({ "room": null }), "string"),
        ("room:join", json!({ "room": ROOM, "role": "owner" }), "owner"),
        ("room:join", json!({ "room": ROOM, "role": 3 }), "line 1"),
        ("room:join", json!({ "room": ROOM, "attributes": [] }), "map"),
        ("room:join", json!({ "room": ROOM, "resume": "r".repeat(129) }), "128 bytes"),
        ("room:join", json!({ "room": ROOM, "resume": {} }), "string"),
        ("room:join", json!({ "room": ROOM, "hops": -1 }), "-1"),
        ("room:join", json!({ "room": ROOM, "hops": "many" }), "u32"),
        ("room:join", json!({ "room": ROOM, "id": "" }), "`id`: must have 1 to 64"),
        ("room:leave", json!({ "room": ROOM, "id": "i".repeat(65) }), "`id`: must have 1 to 64"),
        ("room:leave", json!({ "room": [ROOM] }), "string"),
        ("room:heartbeat", json!({ "room": { "room": ROOM } }), "string"),
        ("room:peers", json!({ "room": ROOM, "limit": "all" }), "usize"),
        ("room:peers", json!({ "room": ROOM, "cursor": 1 }), "string"),
        ("room:update", json!({ "room": ROOM }), "settings"),
        ("room:update", json!({ "room": ROOM, "settings": null }), "map"),
        ("room:update", json!({ "room": ROOM, "settings": "off" }), "map"),
        ("room:update", json!({ "room": ROOM, "settings": {} }), "`settings` changes nothing"),
        (
            "room:update",
            json!({ "room": ROOM, "settings": { "volume": 3 } }),
            "`settings.volume` is not a setting",
        ),
        (
            "room:update",
            json!({ "room": ROOM, "settings": { "vad": [] } }),
            "`settings.vad` must be an object",
        ),
        (
            "room:update",
            json!({ "room": ROOM, "settings": { "vad": { "threshold": 2 } } }),
            "`settings.vad.threshold`",
        ),
        (
            "room:update",
            json!({ "room": ROOM, "settings": { "custom": "x" } }),
            "`settings.custom` must be an object",
        ),
        ("room:update", json!({ "room": ROOM, "settings": { "custom": {} }, "ifVersion": "1" }), "u64"),
        ("room:update", json!({ "room": ROOM, "settings": { "custom": {} }, "ifVersion": -1 }), "-1"),
        ("guest:update", json!({ "room": ROOM, "state": [] }), "map"),
        ("guest:update", json!({ "room": ROOM, "state": {} }), "`state` changes nothing"),
        ("guest:update", json!({ "room": ROOM, "state": { "hand": true } }), "`state.hand` is not a field"),
        (
            "guest:update",
            json!({ "room": ROOM, "state": { "handRaised": "yes" } }),
            "`state.handRaised` must be a boolean",
        ),
        ("guest:update", json!({ "room": ROOM, "user": 7, "state": { "handRaised": true } }), "string"),
        (
            "guest:update",
            json!({ "room": ROOM, "user": "", "state": { "handRaised": true } }),
            "user is empty",
        ),
        ("room:watch", json!({ "rooms": ROOM }), "sequence"),
        ("room:watch", json!({ "rooms": [7] }), "string"),
        ("room:watch", json!({ "rooms": [ROOM, ""] }), "room is empty"),
        ("room:unwatch", json!({ "rooms": { "0": ROOM } }), "sequence"),
        ("rooms:list", json!({ "limit": 0 }), "`limit` must be 1 to 100"),
        ("rooms:list", json!({ "limit": 101 }), "`limit` must be 1 to 100"),
        ("rooms:list", json!({ "limit": 1.5 }), "1.5"),
        ("rooms:list", json!({ "prefix": "p".repeat(129) }), "128 bytes"),
        ("rooms:list", json!({ "status": "open" }), "`status` must be"),
        ("media:publish", json!({ "room": ROOM }), "sdp"),
        ("media:publish", json!({ "room": ROOM, "sdp": 7 }), "string"),
        ("media:publish", json!({ "room": ROOM, "sdp": "nonsense" }), ""),
        ("media:subscribe", json!({ "room": ROOM, "sdp": {} }), "string"),
    ];
    for (event, body, said) in cases {
        let ack = ask(&driver, "ann", event, body.clone()).await;
        let message = ack["error"]["message"].as_str().unwrap_or_default();
        assert!(ack["error"]["code"] == "BAD_REQUEST" && message.contains(said), "{event} {body}: {ack}");
    }
    unmoved(&driver, &cluster).await;
}

#[tokio::test]
async fn ids_have_1_to_128_bytes_without_control_characters() {
    let (cluster, driver) = one().await;
    connect(&driver, &cluster, "ann", "host").await;
    let long = |bytes: usize| "é".repeat(bytes / 2) + &"x".repeat(bytes % 2);
    for good in [long(1), long(128), "a b/c:d?e#f%00".to_owned(), "数学🎲".to_owned()] {
        let ack = ask(&driver, "ann", "room:join", json!({ "room": good })).await;
        assert_eq!((&ack["ok"], &ack["room"]["id"]), (&json!(true), &json!(good)), "{ack}");
        assert_eq!(ask(&driver, "ann", "room:leave", json!({ "room": good })).await["ok"], true);
    }
    for (bad, said) in [
        (String::new(), "room is empty"),
        (long(129), "room has 129 bytes, at most 128 are allowed"),
        (long(200), "room has 200 bytes, at most 128 are allowed"),
        ("a\u{0}b".to_owned(), "which is not allowed"),
        ("a\nb".to_owned(), "at byte 1, which is not allowed"),
        ("\u{7f}".to_owned(), "which is not allowed"),
        ("a\u{9b}".to_owned(), "which is not allowed"),
    ] {
        for event in ["room:join", "room:leave", "room:heartbeat", "room:peers"] {
            expect(&ask(&driver, "ann", event, json!({ "room": bad })).await, "BAD_REQUEST", &[event, said]);
        }
        let watched = ask(&driver, "ann", "room:watch", json!({ "rooms": [bad] })).await;
        expect(&watched, "BAD_REQUEST", &[said]);
        // The same goes for users in tokens, and for devices.
        let refused =
            driver.connect("bad", &cluster[0].url(), &Token::new(&bad, "host").sign()).await.unwrap_err();
        assert_eq!(refusal(&refused)["code"], "UNAUTHENTICATED", "{refused:?}");
        let device = json!({ "auth": { "token": cluster.token("bob", "host"), "device": bad } });
        let refused = driver.connect_with("bad", &cluster[0].url(), "", device).await.unwrap_err();
        assert_eq!(refusal(&refused)["code"], "BAD_REQUEST", "{refused:?}");
    }
    unmoved(&driver, &cluster).await;
}

/// The error object that a refused handshake carries as its message.
fn refusal(failure: &Failure) -> Value {
    serde_json::from_str(&failure.message).unwrap_or_else(|_| panic!("not an error object: {failure:?}"))
}

#[tokio::test]
async fn only_good_tokens_connect() {
    let (cluster, driver) = one().await;
    let url = cluster[0].url();
    let good = Token::new("ann", "host");
    let tokens = [
        ("expired", good.clone().expired(120).sign()),
        ("unsigned", good.unsigned()),
        ("of another app", good.clone().claim("app", "other").sign()),
        ("signed with another secret", good.clone().secret("another secret of thirty-two bytes").sign()),
        ("without an end", good.clone().claim("exp", Value::Null).sign()),
        ("with an end that is no number", good.clone().claim("exp", "tomorrow").sign()),
        ("without a user", good.clone().claim("sub", Value::Null).sign()),
        ("not yet good", good.clone().claim("nbf", 32_503_680_000_u64).sign()),
        ("of an unknown key", good.clone().key_id("unknown").sign()),
        ("with a role that is none", good.clone().claim("role", "king").sign()),
        ("cut off", good.sign().rsplit_once('.').unwrap().0.to_owned()),
        ("nonsense", "nonsense".to_owned()),
        ("empty", String::new()),
        ("large", "a.".repeat(8_000)),
    ];
    for (what, token) in tokens {
        let refused = driver.connect("bad", &url, &token).await.map(|_| what).unwrap_err();
        let error = refusal(&refused);
        assert_eq!(
            (&error["code"], &error["retryable"]),
            (&json!("UNAUTHENTICATED"), &json!(false)),
            "{what}: {error}"
        );
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty() && !text.contains(e2e::token::SECRET))
        );
    }
    for auth in
        [json!(null), json!({}), json!({ "token": 7 }), json!({ "token": null }), json!([good.sign()])]
    {
        let refused = driver.connect_with("bad", &url, "", json!({ "auth": auth })).await.unwrap_err();
        assert_eq!(refusal(&refused)["code"], "UNAUTHENTICATED", "{auth}");
    }
    let newer = json!({ "auth": { "token": good.sign(), "protocol": 99 } });
    let refused = refusal(&driver.connect_with("bad", &url, "", newer).await.unwrap_err());
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (&json!("BAD_REQUEST"), &json!("protocol must be 1"))
    );
    unmoved(&driver, &cluster).await;
}

#[tokio::test]
async fn a_token_allows_what_it_says_and_until_it_says() {
    let (cluster, driver) = one().await;
    let url = cluster[0].url();
    driver.connect("limited", &url, &Token::new("ann", "host").room(ROOM).sign()).await.unwrap();
    for (event, body) in [
        ("room:join", json!({ "room": "other" })),
        ("room:update", json!({ "room": "other", "settings": { "custom": {} } })),
        ("guest:update", json!({ "room": "other", "state": { "handRaised": true } })),
        ("room:watch", json!({ "rooms": ["other"] })),
    ] {
        expect(&ask(&driver, "limited", event, body).await, "FORBIDDEN", &["the token is for another room"]);
    }
    assert_eq!(ask(&driver, "limited", "room:join", json!({ "room": ROOM })).await["ok"], true);

    connect(&driver, &cluster, "guest", "guest").await;
    for role in ["host", "monitor"] {
        let ack = ask(&driver, "guest", "room:join", json!({ "room": ROOM, "role": role })).await;
        expect(&ack, "FORBIDDEN", &["the token does not allow the role", role]);
    }
    assert_eq!(ask(&driver, "guest", "room:join", json!({ "room": ROOM })).await["ok"], true);
    for (event, body) in [
        ("room:update", json!({ "room": ROOM, "settings": { "custom": {} } })),
        ("guest:update", json!({ "room": ROOM, "user": "ann", "state": { "handRaised": true } })),
        ("guest:update", json!({ "room": ROOM, "state": { "micAllowed": true } })),
        ("guest:update", json!({ "room": ROOM, "state": { "videoAllowed": true } })),
        ("guest:update", json!({ "room": ROOM, "state": { "stage": true } })),
        ("room:watch", json!({ "rooms": [ROOM] })),
        ("rooms:list", json!({})),
    ] {
        expect(&ask(&driver, "guest", event, body).await, "FORBIDDEN", &[]);
    }

    driver.connect("brief", &url, &Token::new("eve", "host").expires_in(3).sign()).await.unwrap();
    assert_eq!(ask(&driver, "brief", "room:join", json!({ "room": ROOM })).await["ok"], true);
    let ended = |event: &e2e::driver::Event| {
        event.name == "session:evicted" && event.body["reason"] == "token_expired"
    };
    driver.wait_event("brief", 0, SOON, ended).await;
    unmoved(&driver, &cluster).await;
}

#[tokio::test]
async fn requests_that_cannot_be_served_say_why() {
    let (cluster, driver) = one().await;
    connect(&driver, &cluster, "eve", "host").await;
    for (event, body) in [
        ("room:leave", json!({ "room": ROOM })),
        ("room:heartbeat", json!({ "room": ROOM })),
        ("room:peers", json!({ "room": ROOM })),
        ("media:publish", json!({ "room": ROOM, "sdp": "v=0" })),
        ("media:subscribe", json!({ "room": ROOM, "sdp": "v=0" })),
    ] {
        expect(&ask(&driver, "eve", event, body.clone()).await, "NOT_IN_ROOM", &[]);
    }
    join(&driver, &cluster, "ann").await;
    for event in ["room:leave", "room:heartbeat", "room:peers", "media:publish", "media:subscribe"] {
        let body = json!({ "room": ROOM, "sdp": "v=0" });
        expect(&ask(&driver, "eve", event, body).await, "NOT_IN_ROOM", &[]);
    }
    for (event, body) in [
        ("room:update", json!({ "room": "nowhere", "settings": { "custom": {} } })),
        ("guest:update", json!({ "room": "nowhere", "state": { "handRaised": true } })),
    ] {
        expect(&ask(&driver, "eve", event, body).await, "ROOM_NOT_FOUND", &["there is no such room"]);
    }
    for event in NOT_BUILT {
        expect(&ask(&driver, "eve", event, json!({ "room": ROOM })).await, "NOT_SUPPORTED", &[event]);
    }
    for event in ["room:explode", "", "ROOM:JOIN", "__proto__", &"e".repeat(2_000)] {
        expect(
            &ask(&driver, "eve", event, json!({ "room": ROOM })).await,
            "BAD_REQUEST",
            &["there is no event"],
        );
    }
    unmoved(&driver, &cluster).await;
}

#[tokio::test]
async fn nothing_hangs_on_an_ack_that_nobody_wants() {
    let (cluster, driver) = one().await;
    connect(&driver, &cluster, "ann", "host").await;
    for event in SERVED.iter().chain(&NOT_BUILT).chain(&["room:explode"]) {
        for body in [json!({ "room": ROOM, "rooms": [ROOM], "sdp": "v=0" }), json!(null), json!([])] {
            driver.emit_no_ack("ann", event, body).await.unwrap();
        }
        driver.ask("emitRaw", json!({ "conn": "ann", "args": [event] })).await.unwrap();
        driver
            .ask("emitRaw", json!({ "conn": "ann", "args": [event, { "room": ROOM }, 2, [3]] }))
            .await
            .unwrap();
        // In order: whoever answers this has done with all of the above.
        assert!(ask(&driver, "ann", "rooms:list", json!({})).await["ok"].is_boolean());
    }
    unmoved(&driver, &cluster).await;
}

#[tokio::test]
async fn deep_and_huge_json_is_refused_or_cut_off() {
    let (cluster, driver) = one().await;
    join(&driver, &cluster, "ann").await;
    for levels in [17, 100, 1_000] {
        let deep = json!({ "$nested": levels });
        for (event, body) in [
            ("room:update", json!({ "room": ROOM, "settings": { "custom": deep } })),
            ("guest:update", json!({ "room": ROOM, "state": { "custom": deep } })),
            ("room:join", json!({ "room": "other", "attributes": { "of": deep } })),
            ("room:leave", deep.clone()),
        ] {
            let ack = ask(&driver, "ann", event, body).await;
            assert_eq!(ack["error"]["code"], "BAD_REQUEST", "{levels} levels of {event}: {ack}");
        }
    }
    // Past the encoder of the client, which would not send them.
    let unclosed = json!([["2[\"room:leave\",", 1], ["[", 30_000]]);
    let closed =
        json!([["2[\"room:leave\",{\"room\":", 1], ["{\"a\":", 10_000], ["1", 1], ["}", 10_001], ["]", 1]]);
    for (conn, parts) in [("unclosed", unclosed), ("closed", closed)] {
        connect(&driver, &cluster, conn, "host").await;
        driver.ask("sendRaw", json!({ "conn": conn, "parts": parts })).await.unwrap();
        answered_or_cut_off(&driver, conn, conn).await;
    }
    assert_eq!(ask(&driver, "ann", "room:heartbeat", json!({ "room": ROOM })).await["ok"], true);

    for size in [70_000, 1_000_000] {
        connect(&driver, &cluster, "large", "host").await;
        let since = driver.position("large").await;
        let body = json!({ "room": ROOM, "more": { "$string": size } });
        let failure = driver.emit("large", "room:leave", body).await.unwrap_err();
        assert_eq!(failure.details["noAck"], true, "{failure:?}");
        driver.wait_event("large", since, SOON, |event| event.name == "disconnect").await;
    }
    // The same over polling.
    let polling = json!({ "transports": ["polling"] });
    let token = cluster.token("poller", "host");
    driver.connect_with("poller", &cluster[0].url(), &token, polling).await.unwrap();
    let body = json!({ "room": ROOM, "more": { "$string": 200_000 } });
    driver.emit_no_ack("poller", "room:leave", body).await.unwrap();
    driver.wait_named("poller", "disconnect", SOON).await;
    unmoved(&driver, &cluster).await;
}

/// Whoever is not answered any more has been put out: that is all that may happen to it.
async fn answered_or_cut_off(driver: &Driver, conn: &str, what: &str) {
    let asked = json!({ "conn": conn, "name": "rooms:list", "body": {}, "timeoutMs": 2_000 });
    if let Err(failure) = driver.ask("emit", asked).await {
        let seen = driver.events(conn, Some("disconnect")).await;
        // A packet that announces attachments waits for them, and what comes meanwhile is none.
        let waits = what.starts_with('5');
        assert!(!seen.is_empty() || waits, "{what:?} is neither answered nor cut off: {failure:?}");
    }
}

#[tokio::test]
async fn a_flood_is_refused_then_cut_off() {
    let cluster = Cluster::start_with(1, |options| {
        options.value("limits", "events_per_second", 10).value("limits", "events_burst", 20)
    })
    .await;
    let driver = Driver::start().await;
    join(&driver, &cluster, "ann").await;
    join(&driver, &cluster, "bob").await;
    let fields = json!({ "template": { "room": ROOM }, "count": 100, "concurrency": 100, "summary": true });
    let done = driver.burst("room:heartbeat", &["ann"], fields).await.unwrap();
    assert!(done["codes"]["RATE_LIMITED"].as_u64() >= Some(50), "{done}");
    let fields = json!({
        "template": { "room": ROOM }, "count": 2_000, "concurrency": 2_000, "timeoutMs": 15_000, "summary": true,
    });
    let done = driver.burst("room:heartbeat", &["ann"], fields).await.unwrap();
    assert!(done["codes"]["NO_ACK"].as_u64() >= Some(1), "{done}");
    driver.wait_named("ann", "disconnect", SOON).await;
    assert_eq!(
        ask(&driver, "bob", "room:heartbeat", json!({ "room": ROOM })).await["ok"],
        true,
        "others go on"
    );
    unmoved(&driver, &cluster).await;
}

#[tokio::test]
async fn frames_that_are_no_packets_end_their_own_connection_at_most() {
    let (cluster, driver) = one().await;
    join(&driver, &cluster, "ann").await;
    let garbage = [
        "",
        "garbage",
        "2",
        "2[",
        "2[]",
        "2[1]",
        "2[null,{}]",
        "2[[],{}]",
        "2{}",
        "2\"room:leave\"",
        "2[\"room:leave\"",
        "299999999999999999999[\"room:leave\",{}]",
        "2-1[\"room:leave\",{}]",
        "2/nowhere,[\"room:leave\",{}]",
        "2/,[\"room:leave\",{}]",
        "0{",
        "0/admin,{}",
        "0{\"token\":\"x\"}",
        "3[]",
        "3999[]",
        "4{}",
        "51-[\"room:leave\",{\"_placeholder\":true,\"num\":0}]",
        "599999999999-[\"room:leave\"]",
        "5999999999[\"room:leave\"]",
        "61-1[]",
        "7",
        "9",
        "\u{0}\u{1}\u{2}",
        "💥",
    ];
    for (n, frame) in garbage.into_iter().enumerate() {
        let conn = format!("g{n}");
        connect(&driver, &cluster, &conn, "host").await;
        driver.ask("sendRaw", json!({ "conn": conn, "parts": [[frame, 1]] })).await.unwrap();
        answered_or_cut_off(&driver, &conn, frame).await;
        driver.ask("forget", json!({ "conn": conn })).await.unwrap();
    }
    assert_eq!(
        ask(&driver, "ann", "room:heartbeat", json!({ "room": ROOM })).await["ok"],
        true,
        "others go on"
    );
    unmoved(&driver, &cluster).await;
}

#[tokio::test]
async fn wrong_methods_and_paths_are_refused() {
    let (cluster, driver) = one().await;
    let (public, admin) = (cluster[0].url(), cluster[0].admin_url());
    let long = format!("{public}/{}", "x".repeat(5_000));
    let cases = [
        ("POST", format!("{public}/healthz"), &[405][..]),
        ("DELETE", format!("{public}/readyz"), &[405]),
        ("GET", format!("{public}/nowhere"), &[404]),
        ("GET", format!("{public}/metrics"), &[404]),
        ("GET", format!("{public}/../../etc/passwd"), &[400, 404]),
        ("GET", format!("{public}/console/%2e%2e%2f%2e%2e%2fetc/passwd"), &[400, 404]),
        ("GET", long, &[404, 414, 431]),
        ("BREW", format!("{public}/healthz"), &[400, 405]),
        ("GET", format!("{public}/socket.io/"), &[400]),
        ("GET", format!("{public}/socket.io/?EIO=3&transport=polling"), &[400]),
        ("GET", format!("{public}/socket.io/?EIO=4&transport=pigeon"), &[400]),
        ("GET", format!("{public}/socket.io/?EIO=4&transport=polling&sid=nobody"), &[400]),
        ("POST", format!("{public}/socket.io/?EIO=4&transport=polling&sid=AAAAAAAAAAAAAAAA"), &[400]),
        ("GET", format!("{public}/socket.io/?EIO=4&transport=websocket"), &[400, 426]),
        ("PUT", format!("{public}/socket.io/?EIO=4&transport=polling"), &[400, 405]),
        ("GET", format!("{public}/i/nobody/healthz"), &[421]),
        ("GET", format!("{public}/i/"), &[404, 421]),
        ("POST", format!("{admin}/metrics"), &[405]),
        ("GET", format!("{admin}/nowhere"), &[404]),
        ("GET", format!("{admin}/socket.io/?EIO=4&transport=polling"), &[404]),
    ];
    for (method, url, statuses) in cases {
        let answer = http::request(method, &url, &[], "")
            .await
            .unwrap_or_else(|error| panic!("{method} {url}: {error}"));
        assert!(statuses.contains(&answer.status), "{method} {url}: {answer:?}");
    }
    let header = "h".repeat(1_000_000);
    let large = http::request("GET", &format!("{public}/healthz"), &[("x-large", &header)], "").await;
    assert!(
        large.is_err() || large.is_ok_and(|answer| answer.status == 431),
        "headers of a megabyte are refused"
    );
    let body = http::request("POST", &format!("{public}/healthz"), &[], &"b".repeat(1_000_000)).await;
    assert!(body.is_err() || body.is_ok_and(|answer| matches!(answer.status, 405 | 413)));
    unmoved(&driver, &cluster).await;
}
