//! Who is in a room, over which connection, and who is away but not gone.

use socketioxide::socket::Sid;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use tokio::time::Instant;

use super::peer::{PeerRecord, PeerView, Role};
use crate::config::Devices;
use crate::socket::Client;

/// How a peer is reached.
#[derive(Debug, Clone)]
pub enum Link {
    /// Over this connection.
    Connected(Client),
    /// Not just now; it ends at this time unless it comes back.
    Away(Instant),
}

/// A peer with its link and the cell version of the snapshot it was given.
#[derive(Debug, Clone)]
pub struct Member {
    /// The peer as Redis has it.
    pub record: PeerRecord,
    /// How it is reached.
    pub link: Link,
    /// Presence up to this version is known to it.
    pub seen: u64,
}

impl Member {
    /// The connection, if there is one.
    pub const fn client(&self) -> Option<&Client> {
        match &self.link {
            Link::Connected(client) => Some(client),
            Link::Away(_) => None,
        }
    }
}

/// What a join does to the peers that its user has already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replacement {
    /// Peers that end with it.
    pub peers: Vec<Arc<str>>,
    /// When the user came, if it is there.
    pub joined_at: Option<u64>,
    /// Whether one of its other devices stays.
    pub others_stay: bool,
}

/// The `devices` policy refuses another device.
#[derive(Debug, PartialEq, Eq)]
pub struct SecondDevice;

/// The peers of a room, found by id, by user and by connection.
#[derive(Debug, Default)]
pub struct Members {
    by_peer: HashMap<Arc<str>, Member>,
    by_user: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    by_connection: HashMap<Sid, Arc<str>>,
    /// Number of peers that are hosts, by user.
    hosts: BTreeMap<Arc<str>, usize>,
}

impl Members {
    /// Number of peers.
    pub fn len(&self) -> usize {
        self.by_peer.len()
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.by_peer.is_empty()
    }

    /// Number of users.
    pub fn users(&self) -> usize {
        self.by_user.len()
    }

