//! The adapter for signed HTTP against a media server in memory, and both against the API's document.

mod example;
mod stand_in;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue};
use media_bridge::{
    Abilities, CallbackReader as _, CallbackRequest, Generation, GenericCallbacks, GenericConfig,
    GenericServer, GrantBody, Load, MediaError, MediaKind, MediaServer as _, Member, Names, PeerRef,
    Permissions, RoomRef, Router,
};
use serde_json::{Value, json};

use stand_in::{NOW_S, Saved, StandIn};

const SECRET: &str = "a secret that both sides know and keep";
const DEADLINE: Duration = Duration::from_secs(5);

fn config(url: String) -> GenericConfig {
    GenericConfig {
        url,
        secret: SECRET.to_owned(),
        deadline: DEADLINE,
        clock: Arc::new(|| i64::try_from(NOW_S).unwrap() * 1_000 + 999),
        abilities: GenericConfig::ALL,
    }
}

fn router(generation: u64) -> Router {
    let (room, generation) = (RoomRef::new("school", "maths-1"), Generation(generation));
    Router { name: Names::new("test").router(&room, generation, 0), room, generation }
}

fn member(user: &str) -> Member {
    let peer = PeerRef::new(user, "p-1");
    let name = Names::new("test").participant(MediaKind::Generic, &RoomRef::new("school", "maths-1"), &peer);
    Member { peer, name, display: Some("Ann".into()) }
}

fn no_room() -> MediaError {
    MediaError::NotFound { what: "room" }
}

/// Everything that a room does in its life, with a server that is as it should be.
async fn live(server: &GenericServer) {
    let (router, ann) = (router(3), member("ann"));
    assert_eq!(server.health().await.unwrap(), Load { participants: Some(0) });
    server.ensure_router(&router).await.unwrap();
    server.ensure_router(&router).await.unwrap();
    server.adopt_router(&router).await.unwrap();

    let grant = server.grant(&router, &ann, Permissions::ALL).await.unwrap();
    assert_eq!(grant.generation, Generation(3));
    let GrantBody::Generic { room, id, data } = &grant.body else { panic!("{grant:?}") };
    assert_eq!((room, id), (&router.name, &ann.name));
    assert!(data.is_object(), "{data}");
    let text = serde_json::to_value(&grant).unwrap();
    assert_eq!((&text["kind"], &text["data"]), (&json!("generic"), data));

    let listed = server.list_participants(&router).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].name, listed[0].may_publish_audio), (&ann.name, Some(true)));
    assert_eq!(server.health().await.unwrap(), Load { participants: Some(1) });
    server.set_permissions(&router, &ann, Permissions::LISTEN).await.unwrap();
    assert_eq!(server.list_participants(&router).await.unwrap()[0].may_publish_audio, Some(false));
    server.remove_participant(&router, &ann.name).await.unwrap();
    assert_eq!(server.list_participants(&router).await.unwrap(), []);
    server.close_router(&router).await.unwrap();
    gone(server, &router, &ann).await;
}

/// The same calls on a router that is not there.
async fn gone(server: &GenericServer, router: &Router, member: &Member) {
    assert_eq!(server.adopt_router(router).await, Err(no_room()));
    assert_eq!(server.grant(router, member, Permissions::ALL).await, Err(no_room()));
    assert_eq!(server.set_permissions(router, member, Permissions::ALL).await, Err(no_room()));
    assert_eq!(server.list_participants(router).await, Err(no_room()));
    assert_eq!(server.remove_participant(router, &member.name).await, Ok(()));
    assert_eq!(server.close_router(router).await, Ok(()));
}

#[tokio::test]
async fn a_room_lives_and_ends_and_the_server_believes_each_call() {
    for prefix in ["", "/a/prefix", "/a/prefix/"] {
        let stand_in = StandIn::start(SECRET).await;
        let server = GenericServer::new(config(format!("{}{prefix}", stand_in.url))).unwrap();
        live(&server).await;
        assert_eq!(stand_in.unproved(), 0);
        assert!(stand_in.saved().iter().all(|call| call.path.starts_with(prefix.trim_end_matches('/'))));
    }
}

