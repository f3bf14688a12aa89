//! Tokens that are taken and tokens that are refused. The fixtures are public keys, and tokens signed once by their
//! private halves, which are not kept; the time being handed in, they stay valid.

mod keys;
mod tokens;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::{Identity, TokenKey, Verifier};
use crate::config::Secret;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "x123456789abcdef0123456789abcdef";
const NOW_S: u64 = 1_800_000_000;

fn verifier(keys: Vec<TokenKey>) -> Verifier {
    Verifier { keys: [(key_prefix::AppCode::new("school").unwrap(), keys)].into() }
}

fn shared() -> Verifier {
    verifier(vec![TokenKey::hs256(None, &Secret::new(SECRET)).unwrap()])
}

fn sign(header: &Header, claims: &Value, secret: &str) -> String {
    encode(header, claims, &EncodingKey::from_secret(secret.as_bytes()).unwrap()).unwrap()
}

/// Least claims, with those of `more` laid over them; `null` takes one out.
fn claims(more: &Value) -> Value {
    let mut all = json!({ "app": "school", "sub": "ada", "exp": NOW_S + 60 });
    for (name, value) in more.as_object().unwrap() {
        all[name] = value.clone();
        if value.is_null() {
            all.as_object_mut().unwrap().remove(name);
        }
    }
    all
}

fn verify(more: &Value) -> Result<Identity, super::AuthError> {
    shared().verify(&sign(&Header::new(Algorithm::HS256), &claims(more), SECRET), NOW_S)
}
