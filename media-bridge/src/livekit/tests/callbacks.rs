use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::super::{LivekitCallbacks, jwt};
use super::{KEY, SECRET, with};
use crate::{
    Callback, CallbackError, CallbackReader as _, CallbackRequest, NamedPeer, NamedRoom, VendorEvent,
    VendorFact,
};

const NOW_S: u64 = 1_760_000_100;

/// Made with LiveKit's own rules, by another implementation of them.
const BODY: &str = concat!(
    r#"{"event":"track_published","room":{"sid":"RM_hycBMAjmt6Ub","name":"ward-7"},"#,
    r#""participant":{"sid":"PA_7Q2m9xYz","identity":"alice"},"track":{"sid":"TR_AMabc123","name":"mic","#,
    r#""source":"MICROPHONE","mimeType":"audio/opus"},"id":"EV_eugWmGhovZmm","createdAt":"1760000000"}"#
);
const TOKEN: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJkZXZrZXkiLCJuYmYiOjE3NjAwMDAwMDAsImV4cCI6MTc2MDAwMDMw",
    "MCwic2hhMjU2IjoiMXUvUWtGWEdablhaMlV4UVZJVmhua2hja3gyNkdZWkdWTUxDeWZtQm5lYz0ifQ.O-E26l3-9COl5BHwQONctS",
    "44tjUmeZFINHtCtc1mw2M",
);

fn reader() -> LivekitCallbacks {
    LivekitCallbacks { keys: vec![("other".into(), "thing".into()), (KEY.into(), SECRET.into())] }
}

fn read_at(now_s: u64, token: &str, body: &str) -> Result<Callback, CallbackError> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_str(token).unwrap());
    reader().read(&CallbackRequest { headers: &headers, body: body.as_bytes(), now_ms: now_s * 1_000 })
}

fn claims(body: &str) -> Value {
    let sha256 = STANDARD.encode(Sha256::digest(body));
    json!({ "iss": KEY, "nbf": NOW_S, "exp": NOW_S + 300, "sha256": sha256 })
}

/// What is read of a body that LiveKit signed.
fn read(body: &str) -> Result<Callback, CallbackError> {
    read_at(NOW_S, &jwt::sign(&claims(body), SECRET), body)
}

fn one(body: &Value) -> VendorEvent {
    let mut callback = read(&body.to_string()).unwrap();
    assert_eq!((callback.events.len(), callback.unknown), (1, 0), "{callback:?}");
    callback.events.remove(0)
}

fn unproved(why: &str) -> Result<Callback, CallbackError> {
    Err(CallbackError::Unproved(format!("authorization: {why}")))
}

#[test]
fn a_webhook_is_read() {
    let expected = VendorEvent {
        id: "EV_eugWmGhovZmm".into(),
        room: NamedRoom::Router("ward-7".into()),
        who: Some(NamedPeer::Participant("alice".into())),
        what: VendorFact::AudioStarted,
        incarnation: Some("PA_7Q2m9xYz".into()),
        sequence: None,
        at_ms: 1_760_000_000_000,
        resolution_ms: 1_000,
    };
    assert_eq!(read_at(NOW_S, TOKEN, BODY), Ok(Callback { events: vec![expected], unknown: 0 }));
    assert_eq!(reader().vendor(), "livekit");
}

#[test]
fn vectors_of_the_vendors_libraries_are_taken() {
    let body = concat!(
        r#"{"event":"room_started", "room":{"sid":"RM_TkVjUvAqgzKz", "name":"mytestroom", "#,
        r#""emptyTimeout":300, "creationTime":"1628545903", "#,
        r#""turnPassword":"ICkSr2rEeslkN6e9bXL4Ji5zzMD5Z7zzr6ulOaxMj6N", "#,
        r#""enabledCodecs":[{"mime":"audio/opus"}, {"mime":"video/VP8"}]}}"#
    );
    let claims =
        json!({ "iss": KEY, "exp": NOW_S, "sha256": "CoEQz1chqJ9bnZRcORddjplkvpjmPujmLTR42DbefYI=" });
    let unknown = Ok(Callback { events: vec![], unknown: 1 });
    assert_eq!(read_at(NOW_S, &jwt::sign(&claims, SECRET), body), unknown);

    let token = concat!(
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJuYW1lIjoibmFtZSIsInZpZGVvIjp7InJvb21Kb2luIjp0cnVlLCJyb29tI",
        "joibXktcm9vbSIsImNhblB1Ymxpc2giOnRydWUsImNhblN1YnNjcmliZSI6dHJ1ZSwiY2FuUHVibGlzaERhdGEiOnRydWV9LCJy",
        "b29tQ29uZmlnIjp7ImFnZW50cyI6W3siYWdlbnROYW1lIjoidGVzdC1hZ2VudCIsIm1ldGFkYXRhIjoidGVzdC1tZXRhZGF0YSJ",
        "9XX0sInN1YiI6ImlkZW50aXR5IiwiaXNzIjoibXlhcGlrZXkiLCJuYmYiOjE3NDE4Njk2NzksImV4cCI6NDEwMjQ0NDgwMH0.hmK",
        "ovgw6sDbQUFZxAQ9Xjb9-VUzeBw1A6URTXFuCLMU",
    );
    let keys = [("myapikey".to_owned(), "thiskeyistotallyunsafe".to_owned())];
    assert!(jwt::verify(token, &keys, NOW_S * 1_000).is_ok());
    // A token to join with proves no webhook.
    let callbacks = LivekitCallbacks { keys: keys.to_vec() };
    let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(token))]);
    let request = CallbackRequest { headers: &headers, body: BODY.as_bytes(), now_ms: NOW_S * 1_000 };
    assert_eq!(callbacks.read(&request), unproved("sha256"));
}

