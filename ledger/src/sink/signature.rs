//! Signatures of webhooks, by Standard Webhooks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

const PREFIX: &str = "whsec_";
/// Bytes of a key: what the specification wants.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A key that receivers know too.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

/// Why a text is no secret. It never holds the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It does not begin as secrets do.
    #[error("a secret begins with `whsec_`")]
    Prefix,
    /// What follows is no base64.
    #[error("a secret is base64 after `whsec_`")]
    Base64,
    /// It has too few bytes, or too many.
    #[error("a secret has 24 to 64 bytes, this one has {0}")]
    Length(usize),
}

impl Secret {
    /// Reads `whsec_…`.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
        let key = STANDARD.decode(encoded).map_err(|_| SecretError::Base64)?;
        if !BYTES.contains(&key.len()) {
            return Err(SecretError::Length(key.len()));
        }
        Hmac::new_from_slice(&key).map(Self).map_err(|_| SecretError::Length(key.len()))
    }

    fn sign(&self, id: &str, timestamp: u64, body: &str) -> String {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_…")
    }
}

/// `webhook-signature`: one for each secret, so that receivers can change from one to the next at leisure.
pub(super) fn signatures(secrets: &[Secret], id: &str, timestamp: u64, body: &str) -> String {
    let all: Vec<String> = secrets.iter().map(|secret| secret.sign(id, timestamp, body)).collect();
    all.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with another implementation of HMAC-SHA256.
    #[test]
    fn a_signature_is_what_others_make_of_it() {
        let secret = Secret::parse("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz").expect("24 bytes");
        assert_eq!(
            signatures(std::slice::from_ref(&secret), "msg_1", 1_764_504_000, r#"{"test":1}"#),
            "v1,z3txqkPLjFjJQnH2D/G+devTP6VFKyB9TsdERZWGE20="
        );
        let two = signatures(&[secret.clone(), secret], "msg_1", 1, "");
        assert_eq!(two.split(' ').count(), 2);
    }

    #[test]
    fn what_is_no_secret_is_refused_and_none_is_shown() {
        let refused = |text: &str| Secret::parse(text).map(drop).unwrap_err();
        assert_eq!(refused("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"), SecretError::Prefix);
        assert_eq!(refused("whsec_not base64"), SecretError::Base64);
        assert_eq!(refused("whsec_MDEyMzQ1Njc4OTAxMjM0"), SecretError::Length(15));
        let secret = Secret::parse("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz").expect("24 bytes");
        assert_eq!(format!("{secret:?}"), "whsec_…");
    }
}
