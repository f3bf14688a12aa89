//! Rooms seen from outside: cards, monitors, lists; and what presence costs those inside.

#![expect(clippy::unwrap_used, reason = "helpers of tests: what fails here fails the test")]

use e2e::cluster::Cluster;
use e2e::driver::{Driver, Event};
use e2e::http;
use e2e::metrics::Metrics;
use e2e::wait::{self, SOON};
use key_prefix::KeyKind;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::stored::of_room;

const ROOM: &str = "math";

async fn join(driver: &Driver, cluster: &Cluster, conn: &str, at: usize, room: &str) -> Value {
    let token = cluster.token(conn, "host");
    driver.join_with(conn, &cluster[at].url(), &token, room, json!({ "role": "host" })).await.expect("joined")
}

async fn ask(driver: &Driver, conn: &str, event: &str, body: Value) -> Value {
    let ack = driver.emit(conn, event, body).await.unwrap_or_else(|failure| panic!("{event}: {failure:?}"));
    assert_eq!(ack["ok"], true, "{event}: {ack}");
    ack
}

/// A room with one member at the first instance, and a host connected to each of the two.
async fn two_instances() -> (Cluster, Driver) {
    let cluster = Cluster::start(2).await;
    let driver = Driver::start().await;
    let joined = join(&driver, &cluster, "ann", 0, ROOM).await;
    assert_eq!(joined["ack"]["room"]["owner"]["instance"], "a");
    for (conn, at) in [("here", 0), ("elsewhere", 1)] {
        driver.connect(conn, &cluster[at].url(), &cluster.token(conn, "host")).await.unwrap();
    }
    (cluster, driver)
}

async fn wait_for(driver: &Driver, conn: &str, name: &str, fits: impl Fn(&Value) -> bool) -> Event {
    driver.wait_event(conn, 0, SOON, |event| event.name == name && fits(&event.body)).await
}

/// Each event of a counter follows the one before, from this version on.
fn chained(events: &[Event], of: &str, mut from: u64) -> u64 {
    for event in events.iter().filter(|event| event.body["of"] == of) {
        assert_eq!(event.body["from"].as_u64(), Some(from), "a gap of {of}: {events:#?}");
        let to = event.body["to"].as_u64().unwrap();
        assert!(to > from, "{event:?}");
        from = to;
    }
    from
}

