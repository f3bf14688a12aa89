//! What is let in, what is refused, and with which status and code: through the router, up to the store.

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fred::prelude::Builder;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, Request, StatusCode};
use key_prefix::{AppCode, Keys, Prefix, RoomId, UserId};
use ledger::Ledger;
use redis_scripts::Scripts;
use serde_json::{Value, json};
use sha2::Sha256;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt as _;
use utoipa::openapi::path::ParameterIn;

use super::call::Call;
use super::{calls, document, routes};
use crate::auth::{MintRequest, TokenRole};
use crate::clock::unix_seconds;
use crate::config::{Config, Overrides};
use crate::http::BODY_BYTES;
use crate::metrics::Metrics;
use crate::node::{Node, Parts};

const KEY: &str = "school-key-school-key-school-key";
const OTHER_KEY: &str = "office-key-office-key-office-key";
const HOOK: &str = "0123456789abcdef0123456789abcdef";
const CONFIG: &str = r#"
[[app]]
code = "school"
secret = "school-secret-school-secret-school"
api_keys = ["another-key-another-key-another", "school-key-school-key-school-key"]
callbacks = { generic = { secret = "0123456789abcdef0123456789abcdef" }, janus = { username = "janus", password = "0123456789abcdef" } }
[[app]]
code = "office"
secret = "office-secret-office-secret-office"
api_keys = ["office-key-office-key-office-key"]
"#;

/// `v1=` and the signature of `body` at `at`.
fn sign(secret: &str, at: u64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{at}.").as_bytes());
    mac.update(body);
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v1={hex}")
}

/// An instance whose store cannot be reached: what is let in ends with `STORE_UNAVAILABLE`.
fn node() -> Arc<Node> {
    let overrides = Overrides { dev: true, ..Overrides::default() };
    let mut builder = Builder::default_centralized();
    builder.with_performance_config(|performance| {
        performance.default_command_timeout = Duration::from_millis(20);
    });
    Node::new(Parts {
        config: Config::from_text("dais.toml", CONFIG, &overrides, []).unwrap(),
        scripts: Scripts::new(builder.build().unwrap()),
        lifeline: Scripts::new(builder.build().unwrap()),
        keys: Keys::new(Prefix::dev()),
        me: "a/1".parse().unwrap(),
        public_url: "http://127.0.0.1:7800".to_owned(),
        address: "127.0.0.1:7800".to_owned(),
        metrics: Metrics::new().unwrap(),
        embedded: None,
        media: Arc::default(),
        ledger: Ledger::unopened("sqlite:///nowhere/to/be/found.db", &ledger::Options::default()).unwrap(),
        clock: Arc::default(),
        replicas: crate::store::replicas::Replicas::default(),
    })
}

struct Api {
    node: Arc<Node>,
    router: Router,
}

/// A refusal, as its caller sees it.
#[derive(Debug)]
struct Seen {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl Seen {
    fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    fn detail(&self) -> &str {
        self.body["detail"].as_str().unwrap_or_default()
    }
}

impl Api {
    fn new() -> Self {
        let node = node();
        let router = routes().layer(DefaultBodyLimit::max(BODY_BYTES)).with_state(Arc::clone(&node));
        Self { node, router }
    }

    async fn send(&self, request: http::request::Builder, body: impl Into<Body>) -> Response {
        self.router.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap()
    }

