//! Bodies of callbacks beyond their vendor's limit: refused before they are read, however they come.

use e2e::callback::{self, sign};
use e2e::coordinator::{Coordinator, CoordinatorOptions};
use e2e::http;
use e2e::token::APP;
use e2e::wait::{SOON, until};
use futures_util::future::select;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stage::Stage;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const KIB: usize = 1024;
/// Each vendor's word with its limit.
const LIMITS: [(&str, usize); 5] = [
    ("generic", 64 * KIB),
    ("janus", KIB * KIB),
    ("livekit", 256 * KIB),
    ("trtc", 256 * KIB),
    ("agora", 256 * KIB),
];

fn believes(options: CoordinatorOptions) -> CoordinatorOptions {
    callback::believes(options, SECRET, SECRET)
}

async fn open(coordinator: &Coordinator) -> TcpStream {
    TcpStream::connect(coordinator.url().trim_start_matches("http://")).await.expect("a listening server")
}

fn head(vendor: &str, length: &str) -> String {
    format!(
        "POST /rtc/{vendor}/{APP} HTTP/1.1\r\nhost: callbacks\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
    )
}

/// The status of the answer, and where the problem is told.
async fn answer(stream: &mut TcpStream, what: &str) -> (u16, String) {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("\r\n\r\n{") {
        let count = timeout(SOON, stream.read_buf(&mut read)).await;
        let count = count.unwrap_or_else(|_| panic!("{what}: no answer")).expect("an open connection");
        assert!(count > 0, "{what}: {:?}", String::from_utf8_lossy(&read));
    }
    let text = String::from_utf8_lossy(&read).into_owned();
    let status = text.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    (status, text)
}

#[tokio::test]
async fn a_body_beyond_its_limit_is_refused_without_being_read() {
    let stage = Stage::start_with(1, believes).await;
    let coordinator = &stage.cluster[0];
    for (vendor, limit) in LIMITS {
        // Not one byte of it is sent, so that none can have been waited for.
        let mut stream = open(coordinator).await;
        let said = head(vendor, &format!("content-length: {}", limit + 1));
        stream.write_all(said.as_bytes()).await.expect("sent");
        let (status, text) = answer(&mut stream, vendor).await;
        assert!(status == 413 && text.contains(&format!("{limit} bytes")), "{vendor}: {text}");

        // It does not say how long it is, and does not end.
        let mut stream = open(coordinator).await;
        stream.write_all(head(vendor, "transfer-encoding: chunked").as_bytes()).await.expect("sent");
        let (mut from, mut to) = stream.split();
        let chunk = format!("{:x}\r\n{}\r\n", KIB, "x".repeat(KIB));
        let endless = async {
            // The server closes a connection from which it wants no more.
            while to.write_all(chunk.as_bytes()).await.is_ok() {}
            std::future::pending::<()>().await;
        };
        let mut read = Vec::new();
        let refused = async {
            while !String::from_utf8_lossy(&read).contains(&format!("{limit} bytes")) {
                let count = from.read_buf(&mut read).await.expect("an answer");
                assert!(count > 0, "{vendor}: {:?}", String::from_utf8_lossy(&read));
            }
        };
        let (refused, endless) = (std::pin::pin!(refused), std::pin::pin!(endless));
        timeout(SOON, select(refused, endless)).await.unwrap_or_else(|_| panic!("{vendor}: no answer"));
        assert!(String::from_utf8_lossy(&read).starts_with("HTTP/1.1 413"), "{vendor}");
    }
    let metrics = coordinator.metrics().await;
    for (vendor, _) in LIMITS {
        let malformed = [("vendor", vendor), ("result", "malformed")];
        assert_eq!(metrics.sum("dais_rtc_callbacks_total", &malformed), 2.0, "{vendor}");
    }
}

#[tokio::test]
async fn no_body_is_unpacked() {
    let stage = Stage::start_with(1, believes).await;
    let now = std::time::UNIX_EPOCH.elapsed().expect("a time after 1970").as_secs().to_string();
    let url = format!("{}/rtc/generic/{APP}", stage.cluster[0].url());
    // What these bytes are signed as is what they are read as.
    for encoding in ["gzip", "deflate", "br", "zstd"] {
        let signature = sign(SECRET, &now, "\u{1f}packed");
        let headers =
            [("content-encoding", encoding), ("dais-timestamp", &*now), ("dais-signature", &*signature)];
        let answer = http::request("POST", &url, &headers, "\u{1f}packed").await.expect("an answer");
        assert_eq!((answer.status, answer.json()["code"].as_str()), (400, Some("BAD_REQUEST")), "{encoding}");
        assert!(answer.body.contains("body: expected value at line 1 column 1"), "{encoding}: {answer:?}");
    }
}

#[tokio::test]
async fn a_message_of_janus_beyond_its_limit_ends_the_connection_before_it_is_read() {
    let stage = Stage::start_with(1, believes).await;
    let coordinator = &stage.cluster[0];
    let mut stream = open(coordinator).await;
    let handshake = format!(
        "GET /rtc/janus/{APP} HTTP/1.1\r\nhost: callbacks\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-protocol: dais.janus.{SECRET}\r\n\r\n"
    );
    stream.write_all(handshake.as_bytes()).await.expect("sent");
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("\r\n\r\n") {
        assert!(stream.read_buf(&mut read).await.expect("an answer") > 0);
    }
    assert!(String::from_utf8_lossy(&read).starts_with("HTTP/1.1 101"), "{read:?}");
    // The first bytes of a masked text of one byte more than may be; the rest is never sent.
    let mut frame = vec![0x81, 0xff];
    frame.extend((KIB * KIB + 1).to_be_bytes());
    frame.extend([0; 4]);
    stream.write_all(&frame).await.expect("sent");
    timeout(SOON, async {
        // Whatever is said before it, the connection ends.
        while matches!(stream.read_buf(&mut read).await, Ok(count) if count > 0) {}
    })
    .await
    .expect("the end of the connection");
    coordinator.log_line("Janus's WebSocket failed", 0, SOON).await;
    let is_over =
        || async { coordinator.log_lines().iter().any(|line| line.contains("Janus's WebSocket is closed")) };
    until("the connection is over", SOON, is_over).await;
}
