//! Outgoing events by webhook, and what a back end does over HTTP about those that could not be delivered.

mod receiver;

use base64::Engine as _;
use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::databases::{Database, Kind};
use e2e::http::{self, Response};
use e2e::token::Token;
use e2e::wait::{self, SOON};
use serde_json::{Value, json};
use sqlx::Executor as _;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::http_api::{KEY, OTHER_KEY, refused, with_keys};
use receiver::{Arrival, Mood, Receiver};

const PATIENT: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(2);
/// What happens in rooms, and nothing of instances, which end here.
const EVENTS: &str = "\"room.*\", \"settings.*\", \"user.*\"";
const OLD: &str = "the key until now, of 32 bytes..";
const NEW: &str = "the key from now on, of 32 bytes";

/// A sink of the app as the configuration has it: a delivery fails when it has not been answered for so long.
fn sink(name: &str, receiver: &Receiver, keys: &[&str], timeout: Duration) -> String {
    let secret = |key: &&str| {
        let encoded = base64::engine::general_purpose::STANDARD.encode(key);
        format!("\"whsec_{encoded}\"")
    };
    let secrets: Vec<String> = keys.iter().map(secret).collect();
    let (url, secrets, timeout) = (&receiver.url, secrets.join(", "), timeout.as_millis());
    format!(
        "[[app.sinks]]\nname = \"{name}\"\nurl = \"{url}\"\nsecrets = [{secrets}]\ntimeout_ms = {timeout}\nevents = [{EVENTS}]\n"
    )
}

/// Asks an instance as whoever shows this.
async fn ask(cluster: &Cluster, at: usize, shown: &str, method: &str, path: &str, body: &Value) -> Response {
    let (url, bearer) = (format!("{}/v1/apps/{path}", cluster[at].url()), format!("Bearer {shown}"));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let headers = if shown.is_empty() { &headers[1..] } else { &headers[..] };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    http::request(method, &url, headers, &body).await.expect("an answer")
}

/// The same as the app's back end, which is answered well.
async fn done(cluster: &Cluster, method: &str, path: &str, body: Value) -> Value {
    let answer = ask(cluster, 0, KEY, method, &format!("demo/{path}"), &body).await;
    assert!((200..300).contains(&answer.status), "{method} {path} {body}: {answer:?}");
    answer.json()
}

/// The events in a state, newest first, read in pages of two.
async fn listed(cluster: &Cluster, state: &str) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    let mut next = String::new();
    loop {
        let mut page =
            done(cluster, "GET", &format!("outbox?state={state}&limit=2{next}"), Value::Null).await;
        let found = page["events"].as_array_mut().expect("events");
        assert!(found.iter().all(|event| event["state"] == state), "{found:?}");
        events.append(found);
        let Some(before) = page["next"].as_u64() else { break };
        assert_eq!(events.last().expect("a page with a next one")["number"], before);
        next = format!("&before={before}");
    }
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["number"].as_u64()).collect();
    assert!(numbers.is_sorted_by(|newer, older| newer > older), "{numbers:?}");
    events
}

/// Waits until so many events are in a state; oldest first.
async fn in_state(cluster: &Cluster, state: &str, count: usize) -> Vec<Value> {
    wait::eventually(SOON * 2, || async {
        let mut events = listed(cluster, state).await;
        events.reverse();
        if events.len() == count { Ok(events) } else { Err(events) }
    })
    .await
}

/// Something happens in the room: this user may not come any more.
async fn ban(cluster: &Cluster, user: &str) {
    done(cluster, "POST", "rooms/math/commands/kick", json!({ "user": user })).await;
}

fn ids(arrivals: &[Arrival]) -> Vec<&str> {
    arrivals.iter().map(|arrival| arrival.id.as_str()).collect()
}

