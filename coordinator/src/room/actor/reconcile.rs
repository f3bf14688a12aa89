//! The room against the list of its external media server, both ways.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use media_bridge::{MediaError, MediaKind, Member, Participant, PeerRef, Permissions};
use room_cell::{
    Actor as By, Command, Duty, Limits, MediaFact, MediaIdentity, MediaReport, MicSession, Millis, Peer,
    Sitter, Speaking,
};

use super::{Actor, State};
use crate::room::batch::{Source, Step};
use crate::room::desk::Job;

/// Where nothing tells of audio, people say themselves that they are heard, and the list may not have them yet.
const LAG_MS: u64 = 10_000;

impl Actor {
    /// The media server said who is there.
    pub(super) async fn listed(&mut self, asked_at: Millis, said: Result<Vec<Participant>, MediaError>) {
        let there = match said {
            Ok(there) => there,
            Err(MediaError::NotFound { .. }) => return self.router_lost().await,
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "who is there is not known");
                let now = self.redis_now();
                if let Some(external) = &mut self.external {
                    external.heard = Some((now, None));
                }
                return;
            }
        };
        let State::Owned(room) = &self.state else { return };
        let people: Vec<Arc<Peer>> =
            room.cell().users.values().flat_map(|presence| presence.peers.clone()).collect();
        let mut here: HashMap<Arc<str>, Arc<Peer>> =
            people.into_iter().map(|peer| (self.member(&peer).name, peer)).collect();
        let mut reports = Vec::new();
        let mut heard = HashSet::new();
        for participant in there {
            let Some(peer) = here.remove(&participant.name) else {
                if self.is_monitor(&participant.name) {
                    self.silence(&participant);
                } else {
                    self.put_out(&participant);
                }
                continue;
            };
            if participant.audible == Some(true) {
                heard.insert(peer.peer.shared());
            }
            if let Some(what) = self.missed(&peer, &participant) {
                reports.push(report(&peer, what, asked_at, participant.incarnation.clone()));
            }
            self.set_right(&peer, &participant);
        }
        // Who is left is here, and not there.
        let mut missing = HashMap::new();
        for peer in here.values() {
            let Some(sitter) = self.sitter_of(peer) else { continue };
            if !matches!(sitter.speaking, Speaking::Publishing { .. }) {
                continue;
            }
            let since = self.missing_since(&sitter.session, asked_at);
            if asked_at.since(since) >= self.lag_ms() {
                reports.push(report(peer, MediaFact::RoomExited, asked_at, None));
            }
            missing.insert(sitter.session.clone(), since);
        }
        if let Some(external) = &mut self.external {
            external.missing = missing;
            external.heard = Some((asked_at, Some(heard)));
        }
        self.node.metrics.reconciled.with_label_values(&["compared"]).inc();
        let found = u64::try_from(reports.len()).unwrap_or(u64::MAX);
        self.node.metrics.reconciled.with_label_values(&["seats"]).inc_by(found);
        let steps: Vec<Step> = reports
            .into_iter()
            .filter_map(|report| Command::Media(report).validate(By::Media, &Limits::default()).ok())
            .map(|order| Step::new(order, Source::Own))
            .collect();
        if !steps.is_empty() {
            self.execute(steps).await;
        }
    }

    /// Finds out whom a report in the vendor's names is about, and what follows at the media server. What is of
    /// another router is left to the cell, which refuses it.
    pub(super) fn place_report(&mut self, report: &mut MediaReport, participant: Option<&str>) {
        let Some(at) = self.placed() else { return };
        if report.router.is_none_or(|generation| generation != at.router.generation.0) {
            return;
        }
        if report.what == MediaFact::RoomFinished {
            self.doubt_router();
            return;
        }
        if let Some(name) = participant {
            report.who = self.who_is(name);
        }
        let speaks = report.what == MediaFact::AudioStarted;
        if !speaks && report.what != MediaFact::ParticipantJoined {
            return;
        }
        let Some(who) = &report.who else {
            if let Some(name) = participant.filter(|name| !self.has_list() && !self.is_monitor(name)) {
                // No list will tell of them again.
                self.ask_desk(Job::Remove { at, name: name.into(), duty: None });
            }
            return self.reconcile_soon();
        };
        let State::Owned(room) = &self.state else { return };
        let peer = who.peer.as_ref().and_then(|peer| room.cell().peer(peer.as_str()));
        // Whoever lets themselves be heard who may not is muted again.
        if let Some(peer) = peer.filter(|peer| speaks && !self.external_permissions(peer).publish_audio) {
            self.permit(at, peer);
        }
    }

    pub(super) fn who_is(&mut self, name: &str) -> Option<MediaIdentity> {
        let State::Owned(room) = &self.state else { return None };
        let cell = room.cell();
        let is_here = |who: &MediaIdentity| {
            who.peer.as_ref().is_some_and(|peer| cell.peers.get(peer) == Some(&who.user))
        };
        let (version, known) = &self.external.as_ref()?.names;
        if let Some(who) = known.get(name).filter(|who| is_here(who)) {
            return Some(who.clone());
        }
        // A stranger costs the names once for each change of the room, however often they are heard.
        if *version == cell.version {
            return None;
        }
        let named = cell.users.values().flat_map(|presence| &presence.peers).map(|peer| {
            let who = MediaIdentity { user: peer.user.clone(), peer: Some(peer.peer.clone()) };
            (self.member(peer).name, who)
        });
        let names: HashMap<Arc<str>, MediaIdentity> = named.collect();
        let who = names.get(name).cloned();
        let version = cell.version;
        self.external.as_mut()?.names = (version, names);
        who
    }

    fn missing_since(&self, session: &MicSession, asked_at: Millis) -> Millis {
        let known = self.external.as_ref().and_then(|external| external.missing.get(session));
        known.map_or(asked_at, |since| (*since).min(asked_at))
    }

    /// For how long somebody has to be missing in the list to be gone.
    fn lag_ms(&self) -> u64 {
        let tells = self.app.media_kind.is_some_and(MediaKind::tells_who_is_heard);
        if tells { 0 } else { LAG_MS }
    }

    fn sitter_of(&self, peer: &Peer) -> Option<&Sitter> {
        let State::Owned(room) = &self.state else { return None };
        let (_, sitter) = room.cell().seat_of(peer.user.as_str())?;
        Some(sitter).filter(|sitter| sitter.peer == peer.peer)
    }

    /// What the media server must have said of somebody and was not heard.
    fn missed(&self, peer: &Peer, there: &Participant) -> Option<MediaFact> {
        let sitter = self.sitter_of(peer)?;
        match (sitter.speaking, there.audible?) {
            (Speaking::PendingPublish { .. }, true) => Some(MediaFact::AudioStarted),
            // Who is muted is not expected to be heard.
            // Nor who was just allowed to be, and is not let through yet.
            (Speaking::Publishing { .. }, false) if !sitter.muted && !self.is_permit_owed(peer) => {
                Some(MediaFact::AudioStopped)
            }
            _ => None,
        }
    }

    fn is_permit_owed(&self, peer: &Peer) -> bool {
        let State::Owned(room) = &self.state else { return false };
        let duty = Duty::Permit { user: peer.user.clone(), peer: peer.peer.clone() };
        room.cell().duties.contains_key(&duty)
    }

    fn is_monitor(&self, name: &str) -> bool {
        let Some(at) = self.placed() else { return false };
        self.node.media.monitors(&at.node.name).is_some_and(|names| names.is_one(&at.router.name, name))
    }

    /// A monitor listens; whoever let it in puts it out.
    fn silence(&self, monitor: &Participant) {
        if monitor.audible != Some(true) && monitor.may_publish_audio != Some(true) {
            return;
        }
        let Some(at) = self.placed() else { return };
        let name = Arc::clone(&monitor.name);
        let member = Member { name, peer: PeerRef::new("", ""), display: None };
        self.ask_desk(Job::Permit { at, member, permissions: Permissions::LISTEN, duty: None });
    }

    /// Somebody is at the media server who is not in the room.
    fn put_out(&self, participant: &Participant) {
        let Some(at) = self.placed() else { return };
        tracing::info!("somebody at the media server is not in the room");
        self.node.metrics.reconciled.with_label_values(&["strangers"]).inc();
        self.ask_desk(Job::Remove { at, name: Arc::clone(&participant.name), duty: None });
    }

    /// Brings somebody to what they may do, if the media server sees that otherwise.
    fn set_right(&self, peer: &Peer, there: &Participant) {
        let permissions = self.external_permissions(peer);
        if there.may_publish_audio.is_none_or(|may| may == permissions.publish_audio) {
            return;
        }
        let Some(at) = self.placed() else { return };
        self.node.metrics.reconciled.with_label_values(&["permissions"]).inc();
        self.permit(at, peer);
    }
}

fn report(peer: &Peer, what: MediaFact, at: Millis, incarnation: Option<Arc<str>>) -> MediaReport {
    MediaReport {
        what,
        who: Some(MediaIdentity { user: peer.user.clone(), peer: Some(peer.peer.clone()) }),
        router: None,
        incarnation,
        sequence: None,
        at,
        resolution_ms: 0,
    }
}
