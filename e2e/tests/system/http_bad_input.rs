//! Every HTTP call with what is wrong in it, each with its status, its code and what is wrong named.

use e2e::http::{self, Response};
use e2e::token::APP;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

use crate::http_api::{BackEnd, refused, with_keys};
use crate::stage::{ROOM, Stage};

/// A call that the document names, with its example.
struct Call {
    id: String,
    method: String,
    path: String,
    body: Option<Value>,
    parameters: Vec<Value>,
}

impl Call {
    fn read(path: &str, method: &str, operation: &Value) -> Self {
        let content = &operation["requestBody"]["content"];
        let body =
            content.as_object().and_then(|kinds| kinds.values().next()).map(|kind| kind["example"].clone());
        Self {
            id: operation["operationId"].as_str().expect("an id").to_owned(),
            method: method.to_uppercase(),
            path: path.to_owned(),
            body,
            parameters: operation["parameters"].as_array().cloned().unwrap_or_default(),
        }
    }

    /// The path below the app's, in a room.
    fn at(&self, room: &str, user: &str) -> String {
        self.path.replace("/v1/apps/{app}", "").replace("{room}", room).replace("{user}", user)
    }

    fn here(&self) -> String {
        self.at(ROOM, "ann")
    }

    fn example(&self) -> String {
        self.body.as_ref().map(Value::to_string).unwrap_or_default()
    }

    fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|parameter| parameter["name"] == name)
    }
}

/// Every call of back ends.
async fn calls(stage: &Stage) -> Vec<Call> {
    let document =
        http::get(&format!("{}/openapi.json", stage.cluster[1].url())).await.expect("the document").json();
    let no_operations = Map::new();
    let mut calls = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().unwrap_or(&no_operations) {
            calls.push(Call::read(path, method, operation));
        }
    }
    assert!(calls.len() > 20, "{}", calls.len());
    calls.retain(|call| call.path.starts_with("/v1/apps/{app}/rooms"));
    calls
}

/// Answers that are not what they should be, so that all are told at once.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn note(&mut self, call: &Call, what: &str, answer: &Response, status: u16, code: &str, says: &str) {
        let problem: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or_default();
        let is_problem = answer.header("content-type") == Some("application/problem+json");
        let is_right = answer.status == status && problem["code"] == code && problem["status"] == status;
        if !(is_problem && is_right && detail.contains(says)) {
            self.0.push(format!("{}: {what:.80}: {status} {code} {says:?} expected: {answer:?}", call.id));
        }
    }

    fn assert_none(self) {
        assert!(self.0.is_empty(), "{:#?}", self.0);
    }
}

#[tokio::test]
async fn every_http_call_refuses_what_is_no_request_of_it() {
    let stage = Stage::start_with(2, with_keys).await;
    stage.enter("ann", "guest").await;
    let before = stage.snapshot(0).await;
    let back_end = BackEnd::new(&stage);
    let mut wrong = Wrong::default();
    let long = "x".repeat(129);
    for call in calls(&stage).await {
        let send = async |path: &str, headers: &[(&str, &str)], body: &str| {
            back_end.send(1, &call.method, path, headers, body).await
        };
        let (here, example) = (call.here(), call.example());
        for name in ["room", "user"].into_iter().filter(|name| call.has(name)) {
            for (id, says) in
                [("%00", "path: "), ("%F0%28%8C", "UTF-8"), (&*long, "129 bytes"), ("a%0Ab", "path: ")]
            {
                let path = if name == "room" { call.at(id, "ann") } else { call.at(ROOM, id) };
                wrong.note(&call, &path, &send(&path, &[], &example).await, 400, "BAD_REQUEST", says);
            }
        }
        if call.has("If-Match") {
            for value in ["seven", "W/\"1\"", "\"1\", \"2\"", "-1"] {
                let answer = send(&here, &[("if-match", value)], &example).await;
                wrong.note(&call, value, &answer, 400, "BAD_REQUEST", "`If-Match`");
            }
        }
        if call.has("Idempotency-Key") {
            for value in ["", "a b", &long[..65]] {
                let answer = send(&here, &[("idempotency-key", value)], &example).await;
                wrong.note(&call, value, &answer, 400, "BAD_REQUEST", "`Idempotency-Key`");
            }
        }
        let queries: &[(&str, &str)] = match &*call.id {
            "listRooms" => &[
                ("limit=0", "`limit` must be 1 to 100"),
                ("limit=101", "`limit` must be 1 to 100"),
                ("limit=x", "limit"),
                ("status=open", "`status` must be one of"),
                ("cursor=%00", "`cursor`"),
                ("prefix=%0A", "`prefix`"),
                ("curser=a", "curser"),
            ],
            "listBans" => &[
                ("limit=201", "`limit` must be 1 to 200"),
                ("cursor=%00", "`cursor`"),
                ("before=1", "before"),
            ],
            "readTimeline" => &[
                ("limit=0", "`limit`"),
                ("before=x", "`before`"),
                ("before=1764468000000-", "`before`"),
                ("cursor=a", "cursor"),
            ],
            _ => &[],
        };
        assert_eq!(queries.is_empty(), !call.parameters.iter().any(|it| it["in"] == "query"), "{}", call.id);
        for (query, says) in queries {
            wrong.note(
                &call,
                query,
                &send(&format!("{here}?{query}"), &[], "").await,
                400,
                "BAD_REQUEST",
                says,
            );
        }
        let methods = ["DELETE", if call.method == "POST" { "GET" } else { "POST" }];
        for method in methods {
            let answer = back_end.send(1, method, &here, &[], "").await;
            wrong.note(&call, method, &answer, 405, "BAD_REQUEST", method);
            assert!(answer.header("allow").is_some_and(|allow| allow.contains(&call.method)), "{answer:?}");
        }
        wrong.note(
            &call,
            "more path",
            &send(&format!("{here}/more/of/it"), &[], &example).await,
            404,
            "BAD_REQUEST",
            "no such path",
        );
        if call.body.is_none() {
            continue;
        }
        let large = json!({ "reason": "x".repeat(64 * 1024) }).to_string();
        for (body, status, code, says) in [
            ("{", 400, "BAD_REQUEST", "the body: EOF"),
            ("[]", 400, "BAD_REQUEST", "must be an object, not a list"),
            ("null", 400, "BAD_REQUEST", "must be an object"),
            ("\"{}\"", 400, "BAD_REQUEST", "must be an object"),
            ("{\"noSuchField\":1}", 400, "BAD_REQUEST", "noSuchField"),
            (&*large, 413, "PAYLOAD_TOO_LARGE", "65536 bytes"),
        ] {
            wrong.note(&call, body, &send(&here, &[], body).await, status, code, says);
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded"] {
            let answer = send(&here, &[("content-type", kind)], &example).await;
            wrong.note(&call, kind, &answer, 415, "BAD_REQUEST", "`Content-Type`");
        }
    }
    wrong.assert_none();
    let after = stage.snapshot(0).await;
    assert_eq!(after["version"], before["version"], "nothing was done");
}