#[tokio::test]
async fn i_5_cards_follow_settings_guests_and_presence_wherever_the_room_is() {
    let (cluster, driver) = two_instances().await;
    let mut stood = Vec::new();
    for conn in ["here", "elsewhere"] {
        let ack = ask(&driver, conn, "room:watch", json!({ "rooms": [ROOM, "nowhere"] })).await;
        let card = &ack["rooms"][0];
        assert_eq!(
            (&card["id"], &card["status"], &card["peerCount"]),
            (&json!(ROOM), &json!("active"), &json!(1)),
            "{ack}"
        );
        assert_eq!(
            (&card["owner"]["instance"], &card["peers"][0]["user"]),
            (&json!("a"), &json!("ann")),
            "{ack}"
        );
        assert_eq!(ack["rooms"][1], json!({ "id": "nowhere", "error": "ROOM_NOT_FOUND" }));
        stood
            .push((card["version"]["settings"].as_u64().unwrap(), card["version"]["cell"].as_u64().unwrap()));
    }
    ask(
        &driver,
        "ann",
        "room:update",
        json!({ "room": ROOM, "settings": { "noiseReduction": "far_field" } }),
    )
    .await;
    ask(
        &driver,
        "elsewhere",
        "guest:update",
        json!({ "room": ROOM, "user": "ann", "state": { "stage": true } }),
    )
    .await;
    join(&driver, &cluster, "bob", 1, ROOM).await;
    ask(&driver, "bob", "room:leave", json!({ "room": ROOM })).await;

    for (conn, (sv, cv)) in ["here", "elsewhere"].into_iter().zip(stood) {
        let settings = wait_for(&driver, conn, "card:update", |body| body["settings"].is_object()).await;
        assert_eq!(settings.body["settings"], json!({ "noiseReduction": "far_field" }), "{conn}");
        assert_eq!((&settings.body["room"], &settings.body["by"]), (&json!(ROOM), &json!("ann")), "{conn}");
        let guests = wait_for(&driver, conn, "card:update", |body| body["guests"].is_object()).await;
        assert_eq!(guests.body["guests"], json!({ "ann": { "stage": true } }), "{conn}");
        let joined = wait_for(&driver, conn, "card:update", |body| body["joined"][0]["user"] == "bob").await;
        assert_eq!(joined.body["peerCount"], 2, "{conn}");
        let left = wait_for(&driver, conn, "card:update", |body| body["left"][0]["user"] == "bob").await;
        assert_eq!(
            (&left.body["left"][0]["reason"], &left.body["peerCount"]),
            (&json!("left"), &json!(1)),
            "{conn}"
        );
        let cards = driver.events(conn, Some("card:update")).await;
        assert_eq!(
            (chained(&cards, "settings", sv), chained(&cards, "cell", cv)),
            (sv + 2, cv + 2),
            "{conn}"
        );
        for name in ["room:update", "room:presence"] {
            assert!(
                driver.events(conn, Some(name)).await.is_empty(),
                "{conn} watches cards, and is no member"
            );
        }
    }

    // Who has ended watching hears no more of it, while another card shows that messages still come.
    join(&driver, &cluster, "eve", 0, "other").await;
    ask(&driver, "elsewhere", "room:watch", json!({ "rooms": ["other"] })).await;
    ask(&driver, "elsewhere", "room:unwatch", json!({ "rooms": [ROOM] })).await;
    let since = driver.position("elsewhere").await;
    ask(&driver, "ann", "room:update", json!({ "room": ROOM, "settings": { "noiseReduction": "off" } }))
        .await;
    ask(
        &driver,
        "eve",
        "room:update",
        json!({ "room": "other", "settings": { "noiseReduction": "near_field" } }),
    )
    .await;
    let next = driver.wait_event("elsewhere", since, SOON, |event| event.name == "card:update").await;
    assert_eq!(next.body["room"], "other");
    let watchers = cluster.redis.command(&["SMEMBERS", &of_room(KeyKind::Watchers, "math")]).await.texts();
    assert!(watchers.iter().all(|watcher| watcher.starts_with("a/")), "{watchers:?}");
}

#[tokio::test]
async fn i_5_a_watched_room_that_changes_its_owner_goes_on() {
    let mut cluster = Cluster::start(2).await;
    let driver = Driver::start().await;
    join(&driver, &cluster, "ann", 0, ROOM).await;
    driver.connect("watcher", &cluster[1].url(), &cluster.token("watcher", "host")).await.unwrap();
    ask(&driver, "watcher", "room:watch", json!({ "rooms": [ROOM] })).await;
    cluster[0].kill().await;
    let urls = json!({ "url": [cluster[1].url()], "role": "host" });
    driver.join_with("bob", "", &cluster.token("bob", "host"), ROOM, urls).await.expect("taken over");
    ask(
        &driver,
        "bob",
        "room:update",
        json!({ "room": ROOM, "settings": { "noiseReduction": "far_field" } }),
    )
    .await;
    wait_for(&driver, "watcher", "card:update", |body| body["settings"]["noiseReduction"] == "far_field")
        .await;
    wait_for(&driver, "watcher", "card:update", |body| body["joined"][0]["user"] == "bob").await;
}