    /// All peers.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.by_peer.values()
    }

    /// All peers, to note what they have seen.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.by_peer.values_mut()
    }

    /// The peer of this id.
    pub fn get(&self, peer: &str) -> Option<&Member> {
        self.by_peer.get(peer)
    }

    /// The peer of this id, to note what it has seen.
    pub fn get_mut(&mut self, peer: &str) -> Option<&mut Member> {
        self.by_peer.get_mut(peer)
    }

    /// The peer of this connection.
    pub fn of_connection(&self, sid: Sid) -> Option<&Member> {
        self.by_peer.get(self.by_connection.get(&sid)?)
    }

    /// The user's peers.
    pub fn of_user<'a>(&'a self, user: &str) -> impl Iterator<Item = &'a Member> + use<'a> {
        self.by_user.get(user).into_iter().flatten().filter_map(|peer| self.by_peer.get(peer))
    }

    /// Users who have a peer that is connected.
    pub fn connected_users(&self) -> impl Iterator<Item = &Arc<str>> {
        let is_connected = |peer: &Arc<str>| self.by_peer.get(peer).is_some_and(|it| it.client().is_some());
        self.by_user.iter().filter(move |(_, peers)| peers.iter().any(is_connected)).map(|(user, _)| user)
    }

    /// Puts a peer in, in place of one of the same id.
    pub fn insert(&mut self, member: Member) {
        let (peer, user) = (Arc::clone(&member.record.peer), Arc::clone(&member.record.user));
        self.remove(&peer);
        if let Some(client) = member.client() {
            self.by_connection.insert(client.sid(), Arc::clone(&peer));
        }
        if member.record.role == Role::Host {
            *self.hosts.entry(Arc::clone(&user)).or_default() += 1;
        }
        self.by_user.entry(user).or_default().push(Arc::clone(&peer));
        self.by_peer.insert(peer, member);
    }

    /// Takes a peer out.
    pub fn remove(&mut self, peer: &str) -> Option<Member> {
        let member = self.by_peer.remove(peer)?;
        if let Some(client) = member.client() {
            self.by_connection.remove(&client.sid());
        }
        if member.record.role == Role::Host
            && let Some(peers) = self.hosts.get_mut(&member.record.user)
        {
            *peers -= 1;
            if *peers == 0 {
                self.hosts.remove(&member.record.user);
            }
        }
        if let Some(peers) = self.by_user.get_mut(&member.record.user) {
            peers.retain(|other| **other != *peer);
            if peers.is_empty() {
                self.by_user.remove(&member.record.user);
            }
        }
        Some(member)
    }

    /// The peer of this connection is away from now on; `None` if it has none (any more).
    pub fn lose(&mut self, sid: Sid, until: Instant) -> Option<&Member> {
        let peer = self.by_connection.remove(&sid)?;
        let member = self.by_peer.get_mut(&peer)?;
        member.link = Link::Away(until);
        Some(member)
    }

    /// Peers whose time away is over, and when the next one's is.
    pub fn overdue(&self, now: Instant) -> (Vec<Arc<str>>, Option<Instant>) {
        let (mut over, mut next) = (Vec::new(), None);
        if self.by_connection.len() == self.by_peer.len() {
            return (over, next);
        }
        for member in self.by_peer.values() {
            if let Link::Away(until) = member.link {
                if until <= now {
                    over.push(Arc::clone(&member.record.peer));
                } else {
                    next = Some(next.map_or(until, |earliest: Instant| earliest.min(until)));
                }
            }
        }
        (over, next)
    }

    /// What becomes of the user's other peers when one joins from `device`, or resuming an earlier one.
    ///
    /// Peers that are away are taken for the same person coming back; peers of the same device are
    /// replaced; other devices follow the policy.
    pub fn replaced_by(
        &self,
        user: &str,
        device: Option<&str>,
        resume: Option<&str>,
        policy: Devices,
    ) -> Result<Replacement, SecondDevice> {
        let mut replacement = Replacement::default();
        for member in self.of_user(user) {
            let record = &member.record;
            replacement.joined_at =
                Some(replacement.joined_at.map_or(record.joined_at, |at| at.min(record.joined_at)));
            let same_device = device.is_some() && record.device.as_deref() == device;
            let resumed = resume.is_some_and(|resume| *record.resume == *resume);
            if same_device || resumed || member.client().is_none() || policy == Devices::Replace {
                replacement.peers.push(Arc::clone(&record.peer));
            } else if policy == Devices::Reject {
                return Err(SecondDevice);
            } else {
                replacement.others_stay = true;
            }
        }
        Ok(replacement)
    }

    /// A user as others see it; `None` if it has no peer.
    pub fn view(&self, user: &str) -> Option<PeerView> {
        let mut view: Option<PeerView> = None;
        let mut newest = 0;
        for record in self.of_user(user).map(|member| &member.record) {
            let view = view.get_or_insert_with(|| PeerView {
                user: Arc::clone(&record.user),
                name: record.name.clone(),
                role: record.role,
                attributes: record.attributes.clone(),
                devices: 0,
                joined_at: record.joined_at,
            });
            view.devices += 1;
            view.role = view.role.max(record.role);
            if record.joined_at > newest {
                newest = record.joined_at;
                view.attributes.clone_from(&record.attributes);
            }
            view.joined_at = view.joined_at.min(record.joined_at);
        }
        view
    }

    /// Up to `limit` users in order of their ids, after `cursor`; and where the next page begins.
    pub fn page(&self, cursor: Option<&str>, limit: usize) -> (Vec<PeerView>, Option<Arc<str>>) {
        let after = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let mut users = self.by_user.range::<str, _>((after, Bound::Unbounded)).map(|(user, _)| user);
        let page: Vec<&Arc<str>> = users.by_ref().take(limit).collect();
        let next = users.next().and(page.last()).map(|user| Arc::clone(user));
        (page.into_iter().filter_map(|user| self.view(user)).collect(), next)
    }

    /// Users with a peer that is a host.
    pub fn hosts(&self) -> Vec<Arc<str>> {
        self.hosts.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn away(peer: &str, user: &str, device: Option<&str>, joined_at: u64) -> Member {
        Member {
            record: PeerRecord {
                peer: peer.into(),
                user: user.into(),
                role: Role::Guest,
                name: None,
                attributes: serde_json::Map::new(),
                device: device.map(Into::into),
                resume: format!("resume-{peer}").into(),
                joined_at,
            },
            link: Link::Away(Instant::now() + Duration::from_secs(30)),
            seen: 0,
        }
    }

    #[test]
    fn i_21_who_comes_back_replaces_the_peer_that_was_away() {
        let mut members = Members::default();
        members.insert(away("p1", "ann", None, 5));
        let replacement = members.replaced_by("ann", None, None, Devices::Allow).unwrap();
        assert_eq!(replacement.peers, ["p1".into()]);
        assert_eq!(replacement.joined_at, Some(5), "it has been here since");
        assert!(!replacement.others_stay);
        assert_eq!(members.replaced_by("bob", None, None, Devices::Reject).unwrap(), Replacement::default());
    }

    #[test]
    fn a_user_is_seen_once_whatever_its_devices() {
        let mut members = Members::default();
        members.insert(away("p1", "ann", Some("phone"), 5));
        members.insert(away("p2", "ann", Some("desk"), 9));
        members.insert(away("p3", "bob", None, 7));
        assert_eq!((members.len(), members.users()), (3, 2));
        let view = members.view("ann").unwrap();
        assert_eq!((view.devices, view.joined_at), (2, 5));
        members.remove("p1");
        assert_eq!(members.view("ann").unwrap().devices, 1);
        members.remove("p2");
        assert_eq!((members.view("ann"), members.users()), (None, 1));
    }

    #[test]
    fn a_user_is_a_host_as_long_as_one_of_its_peers_is() {
        let mut members = Members::default();
        for (peer, role) in [("p1", Role::Host), ("p2", Role::Host), ("p3", Role::Guest)] {
            let mut member = away(peer, "ann", Some(peer), 5);
            member.record.role = role;
            members.insert(member);
        }
        for (peer, hosts) in [("p3", 1), ("p1", 1), ("p2", 0)] {
            members.remove(peer);
            assert_eq!(members.hosts().len(), hosts, "without {peer}");
        }
    }

    #[test]
    fn pages_go_by_user_and_end() {
        let mut members = Members::default();
        for n in 0..5 {
            members.insert(away(&format!("p{n}"), &format!("u{n}"), None, n));
        }
        let (first, cursor) = members.page(None, 2);
        assert_eq!((first.len(), cursor.as_deref()), (2, Some("u1")));
        let (last, cursor) = members.page(Some("u3"), 2);
        assert_eq!((last.len(), cursor), (1, None));
        let (exact, cursor) = members.page(Some("u2"), 2);
        assert_eq!((exact.len(), cursor), (2, None));
    }

    #[test]
    fn time_away_ends() {
        let mut members = Members::default();
        members.insert(away("p1", "ann", None, 5));
        let now = Instant::now();
        assert!(members.overdue(now).0.is_empty());
        assert_eq!(members.overdue(now + Duration::from_secs(31)).0, ["p1".into()]);
    }
}
