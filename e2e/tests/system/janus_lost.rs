//! A Janus that ends under people who talk.

use e2e::janus::Janus;
use e2e::token::Token;
use e2e::wait::SOON;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use crate::browsers::Pages;
use crate::janus_rooms::{granted, section};
use crate::media_pages::Hall;

/// `stable_ms`, if nobody says another.
const STABLE: Duration = Duration::from_secs(10);

/// Both pages are in the room's router of this generation, and hear each other.
async fn talk(hall: &Hall, generation: u64, at: &Janus) {
    for page in ["ann", "bob"] {
        let moved =
            format!("window.dais.state.media.generation === {generation} && window.dais.state.media.isOpen");
        hall.pages.truth(page, &moved).await;
        assert_eq!(hall.grant(page).await["url"], json!(at.url()));
        let told = "window.dais.state.log.some(({ name }) => name === 'media:update')";
        if generation > 1 {
            hall.pages.truth(page, told).await;
        }
    }
    for (page, seat, seen_by) in [("ann", 1, "bob"), ("bob", 2, "ann")] {
        hall.is_publishing(page, seat, seen_by).await;
        hall.hears_all(page).await;
    }
}

#[tokio::test]
async fn a_room_moves_to_another_janus_and_back_only_when_the_first_is_stable() {
    let pages = Pages::start().await;
    let (one, two) = (Janus::start().await, Janus::start().await);
    let hall = Hall::start(pages, 1, |options| {
        options
            .value("app", "reconcile_ms", 500)
            .texts("app", "media", &["one", "two"])
            .toml(&(section("one", &one) + &section("two", &two)))
    })
    .await;
    for user in ["ann", "bob"] {
        hall.open(user, "host", 0).await;
        hall.pages.value(user, "window.stayed = true").await;
    }
    let is_one = hall.grant("ann").await["url"] == json!(one.url());
    let (name, mut first, mut second) = if is_one { ("one", one, two) } else { ("two", two, one) };
    hall.pages.click("ann", "take-seat-1").await;
    hall.pages.click("bob", "take-seat-2").await;
    talk(&hall, 1, &first).await;

    first.kill().await;
    talk(&hall, 2, &second).await;

    // It is back, and gets nothing before it has proved itself.
    let seen = hall.stage.cluster[0].process().log_length();
    let back = Instant::now();
    first.restart().await;
    let turns = async |state: &str| {
        let is_it = |line: &str| {
            let said: Value = serde_json::from_str(line).ok()?;
            (said["node"] == name && said["now"] == state).then_some(())
        };
        hall.stage.cluster[0].process().line(state, seen, SOON, is_it).await;
    };
    turns("recovering").await;
    for (room, user) in [("choir", "carl"), ("band", "dora")] {
        let (url, token) = (hall.stage.cluster[0].url(), Token::new(user, "host").sign());
        hall.stage.driver.join(user, &url, &token, room).await.expect("joined");
        assert_eq!(granted(&hall.stage, user, 1).await["url"], json!(second.url()), "{room}");
    }
    turns("healthy").await;
    let after = back.elapsed();
    assert!(after >= STABLE, "{after:?}");
    second.kill().await;
    talk(&hall, 3, &first).await;

    for page in ["ann", "bob"] {
        assert_eq!(hall.pages.value(page, "window.stayed").await, true, "no page was loaded again");
    }
    // Nobody lost a seat over it.
    for user in ["ann", "bob"] {
        assert_eq!(hall.stage.freed(user).await, Vec::<String>::new());
    }
}
