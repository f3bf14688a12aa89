//! The adapters for TRTC and Agora against a stand-in for both in another language, `e2e/vendors/stand_in.py`: what
//! the one signs the other proves, both ways.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use media_bridge::{
    AgoraCallbacks, AgoraConfig, AgoraServer, CallbackError, CallbackReader, CallbackRequest, Generation,
    Grant, GrantBody, Load, MediaError, MediaKind, MediaServer as _, Member, NamedPeer, NamedRoom, Names,
    PeerRef, Permissions, RoomRef, Router, TrtcCallbacks, TrtcConfig, TrtcServer, VendorEvent, VendorFact,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, Command};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../e2e/vendors/stand_in.py");
const NOW_MS: u64 = 1_760_000_000_000;
const TTL: Duration = Duration::from_secs(600);
const DEADLINE: Duration = Duration::from_secs(10);

const SDK_APP_ID: u32 = 1_400_000_000;
const SECRET_KEY: &str = "5bd2850fff3ecb11d7c805251c51ee463a25727bddc2385f3fa8bfee1bb93b5e";
const CALLBACK_KEY: &str = "coordKey1";
const APP_ID: &str = "970CA35de60c44645bbae8a215061b33";
const CERTIFICATE: &str = "5CFd2fd1755d40ecb72977518be15d3b";
const NOTICE_SECRET: &str = "north";

/// The stand-in, which ends with this.
struct StandIn {
    _child: Child,
    _stdin: ChildStdin,
    address: SocketAddr,
    client: reqwest::Client,
}

impl StandIn {
    async fn start(private_map_key: bool) -> Self {
        let mut child = Command::new("python3")
            .args(["-I", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("python3 is needed to stand in for TRTC and Agora: {error}"));
        let config = json!({
            "nowMs": NOW_MS,
            "trtc": {
                "sdkAppId": SDK_APP_ID,
                "secretKey": SECRET_KEY,
                "secretId": "AKIDEXAMPLE",
                "apiSecretKey": "SKEXAMPLE",
                "callbackKey": CALLBACK_KEY,
                "privateMapKey": private_map_key,
            },
            "agora": {
                "appId": APP_ID,
                "appCertificate": CERTIFICATE,
                "customerId": "customer",
                "customerSecret": "secret",
                "notificationSecret": NOTICE_SECRET,
            },
        });
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(format!("{config}\n").as_bytes()).await.unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        tokio::time::timeout(DEADLINE, stdout.read_line(&mut line)).await.unwrap().unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{SCRIPT} says {line:?}"));
        let address =
            SocketAddr::from(([127, 0, 0, 1], u16::try_from(said["port"].as_u64().unwrap()).unwrap()));
        // Another test may have chosen it already.
        _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        Self { _child: child, _stdin: stdin, address, client }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    async fn control(&self, path: &str, body: Value) -> Result<Value, String> {
        let url = format!("{}control/{path}", self.url());
        let request =
            if body.is_null() { self.client.get(url) } else { self.client.post(url).body(body.to_string()) };
        let answer = request.send().await.unwrap().text().await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["error"].as_str().map_or_else(|| Ok(answer.clone()), |error| Err(error.to_owned()))
    }

    async fn set_clock(&self, now_ms: u64) {
        self.control("clock", json!({ "nowMs": now_ms })).await.unwrap();
    }

    async fn state(&self, vendor: &str) -> Value {
        self.control("state", Value::Null).await.unwrap()[vendor].take()
    }

    /// A client enters a room of TRTC with its grant.
    async fn enter(&self, grant: &Grant) -> Result<u64, String> {
        let GrantBody::Trtc { sdk_app_id, str_room_id, user_id, user_sig, private_map_key } = &grant.body
        else {
            panic!("{grant:?}")
        };
        assert_eq!(*sdk_app_id, SDK_APP_ID);
        let body = json!({
            "strRoomId": str_room_id, "userId": user_id, "userSig": user_sig, "privateMapKey": private_map_key,
        });
        self.control("trtc/enter", body).await.map(|answer| answer["privileges"].as_u64().unwrap())
    }

    /// A client joins a channel of Agora with its grant.
    async fn join(&self, grant: &Grant, broadcaster: bool) -> Result<Value, String> {
        let GrantBody::Agora { app_id, channel, uid, token } = &grant.body else { panic!("{grant:?}") };
        assert_eq!(app_id, APP_ID);
        let body = json!({ "channel": channel, "uid": uid, "token": token, "broadcaster": broadcaster });
        self.control("agora/join", body).await.map(|mut answer| answer["privileges"].take())
    }
}

fn trtc_config(url: String) -> TrtcConfig {
    TrtcConfig {
        sdk_app_id: SDK_APP_ID,
        secret_key: SECRET_KEY.to_owned(),
        secret_id: "AKIDEXAMPLE".to_owned(),
        api_secret_key: "SKEXAMPLE".to_owned(),
        region: "ap-singapore".to_owned(),
        url,
        private_map_key: false,
        token_ttl: TTL,
        deadline: DEADLINE,
        clock: Arc::new(|| i64::try_from(NOW_MS).unwrap()),
    }
}

fn trtc(url: String) -> TrtcServer {
    TrtcServer::new(trtc_config(url)).unwrap()
}

fn agora_config(url: String) -> AgoraConfig {
    AgoraConfig {
        app_id: APP_ID.to_owned(),
        app_certificate: CERTIFICATE.to_owned(),
        customer_id: "customer".to_owned(),
        customer_secret: "secret".to_owned(),
        url,
        token_ttl: TTL,
        deadline: DEADLINE,
        clock: Arc::new(|| i64::try_from(NOW_MS).unwrap()),
        salts: Arc::new(|| 4_000_000_000),
    }
}

fn agora(url: String) -> AgoraServer {
    AgoraServer::new(agora_config(url)).unwrap()
}

fn room() -> RoomRef {
    RoomRef::new("school", "maths")
}

fn router(generation: u64) -> Router {
    let generation = Generation(generation);
    Router { name: Names::new("test").router(&room(), generation, 0), room: room(), generation }
}

fn member(user: &str) -> Member {
    let peer = PeerRef::new(user, "p-1");
    Member { name: Names::new("test").participant(MediaKind::Trtc, &room(), &peer), peer, display: None }
}

fn numbered(user: &str) -> Member {
    let peer = PeerRef::new(user, "p-1");
    Member { name: Names::new("test").participant(MediaKind::Agora, &room(), &peer), peer, display: None }
}

fn refused(reason: &str) -> MediaError {
    MediaError::Refused { reason: reason.to_owned() }
}

/// One HTTP message, with a body of the length that it says.
async fn read_message(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).await.unwrap(), 0, "the message is cut short");
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or_default()];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

