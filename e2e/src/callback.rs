//! Signatures of callbacks: what a media server of an app's own sends with each.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::coordinator::CoordinatorOptions;

/// An app that all vendors may speak to: the short secrets are `password`, the others `secret`.
#[must_use]
pub fn believes(options: CoordinatorOptions, secret: &str, password: &str) -> CoordinatorOptions {
    options
        .text("app", "callbacks.generic.secret", secret)
        .text("app", "callbacks.janus.username", "janus")
        .text("app", "callbacks.janus.password", password)
        .text("app", "callbacks.livekit.api_key", "key")
        .text("app", "callbacks.livekit.api_secret", secret)
        .text("app", "callbacks.trtc.key", password)
        .text("app", "callbacks.agora.secret", secret)
}

/// `Dais-Signature` of `body`, sent at `timestamp` (Unix seconds, as `Dais-Timestamp` says them).
pub fn sign(secret: &str, timestamp: &str, body: &str) -> String {
    let digest = mac(secret, &format!("{timestamp}.{body}"));
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v1={digits}")
}

/// HMAC-SHA256, which most vendors sign with.
pub fn mac(secret: &str, text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}
