use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::{LivekitCallbacks, LivekitConfig, LivekitServer, MOST_FOR_LOAD, jwt};
use super::{KEY, SECRET, with};
use crate::{
    Generation, GrantBody, MediaError, MediaServer as _, Member, PeerRef, Permissions, RoomRef, Router,
};

fn config(url: &str) -> LivekitConfig {
    LivekitConfig {
        url: url.to_owned(),
        public_url: None,
        api_key: KEY.to_owned(),
        api_secret: SECRET.to_owned(),
        token_ttl: Duration::from_secs(3_600),
        deadline: Duration::from_secs(5),
        clock: Arc::new(|| 1_760_000_000_999),
    }
}

fn server(url: &str) -> LivekitServer {
    LivekitServer::new(config(url)).unwrap()
}

fn router() -> Router {
    Router { room: RoomRef::new("app", "7"), name: "ward".into(), generation: Generation(3) }
}

fn member() -> Member {
    Member { peer: PeerRef::new("u1", "p1"), name: "alice".into(), display: Some("Alice".into()) }
}

fn payload(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

#[tokio::test]
async fn a_grant_is_a_token_to_join_one_room_as_one_participant() {
    let server = server("https://media.example/");
    let (router, member) = (router(), member());
    let grant = server.grant(&router, &member, Permissions::ALL).now_or_never();
    let grant = grant.expect("ready at once").unwrap();
    assert_eq!((grant.generation, grant.ice_servers.len()), (Generation(3), 0));
    let GrantBody::Livekit { url, room, identity, token } = grant.body else { panic!("{grant:?}") };
    assert_eq!((&*url, &*room, &*identity), ("wss://media.example", "ward", "alice"));
    assert!(jwt::verify(&token, &[(KEY.into(), SECRET.into())], 1_760_000_000_000).is_ok());
    let expected = json!({
        "iss": KEY,
        "sub": "alice",
        "nbf": 1_760_000_000,
        "exp": 1_760_003_600,
        "name": "Alice",
        "attributes": { "user": "u1", "peer": "p1" },
        "video": {
            "roomJoin": true,
            "room": "ward",
            "canPublish": true,
            "canPublishSources": ["microphone", "camera", "screen_share", "screen_share_audio"],
            "canSubscribe": true,
            "canPublishData": false,
            "canUpdateOwnMetadata": false,
        },
    });
    assert_eq!(payload(&token), expected);
}

#[tokio::test]
async fn a_token_says_what_it_does_not_allow() {
    let server = server("http://media.example/livekit");
    let cases = [
        ((false, false, true), json!([])),
        ((true, false, true), json!(["microphone"])),
        ((false, true, false), json!(["camera", "screen_share"])),
    ];
    for ((publish_audio, publish_video, subscribe), sources) in cases {
        let permissions = Permissions { publish_audio, publish_video, subscribe };
        let nameless = Member { display: None, ..member() };
        let grant = server.grant(&router(), &nameless, permissions).await.unwrap();
        let GrantBody::Livekit { url, token, .. } = grant.body else { panic!("{grant:?}") };
        assert_eq!(url, "ws://media.example/livekit");
        let claims = payload(&token);
        assert_eq!(claims["video"]["canPublish"], publish_audio || publish_video);
        assert_eq!(claims["video"]["canPublishSources"], sources);
        assert_eq!(claims["video"]["canSubscribe"], subscribe);
        assert_eq!(claims.get("name"), None);
    }
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let new = |change: &dyn Fn(&mut LivekitConfig)| {
        let mut config = config("http://127.0.0.1:7880");
        change(&mut config);
        LivekitServer::new(config).map(drop)
    };
    assert_eq!(new(&|_| {}), Ok(()));
    assert_eq!(new(&|config| config.public_url = Some("wss://rtc.example:443/a".into())), Ok(()));
    let changes: [&dyn Fn(&mut LivekitConfig); 8] = [
        &|config| config.url = "ws://127.0.0.1:7880".into(),
        &|config| config.url = "127.0.0.1".into(),
        &|config| config.url = "http://user:password@127.0.0.1".into(),
        &|config| config.url = "http://127.0.0.1/?a=b".into(),
        &|config| config.public_url = Some("http://127.0.0.1".into()),
        &|config| config.public_url = Some("wss://".into()),
        &|config| config.api_key.clear(),
        &|config| config.api_secret.clear(),
    ];
    for (at, change) in changes.iter().enumerate() {
        let Err(MediaError::Refused { reason }) = new(change) else { panic!("change {at}") };
        assert!(!reason.contains("password"), "{reason}");
    }
}

#[test]
fn nothing_secret_is_shown() {
    let server = LivekitServer::new(LivekitConfig {
        api_key: "the key".to_owned(),
        api_secret: "the secret".to_owned(),
        ..config("http://the.host")
    });
    let callbacks = LivekitCallbacks { keys: vec![("the key".into(), "the secret".into())] };
    let shown = format!("{:?} {callbacks:?}", server.unwrap());
    assert!(!shown.contains("the key") && !shown.contains("the secret"), "{shown}");
}

/// Answers one request with this status and body, and gives the request.
async fn answers(status: u16, body: &str) -> (LivekitServer, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = server(&format!("http://{}/under", listener.local_addr().unwrap()));
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        // Every request has a body, and ends with its closing brace.
        while !request.ends_with(b"}") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the whole request");
        }
        // Whoever asked need not read all of it.
        _ = stream.write_all(answer.as_bytes()).await;
        String::from_utf8(request).unwrap()
    });
    (server, asked)
}

