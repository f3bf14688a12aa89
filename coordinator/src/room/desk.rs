//! What a room asks of its external media server, done beside the room: one call after another, so that their order is
//! that of the commits they follow from, and the room waits for none of them.

use std::sync::Arc;
use std::time::Duration;

use key_prefix::RouterName;
use media_bridge::{Generation, Grant, MediaError, Member, Participant, Permissions, RoomRef, Router};
use redis_scripts::Claimed;
use room_cell::{Duty, Millis};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::media::Placed;
use crate::node::Node;

/// Calls that may wait. What does not fit is owed still, and comes again.
const JOBS: usize = 1_024;
/// Names that may turn out to be another room's.
const NAMES: u32 = 4;

/// Something to be done at a media server.
#[derive(Debug)]
pub enum Job {
    /// Make a router of this generation at the least loaded of these servers.
    Open {
        /// Names of the app's media servers.
        among: Vec<Arc<str>>,
        /// Whose.
        room: RoomRef,
        /// Its generation.
        generation: Generation,
    },
    /// Find the router that another owner made.
    Adopt(Placed),
    /// Let somebody use the router.
    Grant {
        /// Where.
        at: Placed,
        /// Whom.
        member: Member,
        /// How.
        permissions: Permissions,
        /// Who asked, where somebody waits for it.
        reply: Option<oneshot::Sender<Result<Grant, MediaError>>>,
    },
    /// Bring somebody to what they may do now.
    Permit {
        /// Where.
        at: Placed,
        /// Whom.
        member: Member,
        /// How.
        permissions: Permissions,
        /// The duty that this is, and the cell version that owed it.
        duty: Option<(Duty, u64)>,
    },
    /// Put somebody out.
    Remove {
        /// Where.
        at: Placed,
        /// The name there.
        name: Arc<str>,
        /// The duty that this is, and the cell version that owed it.
        duty: Option<(Duty, u64)>,
    },
    /// End a router.
    Close {
        /// Which.
        at: Placed,
        /// The duty that this is; none while the room is closing.
        duty: Option<(Duty, u64)>,
    },
    /// End a router that the room did not take.
    Discard(Placed),
    /// Ask who is there.
    List {
        /// Where.
        at: Placed,
        /// When this was asked, by Redis's clock.
        asked_at: Millis,
    },
}

/// What became of a [`Job`].
#[derive(Debug)]
pub enum Did {
    /// A router stands, or there is none to be had.
    Opened(Generation, Result<Placed, MediaError>),
    /// It is there, or not.
    Adopted(Generation, Result<(), MediaError>),
    /// Somebody may use it; nobody waited for this.
    Granted(Member, Result<Grant, MediaError>),
    /// Somebody could not be brought to what they may do, which is nobody's duty.
    NotPermitted(Member, MediaError),
    /// A duty was done, or not.
    Duty(Duty, u64, Result<(), MediaError>),
    /// The router of a closing room is gone, or not.
    Closed(Generation, Result<(), MediaError>),
    /// Who is there.
    Listed(Generation, Millis, Result<Vec<Participant>, MediaError>),
}

/// The way to a room's desk, which ends with it.
#[derive(Debug)]
pub struct Desk {
    jobs: mpsc::Sender<Asked>,
    tenure: CancellationToken,
}

struct Asked {
    job: Job,
    /// The lease that allows it ends then.
    until: Instant,
    /// Or is given back before.
    tenure: CancellationToken,
}

impl Desk {
    /// A desk; what it did comes out of the receiver.
    pub fn open(node: Arc<Node>) -> (Self, mpsc::Receiver<Did>) {
        let (jobs, mut work) = mpsc::channel::<Asked>(JOBS);
        let (did, results) = mpsc::channel(JOBS);
        tokio::spawn(async move {
            while let Some(Asked { job, until, tenure }) = work.recv().await {
                let what = job.name();
                let done = tokio::select! {
                    biased;
                    () = tenure.cancelled() => continue,
                    done = run(&node, job, until) => done,
                };
                let Some(result) = done else { continue };
                if let Some(error) = result.error() {
                    node.metrics.media_calls.with_label_values(&[what, "failed"]).inc();
                    tracing::debug!(what, error = error as &dyn std::error::Error, "media server");
                } else {
                    node.metrics.media_calls.with_label_values(&[what, "ok"]).inc();
                }
                if did.send(result).await.is_err() {
                    return;
                }
            }
        });
        (Self { jobs, tenure: CancellationToken::new() }, results)
    }

    /// Has something done before `until`, when the lease that allows it ends. `false`: there is too much to do.
    pub fn ask(&self, job: Job, until: Instant) -> bool {
        self.jobs.try_send(Asked { job, until, tenure: self.tenure.clone() }).is_ok()
    }

    /// Drops what is to be done, and what is under way: the room is no longer this instance's.
    pub fn discard(&mut self) {
        self.tenure.cancel();
        self.tenure = CancellationToken::new();
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.tenure.cancel();
    }
}

impl Job {
    const fn name(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Adopt(_) => "adopt",
            Self::Grant { .. } => "grant",
            Self::Permit { .. } => "permit",
            Self::Remove { .. } => "remove",
            Self::Close { .. } => "close",
            Self::Discard(_) => "discard",
            Self::List { .. } => "list",
        }
    }
}

