//! Who is in the room, and with which connections.

use serde_json::{Map, Value};
use std::sync::Arc;

use super::right::Right;
use super::{Draft, active, call, seats};
use crate::cell::{CallReason, Peer, Role};
use crate::command::{Actor, Devices, GoneReason, Joining};
use crate::event::{AskEnd, Event, LeaveReason, MicEnd};
use crate::id::{PeerId, UserId};
use crate::refusal::{Bounded, Refusal};

/// Most connections of one user in a room.
const MAX_DEVICES: u32 = 8;

pub(super) fn join(draft: &mut Draft<'_>, actor: &Actor, joining: &Joining) -> Result<(), Refusal> {
    let Actor::User { user, max_role, .. } = actor else { return Err(Refusal::HostsOnly) };
    active(&draft.cell)?;
    let ban = draft.cell.bans.get(user);
    if ban.is_some_and(|ban| ban.holds(draft.now)) {
        return Err(Refusal::Banned);
    }
    let ban_is_over = ban.is_some();
    if let Some(whose) = draft.cell.peers.get(&joining.peer) {
        return if whose == user { Ok(()) } else { Err(Refusal::NotMember) };
    }
    let wanted = draft.cell.roles.get(user).copied().unwrap_or(joining.role).min(*max_role);
    let present = draft.cell.users.get(user).cloned();
    if present.is_none() {
        if draft.cell.locked && wanted == Role::Guest {
            return Err(Refusal::DoorLocked);
        }
        let full = draft.cell.capacity.filter(|most| draft.cell.users.len() >= *most as usize);
        if let Some(capacity) = full {
            return Err(Refusal::Full { capacity });
        }
    }
    let present = present.unwrap_or_default();
    let (replaced, stay): (Vec<&Arc<Peer>>, Vec<&Arc<Peer>>) =
        present.peers.iter().partition(|peer| takes_place_of(joining, peer));
    let replaced = match draft.rules.devices {
        _ if stay.is_empty() => replaced,
        Devices::Replace => present.peers.iter().collect(),
        Devices::Reject => return Err(Refusal::SecondDevice),
        Devices::Allow if stay.len() >= MAX_DEVICES as usize => {
            return Err(Refusal::TooMany { what: Bounded::Devices, limit: MAX_DEVICES });
        }
        Devices::Allow => replaced,
    };
    let replaced: Vec<PeerId> = replaced.into_iter().map(|peer| peer.peer.clone()).collect();
    let others = present.peers.iter().filter(|peer| !replaced.contains(&peer.peer));
    // One role for all connections of a user: the highest, as far as one of their tokens allows it.
    let allowed = others.clone().map(|peer| peer.max_role).fold(*max_role, Role::max);
    let role = others.map(|peer| peer.role).fold(wanted, Role::max).min(allowed);
    // The page that lost its connection still has its media: it goes on under the name that it has there.
    let resumed = present.peers.iter().find(|peer| joining.resumes.as_ref() == Some(&peer.resume));
    let called = resumed.and_then(|peer| peer.media.as_ref());
    let newest = present.newest();
    let earliest = present.peers.iter().map(|peer| peer.joined_at).min();
    let peer = Arc::new(Peer {
        peer: joining.peer.clone(),
        user: user.clone(),
        role,
        max_role: *max_role,
        name: joining.name.clone(),
        avatar: joining.avatar.clone(),
        attributes: joining.attributes.clone(),
        device: joining.device.clone(),
        media: joining.media.as_ref().map(|own| Arc::clone(called.unwrap_or(own))),
        resume: Arc::clone(&joining.resume),
        joined_at: earliest.unwrap_or(draft.now),
        since: newest.map_or(draft.now, |newest| draft.now.max(newest.since.after(1))),
    });
    if ban_is_over {
        draft.push(Event::Unbanned { user: user.clone() });
    }
    let arrived = present.peers.is_empty();
    draft.push(Event::Joined { peer, replaced: replaced.clone(), arrived });
    let seat = draft.cell.seat_of(user.as_str()).filter(|(_, sitter)| replaced.contains(&sitter.peer));
    if let Some((seat, sitter)) = seat {
        let session = sitter.session.clone();
        draft.push(Event::SeatKept { seat, session, peer: joining.peer.clone() });
        if called.is_none() {
            seats::await_again(draft, seat);
        }
    }
    Ok(())
}

/// Whether a joining connection is an earlier one that comes again.
fn takes_place_of(joining: &Joining, peer: &Peer) -> bool {
    joining.away.contains(&peer.peer)
        || (joining.device.is_some() && joining.device == peer.device)
        || joining.resumes.as_ref() == Some(&peer.resume)
}

