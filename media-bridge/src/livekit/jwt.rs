//! JSON Web Tokens as LiveKit has them: HS256 and nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// How far the clocks of two machines may be apart.
const LEEWAY_S: f64 = 60.0;
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// What every token that is taken must say.
#[derive(Deserialize)]
pub(super) struct Claims {
    /// The API key that it is signed with.
    iss: String,
    exp: f64,
    nbf: Option<f64>,
    iat: Option<f64>,
    /// The digest of the body that comes with it, in base64.
    #[serde(default)]
    pub(super) sha256: String,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    /// Extensions that must be understood; none are.
    crit: Option<serde::de::IgnoredAny>,
}

/// A token of these claims.
pub(super) fn sign(claims: &impl Serialize, secret: &str) -> String {
    let claims = serde_json::to_vec(claims).expect("claims are maps with string keys");
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(mac(secret, &signed).finalize().into_bytes());
    format!("{signed}.{signature}")
}

/// The claims of a token that was signed with one of these keys and their secrets, and is valid now.
///
/// # Errors
/// Names the part of the token that refutes it.
pub(super) fn verify(token: &str, keys: &[(String, String)], now_ms: u64) -> Result<Claims, &'static str> {
    let (signed, signature) = token.rsplit_once('.').ok_or("form")?;
    let (header, claims) = signed.split_once('.').ok_or("form")?;
    let header: Header = decode(header).ok_or("header")?;
    if header.alg != "HS256" || header.crit.is_some() {
        return Err("alg");
    }
    let claims: Claims = decode(claims).ok_or("claims")?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "signature")?;
    let mut secrets = keys
        .iter()
        .filter(|(key, secret)| *key == claims.iss && !secret.is_empty())
        .map(|(_, secret)| secret)
        .peekable();
    secrets.peek().ok_or("iss")?;
    // A key may have two secrets for as long as one takes the place of the other.
    if !secrets.any(|secret| mac(secret, signed).verify_slice(&signature).is_ok()) {
        return Err("signature");
    }
    let now_s = now_ms as f64 / 1_000.0;
    let is_ahead = |time: Option<f64>| time.is_some_and(|time| now_s < time - LEEWAY_S);
    if now_s >= claims.exp + LEEWAY_S {
        return Err("exp");
    }
    if is_ahead(claims.nbf) {
        return Err("nbf");
    }
    if is_ahead(claims.iat) {
        return Err("iat");
    }
    Ok(claims)
}

fn mac(secret: &str, signed: &str) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.chain_update(signed)
}

fn decode<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}
