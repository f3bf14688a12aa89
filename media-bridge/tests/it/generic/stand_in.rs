//! A media server in memory that implements the API, and believes what is signed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// When it is, in Unix seconds.
pub(super) const NOW_S: u64 = 1_700_000_000;

/// A request that was believed.
#[derive(Debug, Clone)]
pub(super) struct Saved {
    pub(super) method: Method,
    pub(super) path: String,
    /// Those of the signature and of the body.
    pub(super) headers: HeaderMap,
    pub(super) raw: Bytes,
    pub(super) body: Value,
}

#[derive(Debug)]
enum Mood {
    Able,
    Always(StatusCode, String),
    Silent,
}

#[derive(Debug)]
struct Room {
    room: Value,
    generation: u64,
    participants: BTreeMap<String, Value>,
}

#[derive(Debug)]
struct Inner {
    secret: String,
    mood: Mood,
    saved: Vec<Saved>,
    unproved: usize,
    rooms: BTreeMap<String, Room>,
}

/// The server, until it is dropped.
#[derive(Debug)]
pub(super) struct StandIn {
    pub(super) url: String,
    inner: Arc<Mutex<Inner>>,
    task: JoinHandle<()>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StandIn {
    pub(super) async fn start(secret: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inner = Arc::new(Mutex::new(Inner {
            secret: secret.to_owned(),
            mood: Mood::Able,
            saved: Vec::new(),
            unproved: 0,
            rooms: BTreeMap::new(),
        }));
        let app = axum::Router::new().fallback(handle).with_state(Arc::clone(&inner));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, inner, task }
    }

    /// Gives this answer from now on.
    pub(super) fn answer_always(&self, status: u16, body: &str) {
        let status = StatusCode::from_u16(status).unwrap();
        self.inner.lock().unwrap().mood = Mood::Always(status, body.to_owned());
    }

    /// Takes requests, and answers none.
    pub(super) fn answer_never(&self) {
        self.inner.lock().unwrap().mood = Mood::Silent;
    }

    /// The requests that were believed, in their order.
    pub(super) fn saved(&self) -> Vec<Saved> {
        self.inner.lock().unwrap().saved.clone()
    }

    /// How many were not.
    pub(super) fn unproved(&self) -> usize {
        self.inner.lock().unwrap().unproved
    }
}

async fn handle(
    State(inner): State<Arc<Mutex<Inner>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    raw: Bytes,
) -> Response {
    let answer = inner.lock().unwrap().answer(method, &uri, headers, raw);
    match answer {
        Some((status, body)) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
        None => std::future::pending().await,
    }
}

impl Inner {
    fn answer(&mut self, method: Method, uri: &Uri, headers: HeaderMap, raw: Bytes) -> Option<(u16, String)> {
        match &self.mood {
            Mood::Able => {}
            Mood::Always(status, body) => return Some((status.as_u16(), body.clone())),
            Mood::Silent => return None,
        }
        let path = uri.path_and_query().unwrap().as_str().to_owned();
        let at = headers.get("dais-timestamp").and_then(|at| at.to_str().ok()).unwrap_or_default();
        let head = format!("{at}\n{method}\n{path}\n");
        let right = format!("v1={}", hex(&self.secret, &[head.as_bytes(), &raw]));
        let proved = headers.get("dais-signature").is_some_and(|given| *given == *right);
        if !proved || at.parse::<u64>().is_ok_and(|at| at.abs_diff(NOW_S) > 300) {
            self.unproved += 1;
            return Some((401, String::new()));
        }
        let body = if raw.is_empty() { Value::Null } else { serde_json::from_slice(&raw).unwrap() };
        assert_eq!(raw.is_empty(), !headers.contains_key("content-type"), "{method} {path}");
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let from = names.iter().position(|name| matches!(*name, "routers" | "health"));
        let (status, answer) = self.serve(&method, &names[from.unwrap_or_default()..], &body);
        let ours = |name: &HeaderName| name.as_str().starts_with("dais-") || name == CONTENT_TYPE;
        let headers = headers.into_iter().filter_map(|(name, value)| Some((name.filter(ours)?, value)));
        self.saved.push(Saved { method, path: path.clone(), headers: headers.collect(), raw, body });
        Some((status, if answer.is_null() { String::new() } else { answer.to_string() }))
    }

    fn serve(&mut self, method: &Method, path: &[&str], body: &Value) -> (u16, Value) {
        let missing = |what: &str| (404, json!({ "missing": what }));
        match (method.as_str(), path) {
            ("GET", ["health"]) => {
                let participants: usize = self.rooms.values().map(|room| room.participants.len()).sum();
                (200, json!({ "participants": participants }))
            }
            ("PUT", ["routers", router]) => self.make(router, body),
            (method, ["routers", router, rest @ ..]) => {
                let Some(room) = self.rooms.get_mut(*router) else { return missing("router") };
                match (method, rest) {
                    ("GET", []) => (200, Value::Null),
                    ("DELETE", []) => {
                        self.rooms.remove(*router);
                        (204, Value::Null)
                    }
                    ("GET", ["participants"]) => (200, room.listed()),
                    ("PUT", ["participants", name]) => {
                        room.participants.insert((*name).to_owned(), body["permissions"].clone());
                        (200, json!({ "data": { "token": format!("for {name}") } }))
                    }
                    ("PATCH", ["participants", name]) => match room.participants.get_mut(*name) {
                        Some(permissions) => {
                            *permissions = body["permissions"].clone();
                            (204, Value::Null)
                        }
                        None => missing("participant"),
                    },
                    ("DELETE", ["participants", name]) => match room.participants.remove(*name) {
                        Some(_) => (204, Value::Null),
                        None => missing("participant"),
                    },
                    _ => (405, Value::Null),
                }
            }
            _ => (404, Value::Null),
        }
    }

    fn make(&mut self, router: &str, body: &Value) -> (u16, Value) {
        let room = json!([body["app"], body["room"]]);
        let generation = body["generation"].as_u64().unwrap();
        let newest =
            self.rooms.values().filter(|other| other.room == room).map(|other| other.generation).max();
        if let Some(newest) = newest.filter(|newest| *newest > generation) {
            return (409, json!({ "generation": newest }));
        }
        let made = Room { room, generation, participants: BTreeMap::new() };
        self.rooms.entry(router.to_owned()).or_insert(made);
        (200, Value::Null)
    }
}

impl Room {
    fn listed(&self) -> Value {
        let one = |(name, permissions): (&String, &Value)| json!({ "participant": name, "audible": null, "mayPublishAudio": permissions["publishAudio"] });
        self.participants.iter().map(one).collect()
    }
}

fn hex(secret: &str, parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The headers of a callback.
pub(super) fn signed(secret: &str, at_s: u64, body: &[u8]) -> HeaderMap {
    let signature = format!("v1={}", hex(secret, &[at_s.to_string().as_bytes(), b".", body]));
    HeaderMap::from_iter([
        ("dais-timestamp".parse().unwrap(), HeaderValue::from(at_s)),
        ("dais-signature".parse().unwrap(), HeaderValue::from_str(&signature).unwrap()),
    ])
}
