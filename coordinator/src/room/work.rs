//! What a room's actor can be asked, and the cheap handle that asks.

use redis_scripts::{FenceToken, SettingsVersion};
use room_cell::{MediaReport, Validated};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use socketioxide::socket::Sid;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

use super::answer::Done;
use super::gateway::{Idempotency, Opened, Opening};
use super::lease::LeaseTerm;
use super::peer::Role;
use super::projection::StateChange;
use crate::callbacks::levels::Level;
use crate::classroom::guest::GuestPatch;
use crate::classroom::settings::SettingsPatch;
use crate::error::ApiError;
use crate::socket::Client;

/// A validated request to join.
#[derive(Debug, Clone)]
pub struct JoinRequest {
    /// The connection.
    pub client: Client,
    /// Whose it is.
    pub user: Arc<str>,
    /// The user's name.
    pub name: Option<Arc<str>>,
    /// What it wants to be.
    pub role: Role,
    /// The most that its token allows.
    pub max_role: Role,
    /// What the app says of it.
    pub attributes: Map<String, Value>,
    /// The device, where the client names one.
    pub device: Option<Arc<str>>,
    /// An earlier peer of its.
    pub resume: Option<Arc<str>>,
    /// Redirects that it followed to come here.
    pub hops: u32,
    /// Which peer it will be.
    pub peer: Arc<str>,
    /// Its resume secret.
    pub secret: Arc<str>,
}

/// A validated settings change.
#[derive(Debug, Clone)]
pub struct SettingsChange {
    /// What changes.
    pub patch: SettingsPatch,
    /// Only at this version.
    pub if_version: Option<SettingsVersion>,
    /// Bytes allowed in one setting.
    pub max_bytes: usize,
    /// Which user makes it; none: the app's back end.
    pub by: Option<Arc<str>>,
}

/// A validated guest change.
#[derive(Debug, Clone)]
pub struct GuestChange {
    /// Whose state.
    pub user: Arc<str>,
    /// What changes.
    pub patch: GuestPatch,
    /// Only at this version.
    pub if_version: Option<SettingsVersion>,
    /// Only while the user is in the room.
    pub must_be_present: bool,
    /// Bytes allowed in one user's state.
    pub max_bytes: usize,
    /// Users with a state allowed in one room.
    pub max_guests: usize,
    /// Which user makes it; none: the app's back end.
    pub by: Option<Arc<str>>,
}

/// A command as it comes to the room's actor.
#[derive(Debug, Clone)]
pub struct Ordered {
    /// What, by whom.
    pub order: Validated,
    /// The connection that asks: if it is a member, the command is its peer's.
    pub connection: Option<Sid>,
    /// Given by the caller, where it wants to be able to repeat.
    pub idempotency: Option<Idempotency>,
}

/// What the media server should know of a connection that is a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Its peer.
    pub peer: Arc<str>,
    /// Its user.
    pub user: Arc<str>,
    /// What it may do.
    pub role: Role,
}

