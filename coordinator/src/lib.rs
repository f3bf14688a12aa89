//! One instance of Dais: connections, rooms, and its place among the other instances.
//!
//! Where to begin reading:
//!
//! | question | module |
//! | --- | --- |
//! | how does an instance start, and end? | [`serve`], [`node`] |
//! | how does a room come to be owned here, and what may its owner do? | [`room`] |
//! | what can a client ask, and how is it checked? | [`socket`] |
//! | what is in a room's settings and guest states? | [`classroom`] |
//! | how does one instance hear from another? | [`sync`] |
//! | which way does an event come to clients? | [`paths`] |
//! | what do HTTP callers find? | [`http`] |
//! | what is refused, and with which code? | [`error`] |
//!
//! Three rules hold everywhere. Memory follows Redis: nothing in memory changes, and nobody is told
//! anything, before Redis has acknowledged it. Ownership is a type: only [`room::owned::OwnedRoom`] can
//! commit, and only a won `pin` makes one. And every queue is bounded, with a counter for what a full one
//! turned away.

pub mod auth;
pub mod callbacks;
pub mod classroom;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dev;
pub mod error;
pub mod http;
pub mod limits;
pub mod media;
pub mod metrics;
pub mod node;
#[cfg(test)]
mod pages;
pub mod paths;
pub mod room;
pub mod serve;
pub mod socket;
pub mod store;
pub mod sync;
pub mod vendor_clock;