#[tokio::test]
async fn what_a_server_is_told_says_who_may_do_what() {
    let stand_in = StandIn::start(SECRET).await;
    let server = GenericServer::new(config(stand_in.url.clone())).unwrap();
    let (router, ann) = (router(3), member("ann"));
    server.ensure_router(&router).await.unwrap();
    let nameless = Member { display: None, ..ann.clone() };
    server.grant(&router, &ann, Permissions::LISTEN).await.unwrap();
    server.grant(&router, &nameless, Permissions::ALL).await.unwrap();
    let listen = json!({ "publishAudio": false, "publishVideo": false, "subscribe": true });
    let all = json!({ "publishAudio": true, "publishVideo": true, "subscribe": true });
    let bodies: Vec<Value> = stand_in.saved().into_iter().map(|call| call.body).collect();
    assert_eq!(
        bodies,
        [
            json!({ "app": "school", "room": "maths-1", "generation": 3 }),
            json!({
                "app": "school", "room": "maths-1", "generation": 3,
                "user": "ann", "peer": "p-1", "display": "Ann", "permissions": listen,
            }),
            json!({
                "app": "school", "room": "maths-1", "generation": 3,
                "user": "ann", "peer": "p-1", "permissions": all,
            }),
        ]
    );
}

#[tokio::test]
async fn somebody_who_is_not_there_can_be_muted_and_removed() {
    let stand_in = StandIn::start(SECRET).await;
    let server = GenericServer::new(config(stand_in.url.clone())).unwrap();
    let router = router(1);
    server.ensure_router(&router).await.unwrap();
    server.set_permissions(&router, &member("bob"), Permissions::LISTEN).await.unwrap();
    server.remove_participant(&router, "kq3ya6m2d5xv7wnbtzhcrfgjop").await.unwrap();
    server.remove_participant(&router, "a recorder/of its own").await.unwrap();
    for name in ["", ".", ".."] {
        let refused = server.remove_participant(&router, name).await;
        assert!(matches!(refused, Err(MediaError::Refused { .. })), "{name}: {refused:?}");
    }
    assert_eq!(stand_in.unproved(), 0, "a path is signed as it is sent");
    assert!(stand_in.saved().iter().any(|call| call.path.ends_with("/a%20recorder%2Fof%20its%20own")));
}

#[tokio::test]
async fn an_older_generation_is_refused() {
    let stand_in = StandIn::start(SECRET).await;
    let server = GenericServer::new(config(stand_in.url.clone())).unwrap();
    server.ensure_router(&router(4)).await.unwrap();
    let stale = MediaError::StaleGeneration { current: 4, asked: 3 };
    assert_eq!(server.ensure_router(&router(3)).await, Err(stale));
    server.ensure_router(&router(5)).await.unwrap();
}

