//! Names at the vendor: what a room and a peer are called at a media server that several apps may share.
//!
//! A name is a digest, so that it fits every vendor's limits and alphabet (32 bytes of lower-case letters and digits
//! suffice for all of them) and says nothing about who it stands for. It covers everything that must not meet: the
//! scope (one for each set of coordinators), the app, the room, the generation, the user and the device. Nobody can
//! compute the way back; whoever gives a name notes what it stands for, and refuses one that stands for something
//! else already.

use std::sync::Arc;

use crate::{Generation, MediaKind, PeerRef, RoomRef};

/// Characters of a name: 130 bits.
const LENGTH: usize = 26;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Names of monitors begin with what is in no other name, and their numbers here.
const MONITOR: char = '1';
const MONITORS: u32 = 0xF000_0000;

/// Gives the names of one scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    scope: Arc<str>,
}

impl Names {
    /// Names of a scope: coordinators of another one never give the same.
    pub fn new(scope: impl Into<Arc<str>>) -> Self {
        Self { scope: scope.into() }
    }

    /// The name of a room's router. `attempt` is 0, and grows while the name turns out to be another room's.
    #[must_use]
    pub fn router(&self, room: &RoomRef, generation: Generation, attempt: u32) -> Arc<str> {
        self.digest(&["router", &room.app, &room.room, &generation.0.to_string(), &attempt.to_string()])
    }

    /// The name of one device of a user in a room at media servers of a kind; the same in each of the room's routers.
    ///
    /// Where people are known by numbers only ([`MediaKind::numbers_people`]), it is one from 1 to 4026531839. Among
    /// fifty devices in a room, two get the same one in three rooms of ten million.
    #[must_use]
    pub fn participant(&self, kind: MediaKind, room: &RoomRef, peer: &PeerRef) -> Arc<str> {
        if kind.numbers_people() {
            return (self.number(room, peer) % MONITORS).max(1).to_string().into();
        }
        self.digest(&["participant", &room.app, &room.room, &peer.user, &peer.peer])
    }

    fn number(&self, room: &RoomRef, peer: &PeerRef) -> u32 {
        let hash = self.hash(&["participant number", &room.app, &room.room, &peer.user, &peer.peer]);
        let [a, b, c, d, ..] = *hash.as_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    fn hash(&self, parts: &[&str]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for part in std::iter::once(&*self.scope).chain(parts.iter().copied()) {
            // Lengths keep ("ab", "c") from being ("a", "bc").
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize()
    }

    fn digest(&self, parts: &[&str]) -> Arc<str> {
        letters(&self.hash(parts), LENGTH).into()
    }
}

fn letters(hash: &blake3::Hash, count: usize) -> String {
    let bytes = hash.as_bytes();
    let letter = |at: usize| {
        let (byte, shift) = (at * 5 / 8, 11 - at * 5 % 8);
        let pair = u16::from_be_bytes([bytes[byte], bytes[byte + 1]]);
        char::from(ALPHABET[usize::from(pair >> shift & 31)])
    };
    (0..count).map(letter).collect()
}

/// Names of those who listen at one media server without being in the room. Nobody else can make one up, where a media
/// server lets people choose their names.
#[derive(Clone)]
pub struct MonitorNames {
    kind: MediaKind,
    key: [u8; 32],
}

impl std::fmt::Debug for MonitorNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MonitorNames").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl MonitorNames {
    /// Names at a media server of this kind, proved by a secret that all coordinators share.
    #[must_use]
    pub fn new(kind: MediaKind, secret: &[u8]) -> Self {
        Self { kind, key: blake3::derive_key("dais 2026 names of monitors", secret) }
    }

    /// A name in a router; `nonce` is another one each time.
    #[must_use]
    pub fn name(&self, router: &str, nonce: &str) -> Arc<str> {
        let hash = blake3::hash(nonce.as_bytes());
        if self.kind.numbers_people() {
            let [a, b, c, d, ..] = *hash.as_bytes();
            // Tokens are for one number each: there is nothing to prove.
            return (MONITORS | u32::from_be_bytes([a, b, c, d])).to_string().into();
        }
        let nonce = letters(&hash, LENGTH / 2);
        format!("{MONITOR}{nonce}{}", self.proof(router, &nonce)).into()
    }

    /// Whether this is a name that a coordinator gave.
    #[must_use]
    pub fn is_one(&self, router: &str, name: &str) -> bool {
        if self.kind.numbers_people() {
            return name.parse::<u32>().is_ok_and(|number| number >= MONITORS);
        }
        let split = name.strip_prefix(MONITOR).and_then(|name| name.split_at_checked(LENGTH / 2));
        split.is_some_and(|(nonce, proof)| self.proof(router, nonce) == proof)
    }

    fn proof(&self, router: &str, nonce: &str) -> String {
        letters(&blake3::keyed_hash(&self.key, format!("{router}/{nonce}").as_bytes()), LENGTH / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_fit_every_vendor() {
        let names = Names::new("prod:main");
        let room = RoomRef::new("a".repeat(128), "\u{10348}".repeat(32));
        let router = names.router(&room, Generation(u64::MAX), 0);
        let participant =
            names.participant(MediaKind::Trtc, &room, &PeerRef::new("u".repeat(128), "p".repeat(128)));
        for name in [router, participant] {
            assert!(name.len() <= 32, "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{name}");
        }
    }

    #[test]
    fn what_must_not_meet_has_names_of_its_own() {
        let mut seen = HashSet::new();
        for scope in ["prod", "dev"] {
            let names = Names::new(scope);
            for (app, room) in [("a", "bc"), ("ab", "c"), ("a", "b"), ("b", "a")] {
                let room = RoomRef::new(app, room);
                for generation in [1, 2, 11] {
                    for attempt in [0, 1] {
                        assert!(seen.insert(names.router(&room, Generation(generation), attempt)));
                    }
                }
                for (user, peer) in [("ann", "1"), ("ann", "2"), ("an", "n1"), ("bob", "1")] {
                    let peer = PeerRef::new(user, peer);
                    assert!(seen.insert(names.participant(MediaKind::Generic, &room, &peer)));
                    let number = names.participant(MediaKind::Agora, &room, &peer);
                    assert!(number.parse::<u32>().is_ok_and(|number| number > 0), "{number}");
                    assert!(seen.insert(number));
                }
            }
        }
        let again = Names::new("prod").router(&RoomRef::new("a", "bc"), Generation(1), 0);
        assert!(seen.contains(&again), "and the same name each time");
    }

    #[test]
    fn nobody_makes_up_the_name_of_a_monitor() {
        for kind in [MediaKind::Janus, MediaKind::Agora] {
            let (ours, others) = (MonitorNames::new(kind, b"ours"), MonitorNames::new(kind, b"others"));
            let name = ours.name("router", "1");
            assert!(name.len() <= 32 && name != ours.name("router", "2"), "{name}");
            assert!(ours.is_one("router", &name));
            let participant =
                Names::new("s").participant(kind, &RoomRef::new("a", "r"), &PeerRef::new("u", "p"));
            assert!(!ours.is_one("router", &participant) && !ours.is_one("router", "1abc"));
            if !kind.numbers_people() {
                assert!(!ours.is_one("another", &name) && !others.is_one("router", &name));
            }
        }
    }
}
