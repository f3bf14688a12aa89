//! A webhook's receiver that a test tells how to answer, and that remembers what came.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use e2e::callback::mac;
use e2e::wait::{self, SOON};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Takes,
    Refuses,
    /// Not at all; what came so is refused as soon as it is in another mood.
    Hangs,
}

/// A webhook, and whether it was taken.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) id: String,
    pub(super) timestamp: String,
    pub(super) signatures: Vec<String>,
    pub(super) body: String,
    pub(super) is_taken: bool,
}

impl Arrival {
    /// Whether one of its signatures is made with this key.
    pub(super) fn is_signed_with(&self, key: &str) -> bool {
        use base64::Engine as _;
        let signed = mac(key, &format!("{}.{}.{}", self.id, self.timestamp, self.body));
        let signature = format!("v1,{}", base64::engine::general_purpose::STANDARD.encode(signed));
        self.signatures.contains(&signature)
    }

    pub(super) fn event(&self) -> Value {
        serde_json::from_str(&self.body).expect("a webhook is JSON")
    }
}

struct Book {
    mood: watch::Sender<Mood>,
    arrivals: Mutex<Vec<Arrival>>,
}

/// Listens until it is dropped.
pub(super) struct Receiver {
    pub(super) url: String,
    book: Arc<Book>,
    serving: JoinHandle<()>,
}

async fn take(State(book): State<Arc<Book>>, headers: HeaderMap, body: String) -> StatusCode {
    let mut mood = book.mood.subscribe();
    let now = *mood.borrow_and_update();
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let arrival = Arrival {
        id: text("webhook-id").to_owned(),
        timestamp: text("webhook-timestamp").to_owned(),
        signatures: text("webhook-signature").split(' ').map(str::to_owned).collect(),
        body,
        is_taken: now == Mood::Takes,
    };
    book.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
    match now {
        Mood::Takes => StatusCode::OK,
        Mood::Refuses => StatusCode::INTERNAL_SERVER_ERROR,
        Mood::Hangs => {
            // It ends with its sender too.
            _ = mood.changed().await;
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

impl Receiver {
    pub(super) async fn start(mood: Mood) -> Self {
        let book = Arc::new(Book { mood: watch::Sender::new(mood), arrivals: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("a bound port"));
        let routes = Router::new().route("/", post(take)).with_state(Arc::clone(&book));
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.expect("it serves") });
        Self { url, book, serving }
    }

    pub(super) fn become_one_that(&self, mood: Mood) {
        self.book.mood.send_replace(mood);
    }

    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.book.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those that were taken from arrival `since` on.
    pub(super) fn taken(&self, since: usize) -> Vec<Arrival> {
        self.arrivals().into_iter().skip(since).filter(|arrival| arrival.is_taken).collect()
    }

    /// Waits until so many were taken from arrival `since` on.
    pub(super) async fn takes(&self, since: usize, count: usize) -> Vec<Arrival> {
        wait::eventually(SOON * 2, || async {
            let taken = self.taken(since);
            if taken.len() >= count { Ok(taken) } else { Err(self.arrivals().split_off(since)) }
        })
        .await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
