//! What a client knows of a room: the snapshot that it was let in with, and every event since.

use e2e::driver::{Driver, Event};
use e2e::wait;
use serde_json::{Value, json};
use std::time::Duration;

/// Settings and guest states as one client has them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub(crate) version: i64,
    pub(crate) settings: Value,
    pub(crate) guests: Value,
}

impl Known {
    /// From the answer to `room:join`.
    pub(crate) fn joined(answer: &Value) -> Self {
        let room = &answer["ack"]["room"];
        Self {
            version: room["version"]["settings"].as_i64().expect("a version"),
            settings: room["settings"].clone(),
            guests: room["guests"].clone(),
        }
    }

    /// Applies a `room:update` of settings. It must follow what is known, without a gap.
    pub(crate) fn hear(&mut self, event: &Event) {
        if event.body["of"] != "settings" {
            return;
        }
        let number = |field: &str| event.body[field].as_i64().expect("a version");
        let (from, to) = (number("from"), number("to"));
        if to <= self.version {
            return;
        }
        assert_eq!(from, self.version, "a gap before {:?}", event.body);
        self.version = to;
        for (part, known) in [("settings", &mut self.settings), ("guests", &mut self.guests)] {
            if let Some(patch) = event.body.get(part) {
                merge(known, patch);
            }
        }
    }

    /// Waits until `conn` has been told of `version`, and applies everything up to it.
    pub(crate) async fn follow(&mut self, driver: &Driver, conn: &str, version: i64, within: Duration) {
        let told = |event: &Event| {
            let is_of_settings = event.name == "room:update" && event.body["of"] == "settings";
            is_of_settings && event.body["to"].as_i64() >= Some(version)
        };
        // Before looking: what comes in between is waited for.
        let position = driver.position(conn).await;
        if self.version < version && !driver.events(conn, Some("room:update")).await.iter().any(told) {
            // A repair tells of several versions at once, so that one of them may never come by itself.
            driver.wait_event(conn, position, within, told).await;
        }
        for event in driver.events(conn, Some("room:update")).await {
            self.hear(&event);
        }
    }
}

/// A JSON merge patch, RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().expect("made one");
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Runs them at once and returns what they returned, in order.
pub(crate) async fn together<T: Send + 'static, F>(all: impl IntoIterator<Item = F>) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let started: Vec<_> = all.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::with_capacity(started.len());
    for each in started {
        results.push(each.await.expect("a part of the test failed"));
    }
    results
}

/// The error code of an ack, empty for a good one.
pub(crate) fn code(ack: &Value) -> &str {
    ack["error"]["code"].as_str().unwrap_or_default()
}

/// A refusal for the time being says so, and when to come again.
pub(crate) fn assert_refused_for_now(ack: &Value, codes: &[&str]) {
    assert!(codes.contains(&code(ack)), "one of {codes:?} was expected: {ack}");
    assert_eq!(ack["error"]["retryable"], true, "{ack}");
    assert!(ack["error"]["retryAfterMs"].is_u64(), "{ack}");
}

/// Asks again and again as long as it is refused for now, and returns the good answer.
pub(crate) async fn insist(driver: &Driver, conn: &str, name: &str, body: &Value) -> Value {
    wait::eventually(wait::SOON, || async {
        let ack = driver.emit(conn, name, body.clone()).await.expect("an answer");
        if ack["ok"] == true {
            return Ok(ack);
        }
        assert_refused_for_now(&ack, &["STORE_UNAVAILABLE", "LEASE_LOST", "TIMEOUT"]);
        Err(ack)
    })
    .await
}