/// Passes messages on to a server, each altered.
async fn between(server: SocketAddr, alter: fn(&mut String, &mut Vec<u8>)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let (mut head, mut body) = read_message(&mut client).await;
            alter(&mut head, &mut body);
            let mut server = TcpStream::connect(server).await.unwrap();
            server.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
            let (head, body) = read_message(&mut server).await;
            client.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
        }
    });
    url
}

/// What a reader makes of the callback that is sent meanwhile, and the status that its sender got.
async fn call_back(
    stand_in: &StandIn,
    reader: &dyn CallbackReader,
    command: &str,
    mut body: Value,
) -> (Result<Vec<VendorEvent>, CallbackError>, u64) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    body["url"] = json!(format!("http://{}/rtc/{}/school", listener.local_addr().unwrap(), reader.vendor()));
    let taken = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (head, body) = read_message(&mut stream).await;
        let mut headers = HeaderMap::new();
        for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let read = reader.read(&CallbackRequest { headers: &headers, body: &body, now_ms: NOW_MS });
        let status = if read.is_ok() { "200 OK" } else { "401 Unauthorized" };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
        stream.write_all(answer.as_bytes()).await.unwrap();
        read.map(|callback| callback.events)
    };
    let (read, sent) = tokio::join!(taken, stand_in.control(command, body));
    (read, sent.unwrap()["status"].as_u64().unwrap())
}

