//! Sound and pictures between pages of a real browser, over the embedded media server.

use e2e::browser::Browser;
use e2e::cluster::Cluster;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::wait::eventually;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// Several pages that encode and decode, on two cores that others use too.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Chromium takes what there is of the machine: one test at a time has it.
static TURN: Mutex<()> = Mutex::const_new(());

/// Beside a browser that takes both cores an instance is late, and a lease of milliseconds would be lost.
pub(super) fn unhurried(options: CoordinatorOptions) -> CoordinatorOptions {
    options.heartbeat(Duration::from_secs(2))
}

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

    /// Waits until an expression is truthy in a page, and panics with what the page knows when it takes too long.
    pub(super) async fn truth(&self, page: &str, expression: &str) -> Value {
        let fields = json!({ "page": page, "expression": expression, "timeoutMs": PATIENCE.as_millis() });
        match self.browser.ask("waitFor", fields).await {
            Ok(mut reply) => reply["value"].take(),
            Err(failure) => {
                let state = self.browser.eval(page, "window.dais.state").await.unwrap_or_default();
                let console = self.browser.console(page).await.join("\n");
                panic!("{page}: {:?}\n{state:#}\n{console}", failure.message);
            }
        }
    }

    /// Waits until the page says that it is in the room with all these users.
    pub(super) async fn is_in_with(&self, page: &str, users: &[&str]) {
        let mut users: Vec<_> = users.to_vec();
        users.sort_unstable();
        let users = json!(users);
        let expression = format!(
            "window.dais.state.phase === 'joined' && \
             window.dais.state.room.peers.map(({{ user }}) => user).sort().join() === {users}.join()"
        );
        self.truth(page, &expression).await;
    }

    /// Waits until what a page has of the track of somebody with one of these names, `null` for the mix of all, has
    /// grown twice from where it is now.
    pub(super) async fn grows(&self, page: &str, names: Value, kind: &str, field: &str) {
        let value = format!(
            "window.dais.stats().then((stats) => stats.in.find((each) => \
             {names}.includes(each.user) && each.kind === '{kind}')?.{field} ?? 0)"
        );
        let mut from = self.value(page, &value).await;
        for _ in 0..2 {
            let more = format!("{value}.then((now) => now > {from} && now)");
            from = self.truth(page, &more).await;
        }
    }

    /// Waits until sound of `user` comes out of the page.
    pub(super) async fn hears(&self, page: &str, user: &str) {
        self.grows(page, json!([user]), "audio", "totalAudioEnergy").await;
    }

    /// Waits until pictures of `user` are decoded in the page.
    async fn sees(&self, page: &str, user: &str) {
        self.grows(page, json!([user]), "video", "framesDecoded").await;
    }

    pub(super) async fn value(&self, page: &str, expression: &str) -> Value {
        let value = self.browser.eval(page, expression).await;
        value.unwrap_or_else(|failure| panic!("{expression} in {page}: {failure:?}"))
    }

    /// A command of the browser's with as much time as the rest.
    async fn act(&self, op: &str, page: &str, mut fields: Value) {
        fields["page"] = json!(page);
        fields["timeoutMs"] = json!(PATIENCE.as_millis());
        let done = self.browser.ask(op, fields).await;
        done.unwrap_or_else(|failure| panic!("{op} on {page}: {failure:?}"));
    }

    pub(super) async fn open(&self, page: &str, url: &str) {
        self.act("open", page, json!({ "url": url })).await;
    }

    pub(super) async fn click(&self, page: &str, testid: &str) {
        self.act("click", page, json!({ "selector": format!("[data-testid={testid}]") })).await;
    }

    /// Types into a field.
    pub(super) async fn fill(&self, page: &str, testid: &str, text: &str) {
        self.act("fill", page, json!({ "selector": format!("[data-testid={testid}]"), "text": text })).await;
    }

    /// Fills in what an instance that gives no tokens asks for, and joins.
    pub(super) async fn join(&self, page: &str, token: &str) {
        self.truth(page, "document.querySelector('[data-testid=page-instance]').textContent !== '–'").await;
        self.fill(page, "token", token).await;
        self.click(page, "join").await;
    }

    async fn open_and_join(&self, cluster: &Cluster, user: &str, query: &str) {
        let role = if query.contains("role=guest") { "guest" } else { "host" };
        let last = &cluster[cluster.coordinators.len() - 1];
        let url = format!("{}/console/?room=choir&user={user}{query}", last.url());
        self.open(user, &url).await;
        self.join(user, &cluster.token(user, role)).await;
    }

    /// How much of a user's sound has reached the page.
    async fn received(&self, page: &str, user: &str) -> Value {
        let bytes = format!(
            "window.dais.stats().then((stats) => stats.in.find((each) => \
             each.user === '{user}' && each.kind === 'audio')?.bytesReceived ?? 0)"
        );
        self.value(page, &bytes).await
    }
}

