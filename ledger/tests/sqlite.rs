//! The suite on SQLite.

use e2e::databases;

mod suite;

const KIND: databases::Kind = databases::Kind::Sqlite;
