//! Signatures of both directions: HMAC-SHA256 over the time, what is asked, and the raw body.
//!
//! A callback's covers `timestamp "." body`; a request's covers `timestamp "\n" method "\n" path "\n" body`, so that
//! one without a body cannot be turned into another. Neither can be read as the other: what follows the digits
//! of the timestamp differs. A path holds no newline, so it is clear where each part ends.

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName};
use sha2::Sha256;

/// When the sender signed, in Unix seconds.
pub(super) const TIMESTAMP: HeaderName = HeaderName::from_static("dais-timestamp");
/// Its signatures: `v1=` and hexadecimal digits, one for each secret that the receiver may have.
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("dais-signature");

/// How far the sender's time may be off, in seconds: also how long a repeat can be told by its id alone.
const TOLERANCE_S: u64 = 300;
/// Signatures looked at: more than a rotation needs.
const MOST_SIGNATURES: usize = 8;
const DIGEST_BYTES: usize = 32;

/// Why a callback is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureError {
    /// No time, or none that can be read.
    #[error("`Dais-Timestamp` must be a time in Unix seconds")]
    Timestamp,
    /// Signed too long ago, or by a clock too far ahead.
    #[error("`Dais-Timestamp` is more than {TOLERANCE_S} s off")]
    Stale,
    /// No signature of a form that is known here.
    #[error("`Dais-Signature` must be `v1=` and 64 hexadecimal digits")]
    Missing,
    /// None of them fits.
    #[error("no signature is that of this body")]
    Wrong,
}

/// A shared secret, ready to sign.
#[derive(Clone)]
pub(super) struct Key(Hmac<Sha256>);

impl Key {
    pub(super) fn new(secret: &str) -> Option<Self> {
        Hmac::new_from_slice(secret.as_bytes()).ok().map(Self)
    }

    /// The signature of a request, as the header holds it. `path` is as it is sent.
    pub(super) fn of_request(&self, at_s: u64, method: &str, path: &str, body: &[u8]) -> String {
        use std::fmt::Write as _;
        let head = format!("{at_s}\n{method}\n{path}\n");
        let digest = self.0.clone().chain_update(head).chain_update(body).finalize().into_bytes();
        digest.iter().fold("v1=".to_owned(), |mut text, byte| {
            _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Checks the headers of a callback against its raw body, at the time `now_s`.
    ///
    /// # Errors
    /// The first thing that is wrong; nothing of the secret can be learnt from how long that took.
    pub(super) fn verify(&self, headers: &HeaderMap, body: &[u8], now_s: u64) -> Result<(), SignatureError> {
        let given = only(headers, &TIMESTAMP).ok_or(SignatureError::Timestamp)?;
        let is_number = !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_digit());
        let at: u64 = given.parse().ok().filter(|_| is_number).ok_or(SignatureError::Timestamp)?;
        if at.abs_diff(now_s) > TOLERANCE_S {
            return Err(SignatureError::Stale);
        }
        let said = headers.get_all(&SIGNATURE).iter().filter_map(|value| value.to_str().ok());
        let said =
            said.flat_map(|value| value.split([',', ' '])).filter_map(|one| digest(one.strip_prefix("v1=")?));
        let said: Vec<[u8; DIGEST_BYTES]> = said.take(MOST_SIGNATURES).collect();
        if said.is_empty() {
            return Err(SignatureError::Missing);
        }
        let mac = self.0.clone().chain_update(given).chain_update(b".").chain_update(body);
        // Each is compared whole and in constant time, whichever fits.
        if said.iter().fold(false, |seen, one| mac.clone().verify_slice(one).is_ok() | seen) {
            Ok(())
        } else {
            Err(SignatureError::Wrong)
        }
    }
}

/// A header that must stand once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut given = headers.get_all(name).iter();
    let value = given.next()?.to_str().ok()?;
    given.next().is_none().then_some(value)
}

fn digest(text: &str) -> Option<[u8; DIGEST_BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * DIGEST_BYTES {
        return None;
    }
    let mut digest = [0; DIGEST_BYTES];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(digest)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use http::HeaderValue;

    pub(in crate::generic) const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const BODY: &[u8] = br#"{"id":"e1","type":"audio_started","room":"r","user":"ann","at":1700000000000}"#;
    const NOW: u64 = 1_700_000_000;

    /// `v1=` and the signature of a callback with `body` at `at`.
    pub(in crate::generic) fn sign(secret: &str, at: u64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(format!("{at}.").as_bytes());
        mac.update(body);
        let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("v1={hex}")
    }

    fn key() -> Key {
        Key::new(SECRET).unwrap()
    }

    pub(in crate::generic) fn headers(at: &str, signatures: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TIMESTAMP, HeaderValue::from_str(at).unwrap());
        for signature in signatures {
            headers.append(SIGNATURE, HeaderValue::from_str(signature).unwrap());
        }
        headers
    }

