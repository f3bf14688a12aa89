//! The head of a room: the newest position that the ledger has of it.

use std::collections::{BTreeSet, HashMap};

use key_prefix::RoomKey;

use super::plan::Prepared;
use crate::db::{Tx, marks, pieces, tuples};
use crate::entry::{Counter, RoomDigest};
use crate::error::LedgerError;

/// What stands of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) room: RoomKey,
    pub(crate) token: u64,
    pub(crate) cv: u64,
    pub(crate) sv: u64,
    pub(crate) status: String,
    pub(crate) created_at: u64,
    pub(crate) at: u64,
    pub(crate) gap: bool,
    /// Rows of the log since the snapshot.
    pub(crate) unfolded: u64,
}

impl Standing {
    /// A room that was never heard of.
    pub(crate) fn new(room: &RoomKey) -> Self {
        Self {
            room: room.clone(),
            token: 0,
            cv: 0,
            sv: 0,
            status: "absent".to_owned(),
            created_at: 0,
            at: 0,
            gap: false,
            unfolded: 0,
        }
    }

    /// The newest version of a counter.
    pub(crate) const fn version(&self, counter: Counter) -> u64 {
        match counter {
            Counter::Cell => self.cv,
            Counter::Settings | Counter::Instance => self.sv,
        }
    }
}

const READ: &str =
    "SELECT app, room, token, cv, sv, status, created_at, at_ms, gap, unfolded FROM rooms WHERE room_key IN ";

/// Heads of the rooms that entries are about.
pub(crate) async fn read<'a>(
    tx: &mut Tx,
    entries: impl Iterator<Item = &'a Prepared<'a>>,
) -> Result<HashMap<RoomDigest, Standing>, LedgerError> {
    let of_rooms = entries.filter(|it| it.position.counter != Counter::Instance);
    let rooms: BTreeSet<&RoomDigest> = of_rooms.map(|it| &it.position.room).collect();
    read_rooms(tx, &rooms.into_iter().collect::<Vec<_>>()).await
}

/// Heads of rooms.
pub(crate) async fn read_rooms(
    tx: &mut Tx,
    rooms: &[&RoomDigest],
) -> Result<HashMap<RoomDigest, Standing>, LedgerError> {
    let mut found = HashMap::new();
    for piece in pieces(rooms, |_| 0) {
        let text = format!("{READ}({})", marks(piece.len()));
        let sql = piece.iter().fold(tx.sql(&text), |sql, room| sql.text(room.as_str()));
        for row in tx.rows(sql).await? {
            let route = format!("{}\0{}", row.text(0)?, row.text(1)?);
            // What was written is a room; what somebody else wrote is none of ours.
            let Ok(room) = RoomKey::from_route(&route) else { continue };
            let standing = Standing {
                room,
                token: row.number(2)?,
                cv: row.number(3)?,
                sv: row.number(4)?,
                status: row.text(5)?,
                created_at: row.number(6)?,
                at: row.number(7)?,
                gap: row.number(8)? != 0,
                unfolded: row.number(9)?,
            };
            found.insert(RoomDigest::of(&route), standing);
        }
    }
    Ok(found)
}

const COLUMNS: [&str; 12] = [
    "room_key",
    "app",
    "room",
    "lane",
    "token",
    "cv",
    "sv",
    "status",
    "created_at",
    "at_ms",
    "gap",
    "unfolded",
];

/// Writes heads.
pub(crate) async fn write(tx: &mut Tx, heads: Vec<(&RoomDigest, &Standing)>) -> Result<(), LedgerError> {
    let update = tx.dialect().or_update(&["room_key"], &COLUMNS[4..]);
    for piece in pieces(&heads, |_| 512) {
        let rows = tuples(piece.len(), COLUMNS.len());
        let mut sql = tx.sql(&format!("INSERT INTO rooms ({}) VALUES {rows}{update}", COLUMNS.join(", ")));
        for (key, head) in piece {
            sql = sql.text(key.as_str()).text(head.room.app()).text(head.room.room());
            sql = sql.number(key_prefix::lane_of(head.room.route()).into()).number(head.token);
            sql = sql.number(head.cv).number(head.sv).text(&head.status).number(head.created_at);
            sql = sql.number(head.at).number(head.gap.into()).number(head.unfolded);
        }
        tx.execute(sql).await?;
    }
    Ok(())
}
