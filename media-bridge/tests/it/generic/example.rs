//! The example of `docs/media/mediasoup`, its engine replaced by one that only remembers, as a process of its own.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use media_bridge::{
    CallbackReader as _, CallbackRequest, GenericCallbacks, GenericConfig, GenericServer, MediaError,
    MediaServer as _, NamedPeer, NamedRoom, VendorEvent, VendorFact,
};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::{SECRET, config, live, member, router};

const BUNDLER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../client/node_modules/.bin/esbuild");
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/media/mediasoup/test/stand_in.ts");
const BUNDLE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/media-stand-in.mjs");
const PATIENCE: Duration = Duration::from_secs(20);

fn now_ms() -> u64 {
    u64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

/// The process, until it is dropped, and where it listens.
async fn start(events: &str) -> (Child, String) {
    let bundled = Command::new(BUNDLER)
        .args([SOURCE, "--bundle", "--platform=node", "--format=esm", "--log-level=warning"])
        .arg(format!("--outfile={BUNDLE}"))
        .status()
        .await
        .expect("esbuild is not there; `cargo xtask console` installs it");
    assert!(bundled.success());
    let mut node = Command::new("node")
        .args([BUNDLE, SECRET, events])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    let port = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    (node, format!("http://127.0.0.1:{port}"))
}

#[derive(Debug)]
struct Receiver {
    /// Ids of the first facts, which were not taken.
    refused: Mutex<Option<Vec<String>>>,
    taken: mpsc::UnboundedSender<VendorEvent>,
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let request = CallbackRequest { headers: &headers, body: &body, now_ms: now_ms() };
    let Ok(callback) = GenericCallbacks::new(SECRET).read(&request) else { return StatusCode::UNAUTHORIZED };
    assert_eq!(callback.unknown, 0);
    let is_level = |event: &VendorEvent| matches!(event.what, VendorFact::Level(_));
    let mut refused = receiver.refused.lock().unwrap();
    if refused.is_none() && !callback.events.iter().any(is_level) {
        *refused = Some(callback.events.into_iter().map(|event| event.id).collect());
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    callback.events.into_iter().for_each(|event| receiver.taken.send(event).unwrap());
    StatusCode::OK
}

#[tokio::test]
async fn the_example_does_what_it_is_asked_and_tells_what_happened() {
    let (taken, mut told) = mpsc::unbounded_channel();
    let receiver = Arc::new(Receiver { refused: Mutex::new(None), taken });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let events = format!("http://{}/rtc/generic/school", listener.local_addr().unwrap());
    let app = axum::Router::new()
        .route("/rtc/generic/school", axum::routing::post(receive))
        .with_state(Arc::clone(&receiver));
    let receiving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let (_node, url) = start(&events).await;
    let config = GenericConfig { clock: Arc::new(|| i64::try_from(now_ms()).unwrap()), ..config(url) };

    let server = GenericServer::new(config.clone()).unwrap();
    live(&server).await;
    let stale = MediaError::StaleGeneration { current: 9, asked: 8 };
    server.ensure_router(&router(9)).await.unwrap();
    assert_eq!(server.ensure_router(&router(8)).await, Err(stale));
    let refused = Err(MediaError::Refused { reason: "401 to: find a router".to_owned() });
    for (what, stranger) in [
        (
            "secret",
            GenericConfig { secret: "another secret that is long enough".to_owned(), ..config.clone() },
        ),
        ("time", GenericConfig { clock: Arc::new(|| i64::try_from(now_ms()).unwrap() - 302_000), ..config }),
    ] {
        assert_eq!(GenericServer::new(stranger).unwrap().adopt_router(&router(9)).await, refused, "{what}");
    }

    let (mut facts, mut levels) = (Vec::new(), Vec::new());
    while facts.len() < 5 || levels.is_empty() {
        let event = tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
        assert_eq!(event.room, NamedRoom::Router(router(3).name.to_string()));
        match event.what {
            VendorFact::Level(level) => levels.push(level),
            _ => facts.push(event),
        }
    }
    receiving.abort();
    let kinds: Vec<VendorFact> = facts.iter().map(|event| event.what).collect();
    assert_eq!(
        kinds,
        [
            VendorFact::ParticipantJoined,
            VendorFact::AudioStarted,
            VendorFact::AudioStopped,
            VendorFact::RoomExited,
            VendorFact::RoomFinished,
        ]
    );
    assert_eq!(levels, [0.5]);
    let (finished, rest) = facts.split_last().unwrap();
    assert_eq!(finished.who, None);
    for event in rest {
        assert_eq!(event.who, Some(NamedPeer::Participant(member("ann").name.to_string())));
        assert_eq!(event.incarnation.as_deref(), Some(&*format!("s-{}", member("ann").name)));
    }
    let refused = receiver.refused.lock().unwrap().clone().unwrap();
    let ids: Vec<&String> = facts.iter().map(|event| &event.id).collect();
    assert!(ids.starts_with(&refused.iter().collect::<Vec<_>>()), "{refused:?} are repeated as {ids:?}");
}
