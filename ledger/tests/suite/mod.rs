//! What holds on every kind of database.

pub(crate) mod failing;
mod fold;
pub(crate) mod life;
mod once;
mod open;
mod outbox;
pub(crate) mod world;
