//! The task of one room: everything that happens to the room happens here, one thing after another.

mod delivery;
mod entry;
mod state;
mod tenure;

pub(crate) use state::refusal_of;

use key_prefix::RoomKey;
use redis_scripts::Pinned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::names::RoomNames;
use super::owned::{Joiner, OwnedRoom, SuspendedRoom};
use super::presence::PresenceWindow;
use super::projection::StateChange;
use super::work::{Present, Refusal, RoomHandle, Standing, Work};
use crate::clock::Moment;
use crate::config::App;
use crate::error::ApiError;
use crate::node::Node;

/// A change that arrives before the one that it follows waits so long for it.
const GAP_PATIENCE: Duration = Duration::from_millis(50);
/// Changes that may wait for one that is missing; more, and the room is read again.
const GAP_CHANGES: usize = 256;

enum State {
    /// No `pin` has answered yet.
    New,
    Owned(OwnedRoom),
    Suspended(SuspendedRoom),
    /// The first `pin` was refused: so is everybody who was waiting for it.
    Refused(Pinned),
    Ended,
}

struct Actor {
    node: Arc<Node>,
    app: Arc<App>,
    names: Arc<RoomNames>,
    standing: Arc<Standing>,
    state: State,
    window: Option<PresenceWindow>,
    early: BTreeMap<u64, StateChange>,
    /// A commit went unanswered: the room is read before the next one.
    uncertain: bool,
    /// Connected here, but lost from Redis: they join again.
    returning: Vec<Joiner>,
    /// Peers whose end went unanswered: if Redis has ended them, they do not come back.
    unanswered: Vec<Arc<str>>,
    gap_due: Option<Instant>,
    away_due: Option<Instant>,
    idle_due: Option<Instant>,
    repin_due: Option<Instant>,
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
        let mut actor = Actor {
            names: Arc::new(RoomNames::new(room.clone(), &node.store.keys)),
            node: Arc::clone(&node),
            app,
            standing,
            state: State::New,
            window: None,
            early: BTreeMap::new(),
            uncertain: false,
            returning: Vec::new(),
            unanswered: Vec::new(),
            gap_due: None,
            away_due: None,
            idle_due: None,
            repin_due: None,
            peers_counted: 0,
        };
        let mut work = work;
        actor.run(&mut work).await;
        actor.standing.hold(None);
        actor.count_peers(0);
        // First out of the registry, then the mailbox closed: whoever finds it closed finds a new actor.
        node.rooms.forget(&node, &room, id);
        work.close();
        while let Some(waiting) = work.recv().await {
            if let (Work::Join(request, reply), State::Refused(pinned)) = (waiting, &actor.state) {
                _ = reply.send(Err(actor.refusal(pinned, request.hops).into()));
            }
        }
    };
    tokio::spawn(task.instrument(span));
}

impl Actor {
    async fn run(&mut self, work: &mut mpsc::Receiver<Work>) {
        let mut store_up = self.node.store_up.subscribe();
        while !matches!(self.state, State::Ended | State::Refused(_)) {
            let due = self.next_due();
            let suspended = matches!(self.state, State::Suspended(_));
            tokio::select! {
                biased;
                () = sleep_until(due) => self.tick().await,
                changed = store_up.changed(), if suspended => match changed {
                    Ok(()) if *store_up.borrow_and_update() => self.repin().await,
                    Ok(()) => {}
                    Err(_) => return,
                },
                next = work.recv() => match next {
                    Some(work) => self.handle(work).await,
                    None => return,
                },
            }
            self.note_standing();
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let (window, lease) = match &self.state {
            State::Owned(room) => (
                self.window.as_ref().map(PresenceWindow::due),
                Some(crate::clock::instant() + room.lease().left(Moment::now())),
            ),
            _ => (None, None),
        };
        let suspended = matches!(self.state, State::Suspended(_));
        let repin = if suspended { self.repin_due } else { None };
        let returning = (!self.returning.is_empty()).then(crate::clock::instant);
        let owned = [window, lease, returning, self.gap_due, self.away_due, self.idle_due];
        let candidates = if suspended { [repin, None, None, None, None, None] } else { owned };
        candidates.into_iter().flatten().min()
    }

    async fn tick(&mut self) {
        if matches!(self.state, State::Suspended(_)) {
            self.repin_due = None;
            self.repin().await;
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
        for joiner in std::mem::take(&mut self.returning) {
            if let Err(refusal) = self.commit_join(joiner).await {
                tracing::warn!(?refusal, "somebody who is connected could not be put back");
            }
        }
        if is_due(self.gap_due) {
            self.gap_due = None;
            self.read_again("gap").await;
        }
        if is_due(self.away_due) {
            self.end_overdue().await;
        }
        if is_due(self.idle_due) {
            self.idle_due = None;
            self.unload().await;
        }
    }

    async fn handle(&mut self, work: Work) {
        match work {
            Work::Join(request, reply) => {
                let answer = self.join(*request).await;
                _ = reply.send(answer);
            }
            Work::Leave(sid, reply) => {
                let answer = self.leave(sid).await;
                _ = reply.send(answer);
            }
            Work::Disconnected(sid) => self.disconnected(sid),
            Work::Membership(sid, reply) => _ = reply.send(self.membership(sid)),
            Work::Peers(sid, after, limit, reply) => {
                let answer = self.peers(sid, after.as_deref(), limit);
                _ = reply.send(answer);
            }
            Work::Settings(change, reply) => {
                let answer = self.update_settings(&change).await;
                _ = reply.send(answer);
            }
            Work::Guest(change, reply) => {
                let answer = self.update_guest(&change).await;
                _ = reply.send(answer);
            }
            Work::Sync(change) => self.synced(*change).await,
            Work::StandsAt { sv, cv } => self.stands_at(sv, cv).await,
            Work::LeaseGone => self.lease_gone("unowned").await,
            Work::Damaged => self.damaged().await,
            Work::Present(to) => self.report_present(&to),
            Work::Tracks(peers) => self.tracks_changed(&peers).await,
            Work::Drain { spread, done } => {
                let told = self.drain(spread).await;
                _ = done.send(told);
            }
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

    fn report_present(&self, to: &mpsc::Sender<Present>) {
        let State::Owned(room) = &self.state else { return };
        let users: Vec<Arc<str>> = room.members().connected_users().map(Arc::clone).collect();
        if users.is_empty() {
            return;
        }
        let present = Present { room: self.names.key.clone(), token: room.lease().token(), users };
        if to.try_send(present).is_err() {
            self.node.metrics.skipped.with_label_values(&["touch_full"]).inc();
        }
    }

    fn note_standing(&mut self) {
        let State::Owned(room) = &self.state else { return };
        self.standing.stand_at(room.projection().sv.as_u64(), room.projection().cv.as_u64());
        let peers = i64::try_from(room.members().len()).unwrap_or(i64::MAX);
        let is_empty = room.members().is_empty();
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

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