#[tokio::test]
async fn trtc_lets_in_whom_a_grant_is_for() {
    let stand_in = StandIn::start(false).await;
    let server = trtc(stand_in.url());
    let grant = server.grant(&router(1), &member("ann"), Permissions::LISTEN).await.unwrap();
    assert_eq!(stand_in.enter(&grant).await, Ok(255), "without a PrivateMapKey there is no more to say");

    let GrantBody::Trtc { user_sig, user_id, .. } = &grant.body else { panic!("{grant:?}") };
    let mut others = grant.clone();
    let GrantBody::Trtc { user_id: of_another, .. } = &mut others.body else { panic!("{grant:?}") };
    *of_another = member("bob").name;
    assert_ne!(user_id, of_another);
    assert_eq!(stand_in.enter(&others).await, Err("UserSig: of another".to_owned()));

    let mut altered = grant.clone();
    let GrantBody::Trtc { user_sig: sig, .. } = &mut altered.body else { panic!("{grant:?}") };
    let (first, rest) = user_sig.split_at(40);
    let letter = if rest.starts_with('A') { "B" } else { "A" };
    *sig = format!("{first}{letter}{}", &rest[1..]);
    assert!(stand_in.enter(&altered).await.is_err());

    let forger = TrtcServer::new(TrtcConfig { secret_key: "another".into(), ..trtc_config(stand_in.url()) });
    let forged = forger.unwrap().grant(&router(1), &member("ann"), Permissions::ALL).await.unwrap();
    assert_eq!(stand_in.enter(&forged).await, Err("UserSig: signature".to_owned()));

    stand_in.set_clock(NOW_MS + 599_000).await;
    assert!(stand_in.enter(&grant).await.is_ok());
    stand_in.set_clock(NOW_MS + 600_000).await;
    assert_eq!(stand_in.enter(&grant).await, Err("UserSig: expired".to_owned()));
}

#[tokio::test]
async fn trtc_binds_rooms_and_rights_where_the_application_demands_it() {
    let stand_in = StandIn::start(true).await;
    let server =
        TrtcServer::new(TrtcConfig { private_map_key: true, ..trtc_config(stand_in.url()) }).unwrap();
    let listen = server.grant(&router(1), &member("ann"), Permissions::LISTEN).await.unwrap();
    assert_eq!(stand_in.enter(&listen).await, Ok(1 | 2 | 8 | 32 | 128));
    let all = server.grant(&router(1), &member("ann"), Permissions::ALL).await.unwrap();
    assert_eq!(stand_in.enter(&all).await, Ok(255));

    let mut elsewhere = listen.clone();
    let GrantBody::Trtc { str_room_id, .. } = &mut elsewhere.body else { panic!("{listen:?}") };
    *str_room_id = router(2).name;
    assert_eq!(stand_in.enter(&elsewhere).await, Err("PrivateMapKey: of another".to_owned()));
    let without = trtc(stand_in.url()).grant(&router(1), &member("ann"), Permissions::ALL).await.unwrap();
    assert!(stand_in.enter(&without).await.is_err());
}

#[tokio::test]
async fn trtc_does_what_it_is_told() {
    let stand_in = StandIn::start(false).await;
    let server = trtc(stand_in.url());
    let (here, ann, bob) = (router(1), member("ann"), member("bob"));
    server.ensure_router(&here).await.unwrap();
    for member in [&ann, &bob] {
        // Before anybody came there is nothing to be done about them, and that is done.
        assert_eq!(server.set_permissions(&here, member, Permissions::LISTEN).await, Ok(()));
        let grant = server.grant(&here, member, Permissions::ALL).await.unwrap();
        stand_in.enter(&grant).await.unwrap();
    }
    for (audio, video, blocked) in [(false, true, 2), (true, false, 3), (false, false, 1), (true, true, 0)] {
        let permissions = Permissions { publish_audio: audio, publish_video: video, subscribe: true };
        server.set_permissions(&here, &ann, permissions).await.unwrap();
        let expected = json!({ &*here.name: { &*ann.name: blocked, &*bob.name: 0 } });
        assert_eq!(stand_in.state("trtc").await, expected);
    }
    for _ in 0..2 {
        server.remove_participant(&here, &ann.name).await.unwrap();
        assert_eq!(stand_in.state("trtc").await, json!({ &*here.name: { &*bob.name: 0 } }));
    }
    assert_eq!(server.close_router(&router(2)).await, Ok(()), "another one's end does not reach this one");
    assert_eq!(stand_in.state("trtc").await, json!({ &*here.name: { &*bob.name: 0 } }));
    for _ in 0..2 {
        server.close_router(&here).await.unwrap();
        assert_eq!(stand_in.state("trtc").await, json!({}));
    }
    assert_eq!(server.adopt_router(&here).await, Ok(()));
    assert!(matches!(server.list_participants(&here).await, Err(MediaError::NotSupported { .. })));
    assert_eq!(server.health().await, Ok(Load::default()));
}

