//! A voice room on the page, in a browser, with the embedded media server: who is on a seat is heard there.

use e2e::driver::Event as Told;
use e2e::resp::Value as Reply;
use e2e::token::Token;
use e2e::wait::{self, SOON};
use key_prefix::KeyKind;
use room_cell::Event;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::browsers::Pages;
use crate::stage::{Person, ROOM, Stage, View};
use crate::stored::of_room;

const GRACE_MS: u64 = 10_000;

/// Pages beside clients of the same room.
struct Hall {
    stage: Stage,
    pages: Pages,
}

impl Hall {
    async fn start() -> Self {
        // A seat waits for as long as a busy machine takes to bring sound.
        let stage = Stage::start_with(1, |options| {
            options.value("app", "publish_deadline_ms", 120_000).grace(Duration::from_millis(GRACE_MS))
        });
        Self { stage: stage.await, pages: Pages::start().await }
    }

    /// Opens a page of that user's, with the microphone off, and enters.
    async fn open(&self, user: &str, role: &str) {
        let url =
            format!("{}/console/?room={ROOM}&user={user}&role={role}&mic=0", self.stage.cluster[0].url());
        self.pages.open(user, &url).await;
        self.pages.join(user, &Token::new(user, role).sign()).await;
        self.pages.truth(user, "window.dais.state.phase === 'joined'").await;
    }

    async fn click(&self, page: &str, testid: &str) {
        self.pages.click(page, testid).await;
    }

    /// Waits until a page is told that a seat is in this state, with this user on it.
    async fn shows(&self, page: &str, seat: u64, state: &str, user: Option<&str>) {
        let user = json!(user);
        let found = format!(
            "window.dais.state.room.seats.some((each) => \
             each.seat === {seat} && each.state === '{state}' && (each.user ?? null) === {user})"
        );
        self.pages.truth(page, &found).await;
        // And shows it.
        let shown =
            format!("document.querySelector('[data-testid=seat-{seat}]').dataset.state === '{state}'");
        self.pages.truth(page, &shown).await;
    }

    /// Ann takes that seat on her page, and is heard.
    async fn speaks(&self, ann: &str, seat: u64, hanna: &mut Person<'_>) -> Value {
        self.click(ann, &format!("take-seat-{seat}")).await;
        hanna.until("the seat is taken", |view| !view.seat_of(ann).is_null()).await;
        let taken = hanna.view.seat_of(ann);
        assert_eq!((&taken["seat"], &taken["state"]), (&json!(seat), &json!("pending_publish")));
        self.shows(ann, seat, "publishing", Some(ann)).await;
        hanna.until("its sound arrives", |view| view.seat(seat) == "publishing").await;
        assert_eq!(hanna.view.seat_of(ann)["micSession"], taken["micSession"]);
        taken["micSession"].clone()
    }

    async fn microphone(&self, page: &str, on: bool) {
        self.pages.truth(page, &format!("window.dais.state.microphone.on === {on}")).await;
    }

    /// What Redis's clock says, in Unix milliseconds.
    async fn redis_ms(&self) -> u64 {
        let time = self.stage.cluster.redis.command(&["TIME"]).await;
        let [seconds, micros] = time.items() else { panic!("{time:?}") };
        let number = |part: &Reply| part.number().and_then(|it| u64::try_from(it).ok()).expect("a number");
        number(seconds) * 1000 + number(micros) / 1000
    }

    async fn error(&self, page: &str) -> String {
        self.pages.browser().text(page, "[data-testid=error]").await.expect("a text")
    }
}

