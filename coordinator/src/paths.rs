//! One path for each class of event: how what happened comes to the clients that hear of it.
//!
//! Each path has a type of its own with the classes that go down it, and every place that sends takes only
//! its own: another class there does not compile. What came in over Redis under a name of the owner's path
//! is dropped, and counted once as `skipped{reason="owner_path"}` ([`Astray`]).
//!
//! A name of the wire protocol may stand for classes of several paths: members hear `room:update` from the
//! room's owner, monitors at other instances hear it through Redis.
//!
//! ```
//! # use coordinator::{paths::Control, socket::sessions::Sessions};
//! # use key_prefix::{AppCode, UserId};
//! # use serde_json::value::RawValue;
//! fn ring(sessions: &Sessions, app: &AppCode, user: &UserId, call: &RawValue) -> usize {
//!     sessions.tell(app, user, Control::CallIncoming, call, None)
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use coordinator::{paths::Owner, socket::sessions::Sessions};
//! # use key_prefix::{AppCode, UserId};
//! # use serde_json::value::RawValue;
//! fn seat(sessions: &Sessions, app: &AppCode, user: &UserId, seats: &RawValue) -> usize {
//!     sessions.tell(app, user, Owner::MicUpdate, seats, None)
//! }
//! ```

use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// The classes of one path.
pub trait Class: sealed::Sealed + Copy + Debug + Into<EventClass> + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// The event's name on the wire.
    fn name(self) -> &'static str;

    /// The class that goes by this name on this path.
    ///
    /// # Errors
    /// Where this path has none; whether it is one of the owner's.
    fn arriving(name: &str) -> Result<Self, Astray> {
        let find = |class: &&Self| class.name() == name;
        Self::ALL.iter().find(find).copied().ok_or_else(|| {
            if Owner::ALL.iter().any(|class| class.name() == name) {
                Astray::OwnerPath
            } else {
                Astray::Malformed
            }
        })
    }
}

/// Why what came in over Redis is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Astray {
    /// It is of a class that only a room's owner tells.
    OwnerPath,
    /// It is not what this channel carries.
    Malformed,
}

impl Astray {
    /// The reason that it is counted under.
    pub const fn label(self) -> &'static str {
        match self {
            Self::OwnerPath => "owner_path",
            Self::Malformed => "malformed",
        }
    }
}

macro_rules! paths {
    ($($(#[$doc:meta])+ $path:ident { $($class:ident $name:literal $meaning:literal)+ })+) => {
        /// A class of event, by its path.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventClass {
            $($(#[$doc])+ $path($path),)+
        }

        impl EventClass {
            /// Every class.
            pub const ALL: &[Self] = &[$($(Self::$path($path::$class),)+)+];

            /// The event's name on the wire.
            pub fn name(self) -> &'static str {
                match self { $(Self::$path(class) => class.name(),)+ }
            }
        }

        $(
            $(#[$doc])+
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub enum $path {
                $(#[doc = $meaning] $class,)+
            }

            impl sealed::Sealed for $path {}

            impl Class for $path {
                const ALL: &'static [Self] = &[$(Self::$class),+];

                fn name(self) -> &'static str {
                    match self { $(Self::$class => $name,)+ }
                }
            }

            impl From<$path> for EventClass {
                fn from(class: $path) -> Self {
                    Self::$path(class)
                }
            }
        )+
    };
}

paths! {
    /// From the room's owner to its members, over the connections that they have to it.
    Owner {
        RoomUpdate "room:update" "Settings, guest states, roles, the door, requests and invitations."
        RoomPresence "room:presence" "Who came and who left."
        MicUpdate "mic:update" "Seats."
        MessageNew "message:new" "A message in the room."
        RoomMoved "room:moved" "The room is elsewhere, or will be."
        RoomClosed "room:closed" "The room closed."
        MediaUpdate "media:update" "Another media grant."
        CallUpdate "call:update" "The room's call."
        RoomSpeakers "room:speakers" "Who is heard how loudly."
        Replaced "session:evicted" "Another connection of the user took this one's place in the room."
    }
    /// Through Redis to every instance that watches, and from there to who watches.
    Fanout {
        Card "card:update" "A watched room."
        Rooms "rooms:update" "An app's rooms."
        MonitoredUpdate "room:update" "A monitored room: what members get under this name."
        MonitoredPresence "room:presence" "A monitored room: who came and who left."
        MonitoredMic "mic:update" "A monitored room: seats."
        MonitoredCall "call:update" "A monitored room: its call."
        WatchedSpeakers "room:speakers" "A watched or monitored room: who is heard how loudly."
    }
    /// Through Redis to the instances that hold sessions of a user, and from there to all of them.
    Control {
        CallIncoming "call:incoming" "Somebody calls the user."
        CallEndedElsewhere "call:ended_elsewhere" "The call was answered, or ended, without this session."
        RoomKicked "room:kicked" "The user was put out of a room."
        Evicted "session:evicted" "The user's sessions are over."
    }
    /// From the instance to one connection of its own.
    Connection {
        TokenExpiring "auth:expiring" "The token ends soon."
        TokenExpired "session:evicted" "The token has ended."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_of_the_protocol_has_a_class() {
        let mut names: Vec<_> = EventClass::ALL.iter().map(|class| class.name()).collect();
        names.sort_unstable();
        names.dedup();
        let protocol = [
            "auth:expiring",
            "call:ended_elsewhere",
            "call:incoming",
            "call:update",
            "card:update",
            "media:update",
            "message:new",
            "mic:update",
            "room:closed",
            "room:kicked",
            "room:moved",
            "room:presence",
            "room:speakers",
            "room:update",
            "rooms:update",
            "session:evicted",
        ];
        assert_eq!(names, protocol);
    }

    #[test]
    fn a_path_has_a_name_once() {
        fn check<C: Class>() {
            for class in C::ALL {
                let same = C::ALL.iter().filter(|other| other.name() == class.name()).count();
                assert_eq!(same, 1, "{class:?}");
                assert_eq!(C::arriving(class.name()).map(Into::into), Ok((*class).into()));
            }
        }
        check::<Owner>();
        check::<Fanout>();
        check::<Control>();
        check::<Connection>();
    }

    #[test]
    fn what_only_the_owner_tells_is_known_where_it_strays() {
        for name in ["mic:update", "message:new", "room:closed", "call:update", "room:moved"] {
            assert_eq!(Control::arriving(name), Err(Astray::OwnerPath), "{name}");
        }
        assert_eq!(Fanout::arriving("message:new"), Err(Astray::OwnerPath));
        for name in ["auth:expiring", "card:update", "room:join", ""] {
            assert_eq!(Control::arriving(name), Err(Astray::Malformed), "{name}");
        }
        assert_eq!(Control::arriving("session:evicted"), Ok(Control::Evicted));
    }
}