#[tokio::test]
async fn monitors_see_everything_and_are_seen_by_nobody() {
    let (cluster, driver) = two_instances().await;
    let mut stood = Vec::new();
    for (conn, at) in [("m-here", 0), ("m-elsewhere", 1)] {
        let url = cluster[at].url();
        driver.connect(conn, &url, &cluster.token(conn, "monitor")).await.unwrap();
        let ack = ask(&driver, conn, "room:join", json!({ "room": ROOM })).await;
        assert_eq!(
            (&ack["self"]["role"], &ack["room"]["peerCount"]),
            (&json!("monitor"), &json!(1)),
            "{ack}"
        );
        assert_eq!(ack["room"]["owner"]["instance"], "a", "{ack}");
        stood.push((
            ack["room"]["version"]["settings"].as_u64().unwrap(),
            ack["room"]["version"]["cell"].as_u64().unwrap(),
        ));
    }
    let joined = join(&driver, &cluster, "bob", 0, ROOM).await;
    let room = &joined["ack"]["room"];
    let users: BTreeSet<_> =
        room["peers"].as_array().unwrap().iter().map(|peer| peer["user"].as_str().unwrap()).collect();
    assert_eq!((users, &room["peerCount"]), (BTreeSet::from(["ann", "bob"]), &json!(2)), "{room}");
    ask(
        &driver,
        "bob",
        "room:update",
        json!({ "room": ROOM, "settings": { "noiseReduction": "far_field" } }),
    )
    .await;
    ask(&driver, "ann", "guest:update", json!({ "room": ROOM, "state": { "handRaised": true } })).await;
    for (conn, (sv, cv)) in ["m-here", "m-elsewhere"].into_iter().zip(stood) {
        wait_for(&driver, conn, "room:presence", |body| body["joined"][0]["user"] == "bob").await;
        wait_for(&driver, conn, "room:update", |body| body["settings"]["noiseReduction"] == "far_field")
            .await;
        wait_for(&driver, conn, "room:update", |body| body["guests"]["ann"]["handRaised"] == true).await;
        let told = driver.events(conn, None).await;
        assert_eq!((chained(&told, "settings", sv), chained(&told, "cell", cv)), (sv + 2, cv + 1), "{conn}");
        assert!(driver.events(conn, Some("card:update")).await.is_empty(), "{conn}");
        // A monitor changes nothing, and what it watches ends when it leaves.
        for (event, body) in [
            ("room:update", json!({ "room": ROOM, "settings": { "noiseReduction": "off" } })),
            ("guest:update", json!({ "room": ROOM, "user": "ann", "state": { "stage": true } })),
        ] {
            let refused = driver.emit(conn, event, body).await.unwrap();
            assert_eq!(refused["error"]["code"], "FORBIDDEN", "{event}: {refused}");
        }
        ask(&driver, conn, "room:leave", json!({ "room": ROOM })).await;
        let again = driver.emit(conn, "room:leave", json!({ "room": ROOM })).await.unwrap();
        assert_eq!(again["error"]["code"], "NOT_IN_ROOM", "{again}");
    }
    let absent = driver.connect("nobody", &cluster[1].url(), &cluster.token("nobody", "monitor")).await;
    absent.unwrap();
    let ack = driver.emit("nobody", "room:join", json!({ "room": "nowhere" })).await.unwrap();
    assert_eq!(ack["error"]["code"], "ROOM_NOT_FOUND", "a monitor makes no room: {ack}");
    let told = driver.events("ann", Some("room:presence")).await;
    assert!(
        !format!("{told:?}").contains("m-here") && !format!("{told:?}").contains("m-elsewhere"),
        "{told:#?}"
    );
}