#[tokio::test]
async fn i_25_dead_letters_are_listed_sent_again_in_order_or_put_away() {
    let database = Database::new(Kind::Sqlite).await;
    let receiver = Receiver::start(Mood::Refuses).await;
    let cluster = Cluster::start_with(2, |options: CoordinatorOptions| {
        let options =
            options.text("ledger", "url", &database.url).toml(&sink("back-end", &receiver, &[OLD], PATIENT));
        with_keys(options)
    })
    .await;
    done(&cluster, "PUT", "rooms/math", json!({})).await;
    for user in ["eve", "mallory", "trudy"] {
        ban(&cluster, user).await;
    }
    let open = in_state(&cluster, "open", 5).await;
    let kinds: Vec<&str> = open.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds, ["settings.updated", "room.created", "user.banned", "user.banned", "user.banned"]);
    let waiting = open[0]["number"].as_u64().expect("a number");
    let refusal = ask(&cluster, 0, KEY, "POST", &format!("demo/outbox/{waiting}/drop"), &Value::Null).await;
    refused(&refusal, 409, "VERSION_CONFLICT");

    // A day passes.
    let mut connection = database.connect().await.unwrap();
    connection.execute(sqlx::raw_sql("UPDATE outbox SET at_ms = at_ms - 90000000")).await.unwrap();
    let dead = in_state(&cluster, "failed", 5).await;
    let default = done(&cluster, "GET", "outbox", Value::Null).await;
    assert_eq!(
        default["events"].as_array().map(Vec::len),
        Some(5),
        "dead letters, if nothing is said: {default}"
    );
    assert!(default.get("next").is_none(), "{default}");
    let tried: BTreeSet<String> = receiver.arrivals().into_iter().map(|arrival| arrival.id).collect();
    assert_eq!(tried.len(), 5, "each was tried");
    for (event, was) in dead.iter().zip(&open) {
        let fields = ["number", "id", "type", "payload"];
        assert!(fields.iter().all(|field| event[field] == was[field]), "{event} was {was}");
        assert_eq!((&event["sink"], &event["outOfOrder"]), (&json!("back-end"), &json!(false)), "{event}");
        assert!(event["lastError"].as_str().is_some_and(|why| why.contains("500")), "{event}");
        assert!(event["attempts"].as_u64() > Some(0), "{event}");
        let arrivals = receiver.arrivals();
        let of_it: Vec<&Arrival> =
            arrivals.iter().filter(|arrival| event["id"] == arrival.id.as_str()).collect();
        assert!(of_it.iter().all(|arrival| arrival.event() == event["payload"]), "{event}: {of_it:?}");
        assert_eq!(of_it.len() as u64, event["attempts"].as_u64().unwrap(), "{event}: {of_it:?}");
    }

    // Sent again, through another instance: the same, but for what it says of itself.
    let number = |at: usize| dead[at]["number"].as_u64().unwrap();
    let path = |at: usize, what: &str| format!("outbox/{}/{what}", number(at));
    let since = receiver.arrivals().len();
    receiver.become_one_that(Mood::Takes);
    let answer = ask(&cluster, 1, KEY, "POST", &format!("demo/{}", path(2, "retry")), &Value::Null).await;
    assert_eq!((answer.status, answer.json()), (200, json!({ "state": "open" })));
    let again = receiver.takes(since, 1).await;
    let mut expected = dead[2]["payload"].clone();
    expected["outOfOrder"] = json!(true);
    assert_eq!((&*again[0].id, again[0].event()), (dead[2]["id"].as_str().unwrap(), expected));
    let delivered = in_state(&cluster, "delivered", 1).await;
    assert_eq!((&delivered[0]["id"], &delivered[0]["outOfOrder"]), (&dead[2]["id"], &json!(true)));

    // One is put away for good.
    assert_eq!(done(&cluster, "POST", &path(3, "drop"), Value::Null).await, json!({ "state": "dropped" }));
    assert_eq!(in_state(&cluster, "dropped", 1).await[0]["id"], dead[3]["id"]);
    for (at, what) in [(2, "retry"), (2, "drop"), (3, "retry"), (3, "drop")] {
        let answer = ask(&cluster, 0, KEY, "POST", &format!("demo/{}", path(at, what)), &Value::Null).await;
        refused(&answer, 409, "VERSION_CONFLICT");
    }

    // All the others as they are listed, newest first, while nobody answers: they come as they happened.
    receiver.become_one_that(Mood::Hangs);
    let since = receiver.arrivals().len();
    let rest = in_state(&cluster, "failed", 3).await;
    for event in rest.iter().rev() {
        done(&cluster, "POST", &format!("outbox/{}/retry", event["number"]), Value::Null).await;
    }
    wait::until("one is tried", SOON, || async { receiver.arrivals().len() > since }).await;
    ban(&cluster, "victor").await;
    let news = in_state(&cluster, "open", 4).await.pop().unwrap();
    assert_eq!(receiver.arrivals().len(), since + 1, "one of a room at a time");
    receiver.become_one_that(Mood::Takes);
    let mut wanted: Vec<&str> = rest.iter().filter_map(|event| event["id"].as_str()).collect();
    wanted.extend(news["id"].as_str());
    assert_eq!(ids(&receiver.takes(since, 4).await), wanted, "in the room's order");
    in_state(&cluster, "delivered", 5).await;
    assert_eq!(listed(&cluster, "failed").await, Vec::<Value>::new());
    assert_eq!(receiver.taken(0).len(), 5, "each once, and not what was put away");
}