#[test]
fn what_is_not_signed_as_it_must_be_is_refused() {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let parts: Vec<&str> = TOKEN.split('.').collect();
    let [header, payload, signature] = parts[..] else { panic!("three parts") };
    let cases = [
        (String::new(), "form"),
        ("x".to_owned(), "form"),
        (format!("{header}.{payload}"), "form"),
        (format!("{TOKEN}.{signature}"), "claims"),
        (format!("{header}.{payload}."), "signature"),
        (format!("{header}.{payload}.{signature}A"), "signature"),
        (format!("{header}.{payload}.{signature}="), "signature"),
        (format!("{header}.{payload}.{}", signature.to_lowercase()), "signature"),
        (format!("{}.{payload}.{signature}", part(&json!({ "alg": "none" }))), "alg"),
        (format!("{}.{payload}.", part(&json!({ "alg": "none" }))), "alg"),
        (format!("{}.{payload}.{signature}", part(&json!({ "alg": "RS256" }))), "alg"),
        (format!("{}.{payload}.{signature}", part(&json!({ "alg": "HS256", "crit": ["b64"] }))), "alg"),
        (format!("{}.{payload}.{signature}", part(&json!({}))), "header"),
        (format!("{header}.{}.{signature}", part(&json!({ "iss": KEY }))), "claims"),
        (format!("Bearer {TOKEN}"), "header"),
        (jwt::sign(&claims(BODY), "another"), "signature"),
        (jwt::sign(&claims(BODY), "thing"), "signature"),
        (jwt::sign(&claims("{}"), SECRET), "sha256"),
    ];
    for (token, why) in cases {
        assert_eq!(read_at(NOW_S, &token, BODY), unproved(why), "{token}");
    }
    for flipped in 0..BODY.len() {
        let mut body = BODY.as_bytes().to_vec();
        body[flipped] ^= 1;
        let body = String::from_utf8(body).unwrap();
        assert_eq!(read_at(NOW_S, TOKEN, &body), unproved("sha256"), "byte {flipped}");
    }
    let with = |field: &str, value: Value| {
        let mut claims = claims(BODY);
        claims[field] = value;
        read_at(NOW_S, &jwt::sign(&claims, SECRET), BODY)
    };
    assert!(with("jti", json!("anything")).is_ok());
    for (field, value, why) in [
        ("iss", json!("nobody"), "iss"),
        ("iss", Value::Null, "claims"),
        ("exp", Value::Null, "claims"),
        ("exp", json!("1760000300"), "claims"),
        ("sha256", json!(""), "sha256"),
        ("sha256", json!(hex(BODY)), "sha256"),
    ] {
        assert_eq!(with(field, value.clone()), unproved(why), "{field}: {value}");
    }
}

fn hex(body: &str) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn clocks_may_be_a_minute_apart() {
    let token = |times: Value| {
        let mut claims = claims(BODY);
        for (name, time) in times.as_object().unwrap() {
            claims[name] = time.clone();
        }
        read_at(NOW_S, &jwt::sign(&claims, SECRET), BODY).map(drop)
    };
    let refused = |why| unproved(why).map(drop);
    assert_eq!(token(json!({ "nbf": null, "exp": NOW_S - 59 })), Ok(()));
    assert_eq!(token(json!({ "nbf": null, "exp": NOW_S - 61 })), refused("exp"));
    assert_eq!(token(json!({ "nbf": NOW_S + 59 })), Ok(()));
    assert_eq!(token(json!({ "nbf": NOW_S + 61 })), refused("nbf"));
    assert_eq!(token(json!({ "iat": NOW_S + 59 })), Ok(()));
    assert_eq!(token(json!({ "iat": NOW_S + 61 })), refused("iat"));
}

