//! The room's router at an external media server: made, found again, left behind, compared with the room.
//!
//! Everything that is asked of the server goes over the room's desk. What must happen there at some time is a duty in
//! the cell until it has; what is only looked at is asked again when it is next wanted.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use media_bridge::{Generation, MediaError, MediaKind, Router};
use room_cell::{Command, Duty, Event, MediaIdentity, MicSession, Millis, Status};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Actor, State};
use crate::clock::Moment;
use crate::media::Placed;
use crate::node::random_pause;
use crate::room::batch::{Batch, Step};
use crate::room::desk::{Desk, Did, Job};

/// What failed is tried again after so long, and a random part of that.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// A router that lives long is noted anew so often.
const NOTED: Duration = Duration::from_secs(24 * 3600);
/// Duties of a room without people are given up after so long: nobody is there who could be heard.
const GIVEN_UP_MS: u64 = 3_600_000;
/// A room without people is kept so long for its duties; then it is looked at again when it is due.
const PATIENCE_MS: u64 = 10_000;

/// What a room knows of its external media server beside what is in the cell.
pub(super) struct External {
    pub(super) desk: Desk,
    /// Duties that the desk has.
    doing: HashSet<Duty>,
    /// The router is being made, or looked for.
    placing: bool,
    /// The router that is known to be there.
    pub(super) standing: Option<Generation>,
    noted: Option<Instant>,
    pub(super) listing: bool,
    pub(super) list_due: Option<Instant>,
    pub(super) again_due: Option<Instant>,
    /// The media server was last asked who is there then, and these peers were heard; `None`: it did not say.
    pub(super) heard: Option<(Millis, Option<HashSet<Arc<str>>>)>,
    /// Deadlines wait until then for what it says.
    pub(super) asking: Option<Instant>,
    /// Who is who in the names at the vendor, as of a cell version.
    pub(super) names: (u64, HashMap<Arc<str>, MediaIdentity>),
    /// Mic sessions of people who were last said not to be there, and since when.
    pub(super) missing: HashMap<MicSession, Millis>,
    /// Peers who could not be given a grant yet.
    pub(super) ungranted: Mutex<HashSet<Arc<str>>>,
    /// Peers who could not be brought to what they may do, which is nobody's duty.
    pub(super) unpermitted: HashSet<Arc<str>>,
}

impl External {
    pub(super) fn open(node: &Arc<crate::node::Node>) -> (Self, mpsc::Receiver<Did>) {
        let (desk, did) = Desk::open(Arc::clone(node));
        let external = Self {
            desk,
            doing: HashSet::new(),
            placing: false,
            standing: None,
            noted: None,
            listing: false,
            list_due: None,
            again_due: None,
            heard: None,
            asking: None,
            names: (0, HashMap::new()),
            missing: HashMap::new(),
            ungranted: Mutex::default(),
            unpermitted: HashSet::new(),
        };
        (external, did)
    }

    /// When it has something to do next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.list_due.into_iter().chain(self.again_due).chain(self.asking).min()
    }

    /// Deadlines of seats wait for what the media server says.
    pub(super) const fn asking(&self) -> Option<Instant> {
        self.asking
    }
}

impl Actor {
    /// The router that the cell names, at a server that is known here.
    pub(super) fn placed(&self) -> Option<Placed> {
        let State::Owned(room) = &self.state else { return None };
        let record = room.cell().router.as_ref()?;
        self.place(&record.node, &record.name, record.generation)
    }

    fn place(&self, node: &str, name: &Arc<str>, generation: u64) -> Option<Placed> {
        let node = Arc::clone(self.node.media.nodes.find(node)?);
        let router =
            Router { room: self.media_room(), name: Arc::clone(name), generation: Generation(generation) };
        Some(Placed { node, router })
    }

    /// Has something done at the media server while the lease lasts.
    pub(super) fn ask_desk(&self, job: Job) -> bool {
        let (State::Owned(room), Some(external)) = (&self.state, &self.external) else { return false };
        let until = crate::clock::instant() + room.lease().left(Moment::now());
        external.desk.ask(job, until)
    }

