//! A Janus that does what it is told to, where the real one would do so only by chance.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use super::*;
use crate::{Generation, PeerRef, RoomRef};

const DEADLINE: Duration = Duration::from_millis(400);
const SECRET: &str = "a secret of the API";

fn config(url: String, plugin: JanusPlugin) -> JanusConfig {
    JanusConfig {
        url,
        public_url: Some("wss://janus.example/".to_owned()),
        admin_url: None,
        api_secret: Some(SECRET.to_owned()),
        admin_secret: None,
        admin_key: Some("a key".to_owned()),
        api_tokens: None,
        plugin,
        plain_rtp: false,
        room_secret_key: b"key".to_vec(),
        deadline: DEADLINE,
    }
}

fn router() -> Router {
    Router { room: RoomRef::new("app", "room"), name: "r".into(), generation: Generation(2) }
}

fn member(name: &str) -> Member {
    Member { peer: PeerRef::new("user", "peer"), name: name.into(), display: None }
}

/// Accepts connections, and answers by the script: the messages that follow a request, which lack only what repeats
/// it. Reports the requests.
struct Fake {
    url: String,
    requests: mpsc::UnboundedReceiver<Value>,
}

impl Fake {
    async fn start(script: fn(&Value) -> Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(accept(stream).await, script, sender.clone()));
            }
        });
        Self { url, requests }
    }

    /// The next request about a room.
    async fn asked(&mut self) -> Value {
        loop {
            let request = self.requests.recv().await.unwrap();
            if request["janus"] == "message" {
                assert_eq!(request["apisecret"], SECRET);
                return request["body"].clone();
            }
        }
    }
}

#[expect(clippy::result_large_err, reason = "the type of the handshake's callback")]
async fn accept(stream: TcpStream) -> WebSocketStream<TcpStream> {
    let protocol = |request: &Request, mut response: Response| {
        let protocol = request.headers()["sec-websocket-protocol"].clone();
        assert_eq!(protocol, "janus-protocol");
        response.headers_mut().insert("sec-websocket-protocol", protocol);
        Ok(response)
    };
    accept_hdr_async(stream, protocol).await.unwrap()
}

async fn serve(
    mut socket: WebSocketStream<TcpStream>,
    script: fn(&Value) -> Vec<Value>,
    requests: mpsc::UnboundedSender<Value>,
) {
    while let Some(Ok(Message::Text(text))) = socket.next().await {
        let request: Value = serde_json::from_str(&text).unwrap();
        let answers = match request["janus"].as_str().unwrap() {
            "create" => vec![json!({ "janus": "success", "data": { "id": 1 } })],
            "attach" => vec![json!({ "janus": "success", "data": { "id": 2 } })],
            "keepalive" => vec![json!({ "janus": "ack" })],
            _ => script(&request),
        };
        for mut answer in answers {
            answer["transaction"] = request["transaction"].clone();
            socket.send(Message::text(answer.to_string())).await.unwrap();
        }
        _ = requests.send(request);
    }
}

fn data(data: &Value) -> Value {
    json!({ "janus": "success", "plugindata": { "data": data } })
}

#[tokio::test]
async fn a_grant_is_all_that_a_browser_needs_and_no_more() {
    let mut fake = Fake::start(|_| vec![data(&json!({ "audiobridge": "success" }))]).await;
    let server = JanusServer::new(config(fake.url.clone(), JanusPlugin::AudioBridge)).unwrap();
    let grant = server.grant(&router(), &member("ann"), Permissions::ALL).await.unwrap();
    let asked = fake.asked().await;
    let token = &asked["allowed"][0];
    let expected = json!({
        "generation": 2, "iceServers": [], "kind": "janus", "url": "wss://janus.example/",
        "plugin": "audiobridge", "room": "r", "id": "ann", "token": token, "opaqueId": "r/ann",
    });
    assert_eq!(serde_json::to_value(&grant).unwrap(), expected);
    assert_eq!((&asked["request"], &asked["action"]), (&json!("allowed"), &json!("add")));
    let secret = asked["secret"].as_str().unwrap();
    assert_ne!(token, secret);
    assert!(!format!("{server:?}").contains(SECRET));
    let again = server.grant(&router(), &member("ann"), Permissions::LISTEN).await.unwrap();
    assert_eq!(again, grant, "granting again is the same");
}

