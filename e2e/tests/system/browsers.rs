//! Sound and pictures between pages of a real browser, over the embedded media server.

use e2e::browser::Browser;
use e2e::cluster::Cluster;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// Several pages that encode and decode, on two cores that others use too.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Chromium takes what there is of the machine: one test at a time has it.
static TURN: Mutex<()> = Mutex::const_new(());

/// A browser whose pages show the console.
pub(super) struct Pages {
    browser: Browser,
    _turn: MutexGuard<'static, ()>,
}

impl Pages {
    pub(super) async fn start() -> Self {
        let turn = TURN.lock().await;
        Self { browser: Browser::start().await, _turn: turn }
    }

    pub(super) const fn browser(&self) -> &Browser {
        &self.browser
    }

    pub(super) async fn truth(&self, page: &str, expression: &str) -> Value {
        self.browser.wait_for(page, expression, PATIENCE).await
    }

    /// Waits until the page says that it is in the room with all these users.
    pub(super) async fn is_in_with(&self, page: &str, users: &[&str]) {
        let mut users: Vec<_> = users.to_vec();
        users.sort_unstable();
        let users = serde_json::to_string(&users).unwrap();
        let expression = format!(
            "window.dais.state.phase === 'joined' && \
             window.dais.state.room.peers.map(({{ user }}) => user).sort().join() === {users}.join()"
        );
        self.truth(page, &expression).await;
    }

    /// Waits until what a page has of a user's track has grown twice from where it is now.
    async fn grows(&self, page: &str, user: &str, kind: &str, field: &str) {
        let value = format!(
            "window.dais.stats().then((stats) => stats.in.find((each) => \
             each.user === '{user}' && each.kind === '{kind}')?.{field} ?? 0)"
        );
        let mut from = self.browser.eval(page, &value).await.unwrap();
        for _ in 0..2 {
            let more = format!("{value}.then((now) => now > {from} && now)");
            from = self.truth(page, &more).await;
        }
    }

    /// Waits until sound of `user` comes out of the page.
    pub(super) async fn hears(&self, page: &str, user: &str) {
        self.grows(page, user, "audio", "totalAudioEnergy").await;
    }

    /// Waits until pictures of `user` are decoded in the page.
    async fn sees(&self, page: &str, user: &str) {
        self.grows(page, user, "video", "framesDecoded").await;
    }

    /// Fills in what an instance that gives no tokens asks for, and joins.
    async fn join(&self, page: &str, token: &str) {
        self.truth(page, "document.querySelector('[data-testid=page-instance]').textContent !== '–'").await;
        self.browser.fill(page, "[data-testid=token]", token).await.unwrap();
        self.browser.click(page, "[data-testid=join]").await.unwrap();
    }

    async fn open_and_join(&self, cluster: &Cluster, user: &str, query: &str) {
        let url = format!("{}/console/?room=choir&user={user}{query}", cluster[0].url());
        self.browser.open(user, &url).await.unwrap();
        self.join(user, &cluster.token(user, "host")).await;
    }
}

#[tokio::test]
async fn two_pages_hear_each_other_through_join_reload_and_leave() {
    let cluster = Cluster::start(1).await;
    let pages = Pages::start().await;
    pages.open_and_join(&cluster, "ann", "").await;
    pages.is_in_with("ann", &["ann"]).await;
    pages.open_and_join(&cluster, "bob", "").await;
    for page in ["ann", "bob"] {
        pages.is_in_with(page, &["ann", "bob"]).await;
    }
    pages.hears("ann", "bob").await;
    pages.hears("bob", "ann").await;

    pages.browser.reload("bob").await.unwrap();
    pages.join("bob", &cluster.token("bob", "host")).await;
    pages.is_in_with("bob", &["ann", "bob"]).await;
    pages.hears("bob", "ann").await;
    pages.hears("ann", "bob").await;

    pages.browser.click("bob", "[data-testid=leave]").await.unwrap();
    pages.truth("bob", "window.dais.state.phase === 'idle' && !window.dais.state.media").await;
    pages.is_in_with("ann", &["ann"]).await;
    pages.truth("ann", "window.dais.state.grant.tracks.length === 0").await;
    pages.truth("ann", "window.dais.stats().then((stats) => stats.in.length === 0)").await;

    // It comes back without another page load.
    pages.join("bob", &cluster.token("bob", "host")).await;
    pages.hears("ann", "bob").await;
    pages.hears("bob", "ann").await;
}

#[tokio::test]
async fn three_pages_see_each_other_also_the_one_that_came_late() {
    let cluster = Cluster::start(1).await;
    let pages = Pages::start().await;
    for user in ["ann", "bob"] {
        pages.open_and_join(&cluster, user, "&video=1").await;
    }
    pages.sees("ann", "bob").await;
    pages.sees("bob", "ann").await;

    pages.open_and_join(&cluster, "cleo", "&video=1").await;
    for (page, others) in [("cleo", ["ann", "bob"]), ("ann", ["bob", "cleo"]), ("bob", ["ann", "cleo"])] {
        pages.is_in_with(page, &["ann", "bob", "cleo"]).await;
        for other in others {
            pages.sees(page, other).await;
            pages.hears(page, other).await;
        }
    }
}
