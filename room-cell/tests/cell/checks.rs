//! What must hold after each step of any life of a room.

use room_cell::{
    Actor, CallState, Cell, Changes, Command, Duty, Event, MediaFact, MediaReport, MicEnd, Millis, Peer,
    PeerId, Rules, Speaking, Status, UserId, Validated, apply, changes,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

macro_rules! holds {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err(format!($($why)+));
        }
    };
}

/// What is owed to an external media server, and to no other.
fn media_server(
    before: &Cell,
    command: &Command,
    events: &[Event],
    cell: &Cell,
    rules: &Rules,
) -> Result<(), String> {
    router(before, command, cell)?;
    let is_close = |duty: &Duty| matches!(duty, Duty::Close { .. });
    if cell.router.is_none() || cell.status != Status::Active {
        holds!(cell.duties.keys().all(is_close), "nobody is in a router: {:?}", cell.duties);
    }
    for (duty, owed) in &cell.duties {
        match duty {
            Duty::Permit { user, peer } => {
                holds!(cell.peers.get(peer) == Some(user), "{peer} is gone and to be permitted");
            }
            Duty::Remove { name } => {
                holds!(called(cell, name).is_none(), "{name} is here and to be removed");
            }
            Duty::Close { generation, .. } => {
                let stands = cell.router.as_ref().is_some_and(|router| router.generation == *generation);
                holds!(!stands && *generation <= cell.router_generation, "{duty:?} of {:?}", cell.router);
            }
        }
        holds!(owed.version <= cell.version, "{duty:?} is owed by a later command: {owed:?}");
    }
    for event in events {
        match event {
            Event::Owed { duty, version, .. } => {
                holds!(*version == cell.version, "{event:?} at {}", cell.version);
                holds!(rules.external_media || is_close(duty), "{duty:?} without an external media server");
                let Duty::Permit { user, peer } = duty else { continue };
                let why = right(before, peer) != right(cell, peer)
                    || reported(before, command, user, peer)
                    || continued(before, cell, peer);
                holds!(why, "{duty:?} for nothing");
            }
            Event::DutyDone { duty } => {
                let Command::DutiesDone { done } = command else { return Err(format!("{event:?}")) };
                let version = before.duties.get(duty).map(|owed| owed.version);
                let named = done.iter().any(|(it, of)| it == duty && Some(*of) == version);
                holds!(named, "{duty:?} was owed at {version:?}, and is done by {done:?}");
            }
            _ => {}
        }
    }
    let goes_on = cell.router.is_some() && cell.router == before.router;
    if !rules.external_media || !goes_on || cell.status != Status::Active || events.is_empty() {
        return Ok(());
    }
    let owed = |duty: &Duty| cell.duties.get(duty).is_some_and(|owed| owed.version == cell.version);
    for (peer, user) in before.peers.iter().filter(|(peer, _)| !cell.peers.contains_key(*peer)) {
        let name = before.peer(peer.as_str()).and_then(|it| it.media.clone()).ok_or("no name")?;
        let goes_on = called(cell, &name);
        holds!(goes_on.is_none_or(|it| it.user == *user), "{name} is another's now");
        let duty = Duty::Remove { name: Arc::clone(&name) };
        holds!(owed(&duty) == goes_on.is_none(), "{peer} ended, to be removed: {}", owed(&duty));
    }
    for (peer, user) in cell.peers.iter().filter(|(peer, _)| before.peers.contains_key(*peer)) {
        let wanted = right(before, peer) != right(cell, peer) || reported(before, command, user, peer);
        let duty = Duty::Permit { user: user.clone(), peer: peer.clone() };
        holds!(!wanted || owed(&duty), "{peer} is not to be permitted anew");
    }
    Ok(())
}

