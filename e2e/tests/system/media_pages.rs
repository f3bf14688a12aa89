//! Pages in a room whose sound goes through a media server beside the coordinators.

use e2e::coordinator::CoordinatorOptions;
use e2e::token::Token;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::browsers::Pages;
use crate::stage::{ROOM, Stage};

/// Longer than any test, so that what confirms a seat is never the media server's list.
pub(crate) const NEVER_MS: u64 = 3_600_000;

/// Where media servers send their events, known before the coordinator is that takes them.
pub(crate) struct Gate {
    listener: Option<TcpListener>,
    address: String,
    passing: Option<JoinHandle<()>>,
}

impl Gate {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port").to_string();
        Self { listener: Some(listener), address, passing: None }
    }

    /// `{scheme}://{this}/rtc/{vendor}/{app}`
    pub(crate) fn url(&self, scheme: &str, vendor: &str, app: &str) -> String {
        format!("{scheme}://{}/rtc/{vendor}/{app}", self.address)
    }

    /// Passes on what has come and what comes to the coordinator of this URL.
    pub(crate) fn lead_to(&mut self, url: &str) {
        let to = url.trim_start_matches("http://").to_owned();
        let listener = self.listener.take().expect("it leads to one place only");
        self.passing = Some(tokio::spawn(async move {
            // Connections end with it.
            let mut connections = JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                let to = to.clone();
                connections.spawn(async move {
                    let Ok(mut to) = TcpStream::connect(to).await else { return };
                    _ = copy_bidirectional(&mut from, &mut to).await;
                });
            }
        }));
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(passing) = &self.passing {
            passing.abort();
        }
    }
}

/// Pages beside clients of the same room.
pub(crate) struct Hall {
    pub(crate) stage: Stage,
    pub(crate) pages: Pages,
}

impl Hall {
    /// So many instances, which compare nothing with lists and wait for sound as long as a busy machine takes. The
    /// browser is had first: others may use it for minutes.
    pub(crate) async fn start(
        pages: Pages,
        count: usize,
        change: impl Fn(CoordinatorOptions) -> CoordinatorOptions,
    ) -> Self {
        let stage = Stage::start_with(count, |options| {
            let options = options
                .value("app", "publish_deadline_ms", 600_000)
                .value("app", "reconcile_ms", NEVER_MS)
                .texts("http", "allowed_origins", &["*"])
                .without("media", "name")
                .without("media", "kind");
            change(options)
        });
        Self { stage: stage.await, pages }
    }

    /// Opens a page of that user's, with the microphone off, from an instance, and waits until it has media.
    pub(crate) async fn open(&self, user: &str, role: &str, at: usize) {
        self.enter(user, &Token::new(user, role), user, role, at, "").await;
        self.is_open(user).await;
    }

    /// Opens a page, enters with a token, and waits for the room alone.
    pub(crate) async fn enter(
        &self,
        page: &str,
        token: &Token,
        user: &str,
        role: &str,
        at: usize,
        query: &str,
    ) {
        let from = self.stage.cluster[at].url();
        let url = format!("{from}/console/?room={ROOM}&user={user}&role={role}&mic=0{query}");
        self.pages.open(page, &url).await;
        self.pages.join(page, &token.sign()).await;
        self.pages.truth(page, "window.dais.state.phase === 'joined'").await;
    }

    /// The media server has let the page in.
    pub(crate) async fn is_open(&self, page: &str) {
        self.pages.truth(page, "window.dais.state.media?.isOpen").await;
    }

    /// Takes a free seat on a page, and waits until another page is told that it is confirmed.
    pub(crate) async fn speaks(&self, page: &str, seat: u64, seen_by: &str) {
        self.pages.click(page, &format!("take-seat-{seat}")).await;
        self.is_publishing(page, seat, seen_by).await;
    }

    /// Waits until a page is told that a user's seat is confirmed.
    pub(crate) async fn is_publishing(&self, user: &str, seat: u64, seen_by: &str) {
        let confirmed = format!(
            "window.dais.state.room.seats.some((each) => \
             each.seat === {seat} && each.user === '{user}' && each.state === 'publishing')"
        );
        self.pages.truth(seen_by, &confirmed).await;
    }

    /// Waits until packets with sound of somebody with one of these names, or of the mix of all, reach a page.
    pub(crate) async fn hears(&self, page: &str, names: &Value) {
        for field in ["packetsReceived", "totalAudioEnergy"] {
            self.pages.grows(page, names.clone(), "audio", field).await;
        }
    }

    /// Waits until packets with the sound of others, mixed by the media server, reach a page.
    pub(crate) async fn hears_all(&self, page: &str) {
        self.hears(page, &json!([null])).await;
    }

    /// The page's grant.
    pub(crate) async fn grant(&self, page: &str) -> Value {
        self.pages.value(page, "window.dais.state.grant").await
    }

    /// What the page says went wrong.
    pub(crate) async fn error(&self, page: &str) -> String {
        self.pages.browser().text(page, "[data-testid=error]").await.expect("a text")
    }
}
