//! The log: one row for each entry.

use std::collections::{BTreeSet, HashMap};

use redis_scripts::{FenceToken, RedisMillis};

use super::heads::Standing;
use super::plan::{Known, LogRow, Prepared};
use crate::db::{Tx, pieces, tuples};
use crate::entry::{Counter, Poison, Position, RoomDigest};
use crate::error::LedgerError;

/// What the ledger has at the positions of those entries that may be there already: every new one comes after its
/// room's head.
pub(crate) async fn known<'a>(
    tx: &mut Tx,
    heads: &HashMap<RoomDigest, Standing>,
    entries: impl Iterator<Item = &'a Prepared<'a>>,
) -> Result<Known, LedgerError> {
    let may_be_there = |position: &&Position| {
        heads.get(&position.room).is_some_and(|head| {
            let newest = (head.token, head.version(position.counter));
            (position.token.as_u64(), position.version) <= newest
        })
    };
    let positions: BTreeSet<&Position> = entries.map(|it| &it.position).filter(may_be_there).collect();
    let mut known = Known::new();
    for piece in pieces(&positions.into_iter().collect::<Vec<_>>(), |_| 1 << 14) {
        let any =
            vec!["(room_key = ? AND counter = ? AND token = ? AND version = ?)"; piece.len()].join(" OR ");
        let mut sql =
            tx.sql(&format!("SELECT room_key, counter, token, version, digest, kind FROM log WHERE {any}"));
        for position in piece {
            sql = sql.text(position.room.as_str()).number(position.counter as u64);
            sql = sql.number(position.token.as_u64()).number(position.version);
        }
        let by_key: HashMap<&str, &RoomDigest> =
            piece.iter().map(|it| (it.room.as_str(), &it.room)).collect();
        for row in tx.rows(sql).await? {
            let Some(room) = by_key.get(row.text(0)?.as_str()).copied().cloned() else { continue };
            let counter = if row.number(1)? == 0 { Counter::Cell } else { Counter::Settings };
            let (token, version) = (FenceToken::new(row.number(2)?), row.number(3)?);
            let key = (Position { room, counter, token, version }, row.text(5)? == "state");
            known.entry(key).or_default().insert(row.text(4)?);
        }
    }
    Ok(known)
}

const COLUMNS: &str = "room_key, counter, token, version, digest, kind, at_ms, owner, body, caller, command_id, \
    answer_digest, answer, superseded";

pub(crate) async fn write(tx: &mut Tx, rows: &[LogRow<'_>]) -> Result<(), LedgerError> {
    let ignore = tx.dialect().or_ignore("seq");
    let bytes = |row: &LogRow<'_>| {
        row.entry.body.len() + row.entry.answer.as_ref().map_or(0, |kept| kept.answer.len()) + 256
    };
    for piece in pieces(rows, bytes) {
        let mut sql =
            tx.sql(&format!("INSERT INTO log ({COLUMNS}) VALUES {}{ignore}", tuples(piece.len(), 14)));
        for LogRow { entry, position, digest, superseded } in piece {
            let kept = entry.answer.as_ref();
            sql = sql.text(position.room.as_str()).number(position.counter as u64);
            sql =
                sql.number(position.token.as_u64()).number(position.version).text(digest).text(entry.kind());
            sql = sql.number(entry.at.as_u64()).text(&entry.owner).text(&entry.body);
            sql = sql.maybe_text(kept.map(|it| &*it.caller)).maybe_text(kept.map(|it| &*it.id));
            sql = sql.maybe_text(kept.map(|it| &*it.digest)).maybe_text(kept.map(|it| &*it.answer));
            sql = sql.number((*superseded).into());
        }
        tx.execute(sql).await?;
    }
    Ok(())
}

/// Keeps what is no change, for whoever looks after it.
pub(crate) async fn set_aside(
    tx: &mut Tx,
    aside: &[(u16, Poison)],
    at: RedisMillis,
) -> Result<(), LedgerError> {
    let ignore = tx.dialect().or_ignore("seq");
    for piece in pieces(aside, |(_, poison)| poison.fields.len() + poison.why.len()) {
        let rows = tuples(piece.len(), 6);
        let text =
            format!("INSERT INTO aside (lane, entry, digest, fields, why, at_ms) VALUES {rows}{ignore}");
        let mut sql = tx.sql(&text);
        for (lane, poison) in piece {
            let digest = blake3::hash(poison.fields.as_bytes()).to_hex();
            sql = sql.number((*lane).into()).text(&poison.entry).text(&digest[..16]).text(&poison.fields);
            sql = sql.text(&poison.why).number(at.as_u64());
        }
        tx.execute(sql).await?;
    }
    Ok(())
}
