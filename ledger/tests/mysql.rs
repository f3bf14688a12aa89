//! The suite on MariaDB.

use e2e::databases;

#[path = "suite/servers.rs"]
mod servers;
mod suite;

const KIND: databases::Kind = databases::Kind::Mysql;
