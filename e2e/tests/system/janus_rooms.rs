//! Rooms whose sound goes through a real Janus: found, compared, left and moved by their owner.

use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Event;
use e2e::janus::{ADMIN_KEY, ADMIN_SECRET, API_SECRET, Client, Flow, Janus, TOKEN_SECRET};
use e2e::wait::{SOON, eventually, until};
use media_bridge::{
    Generation, JanusConfig, JanusPlugin, JanusServer, MediaError, MediaServer as _, RoomRef, Router,
};
use serde_json::{Value, json};
use std::time::Duration;

use crate::stage::{ROOM, Stage};

const ROOM_SECRET: &str = "what the test's rooms are made from";

/// Instances whose app uses these AudioBridges.
async fn stage(count: usize, janus: &[&Janus]) -> Stage {
    stage_with(count, janus, |options| options).await
}

async fn stage_with(
    count: usize,
    janus: &[&Janus],
    change: impl Fn(CoordinatorOptions) -> CoordinatorOptions,
) -> Stage {
    let names: Vec<String> = (0..janus.len()).map(|n| format!("janus-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Stage::start_with(count, |options| {
        let mut options = options
            .texts("app", "media", &names)
            .value("app", "reconcile_ms", 500)
            .value("app", "publish_deadline_ms", 60_000)
            .without("media", "name")
            .without("media", "kind");
        for (name, janus) in names.iter().zip(janus) {
            options = options.toml(&(section(name, janus) + "plain_rtp = true\nstable_ms = 2000\n"));
        }
        change(options)
    })
    .await
}

/// The `[[media]]` of a Janus.
pub(crate) fn section(name: &str, janus: &Janus) -> String {
    format!(
        "[[media]]\nname = \"{name}\"\nkind = \"janus\"\nurl = \"{}\"\nadmin_url = \"{}\"\n\
         deadline_ms = 1000\ncheck_ms = 200\n\
         credentials = {{ api_secret = \"{API_SECRET}\", admin_secret = \"{ADMIN_SECRET}\", \
         admin_key = \"{ADMIN_KEY}\", token_secret = \"{TOKEN_SECRET}\", room_secret = \"{ROOM_SECRET}\" }}\n",
        janus.url(),
        janus.admin_url(),
    )
}

/// The grant of this generation that a connection was told of.
pub(crate) async fn granted(stage: &Stage, conn: &str, generation: u64) -> Value {
    let fits = |event: &Event| {
        event.name == "media:update" && event.body["media"]["generation"] == json!(generation)
    };
    let told = stage.driver.wait_event(conn, 0, SOON, fits).await;
    assert_eq!(told.body["media"]["kind"], "janus", "{told:?}");
    told.body["media"].clone()
}

/// Joins Janus as a grant says, and sends sound until it is dropped.
async fn speaks(grant: &Value) -> (Client, Flow) {
    let mut client = Client::attach(grant).await.expect("the grant's token for the API");
    let flow = client.join_with_rtp().await.expect("the grant's token for the room");
    (client, flow)
}

/// The test's own look at a room's router.
pub(crate) struct Look {
    server: JanusServer,
    router: Router,
}

impl Look {
    /// At the router of a grant.
    pub(crate) fn at(janus: &Janus, grant: &Value) -> Self {
        let is_bridge = grant["plugin"] == "audiobridge";
        let config = JanusConfig {
            url: janus.url(),
            public_url: None,
            admin_url: None,
            api_secret: Some(API_SECRET.to_owned()),
            admin_secret: None,
            admin_key: Some(ADMIN_KEY.to_owned()),
            api_tokens: None,
            plugin: if is_bridge { JanusPlugin::AudioBridge } else { JanusPlugin::VideoRoom },
            plain_rtp: true,
            room_secret_key: ROOM_SECRET.as_bytes().to_vec(),
            deadline: Duration::from_secs(2),
        };
        let name = grant["room"].as_str().expect("a room").into();
        let router = Router { room: RoomRef::new("demo", ROOM), name, generation: Generation(1) };
        Self { server: JanusServer::new(config).expect("a Janus"), router }
    }