pub(super) fn leave(draft: &mut Draft<'_>, right: &Right<'_>) -> Result<(), Refusal> {
    let (user, peer, _) = right.connection()?;
    end_peer(draft, user, peer, LeaveReason::Left);
    Ok(())
}

pub(super) fn gone(draft: &mut Draft<'_>, peers: &[PeerId], reason: GoneReason) {
    let reason = match reason {
        GoneReason::StaleLeft => LeaveReason::StaleLeft,
        GoneReason::InstanceLost => LeaveReason::InstanceLost,
        GoneReason::Kicked => LeaveReason::Kicked,
    };
    for peer in peers {
        if let Some(user) = draft.cell.peers.get(peer).cloned() {
            end_peer(draft, &user, peer, reason);
        }
    }
}

fn end_peer(draft: &mut Draft<'_>, user: &UserId, peer: &PeerId, reason: LeaveReason) {
    let others = draft.cell.users.get(user).is_some_and(|presence| presence.peers.len() > 1);
    if !others {
        depart(draft, user, reason);
        return;
    }
    let seat = draft.cell.seat_of(user.as_str()).filter(|(_, sitter)| sitter.peer == *peer);
    if let Some((number, _)) = seat {
        seats::free(draft, number, mic_end(reason));
    }
    draft.push(Event::PeerEnded { peer: peer.clone(), user: user.clone(), reason });
    cap_role(draft, user);
}

/// Ends somebody's presence, and everything that hangs on it.
pub(super) fn depart(draft: &mut Draft<'_>, user: &UserId, reason: LeaveReason) {
    let Some(presence) = draft.cell.users.get(user) else { return };
    let peers = presence.peers.iter().map(|peer| peer.peer.clone()).collect();
    if let Some((number, _)) = draft.cell.seat_of(user.as_str()) {
        seats::free(draft, number, mic_end(reason));
    }
    if draft.cell.requests.contains_key(user) {
        draft.push(Event::RequestEnded { user: user.clone(), how: AskEnd::Gone });
    }
    if draft.cell.invites.contains_key(user) {
        draft.push(Event::InviteEnded { user: user.clone(), how: AskEnd::Gone });
    }
    call::cut(draft, Some(user), CallReason::PartyLeft);
    draft.push(Event::Left { user: user.clone(), peers, reason });
}

const fn mic_end(reason: LeaveReason) -> MicEnd {
    match reason {
        LeaveReason::Left => MicEnd::Left,
        LeaveReason::StaleLeft => MicEnd::StaleLeft,
        LeaveReason::InstanceLost => MicEnd::InstanceLost,
        LeaveReason::Kicked => MicEnd::Kicked,
        LeaveReason::ClosedLeft => MicEnd::RoomClosed,
    }
}

/// Lowers a role that no token of the user's connections allows any more.
fn cap_role(draft: &mut Draft<'_>, user: &UserId) {
    let Some(presence) = draft.cell.users.get(user) else { return };
    let allowed = presence.peers.iter().map(|peer| peer.max_role).max().unwrap_or(Role::Guest);
    if presence.role() > allowed {
        draft.push(Event::RoleChanged { user: user.clone(), role: allowed, given: false });
    }
}

pub(super) fn token_renewed(draft: &mut Draft<'_>, right: &Right<'_>) -> Result<(), Refusal> {
    let (user, peer, max_role) = right.connection()?;
    let known = draft.cell.peer(peer.as_str()).map(|peer| peer.max_role);
    if known != Some(max_role) {
        draft.push(Event::TokenAllows { peer: peer.clone(), max_role });
    }
    cap_role(draft, user);
    Ok(())
}

pub(super) fn update_peer(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    patch: &Map<String, Value>,
    max_bytes: usize,
) -> Result<(), Refusal> {
    let (user, peer, _) = right.connection()?;
    let before = draft.cell.peer(peer.as_str()).map(|peer| &peer.attributes).ok_or(Refusal::NotMember)?;
    let mut attributes = before.clone();
    merge(&mut attributes, patch);
    if attributes == *before {
        return Ok(());
    }
    let bytes = serde_json::to_vec(&attributes).map_or(usize::MAX, |json| json.len());
    if bytes > max_bytes {
        let whole = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        return Err(Refusal::TooLarge { bytes: whole(bytes), max: whole(max_bytes) });
    }
    draft.push(Event::PeerUpdated { peer: peer.clone(), user: user.clone(), attributes });
    Ok(())
}

/// JSON merge patch (RFC 7396), for objects.
fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(inner) => {
                let mut merged = match target.remove(name) {
                    Some(Value::Object(object)) => object,
                    _ => Map::new(),
                };
                merge(&mut merged, inner);
                target.insert(name.clone(), Value::Object(merged));
            }
            other => {
                target.insert(name.clone(), other.clone());
            }
        }
    }
}
