//! A webhook's receiver that writes down what comes, and now and then refuses it, hangs or breaks the connection.

use serde_json::{Value, json};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::callbacks_under_fire::Chance;

/// One of so many arrivals is refused, one hangs, and one finds its connection broken.
const ONE_IN: usize = 300;

/// Listens until it is dropped.
#[derive(Debug)]
pub(super) struct Receiver {
    port: u16,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Taken,
    Refused,
    Hangs,
    Resets,
}

/// What has arrived so far.
struct Book {
    file: File,
    chance: Chance,
    arrived: u64,
}

impl Book {
    /// Writes an arrival down, and decides how it is answered.
    fn enter(&mut self, id: &str, payload: &str) -> Answer {
        let answer = match self.chance.below(ONE_IN) {
            0 => Answer::Refused,
            1 => Answer::Hangs,
            2 => Answer::Resets,
            _ => Answer::Taken,
        };
        self.arrived += 1;
        let parsed: Value = serde_json::from_str(payload).expect("a webhook is JSON");
        let line = json!({
            "id": id, "room": parsed["data"]["room"], "payload": payload, "seq": self.arrived,
            "taken": answer == Answer::Taken,
        });
        writeln!(self.file, "{line}").expect("a file in an own folder");
        answer
    }
}

impl Receiver {
    pub(super) async fn start(file: &Path, chance: Chance) -> Self {
        let file = File::create(file).expect("a file in an own folder");
        let book = Arc::new(Mutex::new(Book { file, chance, arrived: 0 }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("a bound port").port();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A connection that ends early is its sender's business, or was killed with it.
                tokio::spawn(serve(stream, Arc::clone(&book)));
            }
        });
        Self { port, accepting }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Answers one request after the other; `None` when there are no more.
async fn serve(stream: TcpStream, book: Arc<Mutex<Book>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (id, payload) = read(&mut stream).await?;
        let answer = book.lock().unwrap_or_else(PoisonError::into_inner).enter(&id, &payload);
        let status = match answer {
            Answer::Taken => "200 OK",
            Answer::Refused => "500 Internal Server Error",
            Answer::Hangs => {
                _ = stream.read_u8().await;
                return None;
            }
            Answer::Resets => {
                stream.get_ref().set_zero_linger().ok()?;
                return None;
            }
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await.ok()?;
    }
}

/// The id and the body of the next request, once all of it is there.
async fn read(stream: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let (mut id, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim().split_once(':') else {
            if line.trim().is_empty() {
                break;
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "webhook-id" => value.trim().clone_into(&mut id),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((id, String::from_utf8(body).ok()?))
}