#[tokio::test]
async fn two_pages_hear_each_other_through_join_reload_and_leave() {
    let cluster = Cluster::start_with(1, unhurried).await;
    let pages = Pages::start().await;
    pages.open_and_join(&cluster, "ann", "").await;
    pages.is_in_with("ann", &["ann"]).await;
    pages.open_and_join(&cluster, "bob", "").await;
    for page in ["ann", "bob"] {
        pages.is_in_with(page, &["ann", "bob"]).await;
    }
    pages.hears("ann", "bob").await;
    pages.hears("bob", "ann").await;

    pages.act("reload", "bob", json!({})).await;
    pages.join("bob", &cluster.token("bob", "host")).await;
    pages.is_in_with("bob", &["ann", "bob"]).await;
    pages.hears("bob", "ann").await;
    pages.hears("ann", "bob").await;

    pages.click("bob", "leave").await;
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
    let cluster = Cluster::start_with(1, unhurried).await;
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

#[tokio::test]
async fn a_guest_is_heard_while_a_host_allows_it() {
    let cluster = Cluster::start_with(1, unhurried).await;
    let pages = Pages::start().await;
    pages.open_and_join(&cluster, "ann", "").await;
    pages.open_and_join(&cluster, "bob", "&role=guest").await;
    pages.open_and_join(&cluster, "cleo", "").await;
    pages.is_in_with("ann", &["ann", "bob", "cleo"]).await;
    pages.hears("ann", "bob").await;
    pages.hears("cleo", "bob").await;

    let toggle = "micAllowed-bob";
    pages.click("ann", toggle).await;
    pages.truth("bob", "window.dais.state.room.guests.bob?.micAllowed === false").await;
    // The media server learns of it after the page: bob is silent once nothing comes while cleo is heard.
    eventually(PATIENCE, async || {
        let before = pages.received("ann", "bob").await;
        pages.hears("ann", "cleo").await;
        let after = pages.received("ann", "bob").await;
        if before == after { Ok(()) } else { Err((before, after)) }
    })
    .await;

    // Who comes while it is not allowed is in the room all the same.
    pages.act("reload", "bob", json!({})).await;
    pages.join("bob", &cluster.token("bob", "guest")).await;
    pages.hears("bob", "ann").await;
    assert_eq!(pages.value("bob", "window.dais.state.error").await, Value::Null);

    pages.click("ann", toggle).await;
    pages.hears("ann", "bob").await;
    pages.hears("cleo", "bob").await;
}

#[tokio::test]
async fn pages_hear_each_other_at_another_instance_after_the_owner_was_killed() {
    // The pages come from `b`, and follow the room to its owner `a`.
    let mut cluster =
        Cluster::start_with(2, |options| unhurried(options).texts("http", "allowed_origins", &["*"])).await;
    let driver = Driver::start().await;
    driver.join("first", &cluster[0].url(), &cluster.token("zoe", "host"), "choir").await.unwrap();
    let pages = Pages::start().await;
    for user in ["ann", "bob"] {
        pages.open_and_join(&cluster, user, "").await;
    }
    for (page, other) in [("ann", "bob"), ("bob", "ann")] {
        pages.hears(page, other).await;
        pages.truth(page, "window.dais.state.room.owner.instance === 'a'").await;
    }
    cluster[0].kill().await;
    for (page, other) in [("ann", "bob"), ("bob", "ann")] {
        pages
            .truth(
                page,
                "window.dais.state.phase === 'joined' && window.dais.state.room.owner.instance === 'b'",
            )
            .await;
        pages.hears(page, other).await;
    }
}
