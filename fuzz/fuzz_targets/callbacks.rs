#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use media_bridge::{
    AgoraCallbacks, CallbackError, CallbackReader, CallbackRequest, GenericCallbacks, JanusCallbacks,
    LivekitCallbacks, MOST_EVENTS, TrtcCallbacks, VendorFact,
};
use sha2::{Digest as _, Sha256};

const SECRET: &str = "0123456789abcdef";
const NOW_S: u64 = 1_764_468_003;

fn mac(text: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key of any length");
    text.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The token that LiveKit sends with a body.
fn livekit(body: &[u8]) -> String {
    let digest = STANDARD.encode(Sha256::digest(body));
    let claims = format!(r#"{{"iss":"key","exp":{},"sha256":"{digest}"}}"#, NOW_S + 300);
    let signed =
        format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#), URL_SAFE_NO_PAD.encode(claims));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac(&[signed.as_bytes()])))
}

fn read(reader: &dyn CallbackReader, headers: &[(&'static str, String)], body: &[u8]) {
    let value = |text: &String| HeaderValue::from_str(text).expect("visible");
    let headers: HeaderMap =
        headers.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect();
    match reader.read(&CallbackRequest { headers: &headers, body, now_ms: NOW_S * 1_000 }) {
        Ok(callback) => {
            // Of Janus one event may say two things.
            assert!(callback.events.len() + callback.unknown <= 2 * MOST_EVENTS);
            for event in callback.events {
                assert!(!matches!(event.what, VendorFact::Level(level) if !(0.0..=1.0).contains(&level)));
            }
        }
        // TRTC and Agora say within the body when they sent it.
        Err(CallbackError::Unproved(reason)) => {
            assert!(matches!(reader.vendor(), "trtc" | "agora"), "{reason}");
        }
        Err(CallbackError::Malformed(reason)) => assert!(reason.len() < 1_000, "{reason}"),
    }
}

fuzz_target!(|body: &[u8]| {
    let now = NOW_S.to_string();
    let signature = format!("v1={}", hex(&mac(&[now.as_bytes(), b".", body])));
    read(&GenericCallbacks::new(SECRET), &[("dais-timestamp", now), ("dais-signature", signature)], body);
    let basic = format!("Basic {}", STANDARD.encode(format!("janus:{SECRET}")));
    read(&JanusCallbacks::new("janus", SECRET), &[("authorization", basic)], body);
    let keys = vec![("key".to_owned(), SECRET.to_owned())];
    read(&LivekitCallbacks { keys }, &[("authorization", livekit(body))], body);
    let key = SECRET.to_owned();
    read(&TrtcCallbacks { key }, &[("sign", STANDARD.encode(mac(&[body])))], body);
    let secret = SECRET.to_owned();
    read(&AgoraCallbacks { secret }, &[("agora-signature-v2", hex(&mac(&[body])))], body);
});