#[test]
fn a_token_comes_once_and_with_a_secret() {
    let read = |keys: &[(&str, &str)], tokens: &[&'static str]| {
        let keys = keys.iter().map(|(key, secret)| ((*key).to_owned(), (*secret).to_owned())).collect();
        let mut headers = HeaderMap::new();
        for token in tokens {
            headers.append(AUTHORIZATION, HeaderValue::from_static(token));
        }
        let request = CallbackRequest { headers: &headers, body: BODY.as_bytes(), now_ms: NOW_S * 1_000 };
        LivekitCallbacks { keys }.read(&request).map(drop)
    };
    assert_eq!(read(&[(KEY, SECRET)], &[TOKEN]), Ok(()));
    assert_eq!(read(&[(KEY, "newer"), (KEY, SECRET)], &[TOKEN]), Ok(()), "a secret that is being replaced");
    assert_eq!(read(&[(KEY, SECRET)], &[]), unproved("missing or twice").map(drop));
    assert_eq!(read(&[(KEY, SECRET)], &[TOKEN, TOKEN]), unproved("missing or twice").map(drop));
    assert_eq!(read(&[(KEY, "")], &[TOKEN]), unproved("iss").map(drop));
    assert_eq!(read(&[], &[TOKEN]), unproved("iss").map(drop));
}

fn webhook(event: &str) -> Value {
    json!({
        "event": event,
        "id": "EV_1",
        "createdAt": "1760000000",
        "room": { "sid": "RM_1", "name": "ward" },
        "participant": { "sid": "PA_1", "identity": "alice" },
    })
}

#[test]
fn events_are_brought_into_one_form() {
    use VendorFact::{AudioStarted, AudioStopped, ParticipantJoined, RoomExited, RoomFinished};
    let none = json!({});
    let track = |track: Value| json!({ "track": track });
    let cases = [
        ("participant_joined", none.clone(), Some(ParticipantJoined)),
        ("participant_left", none.clone(), Some(RoomExited)),
        ("room_finished", none.clone(), Some(RoomFinished)),
        ("track_published", track(json!({ "source": "MICROPHONE" })), Some(AudioStarted)),
        ("track_published", track(json!({ "type": "AUDIO" })), Some(AudioStarted)),
        ("track_published", track(Value::Null), Some(AudioStarted)),
        ("track_published", track(json!({ "muted": true })), None),
        ("track_published", track(json!({ "type": "VIDEO", "source": "CAMERA" })), None),
        ("track_published", track(json!({ "type": "HOLOGRAM" })), None),
        ("track_published", track(json!({ "source": "SCREEN_SHARE_AUDIO" })), None),
        ("track_published", track(json!({ "source": "BRAND_NEW_SOURCE" })), None),
        ("track_unpublished", none.clone(), Some(AudioStopped)),
        ("track_unpublished", track(json!({ "muted": true })), Some(AudioStopped)),
        ("track_unpublished", track(json!({ "type": "VIDEO" })), None),
        ("participant_connection_aborted", none.clone(), None),
        ("room_started", none.clone(), None),
        ("egress_started", none.clone(), None),
        ("brand_new_event", none.clone(), None),
    ];
    for (event, fields, expected) in cases {
        let body = with(webhook(event), &fields);
        let callback = read(&body.to_string()).unwrap();
        assert_eq!(callback.events.first().map(|event| event.what), expected, "{body}");
        assert_eq!(callback.events.len() + callback.unknown, 1, "{body}");
    }
    let finished = one(&webhook("room_finished"));
    assert_eq!((finished.who, finished.incarnation), (None, None));
}

#[test]
fn reasons_that_are_not_known_are_no_fault() {
    let leaves = |reason: Value| {
        let participant = json!({ "identity": "alice", "sid": "PA_1", "disconnectReason": reason });
        read(&with(webhook("participant_left"), &json!({ "participant": participant })).to_string()).unwrap()
    };
    for reason in [json!("CLIENT_INITIATED"), json!("BRAND_NEW_REASON"), json!(99), Value::Null] {
        assert_eq!(leaves(reason).events[0].what, VendorFact::RoomExited);
    }
    assert_eq!(leaves(json!("MIGRATION")).unknown, 1);
}

#[test]
fn both_spellings_of_fields_and_numbers_are_read() {
    for time in [json!("1760000000"), json!(1_760_000_000)] {
        assert_eq!(
            one(&with(webhook("participant_left"), &json!({ "createdAt": time }))).at_ms,
            1_760_000_000_000
        );
    }
    let mut body = webhook("participant_left");
    body["created_at"] = body.as_object_mut().unwrap().remove("createdAt").unwrap();
    body["participant"]["disconnect_reason"] = json!("SIGNAL_CLOSE");
    assert_eq!(one(&body).at_ms, 1_760_000_000_000);
}