/// No router is given twice, or left without being ended.
fn router(before: &Cell, command: &Command, cell: &Cell) -> Result<(), String> {
    holds!(cell.router_generation >= before.router_generation, "generation {}", cell.router_generation);
    let router = cell.router.as_ref().filter(|router| Some(*router) != before.router.as_ref());
    if let Some(router) = router {
        holds!(router.generation > before.router_generation, "a generation twice: {router:?}");
        holds!(matches!(command, Command::RouterMade { .. }), "{command:?} made a router");
        let silent = |seat: &room_cell::Seat| {
            seat.sitter.as_ref().is_none_or(|sitter| {
                matches!(sitter.speaking, Speaking::PendingPublish { .. }) && sitter.heard.is_none()
            })
        };
        holds!(cell.media.is_empty() && cell.seats.values().all(silent), "heard in {router:?} already");
    }
    if matches!(cell.status, Status::Absent | Status::Closed) {
        holds!(cell.router.is_none(), "{:?} with {:?}", cell.status, cell.router);
    }
    if let Some(left) = before.router.as_ref().filter(|it| Some(*it) != cell.router.as_ref()) {
        let ended = matches!(before.status, Status::Closing { .. })
            && !matches!(command, Command::Due(_))
            && cell.status == Status::Closed;
        let is_owed = cell
            .duties
            .keys()
            .any(|duty| matches!(duty, Duty::Close { generation, .. } if *generation == left.generation));
        holds!(ended != is_owed, "{left:?} is left, by its end: {ended}, owed to be ended: {is_owed}");
    }
    Ok(())
}

/// What a peer may publish.
fn right(cell: &Cell, peer: &PeerId) -> Option<(room_cell::Role, bool)> {
    let user = cell.peers.get(peer)?;
    let role = cell.users.get(user).map(room_cell::Presence::role)?;
    let sits = |seat: &room_cell::Seat| {
        seat.sitter.as_ref().is_some_and(|sitter| sitter.peer == *peer && !sitter.muted)
    };
    Some((role, cell.seats.is_empty() || cell.seats.values().any(sits)))
}

/// Who has this name at the media server.
fn called<'a>(cell: &'a Cell, name: &str) -> Option<&'a Arc<Peer>> {
    let peers = cell.users.values().flat_map(|presence| &presence.peers);
    peers.into_iter().find(|peer| peer.media.as_deref() == Some(name))
}

/// Whether somebody new may be at the media server already, with other rights.
fn continued(before: &Cell, cell: &Cell, peer: &PeerId) -> bool {
    let Some(name) = cell.peer(peer.as_str()).and_then(|it| it.media.clone()) else { return false };
    let was = called(before, &name).map(|was| was.peer.clone());
    before.duties.contains_key(&Duty::Remove { name })
        || was.is_some_and(|was| {
            let owed = before.duties.keys().any(|it| matches!(it, Duty::Permit { peer, .. } if *peer == was));
            owed || right(before, &was) != right(cell, peer)
        })
}

/// Whether a command tells that a peer came to the media server; what is stale, or was told, has no events.
fn reported(before: &Cell, command: &Command, user: &UserId, peer: &PeerId) -> bool {
    let Command::Media(report) = command else { return false };
    let Some(who) = report.who.as_ref() else { return false };
    let meant = who.user == *user && who.peer.as_ref().is_none_or(|meant| meant == peer);
    let known = before.media.get(who);
    let comes = match report.what {
        MediaFact::ParticipantJoined => true,
        MediaFact::AudioStarted | MediaFact::AudioStopped => known.is_none_or(|known| {
            let both = (known.incarnation.as_ref(), report.incarnation.as_ref());
            known.what == MediaFact::RoomExited || matches!(both, (Some(one), Some(other)) if one != other)
        }),
        MediaFact::RoomExited | MediaFact::RoomFinished => false,
    };
    meant && comes
}

