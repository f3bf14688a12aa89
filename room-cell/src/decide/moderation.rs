//! Who is put out, who runs the room, and whether the door is open.

use std::sync::Arc;

use super::Draft;
use super::presence::depart;
use super::right::Right;
use crate::cell::{Ban, Role};
use crate::event::{Event, LeaveReason};
use crate::id::UserId;
use crate::refusal::{Bounded, Refusal};

/// Most bans, and most roles given by command, of a room.
const MAX_KEPT: u32 = 10_000;
/// Bans that are over are dropped when there is no room for another: so many at a time.
const MAX_DROPPED: usize = 100;

pub(super) fn kick(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    user: &UserId,
    reason: Option<Arc<str>>,
    ban_seconds: Option<u64>,
) -> Result<(), Refusal> {
    right.host()?;
    if right.is(user) {
        return Err(Refusal::Outranked);
    }
    right.spares_creator(&draft.cell, user)?;
    if !draft.cell.bans.contains_key(user) {
        make_room_for_ban(draft)?;
    }
    let until = ban_seconds.map(|seconds| draft.now.after(seconds.saturating_mul(1000)));
    let ban = Ban { until, reason, at: draft.now };
    draft.push(Event::Banned { user: user.clone(), ban });
    depart(draft, user, LeaveReason::Kicked);
    Ok(())
}

fn make_room_for_ban(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    if draft.cell.bans.len() < MAX_KEPT as usize {
        return Ok(());
    }
    let over = draft.cell.bans.iter().filter(|(_, ban)| !ban.holds(draft.now));
    let over: Vec<UserId> = over.map(|(user, _)| user.clone()).take(MAX_DROPPED).collect();
    if over.is_empty() {
        return Err(Refusal::TooMany { what: Bounded::Bans, limit: MAX_KEPT });
    }
    for user in over {
        draft.push(Event::Unbanned { user });
    }
    Ok(())
}

pub(super) fn unban(draft: &mut Draft<'_>, right: &Right<'_>, user: &UserId) -> Result<(), Refusal> {
    right.host()?;
    if !draft.cell.bans.contains_key(user) {
        return Err(Refusal::NotBanned);
    }
    draft.push(Event::Unbanned { user: user.clone() });
    Ok(())
}

pub(super) fn set_role(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    user: &UserId,
    role: Role,
) -> Result<(), Refusal> {
    right.host()?;
    let presence = draft.cell.users.get(user).ok_or(Refusal::NotPresent)?;
    match role {
        Role::Host if presence.newest().is_none_or(|peer| peer.max_role < Role::Host) => {
            return Err(Refusal::TokenForbids);
        }
        Role::Host => {}
        Role::Guest => right.spares_creator(&draft.cell, user)?,
    }
    let given = draft.cell.roles.get(user);
    if given == Some(&role) && presence.role() == role {
        return Ok(());
    }
    if given.is_none() && draft.cell.roles.len() >= MAX_KEPT as usize {
        return Err(Refusal::TooMany { what: Bounded::Roles, limit: MAX_KEPT });
    }
    draft.push(Event::RoleChanged { user: user.clone(), role, given: true });
    Ok(())
}

pub(super) fn lock_door(draft: &mut Draft<'_>, right: &Right<'_>, locked: bool) -> Result<(), Refusal> {
    right.host()?;
    if draft.cell.locked != locked {
        draft.push(Event::DoorLocked { locked });
    }
    Ok(())
}
