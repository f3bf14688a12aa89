//! Rooms whose sound goes through TRTC or Agora, beside a stand-in that proves what they are sent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Event;
use e2e::http;
use e2e::token::APP;
use e2e::vendors::{
    API_SECRET_KEY, APP_CERTIFICATE, APP_ID, CALLBACK_KEY, CUSTOMER_ID, CUSTOMER_SECRET, NOTIFICATION_SECRET,
    SDK_APP_ID, SECRET_ID, SECRET_KEY, Vendors,
};
use e2e::wait::{SOON, eventually, until};
use key_prefix::KeyKind;
use serde_json::{Value, json};

use crate::stage::Stage;
use crate::stored::{named, redis_now};

/// Instances whose app uses the cloud that these lines describe.
async fn stage(cloud: &str, callbacks: (&str, &str)) -> Stage {
    Stage::start_with(2, |options: CoordinatorOptions| {
        options
            .text("app", callbacks.0, callbacks.1)
            .text("app", "media", "cloud")
            .value("app", "reconcile_ms", 500)
            .value("app", "publish_deadline_ms", 60_000)
            .without("media", "name")
            .without("media", "kind")
            .toml(&format!("[[media]]\nname = \"cloud\"\ncheck_ms = 200\n{cloud}"))
    })
    .await
}

async fn trtc(vendors: &Vendors) -> Stage {
    let cloud = format!(
        "kind = \"trtc\"\nurl = \"{}\"\nregion = \"ap-singapore\"\ncredentials = {{ sdk_app_id = {SDK_APP_ID}, \
         secret_key = \"{SECRET_KEY}\", secret_id = \"{SECRET_ID}\", api_secret_key = \"{API_SECRET_KEY}\" }}\n",
        vendors.url()
    );
    stage(&cloud, ("callbacks.trtc.key", CALLBACK_KEY)).await
}

async fn agora(vendors: &Vendors) -> Stage {
    let cloud = format!(
        "kind = \"agora\"\nurl = \"{}\"\ncredentials = {{ app_id = \"{APP_ID}\", \
         app_certificate = \"{APP_CERTIFICATE}\", customer_id = \"{CUSTOMER_ID}\", \
         customer_secret = \"{CUSTOMER_SECRET}\" }}\n",
        vendors.url()
    );
    stage(&cloud, ("callbacks.agora.secret", NOTIFICATION_SECRET)).await
}

/// The first grant, which follows the router.
async fn granted(stage: &Stage, conn: &str) -> Value {
    let fits = |event: &Event| event.name == "media:update" && event.body["media"]["generation"] == 1;
    stage.driver.wait_event(conn, 0, SOON, fits).await.body["media"].take()
}

/// A fresh grant.
async fn grant(stage: &Stage, conn: &str) -> Value {
    stage.ask(conn, "media:grant", json!({})).await["media"].take()
}

/// A client enters TRTC: its privileges there.
async fn enter(vendors: &Vendors, grant: &Value) -> Result<u64, String> {
    assert_eq!((&grant["kind"], &grant["sdkAppId"]), (&json!("trtc"), &json!(SDK_APP_ID)), "{grant}");
    let entered = vendors.control("trtc/enter", grant).await?;
    Ok(entered["privileges"].as_u64().expect("bits"))
}

/// A client joins Agora: its privileges there.
async fn join(vendors: &Vendors, grant: &Value, broadcaster: bool) -> Result<Value, String> {
    assert_eq!((&grant["kind"], &grant["appId"]), (&json!("agora"), &json!(APP_ID)), "{grant}");
    let mut asked = grant.clone();
    asked["broadcaster"] = json!(broadcaster);
    Ok(vendors.control("agora/join", &asked).await?["privileges"].take())
}

/// Has a vendor call back an instance that does not own the room: the status that it gets.
async fn calls_back(stage: &Stage, vendors: &Vendors, what: &str, body: &Value) -> Value {
    let vendor = what.split('/').next().expect("a vendor");
    let mut asked = body.clone();
    asked["url"] = json!(format!("{}/rtc/{vendor}/{APP}", stage.cluster[1].url()));
    vendors.control(what, &asked).await.expect("sent")["status"].take()
}

async fn has(vendors: &Vendors, vendor: &str, rooms: Value) {
    eventually(SOON, async || {
        let there = vendors.rooms(vendor).await;
        if there == rooms { Ok(()) } else { Err(there) }
    })
    .await;
}

async fn owes_nothing(stage: &Stage) {
    eventually(SOON, async || {
        let duties = stage.past().await.cell.duties;
        if duties.is_empty() { Ok(()) } else { Err(duties) }
    })
    .await;
}

async fn now_ms(stage: &Stage) -> u64 {
    u64::try_from(redis_now(&stage.cluster.redis).await).expect("a time")
}

