//! Sound goes on while its room is without an owner: coordinators are no part of its way.

use e2e::janus::{Events, JanusOptions};
use e2e::livekit::{API_KEY, API_SECRET, LiveKit};
use e2e::token::APP;
use e2e::wait::{SOON, eventually};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use crate::browsers::Pages;
use crate::janus_rooms::section;
use crate::media_pages::{Gate, Hall};
use crate::stage::ROOM;
use crate::stored::Stored;

const PASSWORD: &str = "0123456789abcdef";
const HEARTBEAT: Duration = Duration::from_secs(1);
/// An owner key lives for three heartbeats.
const LEASE: Duration = HEARTBEAT.saturating_mul(3);
/// What a busy machine takes for the rest: to see that the key has gone, to claim the room and to read it.
const CLAIM: Duration = Duration::from_secs(2);

/// A packet comes every 20 ms, and a page's jitter buffer stretches over some that are late. Counters are read every
/// 100 ms, and Chromium renews what it reports at most every 50 ms, so that 150 ms are seen where nothing is missing;
/// the rest is for a machine that others use. A connection that was made anew would be silent for longer: it takes
/// three round trips to Janus or LiveKit, ICE and DTLS, and begins with other counters.
const LONGEST_PAUSE_MS: f64 = 300.0;
/// The fake microphone beeps twice a second; that it did is seen a sample later.
const LONGEST_SILENCE_MS: f64 = 600.0;
/// Far enough beyond the takeover to see what it has left behind.
const SAMPLES_AFTER: usize = 20;

/// What a page had received between two times of its own clock, in milliseconds.
#[derive(Debug)]
struct Sample {
    from: f64,
    to: f64,
    packets: f64,
    energy: f64,
}

impl Sample {
    fn of(value: &Value) -> Self {
        let number = |field: &str| value[field].as_f64().unwrap_or_else(|| panic!("no {field}: {value}"));
        Self { from: number("from"), to: number("to"), packets: number("packets"), energy: number("energy") }
    }
}

/// How long, at least, a counter stood still: from when it had surely its last value to when it surely had no other. A
/// sample that came late says nothing of the time before it, where the counter may have grown all along.
fn longest_pause(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let mut grown = &samples[0];
    let mut longest = 0.0_f64;
    for sample in samples {
        assert!(of(sample) >= of(grown), "a connection was made anew: {grown:?}, {sample:?}");
        if of(sample) > of(grown) {
            grown = sample;
        } else {
            longest = longest.max(sample.from - grown.to);
        }
    }
    longest
}

/// Notes from now on what the page has received, ten times a second.
async fn watch(hall: &Hall, page: &str) {
    const WATCH: &str = "void (async () => {
        window.samples = [];
        for (;;) {
            const from = performance.now();
            const [sound] = (await window.dais.stats()).in;
            const { packetsReceived: packets = 0, totalAudioEnergy: energy = 0 } = sound ?? {};
            const to = performance.now();
            window.samples.push({ from, to, packets, energy });
            await new Promise((resolve) => setTimeout(resolve, Math.max(0, from + 100 - to)));
        }
    })()";
    hall.pages.value(page, WATCH).await;
}

/// How many samples there are on a page.
async fn samples(hall: &Hall, page: &str) -> usize {
    let count = hall.pages.value(page, "window.samples.length").await;
    count.as_u64().and_then(|count| usize::try_from(count).ok()).expect("a number")
}

/// Waits for some more samples.
async fn goes_on(hall: &Hall, page: &str) {
    let enough = samples(hall, page).await + SAMPLES_AFTER;
    hall.pages.truth(page, &format!("window.samples.length >= {enough}")).await;
}

/// Neither packets nor sound ever stood still.
async fn was_never_silent(hall: &Hall, page: &str) {
    let samples = hall.pages.value(page, "window.samples").await;
    let samples: Vec<Sample> = samples.as_array().expect("a list").iter().map(Sample::of).collect();
    let (first, last) = (&samples[0], samples.last().expect("more than one"));
    let packets = longest_pause(&samples, |sample| sample.packets);
    let sound = longest_pause(&samples, |sample| sample.energy);
    assert!(packets <= LONGEST_PAUSE_MS, "{page}: no packet for {packets} ms: {samples:#?}");
    assert!(sound <= LONGEST_SILENCE_MS, "{page}: no sound for {sound} ms: {samples:#?}");
    // Late samples hide pauses, but not that packets are missing: there are 50 a second.
    let expected = (last.from - first.to) / 20.0;
    let received = last.packets - first.packets;
    assert!(received > 0.8 * expected, "{page}: {received} of {expected} packets");
}

