//! A TCP proxy on this machine that can stop a conversation at a known word: before a request is passed on, or
//! after it was and before its answer is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// Bytes in flight in one direction of one connection.
const CHUNK: usize = 64 * 1024;

/// What is held back once the word has been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The request with the word in it, and all behind it on that connection.
    Request,
    /// Every answer on that connection, and every request behind this one, which is passed on.
    Answers,
    /// Every answer on that connection; all requests are passed on.
    AnswersAlone,
}

#[derive(Debug)]
struct Trap {
    word: Vec<u8>,
    hold: Hold,
}

/// What all connections look at.
#[derive(Debug)]
struct Control {
    trap: Mutex<Option<Trap>>,
    /// How many traps have sprung.
    sprung: watch::Sender<u64>,
    /// Counts up to let go what is held.
    released: watch::Sender<u64>,
    /// Counts up to close every connection.
    cut: watch::Sender<u64>,
}

impl Control {
    /// What is to be held if `bytes` hold the word; the trap is gone then.
    fn spring(&self, bytes: &[u8]) -> Option<Hold> {
        let mut trap = self.trap.lock().unwrap_or_else(PoisonError::into_inner);
        let word = &trap.as_ref()?.word;
        bytes.windows(word.len()).any(|part| part == word).then(|| trap.take()).flatten().map(|it| it.hold)
    }

    /// How much of the end of what was read may be the beginning of the word.
    fn overlap(&self) -> usize {
        let trap = self.trap.lock().unwrap_or_else(PoisonError::into_inner);
        trap.as_ref().map_or(0, |trap| trap.word.len() - 1)
    }
}

/// A running proxy. Dropping it closes every connection.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    control: Arc<Control>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one in front of a port of 127.0.0.1.
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("a bound port").port();
        let control = Arc::new(Control {
            trap: Mutex::default(),
            sprung: watch::Sender::new(0),
            released: watch::Sender::new(0),
            cut: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, to, Arc::clone(&control)));
        Self { port, control, accepting }
    }

    /// `redis://127.0.0.1:{port}`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Holds back once a request with `word` in it comes by, on whichever connection; later ones pass.
    pub fn trap(&self, hold: Hold, word: &str) -> Sprung {
        let sprung = self.control.sprung.subscribe();
        let trap = Trap { word: word.as_bytes().to_vec(), hold };
        *self.control.trap.lock().unwrap_or_else(PoisonError::into_inner) = Some(trap);
        Sprung(sprung)
    }

    /// Lets go what is held.
    pub fn release(&self) {
        self.control.released.send_modify(|count| *count += 1);
    }

    /// Closes every connection; what is held is lost. New ones are let in.
    pub fn cut(&self) {
        self.control.cut.send_modify(|count| *count += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Tells when a trap has sprung.
#[derive(Debug)]
pub struct Sprung(watch::Receiver<u64>);

impl Sprung {
    /// Waits for it: from then on it is held.
    pub async fn wait(&mut self, within: Duration) {
        let changed = timeout(within, self.0.changed()).await;
        assert!(matches!(changed, Ok(Ok(()))), "the word has not come by within {within:?}");
    }
}

async fn accept(listener: TcpListener, to: u16, control: Arc<Control>) {
    // Ends its connections with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(connection(client, to, Arc::clone(&control)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(client: TcpStream, to: u16, control: Arc<Control>) {
    let mut cut = control.cut.subscribe();
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let answers_held = watch::Sender::new(false);
    let held = answers_held.subscribe();
    tokio::select! {
        () = requests(from_client, to_server, &control, &answers_held) => {}
        () = answers(from_server, to_client, held) => {}
        _ = cut.changed() => {}
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    control: &Control,
    answers_held: &watch::Sender<bool>,
) {
    let mut chunk = vec![0; CHUNK];
    let mut seen: Vec<u8> = Vec::new();
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        seen.extend_from_slice(&chunk[..length]);
        match control.spring(&seen) {
            Some(Hold::Request) => {
                let released = control.released.subscribe();
                control.sprung.send_modify(|count| *count += 1);
                released_once(released).await;
            }
            Some(Hold::Answers) => {
                answers_held.send_replace(true);
                let released = control.released.subscribe();
                if to.write_all(&chunk[..length]).await.is_err() {
                    return;
                }
                control.sprung.send_modify(|count| *count += 1);
                seen.clear();
                released_once(released).await;
                answers_held.send_replace(false);
                continue;
            }
            Some(Hold::AnswersAlone) => {
                answers_held.send_replace(true);
                let (released, held) = (control.released.subscribe(), answers_held.clone());
                tokio::spawn(async move {
                    released_once(released).await;
                    held.send_replace(false);
                });
                control.sprung.send_modify(|count| *count += 1);
            }
            None => {}
        }
        seen.drain(..seen.len().saturating_sub(control.overlap()));
        if to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}

async fn released_once(mut released: watch::Receiver<u64>) {
    _ = released.changed().await;
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut held: watch::Receiver<bool>) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        if held.wait_for(|held| !held).await.is_err() || to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::{Flavor, RedisServer};
    use crate::wait::SOON;

    async fn connect(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap()
    }

    async fn read(stream: &mut TcpStream) -> String {
        let mut bytes = vec![0; 100];
        let length = timeout(SOON, stream.read(&mut bytes)).await.unwrap().unwrap_or(0);
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[tokio::test]
    async fn a_request_is_held_and_passed_on() {
        let redis = RedisServer::start(Flavor::Redis).await;
        let proxy = Proxy::start(redis.port()).await;
        let mut stream = connect(&proxy).await;
        stream.write_all(b"PING\r\n").await.unwrap();
        assert_eq!(read(&mut stream).await, "+PONG\r\n");

        let mut sprung = proxy.trap(Hold::Request, "the-word");
        stream.write_all(b"SET the-").await.unwrap();
        stream.write_all(b"word 1\r\n").await.unwrap();
        sprung.wait(SOON).await;
        assert_eq!(redis.command(&["EXISTS", "the-word"]).await.number(), Some(0));
        proxy.release();
        assert_eq!(read(&mut stream).await, "+OK\r\n");
        assert_eq!(redis.command(&["GET", "the-word"]).await.text(), "1");
    }

    #[tokio::test]
    async fn an_answer_is_held_and_lost() {
        let redis = RedisServer::start(Flavor::Redis).await;
        let proxy = Proxy::start(redis.port()).await;
        let mut stream = connect(&proxy).await;
        let mut sprung = proxy.trap(Hold::Answers, "the-word");
        stream.write_all(b"SET the-word 1\r\n").await.unwrap();
        sprung.wait(SOON).await;
        crate::wait::until("it is executed", SOON, || async {
            redis.command(&["GET", "the-word"]).await.text() == "1"
        })
        .await;
        proxy.cut();
        assert_eq!(read(&mut stream).await, "", "closed without a word");
        let mut again = connect(&proxy).await;
        again.write_all(b"GET the-word\r\n").await.unwrap();
        assert!(read(&mut again).await.starts_with("$1\r\n1"));
    }
}
