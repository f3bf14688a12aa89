//! The adapter of LiveKit beside a real one.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router as Routes;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use e2e::http::Response;
use e2e::livekit::{API_KEY, API_SECRET, LiveKit};
use e2e::wait::{self, SOON};
use http::HeaderMap;
use media_bridge::{
    CallbackReader as _, CallbackRequest, ClockMs, Generation, Grant, GrantBody, LivekitCallbacks,
    LivekitConfig, LivekitServer, MediaError, MediaServer as _, Member, NamedPeer, NamedRoom, Participant,
    PeerRef, Permissions, RoomRef, Router, VendorEvent, VendorFact,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::publisher::Publisher;

const MUTED: Permissions = Permissions { publish_audio: false, publish_video: true, subscribe: true };

fn now_ms() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("a time after 1970");
    i64::try_from(since.as_millis()).expect("a time of this age")
}

fn config(livekit: &LiveKit) -> LivekitConfig {
    let clock: ClockMs = Arc::new(now_ms);
    LivekitConfig {
        url: livekit.url(),
        public_url: None,
        api_key: API_KEY.to_owned(),
        api_secret: API_SECRET.to_owned(),
        token_ttl: Duration::from_secs(600),
        deadline: SOON,
        clock,
    }
}

fn router(name: &str) -> Router {
    Router { room: RoomRef::new("app", name), name: name.into(), generation: Generation(1) }
}

fn member(name: &str) -> Member {
    let peer = PeerRef::new(format!("user of {name}"), format!("peer of {name}"));
    Member { peer, name: name.into(), display: Some(format!("{name} ♪").into()) }
}

fn token(grant: &Grant) -> String {
    let GrantBody::Livekit { token, .. } = &grant.body else { panic!("{grant:?}") };
    token.clone()
}

/// The status with which LiveKit answers its clients when they ask what is wrong with a token.
/// Publishes by WHIP, which LiveKit takes with the token of a grant.
async fn publish(livekit: &LiveKit, token: &str) -> Result<Publisher, Response> {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", &*authorization), ("content-type", "application/sdp")];
    let url = format!("{}/whip/v1", livekit.url());
    let exchange = async |offer: String| {
        let answer = e2e::http::request("POST", &url, &headers, &offer).await.expect("an answer");
        if answer.status == 201 { Ok(answer.body) } else { Err(answer) }
    };
    Publisher::start(Ipv4Addr::LOCALHOST.into(), exchange).await
}

async fn may_join(livekit: &LiveKit, grant: &Grant) -> u16 {
    let url = format!("{}/rtc/validate?access_token={}", livekit.url(), token(grant));
    e2e::http::get(&url).await.expect("an answer").status
}

async fn named(server: &LivekitServer, router: &Router, name: &str) -> Option<Participant> {
    let list = server.list_participants(router).await.expect("a list");
    list.into_iter().find(|participant| &*participant.name == name)
}

/// Waits until what is listed of somebody is so.
async fn listed(server: &LivekitServer, router: &Router, name: &str, so: impl Fn(&Participant) -> bool) {
    wait::eventually(SOON, || async {
        let participant = named(server, router, name).await;
        participant.as_ref().is_some_and(&so).then_some(()).ok_or(participant)
    })
    .await;
}

/// What LiveKit posts, in the order in which it comes.
struct Webhooks {
    url: String,
    received: mpsc::UnboundedReceiver<(HeaderMap, Bytes)>,
}

