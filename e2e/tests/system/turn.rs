//! Sound through a TURN server, with the credentials that a grant brings.

use e2e::coturn::Coturn;
use e2e::janus::Janus;
use e2e::token::Token;
use serde_json::json;

use crate::browsers::Pages;
use crate::janus_rooms::section;
use crate::media_pages::Hall;

const SECRET: &str = "the secret of the test's TURN server";

/// An instance that makes credentials with this secret, beside a Janus.
async fn hall(coturn: &Coturn, secret: &str, janus: &Janus, pages: Pages) -> Hall {
    Hall::start(pages, 1, |options| {
        options.value("app", "reconcile_ms", 500).toml(&format!(
            "[turn]\nurls = [\"{}\"]\nsecret = \"{secret}\"\n{}",
            coturn.url(),
            section("janus", janus)
        ))
    })
    .await
}

/// Opens a page that sends through TURN servers only.
async fn open(hall: &Hall, user: &str) {
    hall.enter(user, &Token::new(user, "host"), user, "host", 0, "&relay=1").await;
}

#[tokio::test]
async fn pages_that_only_have_a_relay_hear_each_other() {
    let pages = Pages::start().await;
    let (coturn, janus) = (Coturn::start(SECRET).await, Janus::start().await);
    let hall = hall(&coturn, SECRET, &janus, pages).await;
    for user in ["ann", "bob"] {
        open(&hall, user).await;
        hall.is_open(user).await;
        let grant = hall.grant(user).await;
        assert_eq!(grant["iceServers"][0]["urls"], json!([coturn.url()]), "{grant}");
    }
    for (page, seat, seen_by) in [("ann", 1, "bob"), ("bob", 2, "ann")] {
        hall.speaks(page, seat, seen_by).await;
    }
    for page in ["ann", "bob"] {
        hall.hears_all(page).await;
        let paths =
            "window.dais.stats().then((stats) => [...stats.in, ...stats.out].map(({ path }) => path))";
        assert_eq!(hall.pages.value(page, paths).await, json!(["relay", "relay"]));
        assert_eq!(hall.error(page).await, "");
    }
}

#[tokio::test]
async fn credentials_made_with_another_secret_connect_nobody() {
    let pages = Pages::start().await;
    let (coturn, janus) = (Coturn::start(SECRET).await, Janus::start().await);
    let hall = hall(&coturn, "the secret of some other TURN server", &janus, pages).await;
    open(&hall, "ann").await;
    coturn.has_refused().await;
    hall.pages.truth("ann", "window.dais.state.media.failures > 0").await;
    assert_eq!(hall.pages.value("ann", "window.dais.state.media.isOpen").await, false);
    assert!(hall.error("ann").await.starts_with("media: "), "{}", hall.error("ann").await);
}
