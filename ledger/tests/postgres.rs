//! The suite on PostgreSQL.

#[expect(dead_code, reason = "shared: each of its users needs another part")]
mod databases;
#[path = "suite/servers.rs"]
mod servers;
mod suite;

const KIND: databases::Kind = databases::Kind::Postgres;
