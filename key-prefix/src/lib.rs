//! Every name that Dais uses in Redis, and nothing else.
//!
//! Two things live here:
//!
//! 1. the **names**: [`Key`] and [`Channel`] can be made by [`Keys`] alone, so a script cannot be called
//!    with a key that somebody pasted together. [`KeyKind`] is the one table of all keys: pattern, type,
//!    who writes it, how it ends, and what happens if somebody deletes it. `coordinator keys` prints it
//!    and the documentation shows the same text;
//! 2. the **prefix policy**: stages and branches share one Redis without ever seeing each other
//!    ([`Prefix`]). A branch name becomes a safe segment, two branches never become the same one, and
//!    outside `dev` a missing prefix is refused.
//!
//! A room is named by its route key, `app + "\0" + room`. Ids hold no control characters ([`RoomId`] and
//! its siblings see to that), so the zero byte splits it without escaping.
//!
//! ```
//! use key_prefix::{AppCode, InstanceName, Incarnation, Instance, Keys, Prefix, RoomId, RoomKey};
//!
//! let keys = Keys::new(Prefix::parse("dev/feature/login")?);
//! let room = RoomKey::new(AppCode::new("school")?, RoomId::new("math-101")?);
//! assert_eq!(keys.room(&room).owner.to_string(), "dev.feature_2flogin:owner:school\0math-101");
//!
//! let me = Instance::new(InstanceName::new("a")?, Incarnation::new(7));
//! assert_eq!(keys.instance_rooms(&me).to_string(), "dev.feature_2flogin:instance-rooms:a/7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod id;
mod keys;
mod prefix;
mod table;

pub use id::{AppCode, IdError, Incarnation, Instance, InstanceName, RoomId, RoomKey, RouterName, UserId};
pub use keys::{Channel, Key, Keys, LANE_HASH, LANES, RoomKeys, lane_lease, lane_of};
pub use prefix::{Prefix, PrefixError};
pub use table::{ChannelKind, KeyKind, RedisType, Row, Scope, markdown};
