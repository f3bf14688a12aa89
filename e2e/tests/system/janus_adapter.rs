//! The adapter of Janus, beside a real one.

#![expect(clippy::unwrap_used, reason = "what helps tests fails as they do")]

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use crate::publisher::Publisher;
use e2e::janus::{ADMIN_KEY, ADMIN_SECRET, API_SECRET, Client, Events, Janus, JanusOptions, TOKEN_SECRET};
use e2e::wait::{SOON, eventually, until};
use media_bridge::{
    ApiTokens, CallbackReader, CallbackRequest, Generation, JanusCallbacks, JanusConfig, JanusPlugin,
    JanusServer, MediaError, MediaServer, Member, NamedPeer, NamedRoom, Participant, PeerRef, Permissions,
    RoomRef, Router, VendorFact,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

const PLUGINS: [JanusPlugin; 2] = [JanusPlugin::AudioBridge, JanusPlugin::VideoRoom];
const QUIET: Permissions = Permissions { publish_audio: false, ..Permissions::ALL };
/// Far more than Janus needs, and what a test waits for when it is stopped.
const DEADLINE: Duration = Duration::from_secs(2);

fn config(janus: &Janus, plugin: JanusPlugin) -> JanusConfig {
    JanusConfig {
        url: janus.url(),
        public_url: None,
        admin_url: Some(janus.admin_url()),
        api_secret: Some(API_SECRET.to_owned()),
        admin_secret: Some(ADMIN_SECRET.to_owned()),
        admin_key: Some(ADMIN_KEY.to_owned()),
        // Any time will do that is before the tokens' end.
        api_tokens: Some(ApiTokens {
            secret: TOKEN_SECRET.to_owned(),
            ttl: Duration::from_secs(4_000_000_000),
            clock: Arc::new(|| 0),
        }),
        plugin,
        plain_rtp: true,
        room_secret_key: b"the key of the test's rooms".to_vec(),
        deadline: DEADLINE,
    }
}

/// A coordinator's side, connected.
/// The machine's address on a network, if it has one: Janus offers no other.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
    // Sends nothing. The address is reserved for documentation.
    let routed = socket.connect("203.0.113.1:9").and_then(|()| socket.local_addr());
    routed.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
}

/// Publishes for a client that has joined a video room.
async fn publish(client: &mut Client) -> Publisher {
    let exchange = async |offer| {
        let (answer, sdp) = client.request(json!({ "request": "publish" }), Some(offer)).await;
        sdp.ok_or(answer)
    };
    Publisher::start(own_address(), exchange).await.unwrap_or_else(|answer| panic!("no answer: {answer}"))
}

async fn server(janus: &Janus, plugin: JanusPlugin) -> JanusServer {
    connected(JanusServer::new(config(janus, plugin)).unwrap()).await
}

async fn connected(server: JanusServer) -> JanusServer {
    let nowhere = router("nowhere");
    eventually(SOON, async || match server.adopt_router(&nowhere).await {
        Err(MediaError::NotFound { what: "room" }) => Ok(()),
        other => Err(other),
    })
    .await;
    server
}

fn router(name: &str) -> Router {
    Router { room: RoomRef::new("app", name), name: name.into(), generation: Generation(1) }
}

fn member(name: &str) -> Member {
    Member { peer: PeerRef::new(name, "1"), name: name.into(), display: None }
}

async fn grant(server: &JanusServer, router: &Router, name: &str) -> Value {
    serde_json::to_value(server.grant(router, &member(name), Permissions::ALL).await.unwrap()).unwrap()
}

fn with(mut grant: Value, field: &str, value: &str) -> Value {
    grant[field] = json!(value);
    grant
}

/// What it says of the one participant who is there.
async fn only(server: &JanusServer, router: &Router) -> Participant {
    let [participant] =
        <[Participant; 1]>::try_from(server.list_participants(router).await.unwrap()).unwrap();
    participant
}