    /// Waits until these are there, by their names.
    pub(crate) async fn has(&self, names: &[&Value]) {
        let mut names: Vec<&str> = names.iter().map(|name| name.as_str().expect("a name")).collect();
        names.sort_unstable();
        eventually(SOON, async || {
            let there = self.server.list_participants(&self.router).await;
            let mut there: Vec<String> = match there {
                Ok(there) => there.iter().map(|it| it.name.to_string()).collect(),
                Err(error) => return Err(error.to_string()),
            };
            there.sort();
            if there == names { Ok(()) } else { Err(format!("{there:?}")) }
        })
        .await;
    }

    /// Waits until there is no such router.
    /// Waits until Janus has this participant audible, or not.
    async fn hears(&self, name: &Value, audible: bool) {
        eventually(SOON, async || {
            let there = self.server.list_participants(&self.router).await;
            let there = there.map_err(|error| error.to_string())?;
            let so = there.iter().any(|it| json!(*it.name) == *name && it.audible == Some(audible));
            if so { Ok(()) } else { Err(format!("{there:?}")) }
        })
        .await;
    }

    pub(crate) async fn is_gone(&self) {
        eventually(SOON, async || match self.server.adopt_router(&self.router).await {
            Err(MediaError::NotFound { .. }) => Ok(()),
            other => Err(other),
        })
        .await;
    }
}

#[tokio::test]
async fn without_any_event_a_speaker_is_confirmed_a_stranger_put_out_and_a_kick_and_a_close_reach_janus() {
    let janus = Janus::start().await;
    let stage = stage(1, &[&janus]).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let ann = stage.enter("ann", "guest").await;
    let (of_hanna, of_ann) = (granted(&stage, "hanna", 1).await, granted(&stage, "ann", 1).await);
    assert_ne!(of_hanna["token"], of_ann["token"]);
    let look = Look::at(&janus, &of_ann);

    let name = crate::stored::named(key_prefix::KeyKind::Router, of_ann["room"].as_str().expect("a room"));
    let left = stage.cluster.redis.command(&["PTTL", &name]).await.number();
    assert!(left.is_some_and(|left| (1..=30 * 24 * 3_600_000).contains(&left)), "{left:?}");

    stage.ask("ann", "mic:up", json!({})).await;
    let (_client, _flow) = speaks(&of_ann).await;
    look.has(&[&of_ann["id"]]).await;
    hanna.until("ann is heard", |view| view.seat_of("ann")["state"] == "publishing").await;
    let confirmed = stage.happened("confirmed").await;
    assert_eq!(confirmed[0]["by"], "media");

    // Another's token under a name of its own: nobody of this room.
    let mut stranger = of_hanna.clone();
    stranger["id"] = json!("stranger");
    let (_stranger, _noise) = speaks(&stranger).await;
    look.has(&[&of_ann["id"]]).await;

    stage.ask("hanna", "room:kick", json!({ "user": "ann" })).await;
    look.has(&[]).await;
    hanna.until("ann is out", |view| !view.peers.contains_key("ann")).await;
    ann.told("room:kicked", |_| true).await;
    let mut again = Client::attach(&of_ann).await.expect("the API's token");
    assert!(again.join_with_rtp().await.is_err(), "what she was granted lets her in no more");

    stage.ask("hanna", "room:close", json!({})).await;
    look.is_gone().await;
    eventually(SOON, async || {
        let cell = stage.past().await.cell;
        let is_left = cell.router.is_none() && cell.duties.is_empty();
        if is_left { Ok(()) } else { Err((cell.router, cell.duties)) }
    })
    .await;
    let metrics = stage.cluster[0].metrics().await;
    for call in ["open", "list", "remove", "close"] {
        assert!(metrics.sum("dais_media_calls_total", &[("call", call), ("result", "ok")]) >= 1.0, "{call}");
    }
}

