//! What the media server says, and how much of it still counts.
//!
//! Reports come late, twice and out of order. Two questions decide about each. Is it older than what was heard
//! last of the same participant? Both come from the vendor, so this is told by its own incarnation and sequence,
//! or by its own clock. And does it belong to the present mic session? That compares the vendor's clock with
//! ours, so it allows for a tolerance, and leans to where a mistake is mended: a seat that waits too long is
//! freed or confirmed at its deadline, whereas who is thrown off has to come again.

use super::seats::{free, heard_on};
use super::{Draft, active, life};
use crate::cell::{Cell, Heard, MediaIdentity, Sitter, Speaking, Status};
use crate::command::{MediaFact, MediaReport};
use crate::event::{ConfirmedBy, Event, MicEnd};
use crate::id::{MicSession, Millis, PeerId, SeatNumber, UserId};
use crate::refusal::Refusal;

/// Whether audio of a user is known to flow before they take a seat with this connection.
pub(super) fn flows(cell: &Cell, user: &UserId, peer: &PeerId) -> bool {
    [None, Some(peer.clone())].into_iter().any(|peer| {
        let who = MediaIdentity { user: user.clone(), peer };
        cell.media.get(&who).is_some_and(|heard| heard.flowing)
    })
}

pub(super) fn report(draft: &mut Draft<'_>, report: &MediaReport) -> Result<(), Refusal> {
    let present = draft.cell.router.as_ref().map(|router| router.generation);
    if report.router.is_some_and(|generation| Some(generation) != present) {
        return Err(Refusal::StaleRouter);
    }
    if report.what == MediaFact::RoomFinished && matches!(draft.cell.status, Status::Closing { .. }) {
        return life::ended(draft);
    }
    active(&draft.cell)?;
    let who = report.who.as_ref().filter(|_| report.what != MediaFact::RoomFinished);
    let who = who.filter(|who| is_here(&draft.cell, who)).ok_or(Refusal::NobodyConcerned)?;
    let said = Heard {
        incarnation: report.incarnation.clone(),
        sequence: report.sequence,
        from: report.at,
        to: report.at.after(report.resolution_ms),
        what: report.what,
        flowing: report.what == MediaFact::AudioStarted,
        spoke: false,
    };
    if draft.cell.media.get(who).is_some_and(|known| is_older(&said, known)) {
        return Err(Refusal::StaleReport);
    }
    let seat = draft.cell.seat_of(who.user.as_str());
    let seat = seat.filter(|(_, sitter)| who.peer.as_ref().is_none_or(|peer| *peer == sitter.peer));
    let Some((number, sitter)) = seat.map(|(number, sitter)| (number, sitter.clone())) else {
        if said.to < earliest_off_seat(draft, who) {
            return Err(Refusal::StaleReport);
        }
        let flowing = said.flowing && said.from >= clear_of_earlier(draft, who);
        remember(draft, who, Heard { flowing, ..said }, None);
        return Ok(());
    };
    if said.to < earliest_on_seat(draft, &sitter) {
        return Err(Refusal::StaleReport);
    }
    about_sitter(draft, who, said, number, sitter)
}

fn is_here(cell: &Cell, who: &MediaIdentity) -> bool {
    cell.users.get(&who.user).is_some_and(|presence| {
        who.peer.as_ref().is_none_or(|peer| presence.peers.iter().any(|it| it.peer == *peer))
    })
}

fn about_sitter(
    draft: &mut Draft<'_>,
    who: &MediaIdentity,
    said: Heard,
    number: SeatNumber,
    sitter: Sitter,
) -> Result<(), Refusal> {
    let own = sitter.heard.as_ref().and_then(|heard| heard.incarnation.as_ref());
    let same = own.zip(said.incarnation.as_ref()).map(|(own, said)| own == said);
    if same == Some(false) && stops(said.what) {
        return Err(Refusal::StaleReport);
    }
    let settled = settled(&draft.cell, &sitter);
    let kept = settled > sitter.started_at;
    // Only this tells the session's incarnation: what is within the tolerance may be of an earlier one.
    let clearly = (said.from >= settled).then(|| sitter.session.clone());
    match said.what {
        MediaFact::AudioStarted => {
            remember(draft, who, said, Some(sitter.session));
            heard_on(draft, number, ConfirmedBy::Media);
        }
        // A seat that waits is not freed: the stop may belong to what was before it, and is kept so that an
        // older start that is still under way does not confirm it.
        MediaFact::AudioStopped => {
            let started = sitter.heard.is_some_and(|heard| heard.what == MediaFact::AudioStarted);
            let ends = (started && !kept) || said.to >= settled;
            // Muting is done by the media server, which then says that it hears nothing.
            let is_muted = sitter.muted && draft.rules.external_media;
            remember(draft, who, said, clearly);
            if ends && !is_muted && matches!(sitter.speaking, Speaking::Publishing { .. }) {
                free(draft, number, MicEnd::AudioStopped);
            }
        }
        MediaFact::RoomExited => {
            let ends = said.from >= began(draft, who, &sitter)
                || (same == Some(true) && (!kept || said.from >= settled));
            remember(draft, who, said, clearly);
            if ends {
                free(draft, number, MicEnd::RoomExited);
            }
        }
        MediaFact::ParticipantJoined | MediaFact::RoomFinished => remember(draft, who, said, clearly),
    }
    Ok(())
}