/// Two pages talk, the owner of their room is killed, and they go on talking.
async fn the_owner_is_killed_under(mut hall: Hall) {
    // The room is the first instance's; the pages are of the second, and are sent there.
    hall.stage.enter("hanna", "host").await;
    for user in ["ann", "bob"] {
        hall.open(user, "host", 1).await;
    }
    for (page, seat, seen_by) in [("ann", 1, "bob"), ("bob", 2, "ann")] {
        hall.speaks(page, seat, seen_by).await;
    }
    let (of_ann, of_bob) = (hall.grant("ann").await, hall.grant("bob").await);
    // An AudioBridge mixes what it passes on.
    let (heard_by_ann, heard_by_bob) = (json!([null, "bob"]), json!([null, "ann"]));
    hall.hears("ann", &heard_by_ann).await;
    hall.hears("bob", &heard_by_bob).await;
    let router = hall.stage.past().await.cell.router;
    for page in ["ann", "bob"] {
        watch(&hall, page).await;
    }
    for page in ["ann", "bob"] {
        goes_on(&hall, page).await;
    }

    // Somebody at the other instance asks for the room all the time.
    hall.stage.connect("zoe", "zoe", "host", 1).await;
    hall.stage.cluster[0].kill().await;
    let killed = Instant::now();
    eventually(SOON, async || {
        let ack = hall.stage.answer("zoe", "room:join", json!({ "role": "host" })).await;
        if ack["ok"] == true { Ok(()) } else { Err(ack) }
    })
    .await;
    let without_owner = killed.elapsed();
    let owner = Stored::room(&hall.stage.cluster.redis, ROOM).owner().await.expect("an owner");
    assert_eq!(owner.name(), "b");
    assert!(without_owner <= LEASE + CLAIM, "owned again only after {without_owner:?}");

    for page in ["ann", "bob"] {
        let is_back = "window.dais.state.phase === 'joined' && window.dais.state.room.owner.instance === 'b'";
        hall.pages.truth(page, is_back).await;
    }
    for page in ["ann", "bob"] {
        goes_on(&hall, page).await;
    }
    for page in ["ann", "bob"] {
        was_never_silent(&hall, page).await;
    }

    // It is the router that was, and nobody was told of another.
    assert_eq!(hall.stage.past().await.cell.router, router);
    for (page, before) in [("ann", &of_ann), ("bob", &of_bob)] {
        let media = hall.pages.value(page, "window.dais.state.media").await;
        assert_eq!((&media["generation"], &media["opened"]), (&before["generation"], &json!(1)), "{media}");
        let updates = "window.dais.state.log.filter(({ name }) => name === 'media:update')\
                       .map(({ text }) => JSON.parse(text).media)";
        for update in hall.pages.value(page, updates).await.as_array().expect("a list") {
            assert_eq!(update["room"], before["room"], "{update}");
        }
    }

    // Seats go on as well, and are confirmed by who carries the sound.
    hall.pages.click("ann", "microphone").await;
    hall.pages.truth("bob", "window.dais.state.room.seats[0].state === 'idle'").await;
    hall.speaks("ann", 4, "bob").await;
    hall.hears("bob", &heard_by_bob).await;
    let confirmed = hall.stage.happened("confirmed").await;
    let by: Vec<&Value> = confirmed.iter().map(|each| &each["by"]).collect();
    assert_eq!(by, ["media"; 3], "{confirmed:?}");
}

/// Two instances whose leases are short. The first has the room, and media servers tell the second what happens.
async fn hall(pages: Pages, gate: &mut Gate, media: &str) -> Hall {
    let hall = Hall::start(pages, 2, |options| {
        options
            .heartbeat(HEARTBEAT)
            .without("redis", "command_timeout_ms")
            .text("app", "callbacks.janus.username", "janus")
            .text("app", "callbacks.janus.password", PASSWORD)
            .text("app", "callbacks.livekit.api_key", API_KEY)
            .text("app", "callbacks.livekit.api_secret", API_SECRET)
            .toml(media)
    })
    .await;
    gate.lead_to(&hall.stage.cluster[1].url());
    hall
}

#[tokio::test]
async fn an_audio_bridge_is_heard_while_its_room_changes_owners() {
    let pages = Pages::start().await;
    let mut gate = Gate::open().await;
    let (url, username) = (gate.url("http", "janus", APP), "janus".to_owned());
    let events = Events::Http { url, username, password: PASSWORD.to_owned() };
    let janus = JanusOptions::default().events(events).start().await;
    let hall = hall(pages, &mut gate, &section("janus", &janus)).await;
    the_owner_is_killed_under(hall).await;
}

#[tokio::test]
async fn livekit_is_heard_while_its_room_changes_owners() {
    let mut gate = Gate::open().await;
    let Some(livekit) = LiveKit::start(&[&gate.url("http", "livekit", APP)]).await else { return };
    let pages = Pages::start().await;
    let media = format!(
        "[[media]]\nname = \"livekit\"\nkind = \"livekit\"\nurl = \"{}\"\n\
         credentials = {{ api_key = \"{API_KEY}\", api_secret = \"{API_SECRET}\" }}\n",
        livekit.url()
    );
    let hall = hall(pages, &mut gate, &media).await;
    the_owner_is_killed_under(hall).await;
}
