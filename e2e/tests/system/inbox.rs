//! Commands that come to instances which do not own the room: in order, once, and past what makes no sense; and
//! events that come down no path but their own.

use e2e::driver::Event;
use e2e::wait::{self, SOON};
use key_prefix::{ChannelKind, Instance, KeyKind, Keys, Prefix};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

use crate::stage::{ROOM, Stage};
use crate::stored::{incarnations, of_room};

/// The channel of this kind of an instance.
async fn channel(stage: &Stage, kind: ChannelKind, name: &str) -> String {
    let known = incarnations(&stage.cluster.redis, name).await;
    let [(instance, _)] = &known[..] else { panic!("one incarnation of {name}: {known:?}") };
    let keys = Keys::new(Prefix::parse("test").expect("a prefix"));
    keys.channel(kind, &instance.parse::<Instance>().expect("an instance")).to_string()
}

#[tokio::test]
async fn i_14_commands_of_three_hosts_elsewhere_are_executed_in_the_order_of_their_answers() {
    const EACH: usize = 25;
    let stage = Stage::start(3).await;
    let mut ann = stage.enter("ann", "guest").await;
    let hosts = [("h1", 1), ("h2", 2), ("h3", 1)];
    for (host, at) in hosts {
        stage.connect(host, host, "host", at).await;
    }
    let orders = |host: &str| -> Vec<Value> {
        let order = |n| json!({ "room": ROOM, "id": format!("{host}-{n}"), "user": format!("{host}'s {n}") });
        (0..EACH).map(order).collect()
    };
    let of_each = hosts.map(|(host, _)| orders(host));
    let sent = futures_util::future::join_all(hosts.iter().zip(of_each).map(|((host, _), bodies)| {
        let fields = json!({ "bodies": bodies, "concurrency": 1 });
        let driver = &stage.driver;
        async move { driver.burst("room:kick", &[host], fields).await.expect("answers") }
    }))
    .await;
    let past = stage.past().await;
    let mut acked = 0;
    for (done, (host, _)) in sent.iter().zip(hosts) {
        let results = done["results"].as_array().expect("results");
        let mut before = 0;
        for (n, result) in results.iter().enumerate() {
            let version = result["ack"]["version"]["cell"].as_u64().unwrap_or_else(|| panic!("{result}"));
            assert!(version > before, "{host}: {version} after {before}");
            before = version;
            let logged: Vec<u64> =
                past.of_id(&format!("{host}-{n}")).iter().map(|entry| entry.version).collect();
            assert_eq!(logged, [version], "{host}-{n}");
            acked += 1;
        }
    }
    assert_eq!((acked, stage.happened("banned").await.len()), (3 * EACH, 3 * EACH));
    let waiting = stage.cluster.redis.command(&["XLEN", &of_room(KeyKind::Inbox, ROOM)]).await;
    assert_eq!(waiting.number(), Some(0), "what was executed is out of the inbox");
    stage.agree(&mut [&mut ann]).await;
}