#[tokio::test]
async fn trtc_refuses_what_is_not_signed_so() {
    let stand_in = StandIn::start(false).await;
    let (here, ann) = (router(1), member("ann"));
    let grant = trtc(stand_in.url()).grant(&here, &ann, Permissions::ALL).await.unwrap();
    stand_in.enter(&grant).await.unwrap();

    let passing = between(stand_in.address, |_, _| ()).await;
    assert_eq!(trtc(passing).set_permissions(&here, &ann, Permissions::LISTEN).await, Ok(()));
    let altering = between(stand_in.address, |_, body| {
        let last = body.iter().rposition(u8::is_ascii_lowercase).unwrap();
        body[last] ^= 1;
    });
    let altered = trtc(altering.await).remove_participant(&here, &ann.name).await;
    assert_eq!(altered, Err(refused("RemoveUserByStrRoomId: AuthFailure.SignatureFailure")));
    let redirecting = between(stand_in.address, |head, _| {
        *head = head.replace("RemoveUserByStrRoomId", "DismissRoomByStrRoomId");
    });
    let redirected = trtc(redirecting.await).remove_participant(&here, &ann.name).await;
    assert_eq!(redirected, Err(refused("RemoveUserByStrRoomId: AuthFailure.SignatureFailure")));

    let close = async |config: TrtcConfig| TrtcServer::new(config).unwrap().close_router(&here).await;
    let config = || trtc_config(stand_in.url());
    for (config, code) in [
        (TrtcConfig { api_secret_key: "another".into(), ..config() }, "AuthFailure.SignatureFailure"),
        (TrtcConfig { secret_id: "another".into(), ..config() }, "AuthFailure.SecretIdNotFound"),
        (TrtcConfig { region: "ap-nowhere".into(), ..config() }, "UnsupportedRegion"),
        (TrtcConfig { sdk_app_id: 1, ..config() }, "UnauthorizedOperation.SdkAppId"),
        (TrtcConfig { clock: Arc::new(|| 1_759_999_699_000), ..config() }, "AuthFailure.SignatureExpire"),
    ] {
        let closed = close(config).await;
        assert_eq!(closed, Err(refused(&format!("DismissRoomByStrRoomId: {code}"))));
    }
    assert_eq!(stand_in.state("trtc").await, json!({ &*here.name: { &*ann.name: 1 } }), "nothing was done");
}

#[tokio::test]
async fn trtc_calls_back() {
    use VendorFact::{AudioStarted, AudioStopped, ParticipantJoined, RoomExited, RoomFinished};
    let stand_in = StandIn::start(false).await;
    let reader = TrtcCallbacks { key: CALLBACK_KEY.to_owned() };
    let (here, ann) = (router(1), member("ann"));
    let event = |kind: u64, more: Value| {
        let mut info = json!({
            "RoomId": &*here.name, "EventTs": NOW_MS / 1_000, "EventMsTs": NOW_MS + kind, "UserId": &*ann.name,
        });
        info.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "eventType": kind, "info": info })
    };
    for (kind, more, expected) in [
        (101, json!({}), None),
        (103, json!({ "Role": 20, "Reason": 1 }), Some(ParticipantJoined)),
        (203, json!({}), Some(AudioStarted)),
        (204, json!({ "Reason": 0 }), Some(AudioStopped)),
        (105, json!({ "Role": 21 }), Some(AudioStopped)),
        (104, json!({ "Reason": 3 }), Some(RoomExited)),
        (102, json!({}), Some(RoomFinished)),
        (203, json!({ "RoomId": 12_345 }), None),
    ] {
        let (read, status) = call_back(&stand_in, &reader, "trtc/callback", event(kind, more)).await;
        let read = read.unwrap();
        assert_eq!((read.first().map(|event| event.what), status), (expected, 200), "{kind}");
        for event in read {
            let who = NamedPeer::Participant(ann.name.to_string());
            assert_eq!(event.room, NamedRoom::Router(here.name.to_string()));
            assert_eq!(event.who, Some(who).filter(|_| event.what != RoomFinished));
            assert_eq!((event.at_ms, event.resolution_ms), (NOW_MS + kind, 0));
        }
    }
    let mut altered = event(203, json!({}));
    altered["alter"] = json!(true);
    let (read, status) = call_back(&stand_in, &reader, "trtc/callback", altered).await;
    assert_eq!((read, status), (Err(CallbackError::Unproved("sign: not of this body".to_owned())), 401));
    let other = TrtcCallbacks { key: "coordKey2".to_owned() };
    let (read, _) = call_back(&stand_in, &other, "trtc/callback", event(203, json!({}))).await;
    assert!(matches!(read, Err(CallbackError::Unproved(_))));
}

