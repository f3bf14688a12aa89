//! Commands and changes for a room from anywhere on this instance, wherever the room runs.
//!
//! If the room runs here its actor is asked. Else a command is put into the room's inbox, whose owner
//! executes it once and answers; if nobody owns the room, this instance takes it.

use key_prefix::RoomKey;
use redis_scripts::{Enqueue, Enqueued, Keep, Read, RedisMillis, Report, SettingsVersion, Updated};
use room_cell::{Actor as By, Command, Limits, MediaReport, Validated};
use socketioxide::socket::Sid;
use std::sync::Arc;
use std::time::Duration;

use super::actor::{Payload, refusal_of};
use super::answer::Answer;
pub use super::answer::Done;
use super::names::{RoomNames, json_string};
use super::owned::RemoteRoom;
use super::snapshot::Remote;
use super::work::{GuestChange, Ordered, Refusal, Reply, SettingsChange, Work, not_in_room};
use crate::config::App;
use crate::error::{ApiError, ErrorCode};
use crate::node::Node;

/// What makes a command idempotent: who asks, under which id, and a digest of what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// `user:ann`, or `key:` and the digest of an API key.
    pub caller: Arc<str>,
    /// The id, 1 to 64 characters.
    pub id: Arc<str>,
    /// Digest of the request.
    pub digest: Arc<str>,
}

/// A command for a room.
#[derive(Debug, Clone)]
pub struct Request {
    /// The room.
    pub room: RoomKey,
    /// What, by whom.
    pub order: Validated,
    /// Given by the caller, where it wants to be able to repeat.
    pub idempotency: Option<Idempotency>,
    /// The connection that asks, where one does: if it is a member of the room here, the command is its peer's.
    pub connection: Option<Sid>,
    /// Only if the room runs here: what members who are no hosts ask.
    pub only_here: bool,
}

/// How a room should be made, or opened again.
#[derive(Debug, Clone, Default)]
pub struct Opening {
    /// Settings that differ from the defaults.
    pub settings: Option<crate::classroom::settings::SettingsPatch>,
    /// Number of seats; the app's where none is given.
    pub seats: Option<u16>,
    /// Most users; the app's where none is given.
    pub capacity: Option<u32>,
    /// Close when idle.
    pub auto_close: Option<bool>,
}

/// What became of an [`Opening`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// The room was made.
    Made,
    /// It was closed, and is open again.
    Reopened,
    /// It was there and open; nothing changed.
    Found,
}

/// How long a command may wait in an inbox, and its caller for the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Actors that may end under a caller before it is told to come again.
const ATTEMPTS: usize = 4;
/// Commands and callbacks that may wait in one room's inbox.
const INBOX: usize = 10_000;

/// Executes a command.
pub async fn execute(node: &Arc<Node>, app: &Arc<App>, request: Request) -> Result<Done, ApiError> {
    let Request { room, order, idempotency, connection, only_here } = request;
    for _ in 0..ATTEMPTS {
        if let Some(handle) = node.rooms.find(&room) {
            let ordered = Ordered { order: order.clone(), connection, idempotency: idempotency.clone() };
            match handle.ask(|reply| Work::Command(Box::new(ordered), reply)).await {
                Err(Refusal::Gone) => {}
                Err(Refusal::Api(error)) => return Err(error),
                Ok(done) => return Ok(done),
            }
        }
        if only_here {
            return Err(not_in_room(room.room()));
        }
        if let Some(done) = elsewhere(node, app, &room, &order, idempotency.as_ref()).await? {
            node.store.replicated().await?;
            return Ok(done);
        }
    }
    Err(ApiError::lease_lost())
}

/// Puts a command into the room's inbox and waits for the answer; `None`: the room is this instance's after all.
async fn elsewhere(
    node: &Arc<Node>,
    app: &Arc<App>,
    room: &RoomKey,
    order: &Validated,
    idempotency: Option<&Idempotency>,
) -> Result<Option<Done>, ApiError> {
    let store = &node.store;
    let made;
    // Without an id of its caller's it still has one, to ask what became of it.
    let key = match idempotency {
        Some(key) => key,
        None => {
            let id = uuid::Uuid::now_v7().simple().to_string().into();
            made = Idempotency { caller: "instance".into(), id, digest: "none".into() };
            &made
        }
    };
    let payload =
        Payload { actor: order.actor().clone(), command: order.command().clone(), participant: None };
    let payload = serde_json::to_string(&payload).map_err(|_| ApiError::bad_request("it cannot be sent"))?;
    let mut waiting = node.replies.wait();
    let patience = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
    let (names, number) = (store.keys.room(room), waiting.number.to_string());
    let with = Enqueue {
        me: &store.me,
        room,
        keys: &names,
        route_json: &json_string(room.route()),
        payload: &payload,
        keep: Some(Keep { caller: &key.caller, id: &key.id, digest: &key.digest }),
        number: Some(&number),
        deadline: Some(RedisMillis::new(node.redis_clock.now_ms() + patience)),
        cap: INBOX,
    };
    match store.timed("enqueue", store.scripts.enqueue(&store.keys, with)).await? {
        Enqueued::Ok { owner, .. } => {
            if owner.is_empty() || owner == store.me.as_str() {
                adopt(node, app, room);
            }
        }
        Enqueued::Missing { owner } if owner.is_empty() => {
            return if recover(node, room).await? {
                Ok(None)
            } else {
                Err(ApiError::new(ErrorCode::RoomNotFound, "there is no such room"))
            };
        }
        Enqueued::Missing { .. } => return Err(being_restored()),
        Enqueued::Full { length } => {
            let full = format!("{length} commands wait for the room already");
            return Err(ApiError::new(ErrorCode::RateLimited, full));
        }
        Enqueued::Answered { digest, answer } => return kept(key, &digest, &answer).map(Some),
    }
    match tokio::time::timeout(PATIENCE, &mut waiting.answer).await {
        Ok(Ok(answer)) => answer.into_result().map(Some),
        _ => match store.scripts.answer(&store.keys, room, &key.caller, &key.id).await? {
            Some((digest, answer)) => kept(key, &digest, &answer).map(Some),
            None => Err(ApiError::new(ErrorCode::Timeout, "no answer in time; repeat with the same id")),
        },
    }
}