    fn check(at: &str, signatures: &[&str], body: &[u8]) -> Result<(), SignatureError> {
        key().verify(&headers(at, signatures), body, NOW)
    }

    #[test]
    fn a_known_vector_is_believed() {
        // printf '%s' '1700000000.{…}' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
        assert_eq!(sign(SECRET, NOW, BODY), VECTOR);
        assert_eq!(check("1700000000", &[VECTOR], BODY), Ok(()));
        assert_eq!(check("1700000000", &[&VECTOR.to_uppercase().replace("V1", "v1")], BODY), Ok(()));
    }

    #[test]
    fn one_altered_byte_is_not() {
        let mut body = BODY.to_vec();
        for at in [0, BODY.len() / 2, BODY.len() - 1] {
            body[at] ^= 1;
            assert_eq!(check("1700000000", &[VECTOR], &body), Err(SignatureError::Wrong), "{at}");
            body[at] ^= 1;
        }
        assert_eq!(check("1700000001", &[VECTOR], BODY), Err(SignatureError::Wrong), "another time");
        let other = sign("another-secret-another-secret-00", NOW, BODY);
        assert_eq!(check("1700000000", &[&other], BODY), Err(SignatureError::Wrong));
    }

    #[test]
    fn a_time_too_far_off_is_not() {
        let at = |at: u64| check(&at.to_string(), &[&sign(SECRET, at, BODY)], BODY);
        assert_eq!((at(NOW - 300), at(NOW + 300)), (Ok(()), Ok(())));
        assert_eq!(at(NOW - 301), Err(SignatureError::Stale), "a replay");
        assert_eq!(at(NOW + 301), Err(SignatureError::Stale), "from the future");
        assert_eq!(at(u64::MAX), Err(SignatureError::Stale));
        assert_eq!(at(0), Err(SignatureError::Stale));
    }

    #[test]
    fn a_missing_or_malformed_header_is_named() {
        let without = |name| {
            let mut headers = headers("1700000000", &[VECTOR]);
            headers.remove(name);
            key().verify(&headers, BODY, NOW)
        };
        assert_eq!(without(TIMESTAMP), Err(SignatureError::Timestamp));
        assert_eq!(without(SIGNATURE), Err(SignatureError::Missing));
        let mut twice = headers("1700000000", &[VECTOR]);
        twice.append(TIMESTAMP, HeaderValue::from_static("1700000000"));
        assert_eq!(key().verify(&twice, BODY, NOW), Err(SignatureError::Timestamp), "given twice");
        for bad in ["", "now", "-1", "+1700000000", "1700000000.5", "1700000000 "] {
            assert_eq!(check(bad, &[VECTOR], BODY), Err(SignatureError::Timestamp), "{bad:?}");
        }
        for bad in [
            "",
            "v1=",
            "v2=00",
            &VECTOR[3..],
            &VECTOR[..66],
            &format!("{VECTOR}0"),
            &VECTOR.replace('a', "g"),
        ] {
            assert_eq!(check("1700000000", &[bad], BODY), Err(SignatureError::Missing), "{bad}");
        }
    }

    #[test]
    fn during_a_rotation_any_of_several_signatures_will_do() {
        let other = sign("another-secret-another-secret-00", NOW, BODY);
        for together in [format!("{other},{VECTOR}"), format!("{other}, {VECTOR}"), format!("v9=x {VECTOR}")]
        {
            assert_eq!(check("1700000000", &[&together], BODY), Ok(()), "{together}");
        }
        assert_eq!(check("1700000000", &[&other, VECTOR], BODY), Ok(()), "in headers of their own");
        assert_eq!(check("1700000000", &[&other, &other], BODY), Err(SignatureError::Wrong));
    }

    #[test]
    fn a_request_is_signed_with_its_method_and_path() {
        // printf '1700000000\nPUT\n/v1/routers/abc\n{"generation":3}' | openssl dgst -sha256 -hmac 0123…
        let sign = |method, path, body: &[u8]| key().of_request(NOW, method, path, body);
        assert_eq!(sign("PUT", "/v1/routers/abc", br#"{"generation":3}"#), REQUEST_VECTOR);
        let bare = sign("DELETE", "/routers/a", b"");
        for other in [sign("GET", "/routers/a", b""), sign("DELETE", "/routers/b", b"")] {
            assert_ne!(bare, other);
        }
        let moved = sign("DELETE", "/routers", b"/a");
        assert_ne!(bare, moved);
        let as_callback = headers("1700000000", &[REQUEST_VECTOR]);
        let signed = b"PUT\n/v1/routers/abc\n{\"generation\":3}";
        assert_eq!(key().verify(&as_callback, signed, NOW), Err(SignatureError::Wrong));
    }

    const VECTOR: &str = "v1=e96acc43df6c546261338e96ac9ad0ee61f430a70dcca69eae4be5fcf763c312";
    const REQUEST_VECTOR: &str = "v1=13758c2ad4283381e78e655e17b6be01e4de2ba60e81d507f4cb26e4ad52a8b3";
}
