//! Pages of a real browser in rooms of a real Janus, whose own events say who is heard.

use e2e::janus::{Client, Events, Janus, JanusOptions};
use e2e::token::{APP, Token};
use e2e::wait::{SOON, eventually};
use serde_json::{Value, json};

use crate::browsers::Pages;
use crate::janus_rooms::{Look, section};
use crate::media_pages::{Gate, Hall};

const USERNAME: &str = "janus";
const PASSWORD: &str = "0123456789abcdef";
const PEOPLE: [&str; 4] = ["hanna", "ann", "bob", "cleo"];
/// A tenth of the quietest sound that the fake microphone makes within a second.
const SILENCE: f64 = 1e-6;

fn over_http(gate: &Gate) -> Events {
    let (username, password) = (USERNAME.to_owned(), PASSWORD.to_owned());
    Events::Http { url: gate.url("http", "janus", APP), username, password }
}

fn over_websocket(gate: &Gate) -> Events {
    Events::WebSocket { url: gate.url("ws", "janus", APP), subprotocol: format!("dais.janus.{PASSWORD}") }
}

/// One instance beside a Janus whose events it gets.
async fn hall(plugin: &str, events: impl Fn(&Gate) -> Events) -> (Hall, Janus, Gate) {
    let pages = Pages::start().await;
    let mut gate = Gate::open().await;
    let janus = JanusOptions::default().events(events(&gate)).start().await;
    let hall = Hall::start(pages, 1, |options| {
        options
            .text("app", "callbacks.janus.username", USERNAME)
            .text("app", "callbacks.janus.password", PASSWORD)
            .toml(&format!("{}plugin = \"{plugin}\"\n", section("janus", &janus)))
    })
    .await;
    gate.lead_to(&hall.stage.cluster[0].url());
    (hall, janus, gate)
}

/// Four people take seats and are heard; one is sent out, and the room is closed.
async fn four_pages(plugin: &str, events: impl Fn(&Gate) -> Events) {
    let (hall, janus, _gate) = hall(plugin, events).await;
    for user in PEOPLE {
        hall.open(user, if user == "hanna" { "host" } else { "guest" }, 0).await;
    }
    for (seat, user) in (1..).zip(PEOPLE) {
        let seen_by = if user == "hanna" { "ann" } else { "hanna" };
        hall.speaks(user, seat, seen_by).await;
    }
    let mut grants = Vec::new();
    for page in PEOPLE {
        grants.push(hall.grant(page).await);
    }
    for page in PEOPLE {
        if plugin == "audiobridge" {
            hall.hears_all(page).await;
            continue;
        }
        for other in PEOPLE.iter().filter(|other| **other != page) {
            hall.hears(page, &json!([other])).await;
        }
    }

    // No client said so, and no list did.
    let confirmed = hall.stage.happened("confirmed").await;
    let by: Vec<&Value> = confirmed.iter().map(|each| &each["by"]).collect();
    assert_eq!(by, ["media"; 4], "{confirmed:?}");
    let metrics = hall.stage.cluster[0].metrics().await;
    assert_eq!(metrics.sum("dais_reconciled_total", &[("what", "seats")]), 0.0);
    let appended = metrics.sum("dais_rtc_callbacks_total", &[("vendor", "janus"), ("result", "appended")]);
    assert!(appended >= 4.0, "{appended}");

    let look = Look::at(&janus, &grants[0]);
    let ids: Vec<&Value> = grants.iter().map(|grant| &grant["id"]).collect();
    look.has(&ids).await;
    hall.pages.click("hanna", "kick-ann").await;
    look.has(&[ids[0], ids[2], ids[3]]).await;
    hall.pages.truth("ann", "window.dais.state.phase === 'ended'").await;
    assert_eq!(hall.error("ann").await, "room:kicked: a host sent you out");
    for page in ["hanna", "bob", "cleo"] {
        assert_eq!(hall.error(page).await, "");
    }

    hall.pages.truth("hanna", "document.querySelector('summary').click() ?? true").await;
    hall.pages.click("hanna", "close").await;
    look.is_gone().await;
    for page in ["hanna", "bob", "cleo"] {
        hall.pages.truth(page, "window.dais.state.phase === 'ended'").await;
        assert_eq!(hall.error(page).await, "room:closed: the room was closed");
    }
    eventually(SOON, async || {
        let cell = hall.stage.past().await.cell;
        if cell.router.is_none() && cell.duties.is_empty() { Ok(()) } else { Err(cell.duties) }
    })
    .await;
}

