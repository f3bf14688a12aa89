//! The WebSocket to one Janus: a session, a handle for requests about rooms, and transactions matched to answers.
//!
//! A task owns the socket. It is connected from the beginning, and again after each loss, with pauses that grow;
//! meanwhile calls fail at once, for the reason for which there is no connection. No state of a room depends on the
//! connection: requests name the room.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use http::HeaderValue;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;

use super::JanusPlugin;
use crate::MediaError;

/// Calls that wait for being sent, and calls that wait for an answer.
const MOST_WAITING: usize = 64;
const MOST_IN_FLIGHT: usize = 256;
/// Largest answer that is read.
const MOST_BYTES: usize = 4 << 20;
/// A quarter of the smallest `session_timeout` that is of use.
const KEEPALIVE: Duration = Duration::from_secs(4);
/// Pause before the first reconnection, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Error codes of Janus itself.
const NO_SESSION: u64 = 458;
const NO_HANDLE: u64 = 459;
const TAKES_NO_SESSIONS: u64 = 472;

type Socket = WebSocketStream<TcpStream>;

/// Where Janus is, and who asks.
pub(super) struct Target {
    pub(super) url: Url,
    pub(super) api_secret: Option<String>,
    pub(super) plugin: JanusPlugin,
    pub(super) deadline: Duration,
}

/// To whom a call goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum To {
    Server,
    Session,
    Room,
    Handle(u64),
}

/// What ends a call; an error always does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    Acknowledged,
    Answered,
}

struct Call {
    to: To,
    /// Without transaction, secret and addresses.
    message: Value,
    until: Until,
    by: Instant,
    reply: oneshot::Sender<Result<Value, MediaError>>,
}

/// Takes calls. The connection ends when the last clone is gone.
#[derive(Clone)]
pub(super) struct Link {
    calls: mpsc::Sender<Call>,
    deadline: Duration,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Link {
    /// Begins to connect. Needs a runtime.
    pub(super) fn open(target: Target) -> Self {
        let (calls, queue) = mpsc::channel(MOST_WAITING);
        let deadline = target.deadline;
        tokio::spawn(run(target, queue));
        Self { calls, deadline }
    }

    /// When a call that begins now must be over.
    pub(super) fn by(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Calls, and gives the whole message that answers.
    pub(super) async fn call(
        &self,
        to: To,
        message: Value,
        until: Until,
        by: Instant,
    ) -> Result<Value, MediaError> {
        let (reply, answer) = oneshot::channel();
        self.calls.try_send(Call { to, message, until, by, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                MediaError::TooMany { limit: "calls waiting for Janus", max: MOST_WAITING as u64 }
            }
            mpsc::error::TrySendError::Closed(_) => lost(),
        })?;
        match timeout_at(by, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(lost()),
            Err(_) => Err(late(self.deadline)),
        }
    }
}

pub(super) fn late(deadline: Duration) -> MediaError {
    MediaError::Timeout { after_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX) }
}

fn lost() -> MediaError {
    MediaError::unavailable("the connection to Janus is lost")
}

/// Ends when nobody can call any more.
async fn run(target: Target, mut queue: mpsc::Receiver<Call>) {
    let random = RandomState::new();
    let (mut pause, mut attempts) = (PAUSE.0, 0_u64);
    loop {
        let opened = timeout(target.deadline, Connection::open(&target)).await;
        let failure = match opened.unwrap_or_else(|_| Err(late(target.deadline))) {
            Ok(connection) => {
                pause = PAUSE.0;
                match connection.serve(&mut queue).await {
                    Some(failure) => failure,
                    None => return,
                }
            }
            Err(failure) => failure,
        };
        tracing::debug!(%failure, "no connection to Janus");
        attempts += 1;
        // Between half of it and all of it, so that coordinators do not come back at one moment.
        let jitter = pause.mul_f64((random.hash_one(attempts) % 512) as f64 / 1024.0);
        let until = Instant::now() + pause - jitter;
        loop {
            tokio::select! {
                call = queue.recv() => match call {
                    Some(call) => _ = call.reply.send(Err(failure.clone())),
                    None => return,
                },
                () = sleep_until(until) => break,
            }
        }
        pause = (pause * 2).min(PAUSE.1);
    }
}

struct Waiting {
    /// `None` for what the connection itself asks.
    reply: Option<oneshot::Sender<Result<Value, MediaError>>>,
    until: Until,
    by: Instant,
}

struct Connection<'a> {
    target: &'a Target,
    socket: Socket,
    session: u64,
    room_handle: u64,
    last: u64,
    /// By transaction: those that began earlier come first, and so do their deadlines.
    waiting: BTreeMap<u64, Waiting>,
}

