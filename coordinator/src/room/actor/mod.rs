//! The task of one room: everything that happens to the room happens here, one thing after another.

mod birth;
mod commands;
mod delivery;
mod entry;
mod external;
mod grants;
mod inbox;
mod media;
mod reading;
mod reconcile;
mod recovery;
mod speakers;
mod state;
mod tenure;

pub(crate) use inbox::Payload;
pub(crate) use state::refusal_of;

use key_prefix::RoomKey;
use redis_scripts::{FenceToken, Pinned};
use room_cell::{Command, Millis, Status};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tracing::Instrument as _;

use self::external::External;
use self::speakers::Speakers;
use super::batch::{Batch, Step};
use super::desk::Did;
use super::gateway;
use super::names::RoomNames;
use super::owned::{OwnedRoom, SuspendedRoom};
use super::presence::PresenceWindow;
use super::projection::StateChange;
use super::recent::Recent;
use super::work::{Present, Refusal, RoomHandle, Standing, Work};
use crate::clock::Moment;
use crate::config::App;
use crate::error::ApiError;
use crate::node::Node;
use crate::socket::Client;

/// A change that arrives before the one that it follows waits so long for it.
const GAP_PATIENCE: Duration = Duration::from_millis(50);
/// Changes that may wait for one that is missing; more, and the room is read again.
const GAP_CHANGES: usize = 256;
/// Commands that go into one commit at most.
const BATCH: usize = 128;

enum State {
    /// No `pin` has answered yet.
    New,
    Owned(OwnedRoom),
    Suspended(SuspendedRoom),
    /// The first `pin` was refused: so is everybody who was waiting for it.
    Refused(Pinned),
    Ended,
}

/// A place in the queue of rooms that are to be pinned again.
type Turn = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>;

struct Actor {
    node: Arc<Node>,
    app: Arc<App>,
    names: Arc<RoomNames>,
    standing: Arc<Standing>,
    state: State,
    window: Option<PresenceWindow>,
    early: BTreeMap<u64, StateChange>,
    /// A commit that went unanswered: it is sent again, as it is, before anything else.
    unanswered: Option<Batch>,
    /// Answers of the last commands that named an id.
    recent: Recent,
    /// Connected here, but lost from Redis: they join again.
    returning: Vec<Step>,
    /// Commits in a row that failed with inbox entries in them.
    strikes: u32,
    gap_due: Option<Instant>,
    settle_due: Option<Instant>,
    inbox_due: Option<Instant>,
    away_due: Option<Instant>,
    idle_due: Option<Instant>,
    repin_due: Option<Instant>,
    /// Waits to be pinned again.
    turn: Option<Turn>,
    speakers: Speakers,
    /// The embedded media server said in a time without a lease that its tracks changed.
    tracks_untold: bool,
    /// The cell's next deadline, and the version that it was looked up at.
    deadline: (u64, Option<Millis>),
    /// Cell and settings version of a room that was loaded without the ledger's word.
    unproved: Option<(u64, u64)>,
    compare_due: Option<Instant>,
    /// The ledger knows a higher token of the room than the one that it was held with.
    outranked: Option<FenceToken>,
    /// Outages of Redis that deadlines were lengthened by.
    outages_ms: u64,
    /// A commit went unanswered; Redis was last heard of then.
    unheard_since: Option<u64>,
    /// Lengthening of deadlines that could not be committed yet.
    owed_ms: u64,
    /// What the embedded media server said while nothing could be committed.
    unheard_media: Vec<Step>,
    /// Generation of the media router that was last opened: a lease had again leaves it as it is.
    router: u64,
    /// Its external media server, where its app has one.
    external: Option<External>,
    peers_counted: i64,
}