#[tokio::test]
async fn i_14_the_same_id_is_executed_once_and_answered_the_same_wherever_it_comes_again() {
    let stage = Stage::start(3).await;
    let mut ann = stage.enter("ann", "guest").await;
    let hosts = ["at-a", "at-b", "at-c"];
    for (at, conn) in hosts.iter().enumerate() {
        stage.connect(conn, "hanna", "host", at).await;
    }
    // One after the other, and all at once.
    let body = json!({ "user": "ann", "seat": 2, "id": "once" });
    let first = stage.ask("at-b", "mic:up", body.clone()).await;
    for conn in hosts {
        assert_eq!(stage.ask(conn, "mic:up", body.clone()).await, first, "{conn}");
    }
    let down = json!({ "user": "ann", "id": "down" });
    let downs = hosts.iter().map(|conn| stage.ask(conn, "mic:down", down.clone()));
    let downs = futures_util::future::join_all(downs).await;
    assert!(downs.iter().all(|ack| *ack == downs[0]), "{downs:?}");
    // Another body, another request; another caller, another command.
    for (event, body) in [
        ("mic:up", json!({ "user": "ann", "seat": 3, "id": "once" })),
        ("mic:down", json!({ "user": "ann", "id": "once" })),
        ("mic:lock", json!({ "seat": 1, "locked": true, "id": "down" })),
    ] {
        for conn in hosts {
            let refused = stage.refused(conn, event, body.clone(), "BAD_REQUEST").await;
            let message = refused["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains("`id` was used for another request"), "{conn}: {event}: {refused}");
        }
    }
    stage.connect("other", "other", "host", 1).await;
    let of_other = stage.ask("other", "mic:up", body.clone()).await;
    assert_ne!(of_other["seat"]["micSession"], first["seat"]["micSession"]);
    // A refusal for good is kept as well: it stays refused when nothing stands in its way any more.
    let again = json!({ "user": "ann", "id": "taken" });
    stage.refused("at-c", "mic:up", again.clone(), "SEAT_TAKEN").await;
    stage.ask("other", "mic:down", json!({ "user": "ann" })).await;
    for conn in hosts {
        stage.refused(conn, "mic:up", again.clone(), "SEAT_TAKEN").await;
    }
    let past = stage.past().await;
    let times = ["once", "down", "taken"].map(|id| past.of_id(id).len());
    assert_eq!(times, [2, 1, 0], "once for each caller");
    assert_eq!(stage.freed("ann").await, ["taken_down"; 2]);
    stage.agree(&mut [&mut ann]).await;
}

#[tokio::test]
async fn entries_that_make_no_sense_are_set_aside_and_what_is_behind_them_is_executed() {
    let stage = Stage::start(2).await;
    let mut ann = stage.enter("ann", "guest").await;
    stage.connect("hanna", "hanna", "host", 1).await;
    let (inbox, aside) = (of_room(KeyKind::Inbox, ROOM), of_room(KeyKind::Aside, ROOM));
    let backend = r#"{"actor":{"kind":"backend"},"command":"#;
    let poison = [
        "no JSON".to_owned(),
        "{}".to_owned(),
        format!(r#"{backend}{{"command":"explode"}}}}"#),
        format!(r#"{backend}{{"command":"seat_lock","seat":0,"locked":true,"force":false}}}}"#),
        format!(r#"{backend}{{"command":"set_seats","count":60000}}}}"#),
    ];
    for payload in &poison {
        stage.cluster.redis.command(&["XADD", &inbox, "*", "payload", payload, "at", "1"]).await;
    }
    // Not even fields of ours.
    stage.cluster.redis.command(&["XADD", &inbox, "*", "whatever", "x"]).await;
    stage.ask("hanna", "mic:lock", json!({ "seat": 1, "locked": true })).await;
    ann.until("what was behind them is done", |view| view.seat(1) == "locked").await;
    let count = i64::try_from(poison.len() + 1).expect("a few");
    assert_eq!(stage.cluster.redis.command(&["XLEN", &inbox]).await.number(), Some(0));
    assert_eq!(stage.cluster.redis.command(&["XLEN", &aside]).await.number(), Some(count));
    let entries = stage.cluster.redis.command(&["XRANGE", &aside, "-", "+"]).await;
    for (entry, payload) in entries.items().iter().zip(&poison) {
        let fields = entry.items()[1].texts();
        assert!(fields.contains(payload) && fields.contains(&"reason".to_owned()), "{fields:?}");
    }
    let counted = stage.cluster[0].metrics().await.sum("dais_inbox_aside_total", &[]);
    assert_eq!(counted, f64::from(i32::try_from(count).expect("a few")));
    // And never again.
    stage.ask("hanna", "mic:lock", json!({ "seat": 1, "locked": false })).await;
    assert_eq!(stage.cluster[0].metrics().await.sum("dais_inbox_aside_total", &[]), counted);
    assert_eq!(stage.cluster[0].process().exit_status(), None);
    stage.agree(&mut [&mut ann]).await;
}

/// Classes that only a room's owner tells.
const OF_OWNER: [&str; 7] = [
    "room:update",
    "room:presence",
    "mic:update",
    "call:update",
    "room:moved",
    "room:closed",
    "media:update",
];

#[tokio::test]
async fn events_of_the_owner_that_come_over_redis_are_dropped_and_counted_once() {
    let stage = Stage::start(2).await;
    let mut ann = stage.enter("ann", "guest").await;
    let mut card = stage.watch("card", 1).await;
    let mut monitor = stage.monitor("monitor", 1).await;
    let positions = [
        ("ann", stage.driver.position("ann").await),
        ("card", stage.driver.position("card").await),
        ("monitor", stage.driver.position("monitor").await),
    ];
    let skipped = |at: usize| {
        let stage = &stage;
        async move { stage.cluster[at].metrics().await.sum("dais_skipped_total", &[("reason", "owner_path")]) }
    };
    let before = [skipped(0).await, skipped(1).await];
    let route = json!(format!("demo\0{ROOM}"));
    let seats = json!([{ "seat": 1, "state": "locked" }]);
    let mut sent = 0.0;
    for name in ["a", "b"] {
        let fanout = channel(&stage, ChannelKind::Fanout, name).await;
        let control = channel(&stage, ChannelKind::Control, name).await;
        for event in OF_OWNER {
            let stray =
                json!({ "room": route, "event": event, "of": "cell", "from": 1, "to": 999, "seats": seats });
            let to_user = json!({ "app": "demo", "user": "ann", "event": event, "body": { "room": ROOM } });
            let mut of_card = to_user.clone();
            of_card["user"] = json!("card");
            for (channel, message) in [(&fanout, &stray), (&control, &to_user), (&control, &of_card)] {
                let heard = stage.cluster.redis.command(&["PUBLISH", channel, &message.to_string()]).await;
                assert_eq!(heard.number(), Some(1), "{channel}");
            }
            sent += 3.0;
        }
    }
    for (at, before) in before.into_iter().enumerate() {
        let expected = before + sent / 2.0;
        wait::until("each is counted", SOON, || async { skipped(at).await >= expected }).await;
        assert_eq!(skipped(at).await, expected, "once");
    }
    // Nobody was told: what comes next follows what they know.
    stage.connect("hanna", "hanna", "host", 1).await;
    stage.ask("hanna", "mic:lock", json!({ "seat": 2, "locked": true })).await;
    let mut people = [&mut ann, &mut card, &mut monitor];
    stage.all_see(&mut people, "a seat is locked", |view| view.seat(2) == "locked").await;
    for (conn, since) in positions {
        let told = stage.driver.events(conn, None).await;
        let told: Vec<&Event> = told.iter().filter(|event| event.index >= since).collect();
        assert!(
            told.iter().all(|event| event.body["seats"] != seats && event.body["to"] != 999),
            "{told:#?}"
        );
        assert_eq!(told.len(), 1, "{conn}: {told:#?}");
    }
    stage.agree(&mut people).await;
}

#[tokio::test]
async fn nobody_hears_of_anything_twice_whatever_path_it_takes() {
    let stage = Stage::start(3).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let mut ann = stage.enter("ann", "guest").await;
    let mut outside = Vec::new();
    for at in 0..3 {
        outside.push(stage.watch(&format!("card-{at}"), at).await);
        outside.push(stage.monitor(&format!("monitor-{at}"), at).await);
    }
    // A member who watches as well hears of it as both.
    stage.ask("hanna", "room:watch", json!({ "rooms": [ROOM] })).await;
    for n in 0..30_u64 {
        let seat = n % 8 + 1;
        let at = format!("card-{}", n % 3);
        stage.ask(&at, "mic:lock", json!({ "seat": seat, "locked": n / 8 % 2 == 0 })).await;
        stage.ask(&at, "room:update", json!({ "settings": { "custom": { "n": n } } })).await;
        stage.ask("ann", "guest:update", json!({ "state": { "handRaised": n % 2 == 0 } })).await;
        if n % 5 == 0 {
            let user = format!("u{n}");
            stage.enter(&user, "guest").await;
            stage.ask(&user, "room:leave", json!({})).await;
        }
    }
    let mut people: Vec<_> = outside.iter_mut().chain([&mut hanna, &mut ann]).collect();
    stage.agree(&mut people).await;
    let settings = stage.snapshot(0).await["version"]["settings"].clone();
    for person in &people {
        let last = |event: &Event| event.body["of"] == "settings" && event.body["to"] == settings;
        stage.driver.wait_event(&person.conn, 0, SOON, last).await;
        let told = stage.driver.events(&person.conn, None).await;
        let mut times: BTreeMap<(String, String, i64), usize> = BTreeMap::new();
        for event in told.iter().filter(|event| event.body["of"].is_string()) {
            let of = event.body["of"].as_str().unwrap_or_default().to_owned();
            *times
                .entry((event.name.clone(), of, event.body["to"].as_i64().expect("a version")))
                .or_default() += 1;
        }
        let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{}: {twice:?}", person.conn);
        assert!(times.len() > 60, "{}: {times:?}", person.conn);
        // And whoever watches hears of nothing but cards.
        let names: BTreeSet<&str> =
            told.iter().map(|event| event.name.as_str()).filter(|name| *name != "connect").collect();
        if person.conn.starts_with("card") {
            assert_eq!(names, BTreeSet::from(["card:update"]), "{}", person.conn);
        }
    }
}

#[tokio::test]
async fn a_room_that_nobody_owns_is_taken_for_a_command_and_one_that_is_not_there_is_not_made() {
    let stage = Stage::start_with(2, |options| options.idle(std::time::Duration::from_millis(100))).await;
    stage.enter("ann", "guest").await;
    stage.ask("ann", "room:leave", json!({})).await;
    let owner = of_room(KeyKind::Owner, ROOM);
    wait::until("nobody owns the room", SOON, || async {
        stage.cluster.redis.command(&["EXISTS", &owner]).await.number() == Some(0)
    })
    .await;
    stage.connect("hanna", "hanna", "host", 1).await;
    stage.ask("hanna", "mic:lock", json!({ "seat": 1, "locked": true })).await;
    assert_eq!(stage.snapshot(1).await["seats"][0]["state"], "locked");
    for (event, body) in [
        ("mic:lock", json!({ "seat": 1, "locked": true })),
        ("room:kick", json!({ "user": "ann" })),
        ("room:close", json!({})),
    ] {
        let mut body = body;
        body["room"] = json!("nowhere");
        stage.refused("hanna", event, body, "ROOM_NOT_FOUND").await;
    }
    let made = stage.cluster.redis.command(&["EXISTS", &of_room(KeyKind::Room, "nowhere")]).await;
    assert_eq!(made.number(), Some(0));
}
