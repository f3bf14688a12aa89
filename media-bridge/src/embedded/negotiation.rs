//! Grants, and the offers of those who have one.

use std::collections::HashSet;
use std::time::Instant;

use super::answer;
use super::connection::Connection;
use super::offer::{Offer, Role, Section};
use super::room::{ConnectionId, Peer, Room};
use super::tracks::{Attached, Sink, Slot, Track, TrackId};
use super::{SubscribeAnswer, SubscribedTrack};
use crate::{ExitReason, MediaError, PeerRef, Permissions, TrackKind, TrackRef};

const NO_PARTICIPANT: MediaError = MediaError::NotFound { what: "participant" };

impl Room {
    /// Grants, or with no permissions reads an existing grant; answers with what can be subscribed to.
    pub(super) fn grant(
        &mut self,
        peer: &PeerRef,
        permissions: Option<Permissions>,
    ) -> Result<Vec<TrackRef>, MediaError> {
        match permissions {
            Some(permissions) if self.peers.contains_key(peer) => self.set_permissions(peer, permissions)?,
            Some(permissions) => {
                let max = self.config.max_peers_per_room;
                if self.peers.len() >= max {
                    return Err(MediaError::TooMany { limit: "max_peers_per_room", max: max as u64 });
                }
                self.peers.insert(peer.clone(), Peer::new(permissions));
            }
            None => {}
        }
        let granted = self.peers.get(peer).ok_or(NO_PARTICIPANT)?;
        Ok(if granted.permissions.subscribe { self.tracks_for(peer) } else { Vec::new() })
    }

    pub(super) fn set_permissions(
        &mut self,
        name: &PeerRef,
        permissions: Permissions,
    ) -> Result<(), MediaError> {
        let peer = self.peers.get_mut(name).ok_or(NO_PARTICIPANT)?;
        let former = std::mem::replace(&mut peer.permissions, permissions);
        if !permissions.publish_audio {
            peer.quiet(name, &mut self.outbox);
        }
        let subscribing = peer.subscribing;
        if former.subscribe && !permissions.subscribe {
            if let Some(id) = subscribing {
                self.end_connection(id, ExitReason::Removed);
            }
            self.outbox.tracks_changed(name.clone());
        } else if !former.subscribe && permissions.subscribe {
            self.outbox.tracks_changed(name.clone());
        }
        Ok(())
    }

