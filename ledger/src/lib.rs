//! The durable record: who did what in which room, under which owner and token.
//!
//! Redis holds what is so now; the ledger will hold how it came to be. Each committed command and each
//! change of settings goes from its room into one of 64 lanes in Redis, and from there, by the holder of
//! the lane's lease and in one transaction, into SQL: the command log, a snapshot of the room, and the
//! events that go out to others. What is archived is recognised by its position, which is room, token and
//! version, so each entry takes effect exactly once, whatever is killed in between.
//!
//! In this version nothing is archived yet: lanes begin with the room cell. The crate stands here so that
//! its place and its direction are fixed: it depends on `redis-scripts`, and only the coordinator depends
//! on it.
