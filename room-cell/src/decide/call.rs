//! The call within a room: one at a time, and each change only from the state before it.

use super::Draft;
use super::right::Right;
use crate::cell::{Call, CallReason, CallState};
use crate::event::Event;
use crate::id::{CallId, UserId};
use crate::refusal::Refusal;

pub(super) fn invite(
    draft: &mut Draft<'_>,
    right: &Right<'_>,
    id: &CallId,
    to: &[UserId],
) -> Result<(), Refusal> {
    let (from, _) = right.member(&draft.cell)?;
    if let Some(newest) = &draft.cell.call {
        return match newest.state {
            state if newest.id == *id && newest.from == *from && state.is_over() => {
                Err(Refusal::CallStands { state })
            }
            _ if newest.id == *id && newest.from == *from => Ok(()),
            state if state.is_over() => start(draft, from, id, to),
            _ => Err(Refusal::CallGoingOn),
        };
    }
    start(draft, from, id, to)
}

fn start(draft: &mut Draft<'_>, from: &UserId, id: &CallId, to: &[UserId]) -> Result<(), Refusal> {
    let mut called: Vec<UserId> = Vec::with_capacity(to.len());
    for user in to.iter().filter(|user| *user != from) {
        if !called.contains(user) {
            called.push(user.clone());
        }
    }
    if called.is_empty() {
        return Err(Refusal::NotInCall);
    }
    let call = Call {
        id: id.clone(),
        state: CallState::Started,
        from: from.clone(),
        to: called,
        accepted_by: None,
        declined_by: Vec::new(),
        at: draft.now,
        deadline: Some(draft.now.after(draft.rules.ring_ms)),
        reason: None,
    };
    draft.push(Event::CallStarted { call });
    Ok(())
}

/// The newest call, if it is the one that is meant.
fn standing(draft: &Draft<'_>, id: Option<&CallId>) -> Result<Call, Refusal> {
    let newest = draft.cell.call.as_ref().filter(|call| id.is_none_or(|id| call.id == *id));
    newest.cloned().ok_or(Refusal::NoCall)
}

pub(super) fn accept(draft: &mut Draft<'_>, right: &Right<'_>, id: Option<&CallId>) -> Result<(), Refusal> {
    let (user, _) = right.member(&draft.cell)?;
    let call = standing(draft, id)?;
    if !call.to.contains(user) {
        return Err(Refusal::NotInCall);
    }
    match call.state {
        CallState::Started => {
            draft.push(Event::CallAccepted { call: call.id, by: user.clone(), at: draft.now });
            Ok(())
        }
        CallState::Accepted if call.accepted_by.as_ref() == Some(user) => Ok(()),
        state => Err(Refusal::CallStands { state }),
    }
}

pub(super) fn decline(draft: &mut Draft<'_>, right: &Right<'_>, id: Option<&CallId>) -> Result<(), Refusal> {
    let (user, _) = right.member(&draft.cell)?;
    let call = standing(draft, id)?;
    if !call.to.contains(user) {
        return Err(Refusal::NotInCall);
    }
    if call.state != CallState::Started {
        return Err(Refusal::CallStands { state: call.state });
    }
    say_no(draft, &call, user);
    Ok(())
}

fn say_no(draft: &mut Draft<'_>, call: &Call, user: &UserId) {
    if call.declined_by.contains(user) {
        return;
    }
    let all = call.to.iter().all(|called| called == user || call.declined_by.contains(called));
    if all {
        end(draft, call, CallState::Declined, Some(user), None);
    } else {
        draft.push(Event::CallDeclinedBy { call: call.id.clone(), by: user.clone() });
    }
}

pub(super) fn hang_up(draft: &mut Draft<'_>, right: &Right<'_>, id: Option<&CallId>) -> Result<(), Refusal> {
    let (user, _) = right.member(&draft.cell)?;
    let call = standing(draft, id)?;
    let calls = call.from == *user;
    match call.state {
        CallState::Started if calls => {
            end(draft, &call, CallState::Missed, Some(user), Some(CallReason::Cancelled));
        }
        CallState::Started if call.to.contains(user) => say_no(draft, &call, user),
        CallState::Accepted if calls || call.accepted_by.as_ref() == Some(user) => {
            end(draft, &call, CallState::Finished, Some(user), None);
        }
        CallState::Started | CallState::Accepted => return Err(Refusal::NotInCall),
        state if calls || call.to.contains(user) => return Err(Refusal::CallStands { state }),
        _ => return Err(Refusal::NotInCall),
    }
    Ok(())
}

/// It rang for as long as it may. An answer that came before stands.
pub(super) fn ring_over(draft: &mut Draft<'_>, id: &CallId) -> Result<(), Refusal> {
    let call = standing(draft, Some(id)).map_err(|_| Refusal::NotDue)?;
    let due = call.deadline.is_some_and(|deadline| draft.now >= deadline);
    if call.state != CallState::Started || !due {
        return Err(Refusal::NotDue);
    }
    end(draft, &call, CallState::Missed, None, Some(CallReason::Timeout));
    Ok(())
}

/// What becomes of the call when somebody's presence ends, or (`who` is none) everybody's.
pub(super) fn cut(draft: &mut Draft<'_>, who: Option<&UserId>, reason: CallReason) {
    let Some(call) = draft.cell.call.clone() else { return };
    let part = |user: &UserId| who.is_none_or(|who| who == user);
    match call.state {
        CallState::Started if part(&call.from) => {
            let reason = if who.is_some() { CallReason::Cancelled } else { reason };
            end(draft, &call, CallState::Missed, who, Some(reason));
        }
        CallState::Accepted if part(&call.from) || call.accepted_by.as_ref().is_some_and(part) => {
            end(draft, &call, CallState::Disconnected, who, Some(reason));
        }
        _ => {}
    }
}

fn end(
    draft: &mut Draft<'_>,
    call: &Call,
    state: CallState,
    by: Option<&UserId>,
    reason: Option<CallReason>,
) {
    let at = draft.now;
    draft.push(Event::CallEnded { call: call.id.clone(), state, by: by.cloned(), reason, at });
}
