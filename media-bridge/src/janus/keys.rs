//! Secrets and tokens, each derived from one key: whichever coordinator asks, they come out the same, and none is
//! stored.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use sha2::Sha256;

use super::JanusPlugin;
use crate::{ClockMs, MediaError};

/// Begins the name under which a coordinator looks into a video room. Names of members have no `-`.
pub(super) const OBSERVER: &str = "dais-";

/// Gives what belongs to a room and to a participant of it.
#[derive(Clone)]
pub(super) struct Keys {
    mac: Hmac<Sha256>,
}

impl Keys {
    pub(super) fn new(key: &[u8]) -> Result<Self, MediaError> {
        if key.is_empty() {
            return Err(MediaError::Refused { reason: "the key of the rooms' secrets is empty".to_owned() });
        }
        let mac = Hmac::new_from_slice(key)
            .map_err(|_| MediaError::Refused { reason: "no key for the rooms' secrets".to_owned() })?;
        Ok(Self { mac })
    }

    /// Lets its holder change the room.
    pub(super) fn room_secret(&self, room: &str) -> String {
        self.derive(&["room secret", room])
    }

    /// The coordinators' own token; a room whose list of tokens were empty would let anybody in.
    pub(super) fn own_token(&self, room: &str) -> String {
        self.derive(&["own token", room])
    }

    /// Lets a participant join.
    pub(super) fn token(&self, room: &str, participant: &str) -> String {
        self.derive(&["token", room, participant])
    }

    /// The name of a coordinator that looks into a room by this handle; nobody else can make one.
    pub(super) fn observer(&self, room: &str, handle: u64) -> String {
        format!("{OBSERVER}{handle}-{}", self.derive(&["observer", room, &handle.to_string()]))
    }

    pub(super) fn is_observer(&self, room: &str, name: &str) -> bool {
        let handle = name.strip_prefix(OBSERVER).and_then(|rest| rest.split_once('-'));
        handle
            .and_then(|(handle, _)| handle.parse().ok())
            .is_some_and(|handle| name == self.observer(room, handle))
    }

    fn derive(&self, parts: &[&str]) -> String {
        let mut mac = self.mac.clone();
        for part in parts {
            // Lengths keep ("ab", "c") from being ("a", "bc").
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }
}

/// How clients are let into the Janus API itself, for a server with `token_auth_secret`.
#[derive(Clone)]
pub struct ApiTokens {
    /// The server's `token_auth_secret`.
    pub secret: String,
    /// How long a token opens new sessions.
    pub ttl: Duration,
    /// The time.
    pub clock: ClockMs,
}

impl fmt::Debug for ApiTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiTokens").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

impl ApiTokens {
    /// A signed token for one plugin.
    pub(super) fn token(&self, plugin: JanusPlugin) -> Result<String, MediaError> {
        let now = Duration::from_millis(u64::try_from((self.clock)()).unwrap_or(0));
        let head = format!("{},janus,{}", now.saturating_add(self.ttl).as_secs(), plugin.package());
        let mut mac = Hmac::<Sha1>::new_from_slice(self.secret.as_bytes())
            .map_err(|_| MediaError::Refused { reason: "no key for tokens".to_owned() })?;
        mac.update(head.as_bytes());
        Ok(format!("{head}:{}", STANDARD.encode(mac.finalize().into_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Arc;

    #[test]
    fn each_has_its_own_and_the_same_key_gives_the_same() {
        let keys = Keys::new(b"key").unwrap();
        let mut seen = HashSet::new();
        for room in ["ab", "a"] {
            assert!(seen.insert(keys.room_secret(room)));
            assert!(seen.insert(keys.own_token(room)));
            for participant in ["c", "bc", ""] {
                assert!(seen.insert(keys.token(room, participant)));
            }
        }
        assert_eq!(keys.token("a", "bc"), Keys::new(b"key").unwrap().token("a", "bc"));
        assert!(seen.insert(Keys::new(b"another").unwrap().token("a", "bc")));
        assert!(Keys::new(b"").is_err());
    }

    #[test]
    fn nobody_else_is_an_observer() {
        let keys = Keys::new(b"key").unwrap();
        let name = keys.observer("room", 17);
        assert!(keys.is_observer("room", &name));
        assert!(!keys.is_observer("other", &name));
        assert!(!keys.is_observer("room", &name.replace("17", "18")));
        for name in ["dais-", "dais-17", "dais-17-", "abcdefghijklmnopqrstuvwxyz", ""] {
            assert!(!keys.is_observer("room", name));
        }
    }

    #[test]
    fn a_signed_token_is_one_that_janus_takes() {
        let clock: ClockMs = Arc::new(|| 1_799_996_400_999);
        let tokens = ApiTokens { secret: "tksecret".to_owned(), ttl: Duration::from_secs(3600), clock };
        let token = tokens.token(JanusPlugin::VideoRoom).unwrap();
        assert_eq!(token, "1800000000,janus,janus.plugin.videoroom:Fec8+8HdS5ow9bnQ20V3kzCFjcQ=");
        assert!(!format!("{tokens:?}").contains("tksecret"));
    }
}