async fn until_it_says(server: &JanusServer, router: &Router, audible: bool, may_publish: Option<bool>) {
    eventually(SOON, async || {
        let said = only(server, router).await;
        let expected = (Some(audible), may_publish);
        if (said.audible, said.may_publish_audio) == expected { Ok(()) } else { Err(said) }
    })
    .await;
}

#[tokio::test]
async fn rooms_are_made_once_found_by_others_and_closed_twice() {
    let janus = Janus::start().await;
    for plugin in PLUGINS {
        let (one, other) = (server(&janus, plugin).await, server(&janus, plugin).await);
        let room = router("room");
        assert_eq!(one.adopt_router(&room).await, Err(MediaError::NotFound { what: "room" }));
        assert_eq!(one.list_participants(&room).await, Err(MediaError::NotFound { what: "room" }));
        let nobody = one.set_permissions(&room, &member("ann"), QUIET).await;
        assert_eq!(nobody, Err(MediaError::NotFound { what: "room" }));
        assert!(one.grant(&room, &member("ann"), Permissions::ALL).await.is_err());
        for server in [&one, &one, &other] {
            server.ensure_router(&room).await.unwrap();
            server.adopt_router(&room).await.unwrap();
        }
        assert_eq!(other.list_participants(&room).await, Ok(Vec::new()));
        for server in [&one, &other] {
            server.set_permissions(&room, &member("ann"), QUIET).await.unwrap();
            server.remove_participant(&room, "ann").await.unwrap();
        }
        let stranger = JanusConfig { room_secret_key: b"another".to_vec(), ..config(&janus, plugin) };
        let stranger = connected(JanusServer::new(stranger).unwrap()).await;
        assert!(matches!(stranger.ensure_router(&room).await, Err(MediaError::Refused { .. })));
        assert!(matches!(stranger.close_router(&room).await, Err(MediaError::Refused { .. })));
        for server in [&one, &other] {
            server.close_router(&room).await.unwrap();
        }
        assert_eq!(one.adopt_router(&room).await, Err(MediaError::NotFound { what: "room" }));
    }
}

#[tokio::test]
async fn nobody_joins_without_their_token_and_who_was_removed_cannot_come_back() {
    let janus = Janus::start().await;
    for (plugin, unauthorised) in [(JanusPlugin::AudioBridge, 489), (JanusPlugin::VideoRoom, 433)] {
        let (server, room) = (server(&janus, plugin).await, router("room"));
        server.ensure_router(&room).await.unwrap();
        let ann = grant(&server, &room, "ann").await;
        assert_eq!(Client::attach(&with(ann.clone(), "apiToken", "none")).await.err(), Some(403));
        let mut client = Client::attach(&ann).await.unwrap();
        assert_eq!(client.join(&json!({ "token": null })).await, Err(unauthorised));
        assert_eq!(client.join(&json!({ "token": "guessed" })).await, Err(unauthorised));
        client.join(&json!({})).await.unwrap();
        assert_eq!(&*only(&server, &room).await.name, "ann");

        server.remove_participant(&room, "ann").await.unwrap();
        eventually(SOON, async || match server.list_participants(&room).await {
            Ok(list) if list.is_empty() => Ok(()),
            other => Err(other),
        })
        .await;
        let mut again = Client::attach(&ann).await.unwrap();
        assert_eq!(again.join(&json!({})).await, Err(unauthorised));
        server.remove_participant(&room, "ann").await.unwrap();
        assert_eq!(grant(&server, &room, "ann").await, ann, "the same for every coordinator");
        again.join(&json!({})).await.unwrap();
    }
}

