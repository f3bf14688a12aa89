//! Tokens of the app `demo`, good ones and bad ones.

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Map, Value, json};

/// The app that the coordinators under test serve.
pub const APP: &str = "demo";
/// The secret of that app.
pub const SECRET: &str = "a secret of the tests, of 32 bytes and more";

/// A token in the making; good unless told otherwise.
#[derive(Debug, Clone)]
pub struct Token {
    claims: Map<String, Value>,
    secret: String,
    header: Header,
}

impl Token {
    /// For a user of the app `demo`, good for an hour.
    pub fn new(user: &str, role: &str) -> Self {
        let claims = json!({ "app": APP, "sub": user, "role": role, "exp": get_current_timestamp() + 3600 });
        let Value::Object(claims) = claims else { unreachable!("an object was written") };
        Self { claims, secret: SECRET.to_owned(), header: Header::new(Algorithm::HS256) }
    }

    /// With another value of a claim; null leaves it out.
    #[must_use]
    pub fn claim(mut self, name: &str, value: impl Into<Value>) -> Self {
        match value.into() {
            Value::Null => self.claims.remove(name),
            value => self.claims.insert(name.to_owned(), value),
        };
        self
    }

    /// Limited to one room.
    #[must_use]
    pub fn room(self, room: &str) -> Self {
        self.claim("room", room)
    }

    /// Ended so many seconds ago.
    #[must_use]
    pub fn expired(self, seconds: u64) -> Self {
        self.claim("exp", get_current_timestamp() - seconds)
    }

    /// Good for so many seconds.
    #[must_use]
    pub fn expires_in(self, seconds: u64) -> Self {
        self.claim("exp", get_current_timestamp() + seconds)
    }

    /// Signed with another secret.
    #[must_use]
    pub fn secret(mut self, secret: &str) -> Self {
        secret.clone_into(&mut self.secret);
        self
    }

    /// With a key id in its header.
    #[must_use]
    pub fn key_id(mut self, kid: &str) -> Self {
        self.header.kid = Some(kid.to_owned());
        self
    }

    /// Signed with another algorithm of the HMAC family.
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.header.alg = algorithm;
        self
    }

    /// The token.
    pub fn sign(&self) -> String {
        let key = EncodingKey::from_secret(self.secret.as_bytes()).expect("a secret that is not empty");
        encode(&self.header, &self.claims, &key).expect("claims that can be signed")
    }

    /// The token with `alg: none` and no signature.
    pub fn unsigned(&self) -> String {
        const HEADER: &str = "eyJ0eXAiOiJKV1QiLCJhbGciOiJub25lIn0";
        let signed = self.sign();
        let claims = signed.split('.').nth(1).expect("three parts");
        format!("{HEADER}.{claims}.")
    }
}