impl<'a> Connection<'a> {
    async fn open(target: &'a Target) -> Result<Self, MediaError> {
        let refused = |_| MediaError::unavailable("it is no WebSocket of Janus");
        let mut request = target.url.as_str().into_client_request().map_err(refused)?;
        request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("janus-protocol"));
        let host = target.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = target.url.port_or_known_default().unwrap_or(80);
        let connected = TcpStream::connect((host, port)).await;
        let stream = connected.map_err(|_| MediaError::unavailable("cannot connect"))?;
        // A failure costs some milliseconds of delay, nothing else.
        _ = stream.set_nodelay(true);
        let limits =
            WebSocketConfig::default().max_message_size(Some(MOST_BYTES)).max_frame_size(Some(MOST_BYTES));
        let (socket, _) = client_async_with_config(request, stream, Some(limits)).await.map_err(refused)?;
        let waiting = BTreeMap::new();
        let mut connection = Self { target, socket, session: 0, room_handle: 0, last: 0, waiting };
        connection.session = connection.made(To::Server, json!({ "janus": "create" })).await?;
        let attach = json!({ "janus": "attach", "plugin": target.plugin.package(), "opaque_id": "dais" });
        connection.room_handle = connection.made(To::Session, attach).await?;
        Ok(connection)
    }

    /// Asks for a session or a handle, while nobody else can ask yet.
    async fn made(&mut self, to: To, message: Value) -> Result<u64, MediaError> {
        let (reply, mut answer) = oneshot::channel();
        let by = Instant::now() + self.target.deadline;
        self.send(to, message, Waiting { reply: Some(reply), until: Until::Answered, by }).await?;
        loop {
            let frame = self.socket.next().await;
            self.receive(frame)?;
            if let Ok(answer) = answer.try_recv() {
                return id(&answer?);
            }
        }
    }

    /// Serves until it fails, and then says why; `None` when nobody can call any more.
    async fn serve(mut self, queue: &mut mpsc::Receiver<Call>) -> Option<MediaError> {
        let mut keepalive = interval(KEEPALIVE);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let failure = loop {
            let expiry = self.waiting.first_key_value().map(|(_, first)| first.by);
            let step = tokio::select! {
                call = queue.recv(), if self.waiting.len() < MOST_IN_FLIGHT => match call {
                    Some(call) => self.pass_on(call).await,
                    None => {
                        // With the socket the session ends, and nothing else is bound to it.
                        _ = timeout(self.target.deadline, self.socket.close(None)).await;
                        return None;
                    }
                },
                frame = self.socket.next() => self.receive(frame),
                _ = keepalive.tick() => {
                    let by = Instant::now() + self.target.deadline;
                    let waiting = Waiting { reply: None, until: Until::Acknowledged, by };
                    self.send(To::Session, json!({ "janus": "keepalive" }), waiting).await
                }
                () = sleep_until(expiry.unwrap_or_else(Instant::now)), if expiry.is_some() => {
                    Err(late(self.target.deadline))
                }
            };
            if let Err(failure) = step {
                break failure;
            }
        };
        for reply in self.waiting.into_values().filter_map(|waiting| waiting.reply) {
            _ = reply.send(Err(failure.clone()));
        }
        Some(failure)
    }

    async fn pass_on(&mut self, call: Call) -> Result<(), MediaError> {
        if call.reply.is_closed() {
            return Ok(());
        }
        let waiting = Waiting { reply: Some(call.reply), until: call.until, by: call.by };
        self.send(call.to, call.message, waiting).await
    }

    async fn send(&mut self, to: To, mut message: Value, waiting: Waiting) -> Result<(), MediaError> {
        self.last += 1;
        message["transaction"] = json!(self.last.to_string());
        if let Some(secret) = &self.target.api_secret {
            message["apisecret"] = json!(secret);
        }
        if !matches!(to, To::Server) {
            message["session_id"] = json!(self.session);
        }
        match to {
            To::Room => message["handle_id"] = json!(self.room_handle),
            To::Handle(handle) => message["handle_id"] = json!(handle),
            To::Server | To::Session => {}
        }
        self.waiting.insert(self.last, waiting);
        let sent = timeout(self.target.deadline, self.socket.send(Message::text(message.to_string()))).await;
        sent.map_err(|_| late(self.target.deadline))?.map_err(|_| lost())
    }

    /// # Errors
    /// When the connection is of no use any more.
    fn receive<E>(&mut self, frame: Option<Result<Message, E>>) -> Result<(), MediaError> {
        let text = match frame {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => return Ok(()),
            Some(Ok(_) | Err(_)) | None => return Err(lost()),
        };
        let strange = |_| MediaError::unavailable("it does not speak the Janus API");
        let message: Value = serde_json::from_str(&text).map_err(strange)?;
        let kind = message["janus"].as_str().unwrap_or_default();
        let is_of_room = message["sender"].as_u64().is_some_and(|sender| sender == self.room_handle);
        if kind == "timeout" || kind == "detached" && is_of_room {
            return Err(MediaError::unavailable("Janus ended the session"));
        }
        let transaction = message["transaction"].as_str().and_then(|transaction| transaction.parse().ok());
        let Some(transaction) = transaction else { return Ok(()) };
        let waits_for_more = |waiting: &Waiting| kind == "ack" && waiting.until == Until::Answered;
        if self.waiting.get(&transaction).is_none_or(waits_for_more) {
            return Ok(());
        }
        let reply = self.waiting.remove(&transaction).and_then(|waiting| waiting.reply);
        let fault = (kind == "error").then(|| message["error"]["code"].as_u64().unwrap_or_default());
        let answer = match fault {
            None => Ok(message),
            Some(NO_SESSION | NO_HANDLE) => Err(MediaError::unavailable("Janus ended the session")),
            Some(TAKES_NO_SESSIONS) => Err(MediaError::unavailable("Janus takes no sessions")),
            Some(code) => Err(MediaError::Refused { reason: format!("Janus API error {code}") }),
        };
        let ended = matches!(fault, Some(NO_SESSION | NO_HANDLE));
        let failure = answer.as_ref().err().filter(|_| ended).cloned();
        if let Some(reply) = reply {
            _ = reply.send(answer);
        }
        failure.map_or(Ok(()), Err)
    }
}

/// The id of what an answer says was made.
pub(super) fn id(answer: &Value) -> Result<u64, MediaError> {
    answer["data"]["id"].as_u64().ok_or_else(|| MediaError::unavailable("it does not speak the Janus API"))
}