/// Starts the actor of `room`, which ends by itself.
pub(super) fn spawn(
    node: Arc<Node>,
    app: Arc<App>,
    room: RoomKey,
    handle: &RoomHandle,
    work: mpsc::Receiver<Work>,
) {
    let span = tracing::info_span!("room", app = room.app(), room = room.room());
    let (id, standing) = (handle.id, Arc::clone(&handle.standing));
    let task = async move {
        let (external, did) = app.has_external_media().then(|| External::open(&node)).unzip();
        let mut actor = Actor {
            names: Arc::new(RoomNames::new(room.clone(), &node.store.keys)),
            node: Arc::clone(&node),
            app,
            standing,
            state: State::New,
            window: None,
            early: BTreeMap::new(),
            unanswered: None,
            recent: Recent::default(),
            returning: Vec::new(),
            strikes: 0,
            gap_due: None,
            settle_due: None,
            inbox_due: None,
            away_due: None,
            idle_due: None,
            repin_due: None,
            turn: None,
            speakers: Speakers::default(),
            tracks_untold: false,
            deadline: (0, None),
            unproved: None,
            compare_due: None,
            outranked: None,
            outages_ms: 0,
            unheard_since: None,
            owed_ms: 0,
            unheard_media: Vec::new(),
            router: 0,
            external,
            peers_counted: 0,
        };
        let mut work = work;
        actor.run(&mut work, did).await;
        actor.standing.hold(None);
        actor.count_peers(0);
        // First out of the registry, then the mailbox closed: whoever finds it closed finds a new actor.
        node.rooms.forget(&node, &room, id);
        work.close();
        let mut has_inbox = false;
        while let Some(waiting) = work.recv().await {
            match &actor.state {
                State::Refused(pinned) => actor.turn_away(waiting, pinned),
                // It was put there when nobody had the room any more, and nobody else was told.
                _ => has_inbox |= matches!(waiting, Work::Inbox),
            }
        }
        if has_inbox {
            gateway::adopt(&node, &actor.app, &room);
        }
    };
    tokio::spawn(task.instrument(span));
}

impl Actor {
    async fn run(&mut self, work: &mut mpsc::Receiver<Work>, mut did: Option<mpsc::Receiver<Did>>) {
        let mut store_up = self.node.store_up.subscribe();
        let mut media_nodes = self.node.media.nodes.changes();
        while !matches!(self.state, State::Ended | State::Refused(_)) {
            let due = self.next_due();
            let suspended = matches!(self.state, State::Suspended(_));
            let is_external = self.external.is_some();
            // Whichever is ready: neither what falls due nor what comes in keeps the other waiting.
            // What is done about it is on the heap while it is being done: a room that rests is small.
            tokio::select! {
                () = sleep_until(due) => Box::pin(self.tick()).await,
                changed = store_up.changed() => match changed {
                    Ok(()) if *store_up.borrow_and_update() => {
                        if suspended {
                            Box::pin(self.repin_in_turn()).await;
                        } else {
                            Box::pin(self.after_outage()).await;
                        }
                    }
                    Ok(()) => {}
                    Err(_) => return,
                },
                next = work.recv() => match next {
                    Some(first) => Box::pin(self.take(first, work)).await,
                    None => return,
                },
                Some(turn) = its_turn(&mut self.turn), if suspended => {
                    self.turn = None;
                    Box::pin(self.repin(turn)).await;
                }
                Some(did) = desk(&mut did) => Box::pin(self.desk_did(did)).await,
                Ok(()) = media_nodes.changed(), if is_external => {
                    media_nodes.mark_unchanged();
                    self.media_nodes_changed();
                }
            }
            self.note_standing();
        }
    }

    /// Handles what came, and with a command all commands that wait behind it.
    async fn take(&mut self, first: Work, work: &mut mpsc::Receiver<Work>) {
        let first =
            if matches!(self.state, State::New) { Box::pin(self.begin(first)).await } else { Some(first) };
        let Some(first) = first else { return };
        let mut steps = Vec::new();
        let mut next = Some(first);
        while let Some(work_now) = next.take() {
            match self.step_of(work_now) {
                Ok(step) => steps.push(step),
                Err(other) => {
                    if !steps.is_empty() {
                        self.execute(std::mem::take(&mut steps)).await;
                    }
                    if let Some(other) = other {
                        self.handle_with_alike(other, work).await;
                    }
                    return;
                }
            }
            if steps.len() < BATCH {
                next = work.try_recv().ok();
            }
        }
        self.execute(steps).await;
    }

    /// Handles a piece of work, and with a change of settings those that wait right behind it.
    async fn handle_with_alike(&mut self, first: Work, work: &mut mpsc::Receiver<Work>) {
        if matches!(first, Work::Settings(..) | Work::Sync(_)) {
            // Those who were answered together ask again together: the rest of them are about to run.
            tokio::task::yield_now().await;
        }
        let (mut settings, mut synced, mut next) = (Vec::new(), Vec::new(), Some(first));
        while let Some(work_now) = next.take() {
            match work_now {
                Work::Settings(change, reply) if synced.is_empty() => settings.push((change, reply)),
                Work::Sync(change) if settings.is_empty() => synced.push(*change),
                other => {
                    next = Some(other);
                    break;
                }
            }
            if settings.len() + synced.len() < BATCH {
                next = work.try_recv().ok();
            }
        }
        if !settings.is_empty() {
            self.change_settings(settings).await;
        }
        if !synced.is_empty() {
            self.synced(synced).await;
        }
        let Some(other) = next else { return };
        match self.step_of(other) {
            Ok(step) => self.execute(vec![step]).await,
            Err(Some(other)) => self.handle(other).await,
            Err(None) => {}
        }
    }