    /// The room was just taken: its router is found again, or made when somebody comes.
    pub(super) fn enter_external(&mut self) {
        let Some(external) = &mut self.external else { return };
        external.standing = None;
        external.doing.clear();
        external.missing.clear();
        (external.placing, external.listing, external.asking) = (false, false, None);
        self.look_after_router();
        // What an earlier owner left undone, even where nobody is there any more.
        self.do_duties();
    }

    /// The room is no longer this instance's: nothing more is asked for it.
    pub(super) fn stop_external(&mut self) {
        let Some(external) = &mut self.external else { return };
        external.desk.discard();
        external.doing.clear();
        (external.placing, external.listing, external.asking) = (false, false, None);
    }

    /// What an app owed to external media servers before it went over to the embedded one is forgotten: nobody here
    /// knows them any more.
    pub(super) async fn forget_external(&mut self) {
        if self.external.is_some() {
            return;
        }
        let State::Owned(room) = &self.state else { return };
        if let Some(router) = &room.cell().router {
            tracing::error!(node = %router.node, "the room's router is left at a media server its app has no more");
            self.execute_own([Command::RouterDropped]).await;
        }
        let State::Owned(room) = &self.state else { return };
        let owed = &room.cell().duties;
        let done: Vec<_> = owed.iter().map(|(duty, owed)| (duty.clone(), owed.version)).collect();
        if !done.is_empty() {
            self.execute_own([Command::DutiesDone { done }]).await;
        }
    }

    /// Brings the room's router about, if it should have one and does not.
    pub(super) fn look_after_router(&mut self) {
        let State::Owned(room) = &self.state else { return };
        let cell = room.cell();
        if matches!(cell.status, Status::Closing { .. }) {
            return self.end_router();
        }
        let (is_active, has_people) = (cell.status == Status::Active, !cell.users.is_empty());
        let (has_router, next) = (cell.router.is_some(), cell.router_generation + 1);
        let Some(external) = &self.external else { return };
        if external.placing {
            return;
        }
        let is_standing = |placed: &Placed| external.standing == Some(placed.router.generation);
        let job = match self.placed() {
            Some(placed) if !placed.is_lost() => {
                let is_noted = external.noted.is_some_and(|at| crate::clock::instant() < at + NOTED);
                if is_standing(&placed) && is_noted {
                    return;
                }
                Job::Adopt(placed)
            }
            // Nobody is there who would miss it.
            _ if !is_active || !has_people => return,
            lost => {
                if let Some(placed) = lost.filter(|_| has_router) {
                    tracing::warn!(node = %placed.node.name, "the media server is gone");
                }
                Job::Open {
                    among: self.app.media.clone(),
                    room: self.media_room(),
                    generation: Generation(next),
                }
            }
        };
        let is_asked = self.ask_desk(job);
        if let Some(external) = &mut self.external {
            external.placing = is_asked;
            if !is_asked {
                external.again_due = Some(again());
            }
        }
    }

    /// A media server's state changed.
    pub(super) fn media_nodes_changed(&mut self) {
        if !self.serves() {
            return;
        }
        if self.placed().is_some_and(|placed| placed.is_lost())
            && let Some(external) = &mut self.external
        {
            external.standing = None;
        }
        self.look_after_router();
        self.do_duties();
    }

    /// What is due at the media server by the clock.
    pub(super) fn external_due(&mut self) {
        let now = crate::clock::instant();
        let Some(external) = &mut self.external else { return };
        let is_due = |due: &mut Option<Instant>| due.take_if(|due| *due <= now).is_some();
        let (again, list) = (is_due(&mut external.again_due), is_due(&mut external.list_due));
        if external.asking.take_if(|until| *until <= now).is_some() {
            let asked = Millis(self.node.redis_clock.now_ms());
            external.heard = Some((asked, None));
        }
        if again || list {
            self.look_after_router();
            self.end_router();
            self.do_duties();
            self.grant_the_rest();
            self.permit_the_rest();
        }
        if list {
            self.ask_who_is_there();
        }
    }