/// Has a room that Redis lacks made anew of what the ledger has; `false`: it has none, or a closed one.
pub async fn recover(node: &Arc<Node>, room: &RoomKey) -> Result<bool, ApiError> {
    match node.books.head(room).await {
        None => Err(ApiError::store_unavailable()),
        Some(Some(head)) if head.status != "closed" => load(node, room).await,
        Some(_) => Ok(false),
    }
}

/// Has a room that nobody has brought into memory; `false`: its app is not served here.
async fn load(node: &Arc<Node>, room: &RoomKey) -> Result<bool, ApiError> {
    let Some(app) = node.app(room.app()) else { return Ok(false) };
    match node.rooms.enter(node, &app, room).ask(Work::Recover).await {
        // Another instance has it by now, or this one had it a moment ago: either way it is there again.
        Ok(()) | Err(Refusal::Gone) => Ok(true),
        Err(Refusal::Api(error)) => Err(error),
    }
}

fn being_restored() -> ApiError {
    ApiError::new(ErrorCode::StoreUnavailable, "the room is being restored")
}

fn kept(key: &Idempotency, digest: &str, answer: &str) -> Result<Done, ApiError> {
    if *key.digest != *digest {
        return Err(ApiError::bad_request("`id` was used for another request"));
    }
    Answer::parse(answer)?.into_result()
}

/// Takes a room that nobody has, for what waits in it.
pub fn adopt(node: &Arc<Node>, app: &Arc<App>, room: &RoomKey) {
    for _ in 0..ATTEMPTS {
        // A full mailbox has an actor that looks into the inbox at the next heartbeat.
        if !matches!(node.rooms.enter(node, app, room).tell(Work::Inbox), Err(Refusal::Gone)) {
            return;
        }
    }
}

