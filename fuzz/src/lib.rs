//! What the targets of callbacks share: each body is proved as its vendor would prove it, so that what is fuzzed is
//! what comes behind the proof.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName, HeaderValue};
use media_bridge::{
    AgoraCallbacks, CallbackError, CallbackReader, CallbackRequest, GenericCallbacks, JanusCallbacks,
    LivekitCallbacks, MOST_EVENTS, TrtcCallbacks, VendorFact,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

const SECRET: &str = "0123456789abcdef";
const NOW_S: u64 = 1_764_468_003;
const NOW_MS: u64 = NOW_S * 1_000;

/// A callback of an app's own media server.
pub fn generic(body: &[u8]) {
    let now = NOW_S.to_string();
    let signature = format!("v1={}", hex(&mac(&[now.as_bytes(), b".", body])));
    let headers = [("dais-timestamp", now), ("dais-signature", signature)];
    read(&GenericCallbacks::new(SECRET), &headers, body, NOW_MS);
}

/// What Janus's event handlers post.
pub fn janus(body: &[u8]) {
    let basic = format!("Basic {}", STANDARD.encode(format!("janus:{SECRET}")));
    read(&JanusCallbacks::new("janus", SECRET), &[("authorization", basic)], body, NOW_MS);
}

/// A webhook of LiveKit.
pub fn livekit(body: &[u8]) {
    let digest = STANDARD.encode(Sha256::digest(body));
    let claims = format!(r#"{{"iss":"key","exp":{},"sha256":"{digest}"}}"#, NOW_S + 300);
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac(&[signed.as_bytes()])));
    let keys = vec![("key".to_owned(), SECRET.to_owned())];
    read(&LivekitCallbacks { keys }, &[("authorization", token)], body, NOW_MS);
}

/// A callback of TRTC.
pub fn trtc(body: &[u8]) {
    let sign = STANDARD.encode(mac(&[body]));
    read(&TrtcCallbacks { key: SECRET.to_owned() }, &[("sign", sign)], body, sent(body, "CallbackTs"));
}

/// A notification of Agora.
pub fn agora(body: &[u8]) {
    let signature = hex(&mac(&[body]));
    let reader = AgoraCallbacks { secret: SECRET.to_owned() };
    read(&reader, &[("agora-signature-v2", signature)], body, sent(body, "notifyMs"));
}

fn mac(text: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key of any length");
    text.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// When a body says that it was sent: it is read at that time, or a fuzzer would seldom come past its age.
fn sent(body: &[u8], field: &str) -> u64 {
    let body: Option<Value> = serde_json::from_slice(body).ok();
    body.and_then(|body| body[field].as_u64()).unwrap_or(NOW_MS)
}

fn read(reader: &dyn CallbackReader, headers: &[(&'static str, String)], body: &[u8], now_ms: u64) {
    let value = |text: &String| HeaderValue::from_str(text).expect("visible");
    let headers: HeaderMap =
        headers.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect();
    match reader.read(&CallbackRequest { headers: &headers, body, now_ms }) {
        Ok(callback) => {
            // Of Janus one event may say two things.
            assert!(callback.events.len() + callback.unknown <= 2 * MOST_EVENTS);
            for event in callback.events {
                assert!(!matches!(event.what, VendorFact::Level(level) if !(0.0..=1.0).contains(&level)));
            }
        }
        // A reader may find the time where `sent` does not, such as in a list.
        Err(CallbackError::Unproved(reason)) => {
            assert!(matches!(reader.vendor(), "trtc" | "agora"), "{reason}");
        }
        Err(CallbackError::Malformed(reason)) => assert!(reason.len() < 1_000, "{reason}"),
    }
}