    /// Compares the room with the media server's own list, soon.
    pub(super) fn reconcile_soon(&mut self) {
        let soon = again();
        if let Some(external) = &mut self.external {
            external.list_due = Some(external.list_due.map_or(soon, |due| due.min(soon)));
        }
    }

    /// Whether the media server can say who is there.
    pub(super) fn has_list(&self) -> bool {
        // Agora says who is there, and nothing of who is heard.
        self.app.media_kind.is_some_and(|kind| kind.tells_who_is_heard() || kind == MediaKind::Agora)
    }

    /// Asks the media server who is there; `false` where that cannot be asked.
    pub(super) fn ask_who_is_there(&mut self) -> bool {
        let placed = self.placed().filter(|placed| !placed.is_lost());
        let Some(at) = placed.filter(|_| self.has_list()) else { return false };
        let Some(external) = &mut self.external else { return false };
        let spread = self.app.reconcile / 5;
        let next = self.app.reconcile - spread / 2 + random_pause(spread);
        external.list_due = Some(crate::clock::instant() + next);
        if external.standing != Some(at.router.generation) {
            return false;
        }
        if external.listing {
            return true;
        }
        let job = Job::List { at, asked_at: Millis(self.node.redis_clock.now_ms()) };
        let is_asked = self.ask_desk(job);
        if let Some(external) = &mut self.external {
            external.listing = is_asked;
        }
        is_asked
    }

    /// Who is heard, where the deadline of a seat passed at `due`: `None` while that is being asked.
    pub(super) fn heard_since(&mut self, due: Millis) -> Option<HashSet<Arc<str>>> {
        let known = self.external.as_ref().and_then(|external| external.heard.as_ref());
        if let Some((_, heard)) = known.filter(|(asked_at, _)| *asked_at >= due) {
            return Some(heard.clone().unwrap_or_default());
        }
        if self.external.as_ref().is_some_and(|external| external.asking.is_some()) {
            return None;
        }
        let can_tell = self.app.media_kind.is_some_and(MediaKind::tells_who_is_heard);
        // While the router is looked for, or made anew, nobody can be heard.
        let is_placing = self.external.as_ref().is_some_and(|external| external.placing);
        if can_tell && (self.ask_who_is_there() || is_placing) {
            let wait = self.node.config.media.iter().map(|media| media.deadline).max().unwrap_or_default();
            if let Some(external) = &mut self.external {
                external.asking = Some(crate::clock::instant() + wait);
            }
            return None;
        }
        Some(HashSet::new())
    }

    /// What follows at the media server from a batch that is committed.
    pub(super) fn follow_external(&mut self, batch: &Batch) {
        if self.external.is_none() {
            return;
        }
        let events = || batch.steps.iter().flat_map(Step::events);
        if events().any(|event| matches!(event, Event::RouterMade { .. })) {
            self.grant_everybody();
        }
        // Where the vendor's times are whole seconds, what looks overtaken may be the newer: the list knows.
        if batch.steps.iter().any(Step::is_stale_report) {
            self.reconcile_soon();
        }
        self.end_router();
        self.look_after_router();
        self.do_duties();
    }

    /// Ends the router of a room that nobody is in, before the room is given up; `true` while that is going on.
    pub(super) async fn leave_router(&mut self) -> bool {
        let State::Owned(room) = &self.state else { return false };
        if self.external.is_none() {
            return false;
        }
        if matches!(room.cell().status, Status::Closing { .. }) {
            return true;
        }
        if room.cell().router.is_some() {
            self.execute_own([Command::RouterDropped]).await;
            return true;
        }
        let now = self.redis_now();
        let is_hopeless = |duty: &Duty, since: Millis| {
            let is_known = match duty {
                Duty::Close { node, .. } => self.node.media.nodes.find(node).is_some(),
                Duty::Permit { .. } | Duty::Remove { .. } => false,
            };
            !is_known || now.since(since) > GIVEN_UP_MS
        };
        let duties = &room.cell().duties;
        let (hopeless, open): (Vec<_>, Vec<_>) =
            duties.iter().partition(|(duty, owed)| is_hopeless(duty, owed.since));
        let is_going_on = open.iter().any(|(_, owed)| now.since(owed.since) <= PATIENCE_MS);
        let hopeless: Vec<_> =
            hopeless.into_iter().map(|(duty, owed)| (duty.clone(), owed.version)).collect();
        if !hopeless.is_empty() {
            tracing::error!(duties = hopeless.len(), "what a media server was owed is given up");
            self.execute_own([Command::DutiesDone { done: hopeless }]).await;
            return true;
        }
        is_going_on
    }

