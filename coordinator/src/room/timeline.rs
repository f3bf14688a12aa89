//! What happened in a room, newest first: what waits in its lane, and behind that what the ledger has.

use key_prefix::RoomKey;
use ledger::{Before, Entry, EntryId};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{ApiError, ErrorCode};
use crate::node::Node;

/// Entries of a lane that are looked through for one page.
const SCAN: usize = 2_000;

/// One entry of a room's timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Passed {
    /// Its name.
    pub id: EntryId,
    /// `cell`, `settings`, `guest`, or `state` of a room that was written anew.
    pub kind: String,
    /// When, in Unix milliseconds by Redis's clock.
    pub at: u64,
    /// `name/incarnation` of the owner at that time; empty: nobody owned the room.
    pub owner: String,
    /// Committed by an owner whose time was over, on data that was lost since: without effect.
    pub superseded: bool,
    /// The command with its actor and its events, or the patch.
    pub entry: Value,
}

/// A page of a room's timeline, newest first, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timeline {
    /// Its entries.
    pub entries: Vec<Passed>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<Bookmark>,
}

/// Where a page ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bookmark {
    /// In the lane, at this stream id, the last entry shown being this one.
    Lane(String, Option<EntryId>),
    /// In the ledger, at this entry.
    Ledger(EntryId),
}

impl Bookmark {
    /// Its shape, as a regular expression.
    pub fn pattern() -> String {
        let id = EntryId::PATTERN;
        let stream = "[1-9][0-9]{0,18}-[0-9]{1,19}";
        format!("^({stream}|({stream}~)?{id})$")
    }

    /// Characters of the longest.
    pub const LONGEST: usize = 40 + EntryId::LONGEST;
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lane(stream, None) => f.write_str(stream),
            Self::Lane(stream, Some(id)) => write!(f, "{stream}~{id}"),
            Self::Ledger(id) => id.fmt(f),
        }
    }
}

/// What is no [`Bookmark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no place in a timeline")]
pub struct NoBookmark;

impl FromStr for Bookmark {
    type Err = NoBookmark;

    fn from_str(text: &str) -> Result<Self, NoBookmark> {
        // So many digits are always a number of 64 bits.
        let is_number =
            |part: &str| (1..=19).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        // Before the least of all ids there is nothing that Redis could look for.
        let fits = |(ms, n): (&str, &str)| is_number(ms) && !ms.starts_with('0') && is_number(n);
        let is_stream = |it: &str| it.split_once('-').is_some_and(fits);
        match text.split_once('~') {
            Some((stream, id)) if is_stream(stream) => match id.parse() {
                Ok(id) => Ok(Self::Lane(stream.to_owned(), Some(id))),
                Err(_) => Err(NoBookmark),
            },
            None if is_stream(text) => Ok(Self::Lane(text.to_owned(), None)),
            None => text.parse().map(Self::Ledger).map_err(|_| NoBookmark),
            Some(_) => Err(NoBookmark),
        }
    }
}

/// Reads a page.
pub async fn page(
    node: &Arc<Node>,
    room: &RoomKey,
    before: Option<&Bookmark>,
    limit: usize,
) -> Result<Timeline, ApiError> {
    let store = &node.store;
    let mut page = Timeline::default();
    let (at, mut shown) = match before {
        None => (Some(None), None),
        Some(Bookmark::Lane(stream, shown)) => (Some(Some(&**stream)), shown.clone()),
        Some(Bookmark::Ledger(_)) => (None, None),
    };
    if let Some(at) = at {
        let read = store.scripts.timeline(&store.keys, room, at, SCAN, limit);
        let tail = store.timed("timeline", read).await?;
        let mut stream = None;
        // What is no entry is set aside by the archiver, and told to whoever runs it.
        for entry in tail.entries.into_iter().filter_map(|found| Entry::read(found).ok()) {
            page.entries.push(Passed {
                id: entry.id(),
                kind: entry.kind().to_owned(),
                at: entry.at.as_u64(),
                superseded: false,
                entry: serde_json::from_str(&entry.body).unwrap_or_default(),
                owner: entry.owner,
            });
            stream = Some(entry.entry);
        }
        shown = page.entries.last().map(|entry| entry.id.clone()).or(shown);
        let is_full = page.entries.len() >= limit;
        if let Some(stream) = tail.next.or(stream.filter(|_| is_full)) {
            page.next = Some(Bookmark::Lane(stream, shown));
            return Ok(page);
        }
    }
    let before = match (before, &shown) {
        (Some(Bookmark::Ledger(id)), _) => Before::Archived(id),
        (_, Some(id)) => Before::Waiting(id),
        (_, None) => Before::Everything,
    };
    let left = limit - page.entries.len();
    let Some(rows) = node.books.ask(node.books.ledger.timeline(room, before, left as u64)).await else {
        return Err(ApiError::new(ErrorCode::LedgerUnavailable, "the ledger is out of reach"));
    };
    page.next = rows.last().filter(|_| rows.len() >= left).map(|row| Bookmark::Ledger(row.id.clone()));
    page.entries.extend(rows.into_iter().map(|row| Passed {
        id: row.id,
        kind: row.kind,
        at: row.at.as_u64(),
        owner: row.owner,
        superseded: row.superseded,
        entry: serde_json::from_str(&row.body).unwrap_or_default(),
    }));
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_at_an_entry_wherever_that_is() {
        let id = "cell-1764468000000-41-0123456789abcdef";
        for good in ["17-0", "1-0", id, &format!("1764468000000-12~{id}")] {
            assert_eq!(good.parse::<Bookmark>().map(|it| it.to_string()), Ok(good.to_owned()));
            assert!(good.len() <= Bookmark::LONGEST);
        }
        let long = format!("1-{}", u128::MAX);
        for bad in [
            "",
            "x",
            "1 0",
            "+",
            "17",
            "17-",
            "-17",
            "1-2-3",
            "0-0",
            "0-5",
            "017-0",
            "1-2~",
            "~",
            &format!("~{id}"),
            &format!("{id}~1-2"),
            &long,
        ] {
            assert_eq!(bad.parse::<Bookmark>(), Err(NoBookmark), "{bad}");
        }
    }
}
