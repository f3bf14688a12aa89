//! The room cell: what the owner of a room decides alone, as pure functions.
//!
//! A room is people who come and go, seats to speak from, hosts who moderate, and at most one call at a time.
//! Its owner holds all of that in one value, a [`Cell`], and changes it in one way:
//!
//! ```text
//! Command ── validate ──▶ Validated ── decide(&cell, …, now) ──▶ events, or a Refusal
//!                                                                  │
//!                       storage ◀── changes(&before, &after) ◀── advance(&events)
//! ```
//!
//! - [`Command::validate`] checks sizes and numbers against [`Limits`]; only what passed can be decided.
//! - [`decide`] looks at the cell and says what happens, as [`Event`]s, or why nothing does, as a [`Refusal`]. It
//!   changes nothing. No events is a success too: it is so already.
//! - [`Cell::advance`] takes the events in, and raises the version by one if there are any. It never fails: events
//!   are facts, and the log of them, applied with [`apply`] to an empty cell, gives the same cell.
//! - [`changes`] says which fields of what is stored are others now; [`Cell::read`] makes a cell of them again.
//! - [`Cell::next_deadline`] says when to ask [`Cell::due`], whose timers are commands like any other.
//!
//! There is no IO, no clock and no chance in here: the time, new ids and secrets come with the command. An owner
//! clones the cell (which is cheap: copies share what is the same), advances the copy, stores the changes, and
//! takes the copy for the cell once that is acknowledged.
//!
//! # An example
//!
//! ```
//! use room_cell::{Actor, Cell, Command, Devices, Event, Limits, Millis, Refusal, Role, Rules, decide};
//!
//! let rules = Rules {
//!     devices: Devices::Replace,
//!     publish_deadline_ms: 15_000,
//!     ring_ms: 45_000,
//!     transition_ms: 15_000,
//!     clock_tolerance_ms: 1_000,
//!     external_media: false,
//!     live_list: true,
//! };
//! let ann = Actor::User { user: "ann".into(), max_role: Role::Host, peer: None };
//! let now = Millis(1_700_000_000_000);
//! let mut cell = Cell::default();
//!
//! let create = Command::Create { seats: 8, capacity: None, auto_close: false };
//! let order = create.validate(ann.clone(), &Limits::default())?;
//! let events = decide(&cell, &order, &rules, now)?;
//! assert!(matches!(events[..], [Event::Made { seats: 8, .. }]));
//! cell.advance(&events);
//! assert_eq!(cell.version, 1);
//!
//! // Ann made the room, but has not joined it.
//! let up = Command::MicUp { user: None, seat: None, session: "mic-1".into() };
//! let order = up.validate(ann, &Limits::default())?;
//! assert_eq!(decide(&cell, &order, &rules, now), Err(Refusal::NotMember));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The room
//!
//! ```text
//! absent ── create ──▶ (creating ── created ──▶) active ── close ──▶ (closing ── ended ──▶) closed
//!   ▲                      │                       ▲                                          │
//!   └─────── failed ───────┘                       └── (creating ◀──) ◀──────── reopen ───────┘
//! ```
//!
//! What is in brackets is passed through only where an external media server has to be told first; its deadline
//! ends it too: creating as failed, closing as closed. Without a router there is nothing to wait for.
//!
//! Only an active room takes joins, seats, moderation and calls. Closing empties it at once; seats keep their
//! numbers and locks, and bans and given roles stay for whoever opens it again. A reopening that fails is closed.
//!
//! # Presence
//!
//! ```text
//! absent ── join ──▶ present ── leave | gone (grace is over) | kick | close ──▶ absent
//!                    ▲    │
//!                    └────┘ join again: the same device, a lost connection or a resumed one is replaced;
//!                           another device replaces, is refused, or stays beside, as the app wants
//! ```
//!
//! A user is present with one to eight peers, and leaves with the last. A kick bans: nobody comes back before the
//! ban is lifted or over. A connection that was replaced can do nothing any more, however late it tries.
//!
//! # A seat
//!
//! ```text
//! idle ◀── lock, unlock ──▶ locked
//! idle ── up ──▶ pending_publish ── audio, or the client's word ──▶ publishing
//!                      ▲                                                │
//!                      └───────────── move to another seat ─────────────┘
//! pending_publish ── its deadline | down | leave | kick | exit from the media server ──▶ idle
//! publishing ── audio stopped | down | leave | kick | exit from the media server ──▶ idle
//! ```
//!
//! Taking a seat is not speaking. One use of a seat is a [`MicSession`]: what names another one changes nothing. What
//! the media server reports comes late, twice and out of order, and is judged by its own order first and by the
//! clock second. Audio that is known to flow before a seat is taken confirms it at once.
//!
//! # A router
//!
//! ```text
//! none ── made (generation 1) ──▶ standing ── made (another one, generation + 1) ──▶ standing
//!   ▲                                │
//!   └── dropped, closed ◀────────────┘
//! ```
//!
//! The cell says where the room's router at an external media server is, and what must still be done there: each
//! [`Duty`] stays until it is done, whoever owns the room by then. A peer that ends is to be removed; one that may
//! publish something else by its seat, mute or role, or that has just come to the server, is to be permitted anew; a
//! router that is left behind is to be closed. Whoever sits while a new router is made keeps the seat and has the whole
//! publish deadline to be heard there.
//!
//! # A call
//!
//! ```text
//! started ── accept (the first wins) ──▶ accepted ── hang up ──▶ finished
//!    │                                       └── a party's presence ends ──▶ disconnected
//!    ├── nobody answers in time, or the caller gives up ──▶ missed
//!    └── everybody called says no ──▶ declined
//! ```
//!
//! Each step is taken only from the state before it; a late one is refused with the state that stands.

mod apply;
mod cell;
mod command;
mod decide;
mod event;
mod fields;
mod id;
mod limits;
pub mod patch;
mod refusal;
mod router;

pub use apply::apply;
pub use cell::{
    Asked, Ban, Call, CallReason, CallState, Cell, Heard, MediaIdentity, Peer, Presence, Role, Seat, Sitter,
    Speaking, Status,
};
pub use command::{
    Actor, Command, Devices, GoneReason, Joining, MediaFact, MediaReport, Rules, Timer, Validated,
};
pub use decide::decide;
pub use event::{AskEnd, ConfirmedBy, Event, LeaveReason, MicEnd};
pub use fields::{Changes, Unreadable, changes};
pub use id::{CallId, MicSession, Millis, PeerId, SeatNumber, UserId};
pub use limits::{Invalid, Limits};
pub use refusal::{Bounded, Refusal};
pub use router::{Duty, Owed, RouterRecord};