#[tokio::test]
async fn a_bridge_tells_who_is_heard_and_who_unmuted_themselves() {
    let janus = Janus::start().await;
    let (server, room) = (server(&janus, JanusPlugin::AudioBridge).await, router("room"));
    server.ensure_router(&room).await.unwrap();
    let mut client = Client::attach(&grant(&server, &room, "ann").await).await.unwrap();
    let _flow = client.join_with_rtp().await.unwrap();
    until_it_says(&server, &room, true, Some(true)).await;

    for _ in 0..2 {
        server.set_permissions(&room, &member("ann"), QUIET).await.unwrap();
        until_it_says(&server, &room, false, None).await;
    }
    client.request(json!({ "request": "configure", "muted": false }), None).await;
    until_it_says(&server, &room, true, Some(true)).await;

    server.set_permissions(&room, &member("ann"), QUIET).await.unwrap();
    server.set_permissions(&room, &member("ann"), Permissions::ALL).await.unwrap();
    until_it_says(&server, &room, true, Some(true)).await;
    server.close_router(&room).await.unwrap();
    client.event(|event| (event["plugindata"]["data"]["audiobridge"] == "destroyed").then_some(())).await;
}

#[tokio::test]
async fn a_video_room_tells_who_publishes_and_keeps_who_was_muted_quiet() {
    let janus = Janus::start().await;
    let (server, room) = (server(&janus, JanusPlugin::VideoRoom).await, router("room"));
    server.ensure_router(&room).await.unwrap();
    let mut client = Client::attach(&grant(&server, &room, "ann").await).await.unwrap();
    let joined = client.join(&json!({})).await.unwrap();
    let mut bystander = Client::attach(&grant(&server, &room, "bob").await).await.unwrap();
    assert_eq!(bystander.join(&json!({})).await.unwrap()["publishers"], json!([]));
    server.remove_participant(&room, "bob").await.unwrap();
    until_it_says(&server, &room, false, None).await;
    let publisher = publish(&mut client).await;
    until_it_says(&server, &room, true, Some(true)).await;

    // Who has not joined with a token cannot subscribe either.
    let streams = json!([{ "feed": "ann" }]);
    let mut subscribe =
        json!({ "request": "join", "ptype": "subscriber", "room": "room", "streams": streams });
    let mut listener = Client::attach(&grant(&server, &room, "eve").await).await.unwrap();
    let (refused, _) = listener.request(subscribe.clone(), None).await;
    assert_eq!(refused["error_code"], 433, "{refused}");
    subscribe["private_id"] = joined["private_id"].clone();
    let (attached, offer) = listener.request(subscribe, None).await;
    assert!(attached["videoroom"] == "attached" && offer.is_some(), "{attached}");

    for _ in 0..2 {
        server.set_permissions(&room, &member("ann"), QUIET).await.unwrap();
        until_it_says(&server, &room, false, Some(false)).await;
    }
    client.request(json!({ "request": "configure", "streams": [{ "mid": "0", "send": true }] }), None).await;
    until_it_says(&server, &room, false, Some(false)).await;
    server.set_permissions(&room, &member("ann"), Permissions::ALL).await.unwrap();
    until_it_says(&server, &room, true, Some(true)).await;
    server.set_permissions(&room, &member("ann"), QUIET).await.unwrap();
    until_it_says(&server, &room, false, Some(false)).await;
    drop(publisher);
    // Publishing anew undoes it, which is told as audio that started.
    client.request(json!({ "request": "unpublish" }), None).await;
    until_it_says(&server, &room, false, None).await;
    client.event(|event| (event["janus"] == "hangup").then_some(())).await;
    let _publisher = publish(&mut client).await;
    until_it_says(&server, &room, true, Some(true)).await;
}

#[tokio::test]
async fn a_killed_janus_is_unavailable_and_has_lost_its_rooms_when_it_is_back() {
    let mut janus = Janus::start().await;
    for plugin in PLUGINS {
        let (server, room) = (server(&janus, plugin).await, router("room"));
        server.ensure_router(&room).await.unwrap();
        janus.kill().await;
        let began = Instant::now();
        assert!(matches!(server.health().await, Err(MediaError::Unavailable { .. })));
        assert!(matches!(server.adopt_router(&room).await, Err(MediaError::Unavailable { .. })));
        assert!(began.elapsed() < DEADLINE, "it is known at once");
        janus.restart().await;
        let server = connected(server).await;
        assert_eq!(server.adopt_router(&room).await, Err(MediaError::NotFound { what: "room" }));
        server.ensure_router(&room).await.unwrap();
        server.adopt_router(&room).await.unwrap();
    }
}