/// Bodies of each call that are objects, and what is wrong with them.
fn bad_bodies() -> Vec<(&'static str, Value, &'static str)> {
    let long = "x".repeat(129);
    vec![
        ("openRoom", json!({ "seats": 1001 }), "seats: must be 0 to 1000"),
        ("openRoom", json!({ "capacity": 0 }), "capacity: must be 1 to 1000000"),
        ("openRoom", json!({ "autoClose": "yes" }), "autoClose: invalid type"),
        (
            "openRoom",
            json!({ "settings": { "vad": { "threshold": 2 } } }),
            "`settings.vad.threshold` must be",
        ),
        ("changeSettings", json!({}), "`settings` changes nothing"),
        ("changeSettings", json!({ "noiseReduction": "loud" }), "`settings.noiseReduction`"),
        ("changeSettings", json!({ "custom": 1 }), "`settings.custom`"),
        ("changeGuest", json!({ "stage": "left" }), "`state.stage` must be a boolean"),
        ("closeRoom", json!({ "reason": "x".repeat(257) }), "reason: must be at most 256 bytes"),
        ("kick", json!({ "user": "" }), "user: user is empty"),
        ("kick", json!({ "user": "bob", "banSeconds": 0 }), "banSeconds: must be 1 to"),
        ("unban", json!({ "user": long }), "user has 129 bytes"),
        ("setRole", json!({ "user": "ann", "role": "king" }), "role: unknown variant `king`"),
        ("lockRoom", json!({ "locked": "yes" }), "locked: invalid type"),
        ("micUp", json!({ "seat": 1 }), "missing field `user`"),
        ("micUp", json!({ "user": "ann", "seat": 0 }), "seat: must be 1 to 1000"),
        ("micUp", json!({ "user": "ann", "seat": 99 }), "there is no seat 99"),
        ("micDown", json!({ "user": "ann", "micSession": "" }), "micSession: must be 1 to 128 bytes"),
        ("micMove", json!({ "user": "ann", "seat": 1.5 }), "seat: invalid type"),
        ("lockSeat", json!({ "seat": 1, "locked": true, "force": 1 }), "force: invalid type"),
        ("micMute", json!({ "user": "ann" }), "missing field `muted`"),
        (
            "micMuteAll",
            json!({ "muted": true, "except": vec!["u"; 101] }),
            "except: must be at most 100 users",
        ),
        ("setSeats", json!({ "count": 1001 }), "count: must be at most 1000 seats"),
        ("micInvite", json!({ "user": null }), "user: invalid type: null"),
        ("micRespond", json!({ "user": "ann", "accept": 0 }), "accept: invalid type"),
    ]
}

#[tokio::test]
async fn what_is_wrong_in_the_body_of_an_http_call_is_named() {
    let stage = Stage::start_with(2, with_keys).await;
    stage.enter("ann", "guest").await;
    let back_end = BackEnd::new(&stage);
    let calls = calls(&stage).await;
    let mut left: BTreeSet<&str> =
        calls.iter().filter(|call| call.body.is_some()).map(|call| &*call.id).collect();
    let mut wrong = Wrong::default();
    for (id, body, says) in bad_bodies() {
        let call = calls.iter().find(|call| call.id == id).unwrap_or_else(|| panic!("no call {id}"));
        left.remove(id);
        for at in 0..2 {
            let answer = back_end.send(at, &call.method, &call.here(), &[], &body.to_string()).await;
            wrong.note(call, &body.to_string(), &answer, 400, "BAD_REQUEST", says);
        }
    }
    assert_eq!(left, BTreeSet::new(), "calls without a case");

    // And a room that is not there, for each call that does not make one.
    for call in calls.iter().filter(|call| call.has("room") && call.id != "openRoom") {
        let answer = back_end.send(1, &call.method, &call.at("nowhere", "ann"), &[], &call.example()).await;
        wrong.note(call, "nowhere", &answer, 404, "ROOM_NOT_FOUND", "no such room");
    }
    wrong.assert_none();
    let elsewhere = format!("{}/v1/apps/{APP}/room", stage.cluster[0].url());
    refused(&http::get(&elsewhere).await.expect("an answer"), 404, "BAD_REQUEST");
}
