//! A client of the Janus API, as plain as a browser's, and a sender of plain RTP.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::wait::SOON;

/// The payload type of Opus in everything that clients offer.
const OPUS: u8 = 111;

/// One handle of one session over one WebSocket, made from what a coordinator granted.
#[derive(Debug)]
pub struct Client {
    socket: WebSocketStream<TcpStream>,
    grant: Value,
    session: u64,
    handle: u64,
    transactions: u64,
    /// What came while an answer was waited for.
    events: VecDeque<Value>,
}

impl Client {
    /// Attaches as a `Grant` of the kind `janus` says, and joins nothing yet.
    ///
    /// # Errors
    /// The error code of Janus, where it refuses the grant's token for the API.
    pub async fn attach(grant: &Value) -> Result<Self, u64> {
        let text = |field: &str| grant[field].as_str().unwrap_or_else(|| panic!("no {field}: {grant}"));
        let mut request = text("url").into_client_request().expect("a URL of a WebSocket");
        request
            .headers_mut()
            .insert("sec-websocket-protocol", "janus-protocol".parse().expect("a header's value"));
        let address = text("url").trim_start_matches("ws://").trim_end_matches('/');
        let stream = TcpStream::connect(address).await.expect("Janus takes connections");
        let (socket, _) = client_async(request, stream).await.expect("a WebSocket");
        let grant = grant.clone();
        let mut client =
            Self { socket, grant, session: 0, handle: 0, transactions: 0, events: VecDeque::new() };
        client.session = client.made(json!({ "janus": "create" })).await?;
        let plugin = format!("janus.plugin.{}", client.grant["plugin"].as_str().expect("a plugin"));
        let attach = json!({ "janus": "attach", "plugin": plugin, "opaque_id": client.grant["opaqueId"] });
        client.handle = client.made(attach).await?;
        Ok(client)
    }

    async fn made(&mut self, message: Value) -> Result<u64, u64> {
        let answer = self.call(message).await;
        answer["data"]["id"]
            .as_u64()
            .ok_or_else(|| answer["error"]["code"].as_u64().expect("an error's code"))
    }

    /// Sends a message of the Janus API, and gives the one that answers it.
    async fn call(&mut self, mut message: Value) -> Value {
        self.transactions += 1;
        let transaction = json!(self.transactions.to_string());
        message["transaction"] = transaction.clone();
        if !self.grant["apiToken"].is_null() {
            message["token"] = self.grant["apiToken"].clone();
        }
        for (field, id) in [("session_id", self.session), ("handle_id", self.handle)] {
            if id != 0 {
                message[field] = json!(id);
            }
        }
        self.socket.send(Message::text(message.to_string())).await.expect("the connection lives");
        loop {
            let message = self.next().await;
            if message["transaction"] != transaction {
                self.events.push_back(message);
            } else if message["janus"] != "ack" {
                return message;
            }
        }
    }

    async fn next(&mut self) -> Value {
        loop {
            let frame = timeout(SOON, self.socket.next()).await.expect("a message of Janus in time");
            match frame.expect("the connection lives").expect("the connection lives") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("Janus sent {other:?}"),
            }
        }
    }

    /// Sends a request to the plugin, perhaps with an SDP offer, and gives its answer with that to the offer.
    pub async fn request(&mut self, body: Value, offer: Option<String>) -> (Value, Option<String>) {
        let mut message = json!({ "janus": "message", "body": body });
        if let Some(sdp) = offer {
            message["jsep"] = json!({ "type": "offer", "sdp": sdp });
        }
        let mut answer = self.call(message).await;
        let sdp = answer["jsep"]["sdp"].as_str().map(str::to_owned);
        (answer["plugindata"]["data"].take(), sdp)
    }

    /// Joins as the grant says, with `more` in the request, and without what is null in it.
    ///
    /// # Errors
    /// The plugin's error code.
    pub async fn join(&mut self, more: &Value) -> Result<Value, u64> {
        let mut body = json!({ "request": "join", "ptype": "publisher" });
        for field in ["room", "id", "token"] {
            body[field] = self.grant[field].clone();
        }
        for (field, value) in more.as_object().expect("an object") {
            body[field] = value.clone();
        }
        body.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        let (answer, _) = self.request(body, None).await;
        answer["error_code"].as_u64().map_or(Ok(answer), Err)
    }

    /// Joins an AudioBridge with plain RTP, which flows until the value is dropped.
    ///
    /// # Errors
    /// The plugin's error code.
    pub async fn join_with_rtp(&mut self) -> Result<Flow, u64> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let port = socket.local_addr().expect("a bound port").port();
        let rtp = json!({ "ip": "127.0.0.1", "port": port, "payload_type": OPUS, "audiolevel_ext": 1 });
        let joined = self.join(&json!({ "rtp": rtp })).await?;
        let (ip, port) = (&joined["rtp"]["ip"], &joined["rtp"]["port"]);
        let to = format!("{}:{port}", ip.as_str().expect("an address"));
        Ok(Flow::start(socket, to.parse().expect("an address")))
    }

    /// The next event that `pick` takes; those before it are passed over.
    pub async fn event<T>(&mut self, mut pick: impl FnMut(&Value) -> Option<T>) -> T {
        loop {
            let event = match self.events.pop_front() {
                Some(event) => event,
                None => self.next().await,
            };
            if let Some(picked) = pick(&event) {
                return picked;
            }
        }
    }
}

/// RTP with Opus, 20 ms a packet, until it is dropped.
#[derive(Debug)]
pub struct Flow(JoinHandle<()>);

impl Flow {
    fn start(socket: UdpSocket, to: SocketAddr) -> Self {
        Self(tokio::spawn(async move {
            let mut tick = interval(Duration::from_millis(20));
            for sequence in 0_u16.. {
                tick.tick().await;
                let [high, low] = sequence.to_be_bytes();
                let [t3, t2, t1, t0] = (u32::from(sequence) * 960).to_be_bytes();
                // Version 2 with a one-byte extension, which says -10 dBov; silence, as Opus has it in one frame.
                let header = [0x90, OPUS, high, low, t3, t2, t1, t0, 0, 0, 0, 7];
                let packet = [&header[..], &[0xBE, 0xDE, 0, 1, 0x10, 10, 0, 0], &[0xF8, 0xFF, 0xFE]].concat();
                _ = socket.send_to(&packet, to).await;
            }
        }))
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.0.abort();
    }
}
