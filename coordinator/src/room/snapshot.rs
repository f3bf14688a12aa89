//! A room as a client sees it when it comes, or watches.

use redis_scripts::{RoomState, Standing};
use room_cell::{Asked, Call, Cell, Role, Seat, SeatNumber, Speaking, UserId};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::peer::PeerView;
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
    #[serde(skip_serializing_if = "Option::is_none")]
    creator: Option<&'a UserId>,
    hosts: Vec<&'a UserId>,
    locked: bool,
    owner: OwnerView<'a>,
    version: VersionView,
    settings: &'a Map<String, Value>,
    guests: &'a Map<String, Value>,
    seats: Vec<SeatView<'a>>,
    requests: BTreeMap<&'a UserId, &'a Asked>,
    invites: BTreeMap<&'a UserId, &'a Asked>,
    peers: Vec<PeerView>,
    peer_count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers_cursor: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a Call>,
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

/// A seat as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeatView<'a> {
    seat: SeatNumber,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mic_session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    muted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<u64>,
}

impl<'a> SeatView<'a> {
    /// The seat of this number.
    pub fn of(seat: SeatNumber, state: &'a Seat) -> Self {
        let empty = Self { seat, state: "idle", user: None, mic_session: None, muted: None, deadline: None };
        let Some(sitter) = &state.sitter else {
            return if state.locked { Self { state: "locked", ..empty } } else { empty };
        };
        let (state, deadline) = match sitter.speaking {
            Speaking::PendingPublish { deadline } => ("pending_publish", Some(deadline.0)),
            Speaking::Publishing { .. } => ("publishing", None),
        };
        Self {
            seat,
            state,
            user: Some(sitter.user.as_str()),
            mic_session: Some(sitter.session.as_str()),
            muted: Some(sitter.muted),
            deadline,
        }
    }
}

/// Up to `limit` users in order of their ids, after `cursor`; and where the next page begins.
pub fn page(cell: &Cell, cursor: Option<&str>, limit: usize) -> (Vec<PeerView>, Option<Arc<str>>) {
    let after = cursor.map_or(Bound::Unbounded, Bound::Excluded);
    let mut users = cell.users.range::<_, str>((after, Bound::Unbounded));
    let page: Vec<PeerView> =
        users.by_ref().take(limit).filter_map(|(_, presence)| PeerView::of(presence)).collect();
    let next = users.next().and(page.last()).map(|view| Arc::clone(&view.user));
    (page, next)
}

/// Users present who are hosts.
pub fn hosts(cell: &Cell) -> Vec<&UserId> {
    cell.users.iter().filter(|(_, presence)| presence.role() == Role::Host).map(|(user, _)| user).collect()
}

impl<'a> Snapshot<'a> {
    /// A room.
    pub fn new(heading: Heading<'a>, room: &'a Projection, cell: &'a Cell) -> Self {
        let (peers, peers_cursor) = page(cell, None, PEERS_IN_SNAPSHOT);
        Self {
            app: heading.app,
            id: heading.id,
            status: cell.status.word(),
            creator: cell.creator.as_ref(),
            hosts: hosts(cell),
            locked: cell.locked,
            owner: OwnerView { instance: heading.owner, token: heading.token },
            version: VersionView { settings: room.sv.as_u64(), cell: cell.version },
            settings: &room.settings,
            guests: &room.guests,
            seats: cell.seats.iter().map(|(number, seat)| SeatView::of(*number, seat)).collect(),
            requests: cell.requests.iter().collect(),
            invites: cell.invites.iter().collect(),
            peers,
            peer_count: cell.peers.len(),
            peers_cursor,
            call: cell.call.as_ref(),
        }
    }
}

/// Reads the cell of a room as Redis holds it.
pub fn cell_of(state: &RoomState) -> Result<Cell, room_cell::Unreadable> {
    Cell::read(state.cv.as_u64(), &state.status, &state.cell, &state.peers)
}

/// A room that another instance runs, or nobody, as read from Redis.
#[derive(Debug)]
pub struct Remote {
    /// Settings, guests, their version.
    pub room: Projection,
    cell: Cell,
    standing: Standing,
}

/// A stored room that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableRoom {
    /// Its settings or guest states.
    #[error(transparent)]
    Settings(#[from] Unreadable),
    /// Its cell.
    #[error(transparent)]
    Cell(#[from] room_cell::Unreadable),
}

impl Remote {
    /// Makes sense of what a script read.
    pub fn read(standing: Standing) -> Result<Self, UnreadableRoom> {
        let room = Projection::hydrate(&standing.state)?;
        Ok(Self { room, cell: cell_of(&standing.state)?, standing })
    }

    /// What its owner decided.
    pub const fn cell(&self) -> &Cell {
        &self.cell
    }

    /// Its snapshot.
    pub fn snapshot<'a>(&'a self, app: &'a str, id: &'a str) -> Snapshot<'a> {
        let standing = &self.standing;
        let owner = standing.owner.split_once('/').map_or("", |(name, _)| name);
        Snapshot::new(Heading { app, id, owner, token: standing.token.as_u64() }, &self.room, &self.cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use room_cell::{Millis, Peer, Presence};

    fn cell_of_users(users: u64) -> Cell {
        let mut cell = Cell::default();
        for n in 0..users {
            let peer = Peer {
                peer: format!("p{n}").as_str().into(),
                user: format!("u{n}").as_str().into(),
                role: if n == 0 { Role::Host } else { Role::Guest },
                max_role: Role::Host,
                name: None,
                avatar: None,
                attributes: Map::new(),
                device: None,
                media: None,
                resume: "r".into(),
                joined_at: Millis(n),
                since: Millis(n),
            };
            cell.peers.insert(peer.peer.clone(), peer.user.clone());
            cell.users.insert(peer.user.clone(), Presence { peers: vec![Arc::new(peer)] });
        }
        cell
    }

    #[test]
    fn pages_go_by_user_and_end() {
        let cell = cell_of_users(5);
        let (first, cursor) = page(&cell, None, 2);
        assert_eq!((first.len(), cursor.as_deref()), (2, Some("u1")));
        let (last, cursor) = page(&cell, Some("u3"), 2);
        assert_eq!((last.len(), cursor), (1, None));
        let (exact, cursor) = page(&cell, Some("u2"), 2);
        assert_eq!((exact.len(), cursor), (2, None));
        assert_eq!(hosts(&cell), [&UserId::from("u0")]);
    }

    #[test]
    fn a_seat_is_shown_as_what_it_is() {
        let text = |seat: &Seat| serde_json::to_string(&SeatView::of(2, seat)).unwrap();
        assert_eq!(text(&Seat::default()), r#"{"seat":2,"state":"idle"}"#);
        assert_eq!(text(&Seat { locked: true, sitter: None }), r#"{"seat":2,"state":"locked"}"#);
    }
}