/// What has been begun and what has been stored so far.
#[derive(Default)]
pub(crate) struct Checks {
    /// The log applied to nothing, after a journey through JSON.
    replayed: Cell,
    present: BTreeSet<UserId>,
    connected: BTreeSet<PeerId>,
    mic_sessions: BTreeMap<String, UserId>,
    mic_sessions_ended: BTreeSet<String>,
    /// Those that were heard at least once.
    heard_sessions: BTreeSet<String>,
    fields: BTreeMap<String, String>,
    peers: BTreeMap<String, String>,
    steps: u32,
}

impl Checks {
    /// Checks what one command did: `events`, or none if it was refused.
    pub(crate) fn after(
        &mut self,
        before: &Cell,
        order: &Validated,
        events: Option<&[Event]>,
        cell: &Cell,
        now: Millis,
        rules: &Rules,
    ) -> Result<(), String> {
        let events = events.unwrap_or_default();
        holds!(cell.version == before.version + u64::from(!events.is_empty()), "version {}", cell.version);
        self.follow(before, order.command(), events)?;
        structure(cell)?;
        self.replay(cell, events)?;
        self.store(before, cell)?;
        right_people(before, order, events, cell, now)?;
        mic_sessions(before, order.command(), events, cell, rules)?;
        room(before, order.command(), events, cell)?;
        media_server(before, order.command(), events, cell, rules)?;
        calls(before, events)
    }

