//! Times that come. Timers are data in the cell; whoever keeps the clock asks what is due and says so.

use super::{Draft, call, life, seats};
use crate::cell::{Cell, Speaking, Status};
use crate::command::Timer;
use crate::event::{ConfirmedBy, Event, MicEnd};
use crate::id::{MicSession, Millis};
use crate::refusal::Refusal;

impl Cell {
    /// What has fallen due, earliest first. Nothing of the idle time is in the cell: [`Timer::Idle`] is never
    /// among it.
    pub fn due(&self, now: Millis) -> Vec<Timer> {
        let mut due: Vec<(Millis, Timer)> = Vec::new();
        if let Status::Creating { deadline, .. } | Status::Closing { deadline, .. } = self.status {
            due.push((deadline, Timer::Transition));
        }
        for sitter in self.seats.values().filter_map(|seat| seat.sitter.as_ref()) {
            if let Speaking::PendingPublish { deadline } = sitter.speaking {
                due.push((deadline, Timer::Publish { session: sitter.session.clone(), flowing: false }));
            }
        }
        if let Some((call, deadline)) = self.call.as_ref().and_then(|call| Some((call, call.deadline?))) {
            due.push((deadline, Timer::Ring { call: call.id.clone() }));
        }
        due.retain(|(deadline, _)| *deadline <= now);
        due.sort_by_key(|(deadline, _)| *deadline);
        due.into_iter().map(|(_, timer)| timer).collect()
    }
}

impl Cell {
    /// Whether the idle time ends the room: everybody has left one that closes by itself.
    pub fn closes_when_idle(&self) -> bool {
        self.auto_close && self.used && self.status == Status::Active && self.users.is_empty()
    }
}

pub(super) fn due(draft: &mut Draft<'_>, timer: &Timer) -> Result<(), Refusal> {
    match timer {
        Timer::Publish { session, flowing } => publish_over(draft, session, *flowing),
        Timer::Ring { call } => call::ring_over(draft, call),
        Timer::Transition => match draft.cell.status {
            Status::Creating { deadline, .. } if draft.now >= deadline => life::create_failed(draft),
            Status::Closing { deadline, .. } if draft.now >= deadline => life::closed_late(draft),
            _ => Err(Refusal::NotDue),
        },
        Timer::Idle => {
            if !draft.cell.closes_when_idle() {
                return Err(Refusal::NotDue);
            }
            life::end(draft, None);
            Ok(())
        }
    }
}

fn publish_over(draft: &mut Draft<'_>, session: &MicSession, flowing: bool) -> Result<(), Refusal> {
    let late = draft.cell.seats.iter().find_map(|(number, seat)| {
        let sitter = seat.sitter.as_ref().filter(|sitter| sitter.session == *session)?;
        let Speaking::PendingPublish { deadline } = sitter.speaking else { return None };
        (draft.now >= deadline).then_some(*number)
    });
    let number = late.ok_or(Refusal::NotDue)?;
    if flowing {
        seats::heard_on(draft, number, ConfirmedBy::Media);
    } else {
        seats::free(draft, number, MicEnd::PublishTimeout);
    }
    Ok(())
}

pub(super) fn shift(draft: &mut Draft<'_>, by_ms: u64) {
    if by_ms > 0 && draft.cell.next_deadline().is_some() {
        draft.push(Event::Shifted { by_ms });
    }
}
