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
//! | `commit`, `touch` | the owner, proving its token | I-1, I-3, I-6, I-10, I-13, I-14 |
//! | `settings_update`, `guest_update` | any instance | I-4, I-5, I-14 |
//! | `enqueue`, `report` | any instance: commands and callbacks for the owner | I-5, I-13 |
//! | `levels` | any instance, and the owner for those who watch | I-5 |
//! | `router_claim`, `router_find` | the owner; any instance | I-17 |
//! | `inbox_read`, `answer`, `timeline` | any instance | I-13 |
//! | `sessions_open`, `sessions_close`, `sessions_touch`, `sessions_of`, `notify` | any instance | I-17 |
//! | `read`, `watch`, `unwatch` | any instance | I-5 |
//! | `lease_acquire`, `lease_renew`, `lease_release` | whoever wants a lease that is not a room's | I-18 |
//! | `lanes_hold`, `lanes_read`, `lanes_archived`, `lanes_kept` | who has the role `archiver`; to take entries out, proving the lane's token | I-14, I-18 |
//! | `answers_restore` | who recovers a room from the ledger | I-13 |
//! | `facts` | every instance, when it starts | I-14 |
//! | `event_append` | who has the role `outbox` | I-15, I-17 |
//! | `instances`, `remains` | whoever wants to know who lives, and what one holds | I-18 |
//! | `due`, `offer`, `reap`, `sweep` | the reaper's leader, proving its token | I-18 |
//!
//! Wrappers are methods of [`Scripts`]: arguments are a struct, the answer is an enum with one variant
//! for each reply code. What the wrapper cannot make sense of is a [`ScriptError`].

mod commit;
mod due;
mod event;
mod inbox;
mod instance;
mod lane;
mod lease;
mod media;
mod pin;
mod reap;
mod reply;
mod room;
mod script;
mod sessions;
mod state;
mod touch;
mod types;

pub use commit::{Acknowledged, CellChanges, Commit, Committed, Committing, Keep, Repeat, ReplyTo};
pub use due::{Due, DueRooms, Offer, Offered};
pub use event::EventAppend;
pub use inbox::{Enqueue, Enqueued, InboxEntry, OwnedKeep};
pub use instance::{Beat, Heartbeat, HeldRoom, Look, OwnedReport, Register, Registered, WatchedReport};
pub use lane::{ArchivedLane, HeldLane, HoldLanes, LaneAnswer, LaneEntry, LaneRead, LanesHeld, Timeline};
pub use lease::{Acquired, Renewed};
pub use media::{Claimed, LevelsTo, Report, Reported, RouterOf};
pub use pin::{Birth, Pin, Pinned};
pub use reap::{Heartbeats, Reap, Reaped, Remains, Sweep, Swept};
pub use reply::MalformedReply;
pub use room::{Read, Release, Released, Restore, Restored, RoomState, Standing};
#[doc(hidden)]
pub use script::Call;
pub use script::{SCRIPTS, Script, ScriptError, Scripts};
pub use sessions::{Notify, SESSIONS_LIFE, Session, SessionOpen};
pub use state::{GuestUpdate, SettingsUpdate, Updated};
pub use touch::{Touch, Touched};
pub use types::{CellVersion, FenceToken, RedisMillis, SettingsVersion};
