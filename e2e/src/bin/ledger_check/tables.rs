//! The tables, as they are in SQL.

use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Row as _};
use std::collections::HashMap;

use super::Error;

/// Rows that are read at once.
const PAGE: usize = 5_000;

/// What the ledger holds.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) rooms: HashMap<String, Room>,
    /// In order of `seq`.
    pub(crate) log: Vec<Entry>,
    /// In order of `seq`.
    pub(crate) outbox: Vec<Event>,
    /// Entries that were set aside.
    pub(crate) aside: usize,
}

/// The head of a room.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) name: String,
    pub(crate) token: i64,
    pub(crate) cv: i64,
    pub(crate) sv: i64,
    pub(crate) gap: bool,
}

/// A row of the log.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) seq: i64,
    pub(crate) room_key: String,
    /// 0 for the cell, 1 for settings and guests.
    pub(crate) counter: i64,
    pub(crate) token: i64,
    pub(crate) version: i64,
    pub(crate) kind: String,
    pub(crate) owner: String,
    pub(crate) body: Value,
    pub(crate) caller: Option<String>,
    pub(crate) command: Option<String>,
    pub(crate) answer: Option<String>,
    pub(crate) superseded: bool,
}

/// What has become of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    Delivered,
    Failed,
    Dropped,
}

/// A row of the outbox.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) sink: String,
    pub(crate) room_key: String,
    pub(crate) kind: String,
    /// As it was written, to be compared byte for byte.
    pub(crate) text: String,
    pub(crate) payload: Value,
    pub(crate) state: State,
    pub(crate) out_of_order: bool,
}

impl Tables {
    /// Reads them all.
    pub(crate) async fn read(url: &str) -> Result<Self, Error> {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(url).await?;
        let mut tables = Self::default();
        let rooms = "SELECT room_key, room, token, cv, sv, gap FROM rooms";
        for row in sqlx::query(rooms).fetch_all(&mut connection).await? {
            let room = Room {
                name: row.try_get(1)?,
                token: row.try_get(2)?,
                cv: row.try_get(3)?,
                sv: row.try_get(4)?,
                gap: row.try_get::<i64, _>(5)? != 0,
            };
            tables.rooms.insert(row.try_get(0)?, room);
        }
        let columns = "seq, room_key, counter, token, version, kind, owner, body, caller, command_id, answer, superseded";
        tables.log = pages(&mut connection, "log", columns, Entry::read).await?;
        let columns = "seq, event_id, sink, room_key, kind, payload, state, out_of_order";
        tables.outbox = pages(&mut connection, "outbox", columns, Event::read).await?;
        let aside = sqlx::query("SELECT COUNT(*) FROM aside").fetch_one(&mut connection).await?;
        tables.aside = usize::try_from(aside.try_get::<i64, _>(0)?)?;
        connection.close().await?;
        Ok(tables)
    }

    /// What the room of this key is called.
    pub(crate) fn name<'a>(&'a self, room_key: &'a str) -> &'a str {
        self.rooms.get(room_key).map_or(room_key, |room| &room.name)
    }
}

/// All rows of a table in order of `seq`, the first column, a page at a time.
async fn pages<T>(
    connection: &mut AnyConnection,
    table: &str,
    columns: &str,
    read: impl Fn(&AnyRow) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let (mut all, mut last) = (Vec::new(), 0_i64);
    loop {
        let page = format!("SELECT {columns} FROM {table} WHERE seq > {last} ORDER BY seq LIMIT {PAGE}");
        let rows = sqlx::query(AssertSqlSafe(page)).fetch_all(&mut *connection).await?;
        let Some(end) = rows.last() else { return Ok(all) };
        last = end.try_get(0)?;
        for row in &rows {
            all.push(read(row)?);
        }
    }
}

impl Entry {
    fn read(row: &AnyRow) -> Result<Self, Error> {
        let body: String = row.try_get(7)?;
        Ok(Self {
            seq: row.try_get(0)?,
            room_key: row.try_get(1)?,
            counter: row.try_get(2)?,
            token: row.try_get(3)?,
            version: row.try_get(4)?,
            kind: row.try_get(5)?,
            owner: row.try_get(6)?,
            body: serde_json::from_str(&body)?,
            caller: row.try_get(8)?,
            command: row.try_get(9)?,
            answer: row.try_get(10)?,
            superseded: row.try_get::<i64, _>(11)? != 0,
        })
    }
}

impl Event {
    fn read(row: &AnyRow) -> Result<Self, Error> {
        let text: String = row.try_get(5)?;
        Ok(Self {
            seq: row.try_get(0)?,
            id: row.try_get(1)?,
            sink: row.try_get(2)?,
            room_key: row.try_get(3)?,
            kind: row.try_get(4)?,
            payload: serde_json::from_str(&text)?,
            text,
            state: match row.try_get::<i64, _>(6)? {
                0 => State::Open,
                1 => State::Delivered,
                2 => State::Failed,
                3 => State::Dropped,
                other => return Err(format!("an event is in state {other}").into()),
            },
            out_of_order: row.try_get::<i64, _>(7)? != 0,
        })
    }
}
