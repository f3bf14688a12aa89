//! What media servers say in their own names and over their own ways, at any instance.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use e2e::callback::{self, mac, sign};
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Event;
use e2e::http::{self, Response};
use e2e::token::APP;
use e2e::wait::{SOON, until};
use futures_util::SinkExt as _;
use key_prefix::KeyKind;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::stage::{ROOM, Stage};
use crate::stored::{named, of_room, redis_now};

const SECRET: &str = "a secret of the media server, long enough";
const PASSWORD: &str = "0123456789abcdef";
/// `janus:0123456789abcdef` in Base64.
const BASIC: &str = "Basic amFudXM6MDEyMzQ1Njc4OWFiY2RlZg==";
const ROUTER: &str = "k5x2mzq4ta7rw3bnd6hcvuyoel";

fn believes(options: CoordinatorOptions) -> CoordinatorOptions {
    callback::believes(options, SECRET, PASSWORD)
}

/// Notes what a router's name stands for, as the room's owner does.
async fn claim(stage: &Stage, name: &str, route: &str) {
    let (key, value) = (named(KeyKind::Router, name), format!("7 {route}"));
    stage.cluster.redis.command(&["SET", &key, &value, "PX", "60000"]).await;
}

/// Janus's word that a router is gone: nobody is moved by it.
fn destroyed(number: u64, router: &str) -> Value {
    json!({
        "type": 64, "timestamp": 1_764_468_003_500_000_u64 + number, "session_id": 1, "handle_id": 2,
        "event": { "plugin": "janus.plugin.audiobridge", "data": { "event": "destroyed", "room": router } },
    })
}

async fn janus(stage: &Stage, at: usize, authorization: &str, events: &Value) -> Response {
    let url = format!("{}/rtc/janus/{APP}", stage.cluster[at].url());
    let headers = [("content-type", "application/json"), ("authorization", authorization)];
    http::request("POST", &url, &headers, &events.to_string()).await.expect("an answer")
}

async fn generic(stage: &Stage, at: usize, events: &Value, now_ms: u64) -> Response {
    let (body, time) = (events.to_string(), (now_ms / 1_000).to_string());
    let signature = sign(SECRET, &time, &body);
    let headers =
        [("content-type", "application/json"), ("dais-timestamp", &*time), ("dais-signature", &*signature)];
    let url = format!("{}/rtc/generic/{APP}", stage.cluster[at].url());
    http::request("POST", &url, &headers, &body).await.expect("an answer")
}

async fn now(stage: &Stage) -> u64 {
    u64::try_from(redis_now(&stage.cluster.redis).await).expect("a time")
}

async fn counted(stage: &Stage, at: usize, vendor: &str, result: &str) -> f64 {
    let labels = [("vendor", vendor), ("result", result)];
    stage.cluster[at].metrics().await.sum("dais_rtc_callbacks_total", &labels)
}

/// Nothing waits in the inbox of the room any more.
async fn inbox_empties(stage: &Stage) {
    let key = of_room(KeyKind::Inbox, ROOM);
    until("what waited is executed", SOON, || async {
        stage.cluster.redis.command(&["XLEN", &key]).await.number() == Some(0)
    })
    .await;
}

