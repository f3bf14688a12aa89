//! What a room has to tell, kept in order while nobody can take it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::stats::Counters;
use crate::{ClockMs, Generation, MediaEvent, MediaEventKind, MediaSignal, PeerRef, RoomRef};

/// Events kept while the channel is full.
const BACKLOG_MAX: usize = 256;

/// One room's way to the channel.
pub(super) struct Outbox {
    room: RoomRef,
    generation: Generation,
    clock: ClockMs,
    channel: mpsc::Sender<MediaSignal>,
    counters: Arc<Counters>,
    events: VecDeque<MediaEvent>,
    stale: BTreeSet<PeerRef>,
}

impl Outbox {
    pub(super) fn new(
        room: RoomRef,
        generation: Generation,
        clock: ClockMs,
        channel: mpsc::Sender<MediaSignal>,
        counters: Arc<Counters>,
    ) -> Self {
        let (events, stale) = (VecDeque::new(), BTreeSet::new());
        Self { room, generation, clock, channel, counters, events, stale }
    }

    /// Reports something of a participant.
    pub(super) fn event(&mut self, peer: &PeerRef, session: &Arc<str>, kind: MediaEventKind) {
        self.push(Some((peer.clone(), Arc::clone(session))), kind);
    }

    /// Reports something of the room.
    pub(super) fn room_event(&mut self, kind: MediaEventKind) {
        self.push(None, kind);
    }

    /// Tells how loud somebody is; lost if nobody takes it.
    pub(super) fn level(&self, peer: &PeerRef, level: f32) {
        let (room, peer) = (self.room.clone(), peer.clone());
        _ = self.channel.try_send(MediaSignal::Level { room, peer, level });
    }

    /// Has a peer told that its list of tracks changed.
    pub(super) fn tracks_changed(&mut self, peer: PeerRef) {
        self.stale.insert(peer);
    }

    /// Takes back what a peer was to be told.
    pub(super) fn forget(&mut self, peer: &PeerRef) {
        self.stale.remove(peer);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.stale.is_empty()
    }

    /// Hands over what the channel takes.
    pub(super) fn flush(&mut self) {
        while let Some(event) = self.events.pop_front() {
            match self.channel.try_send(MediaSignal::Event(event)) {
                Ok(()) => {}
                Err(TrySendError::Full(MediaSignal::Event(event))) => {
                    self.events.push_front(event);
                    return;
                }
                Err(_) => {
                    self.counters.events_dropped.add(1);
                    return self.abandon();
                }
            }
        }
        if !self.stale.is_empty() {
            let signal = MediaSignal::TracksChanged {
                room: self.room.clone(),
                subscribers: self.stale.iter().cloned().collect(),
            };
            match self.channel.try_send(signal) {
                Ok(()) => self.stale.clear(),
                Err(TrySendError::Full(_)) => {}
                Err(TrySendError::Closed(_)) => self.abandon(),
            }
        }
    }

    /// Counts what will never be handed over.
    pub(super) fn abandon(&mut self) {
        self.counters.events_dropped.add(self.events.len() as u64);
        self.events.clear();
        self.stale.clear();
    }

    fn push(&mut self, about: Option<(PeerRef, Arc<str>)>, kind: MediaEventKind) {
        if self.events.len() == BACKLOG_MAX {
            self.events.pop_front();
            self.counters.events_dropped.add(1);
        }
        let (peer, session) = about.unzip();
        self.events.push_back(MediaEvent {
            room: self.room.clone(),
            generation: Some(self.generation),
            peer,
            session,
            kind,
            at_ms: (self.clock)(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(capacity: usize) -> (Outbox, mpsc::Receiver<MediaSignal>, Arc<Counters>) {
        let (sender, receiver) = mpsc::channel(capacity);
        let counters = Arc::new(Counters::default());
        let clock: ClockMs = Arc::new(|| 7);
        let room = RoomRef::new("app", "room");
        (Outbox::new(room, Generation(1), clock, sender, Arc::clone(&counters)), receiver, counters)
    }

    #[test]
    fn a_full_channel_keeps_order_and_the_newest_events() {
        let (mut outbox, mut receiver, counters) = outbox(1);
        let (peer, session) = (PeerRef::new("user", "peer"), Arc::from("1.1"));
        for _ in 0..=BACKLOG_MAX {
            outbox.event(&peer, &session, MediaEventKind::AudioStarted);
        }
        outbox.room_event(MediaEventKind::RoomFinished);
        outbox.tracks_changed(peer.clone());
        outbox.tracks_changed(peer);
        let mut signals = Vec::new();
        while !outbox.is_empty() {
            outbox.flush();
            signals.push(receiver.try_recv().unwrap());
        }
        assert_eq!(signals.len(), BACKLOG_MAX + 1);
        assert_eq!(counters.read().events_dropped, 2);
        let [.., MediaSignal::Event(last), MediaSignal::TracksChanged { subscribers, .. }] = &signals[..]
        else {
            panic!("{signals:?}")
        };
        assert_eq!((&last.kind, last.at_ms), (&MediaEventKind::RoomFinished, 7));
        assert_eq!(subscribers.len(), 1);
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let (mut outbox, receiver, counters) = outbox(1);
        drop(receiver);
        outbox.room_event(MediaEventKind::RoomFinished);
        outbox.tracks_changed(PeerRef::new("user", "peer"));
        outbox.flush();
        assert!(outbox.is_empty());
        assert_eq!(counters.read().events_dropped, 1);
    }
}