    pub(super) fn publish(
        &mut self,
        name: &PeerRef,
        offer: &Offer,
        now: Instant,
    ) -> Result<String, MediaError> {
        let peer = self.peers.get(name).ok_or(NO_PARTICIPANT)?;
        for section in offer.active() {
            if !peer.permissions.may_publish(section.kind) {
                let action = match section.kind {
                    TrackKind::Audio => "publish audio",
                    TrackKind::Video => "publish video",
                };
                return Err(MediaError::NotPermitted { action });
            }
        }
        let (id, answer) = self.negotiate(name, Role::Publish, offer, now, |_, _| Ok(()))?;
        let payload_types = answer::payload_types(&answer);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.audio_level = answer::audio_level(&answer);
        }
        for (section, payload_type) in offer.sections.iter().zip(payload_types) {
            self.publish_section(id, name, section, payload_type);
        }
        Ok(answer::for_client(&answer, offer, Role::Publish, self.config.max_bitrate_bps))
    }

    fn publish_section(&mut self, id: ConnectionId, owner: &PeerRef, section: &Section, codec: Option<u8>) {
        let existing = self
            .tracks
            .iter()
            .find(|(_, track)| track.connection == id && track.mid == section.mid)
            .map(|(track, existing)| (*track, existing.ssrc));
        let offered = section.ssrc.filter(|_| section.active);
        if let Some((track, ssrc)) = existing {
            if offered == Some(ssrc) {
                return;
            }
            self.end_track(track);
        }
        let receiver = self.connections.get_mut(&id).and_then(|it| it.receiver(&section.mid));
        let (Some(ssrc), Some(payload_type), Some(receiver)) = (offered, codec, receiver) else { return };
        let track = TrackId(self.next_track);
        self.next_track += 1;
        self.streams.insert((id, ssrc), track);
        self.tracks.insert(
            track,
            Track {
                owner: owner.clone(),
                connection: id,
                mid: section.mid.clone(),
                kind: section.kind,
                ssrc,
                payload_type,
                receiver,
                sinks: Vec::new(),
                keyframes: super::keyframe::KeyframeRequests::default(),
            },
        );
        self.tracks_changed(owner);
    }

    pub(super) fn subscribe(
        &mut self,
        name: &PeerRef,
        offer: &Offer,
        now: Instant,
    ) -> Result<SubscribeAnswer, MediaError> {
        if !self.peers.get(name).ok_or(NO_PARTICIPANT)?.permissions.subscribe {
            return Err(MediaError::NotPermitted { action: "subscribe" });
        }
        let mut slots = Vec::new();
        let (id, answer) = self.negotiate(name, Role::Subscribe, offer, now, |room, connection| {
            slots = room.assign(name, offer, connection)?;
            Ok(())
        })?;
        let payload_types = answer::payload_types(&answer);
        self.end_sinks_of(id);
        let mut tracks = Vec::new();
        for (slot, payload_type) in slots.iter().zip(payload_types) {
            let (Some(attached), Some(payload_type)) = (slot.attached, payload_type) else { continue };
            let Some(track) = self.tracks.get_mut(&attached.track) else { continue };
            let waiting = track.kind == TrackKind::Video;
            track.sinks.push(Sink {
                connection: id,
                sender: attached.sender,
                ssrc: attached.ssrc,
                payload_type,
                waiting,
            });
            if waiting {
                track.keyframes.ask();
            }
            let TrackRef { user, peer, kind } = track.named();
            tracks.push(SubscribedTrack { mid: slot.mid.clone(), user, peer, kind });
        }
        let carried: HashSet<TrackId> =
            slots.iter().filter_map(|slot| slot.attached).map(|attached| attached.track).collect();
        let missing = self.tracks.iter().filter(|(id, track)| track.owner != *name && !carried.contains(id));
        let missing = missing.map(|(_, track)| track.named()).collect();
        if let Some(peer) = self.peers.get_mut(name) {
            peer.slots = slots;
        }
        let sdp = answer::for_client(&answer, offer, Role::Subscribe, self.config.max_bitrate_bps);
        Ok(SubscribeAnswer { sdp, tracks, missing })
    }

    /// Decides what each offered section carries: what it carried, else a track that has none yet.
    fn assign(
        &mut self,
        name: &PeerRef,
        offer: &Offer,
        connection: &mut Connection,
    ) -> Result<Vec<Slot>, MediaError> {
        let known = self.peers.get(name).filter(|_| !connection.is_fresh()).map(|peer| peer.slots.as_slice());
        let known = known.unwrap_or_default();
        let mut slots = Vec::with_capacity(offer.sections.len());
        for section in &offer.sections {
            let mut slot = known.iter().find(|slot| slot.mid == section.mid).cloned().unwrap_or_else(|| {
                Slot { mid: section.mid.clone(), kind: section.kind, attached: None, parked: None }
            });
            if section.active {
                let gone = slot.attached.filter(|it| !self.tracks.contains_key(&it.track));
                for sender in gone.map(|it| it.sender).into_iter().chain(slot.parked.take()) {
                    connection.detach(sender)?;
                }
                slot.attached = slot.attached.filter(|_| gone.is_none());
            } else if let Some(attached) = slot.attached.take() {
                slot.parked = Some(attached.sender);
            }
            slots.push(slot);
        }
        let waiting: Vec<TrackId> = self
            .tracks
            .iter()
            .filter(|(_, track)| track.owner != *name)
            .map(|(id, _)| *id)
            .filter(|id| !slots.iter().any(|slot| slot.attached.is_some_and(|it| it.track == *id)))
            .collect();
        for id in waiting {
            let Some(kind) = self.tracks.get(&id).map(|track| track.kind) else { continue };
            let usable = |slot: &Slot, section: &Section| {
                section.active && slot.kind == kind && slot.attached.is_none()
            };
            while slots.iter().zip(&offer.sections).any(|(slot, section)| usable(slot, section)) {
                let ssrc = self.fresh_ssrc();
                let (sender, mid) = connection.attach(kind, &format!("track{}", id.0), ssrc)?;
                let at = slots.iter().position(|slot| slot.mid == mid);
                let at = at.ok_or_else(|| MediaError::unavailable("a track went to an unknown section"))?;
                if offer.sections[at].active {
                    slots[at].attached = Some(Attached { track: id, sender, ssrc });
                    break;
                }
                // The stack fills sections in order, those that are inactive too; there it stays until it is active.
                slots[at].parked = Some(sender);
            }
        }
        Ok(slots)
    }

    /// Answers an offer on the connection it belongs to, or on a new one that replaces it.
    ///
    /// A connection on which a negotiation failed is in no known state, and is ended.
    fn negotiate(
        &mut self,
        name: &PeerRef,
        role: Role,
        offer: &Offer,
        now: Instant,
        between: impl FnOnce(&mut Self, &mut Connection) -> Result<(), MediaError>,
    ) -> Result<(ConnectionId, String), MediaError> {
        let current = self.peers.get_mut(name).and_then(|peer| *peer.connection_mut(role));
        let current =
            current.filter(|id| self.connections.get(id).is_some_and(|it| it.identity == offer.connection));
        let mut connection = match current.and_then(|id| self.connections.remove(&id)) {
            Some(connection) => connection,
            None => Connection::open(name.clone(), role, &self.config, &self.certificate, now)
                .map_err(|error| MediaError::unavailable(error.to_string()))?,
        };
        let candidates: Vec<_> = self.sockets.advertised().collect();
        let answer = connection
            .apply(offer, candidates.into_iter(), now)
            .and_then(|()| between(self, &mut connection))
            .and_then(|()| connection.answer(now));
        let id = match (current, &answer) {
            (Some(id), _) => {
                self.connections.insert(id, connection);
                id
            }
            (None, Ok(_)) => self.adopt(connection),
            (None, Err(error)) => return Err(error.clone()),
        };
        match answer {
            Ok(answer) => {
                if let Some(ufrag) = answer::local_ufrag(&answer) {
                    self.demux.expect(ufrag, id);
                }
                Ok((id, answer))
            }
            Err(error) => {
                self.end_connection(id, ExitReason::Failed);
                Err(error)
            }
        }
    }
}