    fn next_due(&mut self) -> Option<Instant> {
        let now = crate::clock::instant();
        match &self.state {
            State::Owned(room) => {
                let window = self.window.as_ref().map(PresenceWindow::due);
                let lease = now + room.lease().left(Moment::now());
                if self.deadline.0 != room.cell().version {
                    self.deadline = (room.cell().version, room.cell().next_deadline());
                }
                let redis_now = self.node.redis_clock.now_ms();
                let deadline =
                    self.deadline.1.map(|at| now + Duration::from_millis(at.0.saturating_sub(redis_now)));
                // What waits for a commit that failed waits for its next try.
                let deadline = deadline.map(|due| self.settle_due.map_or(due, |settle| due.max(settle)));
                let asking = self.external.as_ref().and_then(External::asking);
                let deadline = deadline.map(|due| asking.map_or(due, |until| due.max(until)));
                let may_act = self.may_act();
                let (deadline, away) = (deadline.filter(|_| may_act), self.away_due.filter(|_| may_act));
                let made_up = self.may_make_up().then_some(now);
                let heard =
                    !self.unheard_media.is_empty() && self.settle_due.is_none() && self.unanswered.is_none();
                // Opened again by a command from elsewhere.
                let is_made = matches!(room.cell().status, Status::Creating { .. });
                let is_made = is_made && self.settle_due.is_none() && self.unanswered.is_none();
                let returning = (!self.returning.is_empty() || heard).then_some(now);
                let due = [
                    window,
                    Some(lease),
                    deadline,
                    made_up,
                    returning,
                    is_made.then_some(now),
                    self.gap_due,
                    self.settle_due,
                    self.inbox_due,
                    away,
                    self.idle_due,
                    self.compare_due,
                    self.external.as_ref().and_then(External::due),
                    self.speakers.due(),
                ];
                due.into_iter().flatten().min()
            }
            State::Suspended(_) => self.repin_due,
            _ => None,
        }
    }

    async fn tick(&mut self) {
        if matches!(self.state, State::Suspended(_)) {
            self.repin_due = None;
            self.repin_in_turn().await;
            return;
        }
        if !self.serves() {
            return;
        }
        let now = crate::clock::instant();
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if is_due(self.window.as_ref().map(PresenceWindow::due)) {
            self.flush_presence();
        }
        if is_due(self.settle_due) {
            self.settle_due = None;
            // What it cannot do now it tries again by itself.
            _ = self.settle().await;
        }
        let returning = std::mem::take(&mut self.returning);
        if !returning.is_empty() {
            self.execute(returning).await;
        }
        if self.settle_due.is_none() && self.unanswered.is_none() {
            let said = std::mem::take(&mut self.unheard_media);
            if !said.is_empty() {
                self.execute(said).await;
            }
        }
        self.open_made().await;
        if is_due(self.gap_due) {
            self.gap_due = None;
            self.read_again("gap").await;
        }
        if is_due(self.inbox_due) {
            self.inbox_due = None;
            self.empty_inbox().await;
        }
        if is_due(self.compare_due) {
            _ = self.compare().await;
        }
        self.make_up().await;
        if is_due(self.away_due) && self.may_act() {
            self.end_overdue().await;
        }
        self.external_due();
        self.repeat_levels();
        if self.may_act() {
            self.timers().await;
        }
        if is_due(self.idle_due) {
            self.idle_due = None;
            self.idle().await;
        }
    }

