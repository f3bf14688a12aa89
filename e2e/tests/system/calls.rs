//! Calls: they ring everywhere, the first answer counts, and what came later is told how things stand.

use e2e::wait::SOON;
use serde_json::{Value, json};
use std::time::Duration;

use crate::stage::{Person, ROOM, Stage};

/// The shortest time that a call may ring.
const RING_MS: u64 = 1_000;

/// A call that ann makes. Returns its id.
async fn rings(ann: &Person<'_>, to: &[&str]) -> Value {
    let call = ann.ask("call:invite", json!({ "to": to })).await["call"].clone();
    assert_eq!((&call["state"], &call["from"], &call["to"]), (&json!("started"), &json!("ann"), &json!(to)));
    assert!(call["deadline"].is_u64(), "{call}");
    call["id"].clone()
}

/// Waits until this connection hears of a call by an event for sessions, and returns the call.
async fn session_hears(stage: &Stage, conn: &str, name: &str, call: &Value) -> Value {
    let is_it = |event: &e2e::driver::Event| event.name == name && event.body["call"]["id"] == *call;
    let mut event = stage.driver.wait_event(conn, 0, SOON, is_it).await;
    assert_eq!(event.body["room"], ROOM);
    event.body["call"].take()
}

async fn state_seen(people: &mut [&mut Person<'_>], call: &Value, state: &str) {
    for person in people {
        person.until(state, |view| view.call["id"] == *call && view.call["state"] == state).await;
    }
}

/// A late word is refused with how the call stands, and changes nothing.
async fn stands(stage: &Stage, conn: &str, call: &Value, state: &str, events: &[&str]) {
    let before = stage.snapshot(0).await;
    assert_eq!((&before["call"]["id"], &before["call"]["state"]), (call, &json!(state)));
    for event in events {
        let ack = stage.refused(conn, event, json!({ "call": call }), "VERSION_CONFLICT").await;
        assert_eq!(ack["error"]["message"], format!("the call is {state}"), "{conn}: {event}");
    }
    let after = stage.snapshot(0).await;
    assert_eq!((&after["call"], &after["version"]), (&before["call"], &before["version"]));
}

#[tokio::test]
async fn i_19_the_first_answer_counts_and_every_session_of_who_is_called_hears_of_it() {
    let stage = Stage::start(3).await;
    let mut ann = stage.enter("ann", "guest").await;
    let mut bob = stage.enter("bob", "guest").await;
    let mut card = stage.watch("card", 1).await;
    // Bob also at another instance; cem at a third, and in no room at all.
    stage.connect("bob elsewhere", "bob", "guest", 1).await;
    stage.connect("cem", "cem", "guest", 2).await;
    let call = rings(&ann, &["bob", "cem"]).await;
    for conn in ["bob", "bob elsewhere", "cem"] {
        let rang = session_hears(&stage, conn, "call:incoming", &call).await;
        assert_eq!((&rang["state"], &rang["from"]), (&json!("started"), &json!("ann")), "{conn}");
    }
    let mut people = [&mut ann, &mut bob, &mut card];
    state_seen(&mut people, &call, "started").await;
    stage.refused("ann", "call:accept", json!({ "call": call }), "FORBIDDEN").await;
    stage.refused("bob", "call:invite", json!({ "to": ["ann"] }), "VERSION_CONFLICT").await;
    stage.refused("bob", "call:accept", json!({ "call": "another" }), "VERSION_CONFLICT").await;

    // Cem hears of it, comes, and is the first to answer.
    stage.enter("cem", "guest").await;
    let accepted = stage.ask("cem", "call:accept", json!({ "call": call })).await;
    assert_eq!(
        (&accepted["call"]["state"], &accepted["call"]["acceptedBy"]),
        (&json!("accepted"), &json!("cem"))
    );
    assert_eq!(accepted["call"]["deadline"], Value::Null, "{accepted}");
    state_seen(&mut people, &call, "accepted").await;
    for conn in ["bob", "bob elsewhere"] {
        let ended = session_hears(&stage, conn, "call:ended_elsewhere", &call).await;
        assert_eq!((&ended["state"], &ended["acceptedBy"]), (&json!("accepted"), &json!("cem")), "{conn}");
    }
    let again = stage.ask("cem", "call:accept", json!({})).await;
    assert_eq!(again["version"], accepted["version"], "to accept again changes nothing");
    stands(&stage, "bob", &call, "accepted", &["call:accept", "call:decline"]).await;
    stands(&stage, "cem", &call, "accepted", &["call:decline"]).await;
    stage.refused("bob", "call:hangup", json!({ "call": call }), "FORBIDDEN").await;
    stage.refused("bob", "call:invite", json!({ "to": ["ann"] }), "VERSION_CONFLICT").await;

    stage.ask("cem", "call:hangup", json!({ "call": call })).await;
    state_seen(&mut people, &call, "finished").await;
    stands(&stage, "ann", &call, "finished", &["call:hangup"]).await;
    stands(&stage, "bob", &call, "finished", &["call:accept", "call:decline", "call:hangup"]).await;
    let ended = stage.happened("call_ended").await;
    assert_eq!((ended.len(), &ended[0]["by"]), (1, &json!("cem")), "{ended:?}");
    stage.agree(&mut people).await;
}

#[tokio::test]
async fn a_call_is_declined_by_all_cancelled_or_cut() {
    let stage = Stage::start_with(2, |options| options.grace(Duration::from_millis(400))).await;
    let mut ann = stage.enter("ann", "guest").await;
    let mut bob = stage.enter("bob", "guest").await;
    stage.enter("cem", "guest").await;
    stage.connect("cem elsewhere", "cem", "guest", 1).await;
    let mut people = [&mut ann, &mut bob];

    // It rings on while somebody has not said no; hanging up says it too.
    let call =
        stage.ask("ann", "call:invite", json!({ "to": ["bob", "cem", "bob", "ann"] })).await["call"].clone();
    assert_eq!(call["to"], json!(["bob", "cem"]), "each once, and not who calls");
    let call = call["id"].clone();
    stage.ask("bob", "call:decline", json!({ "call": call })).await;
    stage.ask("bob", "call:decline", json!({ "call": call })).await;
    stage.all_see(&mut people, "bob has declined", |view| view.call["declinedBy"] == json!(["bob"])).await;
    assert_eq!(stage.snapshot(1).await["call"]["state"], "started");
    stage.ask("cem", "call:hangup", json!({ "call": call })).await;
    state_seen(&mut people, &call, "declined").await;
    session_hears(&stage, "cem elsewhere", "call:ended_elsewhere", &call).await;
    stands(&stage, "bob", &call, "declined", &["call:accept", "call:decline"]).await;

    // The caller thinks better of it.
    let call = rings(people[0], &["bob"]).await;
    stage.ask("ann", "call:hangup", json!({ "call": call })).await;
    state_seen(&mut people, &call, "missed").await;
    assert_eq!(people[1].view.call["reason"], "cancelled");
    let ended = session_hears(&stage, "bob", "call:ended_elsewhere", &call).await;
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("missed"), &json!("cancelled")));
    stands(&stage, "bob", &call, "missed", &["call:accept", "call:decline"]).await;

    // A party leaves, or does not come back.
    let call = rings(people[0], &["cem"]).await;
    stage.ask("cem", "call:accept", json!({})).await;
    stage.ask("cem", "room:leave", json!({})).await;
    state_seen(&mut people, &call, "disconnected").await;
    stands(&stage, "ann", &call, "disconnected", &["call:hangup"]).await;
    let call = rings(people[0], &["bob"]).await;
    stage.ask("bob", "call:accept", json!({})).await;
    state_seen(&mut people, &call, "accepted").await;
    stage.driver.abort("ann").await.expect("cut");
    let mut people = [&mut bob];
    state_seen(&mut people, &call, "disconnected").await;
    assert_eq!(people[0].view.call["reason"], "party_left");
    stage.agree(&mut people).await;
}

