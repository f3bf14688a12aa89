//! The media servers that an instance knows: how each of them is, and which one gets the next router.
//!
//! That a server failed and that it did not answer in time are two things. One that cannot be reached, or says that
//! it cannot work, has lost its rooms or is about to: they move. One that is silent may be slow, or hang; its rooms
//! stay, because moving them cuts off people who still hear each other, and only a long silence counts as a failure.
//! Neither gets new rooms until it has been well for a while, and for longer each time that it fails again.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Guard, Load, MediaError, MediaServer};

/// Checks in a row that must fail, or be late, before anything follows.
const IN_A_ROW: u32 = 2;
/// Failures are remembered for so long, each doubling how long a server must be well.
const FLAPPING: Duration = Duration::from_secs(600);
/// The longest that a server must be well is so many times the shortest.
const MOST_DOUBLINGS: u32 = 4;

/// How a media server is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    /// Between two checks.
    pub every: Duration,
    /// One that failed must have been well for so long before it gets new rooms.
    pub stable: Duration,
    /// Silence for so long is a failure.
    pub give_up: Duration,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(2),
            stable: Duration::from_secs(10),
            give_up: Duration::from_secs(30),
        }
    }
}

/// How a media server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeState {
    /// It works.
    Healthy,
    /// It works again, but not for long enough yet, or has not been asked yet.
    Recovering,
    /// It does not answer in time. What it has stays there.
    Unresponsive,
    /// It cannot be reached, or cannot work: what it had is lost.
    Failed,
}

impl NodeState {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Recovering => "recovering",
            Self::Unresponsive => "unresponsive",
            Self::Failed => "failed",
        }
    }
}

/// One media server.
pub struct Node {
    /// Its name in the configuration.
    pub name: Arc<str>,
    server: Guard,
    weight: u32,
    state: watch::Sender<NodeState>,
    participants: AtomicU64,
    reserved: AtomicU64,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({}, {})", self.name, self.state().word())
    }
}

impl Node {
    /// A server behind its guard. Of two equally loaded ones, one of twice the `weight` (at least 1) gets twice the
    /// rooms.
    pub fn new(name: impl Into<Arc<str>>, server: Guard, weight: u32) -> Self {
        Self {
            name: name.into(),
            server,
            weight: weight.max(1),
            state: watch::Sender::new(NodeState::Recovering),
            participants: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
        }
    }

    /// The server.
    pub fn server(&self) -> &dyn MediaServer {
        &self.server
    }

    /// How it is.
    pub fn state(&self) -> NodeState {
        *self.state.borrow()
    }

    /// What it has to do for its weight: what it last reported, and what was given to it since.
    fn burden(&self) -> f64 {
        let all = self.participants.load(Ordering::Relaxed) + self.reserved.load(Ordering::Relaxed);
        all as f64 / f64::from(self.weight)
    }

    fn reports(&self, load: Load) {
        if let Some(participants) = load.participants {
            self.participants.store(participants, Ordering::Relaxed);
            self.reserved.store(0, Ordering::Relaxed);
        }
    }
}

/// Every media server of an instance.
#[derive(Debug, Default)]
pub struct Nodes {
    nodes: Vec<Arc<Node>>,
    changed: watch::Sender<u64>,
    turn: Mutex<usize>,
}

impl Nodes {
    /// These servers.
    pub fn new(nodes: Vec<Arc<Node>>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// The one of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| *node.name == *name)
    }

    /// Moves with every change of a server's state.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The least loaded healthy server of these, for a new router; where none is, one that recovers. `None`: there is
    /// none that could take it.
    pub fn choose(&self, among: &[Arc<str>]) -> Option<Arc<Node>> {
        // Those that are equal take turns.
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = turn.wrapping_add(1);
        let candidates: Vec<&Arc<Node>> =
            self.nodes.iter().filter(|node| among.contains(&node.name)).collect();
        let first = *turn % candidates.len().max(1);
        let usable = candidates.iter().cycle().skip(first).take(candidates.len());
        let usable = usable.map(|node| (node.state(), node));
        let usable = usable.filter(|(state, _)| *state <= NodeState::Recovering);
        let chosen = usable
            .min_by(|(a, node), (b, other)| a.cmp(b).then_with(|| node.burden().total_cmp(&other.burden())));
        let (_, node) = chosen?;
        node.reserved.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(node))
    }

    /// Checks a server until told to end. `spread` is a random part of [`Checks::every`] to begin after, so that many
    /// instances do not ask at once.
    pub async fn watch(&self, node: &Node, checks: Checks, spread: Duration, ending: CancellationToken) {
        let mut record = Record::new(checks);
        let mut pause = spread;
        loop {
            tokio::select! {
                () = ending.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = checks.every;
            let said = node.server.health().await;
            if let Ok(load) = said {
                node.reports(load);
            }
            let now = record.hear(&said, Instant::now());
            let before = node.state.send_replace(now);
            if before != now {
                let (node, why) = (&node.name, said.err().map(tracing::field::display));
                tracing::warn!(%node, before = before.word(), now = now.word(), why, "media server");
                self.changed.send_modify(|count| *count += 1);
            }
        }
    }
}

/// What the checks of one server have shown so far.
#[derive(Debug)]
struct Record {
    checks: Checks,
    state: NodeState,
    /// It answered once.
    known: bool,
    failed: u32,
    late: u32,
    late_since: Option<Instant>,
    well_since: Option<Instant>,
    fell: Vec<Instant>,
}

