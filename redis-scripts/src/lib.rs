//! Every Lua script that Dais runs in Redis, and one typed wrapper for each. Nothing else talks Lua.
//!
//! A script is one atomic step: it reads what it needs, checks every condition and the type of every key,
//! and only then writes, because Lua in Redis does not roll back. Time is Redis's own. The sources are
//! `lua/*.lua`; each begins with a header that names its keys, arguments, replies and the invariants it
//! keeps, and `cargo xtask check-lua` fails when header and body disagree.
//!
//! | script | may be called by | keeps |
//! | --- | --- | --- |
//! | `register`, `deregister`, `heartbeat` | every instance, for itself | I-1 |
//! | `pin`, `release`, `restore` | the owner, or who wants to become it | I-1, I-2 |
//! | `join`, `leave`, `touch` | the owner, proving its token | I-1, I-3, I-6, I-10 |
//! | `settings_update`, `guest_update` | any instance | I-4, I-5 |
//! | `read`, `watch`, `unwatch` | any instance | I-5 |
//! | `lease_acquire`, `lease_renew`, `lease_release` | whoever wants a lease that is not a room's | I-18 |
//! | `instances`, `remains` | whoever wants to know who lives, and what one holds | I-18 |
//! | `reap`, `sweep` | the reaper's leader, proving its token | I-18 |
//!
//! Wrappers are methods of [`Scripts`]: arguments are a struct, the answer is an enum with one variant
//! for each reply code. What the wrapper cannot make sense of is a [`ScriptError`].

mod instance;
mod lease;
mod peers;
mod reap;
mod reply;
mod room;
mod script;
mod state;
mod types;

pub use instance::{Beat, Heartbeat, HeldRoom, OwnedReport, Register, Registered, WatchedReport};
pub use lease::{Acquired, Renewed};
pub use peers::{Changed, Join, Leave, Touch, Touched};
pub use reap::{Heartbeats, Reap, Reaped, Remains, Sweep, Swept};
pub use reply::MalformedReply;
pub use room::{Pin, Pinned, Read, RecordedPeer, Release, Released, Restore, Restored, RoomState, Standing};
pub use script::{SCRIPTS, Script, ScriptError, Scripts};
pub use state::{GuestUpdate, SettingsUpdate, Updated};
pub use types::{CellVersion, FenceToken, RedisMillis, SettingsVersion};