    async fn handle(&mut self, work: Work) {
        match work {
            // A connection that is a member already; other commands become steps before they come here.
            Work::Join(request, reply) => {
                let answer = self.join_again(&request).await;
                _ = reply.send(answer);
            }
            Work::Command(..) | Work::Media(..) => {}
            Work::Inbox => self.empty_inbox().await,
            Work::Open(opening, reply) => {
                let answer = self.open(&opening).await;
                _ = reply.send(answer);
            }
            Work::Recover(reply) => _ = reply.send(self.serving().map(|_| ())),
            Work::Levels(levels) => self.hear_levels(levels),
            Work::Disconnected(sid) => self.disconnected(sid),
            Work::Membership(sid, reply) => _ = reply.send(self.membership(sid)),
            Work::Peers(sid, after, limit, reply) => {
                let answer = self.peers(sid, after.as_deref(), limit);
                _ = reply.send(answer);
            }
            Work::Settings(change, reply) => self.change_settings(vec![(change, reply)]).await,
            Work::Guest(change, reply) => {
                let answer = self.update_guest(&change).await;
                _ = reply.send(answer);
            }
            Work::Sync(change) => self.synced(vec![*change]).await,
            Work::StandsAt { sv, cv } => self.stands_at(sv, cv).await,
            Work::LeaseGone => self.lease_gone("unowned").await,
            Work::Damaged => self.damaged().await,
            Work::Present(to) => self.report_present(&to),
            Work::Tracks(peers) => self.tracks_changed(&peers).await,
            Work::Grant(sid, reply) => self.grant_asked(sid, reply),
            Work::Drain { spread, done } => {
                let told = self.drain(spread).await;
                _ = done.send(told);
            }
        }
    }

    /// A room that was opened again does not wait for its router.
    async fn open_made(&mut self) {
        let State::Owned(room) = &self.state else { return };
        if matches!(room.cell().status, Status::Creating { .. }) && self.settle_due.is_none() {
            self.execute_own([Command::Created]).await;
        }
    }

    /// Whether the lease holds. One that ran out suspends the room.
    fn serves(&mut self) -> bool {
        match &self.state {
            State::Owned(room) if room.lease().holds(Moment::now()) => true,
            State::Owned(_) => {
                self.suspend("fenced");
                false
            }
            _ => false,
        }
    }

    /// The room, if it may be served just now; else what to tell whoever asks.
    fn serving(&mut self) -> Result<&mut OwnedRoom, Refusal> {
        self.serves();
        match &mut self.state {
            State::Owned(room) => Ok(room),
            State::Suspended(_) if *self.node.store_up.borrow() => Err(ApiError::lease_lost().into()),
            State::Suspended(_) => Err(ApiError::store_unavailable().into()),
            State::New | State::Refused(_) | State::Ended => Err(Refusal::Gone),
        }
    }

    fn redis_now(&self) -> Millis {
        Millis(self.node.redis_clock.now_ms())
    }

    fn report_present(&mut self, to: &mpsc::Sender<Present>) {
        let State::Owned(room) = &self.state else { return };
        // A connection whose end was lost in a full mailbox must not make somebody immortal.
        let ended: Vec<_> = room.links().clients().filter(|it| !it.is_connected()).map(Client::sid).collect();
        for sid in ended {
            self.disconnected(sid);
        }
        let State::Owned(room) = &self.state else { return };
        let users: Vec<Arc<str>> = room.links().connected_users().into_iter().map(Arc::clone).collect();
        if users.is_empty() {
            return;
        }
        let present = Present { room: self.names.key.clone(), token: room.lease().token(), users };
        if to.try_send(present).is_err() {
            self.node.metrics.skipped.with_label_values(&["touch_full"]).inc();
        }
    }

    fn note_standing(&mut self) {
        self.standing.turned();
        let State::Owned(room) = &self.state else { return };
        self.standing.stand_at(room.projection().sv.as_u64(), room.cell().version);
        let peers = i64::try_from(room.cell().peers.len()).unwrap_or(i64::MAX);
        let is_empty = room.cell().peers.is_empty();
        self.count_peers(peers);
        if !is_empty {
            self.idle_due = None;
        } else if self.idle_due.is_none() {
            self.idle_due = Some(crate::clock::instant() + self.app.idle);
        }
    }

    fn count_peers(&mut self, peers: i64) {
        self.node.metrics.peers.add(peers - self.peers_counted);
        self.peers_counted = peers;
    }
}

async fn desk(did: &mut Option<mpsc::Receiver<Did>>) -> Option<Did> {
    match did {
        Some(did) => did.recv().await,
        None => std::future::pending().await,
    }
}

async fn its_turn(turn: &mut Option<Turn>) -> Option<OwnedSemaphorePermit> {
    match turn {
        Some(turn) => turn.await.ok(),
        None => std::future::pending().await,
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