#[tokio::test]
async fn i_25_an_outbox_is_its_app_s_and_says_what_is_wrong() {
    let receiver = Receiver::start(Mood::Refuses).await;
    let change =
        |options: CoordinatorOptions| with_keys(options.toml(&sink("back-end", &receiver, &[OLD], PATIENT)));
    let cluster = Cluster::start_with(1, change).await;
    done(&cluster, "PUT", "rooms/math", json!({})).await;
    let open = in_state(&cluster, "open", 2).await;
    let event = format!("outbox/{}", open[0]["number"]);
    let (user, admin) = (Token::new("ann", "host"), Token::new("op", "host").claim("admin", true));
    let calls =
        [("GET", "outbox".to_owned()), ("POST", format!("{event}/retry")), ("POST", format!("{event}/drop"))];
    for (method, path) in &calls {
        let ask = async |shown: &str, app: &str| {
            ask(&cluster, 0, shown, method, &format!("{app}/{path}"), &Value::Null).await
        };
        refused(&ask("", "demo").await, 401, "UNAUTHENTICATED");
        refused(
            &ask(&"no key of anybody's ".repeat(2).replace(' ', "-"), "demo").await,
            401,
            "UNAUTHENTICATED",
        );
        refused(&ask(&admin.clone().expired(3600).sign(), "demo").await, 401, "UNAUTHENTICATED");
        refused(&ask(OTHER_KEY, "demo").await, 403, "FORBIDDEN");
        refused(&ask(&user.sign(), "demo").await, 403, "FORBIDDEN");
    }
    // To another app it does not exist.
    let other = ask(&cluster, 0, OTHER_KEY, "GET", "other/outbox?state=open", &Value::Null).await;
    assert_eq!((other.status, other.json()), (200, json!({ "events": [] })));
    for what in ["retry", "drop"] {
        let beside =
            ask(&cluster, 0, OTHER_KEY, "POST", &format!("other/{event}/{what}"), &Value::Null).await;
        refused(&beside, 404, "BAD_REQUEST");
        for (number, status) in
            [("999999", 404), ("0", 404), ("first", 400), ("-1", 400), ("9223372036854775808", 400)]
        {
            let answer =
                ask(&cluster, 0, KEY, "POST", &format!("demo/outbox/{number}/{what}"), &Value::Null).await;
            refused(&answer, status, "BAD_REQUEST");
        }
    }
    for (query, says) in [
        ("before=first", "before"),
        ("before=-1", "before"),
        ("before=9223372036854775808", "`before` must be the `next` of a page"),
        ("limit=0", "`limit` must be 1 to 200"),
        ("limit=201", "`limit` must be 1 to 200"),
        ("state=lost", "`state` must be open, delivered, failed or dropped"),
        ("after=1", "after"),
    ] {
        let answer =
            ask(&cluster, 0, &admin.sign(), "GET", &format!("demo/outbox?{query}"), &Value::Null).await;
        let why = refused(&answer, 400, "BAD_REQUEST");
        assert!(why.contains(says), "{query}: {why}");
    }
    let beyond = done(&cluster, "GET", "outbox?state=open&before=0", Value::Null).await;
    assert_eq!(beyond, json!({ "events": [] }));
    assert_eq!(in_state(&cluster, "open", 2).await[0]["id"], open[0]["id"], "nothing came of all that");
}