/// How often the room was compared with Janus's list.
async fn compared(stage: &Stage) -> f64 {
    stage.cluster[0].metrics().await.sum("dais_reconciled_total", &[("what", "compared")])
}

#[tokio::test]
async fn without_any_event_a_lost_mute_and_a_vanished_speaker_are_right_within_two_comparisons() {
    let janus = Janus::start().await;
    let stage = stage(1, &[&janus]).await;
    let mut hanna = stage.enter("hanna", "host").await;
    stage.enter("ann", "guest").await;
    let of_ann = granted(&stage, "ann", 1).await;
    assert_eq!(hanna.view.peers["hanna"]["media"], json!([granted(&stage, "hanna", 1).await["id"]]));
    stage.ask("ann", "mic:up", json!({})).await;
    let (mut client, _flow) = speaks(&of_ann).await;
    hanna.until("ann is heard", |view| view.seat_of("ann")["state"] == "publishing").await;
    let look = Look::at(&janus, &of_ann);

    stage.ask("hanna", "mic:mute", json!({ "user": "ann", "muted": true })).await;
    look.hears(&of_ann["id"], false).await;
    let before = compared(&stage).await;
    // Janus lets her unmute herself, and tells nobody.
    let (answer, _) = client.request(json!({ "request": "configure", "muted": false }), None).await;
    assert_eq!(answer["result"], "ok", "{answer}");
    look.hears(&of_ann["id"], false).await;
    // One may have been under way.
    let after = compared(&stage).await;
    assert!(after - before <= 3.0, "{before} … {after}");
    assert_eq!(hanna.view.seat_of("ann")["state"], "publishing", "who is muted keeps the seat");

    drop(client);
    look.has(&[]).await;
    let before = compared(&stage).await;
    hanna.until("the seat is free", |view| view.seat_of("ann").is_null()).await;
    let after = compared(&stage).await;
    assert!(after - before <= 3.0, "{before} … {after}");
    assert_eq!(stage.freed("ann").await, ["room_exited"]);
    assert!(hanna.view.peers.contains_key("ann"), "presence goes on");
}

#[tokio::test]
async fn a_monitor_listens_from_any_instance_and_is_put_out_when_it_leaves() {
    let janus = Janus::start().await;
    let stage = stage(2, &[&janus]).await;
    stage.enter("ann", "guest").await;
    let of_ann = granted(&stage, "ann", 1).await;
    stage.ask("ann", "mic:up", json!({})).await;
    let (_client, _flow) = speaks(&of_ann).await;
    let mona = stage.monitor("mona", 1).await;
    let of_mona = mona.ask("media:grant", json!({})).await["media"].clone();
    assert_eq!((&of_mona["room"], &of_mona["generation"]), (&of_ann["room"], &of_ann["generation"]));
    assert_eq!(mona.ask("media:grant", json!({})).await["media"]["id"], of_mona["id"]);
    let (_listener, _noise) = speaks(&of_mona).await;
    let look = Look::at(&janus, &of_ann);
    look.has(&[&of_ann["id"], &of_mona["id"]]).await;
    // Janus lets everybody speak; the room's owner does not, and leaves it where it is.
    look.hears(&of_mona["id"], false).await;
    let before = compared(&stage).await;
    until("the room was compared again", SOON, async || compared(&stage).await >= before + 2.0).await;
    look.has(&[&of_ann["id"], &of_mona["id"]]).await;
    look.hears(&of_ann["id"], true).await;
    mona.ask("room:leave", json!({})).await;
    look.has(&[&of_ann["id"]]).await;
}