#[tokio::test]
async fn a_router_is_known_by_its_name_at_any_instance() {
    let stage = Stage::start_with(2, believes).await;
    let mut hanna = stage.enter("hanna", "host").await;
    claim(&stage, ROUTER, &format!("{APP}\0{ROOM}")).await;
    // Of another router, of a kind that nobody knows, and twice the same.
    let events = json!([
        destroyed(1, ROUTER),
        destroyed(2, "nobodysrouter"),
        { "type": 2, "timestamp": 1, "event": { "name": "attached" } },
        destroyed(3, ROUTER),
        destroyed(3, ROUTER),
    ]);
    for at in [1, 0] {
        let answer = janus(&stage, at, BASIC, &events).await;
        let first = at == 1;
        let right = json!({ "appended": if first { 2 } else { 0 }, "repeated": if first { 1 } else { 3 }, "unknown": 2 });
        assert_eq!((answer.status, answer.json()), (200, right), "{at}");
    }
    assert_eq!(counted(&stage, 1, "janus", "unknown_room").await, 1.0);
    assert_eq!(counted(&stage, 1, "janus", "unknown_type").await, 1.0);
    inbox_empties(&stage).await;
    assert_eq!(janus(&stage, 0, "Basic amFudXM6", &events).await.status, 401);
    stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn a_server_speaks_for_another_app_only_with_its_secrets_too() {
    let more = |code: &str, password: &str| {
        format!(
            "[[app]]\ncode = \"{code}\"\nsecret = \"{code}-secret-{code}-secret-{code}-secret\"\n\
             callbacks = {{ janus = {{ username = \"janus\", password = \"{password}\" }} }}\n"
        )
    };
    let stage = Stage::start_with(1, |options| {
        believes(options).toml(&more("friend", PASSWORD)).toml(&more("stranger", "another-password"))
    })
    .await;
    claim(&stage, "offriend", "friend\0r").await;
    claim(&stage, "ofstranger", "stranger\0r").await;
    let events = json!([destroyed(1, "offriend"), destroyed(2, "ofstranger"), destroyed(3, "ofstranger")]);
    let answer = janus(&stage, 0, BASIC, &events).await;
    assert_eq!((answer.status, answer.json()), (200, json!({ "appended": 0, "repeated": 0, "unknown": 3 })));
    // There is no such room, but that it was asked for.
    assert_eq!(counted(&stage, 0, "janus", "unknown_room").await, 1.0);
    assert_eq!(counted(&stage, 0, "janus", "other_app").await, 2.0);
}

async fn socket(stage: &Stage, at: usize, protocol: &str) -> Result<WebSocketStream<TcpStream>, u16> {
    let url = format!("{}/rtc/janus/{APP}", stage.cluster[at].url());
    let authority = url.trim_start_matches("http://").split('/').next().expect("an authority").to_owned();
    let mut request = url.replacen("http", "ws", 1).into_client_request().expect("a request");
    request.headers_mut().insert("sec-websocket-protocol", protocol.parse().expect("a header"));
    let stream = TcpStream::connect(authority).await.expect("connected");
    match client_async(request, stream).await {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["sec-websocket-protocol"], protocol);
            Ok(socket)
        }
        Err(tokio_tungstenite::tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn events_come_over_a_socket_in_order_and_wait_for_redis() {
    let stage = Stage::start_with(2, believes).await;
    let mut hanna = stage.enter("hanna", "host").await;
    claim(&stage, ROUTER, &format!("{APP}\0{ROOM}")).await;
    for wrong in ["janus-protocol", "dais.janus.", "dais.janus.0123456789abcdeX"] {
        assert_eq!(socket(&stage, 1, wrong).await.err(), Some(401), "{wrong}");
    }
    let mut socket = socket(&stage, 1, "dais.janus.0123456789abcdef").await.expect("open");
    let mut send = async |body: String| socket.send(Message::text(body)).await.expect("sent");
    send(destroyed(1, ROUTER).to_string()).await;
    // What makes no sense is passed over.
    send("{".to_owned()).await;
    send(json!([destroyed(2, ROUTER), destroyed(1, ROUTER)]).to_string()).await;
    // What was not answered in time, and was taken all the same, is a repeat when it is tried again.
    let taken = async |count: f64| {
        let are = || async {
            counted(&stage, 1, "janus", "appended").await + counted(&stage, 1, "janus", "repeated").await
                == count
        };
        until("the events are taken", SOON, are).await;
    };
    taken(3.0).await;
    assert_eq!(counted(&stage, 1, "janus", "malformed").await, 1.0);
    assert_eq!(counted(&stage, 1, "janus", "repeated").await, 1.0);

    let at = now(&stage).await;
    stage.cluster.redis.pause();
    for number in 3..6 {
        send(destroyed(number, ROUTER).to_string()).await;
    }
    let started = json!({ "id": "g", "type": "audio_started", "room": ROOM, "user": "hanna", "at": at });
    assert_eq!(generic(&stage, 1, &started, at).await.status, 503, "others are told to come again");
    stage.cluster.redis.resume();
    taken(6.0).await;
    inbox_empties(&stage).await;
    assert_eq!(counted(&stage, 1, "janus", "lost").await, 0.0);
    stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn what_is_not_repeated_is_tried_for_as_long_as_its_sender_waits() {
    let stage = Stage::start_with(1, believes).await;
    let hanna = stage.enter("hanna", "host").await;
    claim(&stage, ROUTER, &format!("{APP}\0{ROOM}")).await;
    let at = now(&stage).await;
    stage.cluster.redis.pause();
    let begun = Instant::now();
    let (first, second) =
        (json!([destroyed(1, ROUTER)]), json!([destroyed(2, ROUTER), destroyed(3, ROUTER)]));
    let level = json!({ "type": "audio_started", "id": "g", "room": ROOM, "user": "hanna", "at": at });
    let (lost, told) = tokio::join!(janus(&stage, 0, BASIC, &second), generic(&stage, 0, &level, at));
    assert_eq!((lost.status, told.status), (503, 503));
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(5) && took < Duration::from_secs(10), "{took:?}");
    assert_eq!(counted(&stage, 0, "janus", "lost").await, 2.0);
    stage.cluster[0].log_line("events are lost: the media server does not repeat them", 0, SOON).await;

    // An outage that ends in time costs nothing.
    let (kept, ()) = tokio::join!(janus(&stage, 0, BASIC, &first), async {
        assert_eq!(generic(&stage, 0, &level, at).await.status, 503);
        stage.cluster.redis.resume();
    });
    assert_eq!((kept.status, kept.json()["unknown"].as_u64()), (200, Some(0)), "{kept:?}");
    drop(hanna);
}

#[tokio::test]
async fn how_loud_somebody_is_goes_to_members_and_watchers_a_few_times_a_second() {
    let stage = Stage::start_with(3, believes).await;
    let mut ann = stage.enter("ann", "guest").await;
    stage.watch("wanda", 1).await;
    stage.monitor("mona", 2).await;
    stage.agree(&mut [&mut ann]).await;
    let before = stage.past().await.events().count();
    let at = now(&stage).await;
    let level =
        |user: &str, level: f64| json!({ "type": "level", "room": ROOM, "user": user, "level": level });
    // At an instance that does not own the room; of somebody who is not in it as well.
    let both = json!([level("ann", 0.25), level("eve", 1.0)]);
    assert_eq!(generic(&stage, 2, &both, at).await.status, 200);
    for (conn, is_last) in [("ann", 0.25), ("wanda", 0.25), ("mona", 0.25)] {
        let told = |event: &Event| event.name == "room:speakers";
        let event = stage.driver.wait_event(conn, 0, SOON, told).await;
        assert_eq!(
            event.body,
            json!({ "room": ROOM, "levels": [{ "user": "ann", "level": is_last }] }),
            "{conn}"
        );
    }

    let begun = Instant::now();
    let mut said = 0;
    while begun.elapsed() < Duration::from_secs(2) {
        said += 1;
        let value = f64::from(said % 64) / 128.0;
        generic(&stage, said as usize % 3, &level("ann", value), at).await;
    }
    for at_instance in 0..3 {
        generic(&stage, at_instance, &level("ann", 1.0), at).await;
    }
    let is_newest = |event: &Event| event.name == "room:speakers" && event.body["levels"][0]["level"] == 1.0;
    let newest = stage.driver.wait_event("ann", 0, SOON, is_newest).await;
    let took = begun.elapsed().as_secs_f64();
    let mut told = 0;
    let mut next = 0;
    while next < newest.index {
        let event =
            stage.driver.wait_event("ann", next, SOON, |event: &Event| event.name == "room:speakers").await;
        (told, next) = (told + 1, event.index + 1);
    }
    assert!(said > 30, "{said}");
    assert!(f64::from(told) <= 2.0 + took * 5.0, "{told} in {took} s");
    assert_eq!(stage.past().await.events().count(), before, "nothing is kept of it");
}

/// The end of a router, as each of the hosted vendors says it: its word, the body, and the header that proves it.
fn ends(now_ms: u64) -> [(&'static str, String, (&'static str, String)); 3] {
    let now_s = now_ms / 1_000;
    let livekit = json!({
        "event": "room_finished", "id": "EV_1", "createdAt": now_s.to_string(),
        "room": { "sid": "RM_1", "name": ROUTER },
    });
    let livekit = livekit.to_string();
    let claims =
        json!({ "iss": "key", "exp": now_s + 300, "sha256": STANDARD.encode(Sha256::digest(&livekit)) });
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac(SECRET, &signed)));
    let trtc = json!({
        "EventGroupId": 1, "EventType": 102, "CallbackTs": now_ms,
        "EventInfo": { "RoomId": ROUTER, "EventTs": now_s, "EventMsTs": now_ms },
    });
    let trtc = trtc.to_string();
    let sign = STANDARD.encode(mac(PASSWORD, &trtc));
    let agora = json!({
        "noticeId": "n-1", "productId": 1, "eventType": 102, "notifyMs": now_ms,
        "payload": { "channelName": ROUTER, "ts": now_s, "lastUid": 7 },
    });
    let agora = agora.to_string();
    let digest: String = mac(SECRET, &agora).iter().map(|byte| format!("{byte:02x}")).collect();
    [
        ("livekit", livekit, ("authorization", token)),
        ("trtc", trtc, ("sign", sign)),
        ("agora", agora, ("agora-signature-v2", digest)),
    ]
}

