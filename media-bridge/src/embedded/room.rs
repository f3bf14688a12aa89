//! A room's router: one task that owns the room's sockets, connections and tracks, and shares nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtc::peer_connection::certificate::RTCCertificate;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::SubscribeAnswer;
use super::activity::{Activity, Voice};
use super::config::EmbeddedConfig;
use super::connection::{Connection, Output};
use super::offer::{Offer, Role};
use super::outbox::Outbox;
use super::sockets::{Demux, Sockets};
use super::stats::Counters;
use super::tracks::{Slot, Track, TrackId};
use crate::{Connected, ExitReason, Generation, MediaError, MediaEventKind, PeerRef, Permissions, TrackRef};

/// Datagrams taken before the room looks at anything else.
const BATCH: usize = 128;
/// Larger than any datagram a WebRTC client sends.
const DATAGRAM_MAX: usize = 2048;
/// How soon events are offered again to a full channel.
const RETRY: Duration = Duration::from_millis(20);
/// A room with nothing to do looks at its clock this often.
const IDLE: Duration = Duration::from_secs(60);

/// How a call gets its answer.
pub(super) type Reply<T> = oneshot::Sender<Result<T, MediaError>>;

/// What a room may be asked.
pub(super) enum Command {
    Grant { peer: PeerRef, permissions: Option<Permissions>, reply: Reply<Vec<TrackRef>> },
    SetPermissions { peer: PeerRef, permissions: Permissions, reply: Reply<()> },
    Publish { peer: PeerRef, offer: Offer, reply: Reply<String> },
    Subscribe { peer: PeerRef, offer: Offer, reply: Reply<SubscribeAnswer> },
    Remove { peer: PeerRef, reply: Reply<()> },
    List { reply: Reply<Vec<Connected>> },
}

/// Numbers connections within a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ConnectionId(u64);

/// Somebody with a grant.
pub(super) struct Peer {
    pub(super) permissions: Permissions,
    /// Set while there is a connection.
    pub(super) session: Option<Arc<str>>,
    pub(super) joined: bool,
    pub(super) publishing: Option<ConnectionId>,
    pub(super) subscribing: Option<ConnectionId>,
    pub(super) slots: Vec<Slot>,
    pub(super) activity: Activity,
    pub(super) voice: Voice,
}

/// The router of one room.
pub(super) struct Room {
    pub(super) generation: Generation,
    pub(super) config: Arc<EmbeddedConfig>,
    pub(super) counters: Arc<Counters>,
    pub(super) certificate: RTCCertificate,
    pub(super) sockets: Sockets,
    pub(super) outbox: Outbox,
    pub(super) peers: BTreeMap<PeerRef, Peer>,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    pub(super) demux: Demux<ConnectionId>,
    pub(super) tracks: BTreeMap<TrackId, Track>,
    /// Which track a publisher's stream is.
    pub(super) streams: HashMap<(ConnectionId, u32), TrackId>,
    next_connection: u64,
    next_session: u64,
    pub(super) next_track: u64,
    next_ssrc: u32,
}

impl Room {
    pub(super) fn new(
        generation: Generation,
        config: Arc<EmbeddedConfig>,
        counters: Arc<Counters>,
        certificate: RTCCertificate,
        sockets: Sockets,
        outbox: Outbox,
    ) -> Self {
        Self {
            generation,
            config,
            counters,
            certificate,
            sockets,
            outbox,
            peers: BTreeMap::new(),
            connections: BTreeMap::new(),
            demux: Demux::default(),
            tracks: BTreeMap::new(),
            streams: HashMap::new(),
            next_connection: 0,
            next_session: 0,
            next_track: 0,
            next_ssrc: 0,
        }
    }