/// Bits of what TRTC lets somebody do.
const SEND_AUDIO: u64 = 4;

#[tokio::test]
async fn trtc_lets_in_whom_we_say_confirms_a_seat_mutes_and_puts_out() {
    let vendors = Vendors::start().await;
    let stage = trtc(&vendors).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let of_hanna = granted(&stage, "hanna").await;
    let ann = stage.enter("ann", "guest").await;
    let of_ann = grant(&stage, "ann").await;
    let (room, id) =
        (of_ann["strRoomId"].as_str().expect("a room"), of_ann["userId"].as_str().expect("a name"));
    assert_eq!(of_hanna["strRoomId"], room);
    let name = named(KeyKind::Router, room);
    let left = stage.cluster.redis.command(&["PTTL", &name]).await.number();
    assert!(left.is_some_and(|left| left > 0), "callbacks name the router: {left:?}");

    // Both are let in, and nobody else with what they have.
    enter(&vendors, &of_hanna).await.expect("a host's grant");
    assert_eq!(enter(&vendors, &of_ann).await.map(|may| may & SEND_AUDIO), Ok(0), "without a seat");
    let mut others = of_hanna.clone();
    others["userId"] = json!(id);
    assert_eq!(enter(&vendors, &others).await, Err("UserSig: of another".to_owned()));
    stage.ask("ann", "mic:up", json!({})).await;
    assert_eq!(
        enter(&vendors, &grant(&stage, "ann").await).await.map(|may| may & SEND_AUDIO),
        Ok(SEND_AUDIO)
    );

    let event = async |kind: u64, more: Value| {
        let mut info = json!({ "RoomId": room, "UserId": id, "EventMsTs": now_ms(&stage).await });
        info.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
        json!({ "eventType": kind, "info": info })
    };
    let mut heard = event(203, json!({})).await;
    heard["alter"] = json!(true);
    assert_eq!(calls_back(&stage, &vendors, "trtc/callback", &heard).await, 401);
    heard["alter"] = json!(false);
    assert_eq!(calls_back(&stage, &vendors, "trtc/callback", &heard).await, 200);
    hanna.until("ann is heard", |view| view.seat_of("ann")["state"] == "publishing").await;
    assert_eq!(stage.happened("confirmed").await[0]["by"], "media");

    owes_nothing(&stage).await;
    let blocked = async || vendors.rooms("trtc").await[room][id].as_u64();
    let before = blocked().await;
    stage.ask("hanna", "mic:mute", json!({ "user": "ann", "muted": true })).await;
    until("her audio is blocked", SOON, async || blocked().await != before).await;
    stage.ask("hanna", "mic:mute", json!({ "user": "ann", "muted": false })).await;
    until("it is not any more", SOON, async || blocked().await == before).await;

    stage.ask("hanna", "room:kick", json!({ "user": "ann" })).await;
    ann.told("room:kicked", |_| true).await;
    until("she is put out", SOON, async || blocked().await.is_none()).await;
    assert!(vendors.rooms("trtc").await[room].get(of_hanna["userId"].as_str().expect("a name")).is_some());
    stage.ask("hanna", "room:close", json!({})).await;
    has(&vendors, "trtc", json!({})).await;
    owes_nothing(&stage).await;
    assert!(stage.past().await.cell.router.is_none());
}

/// Privileges of Agora's tokens.
const AUDIO: u64 = 2;

fn may_speak(privileges: &Value) -> bool {
    privileges.as_array().expect("a list").contains(&json!(AUDIO))
}

/// Waits for another grant that lets somebody speak, or does not.
async fn told_that_may(stage: &Stage, vendors: &Vendors, conn: &str, speak: bool, from: u64) -> Value {
    let mut next = from;
    loop {
        let is_grant = |event: &Event| event.name == "media:update";
        let told = stage.driver.wait_event(conn, next, SOON, is_grant).await;
        next = told.index + 1;
        let grant = told.body["media"].clone();
        if may_speak(&join(vendors, &grant, false).await.expect("a good token")) == speak {
            return grant;
        }
    }
}

/// So many comparisons with the list are over.
async fn compared(stage: &Stage, times: f64) {
    let count = async || {
        let labels = [("what", "compared")];
        stage.cluster[0].metrics().await.sum("dais_reconciled_total", &labels)
    };
    let before = count().await;
    until("the room is compared with the list", SOON, async || count().await >= before + times).await;
}