impl Did {
    fn error(&self) -> Option<&MediaError> {
        match self {
            Self::Opened(_, result) => result.as_ref().err(),
            Self::Adopted(_, result) | Self::Duty(_, _, result) | Self::Closed(_, result) => {
                result.as_ref().err()
            }
            Self::Granted(_, result) => result.as_ref().err(),
            Self::NotPermitted(_, error) => Some(error),
            Self::Listed(_, _, result) => result.as_ref().err(),
        }
    }
}

/// `call`, if it is done before the lease ends.
async fn in_time<T>(
    until: Instant,
    call: impl Future<Output = Result<T, MediaError>>,
) -> Result<T, MediaError> {
    if until <= crate::clock::instant() {
        return Err(MediaError::Timeout { after_ms: 0 });
    }
    tokio::time::timeout_at(until, call).await.unwrap_or(Err(MediaError::Timeout { after_ms: 0 }))
}

async fn run(node: &Arc<Node>, job: Job, until: Instant) -> Option<Did> {
    Some(match job {
        Job::Open { among, room, generation } => {
            Did::Opened(generation, in_time(until, open(node, &among, room, generation)).await)
        }
        Job::Adopt(at) => {
            let adopted = in_time(until, adopt(node, &at)).await;
            Did::Adopted(at.router.generation, adopted)
        }
        Job::Grant { at, member, permissions, reply } => {
            let granted = at.node.server().grant(&at.router, &member, permissions);
            let granted = in_time(until, granted).await;
            let granted = granted.map(|grant| with_ice(node, grant, &member));
            match reply {
                Some(reply) => {
                    _ = reply.send(granted);
                    return None;
                }
                None => Did::Granted(member, granted),
            }
        }
        Job::Permit { at, member, permissions, duty } => {
            let call = at.node.server().set_permissions(&at.router, &member, permissions);
            let result = in_time(until, call).await;
            match duty {
                Some((duty, version)) => Did::Duty(duty, version, result),
                None => Did::NotPermitted(member, result.err()?),
            }
        }
        Job::Remove { at, name, duty } => {
            let result = in_time(until, at.node.server().remove_participant(&at.router, &name)).await;
            let (duty, version) = duty?;
            Did::Duty(duty, version, result)
        }
        Job::Close { at, duty } => {
            let closed = in_time(until, at.node.server().close_router(&at.router)).await;
            match duty {
                Some((duty, version)) => Did::Duty(duty, version, closed),
                None => Did::Closed(at.router.generation, closed),
            }
        }
        Job::Discard(at) => {
            if let Err(error) = in_time(until, at.node.server().close_router(&at.router)).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a router that no room has is left behind"
                );
            }
            return None;
        }
        Job::List { at, asked_at } => {
            let listed = in_time(until, at.node.server().list_participants(&at.router)).await;
            Did::Listed(at.router.generation, asked_at, listed)
        }
    })
}

/// A grant with the servers that get its client through.
pub fn with_ice(node: &Node, mut grant: Grant, member: &Member) -> Grant {
    if grant.ice_servers.is_empty() {
        grant.ice_servers = node.media.ice_servers(&member.name, node.redis_clock.now_ms() / 1_000);
    }
    grant
}

/// Makes a router: a server, a name that nobody else has, and then the router itself.
async fn open(
    node: &Arc<Node>,
    among: &[Arc<str>],
    room: RoomRef,
    generation: Generation,
) -> Result<Placed, MediaError> {
    let unavailable = |reason: &str| MediaError::Unavailable { reason: reason.to_owned() };
    let server = node.media.nodes.choose(among).ok_or_else(|| unavailable("no media server is well"))?;
    for attempt in 0..NAMES {
        let name = node.media.names.router(&room, generation, attempt);
        let router = Router { room: room.clone(), name, generation };
        match claim(node, &router).await? {
            Claimed::Mine => {
                server.server().ensure_router(&router).await?;
                return Ok(Placed { node: server, router });
            }
            Claimed::Taken => {
                tracing::error!(attempt, "a router's name is another room's");
            }
        }
    }
    Err(unavailable("every name is another room's"))
}

async fn adopt(node: &Arc<Node>, at: &Placed) -> Result<(), MediaError> {
    // Noted again, it is known for as long again.
    claim(node, &at.router).await?;
    at.node.server().adopt_router(&at.router).await
}

/// Notes what a router's name stands for, for callbacks in the vendor's names.
async fn claim(node: &Arc<Node>, router: &Router) -> Result<Claimed, MediaError> {
    let store = &node.store;
    let Some(room) = super::names::key_of(&router.room) else {
        return Err(MediaError::Unavailable { reason: "no such room".to_owned() });
    };
    let Ok(name) = RouterName::new(&router.name) else {
        return Err(MediaError::Unavailable { reason: "not a router's name".to_owned() });
    };
    let claim = store.scripts.router_claim(&store.keys, &name, &room, router.generation.0, LIFE);
    store.timed("router_claim", claim).await.map_err(|error| {
        tracing::debug!(error = &error as &dyn std::error::Error, "a name cannot be noted");
        MediaError::Unavailable { reason: "Redis does not answer".to_owned() }
    })
}

/// What a name stands for is known for so long after it was last noted.
const LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
