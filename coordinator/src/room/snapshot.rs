//! A room as a client sees it when it comes, or watches.

use redis_scripts::{RoomState, Standing};
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;

use super::members::Members;
use super::peer::{PeerRecord, PeerView};
use super::projection::{Projection, Unreadable};

/// Users in a snapshot; the rest is paged with `room:peers`.
pub const PEERS_IN_SNAPSHOT: usize = 200;

/// The room that a snapshot is of, and who runs it.
#[derive(Debug, Clone, Copy)]
pub struct Heading<'a> {
    /// The app.
    pub app: &'a str,
    /// The room's id.
    pub id: &'a str,
    /// Its status.
    pub status: &'a str,
    /// Name of the instance that owns it; empty if nobody does.
    pub owner: &'a str,
    /// Its fencing token.
    pub token: u64,
}

/// `Snapshot` of the wire protocol.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot<'a> {
    app: &'a str,
    id: &'a str,
    status: &'a str,
    hosts: Vec<Arc<str>>,
    locked: bool,
    owner: OwnerView<'a>,
    version: VersionView,
    settings: &'a Map<String, Value>,
    guests: &'a Map<String, Value>,
    seats: [(); 0],
    peers: Vec<PeerView>,
    peer_count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers_cursor: Option<Arc<str>>,
}

#[derive(Debug, Serialize)]
struct OwnerView<'a> {
    instance: &'a str,
    token: u64,
}

/// Where both counters of a room stand.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct VersionView {
    /// Settings version.
    pub settings: u64,
    /// Cell version.
    pub cell: u64,
}

impl<'a> Snapshot<'a> {
    /// A room in memory.
    pub fn new(heading: Heading<'a>, room: &'a Projection, members: &Members) -> Self {
        let (peers, peers_cursor) = members.page(None, PEERS_IN_SNAPSHOT);
        Self {
            app: heading.app,
            id: heading.id,
            status: heading.status,
            hosts: members.hosts(),
            locked: false,
            owner: OwnerView { instance: heading.owner, token: heading.token },
            version: VersionView { settings: room.sv.as_u64(), cell: room.cv.as_u64() },
            settings: &room.settings,
            guests: &room.guests,
            seats: [],
            peers,
            peer_count: members.len(),
            peers_cursor,
        }
    }
}

/// A room that another instance runs, or nobody, as read from Redis.
#[derive(Debug)]
pub struct Remote {
    /// Settings, guests, versions.
    pub room: Projection,
    members: Members,
    standing: Standing,
}

impl Remote {
    /// Makes sense of what a script read.
    pub fn read(standing: Standing) -> Result<Self, Unreadable> {
        let room = Projection::hydrate(&standing.state)?;
        Ok(Self { room, members: members_of(&standing.state), standing })
    }

    /// Its snapshot.
    pub fn snapshot<'a>(&'a self, app: &'a str, id: &'a str) -> Snapshot<'a> {
        let standing = &self.standing;
        let owner = standing.owner.split_once('/').map_or("", |(name, _)| name);
        let heading =
            Heading { app, id, status: &standing.state.status, owner, token: standing.token.as_u64() };
        Snapshot::new(heading, &self.room, &self.members)
    }
}

/// Peers as Redis has them, none of them connected here.
pub fn records_of(state: &RoomState) -> impl Iterator<Item = PeerRecord> + '_ {
    state.peers.iter().filter_map(|(peer, text)| match serde_json::from_str(text) {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::error!(peer, error = &error as &dyn std::error::Error, "a peer's record cannot be read");
            None
        }
    })
}

fn members_of(state: &RoomState) -> Members {
    let mut members = Members::default();
    let until = crate::clock::instant();
    for record in records_of(state) {
        members.insert(super::members::Member { record, link: super::members::Link::Away(until), seen: 0 });
    }
    members
}