#[tokio::test]
async fn i_19_a_call_that_nobody_answers_in_time_is_missed_and_one_that_was_answered_never() {
    let stage = Stage::start_with(2, |options| {
        options.value("app", "ring_ms", RING_MS).value("app", "publish_deadline_ms", RING_MS + 300)
    })
    .await;
    let mut ann = stage.enter("ann", "guest").await;
    let mut bob = stage.enter("bob", "guest").await;
    let mut people = [&mut ann, &mut bob];
    let call = rings(people[0], &["bob"]).await;
    state_seen(&mut people, &call, "missed").await;
    assert_eq!(people[0].view.call["reason"], "timeout");
    stands(&stage, "bob", &call, "missed", &["call:accept", "call:decline", "call:hangup"]).await;
    let log = (stage.happened("call_started").await, stage.happened("call_ended").await);
    assert!(log.1[0]["at"].as_u64() >= log.0[0]["call"]["deadline"].as_u64(), "{log:?}");

    let call = rings(people[0], &["bob"]).await;
    stage.ask("bob", "call:accept", json!({ "call": call })).await;
    // A seat that nobody is heard on is freed later than the ringing would have ended.
    stage.ask("bob", "mic:up", json!({ "seat": 1 })).await;
    people[0].until("bob waits", |view| view.seat(1) == "pending_publish").await;
    people[0].until("and is not heard", |view| view.seat(1) == "idle").await;
    stands(&stage, "bob", &call, "accepted", &["call:decline"]).await;
    stage.ask("ann", "call:hangup", json!({})).await;
    state_seen(&mut people, &call, "finished").await;
    let ends: Vec<Value> =
        stage.happened("call_ended").await.iter().map(|end| end["state"].clone()).collect();
    assert_eq!(ends, ["missed", "finished"]);
    let refused = stage.cluster[0].metrics().await;
    assert!(
        refused.sum("dais_commands_total", &[("command", "call_decline"), ("result", "VERSION_CONFLICT")])
            >= 2.0
    );
    stage.agree(&mut people).await;
}
