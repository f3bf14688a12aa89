//! A media server inside the process.

mod activity;
mod answer;
mod budget;
mod config;
mod connection;
mod keyframe;
mod negotiation;
mod offer;
mod outbox;
mod room;
mod sockets;
mod stats;
mod tracks;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rtc::crypto::SignatureScheme;
use rtc::peer_connection::certificate::{CertificateParams, RTCCertificate};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::offer::{Offer, OfferLimits, Role};
use self::outbox::Outbox;
use self::room::{Command, Reply, Room};
use self::sockets::Sockets;
use self::stats::Counters;
use crate::{
    Abilities, ClockMs, Connected, Generation, Grant, GrantBody, Load, MediaError, MediaEvent,
    MediaEventKind, MediaKind, MediaServer, MediaSignal, Member, Participant, PeerRef, Permissions, RoomRef,
    Router as MediaRouter, TrackKind, TrackRef,
};

pub use config::{EmbeddedConfig, MediaAddress};
pub use stats::SfuStats;

/// Commands a room has not looked at yet; one more is refused.
const MAILBOX: usize = 128;

/// The answer to an offer on a subscribing connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscribeAnswer {
    /// The answer.
    pub sdp: String,
    /// Whose track each carrying section carries.
    pub tracks: Vec<SubscribedTrack>,
    /// Tracks for which the offer had no section left.
    pub missing: Vec<TrackRef>,
}

/// Whose track a section carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscribedTrack {
    /// The section's `mid`, as in the client's transceiver.
    pub mid: String,
    /// The user.
    pub user: Arc<str>,
    /// Their device.
    pub peer: Arc<str>,
    /// Audio or video.
    pub kind: TrackKind,
}

/// A selective forwarding unit in this process: Opus and VP8 go from each peer of a room to the others, re-encrypted
/// and otherwise untouched.
///
/// Each room is one task with its own sockets. Clones are handles to one SFU; the last one's drop closes its rooms.
#[derive(Clone)]
pub struct EmbeddedSfu {
    shared: Arc<Shared>,
    _last: Arc<DropGuard>,
}

impl std::fmt::Debug for EmbeddedSfu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EmbeddedSfu")
    }
}

struct Shared {
    config: Arc<EmbeddedConfig>,
    clock: ClockMs,
    events: mpsc::Sender<MediaSignal>,
    counters: Arc<Counters>,
    certificate: RTCCertificate,
    rooms: Mutex<HashMap<RoomRef, Router>>,
    port_cursor: AtomicUsize,
    serial: AtomicU64,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// The way to a room's task.
#[derive(Clone)]
struct Router {
    serial: u64,
    generation: Generation,
    commands: mpsc::Sender<Command>,
    closing: CancellationToken,
}

impl EmbeddedSfu {
    /// An SFU without rooms. `events` is bounded by its maker; what a full one does is said at [`MediaSignal`].
    ///
    /// # Errors
    /// `Unavailable` if there is no certificate to be made, or no address to listen on.
    pub fn new(
        config: EmbeddedConfig,
        clock: ClockMs,
        events: mpsc::Sender<MediaSignal>,
    ) -> Result<Self, MediaError> {
        if config.addresses.is_empty() {
            return Err(MediaError::unavailable("no address to listen on"));
        }
        let certificate = certificate().map_err(|reason| MediaError::Unavailable { reason })?;
        let closing = CancellationToken::new();
        let shared = Shared {
            config: Arc::new(config),
            clock,
            events,
            counters: Arc::default(),
            certificate,
            rooms: Mutex::default(),
            port_cursor: AtomicUsize::new(0),
            serial: AtomicU64::new(0),
            closing: closing.clone(),
            tasks: TaskTracker::new(),
        };
        Ok(Self { shared: Arc::new(shared), _last: Arc::new(closing.drop_guard()) })
    }

    /// Makes the room's router, or does nothing if it has this generation already. An older router is closed first.
    ///
    /// # Errors
    /// `StaleGeneration` if the router is newer, `TooMany`, `Unavailable`.
    pub fn open_router(&self, room: &RoomRef, generation: Generation) -> Result<(), MediaError> {
        self.shared.open(room, generation)
    }

    /// Closes the router of this or an older generation, and everything in it. A newer one is left alone, silently.
    pub fn end_router(&self, room: &RoomRef, generation: Generation) {
        if let Some(router) = self.shared.rooms().get(room)
            && router.generation <= generation
        {
            router.closing.cancel();
        }
    }

    /// Lets a peer use the room's media, and says how. Granting again replaces the permissions.
    ///
    /// # Errors
    /// `NotFound` without a router, `TooMany`, `Unavailable`, `Timeout`.
    pub async fn admit(
        &self,
        room: &RoomRef,
        peer: &PeerRef,
        permissions: Permissions,
    ) -> Result<Grant, MediaError> {
        self.shared.grant(room, peer, Some(permissions)).await
    }

