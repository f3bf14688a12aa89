//! Bounds of what a command may carry. What passed them is a [`Validated`] order; nothing else is decided.

use serde_json::{Map, Value};
use std::borrow::Borrow;

use crate::command::{Actor, Command, Joining, MediaReport, Timer, Validated};
use crate::id::SeatNumber;

/// How large and how many the parts of a command may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Seats of a room.
    pub seats: u16,
    /// Bytes of an id: of a user, a peer, a session, a call.
    pub id_bytes: usize,
    /// Bytes of a reason.
    pub reason_bytes: usize,
    /// Bytes of a user's name.
    pub name_bytes: usize,
    /// Bytes of a picture's address.
    pub avatar_bytes: usize,
    /// Bytes of a digest, a vendor's incarnation, and the like.
    pub digest_bytes: usize,
    /// Longest ban that has an end.
    pub ban_seconds: u64,
    /// Users that one call may ring.
    pub call_parties: usize,
    /// Bytes of a peer's attributes, and of a patch of them, as JSON.
    pub attributes_bytes: usize,
    /// Users that a mute-all may leave out.
    pub except_users: usize,
    /// Peers in one list.
    pub peers: usize,
    /// Longest time that deadlines may move by at once.
    pub shift_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            seats: 1000,
            id_bytes: 128,
            reason_bytes: 256,
            name_bytes: 1024,
            avatar_bytes: 2048,
            digest_bytes: 256,
            ban_seconds: 10 * 366 * 24 * 3600,
            call_parties: 16,
            attributes_bytes: 4096,
            except_users: 100,
            peers: 100_000,
            shift_ms: 366 * 24 * 3_600_000,
        }
    }
}

/// A part of a command is out of bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: must be {right}")]
pub struct Invalid {
    /// Which part, by its name on the wire.
    pub field: &'static str,
    /// What would be right.
    pub right: String,
}

impl Command {
    /// Checks what the command carries; whether it may be done is decided later, against the cell.
    ///
    /// # Errors
    ///
    /// The first part that is out of bounds.
    pub fn validate(self, actor: Actor, limits: &Limits) -> Result<Validated, Invalid> {
        check_actor(&actor, limits)?;
        check_command(&self, limits)?;
        Ok(Validated::checked(actor, self))
    }
}

fn check_actor(actor: &Actor, limits: &Limits) -> Result<(), Invalid> {
    let Actor::User { user, peer, .. } = actor else { return Ok(()) };
    id("user", user.as_str(), limits)?;
    some_id("peer", peer.as_ref(), limits)
}

fn check_command(command: &Command, limits: &Limits) -> Result<(), Invalid> {
    match command {
        Command::Create { seats, .. } => count("seats", *seats, limits),
        Command::SetSeats { count: seats } => count("count", *seats, limits),
        Command::Reopen { seats, .. } => seats.map_or(Ok(()), |seats| count("seats", seats, limits)),
        Command::Join(joining) => check_joining(joining, limits),
        Command::Gone { peers, .. } => {
            at_most("peers", peers.len(), limits.peers, "peers")?;
            peers.iter().try_for_each(|peer| id("peers", peer.as_str(), limits))
        }
        Command::UpdatePeer { attributes, .. } => check_attributes(attributes, limits),
        Command::Kick { user, reason, ban_seconds } => {
            id("user", user.as_str(), limits)?;
            check_reason(reason.as_deref(), limits)?;
            match ban_seconds {
                Some(seconds) if !(1..=limits.ban_seconds).contains(seconds) => {
                    Err(wrong("banSeconds", format!("1 to {}", limits.ban_seconds)))
                }
                _ => Ok(()),
            }
        }
        Command::Unban { user } | Command::SetRole { user, .. } => id("user", user.as_str(), limits),
        Command::Close { reason } => check_reason(reason.as_deref(), limits),
        Command::MicUp { user, seat, session } => {
            some_id("user", user.as_ref(), limits)?;
            some_seat(*seat, limits)?;
            id("micSession", session.as_str(), limits)
        }
        Command::MicDown { user, session } => {
            some_id("user", user.as_ref(), limits)?;
            some_id("micSession", session.as_ref(), limits)
        }
        Command::MicMove { user, seat, .. } => {
            some_id("user", user.as_ref(), limits)?;
            some_seat(Some(*seat), limits)
        }
        Command::MicConfirm { session } => id("micSession", session.as_str(), limits),
        Command::SeatLock { seat, .. } => some_seat(Some(*seat), limits),
        Command::MicMute { user, .. } => some_id("user", user.as_ref(), limits),
        Command::MicMuteAll { except, .. } => {
            at_most("except", except.len(), limits.except_users, "users")?;
            except.iter().try_for_each(|user| id("except", user.as_str(), limits))
        }
        Command::MicRequest { seat, .. } => some_seat(*seat, limits),
        Command::MicInvite { user, seat } => {
            id("user", user.as_str(), limits)?;
            some_seat(*seat, limits)
        }
        Command::MicRespond { user, session, .. } => {
            some_id("user", user.as_ref(), limits)?;
            id("micSession", session.as_str(), limits)
        }
        Command::CallInvite { call, to } => {
            id("call", call.as_str(), limits)?;
            if !(1..=limits.call_parties).contains(&to.len()) {
                return Err(wrong("to", format!("1 to {} users", limits.call_parties)));
            }
            to.iter().try_for_each(|user| id("to", user.as_str(), limits))
        }
        Command::CallAccept { call } | Command::CallDecline { call } | Command::CallHangup { call } => {
            some_id("call", call.as_ref(), limits)
        }
        Command::Media(report) => check_report(report, limits),
        Command::Due(Timer::Publish { session, .. }) => id("micSession", session.as_str(), limits),
        Command::Due(Timer::Ring { call }) => id("call", call.as_str(), limits),
        Command::Shift { by_ms } if *by_ms > limits.shift_ms => {
            Err(wrong("byMs", format!("at most {}", limits.shift_ms)))
        }
        Command::RouterMade { node, name, .. } => {
            id("node", node, limits)?;
            id("name", name, limits)
        }
        Command::DutiesDone { done } => at_most("done", done.len(), limits.peers, "duties"),
        Command::RouterDropped
        | Command::Created
        | Command::CreateFailed
        | Command::Leave
        | Command::TokenRenewed
        | Command::LockDoor { .. }
        | Command::Ended
        | Command::Due(Timer::Transition | Timer::Idle)
        | Command::Shift { .. } => Ok(()),
    }
}

