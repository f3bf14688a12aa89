//! The index of an app's rooms: pages of ids with what a list shows of each.

use fred::error::Error;
use fred::interfaces::{HashesInterface as _, SortedSetsInterface as _};
use fred::types::Key;
use fred::types::sorted_sets::{ZRange, ZRangeBound, ZRangeKind};
use key_prefix::{AppCode, Keys, RoomId, RoomKey};
use redis_scripts::Scripts;
use serde::Serialize;

/// One room of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedRoom {
    /// Its id.
    pub id: String,
    /// Its status.
    pub status: String,
    /// Size of its peer set.
    pub peer_count: u64,
    /// Where it stands.
    pub version: ListedVersion,
}

/// Versions of a listed room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListedVersion {
    /// Settings version.
    pub settings: u64,
    /// Cell version.
    pub cell: u64,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its rooms, in byte order of their ids.
    pub rooms: Vec<ListedRoom>,
    /// Where the next page begins; `None`: this was the last.
    pub cursor: Option<String>,
}

/// Status, peers, settings version and cell version of a record that may be gone.
type Record = (Option<String>, Option<u64>, Option<u64>, Option<u64>);

/// Which page.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest<'a> {
    /// Ids after this one; empty: from the first.
    pub after: &'a str,
    /// Only ids that begin so.
    pub prefix: &'a str,
    /// At most so many.
    pub limit: usize,
}

/// Reads one page of an app's index.
pub async fn page(
    scripts: &Scripts,
    keys: &Keys,
    app: &AppCode,
    want: PageRequest<'_>,
) -> Result<Page, Error> {
    let bound = |kind, range| ZRange { kind, range };
    let min = if !want.after.is_empty() && want.after >= want.prefix {
        bound(ZRangeKind::Exclusive, ZRangeBound::Lex(want.after.to_owned()))
    } else if want.prefix.is_empty() {
        bound(ZRangeKind::Inclusive, ZRangeBound::NegInfinityLex)
    } else {
        bound(ZRangeKind::Inclusive, ZRangeBound::Lex(want.prefix.to_owned()))
    };
    let max = if want.prefix.is_empty() {
        ZRangeBound::InfiniteLex
    } else {
        // The last character there is: no id with the prefix comes after it.
        ZRangeBound::Lex(format!("{}{}", want.prefix, char::MAX))
    };
    let client = scripts.client();
    let index = Key::from(keys.rooms(app.as_str()).bytes());
    let limit = i64::try_from(want.limit).unwrap_or(i64::MAX);
    let ids: Vec<String> =
        client.zrangebylex(index, min, bound(ZRangeKind::Inclusive, max), Some((0, limit))).await?;
    let pipeline = client.pipeline();
    let mut listed = Vec::with_capacity(ids.len());
    for id in &ids {
        let Ok(room) = RoomId::new(id) else { continue };
        let record = Key::from(keys.room(&RoomKey::new(app.clone(), room)).room.bytes());
        pipeline.hmget::<(), _, _>(record, vec!["status", "peers_n", "sv", "cv"]).await?;
        listed.push(id);
    }
    if listed.is_empty() {
        return Ok(Page { rooms: Vec::new(), cursor: None });
    }
    let records: Vec<Record> = pipeline.all().await?;
    let rooms = listed.iter().zip(records).filter_map(|(id, (status, peers, sv, cv))| {
        Some(ListedRoom {
            id: (*id).clone(),
            status: status?,
            peer_count: peers.unwrap_or(0),
            version: ListedVersion { settings: sv.unwrap_or(0), cell: cv.unwrap_or(0) },
        })
    });
    let cursor = (ids.len() == want.limit).then(|| ids.last().cloned()).flatten();
    Ok(Page { rooms: rooms.collect(), cursor })
}