#[tokio::test]
async fn agora_lets_in_whom_a_grant_is_for() {
    let stand_in = StandIn::start(false).await;
    let server = agora(stand_in.url());
    let (here, ann) = (router(1), numbered("ann"));
    let listen = server.grant(&here, &ann, Permissions::LISTEN).await.unwrap();
    assert_eq!(stand_in.join(&listen, false).await, Ok(json!([1])));
    assert_eq!(stand_in.join(&listen, true).await, Err("token: no right to publish".to_owned()));
    let all = server.grant(&here, &ann, Permissions::ALL).await.unwrap();
    assert_eq!(stand_in.join(&all, true).await, Ok(json!([1, 2, 3])));

    let changed = |change: fn(&mut Arc<str>, &mut u32, &mut String)| {
        let mut grant = all.clone();
        let GrantBody::Agora { channel, uid, token, .. } = &mut grant.body else { panic!("{all:?}") };
        change(channel, uid, token);
        grant
    };
    let elsewhere = changed(|channel, _, _| *channel = router(2).name);
    let another = changed(|_, uid, _| *uid -= 1);
    for grant in [elsewhere, another] {
        assert_eq!(stand_in.join(&grant, true).await, Err("token: of another".to_owned()));
    }
    let altered = changed(|_, _, token| {
        let letter = if token[60..].starts_with('A') { "B" } else { "A" };
        token.replace_range(60..61, letter);
    });
    assert!(stand_in.join(&altered, true).await.is_err());
    let forger =
        AgoraServer::new(AgoraConfig { app_certificate: "0".repeat(32), ..agora_config(stand_in.url()) });
    let forged = forger.unwrap().grant(&here, &ann, Permissions::ALL).await.unwrap();
    assert_eq!(stand_in.join(&forged, true).await, Err("token: signature".to_owned()));

    stand_in.set_clock(NOW_MS + 599_000).await;
    assert!(stand_in.join(&all, true).await.is_ok());
    stand_in.set_clock(NOW_MS + 600_000).await;
    assert_eq!(stand_in.join(&all, true).await, Err("token: expired".to_owned()));
}

