//! What comes of a command: the events it has, or why it is refused.
//!
//! Each decision works on a copy of the cell (which shares everything with it), applies each event to that as
//! soon as it is decided, and so sees its own effects; the caller's cell is untouched.

mod asking;
mod call;
mod duties;
mod life;
mod media;
mod moderation;
mod presence;
mod right;
mod router;
mod seats;
mod timers;

use crate::apply::apply;
use crate::cell::{Cell, Status};
use crate::command::{Actor, Command, Rules, Validated};
use crate::event::Event;
use crate::id::Millis;
use crate::refusal::Refusal;
use right::Right;

/// Decides what a command does to a cell at `now`. No events: it is so already, and that is a success.
///
/// # Errors
///
/// A [`Refusal`] says why nothing happens.
pub fn decide(cell: &Cell, order: &Validated, rules: &Rules, now: Millis) -> Result<Vec<Event>, Refusal> {
    let mut draft = Draft { cell: cell.clone(), events: Vec::new(), rules, now };
    decide_on(&mut draft, order.actor(), order.command())?;
    duties::follow(&mut draft, cell);
    Ok(draft.events)
}

/// A decision in the making.
struct Draft<'a> {
    /// The cell with the events so far.
    cell: Cell,
    events: Vec<Event>,
    rules: &'a Rules,
    now: Millis,
}

impl Draft<'_> {
    fn push(&mut self, event: Event) {
        apply(&mut self.cell, &event);
        self.events.push(event);
    }
}

fn decide_on(draft: &mut Draft<'_>, actor: &Actor, command: &Command) -> Result<(), Refusal> {
    match command {
        Command::Create { seats, capacity, auto_close } => {
            life::create(draft, actor, *seats, *capacity, *auto_close)
        }
        Command::Reopen { seats, capacity, auto_close } => {
            life::reopen(draft, actor, *seats, *capacity, *auto_close)
        }
        Command::Close { reason } => life::close(draft, actor, reason.clone()),
        Command::Join(joining) => presence::join(draft, actor, joining),
        Command::Media(report) => only(actor, &Actor::Media).and_then(|()| media::report(draft, report)),
        Command::Created => only(actor, &Actor::Owner).and_then(|()| life::created(draft)),
        Command::CreateFailed => only(actor, &Actor::Owner).and_then(|()| life::create_failed(draft)),
        Command::Ended => only(actor, &Actor::Owner).and_then(|()| life::ended(draft)),
        Command::RouterMade { node, name, generation } => {
            only(actor, &Actor::Owner)?;
            router::made(draft, node, name, *generation)
        }
        Command::RouterDropped => {
            only(actor, &Actor::Owner)?;
            router::dropped(draft)
        }
        Command::DutiesDone { done } => {
            only(actor, &Actor::Owner)?;
            duties::done(draft, done);
            Ok(())
        }
        Command::Gone { peers, reason } => {
            only(actor, &Actor::Owner)?;
            presence::gone(draft, peers, *reason);
            Ok(())
        }
        Command::Due(timer) => only(actor, &Actor::Owner).and_then(|()| timers::due(draft, timer)),
        Command::Shift { by_ms } => {
            only(actor, &Actor::Owner)?;
            timers::shift(draft, *by_ms);
            Ok(())
        }
        _ => {
            active(&draft.cell)?;
            let right = Right::of(&draft.cell, actor, draft.now)?;
            in_room(draft, &right, command)
        }
    }
}

/// What people and back ends do in an active room.
fn in_room(draft: &mut Draft<'_>, right: &Right<'_>, command: &Command) -> Result<(), Refusal> {
    match command {
        Command::Leave => presence::leave(draft, right),
        Command::UpdatePeer { attributes, max_bytes } => {
            presence::update_peer(draft, right, attributes, *max_bytes)
        }
        Command::TokenRenewed => presence::token_renewed(draft, right),
        Command::Kick { user, reason, ban_seconds } => {
            moderation::kick(draft, right, user, reason.clone(), *ban_seconds)
        }
        Command::Unban { user } => moderation::unban(draft, right, user),
        Command::SetRole { user, role } => moderation::set_role(draft, right, user, *role),
        Command::LockDoor { locked } => moderation::lock_door(draft, right, *locked),
        Command::MicUp { user, seat, session } => seats::up(draft, right, user.as_ref(), *seat, session),
        Command::MicDown { user, session } => seats::down(draft, right, user.as_ref(), session.as_ref()),
        Command::MicMove { user, seat, flowing } => {
            seats::change(draft, right, user.as_ref(), *seat, *flowing)
        }
        Command::MicConfirm { session } => seats::confirm(draft, right, session),
        Command::SeatLock { seat, locked, force } => seats::lock(draft, right, *seat, *locked, *force),
        Command::MicMute { user, muted } => seats::mute(draft, right, user.as_ref(), *muted),
        Command::MicMuteAll { muted, except } => seats::mute_all(draft, right, *muted, except),
        Command::SetSeats { count } => seats::set_count(draft, right, *count),
        Command::MicRequest { seat, withdraw } => asking::request(draft, right, *seat, *withdraw),
        Command::MicInvite { user, seat } => asking::invite(draft, right, user, *seat),
        Command::MicRespond { user, accept, session } => {
            asking::respond(draft, right, user.as_ref(), *accept, session)
        }
        Command::CallInvite { call, to } => call::invite(draft, right, call, to),
        Command::CallAccept { call } => call::accept(draft, right, call.as_ref()),
        Command::CallDecline { call } => call::decline(draft, right, call.as_ref()),
        Command::CallHangup { call } => call::hang_up(draft, right, call.as_ref()),
        Command::Create { .. }
        | Command::Created
        | Command::CreateFailed
        | Command::Join(_)
        | Command::Gone { .. }
        | Command::Close { .. }
        | Command::Ended
        | Command::Reopen { .. }
        | Command::RouterMade { .. }
        | Command::RouterDropped
        | Command::DutiesDone { .. }
        | Command::Media(_)
        | Command::Due(_)
        | Command::Shift { .. } => Err(Refusal::HostsOnly),
    }
}

fn only(actor: &Actor, whose: &Actor) -> Result<(), Refusal> {
    if actor == whose { Ok(()) } else { Err(Refusal::HostsOnly) }
}

/// Refuses what only an active room takes.
fn active(cell: &Cell) -> Result<(), Refusal> {
    match cell.status {
        Status::Active => Ok(()),
        Status::Absent => Err(Refusal::NoRoom),
        Status::Creating { .. } => Err(Refusal::Creating),
        Status::Closing { .. } | Status::Closed => Err(Refusal::RoomClosed),
    }
}