    /// Changes what a participant may do, at once. Muting somebody is taking `publish_audio`: their track stays, and
    /// carries nothing.
    ///
    /// # Errors
    /// `NotFound` without a router or a grant, `Unavailable`, `Timeout`.
    pub async fn permit(
        &self,
        room: &RoomRef,
        peer: &PeerRef,
        permissions: Permissions,
    ) -> Result<(), MediaError> {
        let peer = peer.clone();
        self.shared.ask(room, |reply| Command::SetPermissions { peer, permissions, reply }).await
    }

    /// Ends a peer's grant and connections. A peer or a room that is gone already is a success.
    ///
    /// # Errors
    /// `Unavailable`, `Timeout`.
    pub async fn remove(&self, room: &RoomRef, peer: &PeerRef) -> Result<(), MediaError> {
        let peer = peer.clone();
        match self.shared.ask(room, |reply| Command::Remove { peer, reply }).await {
            Err(MediaError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    /// Who has a media connection.
    ///
    /// # Errors
    /// `NotFound` without a router, `Unavailable`, `Timeout`.
    pub async fn participants(&self, room: &RoomRef) -> Result<Vec<Connected>, MediaError> {
        self.shared.ask(room, |reply| Command::List { reply }).await
    }

    /// Answers an offer on a peer's publishing connection.
    ///
    /// # Errors
    /// `NotFound` without a router or a grant, `NotPermitted`, `BadSdp`, `TooMany`, `Unavailable`, `Timeout`.
    pub async fn publish(
        &self,
        room: &RoomRef,
        peer: &PeerRef,
        offer_sdp: &str,
    ) -> Result<String, MediaError> {
        let offer = Offer::parse(
            offer_sdp,
            Role::Publish,
            OfferLimits {
                bytes: self.shared.config.max_sdp_bytes,
                sections: self.shared.config.max_tracks_per_peer,
                sections_key: "max_tracks_per_peer",
            },
        )?;
        let peer = peer.clone();
        self.shared.ask(room, |reply| Command::Publish { peer, offer, reply }).await
    }

    /// Answers an offer on a peer's subscribing connection.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub async fn subscribe(
        &self,
        room: &RoomRef,
        peer: &PeerRef,
        offer_sdp: &str,
    ) -> Result<SubscribeAnswer, MediaError> {
        let offer = Offer::parse(
            offer_sdp,
            Role::Subscribe,
            OfferLimits {
                bytes: self.shared.config.max_sdp_bytes,
                sections: self.shared.config.max_subscriptions_per_peer,
                sections_key: "max_subscriptions_per_peer",
            },
        )?;
        let peer = peer.clone();
        self.shared.ask(room, |reply| Command::Subscribe { peer, offer, reply }).await
    }

    /// A peer's grant as it is now: what `media:update` carries after [`MediaSignal::TracksChanged`].
    ///
    /// # Errors
    /// `NotFound` without a router or a grant, `Unavailable`, `Timeout`.
    pub async fn tracks_for(&self, room: &RoomRef, peer: &PeerRef) -> Result<Grant, MediaError> {
        self.shared.grant(room, peer, None).await
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> SfuStats {
        self.shared.counters.read()
    }

    /// Closes every room, and returns when all their tasks have ended. Nothing can be made afterwards.
    pub async fn shutdown(&self) {
        self.shared.closing.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl Shared {
    fn rooms(&self) -> MutexGuard<'_, HashMap<RoomRef, Router>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(self: &Arc<Self>, room: &RoomRef, generation: Generation) -> Result<(), MediaError> {
        let mut rooms = self.rooms();
        if self.closing.is_cancelled() {
            return Err(MediaError::unavailable("closing"));
        }
        if let Some(existing) = rooms.get(room) {
            if existing.generation == generation && !existing.closing.is_cancelled() {
                return Ok(());
            }
            if existing.generation > generation {
                let (current, asked) = (existing.generation.0, generation.0);
                return Err(MediaError::StaleGeneration { current, asked });
            }
        } else if rooms.len() >= self.config.max_rooms {
            return Err(MediaError::TooMany { limit: "max_rooms", max: self.config.max_rooms as u64 });
        }
        let sockets = Sockets::bind(&self.config, &self.port_cursor)
            .map_err(|error| MediaError::unavailable(format!("no socket for the room: {error}")))?;
        let outbox = Outbox::new(
            room.clone(),
            generation,
            Arc::clone(&self.clock),
            self.events.clone(),
            Arc::clone(&self.counters),
        );
        let (commands, inbox) = mpsc::channel(MAILBOX);
        let closing = self.closing.child_token();
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let task = Room::new(
            generation,
            Arc::clone(&self.config),
            Arc::clone(&self.counters),
            self.certificate.clone(),
            sockets,
            outbox,
        )
        .run(inbox, closing.clone());
        let former = rooms.insert(room.clone(), Router { serial, generation, commands, closing });
        drop(rooms);
        if let Some(former) = former {
            former.closing.cancel();
        }
        self.counters.rooms.add(1);
        let entry = Registration { shared: Arc::clone(self), room: room.clone(), generation, serial };
        self.tasks.spawn(async move {
            let _entry = entry;
            task.await;
        });
        Ok(())
    }

    async fn ask<T>(
        &self,
        room: &RoomRef,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, MediaError> {
        let router = self.rooms().get(room).cloned().ok_or(MediaError::NotFound { what: "room" })?;
        let (reply, answer) = oneshot::channel();
        router.commands.try_send(command(reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => MediaError::unavailable("the room is busy"),
            mpsc::error::TrySendError::Closed(_) => MediaError::NotFound { what: "room" },
        })?;
        let after_ms = self.config.answer_deadline_ms;
        match tokio::time::timeout(Duration::from_millis(after_ms), answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(MediaError::NotFound { what: "room" }),
            Err(_) => Err(MediaError::Timeout { after_ms }),
        }
    }

    async fn grant(
        &self,
        room: &RoomRef,
        peer: &PeerRef,
        permissions: Option<Permissions>,
    ) -> Result<Grant, MediaError> {
        let generation = self.rooms().get(room).map(|router| router.generation);
        let generation = generation.ok_or(MediaError::NotFound { what: "room" })?;
        let peer = peer.clone();
        let tracks = self.ask(room, |reply| Command::Grant { peer, permissions, reply }).await?;
        Ok(Grant { generation, ice_servers: Vec::new(), body: GrantBody::Embedded { tracks } })
    }
}

/// A room's place in the table, given up however its task ends.
struct Registration {
    shared: Arc<Shared>,
    room: RoomRef,
    generation: Generation,
    serial: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.counters.rooms.remove(1);
        if let Entry::Occupied(entry) = self.shared.rooms().entry(self.room.clone())
            && entry.get().serial == self.serial
        {
            entry.remove();
        }
        if std::thread::panicking() {
            tracing::error!(
                generation = self.generation.0,
                "a room's router failed; the room has no media now"
            );
            let finished = MediaEvent {
                room: self.room.clone(),
                generation: Some(self.generation),
                peer: None,
                session: None,
                kind: MediaEventKind::RoomFinished,
                at_ms: (self.shared.clock)(),
            };
            if self.shared.events.try_send(MediaSignal::Event(finished)).is_err() {
                self.shared.counters.events_dropped.add(1);
            }
        }
    }
}

#[async_trait]
impl MediaServer for EmbeddedSfu {
    fn kind(&self) -> MediaKind {
        MediaKind::Embedded
    }

    fn abilities(&self) -> Abilities {
        Abilities { live_list: true, makes_routers: true, tells_audio: true, takes_permissions: true }
    }

    async fn ensure_router(&self, router: &MediaRouter) -> Result<(), MediaError> {
        self.open_router(&router.room, router.generation)
    }

    async fn adopt_router(&self, router: &MediaRouter) -> Result<(), MediaError> {
        match self.shared.rooms().get(&router.room) {
            Some(found) if found.generation == router.generation => Ok(()),
            _ => Err(MediaError::NotFound { what: "room" }),
        }
    }

    async fn close_router(&self, router: &MediaRouter) -> Result<(), MediaError> {
        self.end_router(&router.room, router.generation);
        Ok(())
    }

    async fn grant(
        &self,
        router: &MediaRouter,
        member: &Member,
        permissions: Permissions,
    ) -> Result<Grant, MediaError> {
        self.admit(&router.room, &member.peer, permissions).await
    }

    async fn set_permissions(
        &self,
        router: &MediaRouter,
        member: &Member,
        permissions: Permissions,
    ) -> Result<(), MediaError> {
        self.permit(&router.room, &member.peer, permissions).await
    }

    async fn remove_participant(&self, router: &MediaRouter, name: &str) -> Result<(), MediaError> {
        let there = match self.participants(&router.room).await {
            Err(MediaError::NotFound { .. }) => return Ok(()),
            there => there?,
        };
        for found in there.into_iter().filter(|it| *it.peer == *name) {
            self.remove(&router.room, &PeerRef { user: found.user, peer: found.peer }).await?;
        }
        Ok(())
    }

    async fn list_participants(&self, router: &MediaRouter) -> Result<Vec<Participant>, MediaError> {
        let there = self.participants(&router.room).await?;
        let named = there.into_iter().map(|it| Participant {
            name: it.peer,
            incarnation: Some(it.session),
            audible: Some(it.audible),
            may_publish_audio: None,
        });
        Ok(named.collect())
    }

    async fn health(&self) -> Result<Load, MediaError> {
        let rooms = self.shared.rooms().len();
        if self.shared.closing.is_cancelled() {
            return Err(MediaError::unavailable("closing"));
        }
        Ok(Load { participants: Some(rooms as u64) })
    }
}

fn certificate() -> Result<RTCCertificate, String> {
    let provider = rtc::crypto::default_provider().map_err(|error| error.to_string())?;
    let params = CertificateParams::new(vec!["dais".to_owned()]).map_err(|error| error.to_string())?;
    RTCCertificate::generate(provider.crypto(), SignatureScheme::EcdsaP256Sha256, params)
        .map_err(|error| error.to_string())
}