#[tokio::test]
async fn a_stopped_janus_costs_one_deadline() {
    let janus = Janus::start().await;
    let without_admin = JanusConfig { admin_url: None, ..config(&janus, JanusPlugin::VideoRoom) };
    let without_admin = connected(JanusServer::new(without_admin).unwrap()).await;
    let (server, room) = (server(&janus, JanusPlugin::AudioBridge).await, router("room"));
    server.ensure_router(&room).await.unwrap();
    assert_eq!(without_admin.health().await.unwrap().participants, None);
    assert_eq!(server.health().await.unwrap().participants, Some(2), "the sessions of both");

    janus.pause().await;
    let late = MediaError::Timeout { after_ms: 2_000 };
    let began = Instant::now();
    let (adopted, health, plain) =
        tokio::join!(server.adopt_router(&room), server.health(), without_admin.health());
    assert_eq!(
        (adopted.err(), health.err(), plain.err()),
        (Some(late.clone()), Some(late.clone()), Some(late))
    );
    assert!(began.elapsed() < DEADLINE * 2);
    janus.resume();
    let server = connected(server).await;
    server.adopt_router(&room).await.unwrap();
    server.health().await.unwrap();
}

#[tokio::test]
async fn a_session_is_kept_alive() {
    let janus = JanusOptions::default().session_timeout_s(5).start().await;
    let server = server(&janus, JanusPlugin::VideoRoom).await;
    let mut idle = Client::attach(&session_grant(&server).await).await.unwrap();
    idle.event(|event| (event["janus"] == "timeout").then_some(())).await;
    assert_eq!(server.health().await.unwrap().participants, Some(1), "the silent one is gone");
    let began = janus.process().log_length();
    server.adopt_router(&router("other")).await.unwrap_err();
    assert!(janus.process().log_lines()[began..].iter().all(|line| !line.contains("Creating new session")));
}

async fn session_grant(server: &JanusServer) -> Value {
    let room = router("other");
    server.ensure_router(&room).await.unwrap();
    let granted = grant(server, &room, "idle").await;
    server.close_router(&room).await.unwrap();
    granted
}

/// Where, to whom, what, and in which incarnation.
type Seen = (NamedRoom, Option<String>, VendorFact, Option<Arc<str>>);

/// Takes what `sampleevh` posts, and reads it.
struct Posts {
    url: String,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Posts {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/rtc/janus/app", listener.local_addr().unwrap());
        let (sender, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some((headers, body)) = post(&mut stream).await {
                        let request = CallbackRequest { headers: &headers, body: &body, now_ms: 0 };
                        for event in JanusCallbacks::new("janus", "word").read(&request).unwrap().events {
                            let who = event.who.map(|who| match who {
                                NamedPeer::Participant(name) => name,
                                NamedPeer::Ours { user, .. } => user,
                            });
                            _ = sender.send((event.room, who, event.what, event.incarnation));
                        }
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                    }
                });
            }
        });
        Self { url, seen }
    }

    fn handler(&self) -> Events {
        let (username, password) = ("janus".to_owned(), "word".to_owned());
        Events::Http { url: self.url.clone(), username, password }
    }

    /// The next of these facts; how loud somebody is, and what is told twice, is passed over.
    async fn expect(&mut self, name: Option<&str>, what: VendorFact) -> Option<Arc<str>> {
        let mut passed = Vec::new();
        loop {
            let next = timeout(SOON, self.seen.recv()).await;
            let (room, who, fact, incarnation) =
                next.unwrap_or_else(|_| panic!("no {what:?}; {passed:?}")).unwrap();
            assert_eq!(room, NamedRoom::Router("room".to_owned()));
            if (who.as_deref(), fact) == (name, what) {
                return incarnation;
            }
            let repeats = [VendorFact::AudioStarted, VendorFact::AudioStopped];
            let is_level = matches!(fact, VendorFact::Level(_));
            assert!(is_level || repeats.contains(&fact), "{fact:?} of {who:?} before {what:?}");
            passed.push((who, fact));
        }
    }
}