#[tokio::test]
async fn i_5_a_watcher_that_redis_forgot_is_noted_again_and_told_what_it_missed() {
    let (cluster, driver) = two_instances().await;
    ask(&driver, "elsewhere", "room:watch", json!({ "rooms": [ROOM] })).await;
    let key = &of_room(KeyKind::Watchers, "math");
    let change = json!({ "room": ROOM, "settings": { "noiseReduction": "far_field" } });
    let since = driver.position("elsewhere").await;
    cluster.redis.command(&["DEL", key]).await;
    ask(&driver, "ann", "room:update", change).await;
    // By the message, if a heartbeat came between, or by the next heartbeat, with a snapshot.
    let is_told = |event: &Event| {
        let of_card = event.name == "card:update" && event.body["of"] == "settings";
        let settings = event
            .body
            .pointer("/snapshot/settings/noiseReduction")
            .or(event.body.pointer("/settings/noiseReduction"));
        of_card && settings == Some(&json!("far_field"))
    };
    driver.wait_event("elsewhere", since, SOON, is_told).await;
    wait::until("the watcher is noted again", SOON, || async {
        let watchers = cluster.redis.command(&["SMEMBERS", key]).await.texts();
        watchers.iter().any(|watcher| watcher.starts_with("b/"))
    })
    .await;
    // And from then on told at once.
    ask(&driver, "ann", "room:update", json!({ "room": ROOM, "settings": { "noiseReduction": "off" } }))
        .await;
    wait_for(&driver, "elsewhere", "card:update", |body| body["settings"]["noiseReduction"] == "off").await;
}