#[tokio::test]
async fn an_event_may_come_before_its_acknowledgement() {
    let mut fake = Fake::start(|request| match request["body"]["request"].as_str() {
        Some("listparticipants") => {
            vec![data(&json!({ "participants": [{ "id": "ann", "publisher": true }, { "id": "bob", "publisher": false }] }))]
        }
        Some("join") => {
            let streams = json!([
                { "type": "video", "mid": "0" },
                { "type": "audio", "mid": "1", "moderated": true },
                { "type": "audio", "mid": "2" },
            ]);
            let joined = json!({ "publishers": [{ "id": "ann", "streams": streams }] });
            vec![json!({ "janus": "event", "plugindata": { "data": joined } }), json!({ "janus": "ack" })]
        }
        Some("moderate") => vec![data(&json!({ "videoroom": "success" }))],
        _ => vec![json!({ "janus": "success" })],
    })
    .await;
    let server = JanusServer::new(config(fake.url.clone(), JanusPlugin::VideoRoom)).unwrap();
    let list = server.list_participants(&router()).await.unwrap();
    let seen: Vec<_> = list.iter().map(|one| (&*one.name, one.audible, one.may_publish_audio)).collect();
    assert_eq!(seen, [("ann", Some(true), Some(true)), ("bob", Some(false), None)]);
    for request in ["listparticipants", "join"] {
        assert_eq!(fake.asked().await["request"], request);
    }
    let quiet = Permissions { publish_audio: false, ..Permissions::ALL };
    server.set_permissions(&router(), &member("ann"), quiet).await.unwrap();
    assert_eq!(fake.asked().await["request"], "join");
    let asked = fake.asked().await;
    assert_eq!(
        (&asked["mid"], &asked["mute"]),
        (&json!("2"), &json!(true)),
        "what is so already is left alone"
    );
}

#[tokio::test]
async fn one_transaction_without_an_answer_ends_the_connection() {
    let mut fake = Fake::start(|request| match request["body"]["request"].as_str() {
        Some("destroy") => Vec::new(),
        _ => vec![data(&json!({ "participants": [] }))],
    })
    .await;
    let server = JanusServer::new(config(fake.url.clone(), JanusPlugin::AudioBridge)).unwrap();
    let late = Err(MediaError::Timeout { after_ms: 400 });
    assert_eq!(server.close_router(&router()).await, late);
    fake.asked().await;
    while fake.requests.recv().await.unwrap()["janus"] != "create" {}
    assert_eq!(server.list_participants(&router()).await, Ok(Vec::new()), "by another connection");
}

#[tokio::test]
async fn errors_say_no_names_and_what_is_gone_is_gone() {
    let fake = Fake::start(|request| {
        let code = match request["body"]["request"].as_str() {
            Some("destroy" | "kick" | "allowed") => 485,
            Some("mute") => 492,
            _ => 489,
        };
        vec![data(&json!({ "error_code": code, "error": "something about ann" }))]
    })
    .await;
    let server = JanusServer::new(config(fake.url, JanusPlugin::AudioBridge)).unwrap();
    assert_eq!(server.close_router(&router()).await, Ok(()));
    assert_eq!(server.remove_participant(&router(), "ann").await, Ok(()));
    assert_eq!(server.set_permissions(&router(), &member("ann"), Permissions::LISTEN).await, Ok(()));
    assert_eq!(server.adopt_router(&router()).await, Err(MediaError::NotFound { what: "room" }));
    let refused = MediaError::Refused { reason: "create: error 489".to_owned() };
    assert_eq!(server.ensure_router(&router()).await, Err(refused));
}

#[tokio::test]
async fn nobody_there_is_unavailable_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    drop(listener);
    let server = JanusServer::new(config(url, JanusPlugin::VideoRoom)).unwrap();
    let began = Instant::now();
    assert!(matches!(server.health().await, Err(MediaError::Unavailable { .. })));
    assert!(began.elapsed() < DEADLINE);
}

#[tokio::test]
async fn what_cannot_work_is_refused_without_its_secrets() {
    let good = "ws://127.0.0.1:8188";
    for url in ["wss://host", "http://host", "ws://user:pass@host", "janus"] {
        let error = JanusServer::new(config(url.to_owned(), JanusPlugin::VideoRoom)).unwrap_err();
        assert!(matches!(&error, MediaError::Refused { reason } if !reason.contains("pass")), "{error}");
    }
    let with_admin = |url: &str| JanusConfig {
        admin_url: Some(url.to_owned()),
        ..config(good.to_owned(), JanusPlugin::VideoRoom)
    };
    assert!(JanusServer::new(with_admin("ws://host/admin")).is_err());
    assert!(JanusServer::new(with_admin("http://host/admin")).is_ok());
    let debug = format!("{:?}", with_admin("http://host/admin"));
    assert!(!debug.contains(SECRET) && !debug.contains("a key"), "{debug}");
}