#[tokio::test]
async fn an_answer_is_told_for_what_it_is() {
    let stand_in = StandIn::start(SECRET).await;
    let server = GenericServer::new(config(stand_in.url.clone())).unwrap();
    let (router, ann) = (router(1), member("ann"));
    let refused = |reason: &str| MediaError::Refused { reason: reason.to_owned() };
    let unavailable = |reason: &str| MediaError::Unavailable { reason: reason.to_owned() };
    for (status, body, error) in [
        (401, "ann's secret", refused("401 to: make a router")),
        (400, "", refused("400 to: make a router")),
        (302, "", refused("302 to: make a router")),
        (404, "<h1>nginx</h1>", refused("404 to: make a router")),
        (404, r#"{"missing":"bucket"}"#, refused("404 to: make a router")),
        (404, r#"{"missing":"router"}"#, no_room()),
        (409, "", refused("409 to: make a router")),
        (409, r#"{"generation":7}"#, MediaError::StaleGeneration { current: 7, asked: 1 }),
        (429, "", unavailable("it answers 429")),
        (500, "", unavailable("it answers 500")),
        (501, "", MediaError::NotSupported { what: "make a router" }),
        (503, "", unavailable("it answers 503")),
    ] {
        stand_in.answer_always(status, body);
        assert_eq!(server.ensure_router(&router).await, Err(error), "{status} {body}");
        let health = server.health().await.unwrap_err();
        let works_not = matches!(health, MediaError::Unavailable { .. } | MediaError::NotSupported { .. });
        assert!(works_not, "{status}: {health:?}");
    }
    // A proxy's or a wrong address's 404 must not look like "gone already".
    stand_in.answer_always(404, "");
    assert!(server.close_router(&router).await.is_err());
    assert!(server.remove_participant(&router, &ann.name).await.is_err());
    assert!(server.set_permissions(&router, &ann, Permissions::ALL).await.is_err());

    stand_in.answer_always(200, "ann");
    let told = server.grant(&router, &ann, Permissions::ALL).await.unwrap_err();
    assert_eq!(told, refused("an answer of another form to: let somebody in"));
    assert!(matches!(server.list_participants(&router).await, Err(MediaError::Refused { .. })));
    stand_in.answer_always(200, &format!(r#"{{"data":"{}"}}"#, "x".repeat(32 << 10)));
    let told = server.grant(&router, &ann, Permissions::ALL).await.unwrap_err();
    assert_eq!(told, refused("more than 32768 bytes for a client"));
    stand_in.answer_always(204, "");
    let grant = server.grant(&router, &ann, Permissions::ALL).await.unwrap();
    assert!(matches!(grant.body, GrantBody::Generic { data: Value::Null, .. }));
    assert_eq!(server.health().await.unwrap(), Load { participants: None });
}

#[tokio::test]
async fn a_server_that_is_silent_or_gone_costs_a_deadline_at_most() {
    let stand_in = StandIn::start(SECRET).await;
    stand_in.answer_never();
    let impatient = GenericConfig { deadline: Duration::from_millis(200), ..config(stand_in.url.clone()) };
    let server = GenericServer::new(impatient).unwrap();
    assert_eq!(server.ensure_router(&router(1)).await, Err(MediaError::Timeout { after_ms: 200 }));
    assert_eq!(server.health().await, Err(MediaError::Timeout { after_ms: 200 }));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = GenericServer::new(config(format!("http://{nobody}"))).unwrap();
    let unavailable = MediaError::Unavailable { reason: "cannot connect".to_owned() };
    assert_eq!(server.ensure_router(&router(1)).await, Err(unavailable));
}

#[tokio::test]
async fn a_signature_is_that_of_one_request() {
    let stand_in = StandIn::start(SECRET).await;
    let server = GenericServer::new(config(stand_in.url.clone())).unwrap();
    let (router, ann) = (router(1), member("ann"));
    server.ensure_router(&router).await.unwrap();
    server.grant(&router, &ann, Permissions::ALL).await.unwrap();
    server.list_participants(&router).await.unwrap();
    let saved = stand_in.saved();
    let [make, grant, list] = &saved[..] else { panic!("{saved:?}") };
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let send = async |call: &Saved| {
        let request = client.request(call.method.clone(), format!("{}{}", stand_in.url, call.path));
        let request = request.headers(call.headers.clone()).body(call.raw.clone());
        request.send().await.unwrap().status().as_u16()
    };
    for call in &saved {
        assert_eq!(send(call).await, 200, "as it was: {call:?}");
    }
    let at = make.raw.len() / 2;
    let mut altered = make.raw.to_vec();
    altered[at] ^= 1;
    let time = HeaderMap::from_iter([("dais-timestamp".parse().unwrap(), HeaderValue::from(NOW_S + 1))]);
    let mut later = list.headers.clone();
    later.extend(time);
    for (what, call) in [
        ("body", Saved { raw: altered.into(), ..make.clone() }),
        ("no body", Saved { raw: bytes::Bytes::new(), ..grant.clone() }),
        ("method", Saved { method: http::Method::DELETE, ..list.clone() }),
        ("path", Saved { path: format!("{}x", list.path), ..list.clone() }),
        ("query", Saved { path: format!("{}?x", list.path), ..list.clone() }),
        ("another's", Saved { headers: make.headers.clone(), ..list.clone() }),
        ("time", Saved { headers: later, ..list.clone() }),
    ] {
        assert_eq!(send(&call).await, 401, "{what}");
    }
    let stranger = GenericConfig {
        secret: "another secret that is long enough".to_owned(),
        ..config(stand_in.url.clone())
    };
    let refused = MediaError::Refused { reason: "401 to: find a router".to_owned() };
    assert_eq!(GenericServer::new(stranger).unwrap().adopt_router(&router).await, Err(refused));
}

#[tokio::test]
async fn what_a_server_cannot_do_is_not_asked() {
    let stand_in = StandIn::start(SECRET).await;
    let abilities =
        Abilities { live_list: false, makes_routers: false, tells_audio: true, takes_permissions: false };
    let server = GenericServer::new(GenericConfig { abilities, ..config(stand_in.url.clone()) }).unwrap();
    assert_eq!(server.abilities(), abilities);
    let (router, ann) = (router(1), member("ann"));
    server.ensure_router(&router).await.unwrap();
    server.adopt_router(&router).await.unwrap();
    let muted = server.set_permissions(&router, &ann, Permissions::LISTEN).await;
    assert!(matches!(muted, Err(MediaError::NotSupported { .. })), "{muted:?}");
    let listed = server.list_participants(&router).await;
    assert!(matches!(listed, Err(MediaError::NotSupported { .. })), "{listed:?}");
    assert_eq!(stand_in.saved().len(), 0);
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused_and_no_secret_is_shown() {
    let of = |url: &str, secret: &str| {
        GenericServer::new(GenericConfig { secret: secret.to_owned(), ..config(url.to_owned()) })
    };
    let server = of("https://media.example/dais", SECRET).unwrap();
    for shown in [format!("{server:?}"), format!("{:?}", config("http://secret".to_owned()))] {
        assert!(!shown.contains("secret"), "{shown}");
    }
    for url in ["media.example", "ftp://media.example", "http://a:b@c", "http://a?b", "http://a#b", ""] {
        let message = of(url, SECRET).unwrap_err().to_string();
        assert!(message.contains("url: http:// or https://"), "{url}: {message}");
    }
    let message = of("http://a", "too short").unwrap_err().to_string();
    assert!(message.ends_with("secret: at least 32 bytes"), "{message}");
}

fn document() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/media/generic.openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// `value` where it stands, or where its `$ref` leads.
fn resolved<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(place) => document.pointer(place.trim_start_matches('#')).unwrap(),
        None => value,
    }
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn the_document_has_exactly_the_calls_that_are_made() {
    let stand_in = StandIn::start(SECRET).await;
    let server = GenericServer::new(config(stand_in.url.clone())).unwrap();
    live(&server).await;
    let (router, ann) = (router(3), member("ann"));
    let document = document();
    let mut made = BTreeSet::new();
    for call in stand_in.saved() {
        let path = call.path.replace(&*router.name, "{router}").replace(&*ann.name, "{participant}");
        let method = call.method.as_str().to_lowercase();
        let operation = &document["paths"][&path][&method];
        let schema = operation.pointer("/requestBody/content/application~1json/schema");
        match schema.map(|schema| resolved(&document, schema)) {
            None => assert_eq!(call.body, Value::Null, "{method} {path}"),
            Some(schema) => conforms(&document, schema, &call.body),
        }
        made.insert((path, method));
    }
    let documented = document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
        let methods = keys(item).into_iter().filter(|key| *key != "parameters");
        methods.map(|method| (path.clone(), method.to_owned())).collect::<Vec<_>>()
    });
    assert_eq!(made, documented.collect());
}

/// Whether `value` has the fields that an object's schema asks for, and no others.
fn conforms(document: &Value, schema: &Value, value: &Value) {
    let schema = resolved(document, schema);
    let Some(properties) = schema.get("properties") else { return };
    assert!(keys(value).is_subset(&keys(properties)), "{value} beside {schema}");
    for field in schema["required"].as_array().unwrap() {
        assert!(value.get(field.as_str().unwrap()).is_some(), "{field} of {value}");
    }
    for (field, value) in value.as_object().unwrap() {
        conforms(document, &properties[field], value);
    }
}

#[test]
fn the_events_of_the_document_are_read() {
    let document = document();
    let content = &document["webhooks"]["events"]["post"]["requestBody"]["content"]["application/json"];
    let event = &document["components"]["schemas"]["Event"];
    let mut kinds = BTreeSet::new();
    for example in content["examples"].as_object().unwrap().values() {
        let events = example["value"].as_array().cloned().unwrap_or_else(|| vec![example["value"].clone()]);
        for sent in &events {
            conforms(&document, event, sent);
            kinds.insert(sent["type"].as_str().unwrap().to_owned());
        }
        let body = example["value"].to_string();
        let headers = stand_in::signed(SECRET, NOW_S, body.as_bytes());
        let request = CallbackRequest { headers: &headers, body: body.as_bytes(), now_ms: NOW_S * 1_000 };
        let found = GenericCallbacks::new(SECRET).read(&request).unwrap();
        assert_eq!((found.events.len(), found.unknown), (events.len(), 0), "{body}");
    }
    let told = event["properties"]["type"]["examples"].as_array().unwrap();
    assert_eq!(kinds, told.iter().map(|kind| kind.as_str().unwrap().to_owned()).collect());
}
