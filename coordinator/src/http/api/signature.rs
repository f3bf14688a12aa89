//! The signature of a callback: HMAC-SHA256 over its time and its raw body, checked before anything is parsed.

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName};
use sha2::Sha256;

use super::input::only;
use crate::config::Secret;

/// When the sender signed, in Unix seconds.
pub(super) const TIMESTAMP: HeaderName = HeaderName::from_static("dais-timestamp");
/// Its signatures: `v1=` and hexadecimal digits, one for each secret that the receiver may have.
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("dais-signature");

/// How far the sender's time may be off, in seconds: also how long a repeat can be told by its id alone.
pub(super) const TOLERANCE_S: u64 = 300;
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

/// Checks the headers of a callback against its raw body, at the time `now_s`.
///
/// # Errors
///
/// The first thing that is wrong; nothing of the secret can be learnt from how long that took.
pub(super) fn verify(
    headers: &HeaderMap,
    body: &[u8],
    secret: &Secret,
    now_s: u64,
) -> Result<(), SignatureError> {
    let given = only(headers, &TIMESTAMP).ok().flatten().ok_or(SignatureError::Timestamp)?;
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
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).map_err(|_| SignatureError::Wrong)?;
    mac.update(given.as_bytes());
    mac.update(b".");
    mac.update(body);
    // Each is compared whole and in constant time, whichever fits.
    if said.iter().fold(false, |seen, one| mac.clone().verify_slice(one).is_ok() | seen) {
        Ok(())
    } else {
        Err(SignatureError::Wrong)
    }
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

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const BODY: &[u8] = br#"{"id":"e1","type":"audio_started","room":"r","user":"ann","at":1700000000000}"#;
    const NOW: u64 = 1_700_000_000;

    /// `v1=` and the signature of `body` at `at`.
    pub(in crate::http::api) fn sign(secret: &str, at: u64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(format!("{at}.").as_bytes());
        mac.update(body);
        let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("v1={hex}")
    }

    fn headers(at: &str, signatures: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TIMESTAMP, HeaderValue::from_str(at).unwrap());
        for signature in signatures {
            headers.append(SIGNATURE, HeaderValue::from_str(signature).unwrap());
        }
        headers
    }

    fn check(at: &str, signatures: &[&str], body: &[u8]) -> Result<(), SignatureError> {
        verify(&headers(at, signatures), body, &Secret::new(SECRET), NOW)
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
            verify(&headers, BODY, &Secret::new(SECRET), NOW)
        };
        assert_eq!(without(TIMESTAMP), Err(SignatureError::Timestamp));
        assert_eq!(without(SIGNATURE), Err(SignatureError::Missing));
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

    const VECTOR: &str = "v1=e96acc43df6c546261338e96ac9ad0ee61f430a70dcca69eae4be5fcf763c312";
}
