//! Signatures of callbacks: what a media server of an app's own sends with each.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// `Dais-Signature` of `body`, sent at `timestamp` (Unix seconds, as `Dais-Timestamp` says them).
pub fn sign(secret: &str, timestamp: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
    mac.update(format!("{timestamp}.{body}").as_bytes());
    let digits: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v1={digits}")
}