    /// A closing room's router is ended, and the room with it.
    fn end_router(&mut self) {
        let State::Owned(room) = &self.state else { return };
        if !matches!(room.cell().status, Status::Closing { .. }) {
            return;
        }
        let Some(at) = self.placed() else { return };
        if self.external.as_ref().is_some_and(|external| external.placing) {
            return;
        }
        let is_asked = self.ask_desk(Job::Close { at, duty: None });
        if let Some(external) = &mut self.external {
            external.placing = is_asked;
            if !is_asked {
                external.again_due = Some(again());
            }
        }
    }

    /// Hands what is owed to the media server to the desk.
    pub(super) fn do_duties(&mut self) {
        let State::Owned(room) = &self.state else { return };
        let Some(external) = &self.external else { return };
        let open: Vec<(Duty, u64)> = room
            .cell()
            .duties
            .iter()
            .filter(|(duty, _)| !external.doing.contains(*duty))
            .map(|(duty, owed)| (duty.clone(), owed.version))
            .collect();
        for (duty, version) in open {
            let Some(job) = self.job_of(&duty, version) else { continue };
            if !self.ask_desk(job) {
                self.try_external_again();
                return;
            }
            if let Some(external) = &mut self.external {
                external.doing.insert(duty);
            }
        }
    }

    /// `None`: nothing can be asked now; a change of the servers' states brings it up again.
    fn job_of(&self, duty: &Duty, version: u64) -> Option<Job> {
        let owed = Some((duty.clone(), version));
        match duty {
            Duty::Permit { user, peer } => {
                let State::Owned(room) = &self.state else { return None };
                let at = self.placed().filter(|placed| !placed.is_lost())?;
                let peer = room.cell().peer(peer.as_str()).filter(|it| it.user == *user)?;
                let (member, permissions) = (self.member(peer), self.external_permissions(peer));
                Some(Job::Permit { at, member, permissions, duty: owed })
            }
            Duty::Remove { name } => {
                let at = self.placed().filter(|placed| !placed.is_lost())?;
                Some(Job::Remove { at, name: Arc::clone(name), duty: owed })
            }
            Duty::Close { node, name, generation } => {
                let at = self.place(node, name, *generation)?;
                Some(Job::Close { at, duty: owed })
            }
        }
    }

    pub(super) fn try_external_again(&mut self) {
        if let Some(external) = &mut self.external {
            external.again_due = Some(external.again_due.map_or_else(again, |due| due.min(again())));
        }
    }

    /// Something was done at the media server, or could not be.
    pub(super) async fn desk_did(&mut self, did: Did) {
        let mine = |actor: &Self, of: Generation| {
            actor.placed().is_some_and(|placed| placed.router.generation == of)
        };
        match did {
            Did::Opened(generation, result) => self.opened(generation, result).await,
            Did::Adopted(generation, result) => {
                let Some(external) = &mut self.external else { return };
                external.placing = false;
                if !self.serves() || !mine(self, generation) {
                    self.look_after_router();
                    return;
                }
                self.adopted(generation, result).await;
            }
            Did::Granted(member, result) => match result {
                Ok(grant) => self.tell_grant(&member.peer.peer, &grant),
                Err(error) => self.ungranted(&member, &error),
            },
            Did::NotPermitted(member, error) => self.not_permitted(member, &error),
            Did::Duty(duty, version, result) => self.duty_done(duty, version, result).await,
            Did::Closed(generation, result) => {
                if let Some(external) = &mut self.external {
                    external.placing = false;
                }
                if !self.serves() || !mine(self, generation) {
                    return;
                }
                match result {
                    Ok(()) => self.execute_own([Command::Ended]).await,
                    Err(_) => self.try_external_again(),
                }
            }
            Did::Listed(generation, asked_at, result) => {
                if let Some(external) = &mut self.external {
                    external.listing = false;
                }
                if self.serves() && mine(self, generation) {
                    self.listed(asked_at, result).await;
                }
                if let Some(external) = &mut self.external {
                    external.asking = None;
                }
            }
        }
    }