impl Webhooks {
    async fn open() -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let take = async |State(sender): State<mpsc::UnboundedSender<_>>, headers: HeaderMap, body: Bytes| {
            _ = sender.send((headers, body));
        };
        let routes = Routes::new().route("/rtc/livekit/app", post(take)).with_state(sender);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let url = format!("http://{address}/rtc/livekit/app");
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, received }
    }

    /// The next event that matters to a room.
    async fn event(&mut self) -> VendorEvent {
        let reader = LivekitCallbacks { keys: vec![(API_KEY.to_owned(), API_SECRET.to_owned())] };
        loop {
            let (headers, body) =
                tokio::time::timeout(SOON, self.received.recv()).await.ok().flatten().expect("a webhook");
            let now_ms = now_ms().try_into().expect("a time after 1970");
            let request = CallbackRequest { headers: &headers, body: &body, now_ms };
            let mut read = reader.read(&request).expect("a webhook that LiveKit signed");
            assert_eq!(read.events.len() + read.unknown, 1, "{read:?}");
            if let Some(event) = read.events.pop() {
                assert!(event.id.starts_with("EV_"), "{event:?}");
                assert!(event.at_ms.abs_diff(now_ms) < 60_000, "{event:?}");
                return event;
            }
        }
    }

    /// The next event is this one; gives the incarnation that it names.
    async fn expect(&mut self, router: &Router, name: &str, what: VendorFact) -> Option<Arc<str>> {
        let (said, incarnation) = self.of(router, name).await;
        assert_eq!(said, what);
        incarnation
    }

    /// The next two events are that somebody came and is heard, in whichever order LiveKit saw them.
    async fn expect_speaker(&mut self, router: &Router, name: &str) -> Option<Arc<str>> {
        let (first, second) = (self.of(router, name).await, self.of(router, name).await);
        assert_eq!(first.1, second.1);
        let both = [first.0, second.0];
        let either = [VendorFact::ParticipantJoined, VendorFact::AudioStarted];
        assert!(both == either || both == [either[1], either[0]], "{both:?}");
        first.1
    }

    async fn of(&mut self, router: &Router, name: &str) -> (VendorFact, Option<Arc<str>>) {
        let event = self.event().await;
        let who = Some(NamedPeer::Participant(name.to_owned()));
        let room = NamedRoom::Router(router.name.to_string());
        assert_eq!((&event.room, &event.who), (&room, &who), "{event:?}");
        (event.what, event.incarnation)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_room_is_made_found_and_closed() {
    let Some(mut livekit) = LiveKit::start(&[]).await else { return };
    let server = LivekitServer::new(config(&livekit)).unwrap();
    let (router, none) = (router("room"), router("none"));
    let not_found = Err(MediaError::NotFound { what: "room" });

    assert_eq!(server.adopt_router(&router).await, not_found);
    assert_eq!(server.list_participants(&router).await.map(drop), not_found);
    for _ in 0..2 {
        server.ensure_router(&router).await.unwrap();
    }
    server.adopt_router(&router).await.unwrap();
    assert_eq!(server.list_participants(&router).await.unwrap(), []);
    assert_eq!(server.health().await.unwrap().participants, Some(0));

    // Whoever is not there has nothing that could be changed or ended; a room that is not there has nobody.
    server.set_permissions(&router, &member("ann"), MUTED).await.unwrap();
    server.remove_participant(&router, "ann").await.unwrap();
    assert_eq!(server.set_permissions(&none, &member("ann"), MUTED).await, not_found);
    server.remove_participant(&none, "ann").await.unwrap();

    for _ in 0..2 {
        server.close_router(&router).await.unwrap();
        assert_eq!(server.adopt_router(&router).await, not_found);
    }

    server.ensure_router(&router).await.unwrap();
    livekit.restart().await;
    assert_eq!(server.adopt_router(&router).await, not_found);
    server.ensure_router(&router).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_comes_speaks_is_muted_and_goes() {
    let mut webhooks = Webhooks::open().await;
    let Some(livekit) = LiveKit::start(&[&webhooks.url]).await else { return };
    let server = LivekitServer::new(config(&livekit)).unwrap();
    let router = router("room");
    server.ensure_router(&router).await.unwrap();

    let ann = member("ann");
    let grant = server.grant(&router, &ann, Permissions::ALL).await.unwrap();
    let publisher = publish(&livekit, &token(&grant)).await.unwrap();
    let first = webhooks.expect_speaker(&router, "ann").await;
    assert!(first.is_some());
    listed(&server, &router, "ann", |ann| ann.audible == Some(true)).await;
    let there = named(&server, &router, "ann").await.unwrap();
    assert_eq!((there.incarnation, there.may_publish_audio), (first.clone(), Some(true)));
    wait::eventually(SOON, || async {
        let load = server.health().await.unwrap();
        (load.participants == Some(1)).then_some(()).ok_or(load)
    })
    .await;

    // Who may not speak has no track left that could be heard.
    server.set_permissions(&router, &ann, MUTED).await.unwrap();
    webhooks.expect(&router, "ann", VendorFact::AudioStopped).await;
    listed(&server, &router, "ann", |ann| ann.audible == Some(false) && ann.may_publish_audio == Some(false))
        .await;
    server.set_permissions(&router, &ann, Permissions::ALL).await.unwrap();
    listed(&server, &router, "ann", |ann| ann.may_publish_audio == Some(true)).await;

    server.remove_participant(&router, "ann").await.unwrap();
    assert_eq!(webhooks.expect(&router, "ann", VendorFact::RoomExited).await, first);
    assert_eq!(named(&server, &router, "ann").await, None);
    drop(publisher);

    // The same name again is another incarnation.
    let _back = publish(&livekit, &token(&grant)).await.unwrap();
    let second = webhooks.expect_speaker(&router, "ann").await;
    assert_ne!(first, second);
    server.close_router(&router).await.unwrap();
    webhooks.expect(&router, "ann", VendorFact::AudioStopped).await;
    assert_eq!(webhooks.expect(&router, "ann", VendorFact::RoomExited).await, second);
    let finished = webhooks.event().await;
    assert_eq!((finished.who, finished.what), (None, VendorFact::RoomFinished));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_covers_what_it_says_and_nothing_else() {
    let Some(livekit) = LiveKit::start(&[]).await else { return };
    let server = LivekitServer::new(config(&livekit)).unwrap();
    let (made, other) = (router("made"), router("other"));
    server.ensure_router(&made).await.unwrap();

    let ann = member("ann");
    let listener = server.grant(&made, &ann, Permissions::LISTEN).await.unwrap();
    let GrantBody::Livekit { url, room, identity, .. } = &listener.body else { panic!("{listener:?}") };
    assert_eq!(*url, livekit.url().replace("http", "ws"));
    assert_eq!((&**room, &**identity), ("made", "ann"));
    assert_eq!(may_join(&livekit, &listener).await, 200);
    let _listener = publish(&livekit, &token(&listener)).await.unwrap();
    let is_silent = |ann: &Participant| (ann.audible, ann.may_publish_audio) == (Some(false), Some(false));
    listed(&server, &made, "ann", is_silent).await;

    // Rooms are made by coordinators, not by whoever comes with a token.
    let early = server.grant(&other, &ann, Permissions::ALL).await.unwrap();
    assert_eq!(may_join(&livekit, &early).await, 404);

    let api_secret = "another secret, of thirty-two bytes".to_owned();
    let stranger = LivekitServer::new(LivekitConfig { api_secret, ..config(&livekit) }).unwrap();
    let forged = stranger.grant(&made, &member("eve"), Permissions::ALL).await.unwrap();
    assert_eq!(may_join(&livekit, &forged).await, 401);
    let refused = stranger.ensure_router(&made).await.unwrap_err();
    assert_eq!(refused, MediaError::Refused { reason: "CreateRoom: status 401".to_owned() });
    assert!(matches!(stranger.health().await, Err(MediaError::Refused { .. })));

    let past: ClockMs = Arc::new(|| now_ms() - 662_000);
    let slow = LivekitServer::new(LivekitConfig { clock: past, ..config(&livekit) }).unwrap();
    let expired = slow.grant(&made, &ann, Permissions::ALL).await.unwrap();
    assert_eq!(may_join(&livekit, &expired).await, 401);

    // Tokens of members open nothing of the API.
    let authorization =
        format!("Bearer {}", token(&server.grant(&made, &ann, Permissions::ALL).await.unwrap()));
    let url = format!("{}/twirp/livekit.RoomService/DeleteRoom", livekit.url());
    let headers = [("authorization", &*authorization), ("content-type", "application/json")];
    let answer = e2e::http::request("POST", &url, &headers, r#"{"room":"made"}"#).await.unwrap();
    assert_eq!(answer.status, 401, "{answer:?}");
    server.adopt_router(&made).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_told_from_absence() {
    let Some(mut livekit) = LiveKit::start(&[]).await else { return };
    let deadline = Duration::from_millis(500);
    let server = LivekitServer::new(LivekitConfig { deadline, ..config(&livekit) }).unwrap();
    let router = router("room");
    wait::eventually(SOON, || server.ensure_router(&router)).await;

    livekit.pause();
    let late = Err(MediaError::Timeout { after_ms: 500 });
    // Its threads stop one after another.
    wait::until("silence", SOON, || async { server.health().await.map(drop) == late }).await;
    assert_eq!(server.list_participants(&router).await.map(drop), late);
    assert_eq!(server.close_router(&router).await, late);
    livekit.resume();
    wait::eventually(SOON, || server.ensure_router(&router)).await;

    livekit.kill().await;
    assert!(matches!(server.health().await, Err(MediaError::Unavailable { .. })));
    assert!(matches!(server.ensure_router(&router).await, Err(MediaError::Unavailable { .. })));
    livekit.restart().await;
    wait::eventually(SOON, || server.ensure_router(&router)).await;
}