#[tokio::test]
async fn rooms_are_listed_in_pages_and_lists_are_kept_up_to_date() {
    let cluster = Cluster::start_with(2, |options| options.idle(Duration::from_millis(200))).await;
    let driver = Driver::start().await;
    driver.connect("host", &cluster[0].url(), &cluster.token("host", "host")).await.unwrap();
    driver.connect("lister", &cluster[1].url(), &cluster.token("lister", "monitor")).await.unwrap();
    for room in ["a1", "a2", "a3", "b1", "é", "z"] {
        ask(&driver, "host", "room:join", json!({ "room": room })).await;
    }
    let ids = |ack: &Value| -> Vec<String> {
        ack["rooms"].as_array().unwrap().iter().map(|room| room["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = ask(&driver, "lister", "rooms:list", json!({})).await;
    assert_eq!(
        (ids(&all), &all["cursor"]),
        (vec!["a1".into(), "a2".into(), "a3".into(), "b1".into(), "z".into(), "é".into()], &Value::Null)
    );
    assert_eq!(
        all["rooms"][0],
        json!({ "id": "a1", "status": "active", "peerCount": 1, "version": { "settings": 1, "cell": 2 } })
    );
    let (mut cursor, mut seen) = (Value::Null, Vec::new());
    loop {
        let page = ask(&driver, "lister", "rooms:list", json!({ "limit": 2, "cursor": cursor })).await;
        assert!(page["rooms"].as_array().unwrap().len() <= 2, "{page}");
        seen.extend(ids(&page));
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(seen, ids(&all));
    for (prefix, found) in [("a", 3), ("a1", 1), ("é", 1), ("c", 0), ("", 6)] {
        let page = ask(&driver, "lister", "rooms:list", json!({ "prefix": prefix })).await;
        assert_eq!(ids(&page).len(), found, "{prefix}: {page}");
    }
    let page =
        ask(&driver, "lister", "rooms:list", json!({ "prefix": "a", "cursor": "a1", "limit": 1 })).await;
    assert_eq!((ids(&page), &page["cursor"]), (vec!["a2".to_owned()], &json!("a2")));
    assert_eq!(
        ids(&ask(&driver, "lister", "rooms:list", json!({ "status": "closed" })).await),
        Vec::<String>::new()
    );
    assert_eq!(ids(&ask(&driver, "lister", "rooms:list", json!({ "status": "active" })).await).len(), 6);

    // What changes comes as a digest: a new room, another count, another version.
    join(&driver, &cluster, "bob", 1, "new").await;
    ask(
        &driver,
        "bob",
        "room:update",
        json!({ "room": "new", "settings": { "noiseReduction": "far_field" } }),
    )
    .await;
    join(&driver, &cluster, "eve", 0, "z").await;
    let names = |body: &Value, list: &str, id: &str, fits: &dyn Fn(&Value) -> bool| {
        body[list].as_array().is_some_and(|rooms| rooms.iter().any(|room| room["id"] == id && fits(room)))
    };
    wait_for(&driver, "lister", "rooms:update", |body| names(body, "added", "new", &|_| true)).await;
    wait_for(&driver, "lister", "rooms:update", |body| {
        names(body, "changed", "z", &|room| room["peerCount"] == 2)
    })
    .await;
    wait_for(&driver, "lister", "rooms:update", |body| {
        let is_new = |room: &Value| room["version"]["settings"] == 2;
        names(body, "added", "new", &is_new) || names(body, "changed", "new", &is_new)
    })
    .await;
    // A guest may not list.
    driver.connect("guest", &cluster[0].url(), &cluster.token("guest", "guest")).await.unwrap();
    let refused = driver.emit("guest", "rooms:list", json!({})).await.unwrap();
    assert_eq!(refused["error"]["code"], "FORBIDDEN");
}

#[tokio::test]
async fn i_5_a_burst_of_a_hundred_joins_is_told_in_a_few_events_without_a_gap() {
    const JOINS: usize = 100;
    let cluster = Cluster::start_with(1, |options| options.value("app", "presence_window_ms", 200)).await;
    let driver = Driver::start().await;
    let first = join(&driver, &cluster, "ann", 0, ROOM).await;
    let users: Vec<String> = (0..JOINS).map(|n| format!("u{n}")).collect();
    for user in &users {
        driver.connect(user, &cluster[0].url(), &cluster.token(user, "guest")).await.unwrap();
    }
    let conns: Vec<&str> = users.iter().map(String::as_str).collect();
    let fields =
        json!({ "template": { "room": ROOM }, "count": JOINS, "concurrency": JOINS, "summary": true });
    let done = driver.burst("room:join", &conns, fields).await.unwrap();
    assert_eq!(done["succeeded"], JOINS, "{done}");
    let is_last = |body: &Value| body["peerCount"] == JOINS + 1;
    wait_for(&driver, "ann", "room:presence", is_last).await;
    let told = driver.events("ann", Some("room:presence")).await;
    let seen: BTreeSet<_> = told
        .iter()
        .flat_map(|event| event.body["joined"].as_array().unwrap())
        .map(|peer| peer["user"].as_str().unwrap().to_owned())
        .filter(|user| user != "ann")
        .collect();
    assert_eq!(seen, users.iter().cloned().collect());
    // A window of 200 ms for as long as the burst took, one for its rest, and one for what came before.
    let windows = 2.0 + done["elapsedMs"].as_f64().unwrap() / 200.0;
    let events = f64::from(u32::try_from(told.len()).unwrap());
    assert!(
        events <= windows && told.len() < JOINS / 2,
        "{events} events for {JOINS} joins in {windows} windows"
    );
    let from = first["ack"]["room"]["version"]["cell"].as_u64().unwrap();
    assert_eq!(chained(&told, "cell", from), from + JOINS as u64);
}

#[tokio::test]
async fn an_instance_answers_under_its_own_name_and_refuses_other_names() {
    let cluster = Cluster::start(2).await;
    let driver = Driver::start().await;
    let url = cluster[0].url();
    let token = cluster.token("ann", "host");
    let joined =
        driver.join("ann", &format!("{url}/i/a"), &token, ROOM).await.expect("joined under its name");
    assert_eq!((&joined["hops"], &joined["ack"]["room"]["owner"]["instance"]), (&json!(0), &json!("a")));
    let polling = json!({ "transports": ["polling"] });
    driver.connect_with("bob", &format!("{url}/i/a"), &token, polling).await.expect("polling as well");
    assert_eq!(http::get(&format!("{url}/i/a/healthz")).await.unwrap().status, 200);
    for path in ["healthz", "socket.io/?EIO=4&transport=polling", ""] {
        let answer = http::get(&format!("{url}/i/b/{path}")).await.unwrap();
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (421, Some("application/problem+json")),
            "{answer:?}"
        );
        let problem = answer.json();
        assert_eq!((&problem["code"], &problem["status"]), (&json!("WRONG_INSTANCE"), &json!(421)));
        assert!(
            problem["detail"].as_str().is_some_and(|text| text.contains("this is instance a")),
            "{problem}"
        );
    }
    let refused = driver.connect("eve", &format!("{url}/i/b"), &token).await.unwrap_err();
    assert_eq!(refused.details["status"], 421, "{refused:?}");
}

#[tokio::test]
async fn metrics_are_what_the_documentation_promises() {
    let (cluster, driver) = two_instances().await;
    ask(
        &driver,
        "ann",
        "room:update",
        json!({ "room": ROOM, "settings": { "noiseReduction": "far_field" } }),
    )
    .await;
    ask(&driver, "elsewhere", "room:watch", json!({ "rooms": [ROOM] })).await;
    ask(
        &driver,
        "elsewhere",
        "room:update",
        json!({ "room": ROOM, "settings": { "noiseReduction": "off" } }),
    )
    .await;
    wait_for(&driver, "elsewhere", "card:update", |_| true).await;
    wait_for(&driver, "ann", "room:update", |body| body["settings"]["noiseReduction"] == "off").await;

    let operations = std::fs::read_to_string(e2e::place::repository().join("docs/operations.md")).unwrap();
    let table = operations.lines().skip_while(|line| *line != "| metric | says |").skip(2);
    let names = table.take_while(|line| line.starts_with('|')).flat_map(|line| {
        let cell = line.split('|').nth(1).unwrap_or_default();
        cell.split('`').skip(1).step_by(2).map(|name| name.split('{').next().unwrap_or_default())
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 17, "{names:?}");
    let told = async || (cluster[0].metrics().await, cluster[1].metrics().await);
    wait::until("what was done is archived", SOON, || async {
        let (a, b) = told().await;
        a.has("dais_archived_total") || b.has("dais_archived_total")
    })
    .await;
    let (a, b) = told().await;
    for name in names {
        let full = format!("dais_{name}");
        // Counters with labels appear with their first event; these need one that does not come here.
        let quiet = [
            "dais_deliveries_total",
            "dais_lease_losses_total",
            "dais_media_calls_total",
            "dais_media_events_total",
            "dais_outbox_age_seconds",
            "dais_outbox_events",
            "dais_reconciled_total",
            "dais_rooms_recovered_total",
            "dais_rtc_callbacks_total",
            "dais_skipped_total",
        ];
        let is_there = |metrics: &Metrics| metrics.has(&full) || metrics.has(&format!("{full}_count"));
        assert!(is_there(&a) || is_there(&b) || quiet.contains(&full.as_str()), "{full} is not exposed");
    }
    assert_eq!(
        (a.sum("dais_rooms", &[]), a.sum("dais_peers", &[]), a.sum("dais_sockets", &[])),
        (1.0, 1.0, 2.0)
    );
    assert_eq!((b.sum("dais_rooms", &[]), b.sum("dais_ready", &[])), (0.0, 1.0));
    assert_eq!(a.sum("dais_joins_total", &[("result", "ok")]), 1.0);
    assert_eq!(a.sum("dais_requests_total", &[("event", "room:update"), ("result", "ok")]), 1.0);
    assert_eq!(a.sum("dais_router_sync_total", &[("outcome", "applied")]), 1.0);
    assert!(b.sum("dais_fanout_total", &[("outcome", "delivered")]) >= 1.0);
    assert!(a.sum("dais_script_seconds_count", &[("script", "pin")]) >= 1.0);
    assert!(a.sum("dais_heartbeats_total", &[("result", "ok")]) >= 1.0);
    // Nothing that names a room or a user.
    for sample in a.samples.iter().chain(&b.samples) {
        assert!(sample.labels.values().all(|value| value != ROOM && value != "ann"), "{sample:?}");
    }
    // Not for web pages, and not for the public.
    let page = [("origin", "http://127.0.0.1")];
    let refused =
        http::request("GET", &format!("{}/metrics", cluster[0].admin_url()), &page, "").await.unwrap();
    assert_eq!(refused.status, 403);
    assert_eq!(http::get(&format!("{}/metrics", cluster[0].url())).await.unwrap().status, 404);
}
