//! A client as cheap as can be: Engine.IO 4 and Socket.IO 5 over a WebSocket, written by hand.
//!
//! It reads of an event only what tells that a delivery has arrived.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

const PING: &str = "2";
const PONG: &str = "3";
/// Before a request that was refused is made again.
pub(crate) const RETRY: Duration = Duration::from_millis(50);
/// After which a request that is refused again and again will not be done any more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

type Socket = WebSocketStream<TcpStream>;

/// What a connection has been told so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Frames of any kind.
    pub(crate) frames: Cell<u64>,
    /// Events.
    pub(crate) events: Cell<u64>,
    /// Bytes of these events.
    pub(crate) bytes: Cell<u64>,
    /// The highest settings version.
    pub(crate) version: Cell<u64>,
    /// The highest cell version that an event told.
    pub(crate) cell: Cell<u64>,
    /// Changes of seats.
    pub(crate) seats: Cell<u64>,
    /// The highest number of peers.
    pub(crate) peers: Cell<u64>,
    /// When the last event came.
    pub(crate) last: Cell<Option<Instant>>,
    /// Each settings version that was the highest when it came, and when that was.
    pub(crate) arrivals: RefCell<Vec<(u64, Instant)>>,
    told: Notify,
}

struct Request {
    event: &'static str,
    body: Value,
    acked: oneshot::Sender<Ack>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Ack {
    /// From the request's being handed over until its answer was read.
    pub(crate) took: Duration,
    text: String,
}

impl Ack {
    /// Whether what was asked for was done.
    pub(crate) fn is_ok(&self) -> bool {
        self.text.contains(r#""ok":true"#)
    }

    /// Whether another instance was named as the one to ask.
    pub(crate) fn is_redirect(&self) -> bool {
        self.text.contains(r#""code":"WRONG_INSTANCE""#) && self.text.contains(r#""redirectUrl":"http"#)
    }

    /// The settings' version after a change.
    pub(crate) fn settings(&self) -> Option<u64> {
        number_after(&self.text, r#""version":{"settings":"#)
    }

    /// The cell's version after a command.
    pub(crate) fn cell(&self) -> Option<u64> {
        number_after(&self.text, r#""version":{"cell":"#)
    }

    /// The mic session that was begun.
    pub(crate) fn mic_session(&self) -> &str {
        let session = self.text.split_once(r#""micSession":""#).and_then(|(_, rest)| rest.split_once('"'));
        session.unwrap_or_else(|| panic!("no mic session: {}", self.text)).0
    }
}

/// One connection; closed when dropped.
#[derive(Debug)]
pub(crate) struct Client {
    requests: mpsc::UnboundedSender<Request>,
    seen: Rc<Seen>,
    opened_in: Duration,
}

impl Client {
    /// Connects to `address` and signs in.
    pub(crate) async fn connect(address: &str, token: &str) -> Self {
        let begun = Instant::now();
        let stream = TcpStream::connect(address).await.expect("a listening server");
        stream.set_nodelay(true).expect("a TCP connection");
        let url = format!("ws://{address}/socket.io/?EIO=4&transport=websocket");
        let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
        let (mut socket, _) =
            client_async_with_config(url, stream, Some(config)).await.expect("a WebSocket handshake");
        expect(&mut socket, "0").await;
        let hello = format!("40{}", json!({ "token": token }));
        socket.send(Message::text(hello)).await.expect("an open connection");
        expect(&mut socket, "40").await;
        let (requests, queue) = mpsc::unbounded_channel();
        let seen = Rc::new(Seen::default());
        tokio::task::spawn_local(serve(socket, queue, Rc::clone(&seen)));
        Self { requests, seen, opened_in: begun.elapsed() }
    }

    /// How long it took to connect and sign in.
    pub(crate) const fn opened_in(&self) -> Duration {
        self.opened_in
    }

    /// Asks one thing, which is done.
    pub(crate) async fn ask(&self, event: &'static str, body: Value) -> Ack {
        let ack = self.try_to(event, body).await;
        assert!(ack.is_ok(), "{event} was refused: {}", ack.text);
        ack
    }

    /// Asks one thing, which may be refused.
    pub(crate) async fn try_to(&self, event: &'static str, body: Value) -> Ack {
        let begun = Instant::now();
        let (acked, answer) = oneshot::channel();
        self.requests.send(Request { event, body, acked }).expect("an open connection");
        let mut ack = answer.await.unwrap_or_else(|_| panic!("{event}: the connection was closed"));
        ack.took = begun.elapsed();
        ack
    }

    /// Asks one thing again and again until it is done. Returns how long that took in all.
    pub(crate) async fn insist(&self, event: &'static str, body: &Value) -> Duration {
        let begun = Instant::now();
        loop {
            let ack = self.try_to(event, body.clone()).await;
            if ack.is_ok() {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < PATIENCE, "{event} {body} is still refused: {}", ack.text);
            sleep(RETRY).await;
        }
    }

    /// What it has been told.
    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }
}

/// Reads the next packet, answering pings before it.
async fn expect(socket: &mut Socket, start: &str) {
    loop {
        let frame = socket.next().await.expect("an open connection").expect("a frame");
        let packet = frame.to_text().expect("text");
        if packet == PING {
            socket.send(Message::text(PONG)).await.expect("an open connection");
            continue;
        }
        assert!(packet.starts_with(start), "expected a packet {start}, not {packet}");
        return;
    }
}

async fn serve(mut socket: Socket, mut queue: mpsc::UnboundedReceiver<Request>, seen: Rc<Seen>) {
    // In the order of their numbers; few, and mostly answered in this order.
    let mut waiting: VecDeque<(u64, oneshot::Sender<Ack>)> = VecDeque::new();
    let mut id = 0_u64;
    loop {
        let frame = tokio::select! {
            biased;
            frame = socket.next() => frame,
            request = queue.recv() => {
                let Some(Request { event, body, acked }) = request else { return };
                id += 1;
                waiting.push_back((id, acked));
                let packet = format!(r#"42{id}["{event}",{body}]"#);
                if socket.send(Message::text(packet)).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let Some(Ok(Message::Text(packet))) = frame else { return };
        seen.frames.set(seen.frames.get() + 1);
        if let Some(event) = packet.strip_prefix("42") {
            seen.note(event);
        } else if let Some(ack) = packet.strip_prefix("43") {
            let (number, text) = ack.split_at(ack.find('[').unwrap_or(0));
            seen.raise_from(text);
            let at = waiting.iter().position(|(id, _)| number.parse() == Ok(*id));
            if let Some((_, acked)) = at.and_then(|at| waiting.remove(at)) {
                _ = acked.send(Ack { took: Duration::ZERO, text: text.to_owned() });
            }
        } else if packet.as_str() == PING && socket.send(Message::text(PONG)).await.is_err() {
            return;
        }
    }
}

impl Seen {
    /// Waits until an event has told this version of the cell.
    pub(crate) async fn reaches(&self, cell: u64) {
        while self.cell.get() < cell {
            self.told.notified().await;
        }
    }

    /// Counts from now on.
    pub(crate) fn restart(&self) {
        for count in [&self.frames, &self.events, &self.bytes, &self.seats] {
            count.set(0);
        }
        self.arrivals.borrow_mut().clear();
    }

    fn note(&self, event: &str) {
        self.events.set(self.events.get() + 1);
        self.bytes.set(self.bytes.get() + event.len() as u64);
        self.last.set(Some(Instant::now()));
        if event.starts_with(r#"["room:presence""#) {
            self.raise_peers(event);
        } else {
            self.raise_from(event);
        }
        if event.starts_with(r#"["mic:update""#) {
            self.seats.set(self.seats.get() + 1);
        }
        if number_after(event, r#""of":"cell","from":"#).is_some() {
            let cell = number_after(event, r#""to":"#).unwrap_or_default();
            self.cell.set(self.cell.get().max(cell));
        }
        self.told.notify_one();
    }

    fn raise_from(&self, text: &str) {
        let version = number_after(text, r#""of":"settings","from":"#)
            .and_then(|_| number_after(text, r#""to":"#))
            .or_else(|| number_after(text, r#""version":{"settings":"#));
        if let Some(version) = version.filter(|version| *version > self.version.get()) {
            self.version.set(version);
            self.arrivals.borrow_mut().push((version, Instant::now()));
        }
        if !text.starts_with(r#"["room:update""#) {
            self.raise_peers(text);
        }
    }

    fn raise_peers(&self, text: &str) {
        if let Some(peers) = number_after(text, r#""peerCount":"#) {
            self.peers.set(self.peers.get().max(peers));
        }
    }
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = &text[text.find(name)? + name.len()..];
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