    /// I-25: what begins ends once, and what ends has begun.
    fn follow(&mut self, before: &Cell, command: &Command, events: &[Event]) -> Result<(), String> {
        for event in events {
            match event {
                Event::Joined { peer, replaced, arrived } => {
                    holds!(matches!(command, Command::Join(_)), "I-10: {event:?} without a join");
                    let new = self.present.insert(peer.user.clone());
                    holds!(new == *arrived, "I-25: arrived {arrived}, but was absent: {new}");
                    for ended in replaced {
                        holds!(self.connected.remove(ended), "replaced {ended}, which was not there");
                    }
                    holds!(self.connected.insert(peer.peer.clone()), "{} came twice", peer.peer);
                }
                Event::PeerEnded { peer, .. } => {
                    holds!(self.connected.remove(peer), "{peer} ended, which was not there");
                }
                Event::Left { user, peers, .. } => {
                    holds!(self.present.remove(user), "I-25: {user} left, who was not present");
                    for peer in peers {
                        holds!(self.connected.remove(peer), "{peer} left, which was not there");
                    }
                    holds!(before.users.contains_key(user), "{user} left, who was not there before");
                }
                Event::SeatTaken { session, user, .. } => {
                    let session = session.as_str().to_owned();
                    holds!(!self.mic_sessions_ended.contains(&session), "I-25: {session} began anew");
                    let first = self.mic_sessions.insert(session.clone(), user.clone()).is_none();
                    holds!(first, "I-25: {session} began twice");
                }
                Event::Confirmed { session, heard_ms, .. }
                | Event::SeatMoved { session, speaking: Speaking::Publishing { .. }, heard_ms, .. } => {
                    let first = self.heard_sessions.insert(session.as_str().to_owned());
                    holds!(first == heard_ms.is_none(), "I-25: {session} is heard, {heard_ms:?} so far");
                }
                Event::SeatFreed { session, user, heard_ms, .. } => {
                    let was_heard = self.heard_sessions.contains(session.as_str());
                    holds!(was_heard == heard_ms.is_some(), "I-25: {session} was heard for {heard_ms:?}");
                    let whose = self.mic_sessions.remove(session.as_str());
                    holds!(whose.as_ref() == Some(user), "I-25: {session} of {user} ended, of {whose:?}");
                    self.mic_sessions_ended.insert(session.as_str().to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn replay(&mut self, cell: &Cell, events: &[Event]) -> Result<(), String> {
        let json = serde_json::to_string(events).map_err(|error| error.to_string())?;
        let events: Vec<Event> = serde_json::from_str(&json).map_err(|error| format!("{json}: {error}"))?;
        events.iter().for_each(|event| apply(&mut self.replayed, event));
        self.replayed.version = cell.version;
        holds!(self.replayed == *cell, "replay: {:?}\nis not {cell:?}", self.replayed);
        let present: BTreeSet<UserId> = cell.users.keys().cloned().collect();
        holds!(present == self.present, "I-25: present {present:?}, by the log {:?}", self.present);
        let connected: BTreeSet<PeerId> = cell.peers.keys().cloned().collect();
        holds!(connected == self.connected, "connected {connected:?}, by the log {:?}", self.connected);
        let sitters = cell.seats.values().filter_map(|seat| seat.sitter.as_ref());
        let seated: BTreeMap<String, UserId> =
            sitters.map(|sitter| (sitter.session.as_str().to_owned(), sitter.user.clone())).collect();
        holds!(seated == self.mic_sessions, "I-25: seated {seated:?}, by the log {:?}", self.mic_sessions);
        Ok(())
    }

    /// What is stored follows from the changes alone, and gives the same cell.
    fn store(&mut self, before: &Cell, cell: &Cell) -> Result<(), String> {
        let changes = if self.steps == 0 { cell.stored() } else { changes(before, cell) };
        let users_in: BTreeSet<&UserId> = changes.users_in.iter().collect();
        let came = cell.peers.iter().filter(|(peer, _)| !before.peers.contains_key(*peer));
        holds!(users_in == came.map(|(_, user)| user).collect(), "users in: {users_in:?}");
        let users_out: BTreeSet<&UserId> = changes.users_out.iter().collect();
        let went = before.users.keys().filter(|user| !cell.users.contains_key(*user));
        holds!(users_out == went.collect(), "users out: {users_out:?}");
        self.write(changes);
        self.steps += 1;
        if !self.steps.is_multiple_of(8) {
            return Ok(());
        }
        let all = cell.stored();
        let fields: BTreeMap<String, String> = all.set.into_iter().collect();
        holds!(fields == self.fields, "stored {:?}\nis not {fields:?}", self.fields);
        let peers: BTreeMap<String, String> =
            all.peers_set.into_iter().map(|(peer, json)| (peer.as_str().to_owned(), json)).collect();
        holds!(peers == self.peers, "stored {:?}\nis not {peers:?}", self.peers);
        let fields: Vec<_> = self.fields.clone().into_iter().collect();
        let peers: Vec<_> = self.peers.clone().into_iter().collect();
        let read = Cell::read(cell.version, cell.status.word(), &fields, &peers);
        let read = read.map_err(|error| error.to_string())?;
        holds!(read == *cell, "read {read:?}\nis not {cell:?}");
        Ok(())
    }

    fn write(&mut self, changes: Changes) {
        self.fields.extend(changes.set);
        self.fields.retain(|field, _| !changes.removed.contains(field));
        self.peers.extend(changes.peers_set.into_iter().map(|(peer, json)| (peer.as_str().to_owned(), json)));
        self.peers.retain(|id, _| !changes.peers_removed.iter().any(|gone| gone.as_str() == id));
    }
}

/// No seat is held by nobody, nobody sits twice, and both ways into the presences say the same (I-6).
fn structure(cell: &Cell) -> Result<(), String> {
    let mut seated = BTreeSet::new();
    for (number, seat) in &cell.seats {
        let Some(sitter) = &seat.sitter else { continue };
        holds!(!seat.locked, "somebody sits on the locked seat {number}");
        let peers = cell.users.get(&sitter.user).map(|it| it.peers.as_slice()).unwrap_or_default();
        holds!(peers.iter().any(|it| it.peer == sitter.peer), "seat {number} is held by nobody");
        holds!(seated.insert(&sitter.user), "{} has two seats", sitter.user);
    }
    let count = u16::try_from(cell.seats.len()).unwrap_or(u16::MAX);
    holds!(cell.seats.keys().copied().eq(1..=count), "seats {:?}", cell.seats);
    let mut peers = 0;
    for (user, presence) in &cell.users {
        holds!(!presence.peers.is_empty(), "{user} is present without a peer");
        holds!(presence.peers.is_sorted_by(|a, b| a.since < b.since), "{user}: peers out of order");
        for peer in &presence.peers {
            holds!(cell.peers.get(&peer.peer) == Some(user), "I-6: {} is not indexed", peer.peer);
            holds!(peer.role == presence.role(), "{user} has two roles");
            peers += 1;
        }
        let allowed = presence.peers.iter().map(|peer| peer.max_role).max();
        holds!(Some(presence.role()) <= allowed, "{user} has a role that no token allows");
    }
    holds!(peers == cell.peers.len(), "I-6: {peers} peers, {} indexed", cell.peers.len());
    for user in cell.requests.keys().chain(cell.invites.keys()) {
        holds!(cell.users.contains_key(user), "{user} is asked for, but absent");
        holds!(!seated.contains(user), "{user} is asked for, but seated");
    }
    for user in cell.media.keys().map(|who| &who.user).chain(cell.freed.keys()) {
        holds!(cell.users.contains_key(user), "{user} is remembered, but absent");
    }
    Ok(())
}

/// I-11 and I-21: who is banned is out, and a connection that is over does nothing.
fn right_people(
    before: &Cell,
    order: &Validated,
    events: &[Event],
    cell: &Cell,
    now: Millis,
) -> Result<(), String> {
    for (user, ban) in &cell.bans {
        holds!(!cell.users.contains_key(user), "I-11: {user} is present and banned: {ban:?}");
    }
    let Actor::User { user, peer, .. } = order.actor() else { return Ok(()) };
    if before.bans.get(user).is_some_and(|ban| ban.holds(now)) {
        holds!(events.is_empty(), "I-11: {user} is banned and does something");
    }
    let joins = matches!(order.command(), Command::Join(_) | Command::Create { .. });
    let active = before.status == Status::Active;
    if let Some(peer) = peer.as_ref().filter(|_| !joins && active) {
        let is_member = before.peers.get(peer) == Some(user);
        holds!(is_member || events.is_empty(), "I-21: {peer} is over and does something");
    }
    Ok(())
}

/// I-7, I-8, I-9: what an old session, a stale exit and an exit do.
fn mic_sessions(
    before: &Cell,
    command: &Command,
    events: &[Event],
    cell: &Cell,
    rules: &Rules,
) -> Result<(), String> {
    let named = match command {
        Command::MicConfirm { session } => Some(session),
        Command::MicDown { session, .. } => session.as_ref(),
        Command::Due(room_cell::Timer::Publish { session, .. }) => Some(session),
        _ => None,
    };
    for event in events {
        let touched = match event {
            Event::SeatFreed { session, .. } | Event::Confirmed { session, .. } => session,
            _ => continue,
        };
        holds!(named.is_none_or(|named| named == touched), "I-7: {named:?} touched {touched}");
    }
    let Command::Media(report) = command else { return Ok(()) };
    for event in events {
        let person = matches!(
            event,
            Event::Joined { .. } | Event::PeerEnded { .. } | Event::Left { .. } | Event::RoleChanged { .. }
        );
        holds!(!person, "I-9: {event:?} by the media server");
        if let Event::SeatFreed { reason, session, .. } = event {
            freed_by(before, report, *reason, session.as_str(), rules)?;
        }
    }
    if report.what == MediaFact::RoomExited {
        holds!(before.users == cell.users, "I-9: an exit changed who is present");
    }
    Ok(())
}

fn freed_by(
    before: &Cell,
    report: &MediaReport,
    reason: MicEnd,
    session: &str,
    rules: &Rules,
) -> Result<(), String> {
    let sitters = before.seats.values().filter_map(|seat| seat.sitter.as_ref());
    let Some(sitter) = sitters.into_iter().find(|it| it.session.as_str() == session) else {
        return Err(format!("{session} was freed, which did not stand"));
    };
    let end = report.at.after(report.resolution_ms);
    let start = Millis(sitter.started_at.0 - rules.clock_tolerance_ms);
    holds!(end >= start, "I-7: a report of {end:?} freed a session of {:?}", sitter.started_at);
    if reason == MicEnd::AudioStopped {
        let speaks = matches!(sitter.speaking, Speaking::Publishing { .. });
        holds!(speaks, "a stop freed a seat that waits");
        return Ok(());
    }
    let own = sitter.heard.as_ref().and_then(|heard| heard.incarnation.as_ref());
    if own.is_some() && report.incarnation.is_some() {
        holds!(own == report.incarnation.as_ref(), "I-8: an exit of another stay freed the seat");
    }
    let since = before.peer(sitter.peer.as_str()).map_or(sitter.started_at, |peer| peer.since);
    let kept = since > sitter.started_at;
    holds!(!kept || report.at >= since, "I-8: an exit of {:?} ended what went on at {since:?}", report.at);
    if own.is_some() && own == report.incarnation.as_ref() {
        return Ok(());
    }
    let peers = before.users.get(&sitter.user).map(|it| it.peers.as_slice()).unwrap_or_default();
    let named = report.who.as_ref().and_then(|who| who.peer.as_ref());
    let meant = peers.iter().filter(|it| named.is_none_or(|peer| it.peer == *peer));
    let newest = meant.map(|it| it.since).fold(sitter.started_at, Millis::max);
    holds!(report.at >= newest, "I-8: an exit of {:?} freed what began at {newest:?}", report.at);
    Ok(())
}

/// I-12: what is over is empty and takes nothing; seats keep numbers and locks.
fn room(before: &Cell, command: &Command, events: &[Event], cell: &Cell) -> Result<(), String> {
    let over = |cell: &Cell| matches!(cell.status, Status::Closing { .. } | Status::Closed);
    if cell.status != Status::Active {
        let nothing = cell.users.is_empty()
            && cell.requests.is_empty()
            && cell.invites.is_empty()
            && cell.media.is_empty()
            && cell.seats.values().all(|seat| seat.sitter.is_none())
            && cell.call.as_ref().is_none_or(|call| call.state.is_over());
        holds!(nothing, "I-12: {:?} and not empty", cell.status);
    }
    if over(cell) && !over(before) {
        let locks = |cell: &Cell| cell.seats.values().map(|seat| seat.locked).collect::<Vec<_>>();
        holds!(locks(before) == locks(cell), "I-12: seats changed by closing");
        holds!(before.bans == cell.bans, "bans changed by closing");
    }
    if over(before) && !events.is_empty() {
        let may = matches!(
            command,
            Command::Ended
                | Command::Due(_)
                | Command::Reopen { .. }
                | Command::Shift { .. }
                | Command::DutiesDone { .. }
        ) || matches!(command, Command::Media(report) if report.what == MediaFact::RoomFinished);
        holds!(may, "I-12: {:?} took {command:?}", before.status);
    }
    Ok(())
}

/// I-19: an accepted call is not missed and not declined, and what is over stays so.
fn calls(before: &Cell, events: &[Event]) -> Result<(), String> {
    let mut call = before.call.clone();
    for event in events {
        let from = call.as_ref().map(|call| call.state);
        let allowed = match event {
            Event::CallStarted { .. } => from.is_none_or(CallState::is_over),
            Event::CallAccepted { .. } | Event::CallDeclinedBy { .. } => from == Some(CallState::Started),
            Event::CallEnded { state: CallState::Missed | CallState::Declined, .. } => {
                from == Some(CallState::Started)
            }
            Event::CallEnded { .. } => from == Some(CallState::Accepted),
            _ => true,
        };
        holds!(allowed, "I-19: {event:?} where the call is {from:?}");
        let mut probe = Cell { call, ..Cell::default() };
        apply(&mut probe, event);
        call = probe.call;
    }
    Ok(())
}
