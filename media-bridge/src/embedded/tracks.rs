//! Tracks: what publishers send, to whom it goes, and the packets on their way.

use std::time::{Duration, Instant};

use rtc::rtp;
use rtc::rtp_transceiver::{RTCRtpReceiverId, RTCRtpSenderId};

use super::keyframe::{KeyframeRequests, begins_vp8_key_frame};
use super::room::{ConnectionId, Room};
use crate::{MediaEventKind, PeerRef, TrackKind, TrackRef};

/// Numbers tracks within a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TrackId(pub(super) u64);

/// One section of a publishing connection.
pub(super) struct Track {
    pub(super) owner: PeerRef,
    pub(super) connection: ConnectionId,
    pub(super) mid: String,
    pub(super) kind: TrackKind,
    pub(super) ssrc: u32,
    pub(super) payload_type: u8,
    pub(super) receiver: RTCRtpReceiverId,
    pub(super) sinks: Vec<Sink>,
    pub(super) keyframes: KeyframeRequests,
}

impl Track {
    pub(super) fn named(&self) -> TrackRef {
        TrackRef { user: self.owner.user.clone(), peer: self.owner.peer.clone(), kind: self.kind }
    }
}

/// A subscriber of a track.
pub(super) struct Sink {
    pub(super) connection: ConnectionId,
    pub(super) sender: RTCRtpSenderId,
    pub(super) ssrc: u32,
    pub(super) payload_type: u8,
    /// Nothing is sent before a key frame: what came before it cannot be decoded.
    pub(super) waiting: bool,
}

/// One section of a subscribing connection.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) mid: String,
    pub(super) kind: TrackKind,
    pub(super) attached: Option<Attached>,
    /// A stream that nothing is sent on, while the client has the section inactive.
    pub(super) parked: Option<RTCRtpSenderId>,
}

/// What a slot carries.
#[derive(Clone, Copy)]
pub(super) struct Attached {
    pub(super) track: TrackId,
    pub(super) sender: RTCRtpSenderId,
    pub(super) ssrc: u32,
}

impl Room {
    /// Passes a publisher's packet on to everyone who is subscribed to its track.
    pub(super) fn forward(&mut self, from: ConnectionId, packet: &rtp::Packet, now: Instant) {
        let track = self.streams.get(&(from, packet.header.ssrc)).and_then(|id| self.tracks.get_mut(id));
        let Some(track) = track.filter(|track| track.payload_type == packet.header.payload_type) else {
            return self.counters.packets_refused.add(1);
        };
        let Some(peer) = self.peers.get_mut(&track.owner) else { return };
        if !peer.permissions.may_publish(track.kind) {
            return self.counters.packets_refused.add(1);
        }
        self.counters.packets_received.add(1);
        if track.kind == TrackKind::Audio
            && peer.activity.packet(now, packet.payload.len())
            && let Some(session) = &peer.session
        {
            self.outbox.event(&track.owner, session, MediaEventKind::AudioStarted);
        }
        let level = self
            .connections
            .get(&from)
            .and_then(|it| it.audio_level)
            .filter(|_| track.kind == TrackKind::Audio);
        let level = level.and_then(|number| packet.header.get_extension(number)?.first().copied());
        // The highest bit is the sender's own guess whether it is a voice.
        if let Some(level) = level.and_then(|level| peer.voice.packet(now, level & 0x7f)) {
            self.outbox.level(&track.owner, level);
        }
        let key_frame = track.kind == TrackKind::Video && begins_vp8_key_frame(&packet.payload);
        let mut forwarded = 0;
        for sink in &mut track.sinks {
            if sink.waiting && !key_frame {
                track.keyframes.ask();
                continue;
            }
            let Some(connection) = self.connections.get_mut(&sink.connection) else { continue };
            if !connection.connected {
                continue;
            }
            sink.waiting = false;
            forwarded += u64::from(connection.send(sink.sender, rewritten(packet, sink), now));
        }
        self.counters.packets_forwarded.add(forwarded);
    }

    /// A subscriber lost its picture.
    pub(super) fn want_keyframes(&mut self, from: ConnectionId, ssrcs: &[u32]) {
        for track in self.tracks.values_mut().filter(|track| track.kind == TrackKind::Video) {
            if track.sinks.iter().any(|sink| sink.connection == from && ssrcs.contains(&sink.ssrc)) {
                track.keyframes.ask();
            }
        }
    }

    /// Sends the key frame requests that are due.
    pub(super) fn request_keyframes(&mut self, now: Instant) {
        for track in self.tracks.values_mut() {
            let Some(connection) = self.connections.get_mut(&track.connection) else { continue };
            if connection.connected && track.keyframes.take(now) {
                connection.request_keyframe(track.receiver, track.ssrc, now);
                self.counters.keyframes_requested.add(1);
            }
        }
    }

    /// Notices that somebody's audio stopped coming.
    pub(super) fn end_silent(&mut self, now: Instant) {
        let silence = Duration::from_millis(self.config.silence_after_ms);
        for (name, peer) in &mut self.peers {
            if peer.activity.deadline(silence).is_some_and(|at| at <= now)
                && peer.activity.stop()
                && let Some(session) = &peer.session
            {
                self.outbox.event(name, session, MediaEventKind::AudioStopped);
            }
            if peer.voice.deadline().is_some_and(|at| at <= now) && peer.voice.stop() {
                self.outbox.level(name, 0.0);
            }
        }
    }

    /// Ends one track, and tells those who could hear it.
    pub(super) fn end_track(&mut self, id: TrackId) {
        let Some(track) = self.tracks.remove(&id) else { return };
        self.streams.retain(|_, track| *track != id);
        self.tracks_changed(&track.owner);
        let speaks = self.tracks.values().any(|other| other.owner == track.owner && other.kind == track.kind);
        if track.kind == TrackKind::Audio
            && !speaks
            && let Some(peer) = self.peers.get_mut(&track.owner)
        {
            peer.quiet(&track.owner, &mut self.outbox);
        }
    }

    pub(super) fn end_tracks_of(&mut self, publishing: ConnectionId) {
        let ended: Vec<TrackId> = self
            .tracks
            .iter()
            .filter(|(_, track)| track.connection == publishing)
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            self.end_track(id);
        }
    }

    pub(super) fn end_sinks_of(&mut self, subscribing: ConnectionId) {
        for track in self.tracks.values_mut() {
            track.sinks.retain(|sink| sink.connection != subscribing);
        }
    }

    /// Has everyone who may hear `owner` told that there is something new.
    pub(super) fn tracks_changed(&mut self, owner: &PeerRef) {
        for (name, peer) in &self.peers {
            if name != owner && peer.permissions.subscribe {
                self.outbox.tracks_changed(name.clone());
            }
        }
    }

    /// What a peer can subscribe to.
    pub(super) fn tracks_for(&self, peer: &PeerRef) -> Vec<TrackRef> {
        self.tracks.values().filter(|track| track.owner != *peer).map(Track::named).collect()
    }
}

/// The packet as one subscriber gets it. Header extensions are numbered by each connection on its own, so none is
/// passed on; sequence numbers and timestamps are the publisher's.
fn rewritten(packet: &rtp::Packet, sink: &Sink) -> rtp::Packet {
    let header = rtp::Header {
        version: 2,
        marker: packet.header.marker,
        payload_type: sink.payload_type,
        sequence_number: packet.header.sequence_number,
        timestamp: packet.header.timestamp,
        ssrc: sink.ssrc,
        ..Default::default()
    };
    rtp::Packet { header, payload: packet.payload.clone() }
}