    /// Serves the room until it is cancelled.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>, closing: CancellationToken) {
        let mut buffer = [0; DATAGRAM_MAX];
        loop {
            let wake = tokio::time::Instant::from_std(self.next_deadline(Instant::now()));
            tokio::select! {
                biased;
                () = closing.cancelled() => break,
                command = commands.recv() => match command {
                    Some(command) => self.command(command, Instant::now()),
                    None => break,
                },
                () = self.sockets.readable() => self.take_datagrams(&mut buffer),
                () = tokio::time::sleep_until(wake) => {}
            }
            self.advance(Instant::now());
        }
        self.close();
    }

    fn command(&mut self, command: Command, now: Instant) {
        // A caller that no longer waits has given up; what it asked for is done all the same.
        match command {
            Command::Grant { peer, permissions, reply } => drop(reply.send(self.grant(&peer, permissions))),
            Command::SetPermissions { peer, permissions, reply } => {
                drop(reply.send(self.set_permissions(&peer, permissions)));
            }
            Command::Publish { peer, offer, reply } => drop(reply.send(self.publish(&peer, &offer, now))),
            Command::Subscribe { peer, offer, reply } => drop(reply.send(self.subscribe(&peer, &offer, now))),
            Command::Remove { peer, reply } => {
                self.remove(&peer, ExitReason::Removed);
                drop(reply.send(Ok(())));
            }
            Command::List { reply } => drop(reply.send(Ok(self.participants()))),
        }
    }

    fn take_datagrams(&mut self, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            let Some((length, from, to)) = self.sockets.receive(buffer) else { break };
            self.counters.datagrams_received.add(1);
            let datagram = &buffer[..length];
            let connection = self.demux.route(to, from, datagram);
            let Some(connection) = connection.and_then(|id| self.connections.get_mut(&id)) else {
                self.counters.datagrams_unknown.add(1);
                continue;
            };
            if !connection.receive(from, to, datagram, Instant::now()) {
                self.counters.datagrams_over_budget.add(1);
            }
        }
    }

    /// Brings everything to where nothing more can be done without the outside.
    fn advance(&mut self, now: Instant) {
        let deadline = Duration::from_millis(self.config.connect_deadline_ms);
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for &id in &ids {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            if !connection.connected && connection.opened + deadline <= now {
                self.end_connection(id, ExitReason::NeverConnected);
                continue;
            }
            connection.tick(now);
            if connection.dirty {
                self.drain(id, now);
            }
        }
        self.request_keyframes(now);
        self.end_silent(now);
        for &id in &ids {
            self.transmit(id);
        }
        self.outbox.flush();
    }

    fn drain(&mut self, id: ConnectionId, now: Instant) {
        while let Some(output) = self.connections.get_mut(&id).and_then(Connection::poll) {
            match output {
                Output::Rtp(packet) => self.forward(id, &packet, now),
                Output::KeyframesWanted(ssrcs) => self.want_keyframes(id, &ssrcs),
                Output::Connected => self.on_connected(id),
                Output::Ended(reason) => return self.end_connection(id, reason),
            }
        }
    }

    fn transmit(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.dirty {
            send_all(connection, &self.sockets, &self.counters);
            connection.settle();
        }
    }

    fn next_deadline(&self, now: Instant) -> Instant {
        let connect = Duration::from_millis(self.config.connect_deadline_ms);
        let silence = Duration::from_millis(self.config.silence_after_ms);
        let connections = self.connections.values().flat_map(|connection| {
            let established = (!connection.connected).then(|| connection.opened + connect);
            [connection.next_timeout, established, connection.dirty.then_some(now)].into_iter().flatten()
        });
        let audio = self.peers.values().filter_map(|peer| peer.activity.deadline(silence));
        let voices = self.peers.values().filter_map(|peer| peer.voice.deadline());
        let keyframes = self.tracks.values().filter_map(|track| track.keyframes.deadline(now));
        let events = (!self.outbox.is_empty()).then(|| now + RETRY);
        connections.chain(audio).chain(voices).chain(keyframes).chain(events).min().unwrap_or(now + IDLE)
    }

    fn on_connected(&mut self, id: ConnectionId) {
        let Some(owner) = self.connections.get(&id).map(|connection| connection.owner.clone()) else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(&owner)
            && let Some(session) = &peer.session
            && !std::mem::replace(&mut peer.joined, true)
        {
            self.outbox.event(&owner, session, MediaEventKind::ParticipantJoined);
        }
    }

    /// Adds a connection to the room, in place of the owner's former one of the same role.
    pub(super) fn adopt(&mut self, connection: Connection) -> ConnectionId {
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.counters.connections.add(1);
        let (owner, role) = (connection.owner.clone(), connection.role);
        self.connections.insert(id, connection);
        let mut former = None;
        if let Some(peer) = self.peers.get_mut(&owner) {
            former = peer.connection_mut(role).replace(id);
            if peer.session.is_none() {
                self.next_session += 1;
                peer.session = Some(format!("{}.{}", self.generation.0, self.next_session).into());
            }
        }
        if let Some(former) = former {
            self.end_connection(former, ExitReason::Closed);
        }
        id
    }

    /// Ends a connection and what lives on it; the participant too, if it was the last.
    pub(super) fn end_connection(&mut self, id: ConnectionId, reason: ExitReason) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        self.counters.connections.remove(1);
        self.demux.forget(id);
        connection.close();
        send_all(&mut connection, &self.sockets, &self.counters);
        match connection.role {
            Role::Publish => self.end_tracks_of(id),
            Role::Subscribe => self.end_sinks_of(id),
        }
        let owner = &connection.owner;
        let Some(peer) = self.peers.get_mut(owner) else { return };
        let current = peer.connection_mut(connection.role);
        if *current != Some(id) {
            return;
        }
        *current = None;
        if connection.role == Role::Subscribe {
            peer.slots.clear();
        }
        let Some(session) = peer.session.clone() else { return };
        if peer.publishing.is_none() {
            peer.quiet(owner, &mut self.outbox);
        }
        if peer.publishing.is_none() && peer.subscribing.is_none() {
            (peer.session, peer.joined) = (None, false);
            self.outbox.event(owner, &session, MediaEventKind::RoomExited { reason });
        }
    }

    /// Ends a peer's connections and grant.
    pub(super) fn remove(&mut self, peer: &PeerRef, reason: ExitReason) {
        let Some(state) = self.peers.get(peer) else { return };
        for id in [state.publishing, state.subscribing].into_iter().flatten() {
            self.end_connection(id, reason);
        }
        self.peers.remove(peer);
        self.outbox.forget(peer);
    }

    /// A stream number no other stream of this room has had.
    pub(super) fn fresh_ssrc(&mut self) -> u32 {
        self.next_ssrc += 1;
        // An odd factor permutes the numbers, and keeps them clear of the small ones that clients use themselves.
        self.next_ssrc.wrapping_mul(0x9e37_79b1)
    }

    fn participants(&self) -> Vec<Connected> {
        let connected = |id: Option<ConnectionId>| {
            id.and_then(|id| self.connections.get(&id)).is_some_and(|connection| connection.connected)
        };
        let list = self.peers.iter().filter_map(|(name, peer)| {
            let session = Arc::clone(peer.session.as_ref()?);
            let tracks = self.tracks.values().filter(|track| track.owner == *name);
            Some(Connected {
                user: Arc::clone(&name.user),
                peer: Arc::clone(&name.peer),
                session,
                publishing: tracks.map(|track| track.kind).collect(),
                connected: connected(peer.publishing) || connected(peer.subscribing),
                audible: peer.activity.audible(),
            })
        });
        list.collect()
    }

    fn close(&mut self) {
        let peers: Vec<PeerRef> = self.peers.keys().cloned().collect();
        for peer in peers {
            self.remove(&peer, ExitReason::RoomClosed);
        }
        self.outbox.room_event(MediaEventKind::RoomFinished);
        self.outbox.flush();
        self.outbox.abandon();
    }
}

impl Peer {
    pub(super) fn new(permissions: Permissions) -> Self {
        Self {
            permissions,
            session: None,
            joined: false,
            publishing: None,
            subscribing: None,
            slots: Vec::new(),
            activity: Activity::default(),
            voice: Voice::default(),
        }
    }

    /// Nothing of theirs is heard any more.
    pub(super) fn quiet(&mut self, name: &PeerRef, outbox: &mut Outbox) {
        if self.voice.stop() {
            outbox.level(name, 0.0);
        }
        if self.activity.stop()
            && let Some(session) = &self.session
        {
            outbox.event(name, session, MediaEventKind::AudioStopped);
        }
    }

    pub(super) fn connection_mut(&mut self, role: Role) -> &mut Option<ConnectionId> {
        match role {
            Role::Publish => &mut self.publishing,
            Role::Subscribe => &mut self.subscribing,
        }
    }
}

fn send_all(connection: &mut Connection, sockets: &Sockets, counters: &Counters) {
    while let Some((from, to, datagram)) = connection.transmit() {
        if !sockets.send(from, to, &datagram) {
            counters.datagrams_unsent.add(1);
        }
    }
}