impl Record {
    const fn new(checks: Checks) -> Self {
        Self {
            checks,
            state: NodeState::Recovering,
            known: false,
            failed: 0,
            late: 0,
            late_since: None,
            well_since: None,
            fell: Vec::new(),
        }
    }

    fn hear<T>(&mut self, said: &Result<T, MediaError>, now: Instant) -> NodeState {
        match said {
            Ok(_) => self.well(now),
            Err(MediaError::Timeout { .. }) => self.silent(now),
            Err(_) => self.unwell(now),
        }
        self.state
    }

    fn well(&mut self, now: Instant) {
        (self.failed, self.late, self.late_since) = (0, 0, None);
        let since = *self.well_since.get_or_insert(now);
        let first = !std::mem::replace(&mut self.known, true);
        if self.state == NodeState::Healthy {
            return;
        }
        let is_stable = now.duration_since(since) >= self.must_be_well(now);
        self.state = if first || is_stable { NodeState::Healthy } else { NodeState::Recovering };
    }

    fn silent(&mut self, now: Instant) {
        (self.well_since, self.failed) = (None, 0);
        self.late += 1;
        let since = *self.late_since.get_or_insert(now);
        if now.duration_since(since) >= self.checks.give_up {
            self.fall(now);
        } else if self.late >= IN_A_ROW && self.state != NodeState::Failed {
            self.state = NodeState::Unresponsive;
        }
    }

    fn unwell(&mut self, now: Instant) {
        (self.well_since, self.late, self.late_since) = (None, 0, None);
        self.failed += 1;
        if self.failed >= IN_A_ROW {
            self.fall(now);
        }
    }

    fn fall(&mut self, now: Instant) {
        if self.state != NodeState::Failed {
            self.state = NodeState::Failed;
            self.fell.push(now);
        }
        // What never answered need not prove that it is stable when it does.
        self.fell.retain(|at| self.known && now.duration_since(*at) < FLAPPING);
    }

    fn must_be_well(&self, now: Instant) -> Duration {
        let lately = self.fell.iter().filter(|at| now.duration_since(**at) < FLAPPING).count();
        let doublings = u32::try_from(lately).unwrap_or(u32::MAX).saturating_sub(1).min(MOST_DOUBLINGS);
        self.checks.stable * 2_u32.pow(doublings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: Result<(), MediaError> = Ok(());
    const LATE: Result<(), MediaError> = Err(MediaError::Timeout { after_ms: 1 });

    fn failed() -> Result<(), MediaError> {
        Err(MediaError::unavailable("cannot connect"))
    }

    struct Life {
        record: Record,
        now: Instant,
    }

    impl Life {
        fn new() -> Self {
            Self { record: Record::new(Checks::default()), now: Instant::now() }
        }

        /// The state after so many checks, two seconds apart, that all said this.
        fn after(&mut self, checks: u32, said: &Result<(), MediaError>) -> NodeState {
            for _ in 0..checks {
                self.now += Duration::from_secs(2);
                self.record.hear(said, self.now);
            }
            self.record.state
        }
    }

    #[test]
    fn a_server_is_used_as_soon_as_it_answers_for_the_first_time() {
        let mut life = Life::new();
        assert_eq!(life.record.state, NodeState::Recovering);
        assert_eq!(life.after(1, &OK), NodeState::Healthy);
        let mut life = Life::new();
        assert_eq!(life.after(3, &failed()), NodeState::Failed);
        assert_eq!(life.after(1, &OK), NodeState::Healthy, "it only came later");
    }

    #[test]
    fn one_bad_check_is_nothing_and_two_are_a_failure() {
        let mut life = Life::new();
        life.after(1, &OK);
        for _ in 0..20 {
            assert_eq!(life.after(1, &failed()), NodeState::Healthy);
            assert_eq!(life.after(1, &OK), NodeState::Healthy);
        }
        assert_eq!(life.after(2, &failed()), NodeState::Failed);
    }

    #[test]
    fn silence_is_no_failure_until_it_lasts() {
        let mut life = Life::new();
        life.after(1, &OK);
        assert_eq!(life.after(1, &LATE), NodeState::Healthy);
        assert_eq!(life.after(1, &LATE), NodeState::Unresponsive);
        assert_eq!(life.after(13, &LATE), NodeState::Unresponsive);
        assert_eq!(life.after(1, &LATE), NodeState::Failed, "30 s");
    }

    #[test]
    fn what_failed_must_be_well_for_longer_each_time() {
        let mut life = Life::new();
        life.after(1, &OK);
        for checks in [5, 10, 20, 40, 80, 80] {
            assert_eq!(life.after(2, &failed()), NodeState::Failed);
            assert_eq!(life.after(checks, &OK), NodeState::Recovering, "{checks}");
            assert_eq!(life.after(1, &OK), NodeState::Healthy, "{checks}");
        }
        // Well for long enough, it is forgotten.
        life.after(301, &OK);
        life.after(2, &failed());
        assert_eq!(life.after(6, &OK), NodeState::Healthy);
    }

    #[test]
    fn a_server_that_flaps_while_it_recovers_begins_anew() {
        let mut life = Life::new();
        life.after(1, &OK);
        life.after(2, &failed());
        for _ in 0..10 {
            assert_eq!(life.after(4, &OK), NodeState::Recovering);
            life.after(1, &failed());
        }
        assert_eq!(life.after(6, &OK), NodeState::Healthy);
    }
}
