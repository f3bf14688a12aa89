//! The embedded SFU with real WebRTC clients, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod callback_bodies;
mod generic;
mod hostile;
mod house;
mod sfu;
mod stand_in;