    async fn opened(&mut self, generation: Generation, result: Result<Placed, MediaError>) {
        if let Some(external) = &mut self.external {
            external.placing = false;
        }
        if !self.serves() {
            return;
        }
        let placed = match result {
            Ok(placed) => placed,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no media router");
                self.try_external_again();
                return;
            }
        };
        if let Some(external) = &mut self.external {
            external.standing = Some(generation);
            external.noted = Some(crate::clock::instant());
            external.heard = None;
        }
        let made = Command::RouterMade {
            node: Arc::clone(&placed.node.name),
            name: Arc::clone(&placed.router.name),
            generation: generation.0,
        };
        self.execute_own([made]).await;
        self.reconcile_soon();
        let is_taken = |now: Placed| now.router == placed.router && now.node.name == placed.node.name;
        if !self.placed().is_some_and(is_taken) {
            // The room needs none any more, or has another.
            self.ask_desk(Job::Discard(placed));
            self.try_external_again();
        }
    }

    async fn adopted(&mut self, generation: Generation, result: Result<(), MediaError>) {
        match result {
            Ok(()) => {
                if let Some(external) = &mut self.external {
                    external.standing = Some(generation);
                    external.noted = Some(crate::clock::instant());
                }
                self.ask_who_is_there();
                self.do_duties();
                self.grant_the_rest();
            }
            Err(MediaError::NotFound { .. }) => self.router_lost().await,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the media router is not found yet");
                self.try_external_again();
            }
        }
    }

    /// The router is said to be gone: look.
    pub(super) fn doubt_router(&mut self) {
        if let Some(external) = &mut self.external {
            external.standing = None;
            external.again_due = Some(crate::clock::instant());
        }
    }

    /// The router is gone, though its server is not.
    pub(super) async fn router_lost(&mut self) {
        tracing::warn!("the media router is gone");
        if let Some(external) = &mut self.external {
            external.standing = None;
        }
        self.execute_own([Command::RouterDropped]).await;
        self.look_after_router();
    }

    async fn duty_done(&mut self, duty: Duty, version: u64, result: Result<(), MediaError>) {
        if let Some(external) = &mut self.external {
            external.doing.remove(&duty);
        }
        if !self.serves() {
            return;
        }
        if result.is_ok() && self.app.media_kind == Some(MediaKind::Janus) && self.was_heard(&duty) {
            // Of whoever may speak again and never stopped sending, its AudioBridge says nothing.
            self.reconcile_soon();
        }
        let is_done = match result {
            // Who is not there yet is permitted anew when they come, which an event tells, or the list.
            Ok(()) | Err(MediaError::NotFound { .. }) => true,
            // Its client is told instead, and renews what it has.
            Err(MediaError::NotSupported { .. }) => {
                self.grant_again(&duty);
                true
            }
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the media server was not told yet"
                );
                false
            }
        };
        if is_done {
            self.execute_own([Command::DutiesDone { done: vec![(duty, version)] }]).await;
        }
        self.try_external_again_if_owed();
    }

    /// Whether a permission is somebody's who spoke before.
    fn was_heard(&self, duty: &Duty) -> bool {
        let (State::Owned(room), Duty::Permit { user, peer }) = (&self.state, duty) else { return false };
        let who = MediaIdentity { user: user.clone(), peer: Some(peer.clone()) };
        room.cell().media.get(&who).is_some_and(|heard| heard.spoke)
    }

    fn try_external_again_if_owed(&mut self) {
        let State::Owned(room) = &self.state else { return };
        if !room.cell().duties.is_empty() {
            self.try_external_again();
        }
    }
}

pub(super) fn again() -> Instant {
    crate::clock::instant() + AGAIN + random_pause(AGAIN)
}