/// Since when the sitter sits there with this session and this connection.
fn settled(cell: &Cell, sitter: &Sitter) -> Millis {
    cell.peer(sitter.peer.as_str()).map_or(sitter.started_at, |peer| peer.since.max(sitter.started_at))
}

/// Keeps what was said, unless that is known.
fn remember(draft: &mut Draft<'_>, who: &MediaIdentity, heard: Heard, session: Option<MicSession>) {
    let known = draft.cell.media.get(who);
    let before = known.is_some_and(|known| known.spoke && known.what != MediaFact::RoomExited);
    let heard = Heard { spoke: before || heard.what == MediaFact::AudioStarted, ..heard };
    if known != Some(&heard) {
        draft.push(Event::Heard { who: who.clone(), heard, session });
    }
}

/// Whether `said` happened before what is `known` of the same participant, or was overtaken by it.
fn is_older(said: &Heard, known: &Heard) -> bool {
    let same = said.incarnation.as_ref().zip(known.incarnation.as_ref()).map(|(said, known)| said == known);
    if same == Some(false) {
        // Nothing that an earlier incarnation still stops or leaves concerns the newest.
        return stops(said.what) || is_before(said, known);
    }
    if same == Some(true) {
        if known.what == MediaFact::RoomExited {
            return true;
        }
        // Nothing of a stay comes before its beginning, whatever the times say that the vendor gives them.
        let begins = |what| what == MediaFact::ParticipantJoined;
        if begins(said.what) != begins(known.what) {
            return begins(said.what);
        }
    }
    let by_time = is_before(said, known) || is_before(known, said);
    if let Some((sequence, last)) = said.sequence.zip(known.sequence)
        && sequence != last
        // Without an incarnation a sequence may have begun anew.
        && (same == Some(true) || !by_time)
    {
        return sequence < last;
    }
    if by_time {
        return is_before(said, known);
    }
    // What came while a session lasted counts for that one: said again, it does not count for the next.
    let repeated = said.what == known.what && said.flowing != known.flowing;
    said.from == known.from && (order(said.what) < order(known.what) || repeated)
}

const fn stops(what: MediaFact) -> bool {
    matches!(what, MediaFact::AudioStopped | MediaFact::RoomExited)
}

/// By the vendor's clock, as far as its times are exact.
fn is_before(a: &Heard, b: &Heard) -> bool {
    a.from < b.from && a.to <= b.from
}

/// Which comes first of what happened at the same time.
const fn order(what: MediaFact) -> u8 {
    match what {
        MediaFact::ParticipantJoined => 0,
        MediaFact::AudioStarted => 1,
        MediaFact::AudioStopped => 2,
        MediaFact::RoomExited | MediaFact::RoomFinished => 3,
    }
}

/// What ended before this time belongs to an earlier session or connection of the sitter's. Where an earlier session
/// is close, the border is halfway between the two, so that both bear the same error of the clocks.
fn earliest_on_seat(draft: &Draft<'_>, sitter: &Sitter) -> Millis {
    let start = sitter.started_at;
    let settled = settled(&draft.cell, sitter);
    let tolerant = Millis(settled.0.saturating_sub(draft.rules.clock_tolerance_ms));
    let halfway = draft.cell.freed.get(&sitter.user).map(|ended| Millis(start.0 - start.since(*ended) / 2));
    halfway.map_or(tolerant, |halfway| halfway.max(tolerant))
}

/// What ended before this time belongs to an earlier stay or mic session of somebody who has no seat.
fn earliest_off_seat(draft: &Draft<'_>, who: &MediaIdentity) -> Millis {
    let since = connections(draft, who).min().unwrap_or(draft.now);
    let came = Millis(since.0.saturating_sub(draft.rules.clock_tolerance_ms));
    draft.cell.freed.get(&who.user).map_or(came, |ended| came.max(*ended))
}

/// From when on audio of somebody who has no seat counts for the next one they take.
fn clear_of_earlier(draft: &Draft<'_>, who: &MediaIdentity) -> Millis {
    let freed = draft.cell.freed.get(&who.user);
    freed.map_or(Millis::default(), |ended| ended.after(draft.rules.clock_tolerance_ms))
}

/// From when on an exit can mean the sitter as they are now: nothing of theirs has begun since. Soon after an
/// earlier session it must be clear of the tolerance too.
fn began(draft: &Draft<'_>, who: &MediaIdentity, sitter: &Sitter) -> Millis {
    let start = sitter.started_at;
    let tolerance = draft.rules.clock_tolerance_ms;
    let freed = draft.cell.freed.get(&sitter.user);
    let again = freed.is_some_and(|ended| start.since(*ended) < tolerance.saturating_mul(2));
    let start = if again { start.after(tolerance) } else { start };
    connections(draft, who).fold(start, Millis::max)
}

/// When the connections began that a report can be about.
fn connections(draft: &Draft<'_>, who: &MediaIdentity) -> impl Iterator<Item = Millis> {
    let peers = draft.cell.users.get(&who.user).map(|presence| presence.peers.clone()).unwrap_or_default();
    let peer = who.peer.clone();
    let meant = peers.into_iter().filter(move |it| peer.as_ref().is_none_or(|peer| it.peer == *peer));
    meant.map(|it| it.since)
}
