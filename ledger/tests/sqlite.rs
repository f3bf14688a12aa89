//! The suite on SQLite.

#[expect(dead_code, reason = "shared: each of its users needs another part")]
mod databases;
mod suite;

const KIND: databases::Kind = databases::Kind::Sqlite;
