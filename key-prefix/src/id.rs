//! The ids that names are made of. Each is checked once, where it enters.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest id in bytes.
const MAX_BYTES: usize = 128;
/// Longest instance name in bytes: it is also a path segment and, in Kubernetes, a host name.
const MAX_NAME_BYTES: usize = 63;
/// Longest name of a router at a vendor, in bytes: what every vendor takes.
const MAX_ROUTER_BYTES: usize = 32;

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing in it.
    #[error("{what} is empty")]
    Empty {
        /// Which id.
        what: &'static str,
    },
    /// More bytes than allowed.
    #[error("{what} has {bytes} bytes, at most {max} are allowed")]
    TooLong {
        /// Which id.
        what: &'static str,
        /// Length found.
        bytes: usize,
        /// Length allowed.
        max: usize,
    },
    /// A character that may not be in it.
    #[error("{what} holds the character {found:?} at byte {at}, which is not allowed")]
    Character {
        /// Which id.
        what: &'static str,
        /// The character.
        found: char,
        /// Its byte position.
        at: usize,
    },
    /// Not of the form `name/incarnation`.
    #[error("not an instance: expected `name/incarnation`")]
    NotAnInstance,
}

fn check(what: &'static str, text: &str, max: usize, allowed: fn(char) -> bool) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { what });
    }
    if text.len() > max {
        return Err(IdError::TooLong { what, bytes: text.len(), max });
    }
    match text.char_indices().find(|(_, c)| !allowed(*c)) {
        Some((at, found)) => Err(IdError::Character { what, found, at }),
        None => Ok(()),
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and keeps a copy of it.
            pub fn new(text: &str) -> Result<Self, IdError> {
                check($what, text, $max, $allowed)?;
                Ok(Self(text.into()))
            }

            /// The id as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The shared text, for those who keep it without this type.
            pub fn shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = IdError;
            fn try_from(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

fn no_control(c: char) -> bool {
    !c.is_control()
}

fn router_character(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

id!(
    /// A tenant. 1–128 bytes without control characters.
    AppCode, "app", MAX_BYTES, no_control
);
id!(
    /// A room within its app. 1–128 bytes without control characters.
    RoomId, "room", MAX_BYTES, no_control
);
id!(
    /// A user within an app. 1–128 bytes without control characters.
    UserId, "user", MAX_BYTES, no_control
);
id!(
    /// The name of a coordinator process: ASCII letters, digits, `-`, `_`, `.`, at most 63 of them.
    InstanceName, "instance", MAX_NAME_BYTES, name_character
);
id!(
    /// The name of a room's router at a media server: lower-case ASCII letters and digits, at most 32 of them.
    RouterName, "router", MAX_ROUTER_BYTES, router_character
);

/// A room of an app. Its route key is `app + "\0" + room`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoomKey {
    route: Arc<str>,
    app_len: usize,
}

impl RoomKey {
    /// The room `room` of `app`.
    #[expect(clippy::needless_pass_by_value, reason = "the ids end here: the route holds both")]
    pub fn new(app: AppCode, room: RoomId) -> Self {
        Self { route: format!("{app}\0{room}").into(), app_len: app.as_str().len() }
    }

    /// Splits a route key that came back from Redis.
    pub fn from_route(route: &str) -> Result<Self, IdError> {
        let (app, room) = route.split_once('\0').ok_or(IdError::Empty { what: "room" })?;
        Ok(Self::new(AppCode::new(app)?, RoomId::new(room)?))
    }

    /// `app + "\0" + room`.
    pub fn route(&self) -> &str {
        &self.route
    }

    /// The app's code.
    pub fn app(&self) -> &str {
        &self.route[..self.app_len]
    }

    /// The room's id within its app.
    pub fn room(&self) -> &str {
        &self.route[self.app_len + 1..]
    }
}

impl fmt::Display for RoomKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app(), self.room())
    }
}

impl fmt::Debug for RoomKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One start of an instance: new at every start, and larger than all before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Incarnation(u64);

impl Incarnation {
    /// The incarnation with this number, as `register` gave it.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `name/incarnation`: the holder of leases. A restarted process is another one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instance {
    text: Arc<str>,
    name_len: usize,
    incarnation: Incarnation,
}

impl Instance {
    /// The incarnation of the instance of this name.
    #[expect(clippy::needless_pass_by_value, reason = "the name ends here: the text holds it")]
    pub fn new(name: InstanceName, incarnation: Incarnation) -> Self {
        Self { text: format!("{name}/{incarnation}").into(), name_len: name.as_str().len(), incarnation }
    }

    /// Its name, which survives restarts.
    pub fn name(&self) -> &str {
        &self.text[..self.name_len]
    }

    /// Which start of it.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// `name/incarnation`, the form that Redis holds.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Instance {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let (name, number) = text.split_once('/').ok_or(IdError::NotAnInstance)?;
        let number = number.parse().map_err(|_| IdError::NotAnInstance)?;
        Ok(Self::new(InstanceName::new(name)?, Incarnation::new(number)))
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_what_is_wrong_with_them() {
        assert_eq!(RoomId::new(""), Err(IdError::Empty { what: "room" }));
        assert!(RoomId::new(&"x".repeat(128)).is_ok());
        assert_eq!(
            UserId::new(&"x".repeat(129)),
            Err(IdError::TooLong { what: "user", bytes: 129, max: 128 })
        );
        assert_eq!(AppCode::new("a\0b"), Err(IdError::Character { what: "app", found: '\0', at: 1 }));
        assert_eq!(InstanceName::new("a/b"), Err(IdError::Character { what: "instance", found: '/', at: 1 }));
        assert!(RoomId::new("数学 101 🎓").is_ok());
        assert_eq!(RouterName::new("ab-2"), Err(IdError::Character { what: "router", found: '-', at: 2 }));
        assert!(RouterName::new(&"a2".repeat(16)).is_ok() && RouterName::new(&"a".repeat(33)).is_err());
    }

    #[test]
    fn a_route_splits_where_it_was_joined() {
        let room = RoomKey::new(AppCode::new("a:b").unwrap(), RoomId::new("c/d:e").unwrap());
        assert_eq!((room.app(), room.room()), ("a:b", "c/d:e"));
        assert_eq!(RoomKey::from_route(room.route()), Ok(room));
        assert!(RoomKey::from_route("no zero byte").is_err());
    }

    #[test]
    fn an_instance_reads_back() {
        let me: Instance = "web-1/1700000000000".parse().unwrap();
        assert_eq!((me.name(), me.incarnation().as_u64()), ("web-1", 1_700_000_000_000));
        for bad in ["web-1", "web-1/", "/3", "a b/3", "web-1/-3"] {
            assert!(bad.parse::<Instance>().is_err(), "{bad}");
        }
    }
}