#[tokio::test]
async fn i_9_a_seat_is_publishing_while_sound_arrives_and_a_closed_tab_frees_it_before_presence_ends() {
    let hall = Hall::start().await;
    let mut hanna = hall.stage.enter("hanna", "host").await;
    hall.open("ann", "guest").await;
    hall.open("bob", "guest").await;
    hanna.until("they are here", |view| view.peers.contains_key("bob")).await;

    let first = hall.speaks("ann", 2, &mut hanna).await;
    hall.microphone("ann", true).await;
    hall.shows("bob", 2, "publishing", Some("ann")).await;
    hall.pages.hears("bob", "ann").await;
    // Her browser beeps: everybody is told when that begins, and when it ends.
    for begins in [true, false] {
        let is_told = |event: &Told| {
            let said = &event.body["levels"][0];
            let is_loud = said["level"].as_f64().is_some_and(|level| level > 0.0);
            event.name == "room:speakers" && said["user"] == "ann" && is_loud == begins
        };
        hall.stage.driver.wait_event("hanna", 0, SOON, is_told).await;
    }

    // She stays without her microphone, but not on the seat.
    hall.click("ann", "microphone").await;
    hall.microphone("ann", false).await;
    hall.shows("bob", 2, "idle", None).await;
    hanna.until("the seat is free", |view| view.seat(2) == "idle").await;
    assert!(hanna.view.peers.contains_key("ann"));
    assert_eq!(hall.stage.freed("ann").await, ["audio_stopped"]);

    let second = hall.speaks("ann", 2, &mut hanna).await;
    assert_ne!(first, second);
    hall.pages.hears("bob", "ann").await;
    assert_eq!(hall.error("ann").await, "");
    // Her client said nothing of it: the media server did.
    let confirmed = hall.stage.happened("confirmed").await;
    let by: Vec<(&Value, &Value)> = confirmed.iter().map(|each| (&each["session"], &each["by"])).collect();
    assert_eq!(by, [(&first, &json!("media")), (&second, &json!("media"))]);

    let closing = hall.redis_ms().await;
    hall.pages.browser().close("ann").await.expect("closed");
    hanna.until("the seat is free", |view| view.seat(2) == "idle").await;
    assert!(hanna.view.peers.contains_key("ann"), "presence goes on: {:?}", hanna.view);
    let reasons = hall.stage.freed("ann").await;
    assert!(["audio_stopped", "room_exited"].contains(&&*reasons[1]), "{reasons:?}");
    hanna.until("she is gone", |view| !view.peers.contains_key("ann")).await;
    hanna
        .told("room:presence", |body| body["left"] == json!([{ "user": "ann", "reason": "stale_left" }]))
        .await;
    hall.pages.is_in_with("bob", &["bob", "hanna"]).await;
    assert_eq!(hall.stage.freed("ann").await.len(), 2);

    let past = hall.stage.past().await;
    let left =
        past.events().find(|(_, event)| matches!(event, Event::Left { .. })).map(|(entry, _)| entry.at);
    assert!(left >= Some(closing + GRACE_MS), "{left:?}, closed at {closing}");
    hall.stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn who_is_heard_is_moved_to_another_seat_and_not_thrown_off() {
    let hall = Hall::start().await;
    let mut hanna = hall.stage.enter("hanna", "host").await;
    for (user, role) in [("ann", "guest"), ("holly", "host")] {
        hall.open(user, role).await;
    }
    let session = hall.speaks("ann", 2, &mut hanna).await;

    // By a client.
    let moved = hanna.ask("mic:move", json!({ "user": "ann", "seat": 5 })).await;
    assert_eq!(moved["seat"]["state"], "publishing", "{moved}");
    hall.shows("ann", 5, "publishing", Some("ann")).await;
    hall.shows("holly", 2, "idle", None).await;
    // On a page.
    hall.click("holly", "move-seat-5").await;
    hall.click("holly", "take-seat-7").await;
    hall.shows("ann", 7, "publishing", Some("ann")).await;
    hall.pages.hears("holly", "ann").await;
    // By herself.
    hall.click("ann", "take-seat-1").await;
    hall.shows("holly", 1, "publishing", Some("ann")).await;
    hall.pages.hears("holly", "ann").await;

    let is_there = |view: &View| view.seat(1) == "publishing" && view.seat(7) == "idle";
    hanna.until("she has moved three times", is_there).await;
    assert_eq!(hanna.view.seat_of("ann")["micSession"], session);
    let moves = hall.stage.happened("seat_moved").await;
    let states: Vec<&Value> = moves.iter().map(|each| &each["speaking"]["state"]).collect();
    assert_eq!(states, ["publishing"; 3]);
    assert_eq!(hall.stage.freed("ann").await, Vec::<String>::new());
    for page in ["ann", "holly"] {
        assert_eq!(hall.error(page).await, "");
    }
    hall.stage.agree(&mut [&mut hanna]).await;
}

#[tokio::test]
async fn a_room_that_was_lost_and_had_again_still_believes_its_media_server() {
    let hall = Hall::start().await;
    let mut hanna = hall.stage.enter("hanna", "host").await;
    hall.open("ann", "guest").await;
    let token = async || hall.stage.snapshot(0).await["owner"]["token"].as_u64().unwrap_or_default();
    let before = token().await;
    let (redis, owner) = (&hall.stage.cluster.redis, of_room(KeyKind::Owner, ROOM));
    hall.stage.cluster[0].pause();
    let is_gone = || async { redis.command(&["EXISTS", &owner]).await.number() == Some(0) };
    wait::until("the lease has run out", SOON, is_gone).await;
    hall.stage.cluster[0].resume();
    wait::until("the room has its owner again", SOON, || async { token().await > before }).await;

    hall.speaks("ann", 2, &mut hanna).await;
    hall.click("ann", "microphone").await;
    hall.shows("ann", 2, "idle", None).await;
    let confirmed = hall.stage.happened("confirmed").await;
    assert_eq!((confirmed.len(), &confirmed[0]["by"]), (1, &json!("media")), "{confirmed:?}");
    assert_eq!(hall.stage.freed("ann").await, ["audio_stopped"]);
}

#[tokio::test]
async fn a_host_runs_the_room_from_the_page() {
    let hall = Hall::start().await;
    let mut hanna = hall.stage.enter("hanna", "host").await;
    for (user, role) in [("ann", "guest"), ("holly", "host")] {
        hall.open(user, role).await;
    }
    // A request is granted, and opens the microphone; who is taken down is not heard any more.
    hall.click("ann", "request").await;
    hall.click("holly", "accept-request-ann").await;
    hall.shows("holly", 1, "publishing", Some("ann")).await;
    hall.click("holly", "mute-seat-1").await;
    hall.pages.truth("ann", "window.dais.state.microphone.muted").await;
    hall.click("ann", "mute").await;
    hall.pages.truth("holly", "window.dais.state.room.seats[0].muted === false").await;
    hall.click("holly", "mute-all").await;
    hall.pages.truth("ann", "window.dais.state.microphone.muted").await;
    hall.click("holly", "down-seat-1").await;
    hall.microphone("ann", false).await;

    // An invitation is declined, and the next one accepted. Whoever was muted stays so.
    for answer in ["decline-invite", "accept-invite"] {
        hall.click("holly", "invite-ann").await;
        hall.click("ann", answer).await;
    }
    hall.shows("holly", 1, "publishing", Some("ann")).await;
    hall.pages.truth("holly", "window.dais.state.room.seats[0].muted").await;

    // Locks, fewer seats, and the door.
    hall.click("holly", "lock-seat-2").await;
    hall.shows("ann", 2, "locked", None).await;
    hall.pages.fill("holly", "seat-number", "3").await;
    hall.click("holly", "door").await;
    hall.pages
        .truth("ann", "window.dais.state.room.locked && window.dais.state.room.seats.length === 3")
        .await;
    let seats: BTreeSet<u64> = hanna.stage.snapshot(0).await["seats"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|seat| seat["seat"].as_u64())
        .collect();
    assert_eq!(seats, BTreeSet::from([1, 2, 3]));

    // Sent out: the page says so, and why it does not come in again.
    hall.click("holly", "kick-ann").await;
    hall.pages.truth("ann", "window.dais.state.phase === 'ended'").await;
    assert_eq!(hall.error("ann").await, "room:kicked: a host sent you out");
    hall.click("ann", "join").await;
    hall.pages.truth("ann", "window.dais.state.error?.code === 'BANNED'").await;
    assert!(hall.error("ann").await.starts_with("room:join: BANNED – "));

    hanna.until("she is gone", |view| !view.peers.contains_key("ann")).await;
    assert_eq!(hall.stage.freed("ann").await, ["taken_down", "kicked"]);
    assert_eq!(hall.error("holly").await, "");
    hall.pages.truth("holly", "document.querySelector('summary').click() ?? true").await;
    hall.click("holly", "close").await;
    hall.pages.truth("holly", "window.dais.state.phase === 'ended'").await;
    assert_eq!(hall.error("holly").await, "room:closed: the room was closed");
    hanna.told("room:closed", |body| body["room"] == ROOM).await;
}