#[tokio::test]
async fn i_25_a_receiver_that_hangs_holds_up_nobody_else_and_secrets_change_without_a_break() {
    let (slow, quick) = (Receiver::start(Mood::Hangs).await, Receiver::start(Mood::Takes).await);
    let told = |options: CoordinatorOptions, keys: &[&str]| {
        let sinks = sink("slow", &slow, &[OLD], SHORT) + &sink("quick", &quick, keys, SHORT);
        with_keys(options.toml(&sinks))
    };
    let mut cluster = Cluster::start_with(1, |options| told(options, &[OLD])).await;
    done(&cluster, "PUT", "rooms/math", json!({})).await;
    let first = quick.takes(0, 2).await;
    assert!(first.iter().all(|arrival| arrival.is_signed_with(OLD) && !arrival.is_signed_with(NEW)));
    in_state(&cluster, "delivered", 2).await;

    // Both are good while receivers change from one to the next.
    let options = CoordinatorOptions::new("a", &cluster.redis.url());
    cluster[0].restart_with(told(options.clone(), &[NEW, OLD])).await;
    for n in 0..5 {
        ban(&cluster, &format!("eve-{n}")).await;
    }
    let both = quick.takes(2, 5).await;
    assert!(both.iter().all(|arrival| arrival.signatures.len() == 2), "{both:?}");
    assert!(both.iter().all(|arrival| arrival.is_signed_with(OLD) && arrival.is_signed_with(NEW)));
    in_state(&cluster, "delivered", 7).await;
    cluster[0].restart_with(told(options, &[NEW])).await;
    ban(&cluster, "mallory").await;
    let last = quick.takes(7, 1).await;
    assert!(last[0].is_signed_with(NEW) && !last[0].is_signed_with(OLD), "{last:?}");

    // Meanwhile nothing was answered by the one that hangs, which has the first event in hand and no other.
    let tried: BTreeSet<String> = slow.arrivals().into_iter().map(|arrival| arrival.id).collect();
    assert_eq!(tried, BTreeSet::from([first[0].id.clone()]));
    let since = slow.arrivals().len();
    slow.become_one_that(Mood::Takes);
    let caught_up = slow.takes(since, 8).await;
    assert_eq!(ids(&caught_up), ids(&quick.taken(0)), "the same ids, in the same order");
}

#[tokio::test]
async fn what_was_delivered_long_ago_is_forgotten_and_what_was_not_stays() {
    let database = Database::new(Kind::Sqlite).await;
    let (quick, down) = (Receiver::start(Mood::Takes).await, Receiver::start(Mood::Refuses).await);
    let change = |options: CoordinatorOptions| {
        let sinks = sink("quick", &quick, &[OLD], SHORT) + &sink("down", &down, &[OLD], SHORT);
        let kept = options.value("ledger", "outbox_days", 1).value("ledger", "log_days", 1);
        with_keys(kept.text("ledger", "url", &database.url).toml(&sinks))
    };
    let mut cluster = Cluster::start_with(1, change).await;
    done(&cluster, "PUT", "rooms/math", json!({})).await;
    done(&cluster, "POST", "rooms/math/commands/close", json!({})).await;
    in_state(&cluster, "delivered", 3).await;
    assert_eq!(listed(&cluster, "open").await.len(), 3);

    // Two days pass, and somebody looks, as it is done every minute.
    let mut connection = database.connect().await.unwrap();
    for column in ["log SET at_ms = at_ms", "outbox SET at_ms = at_ms", "outbox SET done_at = done_at"] {
        let passes = sqlx::AssertSqlSafe(format!("UPDATE {column} - 172800000"));
        connection.execute(sqlx::raw_sql(passes)).await.unwrap();
    }
    cluster[0].restart().await;
    assert_eq!(in_state(&cluster, "delivered", 0).await, Vec::<Value>::new());
    assert_eq!(in_state(&cluster, "failed", 3).await.len(), 3, "dead letters stay");
    let pruned = [("what", "pruned")];
    wait::until("rows of the log are gone", SOON, || async {
        let (rows,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM log")
            .fetch_one(&mut database.connect().await.unwrap())
            .await
            .unwrap();
        let counted = cluster[0].metrics().await.sum("dais_archived_total", &pruned);
        rows == 0 && counted >= 6.0
    })
    .await;
}
