//! Bodies that nobody sends in good faith, each of them proved: whatever they hold, they are read or refused.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName};
use media_bridge::{
    AgoraCallbacks, Callback, CallbackError, CallbackReader, CallbackRequest, GenericCallbacks,
    JanusCallbacks, LivekitCallbacks, MOST_EVENTS, TrtcCallbacks,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const NOW_S: u64 = 1_764_468_003;
const NOW_MS: u64 = NOW_S * 1_000;

fn mac(text: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    text.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A vendor: its reader, how it proves a body, and a body in good faith.
struct Vendor {
    reader: Box<dyn CallbackReader>,
    prove: fn(&[u8]) -> Vec<(&'static str, String)>,
    good: Value,
}

fn generic(body: &[u8]) -> Vec<(&'static str, String)> {
    let now = NOW_S.to_string();
    let signature = format!("v1={}", hex(&mac(&[now.as_bytes(), b".", body])));
    vec![("dais-timestamp", now), ("dais-signature", signature)]
}

fn janus(_: &[u8]) -> Vec<(&'static str, String)> {
    vec![("authorization", format!("Basic {}", STANDARD.encode(format!("janus:{SECRET}"))))]
}

fn livekit(body: &[u8]) -> Vec<(&'static str, String)> {
    let digest = STANDARD.encode(Sha256::digest(body));
    let claims = json!({ "iss": "key", "exp": NOW_S + 300, "sha256": digest }).to_string();
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(mac(&[signed.as_bytes()]));
    vec![("authorization", format!("{signed}.{signature}"))]
}

fn trtc(body: &[u8]) -> Vec<(&'static str, String)> {
    vec![("sign", STANDARD.encode(mac(&[body])))]
}

fn agora(body: &[u8]) -> Vec<(&'static str, String)> {
    vec![("agora-signature-v2", hex(&mac(&[body])))]
}

fn vendors() -> Vec<Vendor> {
    let joined = json!({ "event": "joined", "room": "r", "id": "p", "setup": true, "muted": false });
    vec![
        Vendor {
            reader: Box::new(GenericCallbacks::new(SECRET)),
            prove: generic,
            good: json!({ "id": "e", "type": "audio_started", "room": "r", "user": "u", "at": NOW_MS }),
        },
        Vendor {
            reader: Box::new(JanusCallbacks::new("janus", SECRET)),
            prove: janus,
            good: json!({
                "type": 64, "timestamp": NOW_MS * 1_000, "session_id": 1, "handle_id": 2,
                "event": { "plugin": "janus.plugin.audiobridge", "data": joined },
            }),
        },
        Vendor {
            reader: Box::new(LivekitCallbacks { keys: vec![("key".to_owned(), SECRET.to_owned())] }),
            prove: livekit,
            good: json!({
                "event": "participant_joined", "id": "EV_1", "createdAt": NOW_S.to_string(),
                "room": { "sid": "RM_1", "name": "r" }, "participant": { "sid": "PA_1", "identity": "p" },
            }),
        },
        Vendor {
            reader: Box::new(TrtcCallbacks { key: SECRET.to_owned() }),
            prove: trtc,
            good: json!({
                "EventGroupId": 2, "EventType": 203, "CallbackTs": NOW_MS,
                "EventInfo": { "RoomId": "r", "UserId": "p", "EventTs": NOW_S, "EventMsTs": NOW_MS },
            }),
        },
        Vendor {
            reader: Box::new(AgoraCallbacks { secret: SECRET.to_owned() }),
            prove: agora,
            good: json!({
                "noticeId": "n", "productId": 1, "eventType": 103, "notifyMs": NOW_MS,
                "payload": { "channelName": "r", "account": "p", "uid": 1, "clientSeq": 1, "ts": NOW_S },
            }),
        },
    ]
}

impl Vendor {
    fn read(&self, body: &[u8]) -> Result<Callback, CallbackError> {
        let headers: HeaderMap = (self.prove)(body)
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let read = self.reader.read(&CallbackRequest { headers: &headers, body, now_ms: NOW_MS });
        if let Ok(callback) = &read {
            // Of Janus one event may say two things.
            assert!(callback.events.len() + callback.unknown <= 2 * MOST_EVENTS);
        }
        read
    }

    fn refuses(&self, body: &[u8]) -> bool {
        matches!(self.read(body), Err(CallbackError::Malformed(_)))
    }

    fn name(&self) -> &'static str {
        self.reader.vendor()
    }
}

#[test]
fn a_body_in_good_faith_is_read_and_no_part_of_it_is() {
    for vendor in vendors() {
        let good = vendor.good.to_string();
        let read = vendor.read(good.as_bytes()).unwrap();
        assert!(!read.events.is_empty() && read.unknown == 0, "{}: {read:?}", vendor.name());
        for end in 0..good.len() {
            assert!(vendor.refuses(&good.as_bytes()[..end]), "{}: {}", vendor.name(), &good[..end]);
        }
        assert!(vendor.refuses(format!("{good}x").as_bytes()), "{}", vendor.name());
    }
}

#[test]
fn a_deep_body_is_refused() {
    const DEPTH: usize = 100_000;
    for vendor in vendors() {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"{"event":"#, "}")] {
            let body = format!("{}1{}", open.repeat(DEPTH), close.repeat(DEPTH));
            assert!(vendor.refuses(body.as_bytes()), "{} {open}", vendor.name());
            assert!(vendor.refuses(open.repeat(DEPTH).as_bytes()), "{} {open}", vendor.name());
        }
    }
}

#[test]
fn a_large_body_is_read_or_refused() {
    const BYTES: usize = 1 << 20;
    for vendor in vendors() {
        let many = format!("[{}1]", "1,".repeat(BYTES / 2));
        assert!(vendor.refuses(many.as_bytes()), "{}", vendor.name());
        let good = vec![vendor.good.clone(); BYTES / vendor.good.to_string().len()];
        assert!(vendor.refuses(json!(good).to_string().as_bytes()), "{}", vendor.name());
        // What nobody asked for is passed over, however much it is.
        let mut padded = vendor.good.clone();
        padded["padding"] = json!("x".repeat(BYTES));
        assert!(vendor.read(padded.to_string().as_bytes()).is_ok(), "{}", vendor.name());
        let fields: serde_json::Map<_, _> = (0..BYTES / 16).map(|n| (format!("f{n}"), json!(n))).collect();
        padded["padding"] = Value::Object(fields);
        assert!(vendor.read(padded.to_string().as_bytes()).is_ok(), "{}", vendor.name());
    }
}

/// Values of any kind, with the names and words that readers look for among them.
fn value() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        "[a-z_]{1,12}",
        prop::sample::select(vec![
            "audio_started",
            "level",
            "joined",
            "destroyed",
            "participant_joined",
            "track_published",
            "talking",
            "janus.plugin.audiobridge",
            "janus.plugin.videoroom",
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    let key = prop_oneof![
        "[a-zA-Z_]{1,10}",
        prop::sample::select(vec![
            "id",
            "type",
            "room",
            "user",
            "at",
            "level",
            "event",
            "data",
            "plugin",
            "timestamp",
            "streams",
            "track",
            "participant",
            "createdAt",
            "name",
            "identity",
            "subtype",
            "opaque_id",
            "router",
            "audiobridge",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..256)) {
        for vendor in vendors() {
            let read = vendor.read(&body);
            prop_assert!(!matches!(read, Err(CallbackError::Unproved(_))), "{}: {read:?}", vendor.name());
        }
    }

    #[test]
    fn any_value_in_any_place_is_read_or_refused(replaced in value(), field in 0_usize..8, whole in value()) {
        for vendor in vendors() {
            _ = vendor.read(whole.to_string().as_bytes());
            let mut body = vendor.good.clone();
            let fields: Vec<String> = body.as_object().unwrap().keys().cloned().collect();
            body[&fields[field % fields.len()]] = replaced.clone();
            _ = vendor.read(body.to_string().as_bytes());
            _ = vendor.read(json!([body, replaced]).to_string().as_bytes());
        }
    }
}