#[test]
fn an_event_without_an_id_has_one_by_what_it_says() {
    let mut body = webhook("participant_joined");
    body.as_object_mut().unwrap().remove("id");
    let id = one(&body).id;
    assert_eq!((id.len(), one(&body).id == id), (64, true));
    body["participant"]["identity"] = json!("bob");
    assert_ne!(one(&body).id, id);
}

#[test]
fn what_is_proved_and_says_nothing_is_malformed() {
    let left = |fields: Value| with(webhook("participant_left"), &fields).to_string();
    for (body, what) in [
        ("[]".to_owned(), "body"),
        ("{".to_owned(), "body"),
        ("{}".to_owned(), "body"),
        (left(json!({ "createdAt": null })), "createdAt: missing"),
        (left(json!({ "createdAt": "noon" })), "body"),
        (left(json!({ "room": null })), "room.name: missing"),
        (left(json!({ "participant": { "sid": "PA_1" } })), "participant.identity: missing"),
    ] {
        let said = read(&body);
        let Err(CallbackError::Malformed(said)) = &said else { panic!("{body}: {said:?}") };
        assert!(said.starts_with(what), "{body}: {said}");
    }
}

/// `participant_joined` of the newer incarnation may come before `participant_left` of the older one.
#[test]
fn incarnations_tell_a_late_exit() {
    let of = |event: &str, sid: &str| {
        one(&with(webhook(event), &json!({ "participant": { "sid": sid, "identity": "alice" } })))
    };
    let (joined, left) = (of("participant_joined", "PA_new"), of("participant_left", "PA_old"));
    assert_eq!((joined.who == left.who, joined.at_ms == left.at_ms), (true, true));
    assert_ne!(joined.incarnation, left.incarnation);
}

/// What livekit-server 1.13.5 posted while Ann came, Bob came, Ann lost her permission to speak, came again under the
/// same name and thereby replaced herself, Bob was removed, Eve came to listen, and the room was closed.
#[test]
fn a_recorded_life_of_a_room_is_read() {
    use VendorFact::{AudioStarted, AudioStopped, ParticipantJoined, RoomExited, RoomFinished};
    #[derive(Deserialize)]
    struct Line {
        at_ms: u64,
        headers: HashMap<String, String>,
        body: String,
    }
    let recording = include_str!("../../../tests/fixtures/livekit/lifecycle.jsonl");
    let secret = "the secret of the test's LiveKit";
    let reader = LivekitCallbacks { keys: vec![(KEY.into(), secret.into())] };
    let mut told = Vec::new();
    for line in recording.lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        let headers: HeaderMap = (&line.headers).try_into().unwrap();
        let read = |body: &str, now_ms: u64| {
            reader.read(&CallbackRequest { headers: &headers, body: body.as_bytes(), now_ms })
        };
        assert_eq!(read(&format!("{} ", line.body), line.at_ms), unproved("sha256"));
        assert_eq!(read(&line.body, line.at_ms + 361_000), unproved("exp"));
        for event in read(&line.body, line.at_ms).unwrap().events {
            assert!(event.id.starts_with("EV_"), "{event:?}");
            assert_eq!(event.room, NamedRoom::Router("ward".into()));
            assert!(
                (event.at_ms..=event.at_ms + event.resolution_ms + 100).contains(&line.at_ms),
                "{event:?}"
            );
            told.push((event.who, event.incarnation, event.what));
        }
    }
    let ann = Some(("ann", "PA_KKWrX9gnRiiT"));
    let ann_again = Some(("ann", "PA_94ws2Vg3ybxb"));
    let bob = Some(("bob", "PA_FTZ8jxjnXXwu"));
    let eve = Some(("eve", "PA_LRv5LjbRt5nm"));
    let expected = [
        (ann, ParticipantJoined),
        (ann, AudioStarted),
        (bob, ParticipantJoined),
        (bob, AudioStarted),
        (ann, AudioStopped),
        (ann, RoomExited),
        (ann_again, ParticipantJoined),
        (ann_again, AudioStarted),
        (bob, AudioStopped),
        (bob, RoomExited),
        (eve, ParticipantJoined),
        (ann_again, AudioStopped),
        (ann_again, RoomExited),
        (eve, RoomExited),
        (None, RoomFinished),
    ];
    let expected = expected.map(|(who, what)| {
        let (name, sid) = who.unzip();
        (name.map(|name| NamedPeer::Participant(name.to_owned())), sid.map(Arc::from), what)
    });
    assert_eq!(told, expected);
}
