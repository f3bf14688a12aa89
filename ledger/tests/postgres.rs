//! The suite on PostgreSQL.

use e2e::databases;

#[path = "suite/servers.rs"]
mod servers;
mod suite;

const KIND: databases::Kind = databases::Kind::Postgres;
