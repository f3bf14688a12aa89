//! Rooms that this instance owns, and the little it may do to those that it does not.
//!
//! A room in memory is one task, the actor ([`actor`]), with a bounded mailbox ([`work`]). It begins
//! without a lease: the first thing that it does is to `pin`, and if the room is another's it says so
//! and ends. [`owned::OwnedRoom`] can be had from a won `pin` only and is the only type with methods that
//! commit; when the lease runs out it is consumed and becomes a [`owned::SuspendedRoom`], which cannot.
//!
//! ```text
//!          pin won                 lease ran out, or taken
//!   new ────────────▶ owned ─────────────────────────────▶ suspended
//!    │                  │ ▲              pin won              │  │
//!    │ pin refused      │ └───────────────────────────────────┘  │ pin refused
//!    ▼                  ▼ idle, drained                          ▼
//!   gone              released                       everybody told to move
//! ```

pub mod actor;
pub mod answer;
pub mod batch;
pub mod delta;
pub mod desk;
pub mod gateway;
pub mod lease;
pub mod links;
pub mod names;
pub mod owned;
pub mod peer;
pub mod presence;
pub mod projection;
pub mod recent;
pub mod registry;
pub mod replies;
pub mod snapshot;
pub mod timeline;
pub mod work;