    /// Sends, and reads what must be a problem document.
    async fn refused(&self, request: http::request::Builder, body: impl Into<Body>) -> Seen {
        let (parts, body) = self.send(request, body).await.into_parts();
        assert_eq!(parts.headers["content-type"], "application/problem+json", "{parts:?}");
        let body = axum::body::to_bytes(body, 100_000).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["status"], parts.status.as_u16(), "{body}");
        Seen { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    fn token(&self, app: &str, admin: bool, room: Option<&str>, expired: bool) -> String {
        let request = MintRequest {
            app: AppCode::new(app).unwrap(),
            user: UserId::new("back").unwrap(),
            role: TokenRole::Host,
            room: room.map(|room| RoomId::new(room).unwrap()),
            name: None,
            auth_version: None,
            admin,
            ttl: Duration::from_secs(60),
        };
        let now = unix_seconds();
        self.node.verifier.mint(&request, if expired { now - 3_600 } else { now }).unwrap()
    }
}

/// A request for a call's example path.
fn request(call: &Call) -> http::request::Builder {
    at(call, &call.example_path())
}

fn at(call: &Call, path: &str) -> http::request::Builder {
    let builder = Request::builder().method(call.method_name()).uri(path);
    if call.body.is_some() { builder.header("content-type", call.body_types[0]) } else { builder }
}

fn authorized(builder: http::request::Builder) -> http::request::Builder {
    builder.header("authorization", format!("Bearer {KEY}"))
}

fn example(call: &Call) -> String {
    call.body.as_ref().map(|body| body.example.to_string()).unwrap_or_default()
}

fn of_back_ends() -> impl Iterator<Item = Call> {
    calls().into_iter().filter(|call| call.authorized)
}

#[tokio::test]
async fn the_example_of_every_call_is_let_in() {
    let api = Api::new();
    for call in of_back_ends() {
        let seen = api.refused(authorized(request(&call)), example(&call)).await;
        let store = if call.tag == "events" { "LEDGER_UNAVAILABLE" } else { "STORE_UNAVAILABLE" };
        assert_eq!((seen.status, seen.code()), (503, store), "{}: {seen:?}", call.id);
        assert_eq!(seen.headers["retry-after"], "1");
    }
}

#[tokio::test]
async fn only_the_apps_own_back_end_is_let_in() {
    let api = Api::new();
    let bearer = |text: &str| format!("Bearer {text}");
    let elsewhere = api.token("school", true, Some("other"), false);
    for call in of_back_ends() {
        let has_room = call.path.contains("{room}");
        let here = if has_room { 503 } else { 403 };
        for (shown, status) in [
            (bearer(KEY), 503),
            (format!("bearer  {KEY} "), 503),
            (bearer(&api.token("school", true, None, false)), 503),
            (bearer(&api.token("school", true, Some("maths-1"), false)), here),
            (bearer(&elsewhere), 403),
            (bearer(&api.token("school", false, None, false)), 403),
            (bearer(&api.token("office", true, None, false)), 403),
            (bearer(OTHER_KEY), 403),
            (bearer(&api.token("school", true, None, true)), 401),
            (bearer(&format!("{KEY}x")), 401),
            (bearer("a.b.c"), 401),
            (format!("Basic {KEY}"), 401),
            (KEY.to_owned(), 401),
            ("Bearer ".to_owned(), 401),
        ] {
            let seen = api.refused(request(&call).header("authorization", &shown), example(&call)).await;
            assert_eq!(seen.status, status, "{}: {shown}: {seen:?}", call.id);
            let challenged = seen.headers.contains_key("www-authenticate");
            assert_eq!(challenged, status == 401, "{shown}");
        }
        let seen = api.refused(request(&call), example(&call)).await;
        assert_eq!((seen.status, seen.code()), (401, "UNAUTHENTICATED"), "{}", call.id);
        let twice = authorized(authorized(request(&call)));
        assert_eq!(api.refused(twice, example(&call)).await.status, 401, "{}", call.id);
    }
}

#[tokio::test]
async fn an_app_that_is_not_served_here_looks_like_another_ones() {
    let api = Api::new();
    for app in ["nowhere", "office"] {
        let path = format!("/v1/apps/{app}/rooms/maths-1");
        let seen = api.refused(authorized(Request::get(path)), "").await;
        assert_eq!((seen.status, seen.detail()), (403, "the API key is for another app"));
    }
}

#[tokio::test]
async fn a_name_in_a_path_is_checked() {
    let api = Api::new();
    let long = "x".repeat(129);
    for call in of_back_ends() {
        for name in
            ["app", "room", "user"].into_iter().filter(|name| call.path.contains(&format!("{{{name}}}")))
        {
            for bad in ["%00", "%0A", "%FF", long.as_str()] {
                let mut path = call.path.replace(&format!("{{{name}}}"), bad);
                for (other, good) in [("app", "school"), ("room", "maths-1"), ("user", "ann")] {
                    path = path.replace(&format!("{{{other}}}"), good);
                }
                let seen = api.refused(authorized(at(&call, &path)), example(&call)).await;
                assert_eq!((seen.status, seen.code()), (400, "BAD_REQUEST"), "{} {path}", call.id);
                assert!(seen.detail().contains("path"), "{}", seen.detail());
            }
        }
    }
    let slash = authorized(Request::get("/v1/apps/school/rooms/a%2Fb%20%E6%95%B0"));
    assert_eq!(api.refused(slash, "").await.status, 503, "any other text is a name");
}

#[tokio::test]
async fn a_body_that_is_none_is_refused() {
    let api = Api::new();
    let large = format!("{{\"user\":\"{}\"}}", "x".repeat(BODY_BYTES));
    for call in of_back_ends().filter(|call| call.body.is_some()) {
        for (body, status, code) in [
            ("[]", 400, "BAD_REQUEST"),
            ("null", 400, "BAD_REQUEST"),
            ("\"text\"", 400, "BAD_REQUEST"),
            ("{", 400, "BAD_REQUEST"),
            ("{\"a\": 1} x", 400, "BAD_REQUEST"),
            ("\u{0}", 400, "BAD_REQUEST"),
            ("{\"noSuchField\": 1}", 400, "BAD_REQUEST"),
            (large.as_str(), 413, "PAYLOAD_TOO_LARGE"),
        ] {
            let seen = api.refused(authorized(request(&call)), body.to_owned()).await;
            assert_eq!((seen.status, seen.code()), (status, code), "{}: {body:.40}: {seen:?}", call.id);
        }
        for kind in ["text/plain", "application/xml", "application/x-www-form-urlencoded", ""] {
            let builder = Request::builder().method(call.method_name()).uri(call.example_path());
            let seen = api.refused(authorized(builder).header("content-type", kind), example(&call)).await;
            assert_eq!((seen.status, seen.code()), (415, "BAD_REQUEST"), "{}: {kind}", call.id);
        }
        let none = api.refused(authorized(request(&call)), "").await.status;
        assert_eq!(none, if call.body_optional { 503 } else { 400 }, "{}", call.id);
    }
}

/// Bodies of each call that are objects, and what is wrong with them.
fn bad_bodies() -> Vec<(&'static str, Value, &'static str)> {
    let user = "invalid type: integer `1`, expected a string";
    let long = "user has 129 bytes, at most 128 are allowed";
    let x129 = "x".repeat(129);
    let x257 = "x".repeat(257);
    vec![
        ("openRoom", json!({ "seats": 1001 }), "seats: must be 0 to 1000"),
        ("openRoom", json!({ "seats": -1 }), "seats: invalid value: integer `-1`, expected u16"),
        ("openRoom", json!({ "capacity": 0 }), "capacity: must be 1 to 1000000"),
        (
            "openRoom",
            json!({ "autoClose": "yes" }),
            "autoClose: invalid type: string \"yes\", expected a boolean",
        ),
        ("openRoom", json!({ "settings": [] }), "settings: invalid type: sequence, expected a map"),
        ("openRoom", json!({ "settings": { "x": 1 } }), "`settings.x` is not a setting"),
        (
            "openRoom",
            json!({ "seat": 1 }),
            "seat: unknown field `seat`, expected one of `settings`, `seats`, `capacity`, `autoClose`",
        ),
        ("changeSettings", json!({}), "`settings` changes nothing"),
        (
            "changeSettings",
            json!({ "vad": { "threshold": 2 } }),
            "`settings.vad.threshold` must be a number from 0 to 1, not 2",
        ),
        ("changeGuest", json!({}), "`state` changes nothing"),
        ("changeGuest", json!({ "stage": 1 }), "`state.stage` must be a boolean, not a number"),
        ("closeRoom", json!({ "reason": 1 }), "reason: invalid type: integer `1`, expected a string"),
        ("closeRoom", json!({ "reason": x257 }), "reason: must be at most 256 bytes"),
        ("kick", json!({}), "missing field `user`"),
        ("kick", json!({ "user": "" }), "user: user is empty"),
        ("kick", json!({ "user": 1 }), user),
        ("kick", json!({ "user": "bob", "banSeconds": 0 }), "banSeconds: must be 1 to 316224000"),
        (
            "kick",
            json!({ "user": "bob", "ban": 0 }),
            "ban: unknown field `ban`, expected one of `user`, `reason`, `banSeconds`",
        ),
        ("unban", json!({ "user": x129 }), long),
        ("setRole", json!({ "user": "ann" }), "missing field `role`"),
        (
            "setRole",
            json!({ "user": "ann", "role": "king" }),
            "role: unknown variant `king`, expected `guest` or `host`",
        ),
        ("lockRoom", json!({}), "missing field `locked`"),
        ("lockRoom", json!({ "locked": 1 }), "locked: invalid type: integer `1`, expected a boolean"),
        ("micUp", json!({ "seat": 1 }), "missing field `user`"),
        ("micUp", json!({ "user": "ann", "seat": 0 }), "seat: must be 1 to 1000"),
        ("micUp", json!({ "user": "ann", "seat": 1001 }), "seat: must be 1 to 1000"),
        (
            "micDown",
            json!({ "user": "ann", "micSession": "" }),
            "micSession: must be 1 to 128 bytes without control characters",
        ),
        ("micMove", json!({ "user": "ann" }), "missing field `seat`"),
        (
            "micMove",
            json!({ "user": "ann", "seat": 1.5 }),
            "seat: invalid type: floating point `1.5`, expected u16",
        ),
        ("lockSeat", json!({ "seat": 1 }), "missing field `locked`"),
        ("lockSeat", json!({ "seat": 0, "locked": true }), "seat: must be 1 to 1000"),
        ("micMute", json!({ "user": "ann" }), "missing field `muted`"),
        (
            "micMuteAll",
            json!({ "muted": true, "except": "ann" }),
            "except: invalid type: string \"ann\", expected a sequence",
        ),
        (
            "micMuteAll",
            json!({ "muted": true, "except": vec!["u"; 101] }),
            "except: must be at most 100 users",
        ),
        ("setSeats", json!({}), "missing field `count`"),
        ("setSeats", json!({ "count": 1001 }), "count: must be at most 1000 seats"),
        ("setSeats", json!({ "count": 70000 }), "count: invalid value: integer `70000`, expected u16"),
        ("micInvite", json!({ "user": null }), "user: invalid type: null, expected a string"),
        ("micInvite", json!({ "user": "ann", "seat": 0 }), "seat: must be 1 to 1000"),
        ("micRespond", json!({ "user": "ann" }), "missing field `accept`"),
    ]
}

#[tokio::test]
async fn what_is_wrong_in_a_body_is_named() {
    let api = Api::new();
    let bad = bad_bodies();
    let mut left: BTreeSet<_> =
        of_back_ends().filter(|call| call.body.is_some()).map(|call| call.id).collect();
    for (id, body, detail) in bad {
        let call = calls().into_iter().find(|call| call.id == id).unwrap();
        let seen = api.refused(authorized(request(&call)), body.to_string()).await;
        assert_eq!((seen.status, seen.code()), (400, "BAD_REQUEST"), "{id}: {body}");
        assert!(seen.detail().ends_with(detail), "{id}: {body}: {}", seen.detail());
        left.remove(id);
    }
    assert_eq!(left, BTreeSet::new(), "calls without a case");
}

#[tokio::test]
async fn queries_and_headers_are_checked() {
    let api = Api::new();
    for call in of_back_ends() {
        let named = |place: ParameterIn, name: &str| {
            call.parameters.iter().any(|parameter| parameter.parameter_in == place && parameter.name == name)
        };
        if named(ParameterIn::Header, "Idempotency-Key") {
            for bad in ["", "a b", &"k".repeat(65)] {
                let request = authorized(request(&call)).header("idempotency-key", bad);
                assert_eq!(api.refused(request, example(&call)).await.status, 400, "{} {bad:?}", call.id);
            }
        }
        if named(ParameterIn::Header, "If-Match") {
            for bad in ["W/\"7\"", "seven", "\"7\", \"8\""] {
                let request = authorized(request(&call)).header("if-match", bad);
                assert_eq!(api.refused(request, example(&call)).await.status, 400, "{} {bad}", call.id);
            }
        }
        let bad: &[&str] = match call.id {
            "listRooms" => &[
                "limit=0",
                "limit=101",
                "limit=x",
                "limit=",
                "status=open",
                "status=",
                "cursor=%00",
                "prefix=%0A",
                "limit=1&limit=2",
                "curser=a",
            ],
            "listBans" => &["limit=0", "limit=201", "cursor=%00", "before=1"],
            "listEvents" => &[
                "limit=0",
                "limit=201",
                "before=-1",
                "before=9223372036854775808",
                "state=",
                "state=all",
                "a=b",
            ],
            "readTimeline" => &["limit=0", "limit=201", "before=", "before=x", "before=1%200", "cursor=a"],
            _ => &[],
        };
        let has_query = call.parameters.iter().any(|parameter| parameter.parameter_in == ParameterIn::Query);
        assert_eq!(has_query, !bad.is_empty(), "{}", call.id);
        for query in bad {
            let seen =
                api.refused(authorized(at(&call, &format!("{}?{query}", call.example_path()))), "").await;
            assert_eq!((seen.status, seen.code()), (400, "BAD_REQUEST"), "{} {query}", call.id);
        }
    }
}

#[tokio::test]
async fn the_router_itself_refuses_with_problems() {
    let api = Api::new();
    for path in ["/v1", "/v1/nothing", "/v1/apps/school/rooms/r/nothing", "/rtc/zego/school", "/rtc"] {
        let seen = api.refused(Request::get(path), "").await;
        assert_eq!((seen.status, seen.code()), (404, "BAD_REQUEST"), "{path}");
    }
    for (method, path, allowed) in [
        ("DELETE", "/v1/apps/school/rooms/r", &["PUT", "GET"][..]),
        ("POST", "/v1/apps/school/rooms", &["GET"][..]),
        ("GET", "/v1/apps/school/rooms/r/settings", &["PATCH"][..]),
        ("TRACE", "/v1/apps/school/rooms/r/commands/kick", &["POST"][..]),
        ("GET", "/rtc/generic/school", &["POST"][..]),
        ("PUT", "/rtc/janus/school", &["POST", "GET"][..]),
    ] {
        let seen = api.refused(Request::builder().method(method).uri(path), "").await;
        assert_eq!((seen.status, seen.code()), (405, "BAD_REQUEST"), "{method} {path}");
        let allow = seen.headers["allow"].to_str().unwrap();
        assert!(allowed.iter().all(|method| allow.split(',').any(|one| one == *method)), "{allow}");
    }
}

#[tokio::test]
async fn a_callback_is_proved_before_it_is_read() {
    let api = Api::new();
    let now = unix_seconds();
    let good = r#"{"id":"e","type":"audio_started","room":"r","user":"ann","at":1}"#;
    let unknown = r#"[{"type":"weather"}]"#;
    let call = async |path: &str, at: u64, signature: &str, body: &'static str| {
        let request =
            Request::post(path).header("dais-timestamp", at.to_string()).header("dais-signature", signature);
        api.send(request, body).await.status()
    };
    let path = "/rtc/generic/school";
    let counted = |result: &str| api.node.metrics.rtc_callbacks.with_label_values(&["generic", result]).get();
    assert_eq!(call(path, now, &sign(HOOK, now, unknown.as_bytes()), unknown).await, StatusCode::OK);
    assert_eq!(counted("unknown_type"), 1);
    // The sender has to repeat what could not be put into an inbox.
    assert_eq!(
        call(path, now, &sign(HOOK, now, good.as_bytes()), good).await,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(counted("failed"), 1);
    assert_eq!(call(path, now, &sign(HOOK, now, b"{"), "{").await, StatusCode::BAD_REQUEST);
    assert_eq!(counted("malformed"), 1);
    for (at, signature, body) in [
        (now, sign(HOOK, now, good.as_bytes()), unknown),
        (now, sign(OTHER_KEY, now, good.as_bytes()), good),
        (now - 1_000, sign(HOOK, now - 1_000, good.as_bytes()), good),
        (now + 1_000, sign(HOOK, now + 1_000, good.as_bytes()), good),
        (now, sign(HOOK, now, b"{").replace("v1", "v2"), "{"),
    ] {
        assert_eq!(call(path, at, &signature, body).await, StatusCode::UNAUTHORIZED, "{at} {body}");
    }
    assert_eq!(counted("refused"), 5);
    let unsigned = api.refused(Request::post(path), good).await;
    assert_eq!((unsigned.status, unsigned.code()), (401, "UNAUTHENTICATED"));
    for path in ["/rtc/generic/office", "/rtc/generic/nowhere"] {
        let signature = sign(HOOK, now, good.as_bytes());
        assert_eq!(call(path, now, &signature, good).await, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn each_vendor_proves_itself_in_its_own_way() {
    let api = Api::new();
    for vendor in ["generic", "janus", "livekit", "trtc", "agora"] {
        for app in ["office", "nowhere"] {
            let seen = api.refused(Request::post(format!("/rtc/{vendor}/{app}")), "{}").await;
            assert_eq!((seen.status, seen.code()), (404, "BAD_REQUEST"), "{vendor} {app}");
        }
    }
    let basic = |password: &str| format!("Basic {}", STANDARD.encode(format!("janus:{password}")));
    let janus = |password: &str| Request::post("/rtc/janus/school").header("authorization", basic(password));
    let counted = |result: &str| api.node.metrics.rtc_callbacks.with_label_values(&["janus", result]).get();
    let seen = api.refused(janus("0123456789abcdeF"), "[]").await;
    assert_eq!((seen.status, seen.code()), (401, "UNAUTHENTICATED"));
    assert_eq!(seen.headers["www-authenticate"], "Basic realm=\"callbacks\"");
    assert_eq!(counted("refused"), 1);
    let seen = api.refused(janus("0123456789abcdef"), "7").await;
    assert_eq!((seen.status, counted("malformed")), (400, 1));
    // As large as a batch of statistics may be; what is of no interest needs no store.
    let padded = |bytes: usize| json!([{ "type": 32, "subtype": 3, "event": "x".repeat(bytes) }]).to_string();
    let response = api.send(janus("0123456789abcdef"), padded(1_000_000)).await;
    assert_eq!(
        (response.status(), &response.headers()["content-type"]),
        (StatusCode::OK, &"application/json".parse().unwrap())
    );
    assert_eq!(counted("unknown_type"), 1);
    let seen = api.refused(janus("0123456789abcdef"), padded(1_048_576)).await;
    assert_eq!((seen.status, seen.code()), (413, "PAYLOAD_TOO_LARGE"));
}

#[tokio::test]
async fn a_socket_of_janus_is_opened_by_a_handshake_alone() {
    let api = Api::new();
    let seen = api.refused(Request::get("/rtc/janus/school"), "").await;
    assert_eq!((seen.status, &seen.headers["upgrade"]), (426, &"websocket".parse().unwrap()));
    let seen = api.refused(Request::get("/rtc/janus/office"), "").await;
    assert_eq!(seen.status, 404);
}

#[tokio::test]
async fn the_document_is_served() {
    let api = Api::new();
    let response = api.send(Request::get("/openapi.json"), "").await;
    assert_eq!(
        (response.status(), &response.headers()["content-type"]),
        (StatusCode::OK, &"application/json".parse().unwrap())
    );
    let body = axum::body::to_bytes(response.into_body(), 1_000_000).await.unwrap();
    assert_eq!(body, document());
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                found.insert(reference.to_owned());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_document_is_whole() {
    let document: Value = serde_json::from_str(document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut referred = BTreeSet::new();
    references(&document, &mut referred);
    assert!(referred.len() > 20, "{referred:?}");
    for reference in &referred {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(referred.contains(&format!("#/components/schemas/{name}")), "{name} is not used");
    }
    let mut ids = BTreeSet::new();
    for call in calls() {
        let path = call.path.replace('/', "~1");
        let operation = document.pointer(&format!("/paths/{path}/{}", call.method_name().to_lowercase()));
        let operation = operation.unwrap_or_else(|| panic!("{} is not in the document", call.id));
        assert!(ids.insert(operation["operationId"].to_string()), "{} is there twice", call.id);
        assert_eq!(operation.get("security").is_some(), call.authorized, "{}", call.id);
        let responses = operation["responses"].as_object().unwrap();
        let expected: &[&str] = match (call.body.is_some(), call.authorized) {
            (true, true) => &["400", "401", "403", "413", "415", "500", "503"],
            (true, false) => &["400", "401", "404", "413", "500", "503"],
            (false, true) => &["400", "401", "403", "500", "503"],
            (false, false) => &["101", "400", "401", "404", "426", "500", "503"],
        };
        for status in expected {
            assert!(responses.contains_key(*status), "{} lacks {status}", call.id);
        }
        for (status, response) in responses.iter().filter(|(status, _)| !call.switches || *status != "101") {
            let kind = if status.starts_with('2') { "application/json" } else { "application/problem+json" };
            let content = &response["content"][kind];
            assert!(content["schema"].is_object(), "{} {status}", call.id);
            assert_eq!(content.get("example").is_some(), status.starts_with('2'), "{} {status}", call.id);
        }
        for kind in call.body.iter().flat_map(|_| call.body_types) {
            assert!(operation["requestBody"]["content"][kind]["example"] != Value::Null, "{}", call.id);
        }
    }
}