#[tokio::test]
async fn hosted_vendors_are_answered_before_they_give_up() {
    let stage = Stage::start_with(2, believes).await;
    let mut hanna = stage.enter("hanna", "host").await;
    claim(&stage, ROUTER, &format!("{APP}\0{ROOM}")).await;
    let post = async |vendor: &str, body: &str, proof: (&str, &str)| {
        let url = format!("{}/rtc/{vendor}/{APP}", stage.cluster[1].url());
        http::request("POST", &url, &[("content-type", "application/json"), proof], body)
            .await
            .expect("an answer")
    };
    let events = ends(now(&stage).await);
    for (vendor, body, (header, proof)) in &events {
        let altered = body.replacen('{', "{ ", 1);
        assert_eq!(post(vendor, &altered, (header, proof)).await.status, 401, "{vendor}");
        for (appended, repeated) in [(1, 0), (0, 1)] {
            let answer = post(vendor, body, (header, proof)).await;
            let right = json!({ "appended": appended, "repeated": repeated, "unknown": 0 });
            assert_eq!((answer.status, answer.json()), (200, right), "{vendor}");
            assert_eq!(answer.header("content-type"), Some("application/json"), "{vendor}");
        }
    }
    inbox_empties(&stage).await;
    stage.cluster.redis.pause();
    let begun = Instant::now();
    let answers = futures_util::future::join_all(events.iter().map(|(vendor, body, (header, proof))| {
        let post = &post;
        async move { (post(vendor, body, (header, proof)).await.status, begun.elapsed()) }
    }));
    for (status, took) in answers.await {
        assert_eq!(status, 503);
        assert!(took < Duration::from_millis(4_500), "{took:?}");
    }
    stage.cluster.redis.resume();
    // Each comes again, and is there already.
    for (vendor, body, (header, proof)) in &events {
        let answer = post(vendor, body, (header, proof)).await;
        assert_eq!((answer.status, answer.json()["repeated"].as_u64()), (200, Some(1)), "{vendor}");
    }
    stage.agree(&mut [&mut hanna]).await;
}