/// Why an actor did not do what it was asked.
#[derive(Debug)]
pub enum Refusal {
    /// It is ending, or the room is another's: ask again, somebody else.
    Gone,
    /// It is refused.
    Api(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// Users of one room who are connected.
#[derive(Debug)]
pub struct Present {
    /// The room.
    pub room: key_prefix::RoomKey,
    /// The token that it is held with.
    pub token: FenceToken,
    /// Who.
    pub users: Vec<Arc<str>>,
}

/// What a room's actor can be asked.
#[derive(Debug)]
pub enum Work {
    /// Let somebody in; the answer is the body of the ack.
    Join(Box<JoinRequest>, Reply<Box<RawValue>>),
    /// Execute a command.
    Command(Box<Ordered>, Reply<Done>),
    /// The embedded media server says that something happened, in a router of this generation.
    Media(Box<MediaReport>, u64),
    /// How loud people are, for whoever listens just now.
    Levels(Vec<Level>),
    /// Make the room, or open it again.
    Open(Box<Opening>, Reply<Opened>),
    /// Have the room, if there is one: the ledger may know of it.
    Recover(Reply<()>),
    /// There is something in the room's inbox.
    Inbox,
    /// A connection is gone.
    Disconnected(Sid),
    /// Which peer is this connection.
    Membership(Sid, Reply<Membership>),
    /// More of the peers: after this user, so many; the answer is the body of the ack.
    Peers(Sid, Option<String>, usize, Reply<Box<RawValue>>),
    /// Change settings.
    Settings(Arc<SettingsChange>, Reply<SettingsVersion>),
    /// Change a guest's state.
    Guest(Arc<GuestChange>, Reply<SettingsVersion>),
    /// Another instance changed settings or a guest's state.
    Sync(Box<StateChange>),
    /// Redis stands at other versions than memory, by the heartbeat.
    StandsAt {
        /// Settings version.
        sv: u64,
        /// Cell version.
        cv: u64,
    },
    /// The owner key is gone, or names somebody else.
    LeaseGone,
    /// Redis lost keys of the room.
    Damaged,
    /// Say who is connected.
    Present(mpsc::Sender<Present>),
    /// A fresh grant of the external media server, for this connection.
    Grant(Sid, Reply<media_bridge::Grant>),
    /// Tracks of the embedded media server changed: tell these peers.
    Tracks(Vec<Arc<str>>),
    /// Hand the room back and tell everybody to move; answered when it is done.
    Drain {
        /// Pauses of clients are spread over this.
        spread: Duration,
        /// Answered with the number of members told.
        done: oneshot::Sender<usize>,
    },
}

/// What the heartbeat knows of an actor without asking it.
#[derive(Debug, Default)]
pub struct Standing {
    sv: AtomicU64,
    cv: AtomicU64,
    turns: AtomicU64,
    held: std::sync::Mutex<Option<(FenceToken, Arc<LeaseTerm>)>>,
}

impl Standing {
    /// The actor's versions.
    pub fn versions(&self) -> (u64, u64) {
        (self.sv.load(Ordering::Relaxed), self.cv.load(Ordering::Relaxed))
    }

    pub(super) fn stand_at(&self, sv: u64, cv: u64) {
        self.sv.store(sv, Ordering::Relaxed);
        self.cv.store(cv, Ordering::Relaxed);
    }

    /// How often the actor has come round: while this moves, it lives.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(super) fn turned(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// The lease to renew, if the actor holds one.
    pub fn held(&self) -> Option<(FenceToken, Arc<LeaseTerm>)> {
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(super) fn hold(&self, lease: Option<(FenceToken, Arc<LeaseTerm>)>) {
        *self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = lease;
    }
}

/// The way to a room's actor. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RoomHandle {
    pub(super) id: u64,
    pub(super) inbox: mpsc::Sender<Work>,
    pub(super) standing: Arc<Standing>,
}

impl RoomHandle {
    /// Asks, and waits for the answer.
    pub async fn ask<T>(&self, work: impl FnOnce(Reply<T>) -> Work) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.tell(work(reply))?;
        answer.await.unwrap_or(Err(Refusal::Gone))
    }

    /// Tells without waiting. A full mailbox is refused, a closed one is gone.
    pub fn tell(&self, work: Work) -> Result<(), Refusal> {
        self.inbox.try_send(work).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refusal::Api(
                ApiError::new(crate::error::ErrorCode::RateLimited, "the room has too much to do")
                    .after(Duration::from_millis(200)),
            ),
            mpsc::error::TrySendError::Closed(_) => Refusal::Gone,
        })
    }

    /// Which actor it is: a later one of the same room has another.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// What the heartbeat needs to know.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }
}

/// Body of an error for a room that the client is not in.
pub fn not_in_room(room: &str) -> ApiError {
    ApiError::new(crate::error::ErrorCode::NotInRoom, format!("join room {room:?} first"))
}
