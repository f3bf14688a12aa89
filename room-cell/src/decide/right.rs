//! Who asks, and what they may do.

use crate::cell::{Cell, Presence, Role, Status};
use crate::command::Actor;
use crate::id::{Millis, PeerId, UserId};
use crate::refusal::Refusal;

/// What somebody may do in a room.
pub(super) struct Right<'a> {
    /// Who; none: the app's back end.
    user: Option<&'a UserId>,
    /// The connection that asks, if it is a member.
    peer: Option<&'a PeerId>,
    /// The most that its token allows.
    max_role: Role,
    role: Role,
}

impl<'a> Right<'a> {
    /// The right of an actor: the user's role here, or else the one given by command, or else all that the
    /// token allows; never more than the token allows. A connection that was replaced has none (I-21);
    /// in a room that is over nobody is connected, and it does not matter.
    pub(super) fn of(cell: &Cell, actor: &'a Actor, now: Millis) -> Result<Self, Refusal> {
        let (user, max_role, peer) = match actor {
            Actor::User { user, max_role, peer } => (user, *max_role, peer.as_ref()),
            Actor::Backend => {
                return Ok(Self { user: None, peer: None, max_role: Role::Host, role: Role::Host });
            }
            Actor::Media | Actor::Owner => return Err(Refusal::HostsOnly),
        };
        if cell.bans.get(user).is_some_and(|ban| ban.holds(now)) {
            return Err(Refusal::Banned);
        }
        let over = matches!(cell.status, Status::Closing { .. } | Status::Closed);
        if !over && peer.is_some_and(|peer| cell.peers.get(peer) != Some(user)) {
            return Err(Refusal::NotMember);
        }
        let present = cell.users.get(user).map(Presence::role);
        let role = present.or_else(|| cell.roles.get(user).copied()).unwrap_or(max_role);
        Ok(Self { user: Some(user), peer, max_role, role: role.min(max_role) })
    }

    pub(super) fn host(&self) -> Result<(), Refusal> {
        if self.role == Role::Host { Ok(()) } else { Err(Refusal::HostsOnly) }
    }

    /// Whether the actor is this user.
    pub(super) fn is(&self, user: &UserId) -> bool {
        self.user == Some(user)
    }

    /// Refuses what is done to the room's creator, unless by the creator or the back end.
    pub(super) fn spares_creator(&self, cell: &Cell, target: &UserId) -> Result<(), Refusal> {
        let creator = cell.creator.as_ref() == Some(target);
        if creator && self.user.is_some() && !self.is(target) { Err(Refusal::Creator) } else { Ok(()) }
    }

    /// The actor's own connection, with the most that its token allows.
    pub(super) fn connection(&self) -> Result<(&'a UserId, &'a PeerId, Role), Refusal> {
        let (Some(user), Some(peer)) = (self.user, self.peer) else { return Err(Refusal::NotMember) };
        Ok((user, peer, self.max_role))
    }

    /// The actor as a member. A host may ask through another connection than the one that is a member.
    pub(super) fn member(&self, cell: &Cell) -> Result<(&'a UserId, PeerId), Refusal> {
        let user = self.user.ok_or(Refusal::NotMember)?;
        if let Some(peer) = self.peer {
            return Ok((user, peer.clone()));
        }
        let newest = cell.users.get(user).and_then(|presence| presence.newest());
        match newest {
            Some(newest) if self.role == Role::Host => Ok((user, newest.peer.clone())),
            _ => Err(Refusal::NotMember),
        }
    }

    /// Who a command is about, and with which connection: whoever is `named`, which only a host may do for
    /// somebody else, or the actor.
    pub(super) fn target(&self, cell: &Cell, named: Option<&UserId>) -> Result<(UserId, PeerId), Refusal> {
        let Some(other) = named.filter(|named| !self.is(named)) else {
            return self.member(cell).map(|(user, peer)| (user.clone(), peer));
        };
        self.host()?;
        let newest = cell.users.get(other).and_then(|presence| presence.newest());
        newest.map(|newest| (other.clone(), newest.peer.clone())).ok_or(Refusal::NotPresent)
    }
}
