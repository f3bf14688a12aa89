//! What holds on every kind of database.

pub(crate) mod failing;
mod fold;
pub(crate) mod life;
mod once;
mod open;
mod outbox;
mod prune;
pub(crate) mod world;