fn check_joining(joining: &Joining, limits: &Limits) -> Result<(), Invalid> {
    id("peer", joining.peer.as_str(), limits)?;
    some_text("name", joining.name.as_deref(), limits.name_bytes)?;
    some_text("avatar", joining.avatar.as_deref(), limits.avatar_bytes)?;
    check_attributes(&joining.attributes, limits)?;
    some_id("device", joining.device.as_ref(), limits)?;
    some_text("resume", Some(&joining.resume), limits.digest_bytes)?;
    some_text("resume", joining.resumes.as_deref(), limits.digest_bytes)?;
    at_most("away", joining.away.len(), limits.peers, "peers")
}

fn check_report(report: &MediaReport, limits: &Limits) -> Result<(), Invalid> {
    if let Some(who) = &report.who {
        id("user", who.user.as_str(), limits)?;
        some_id("peer", who.peer.as_ref(), limits)?;
    }
    some_text("incarnation", report.incarnation.as_deref(), limits.digest_bytes)
}

fn check_attributes(attributes: &Map<String, Value>, limits: &Limits) -> Result<(), Invalid> {
    let most = limits.attributes_bytes;
    match serde_json::to_vec(attributes) {
        Ok(json) if json.len() <= most => Ok(()),
        _ => Err(wrong("attributes", format!("at most {most} bytes of JSON"))),
    }
}

fn check_reason(reason: Option<&str>, limits: &Limits) -> Result<(), Invalid> {
    some_text("reason", reason, limits.reason_bytes)
}

fn some_text(field: &'static str, text: Option<&str>, most: usize) -> Result<(), Invalid> {
    match text {
        Some(text) if text.len() > most => Err(wrong(field, format!("at most {most} bytes"))),
        _ => Ok(()),
    }
}

fn some_id<T: Borrow<str>>(field: &'static str, text: Option<&T>, limits: &Limits) -> Result<(), Invalid> {
    text.map_or(Ok(()), |text| id(field, text.borrow(), limits))
}

fn id(field: &'static str, text: &str, limits: &Limits) -> Result<(), Invalid> {
    if text.is_empty() || text.len() > limits.id_bytes || text.chars().any(char::is_control) {
        return Err(wrong(field, format!("1 to {} bytes without control characters", limits.id_bytes)));
    }
    Ok(())
}

fn some_seat(seat: Option<SeatNumber>, limits: &Limits) -> Result<(), Invalid> {
    match seat {
        Some(number) if !(1..=limits.seats).contains(&number) => {
            Err(wrong("seat", format!("1 to {}", limits.seats)))
        }
        _ => Ok(()),
    }
}

fn count(field: &'static str, seats: u16, limits: &Limits) -> Result<(), Invalid> {
    at_most(field, seats.into(), limits.seats.into(), "seats")
}

fn at_most(field: &'static str, count: usize, most: usize, what: &str) -> Result<(), Invalid> {
    if count > most { Err(wrong(field, format!("at most {most} {what}"))) } else { Ok(()) }
}

const fn wrong(field: &'static str, right: String) -> Invalid {
    Invalid { field, right }
}