#[tokio::test]
async fn four_pages_in_an_audio_bridge_are_confirmed_by_events_over_http() {
    four_pages("audiobridge", over_http).await;
}

#[tokio::test]
async fn four_pages_in_a_video_room_are_confirmed_by_events_over_a_websocket() {
    four_pages("videoroom", over_websocket).await;
}

#[tokio::test]
async fn rooms_and_people_of_the_same_names_in_two_apps_never_meet() {
    const OTHER_SECRET: &str = "the secret of another app, of 32 bytes and more";
    let pages = Pages::start().await;
    let janus = Janus::start().await;
    let hall = Hall::start(pages, 1, |options| {
        options.value("app", "reconcile_ms", 500).toml(&format!(
            "[[app]]\ncode = \"other\"\nsecret = \"{OTHER_SECRET}\"\nauto_create = true\n\
             publish_deadline_ms = 600000\nreconcile_ms = 500\n{}",
            section("janus", &janus)
        ))
    })
    .await;
    let here = |user: &str| Token::new(user, "host");
    let there = |user: &str| here(user).claim("app", "other").secret(OTHER_SECRET);
    let people = [
        ("ann-here", "ann", here("ann")),
        ("bob-here", "bob", here("bob")),
        ("ann-there", "ann", there("ann")),
        ("bob-there", "bob", there("bob")),
    ];
    let mut grants = Vec::new();
    for (page, user, token) in people {
        hall.enter(page, &token, user, "host", 0, "").await;
        hall.is_open(page).await;
        grants.push(hall.grant(page).await);
    }
    for field in ["id", "token", "opaqueId"] {
        assert_ne!(grants[0][field], grants[2][field], "{field}");
    }
    assert_ne!(grants[0]["room"], grants[2]["room"]);
    for pair in grants.chunks(2) {
        assert_eq!(pair[0]["room"], pair[1]["room"]);
        Look::at(&janus, &pair[0]).has(&[&pair[0]["id"], &pair[1]["id"]]).await;
    }

    // Who is heard here is not heard there.
    let energy = async |page: &str| {
        let sum = "window.dais.stats().then((stats) => stats.in[0].totalAudioEnergy)";
        hall.pages.value(page, sum).await.as_f64().expect("a number")
    };
    hall.pages.click("ann-here", "take-seat-1").await;
    hall.is_publishing("ann", 1, "bob-here").await;
    for page in ["ann-there", "bob-there"] {
        let before = energy(page).await;
        hall.hears_all("bob-here").await;
        hall.pages.grows(page, json!([null]), "audio", "packetsReceived").await;
        let heard = energy(page).await - before;
        assert!(heard < SILENCE, "{page}: {heard}");
        let free = "window.dais.state.room.seats.every(({ user }) => user === undefined)";
        assert_eq!(hall.pages.value(page, free).await, true);
    }
    hall.pages.click("ann-there", "take-seat-1").await;
    hall.is_publishing("ann", 1, "bob-there").await;
    hall.hears_all("bob-there").await;

    // And a token of one is none of the other's.
    let mut stolen = grants[0].clone();
    stolen["room"] = grants[2]["room"].clone();
    let mut client = Client::attach(&stolen).await.expect("the API's token");
    assert!(client.join(&json!({})).await.is_err());
}