#[tokio::test]
async fn a_router_outlives_its_owner_and_is_adopted_as_it_is() {
    let janus = Janus::start().await;
    let quick = |options: CoordinatorOptions| {
        options.heartbeat(Duration::from_millis(500)).without("redis", "command_timeout_ms")
    };
    let mut stage = stage_with(2, &[&janus], quick).await;
    stage.enter("ann", "guest").await;
    let of_ann = granted(&stage, "ann", 1).await;
    stage.ask("ann", "mic:up", json!({})).await;
    let (_client, _flow) = speaks(&of_ann).await;
    let look = Look::at(&janus, &of_ann);
    look.has(&[&of_ann["id"]]).await;

    stage.cluster[0].kill().await;
    // It is found again with everybody in it, and nobody is granted anything anew.
    stage.connect("hanna", "hanna", "host", 1).await;
    let joined = eventually(SOON, async || {
        let ack = stage.answer("hanna", "room:join", json!({ "role": "host" })).await;
        if ack["ok"] == true { Ok(ack) } else { Err(ack) }
    })
    .await;
    assert_eq!(joined["room"]["seats"][0]["user"], "ann", "{joined}");
    assert_eq!(granted(&stage, "hanna", 1).await["room"], of_ann["room"]);
    look.has(&[&of_ann["id"]]).await;
}

#[tokio::test]
async fn rooms_of_a_killed_janus_move_to_another_and_it_is_used_again_once_it_is_stable() {
    let (mut one, mut two) = (Janus::start().await, Janus::start().await);
    let stage = stage(1, &[&one, &two]).await;
    stage.enter("ann", "guest").await;
    let first = granted(&stage, "ann", 1).await;
    let (lost, left) = if first["url"] == json!(one.url()) { (&mut one, &two) } else { (&mut two, &one) };
    stage.ask("ann", "mic:up", json!({})).await;
    lost.kill().await;
    let second = granted(&stage, "ann", 2).await;
    assert_eq!(second["url"], json!(left.url()));
    assert_ne!(second["room"], first["room"]);
    let (_client, _flow) = speaks(&second).await;
    let snapshot = eventually(SOON, async || {
        let snapshot = stage.snapshot(0).await;
        if snapshot["seats"][0]["state"] == "publishing" { Ok(snapshot) } else { Err(snapshot) }
    })
    .await;
    assert_eq!(snapshot["seats"][0]["user"], "ann", "the seat was kept");
    // What is owed to the lost one is done when it is back: there is nothing left to close.
    lost.restart().await;
    eventually(SOON, async || {
        let owed = stage.past().await.cell.duties.len();
        if owed == 0 { Ok(()) } else { Err(owed) }
    })
    .await;
}

#[tokio::test]
async fn a_janus_that_hangs_holds_up_grants_and_nothing_else() {
    let janus = Janus::start().await;
    let stage = stage(1, &[&janus]).await;
    let mut hanna = stage.enter("hanna", "host").await;
    granted(&stage, "hanna", 1).await;
    janus.pause().await;
    stage.enter("ann", "guest").await;
    stage.ask("ann", "mic:up", json!({})).await;
    hanna.until("ann sits", |view| !view.seat_of("ann").is_null()).await;
    let refused = stage.refused("ann", "media:grant", json!({}), "MEDIA_UNAVAILABLE").await;
    assert_eq!(refused["error"]["retryable"], true, "{refused}");
    stage.ask("hanna", "room:kick", json!({ "user": "ann" })).await;
    janus.resume();
    // What could not be done meanwhile is done.
    eventually(SOON, async || {
        let owed = stage.past().await.cell.duties.len();
        if owed == 0 { Ok(()) } else { Err(owed) }
    })
    .await;
    let granted = eventually(SOON, async || {
        let ack = stage.answer("hanna", "media:grant", json!({})).await;
        if ack["ok"] == true { Ok(ack) } else { Err(ack) }
    })
    .await;
    assert_eq!(granted["media"]["kind"], "janus");
}
