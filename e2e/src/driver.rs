//! Many official Socket.IO clients in one Node.js process: `e2e/node/driver.mjs`.
//!
//! Commands run at once when their futures do. A connection is called by a name that the test gives, and keeps
//! everything that it receives, to be asked for with [`Driver::events`] or waited for.

use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

use crate::json_lines::JsonLines;
use crate::process::Process;

pub use crate::json_lines::Failure;

/// Something that a connection received.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its number among all that the connection received.
    pub index: u64,
    /// Its name; also `connect`, `disconnect` and `connect_error`.
    pub name: String,
    /// Its body.
    pub body: Value,
    /// When it came, in Unix milliseconds.
    pub at_ms: f64,
}

impl Event {
    fn read(value: &Value) -> Self {
        Self {
            index: value["index"].as_u64().unwrap_or_default(),
            name: value["event"].as_str().unwrap_or_default().to_owned(),
            body: value["body"].clone(),
            at_ms: value["t"].as_f64().unwrap_or_default(),
        }
    }
}

/// The running driver.
#[derive(Debug)]
pub struct Driver {
    lines: JsonLines,
}

impl Driver {
    /// Starts it, installing its packages first if they are not there.
    #[expect(clippy::unused_async, reason = "it needs a runtime, and starts like everything else here")]
    pub async fn start() -> Self {
        Self { lines: JsonLines::start("driver.mjs") }
    }

    /// The process.
    pub const fn process(&self) -> &Process {
        self.lines.process()
    }

    /// Any command of `e2e/node/README.md` with its fields.
    pub async fn ask(&self, op: &str, fields: Value) -> Result<Value, Failure> {
        self.lines.ask(op, fields).await
    }

    /// Opens a connection.
    pub async fn connect(&self, conn: &str, url: &str, token: &str) -> Result<Value, Failure> {
        self.connect_with(conn, url, token, json!({})).await
    }

    /// Opens a connection with more fields, such as `transports` or `headers`.
    pub async fn connect_with(
        &self,
        conn: &str,
        url: &str,
        token: &str,
        fields: Value,
    ) -> Result<Value, Failure> {
        let base = json!({ "conn": conn, "url": url, "auth": { "token": token }, "quiet": true });
        self.ask("connect", merged(base, fields)).await
    }

    /// Joins as a good client does: follows redirects, waits out what is retryable. The answer's `ack` is the
    /// server's.
    pub async fn join(&self, conn: &str, url: &str, token: &str, room: &str) -> Result<Value, Failure> {
        self.join_with(conn, url, token, room, json!({})).await
    }

    /// Joins with more fields, such as `role`, `deadlineMs` or a list as `url`.
    pub async fn join_with(
        &self,
        conn: &str,
        url: &str,
        token: &str,
        room: &str,
        fields: Value,
    ) -> Result<Value, Failure> {
        let base =
            json!({ "conn": conn, "url": url, "auth": { "token": token }, "room": room, "quiet": true });
        self.ask("join", merged(base, fields)).await
    }

    /// Emits and returns the ack, whatever it says.
    pub async fn emit(&self, conn: &str, name: &str, body: Value) -> Result<Value, Failure> {
        let mut reply = self.ask("emit", json!({ "conn": conn, "name": name, "body": body })).await?;
        Ok(reply["ack"].take())
    }

    /// Emits and asks for no ack.
    pub async fn emit_no_ack(&self, conn: &str, name: &str, body: Value) -> Result<(), Failure> {
        self.ask("emitNoAck", json!({ "conn": conn, "name": name, "body": body })).await.map(drop)
    }

    /// Sends many requests with a bounded number in flight; fields as in `e2e/node/README.md`.
    pub async fn burst(&self, name: &str, conns: &[&str], fields: Value) -> Result<Value, Failure> {
        self.ask("burst", merged(json!({ "name": name, "conns": conns }), fields)).await
    }

    /// What a connection received so far, of one name or all.
    pub async fn events(&self, conn: &str, name: Option<&str>) -> Vec<Event> {
        let mut fields = json!({ "conn": conn });
        if let Some(name) = name {
            fields["name"] = json!(name);
        }
        let reply = self.ask("events", fields).await.unwrap_or_else(|failure| panic!("{failure:?}"));
        reply["events"].as_array().into_iter().flatten().map(Event::read).collect()
    }

    /// Where a connection's record ends now: what comes later has an index from here on.
    pub async fn position(&self, conn: &str) -> u64 {
        let reply = self.ask("status", json!({ "conn": conn })).await;
        reply.ok().and_then(|reply| reply["next"].as_u64()).unwrap_or_default()
    }

    /// Waits for the first event from index `since` on that `fits`, and panics when `within` is over.
    pub async fn wait_event(
        &self,
        conn: &str,
        since: u64,
        within: Duration,
        mut fits: impl FnMut(&Event) -> bool,
    ) -> Event {
        let deadline = Instant::now() + within;
        let mut next = since;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
            let reply =
                self.ask("waitEvent", json!({ "conn": conn, "since": next, "timeoutMs": left })).await;
            let Ok(reply) = reply else {
                let seen = self.events(conn, None).await;
                panic!("{conn} received nothing that fits within {within:?}, from {since} on of {seen:#?}");
            };
            let event = Event::read(&reply["received"]);
            if fits(&event) {
                return event;
            }
            next = event.index + 1;
        }
    }

    /// Waits for an event of this name, received or still to come.
    pub async fn wait_named(&self, conn: &str, name: &str, within: Duration) -> Event {
        self.wait_event(conn, 0, within, |event| event.name == name).await
    }

    /// Closes a connection with a goodbye.
    pub async fn close(&self, conn: &str) -> Result<(), Failure> {
        self.ask("close", json!({ "conn": conn })).await.map(drop)
    }

    /// Cuts a connection without one.
    pub async fn abort(&self, conn: &str) -> Result<(), Failure> {
        self.ask("abort", json!({ "conn": conn })).await.map(drop)
    }

    /// Stops reading from a connection, or goes on.
    pub async fn stall(&self, conn: &str, stalled: bool) -> Result<(), Failure> {
        self.ask("stall", json!({ "conn": conn, "stalled": stalled })).await.map(drop)
    }

    /// An HTTP request: `method`, `url`, `headers`, `body`; answers `status`, `headers`, `body`.
    pub async fn http(&self, fields: Value) -> Result<Value, Failure> {
        self.ask("http", fields).await
    }
}

fn merged(mut base: Value, fields: Value) -> Value {
    if let (Value::Object(base), Value::Object(fields)) = (&mut base, fields) {
        base.extend(fields);
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::{Flavor, RedisServer};

    #[tokio::test]
    async fn the_driver_says_why_a_command_failed() {
        let driver = Driver::start().await;
        let failure = driver.close("nobody").await.unwrap_err();
        assert_eq!(failure.message, "no such connection: nobody");
    }

    #[tokio::test]
    async fn a_refused_connection_is_a_failure_with_details() {
        // Something that listens and speaks another protocol.
        let server = RedisServer::start(Flavor::Redis).await;
        let driver = Driver::start().await;
        let url = format!("http://127.0.0.1:{}", server.port());
        let failure = driver.connect("a", &url, "token").await.unwrap_err();
        assert_eq!((failure.details["ok"].as_bool(), failure.code()), (Some(false), ""));
        let seen = driver.wait_named("a", "connect_error", Duration::from_secs(10)).await;
        assert_eq!(seen.index, 0);
    }
}