async fn post(stream: &mut BufReader<tokio::net::TcpStream>) -> Option<(http::HeaderMap, Vec<u8>)> {
    let mut headers = http::HeaderMap::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.ok()?;
            return Some((headers, body));
        }
        if let Some((name, value)) = line.split_once(": ") {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().unwrap();
            }
            headers.insert(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        }
    }
}

#[tokio::test]
async fn events_of_a_bridge() {
    use VendorFact::{AudioStarted, AudioStopped, ParticipantJoined, RoomExited, RoomFinished};
    let mut posts = Posts::open().await;
    let janus = JanusOptions::default().events(posts.handler()).start().await;
    let (server, room) = (server(&janus, JanusPlugin::AudioBridge).await, router("room"));
    server.ensure_router(&room).await.unwrap();
    let granted = grant(&server, &room, "ann").await;
    let mut client = Client::attach(&granted).await.unwrap();
    let flow = client.join_with_rtp().await.unwrap();
    let incarnation = posts.expect(Some("ann"), ParticipantJoined).await;
    assert!(incarnation.is_some());
    for (muted, fact) in [(true, AudioStopped), (false, AudioStarted)] {
        client.request(json!({ "request": "configure", "muted": muted }), None).await;
        assert_eq!(posts.expect(Some("ann"), fact).await, incarnation);
    }
    server.set_permissions(&room, &member("ann"), QUIET).await.unwrap();
    assert_eq!(posts.expect(Some("ann"), AudioStopped).await, None, "not of the coordinator's handle");
    server.set_permissions(&room, &member("ann"), Permissions::ALL).await.unwrap();
    until_it_says(&server, &room, true, Some(true)).await;
    server.remove_participant(&room, "ann").await.unwrap();
    assert_eq!(posts.expect(Some("ann"), RoomExited).await, None);
    assert_eq!(posts.expect(Some("ann"), RoomExited).await, None, "kicked, and then left");
    drop(flow);
    server.close_router(&room).await.unwrap();
    posts.expect(None, RoomFinished).await;
}

#[tokio::test]
async fn events_of_a_video_room() {
    use VendorFact::{AudioStarted, AudioStopped, ParticipantJoined, RoomExited, RoomFinished};
    let mut posts = Posts::open().await;
    let janus = JanusOptions::default().events(posts.handler()).start().await;
    let (server, room) = (server(&janus, JanusPlugin::VideoRoom).await, router("room"));
    server.ensure_router(&room).await.unwrap();
    let mut client = Client::attach(&grant(&server, &room, "ann").await).await.unwrap();
    client.join(&json!({})).await.unwrap();
    let incarnation = posts.expect(Some("ann"), ParticipantJoined).await;
    assert!(incarnation.is_some());
    let mut publisher = publish(&mut client).await;
    assert_eq!(posts.expect(Some("ann"), AudioStarted).await, incarnation, "published");
    assert_eq!(posts.expect(Some("ann"), AudioStarted).await, incarnation, "packets arrive");
    publisher.hush();
    assert_eq!(posts.expect(Some("ann"), AudioStopped).await, incarnation, "none do any more");
    publisher.speak();
    posts.expect(Some("ann"), AudioStarted).await;
    until("ann is heard", SOON, async || only(&server, &room).await.audible == Some(true)).await;
    server.set_permissions(&room, &member("ann"), QUIET).await.unwrap();
    assert_eq!(posts.expect(Some("ann"), AudioStopped).await, None, "moderated");
    server.remove_participant(&room, "ann").await.unwrap();
    posts.expect(Some("ann"), RoomExited).await;
    server.close_router(&room).await.unwrap();
    posts.expect(None, RoomFinished).await;
}