#[tokio::test]
async fn agora_lets_in_by_number_a_seat_is_its_clients_word_and_stays_while_they_are_there() {
    let vendors = Vendors::start().await;
    let stage = agora(&vendors).await;
    let mut hanna = stage.enter("hanna", "host").await;
    let of_hanna = granted(&stage, "hanna").await;
    let ann = stage.enter("ann", "guest").await;
    let of_ann = grant(&stage, "ann").await;
    let (channel, uid) =
        (of_ann["channel"].as_str().expect("a channel"), of_ann["uid"].as_u64().expect("a number"));
    let number = uid.to_string();
    assert_eq!(of_hanna["channel"], channel);
    assert!(!may_speak(&join(&vendors, &of_ann, false).await.expect("a good token")));
    join(&vendors, &of_hanna, false).await.expect("a good token");
    let mut others = of_hanna.clone();
    others["uid"] = json!(uid);
    assert_eq!(join(&vendors, &others, false).await, Err("token: of another".to_owned()));

    // What changes is told with a new token, as nothing else takes effect there.
    let next = stage.driver.position("ann").await;
    let session = stage.ask("ann", "mic:up", json!({})).await["seat"]["micSession"].clone();
    let speaks = told_that_may(&stage, &vendors, "ann", true, next).await;
    join(&vendors, &speaks, true).await.expect("a token that lets her speak");
    let notice = async |kind: u64, id: &str, uid: &Value| {
        let payload = json!({ "channelName": channel, "uid": uid, "ts": now_ms(&stage).await / 1_000 });
        json!({ "eventType": kind, "noticeId": id, "payload": payload })
    };
    let mut came = notice(103, "n-1", &of_ann["uid"]).await;
    came["alter"] = json!(true);
    assert_eq!(calls_back(&stage, &vendors, "agora/notice", &came).await, 401);
    came["alter"] = json!(false);
    assert_eq!(calls_back(&stage, &vendors, "agora/notice", &came).await, 200);
    stage.ask("ann", "mic:confirm", json!({ "micSession": session })).await;
    hanna.until("ann is heard", |view| view.seat_of("ann")["state"] == "publishing").await;
    assert_eq!(stage.happened("confirmed").await[0]["by"], "client");

    // The list says that she is there, and nothing of her voice.
    compared(&stage, 3.0).await;
    // Nor does it cost her the seat that she is missing in it for a moment.
    let rule = json!({
        "appid": APP_ID, "cname": channel, "uid": uid, "time": 0, "privileges": ["join_channel"],
    });
    let put_out = async || {
        let url = format!("{}/dev/v1/kicking-rule", vendors.url());
        let right = STANDARD.encode(format!("{CUSTOMER_ID}:{CUSTOMER_SECRET}"));
        let headers = [("authorization", &*format!("Basic {right}"))];
        let answer = http::request("POST", &url, &headers, &rule.to_string()).await;
        assert_eq!(answer.expect("an answer").status, 200);
    };
    put_out().await;
    compared(&stage, 2.0).await;
    join(&vendors, &speaks, true).await.expect("she is back");
    compared(&stage, 2.0).await;
    assert_eq!(stage.snapshot(0).await["seats"][0]["state"], "publishing");
    assert!(stage.freed("ann").await.is_empty());

    // A host takes her microphone, and gives it back.
    for allowed in [false, true] {
        let next = stage.driver.position("ann").await;
        let state = json!({ "user": "ann", "state": { "micAllowed": allowed } });
        stage.ask("hanna", "guest:update", state).await;
        told_that_may(&stage, &vendors, "ann", allowed, next).await;
    }

    // Gone for good, by the list alone or by the vendor's word, which it gives in whole seconds.
    put_out().await;
    hanna.until("ann's seat is free", |view| view.seat_of("ann").is_null()).await;
    assert_eq!(stage.freed("ann").await, ["room_exited"]);
    join(&vendors, &speaks, true).await.expect("a token that lets her speak");
    stage.ask("hanna", "mic:up", json!({})).await;
    hanna.until("the host sits", |view| !view.seat_of("hanna").is_null()).await;
    let sat = now_ms(&stage).await / 1_000;
    // An exit that might be of before the seat is passed over.
    until("that is some seconds ago", SOON, async || now_ms(&stage).await / 1_000 > sat + 1).await;
    let left = notice(104, "n-2", &of_hanna["uid"]).await;
    assert_eq!(calls_back(&stage, &vendors, "agora/notice", &left).await, 200);
    hanna.until("the host's seat is free", |view| view.seat_of("hanna").is_null()).await;
    assert_eq!(stage.freed("hanna").await, ["room_exited"]);

    stage.ask("hanna", "room:kick", json!({ "user": "ann" })).await;
    ann.told("room:kicked", |_| true).await;
    let is_there = async || vendors.rooms("agora").await[channel].get(&number).is_some();
    until("she is put out", SOON, async || !is_there().await).await;
    // Her token is good still, and whoever the room does not know is put out again.
    join(&vendors, &speaks, true).await.expect("a token is not recalled");
    until("she is put out again", SOON, async || !is_there().await).await;
    stage.ask("hanna", "room:close", json!({})).await;
    has(&vendors, "agora", json!({})).await;
    owes_nothing(&stage).await;
    assert!(stage.past().await.cell.router.is_none());
}
