//! Values that must not be seen.

use std::fmt;

/// A text that no log line, error or debug output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The text itself. Every call site is a place where the secret may leak.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The API keys of an app, kept only as BLAKE3 digests.
///
/// A plain fast hash is enough because the keys are long random texts, not passwords; length is checked
/// when the configuration is read.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ApiKeys(Vec<blake3::Hash>);

impl ApiKeys {
    /// Shortest key accepted, in bytes.
    pub const MIN_BYTES: usize = 24;

    /// Hashes the keys.
    pub fn from_plain<'k>(keys: impl IntoIterator<Item = &'k Secret>) -> Self {
        ApiKeys(keys.into_iter().map(|key| blake3::hash(key.expose().as_bytes())).collect())
    }

    /// Whether the presented text is one of the keys; compares all of them in constant time.
    pub fn matches(&self, presented: &str) -> bool {
        let digest = blake3::hash(presented.as_bytes());
        self.0.iter().fold(false, |seen, key| (*key == digest) | seen)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({})", self.0.len())
    }
}
