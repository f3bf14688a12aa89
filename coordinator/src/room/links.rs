//! How each peer of a room is reached, and until when one that is not just now is waited for.

use room_cell::{Cell, GoneReason, PeerId};
use socketioxide::socket::Sid;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::time::Instant;

use crate::socket::Client;

/// How a peer is reached.
#[derive(Debug, Clone)]
pub enum Link {
    /// Over this connection.
    Connected(Client),
    /// Not just now; it ends at this time unless it comes back.
    Away {
        /// When it ends.
        until: Instant,
        /// As what it ends.
        reason: GoneReason,
    },
}

/// A peer's link, and the cell version that its client knows.
#[derive(Debug, Clone)]
pub struct Linked {
    /// Whose it is.
    pub user: Arc<str>,
    /// How it is reached.
    pub link: Link,
    /// What happened up to this version is known to it.
    pub seen: u64,
    /// The secret that its client got, to come back as this peer; unknown to who took the room over.
    pub secret: Option<Arc<str>>,
}

impl Linked {
    /// The connection, if there is one.
    pub const fn client(&self) -> Option<&Client> {
        match &self.link {
            Link::Connected(client) => Some(client),
            Link::Away { .. } => None,
        }
    }
}

/// The links of a room: one for each peer of its cell.
#[derive(Debug, Default)]
pub struct Links {
    by_peer: HashMap<PeerId, Linked>,
    by_connection: HashMap<Sid, PeerId>,
}

impl Links {
    /// All links.
    pub fn iter(&self) -> impl Iterator<Item = (&PeerId, &Linked)> {
        self.by_peer.iter()
    }

    /// All links, to note what their clients have seen.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Linked> {
        self.by_peer.values_mut()
    }

    /// All connections.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.by_peer.values().filter_map(Linked::client)
    }

    /// The link of this peer.
    pub fn get(&self, peer: &str) -> Option<&Linked> {
        self.by_peer.get(peer)
    }

    /// The link of this peer, to note what its client has seen.
    pub fn get_mut(&mut self, peer: &str) -> Option<&mut Linked> {
        self.by_peer.get_mut(peer)
    }

    /// The peer of this connection.
    pub fn of_connection(&self, sid: Sid) -> Option<&PeerId> {
        self.by_connection.get(&sid)
    }

    /// Whether this peer has lost its connection.
    pub fn is_away(&self, peer: &str) -> bool {
        self.by_peer.get(peer).is_none_or(|linked| linked.client().is_none())
    }

    /// Users who have a peer that is connected.
    pub fn connected_users(&self) -> HashSet<&Arc<str>> {
        self.by_peer.values().filter(|linked| linked.client().is_some()).map(|linked| &linked.user).collect()
    }

    /// Links a peer, in place of what it was linked to.
    pub fn insert(&mut self, peer: PeerId, linked: Linked) {
        self.remove(peer.as_str());
        if let Some(client) = linked.client() {
            self.by_connection.insert(client.sid(), peer.clone());
        }
        self.by_peer.insert(peer, linked);
    }

    /// Forgets a peer.
    pub fn remove(&mut self, peer: &str) -> Option<Linked> {
        let linked = self.by_peer.remove(peer)?;
        if let Some(client) = linked.client() {
            self.by_connection.remove(&client.sid());
        }
        Some(linked)
    }

    /// The peer of this connection is away from now on. Returns whether there is one.
    pub fn lose(&mut self, sid: Sid, until: Instant) -> bool {
        let Some(peer) = self.by_connection.remove(&sid) else { return false };
        let Some(linked) = self.by_peer.get_mut(&peer) else { return false };
        linked.link = Link::Away { until, reason: GoneReason::StaleLeft };
        true
    }

    /// Whoever is away is waited for until then, anew.
    pub fn wait_again(&mut self, until: Instant) {
        for linked in self.by_peer.values_mut() {
            if let Link::Away { until: old, .. } = &mut linked.link {
                *old = until;
            }
        }
    }

    /// Brings the links to a cell's peers: unknown ones are away, and those that the cell does not have are
    /// returned with their links.
    pub fn meet(&mut self, cell: &Cell, until: Instant, reason: GoneReason) -> Vec<(PeerId, Linked)> {
        for (peer, user) in &cell.peers {
            if !self.by_peer.contains_key(peer) {
                let link = Link::Away { until, reason };
                self.by_peer
                    .insert(peer.clone(), Linked { user: user.shared(), link, seen: 0, secret: None });
            }
        }
        let lost: Vec<PeerId> =
            self.by_peer.keys().filter(|peer| !cell.peers.contains_key(*peer)).cloned().collect();
        lost.into_iter()
            .filter_map(|peer| {
                let linked = self.remove(peer.as_str())?;
                Some((peer, linked))
            })
            .collect()
    }

    /// Peers whose time away is over, by why they end, and when the next one's is.
    pub fn overdue(&self, now: Instant) -> (Vec<(PeerId, GoneReason)>, Option<Instant>) {
        let (mut over, mut next) = (Vec::new(), None);
        if self.by_connection.len() == self.by_peer.len() {
            return (over, next);
        }
        for (peer, linked) in &self.by_peer {
            if let Link::Away { until, reason } = linked.link {
                if until <= now {
                    over.push((peer.clone(), reason));
                } else {
                    next = Some(next.map_or(until, |earliest: Instant| earliest.min(until)));
                }
            }
        }
        (over, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn away(until: Instant) -> Linked {
        Linked {
            user: "ann".into(),
            link: Link::Away { until, reason: GoneReason::StaleLeft },
            seen: 0,
            secret: None,
        }
    }

    #[test]
    fn time_away_ends() {
        let now = Instant::now();
        let mut links = Links::default();
        links.insert("p1".into(), away(now + Duration::from_secs(30)));
        links.insert("p2".into(), away(now + Duration::from_secs(60)));
        assert_eq!(links.overdue(now), (Vec::new(), Some(now + Duration::from_secs(30))));
        let (over, next) = links.overdue(now + Duration::from_secs(31));
        assert_eq!(over, [("p1".into(), GoneReason::StaleLeft)]);
        assert_eq!(next, Some(now + Duration::from_secs(60)));
        links.wait_again(now + Duration::from_secs(90));
        assert!(links.overdue(now + Duration::from_secs(61)).0.is_empty());
    }

    #[test]
    fn links_follow_the_cell() {
        let now = Instant::now();
        let mut links = Links::default();
        links.insert("old".into(), away(now));
        let mut cell = Cell::default();
        cell.peers.insert("new".into(), "bob".into());
        let lost = links.meet(&cell, now, GoneReason::InstanceLost);
        assert_eq!(lost.iter().map(|(peer, _)| peer.as_str()).collect::<Vec<_>>(), ["old"]);
        assert_eq!(links.overdue(now).0, [("new".into(), GoneReason::InstanceLost)]);
    }
}
