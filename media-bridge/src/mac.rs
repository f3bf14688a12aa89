//! HMACs, as vendors sign with them.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use sha2::Sha256;

const ANY_KEY: &str = "HMAC takes a key of any length";

/// An HMAC-SHA256, to be finished or compared.
pub(crate) fn with_sha256(key: impl AsRef<[u8]>, text: impl AsRef<[u8]>) -> Hmac<Sha256> {
    Hmac::new_from_slice(key.as_ref()).expect(ANY_KEY).chain_update(text)
}

/// The same with SHA-1.
pub(crate) fn with_sha1(key: impl AsRef<[u8]>, text: impl AsRef<[u8]>) -> Hmac<Sha1> {
    Hmac::new_from_slice(key.as_ref()).expect(ANY_KEY).chain_update(text)
}

/// An HMAC-SHA256.
pub(crate) fn sha256(key: impl AsRef<[u8]>, text: impl AsRef<[u8]>) -> [u8; 32] {
    with_sha256(key, text).finalize().into_bytes().into()
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes that hexadecimal of either case stands for.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let half = |digit: u8| char::from(digit).to_digit(16).and_then(|half| u8::try_from(half).ok());
    let pairs = text.as_bytes().chunks_exact(2);
    pairs.remainder().is_empty().then_some(())?;
    pairs.map(|pair| Some(half(pair[0])? << 4 | half(pair[1])?)).collect()
}