#[tokio::test]
async fn agora_lists_and_removes_people() {
    let stand_in = StandIn::start(false).await;
    let server = agora(stand_in.url());
    let (here, ann, bob) = (router(1), numbered("ann"), numbered("bob"));
    let names = async || {
        let listed = server.list_participants(&here).await.unwrap();
        assert!(listed.iter().all(|one| one.audible.is_none() && one.may_publish_audio.is_none()));
        listed.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    server.ensure_router(&here).await.unwrap();
    assert_eq!(names().await, [], "a channel without anybody does not exist, and nobody is in it");
    let join = async |member: &Member, broadcaster: bool| {
        let grant = server.grant(&here, member, Permissions::ALL).await.unwrap();
        stand_in.join(&grant, broadcaster).await.unwrap();
    };
    join(&bob, false).await;
    join(&ann, true).await;
    assert_eq!(names().await, [Arc::clone(&ann.name), Arc::clone(&bob.name)]);
    for _ in 0..2 {
        server.remove_participant(&here, &ann.name).await.unwrap();
        assert_eq!(names().await, [Arc::clone(&bob.name)]);
    }
    join(&ann, true).await;
    assert_eq!(names().await.len(), 2, "nobody is banned");
    server.close_router(&router(2)).await.unwrap();
    assert_eq!(names().await.len(), 2, "another one's end does not reach this one");
    for _ in 0..2 {
        server.close_router(&here).await.unwrap();
        assert_eq!((names().await, stand_in.state("agora").await), (vec![], json!({})));
    }
    let muted = server.set_permissions(&here, &ann, Permissions::LISTEN).await;
    assert!(matches!(muted, Err(MediaError::NotSupported { .. })));
    assert_eq!(server.health().await, Ok(Load::default()));
}

#[tokio::test]
async fn agora_refuses_whom_it_does_not_know() {
    let stand_in = StandIn::start(false).await;
    let (here, ann) = (router(1), numbered("ann"));
    let grant = agora(stand_in.url()).grant(&here, &ann, Permissions::ALL).await.unwrap();
    stand_in.join(&grant, true).await.unwrap();

    let passing = agora(between(stand_in.address, |_, _| ()).await);
    assert_eq!(passing.list_participants(&here).await.unwrap().len(), 1);
    let altering = between(stand_in.address, |head, _| *head = head.replace("Basic Y", "Basic Z"));
    let wrong_secret = AgoraConfig { customer_secret: "another".into(), ..agora_config(stand_in.url()) };
    for server in [agora(altering.await), AgoraServer::new(wrong_secret).unwrap()] {
        let expected = |what: &str| Err(refused(&format!("{what}: status 401")));
        assert_eq!(server.remove_participant(&here, &ann.name).await, expected("kicking-rule"));
        assert_eq!(server.close_router(&here).await, expected("kicking-rule"));
        assert_eq!(server.list_participants(&here).await.map(|_| ()), expected("channel/user"));
        assert_eq!(server.health().await.map(|_| ()), expected("channel"));
    }
    let other_project = AgoraConfig { app_id: "0".repeat(32), ..agora_config(stand_in.url()) };
    let other_project = AgoraServer::new(other_project).unwrap();
    assert!(matches!(other_project.close_router(&here).await, Err(MediaError::Refused { .. })));
    assert!(matches!(other_project.health().await, Err(MediaError::Refused { .. })));
    assert_eq!(
        stand_in.state("agora").await,
        json!({ &*here.name: { &*ann.name: true } }),
        "nothing was done"
    );
}

#[tokio::test]
async fn agora_gives_notice() {
    use VendorFact::{AudioStopped, ParticipantJoined, RoomExited, RoomFinished};
    let stand_in = StandIn::start(false).await;
    let reader = AgoraCallbacks { secret: NOTICE_SECRET.to_owned() };
    let (here, ann) = (router(1), numbered("ann"));
    let uid: u32 = ann.name.parse().unwrap();
    let notice = |kind: u64, more: Value| {
        let mut payload = json!({
            "channelName": &*here.name, "uid": uid, "clientSeq": kind, "ts": NOW_MS / 1_000, "platform": 7,
        });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "eventType": kind, "noticeId": format!("n-{kind}"), "payload": payload })
    };
    for (kind, more, expected) in [
        (101, json!({}), None),
        (105, json!({}), Some(ParticipantJoined)),
        (111, json!({}), None),
        (112, json!({}), Some(AudioStopped)),
        (106, json!({ "reason": 10 }), None),
        (106, json!({ "reason": 1 }), Some(RoomExited)),
        (102, json!({ "lastUid": uid }), Some(RoomFinished)),
        (103, json!({ "channelName": "test_webhook" }), None),
    ] {
        let (read, status) = call_back(&stand_in, &reader, "agora/notice", notice(kind, more)).await;
        let read = read.unwrap();
        assert_eq!((read.first().map(|event| event.what), status), (expected, 200), "{kind}");
        for event in read {
            let is_of_room = event.what == RoomFinished;
            assert_eq!(
                (event.id, event.room),
                (format!("n-{kind}"), NamedRoom::Router(here.name.to_string()))
            );
            assert_eq!(event.who, (!is_of_room).then(|| NamedPeer::Participant(ann.name.to_string())));
            assert_eq!((event.sequence, event.at_ms), ((!is_of_room).then_some(kind), NOW_MS));
        }
    }
    let mut altered = notice(106, json!({ "reason": 1 }));
    altered["alter"] = json!(true);
    let (read, status) = call_back(&stand_in, &reader, "agora/notice", altered).await;
    let unproved = CallbackError::Unproved("agora-signature-v2: not of this body".to_owned());
    assert_eq!((read, status), (Err(unproved), 401));
}

#[tokio::test]
async fn a_vendor_that_is_not_there_is_unavailable_and_one_that_is_silent_is_late() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let deadline = Duration::from_millis(200);
    let here = router(1);
    for (address, is_silent) in [(silent.local_addr().unwrap(), true), (gone, false)] {
        let url = format!("http://{address}/");
        let trtc = TrtcServer::new(TrtcConfig { deadline, ..trtc_config(url.clone()) }).unwrap();
        let agora = AgoraServer::new(AgoraConfig { deadline, ..agora_config(url) }).unwrap();
        for answer in [
            trtc.close_router(&here).await,
            trtc.health().await.map(|_| ()),
            agora.close_router(&here).await,
            agora.health().await.map(|_| ()),
        ] {
            match answer {
                Err(MediaError::Timeout { after_ms: 200 }) => assert!(is_silent),
                Err(MediaError::Unavailable { .. }) => assert!(!is_silent),
                other => panic!("{other:?}"),
            }
        }
    }
}
