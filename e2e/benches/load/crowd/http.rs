//! Rooms that are opened over HTTP, and answers over a connection that stays open.

use e2e::token::{APP, Token};
use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::client::{PATIENCE, RETRY};

/// Few, so that what opens the rooms is never what stops the heartbeats.
const CONNECTIONS: usize = 16;

/// Opens so many rooms, which stay loaded without anybody in them.
pub(crate) async fn open_rooms(address: &str, name: &str, count: usize) {
    let token = Token::new("operator", "host").claim("admin", true).sign();
    let opening = (0..CONNECTIONS).map(|connection| {
        let token = &token;
        async move {
            let stream = TcpStream::connect(address).await.expect("a listening server");
            stream.set_nodelay(true).expect("a TCP connection");
            let mut stream = BufReader::new(stream);
            for number in (connection..count).step_by(CONNECTIONS) {
                let request = format!(
                    "PUT /v1/apps/{APP}/rooms/{name}-{number} HTTP/1.1\r\nhost: rooms\r\ncontent-type: application/json\r\n\
                     authorization: Bearer {token}\r\ncontent-length: 2\r\n\r\n{{}}"
                );
                let begun = Instant::now();
                loop {
                    stream.write_all(request.as_bytes()).await.expect("an open connection");
                    let (status, body) = answer(&mut stream).await;
                    if matches!(status, 200 | 201) {
                        break;
                    }
                    // A store that is late makes an instance refuse for a while.
                    assert!(status == 503 && begun.elapsed() < PATIENCE, "{status}: {body}");
                    sleep(RETRY).await;
                }
            }
        }
    });
    join_all(opening).await;
}

/// Reads an answer: its status and its body.
pub(crate) async fn answer(stream: &mut BufReader<TcpStream>) -> (u16, String) {
    let (mut line, mut length, mut status) = (String::new(), 0, None);
    loop {
        line.clear();
        stream.read_line(&mut line).await.expect("a line of an answer");
        let head = line.trim_end().to_ascii_lowercase();
        if let Some(value) = head.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        } else if status.is_none() {
            status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        } else if head.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.expect("a body");
    (status.expect("a status"), String::from_utf8_lossy(&body).into_owned())
}
