//! What one owner decides alone: a room's life, its presence, seats, moderation and calls.
//!
//! The cell will be pure functions: `decide` takes the cell, a command and the time, and answers with
//! events or a refusal; `apply` takes the cell and an event. No IO, no clock, no chance: time and ids come
//! in with the command. Replaying the log's events over an empty cell gives the same cell.
//!
//! In this version a room has no cell yet: coming and going are decided by the owner's actor in the
//! coordinator and committed by the `join` and `leave` scripts, under the same lease and with the same
//! version counter that the cell will have. The crate stands here so that its place and its rule are fixed:
//! it depends on nothing of ours, and whatever enters it must build without an operating system.