/// Makes a room, opens a closed one again, or finds it.
pub async fn open(
    node: &Arc<Node>,
    app: &Arc<App>,
    room: &RoomKey,
    opening: Opening,
) -> Result<Opened, ApiError> {
    for _ in 0..ATTEMPTS {
        let handle = node.rooms.enter(node, app, room);
        let work = Box::new(opening.clone());
        match handle.ask(|reply| Work::Open(work, reply)).await {
            Ok(opened) => return Ok(opened),
            Err(Refusal::Api(error)) => return Err(error),
            Err(Refusal::Gone) => {}
        }
        // Another instance has it.
        match read(node, room).await? {
            None => {}
            Some(remote) if *remote.cell().status.word() != *"closed" => {
                node.store.replicated().await?;
                return Ok(Opened::Found);
            }
            Some(_) => {
                let command = Command::Reopen {
                    seats: opening.seats,
                    capacity: opening.capacity,
                    auto_close: opening.auto_close,
                };
                let order = command
                    .validate(By::Backend, &Limits::default())
                    .map_err(|invalid| ApiError::bad_request(invalid.to_string()))?;
                match elsewhere(node, app, room, &order, None).await {
                    Ok(Some(_)) => {
                        node.store.replicated().await?;
                        return Ok(Opened::Reopened);
                    }
                    Ok(None) => {}
                    // Another caller was faster.
                    Err(error) if error.code == ErrorCode::VersionConflict => return Ok(Opened::Found),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Err(ApiError::lease_lost())
}

/// Reads a room as it stands in Redis; `None`: there is none.
pub async fn read(node: &Arc<Node>, room: &RoomKey) -> Result<Option<Remote>, ApiError> {
    let store = &node.store;
    let mut found = store.timed("read", store.scripts.read_room(&store.keys, room)).await?;
    if matches!(found, Read::Missing) && recover(node, room).await? {
        found = store.timed("read", store.scripts.read_room(&store.keys, room)).await?;
    }
    match found {
        Read::Missing => Ok(None),
        Read::Ok(standing) if standing.state.status == "rebuilding" => Err(being_restored()),
        Read::Ok(standing) => Remote::read(standing).map(Some).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the room cannot be read");
            ApiError::new(ErrorCode::Internal, "the room cannot be read")
        }),
    }
}

/// Merges a patch into a room's settings, wherever it runs.
pub async fn update_settings(
    node: &Arc<Node>,
    room: &RoomKey,
    change: SettingsChange,
) -> Result<SettingsVersion, ApiError> {
    update(node, room, Change::Settings(Arc::new(change))).await
}

/// Merges a patch into a guest's state, wherever the room runs.
pub async fn update_guest(
    node: &Arc<Node>,
    room: &RoomKey,
    change: GuestChange,
) -> Result<SettingsVersion, ApiError> {
    update(node, room, Change::Guest(Arc::new(change))).await
}

/// What anybody may change of a room.
enum Change {
    Settings(Arc<SettingsChange>),
    Guest(Arc<GuestChange>),
}

impl Change {
    fn work(&self, reply: Reply<SettingsVersion>) -> Work {
        match self {
            Self::Settings(change) => Work::Settings(Arc::clone(change), reply),
            Self::Guest(change) => Work::Guest(Arc::clone(change), reply),
        }
    }
}

/// By the room's owner if that is here, else past it; once more if the room had to be brought back first.
async fn update(node: &Arc<Node>, room: &RoomKey, change: Change) -> Result<SettingsVersion, ApiError> {
    let mut is_brought_back = false;
    loop {
        if let Some(handle) = node.rooms.find(room) {
            match handle.ask(|reply| change.work(reply)).await {
                Ok(sv) => return Ok(sv),
                Err(Refusal::Api(error)) => return Err(error),
                Err(Refusal::Gone) => {}
            }
        }
        let remote = RemoteRoom::new(Arc::new(RoomNames::new(room.clone(), &node.store.keys)));
        let updated = match &change {
            Change::Settings(change) => remote.update_settings(&node.store, change).await?,
            Change::Guest(change) => remote.update_guest(&node.store, change).await?,
        };
        if is_brought_back || !is_nobodys(&updated) {
            return refusal_of(updated).map(|(sv, _)| sv);
        }
        let is_there = matches!(updated, Updated::Damaged { .. });
        is_brought_back = if is_there { load(node, room).await? } else { recover(node, room).await? };
        if !is_brought_back {
            return refusal_of(updated).map(|(sv, _)| sv);
        }
    }
}

/// Whether Redis lacks the room, or part of it, and nobody has it in memory.
fn is_nobodys(updated: &Updated) -> bool {
    matches!(updated, Updated::Missing { owner } | Updated::Damaged { owner } if owner.is_empty())
}

/// Something that a media server reported.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// Its id: the second of the same is not taken.
    pub id: String,
    /// What happened.
    pub report: MediaReport,
    /// About whom, in the vendor's names.
    pub participant: Option<String>,
}

/// What became of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// All of them are in the room's inbox.
    Here {
        /// So many were not there before.
        appended: usize,
    },
    /// There is no such room.
    NoRoom,
}

/// Puts what a media server reported into a room's inbox, in order and all at once; once it is there, it will be
/// executed.
pub async fn report(
    node: &Arc<Node>,
    app: &Arc<App>,
    room: &RoomKey,
    heard: &[Heard],
) -> Result<Reported, ApiError> {
    let store = &node.store;
    let payloads: Vec<String> = heard
        .iter()
        .map(|Heard { report, participant, .. }| {
            let (command, participant) = (Command::Media(report.clone()), participant.clone());
            serde_json::to_string(&Payload { actor: By::Media, command, participant })
        })
        .collect::<Result<_, _>>()
        .map_err(|_| ApiError::bad_request("it cannot be sent"))?;
    let reports: Vec<(&str, &str)> =
        heard.iter().zip(&payloads).map(|(heard, payload)| (heard.id.as_str(), payload.as_str())).collect();
    let with = Report {
        me: &store.me,
        room,
        keys: &store.keys.room(room),
        route_json: &json_string(room.route()),
        reports: &reports,
        cap: INBOX,
    };
    let mut reported = store.timed("report", store.scripts.report(&store.keys, with)).await?;
    let is_nobodys = |reported: &redis_scripts::Reported| matches!(reported, redis_scripts::Reported::Missing { owner } if owner.is_empty());
    if is_nobodys(&reported) && recover(node, room).await? {
        reported = store.timed("report", store.scripts.report(&store.keys, with)).await?;
    }
    match reported {
        redis_scripts::Reported::Ok { appended, owner } => {
            store.replicated().await?;
            if appended > 0 && (owner.is_empty() || owner == store.me.as_str()) {
                adopt(node, app, room);
            }
            Ok(Reported::Here { appended })
        }
        redis_scripts::Reported::Missing { owner } if owner.is_empty() => Ok(Reported::NoRoom),
        redis_scripts::Reported::Missing { .. } => Err(being_restored()),
        redis_scripts::Reported::Full { length } => {
            let full = format!("{length} events wait for the room already");
            Err(ApiError::new(ErrorCode::RateLimited, full))
        }
    }
}