#[tokio::test]
async fn a_call_says_what_it_needs_and_may_do_no_more() {
    let (server, asked) = answers(200, r#"{"name":"ward"}"#).await;
    server.ensure_router(&router()).await.unwrap();
    let request = asked.await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /under/twirp/livekit.RoomService/CreateRoom HTTP/1.1\r\n"), "{head}");
    let token = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap();
    let expected =
        json!({ "iss": KEY, "nbf": 1_760_000_000, "exp": 1_760_000_060, "video": { "roomCreate": true } });
    assert_eq!(payload(token), expected);
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body, json!({ "name": "ward", "empty_timeout": 86_400, "departure_timeout": 86_400 }));

    let (server, asked) = answers(200, "{}").await;
    server.remove_participant(&router(), "alice").await.unwrap();
    let request = asked.await.unwrap();
    let token = request.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap();
    assert_eq!(payload(token)["video"], json!({ "roomAdmin": true, "room": "ward" }));
}

#[tokio::test]
async fn faults_are_told_apart() {
    let refused = |reason: &str| MediaError::Refused { reason: format!("DeleteRoom: {reason}") };
    let unavailable = |reason: &str| MediaError::unavailable(format!("DeleteRoom: {reason}"));
    let twirp = |code: &str| json!({ "code": code, "msg": "about alice and her token" }).to_string();
    let cases = [
        (200, "{}".to_owned(), Ok(())),
        (404, twirp("not_found"), Ok(())),
        (404, "404 page not found".to_owned(), Err(refused("status 404"))),
        (404, twirp("bad_route"), Err(refused("bad_route"))),
        (401, twirp("unauthenticated"), Err(refused("unauthenticated"))),
        (401, "invalid token: eyJ".to_owned(), Err(refused("status 401"))),
        (400, twirp("invalid_argument"), Err(refused("invalid_argument"))),
        (400, twirp("Alice"), Err(refused("status 400"))),
        (501, twirp("unimplemented"), Err(refused("unimplemented"))),
        (302, String::new(), Err(refused("status 302"))),
        (200, "<html>".to_owned(), Err(refused("not an answer of LiveKit"))),
        (503, twirp("unavailable"), Err(unavailable("unavailable"))),
        (500, twirp("internal"), Err(unavailable("internal"))),
        (429, "later".to_owned(), Err(unavailable("status 429"))),
        (408, twirp("deadline_exceeded"), Err(unavailable("deadline_exceeded"))),
    ];
    for (status, body, expected) in cases {
        let (server, asked) = answers(status, &body).await;
        assert_eq!(server.close_router(&router()).await, expected, "{status} {body}");
        asked.await.unwrap();
    }
}

#[tokio::test]
async fn participants_are_listed_as_rooms_see_them() {
    let voice = |muted| json!({ "sid": "TR_1", "type": "AUDIO", "source": "MICROPHONE", "muted": muted });
    let permission = |sources: Value| json!({ "can_publish": true, "can_publish_sources": sources });
    let somebody = |name: &str, tracks: Value, permission: Value| {
        json!({
            "sid": format!("PA_{name}"), "identity": name, "state": "ACTIVE", "kind": "STANDARD",
            "tracks": tracks, "permission": permission, "joined_at": "1760000000",
        })
    };
    let list = json!({ "participants": [
        somebody("speaks", json!([voice(false)]), permission(json!([]))),
        somebody("muted", json!([voice(true)]), permission(json!(["CAMERA", "MICROPHONE"]))),
        somebody("shares", json!([{ "type": "AUDIO", "source": "SCREEN_SHARE_AUDIO" }, { "type": "VIDEO" }]), permission(json!(["CAMERA", "NEW"]))),
        somebody("listens", Value::Null, json!({ "can_publish": false })),
        { "identity": "bare" },
        with(somebody("gone", json!([]), Value::Null), &json!({ "state": "DISCONNECTED" })),
        with(somebody("recorder", json!([]), Value::Null), &json!({ "kind": "EGRESS" })),
    ]});
    let (server, asked) = answers(200, &list.to_string()).await;
    let listed = server.list_participants(&router()).await.unwrap();
    asked.await.unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|it| (&*it.name, it.incarnation.as_deref(), it.audible, it.may_publish_audio))
        .collect();
    let expected = [
        ("speaks", Some("PA_speaks"), Some(true), Some(true)),
        ("muted", Some("PA_muted"), Some(false), Some(true)),
        ("shares", Some("PA_shares"), Some(false), Some(false)),
        ("listens", Some("PA_listens"), Some(false), Some(false)),
        ("bare", None, Some(false), None),
    ];
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn the_load_is_what_all_rooms_hold_where_they_can_be_counted() {
    let rooms =
        json!({ "rooms": [{ "name": "a", "num_participants": 3 }, { "name": "b", "num_participants": 4 }] });
    let (server, _asked) = answers(200, &rooms.to_string()).await;
    assert_eq!(server.health().await.unwrap().participants, Some(7));
    let many = json!({ "rooms": [{ "name": "a".repeat(MOST_FOR_LOAD) }] });
    let (server, _asked) = answers(200, &many.to_string()).await;
    assert_eq!(server.health().await.unwrap().participants, None, "healthy all the same");
}
