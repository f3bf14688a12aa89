//! Long random lives of a small room: four users with two devices each, four seats, a media server whose
//! reports come late, twice and out of order, and a clock that goes back a little now and then.
//!
//! `DAIS_NIGHTLY=1` runs fifty times as many; `DAIS_SEED` (a number) gives other ones.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use room_cell::{
    Actor, CallId, Cell, Command, Devices, GoneReason, Limits, MediaFact, MediaIdentity, MediaReport,
    MicSession, Millis, PeerId, Role, Rules, Timer, UserId, decide,
};
use serde_json::{Map, json};
use std::sync::Arc;

use crate::checks::Checks;
use crate::coverage::{self, Coverage};
use crate::room::{START, create, joining, rules};

const STEPS: usize = 200;
const CASES: u32 = 2_000;
const NIGHTLY: u32 = 100_000;
const USERS: [&str; 4] = ["ann", "bob", "cat", "dan"];

/// One throw of the dice for each choice that a step has.
type Throw = [u8; 8];

#[test]
fn i_7_to_12_19_21_25_hold_in_every_life_of_a_room() {
    let nightly = std::env::var_os("DAIS_NIGHTLY").is_some();
    let seed: u64 = std::env::var("DAIS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_default();
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: if nightly { NIGHTLY } else { CASES },
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let covered = std::cell::RefCell::new(Coverage::default());
    let lives = (any::<Throw>(), prop::collection::vec(any::<Throw>(), STEPS));
    let outcome = runner.run(&lives, |(world, steps)| {
        let mut life = Life::new(world);
        let lived = steps.into_iter().try_for_each(|throw| life.step(throw));
        covered.borrow_mut().add(&life.covered);
        lived.map_err(|problem| TestCaseError::fail(format!("{problem}\n{}", life.log.join("\n"))))
    });
    if let Err(TestError::Fail(why, _)) = outcome {
        panic!("seed {seed}: {why}");
    }
    let covered = covered.into_inner();
    assert_eq!(covered.events.len(), coverage::EVENTS, "events: {:?}", covered.events);
    assert_eq!(covered.refusals.len(), coverage::REFUSALS, "refusals: {:?}", covered.refusals);
}

struct Life {
    cell: Cell,
    rules: Rules,
    now: Millis,
    checks: Checks,
    covered: Coverage,
    /// What was done, for whoever reads a failure.
    log: Vec<String>,
    /// Every connection there ever was, by user.
    peers: [Vec<PeerId>; 4],
    sessions: Vec<MicSession>,
    calls: Vec<CallId>,
    reports: Vec<MediaReport>,
    incarnation: u32,
    sequence: u64,
}

impl Life {
    fn new(world: Throw) -> Self {
        let devices = [Devices::Allow, Devices::Replace, Devices::Reject, Devices::Allow];
        Self {
            cell: Cell::default(),
            rules: Rules {
                devices: devices[usize::from(world[0]) % 4],
                external_media: world[1].is_multiple_of(2),
                live_list: world[2].is_multiple_of(2),
                ..rules()
            },
            now: Millis(START),
            checks: Checks::default(),
            covered: Coverage::default(),
            log: Vec::new(),
            peers: Default::default(),
            sessions: Vec::new(),
            calls: Vec::new(),
            reports: Vec::new(),
            incarnation: 0,
            sequence: 0,
        }
    }

    fn step(&mut self, throw: Throw) -> Result<(), String> {
        self.time_passes(throw[7]);
        if throw[6].is_multiple_of(4) {
            for timer in self.cell.due(self.now) {
                let timer = match timer {
                    Timer::Publish { session, .. } => {
                        Timer::Publish { session, flowing: throw[5].is_multiple_of(3) }
                    }
                    other => other,
                };
                self.put(&Actor::Owner, Command::Due(timer))?;
            }
        }
        let (actor, command) = self.choose(throw);
        self.put(&actor, command)
    }

    /// Mostly little; sometimes long enough for a deadline; now and then a little backwards.
    fn time_passes(&mut self, throw: u8) {
        self.now = match throw {
            0..16 => Millis(self.now.0 - u64::from(throw) * 40),
            240.. => self.now.after(u64::from(throw - 239) * 4_000),
            _ => self.now.after(u64::from(throw) * 4),
        };
    }

    fn put(&mut self, actor: &Actor, command: Command) -> Result<(), String> {
        self.log.push(format!("{} {actor:?} {command:?}", self.now.0.saturating_sub(START)));
        let order = command.validate(actor.clone(), &Limits::default()).map_err(|why| why.to_string())?;
        let before = self.cell.clone();
        let decided = decide(&before, &order, &self.rules, self.now);
        self.covered.note(&decided);
        match &decided {
            Ok(events) => {
                self.log.push(format!("    {events:?}"));
                self.cell.advance(events);
            }
            Err(refusal) => self.log.push(format!("    {refusal:?}")),
        }
        self.checks.after(&before, &order, decided.as_deref().ok(), &self.cell, self.now, &self.rules)
    }

    fn actor(&self, who: u8, how: u8) -> Actor {
        let index = usize::from(who % 4);
        let token = if index < 2 { Role::Host } else { Role::Guest };
        let other = if index < 2 { Role::Guest } else { Role::Host };
        let max_role = if how % 16 == 1 { other } else { token };
        let user = UserId::from(USERS[index]);
        let present = self.cell.users.get(&user).and_then(|presence| presence.newest());
        let peer = match how {
            0..12 => None,
            12..40 => self.peers[index].get(usize::from(how) % self.peers[index].len().max(1)).cloned(),
            _ => present.map(|peer| peer.peer.clone()),
        };
        match how {
            200..206 => Actor::Backend,
            206..208 => Actor::Media,
            208..210 => Actor::Owner,
            _ => Actor::User { user, max_role, peer },
        }
    }

    fn choose(&mut self, throw: Throw) -> (Actor, Command) {
        let [what, who, whom, a, b, c, how, _] = throw;
        let actor = self.actor(who, how);
        let user = UserId::from(USERS[usize::from(whom % 4)]);
        let named = (b.is_multiple_of(2)).then(|| user.clone());
        let seat = u16::from(a % 6) + 1;
        let some_seat = (c.is_multiple_of(2)).then_some(seat);
        let flag = c % 4 < 2;
        let command = match what {
            0..6 => self.life(throw),
            6..46 => self.join(who, throw),
            46..50 => Command::Leave,
            50..56 => self.gone(throw),
            56..62 => {
                Command::UpdatePeer { attributes: patch(a, b), max_bytes: if c < 20 { 8 } else { 4096 } }
            }
            62..66 => Command::TokenRenewed,
            66..72 => Command::Kick {
                user,
                reason: flag.then(|| Arc::from("noise")),
                ban_seconds: (c % 3 > 0).then_some(u64::from(a % 32) + 1),
            },
            72..80 => Command::Unban { user },
            80..88 => Command::SetRole { user, role: if flag { Role::Host } else { Role::Guest } },
            88..92 => Command::LockDoor { locked: c < 64 },
            92..96 => Command::SeatLock { seat, locked: c < 128, force: b < 128 },
            96..132 => {
                Command::MicUp { user: named.filter(|_| b < 64), seat: some_seat, session: self.session() }
            }
            132..140 => Command::MicDown { user: named, session: flag.then(|| self.some_session(a)) },
            140..150 => Command::MicMove { user: named.filter(|_| b < 64), seat, flowing: b < 64 },
            150..160 => Command::MicConfirm { session: self.some_session(a) },
            160..164 => Command::MicMute { user: named, muted: flag },
            164..166 => Command::MicMuteAll { muted: flag, except: vec![user] },
            166..170 => Command::SetSeats { count: u16::from(a % 11).div_ceil(2) },
            170..177 => Command::MicRequest { seat: some_seat, withdraw: b < 64 },
            177..183 => Command::MicInvite { user, seat: some_seat },
            183..191 => Command::MicRespond { user: named, accept: c < 160, session: self.session() },
            191..206 => self.call(throw),
            206..244 => return (Actor::Media, Command::Media(self.report(throw))),
            244..248 => return (Actor::Owner, self.timer(throw)),
            248..254 => return (Actor::Owner, self.router(throw)),
            _ => return (Actor::Owner, Command::Shift { by_ms: u64::from(a) * 50 }),
        };
        let command_of_owner = matches!(
            command,
            Command::Created | Command::CreateFailed | Command::Ended | Command::Gone { .. }
        );
        (if command_of_owner && how > 8 { Actor::Owner } else { actor }, command)
    }

    fn life(&self, throw: Throw) -> Command {
        let [what, _, _, a, b, c, ..] = throw;
        match (what, self.cell.status.word()) {
            (0, _) => Command::Close { reason: (c < 128).then(|| Arc::from("over")) },
            (1, _) if a < 128 => Command::CreateFailed,
            (1, _) => Command::Created,
            (2, "active") => create(4),
            (2, _) => Command::Ended,
            (_, "absent") => {
                Command::Create { seats: 4, capacity: (a < 64).then_some(2), auto_close: b < 128 }
            }
            (_, "creating") => Command::Created,
            (_, "closing") => Command::Ended,
            _ => Command::Reopen {
                seats: (a < 64).then_some(u16::from(a % 5)),
                capacity: (b < 64).then_some(3),
                auto_close: (c < 64).then_some(c < 32),
            },
        }
    }

    fn join(&mut self, who: u8, throw: Throw) -> Command {
        let [_, _, _, a, b, c, ..] = throw;
        match self.cell.status.word() {
            "absent" if a > 32 => return Command::Create { seats: 4, capacity: None, auto_close: b < 128 },
            "creating" if a > 64 => return Command::Created,
            "closing" if a > 64 => return Command::Ended,
            "closed" if a > 64 => return Command::Reopen { seats: None, capacity: None, auto_close: None },
            _ => {}
        }
        let known = &mut self.peers[usize::from(who % 4)];
        let again = known.get(usize::from(a)).cloned();
        let peer = again
            .unwrap_or_else(|| format!("{}{}", USERS[usize::from(who % 4)], known.len()).as_str().into());
        let mut joining = joining(peer.as_str(), if c.is_multiple_of(3) { Role::Host } else { Role::Guest });
        joining.device = (b > 100).then(|| Arc::from(format!("device {}", b % 2)));
        let earlier = known.get(usize::from(c) % known.len().max(1));
        if b % 8 == 7 {
            joining.resumes = earlier.map(|peer| Arc::from(format!("digest of {peer}")));
        }
        if b % 8 == 6 {
            joining.away.extend(earlier.cloned());
        }
        if !known.contains(&joining.peer) {
            known.push(joining.peer.clone());
        }
        Command::Join(joining)
    }

    fn gone(&self, throw: Throw) -> Command {
        let [_, _, whom, a, b, ..] = throw;
        let known = &self.peers[usize::from(whom % 4)];
        let first = usize::from(a) % known.len().max(1);
        let peers = known.iter().skip(first).take(usize::from(b % 3) + 1).cloned().collect();
        let reason = if a < 128 { GoneReason::StaleLeft } else { GoneReason::InstanceLost };
        Command::Gone { peers, reason }
    }

    fn session(&mut self) -> MicSession {
        let session = MicSession::from(format!("mic {}", self.sessions.len()).as_str());
        self.sessions.push(session.clone());
        session
    }

    /// One that stands, or one of old.
    fn some_session(&self, throw: u8) -> MicSession {
        let mut standing = self.cell.seats.values().filter_map(|seat| seat.sitter.as_ref());
        let of_old = self.sessions.get(usize::from(throw) % self.sessions.len().max(1)).cloned();
        let chosen = standing.nth(usize::from(throw) % 3).map(|sitter| sitter.session.clone());
        chosen.filter(|_| throw < 200).or(of_old).unwrap_or_else(|| "mic".into())
    }

    fn call(&mut self, throw: Throw) -> Command {
        let [_, _, _, a, b, c, ..] = throw;
        let call = self.calls.get(usize::from(b) % self.calls.len().max(1)).filter(|_| b < 64).cloned();
        match c % 8 {
            0..3 => {
                let call = CallId::from(format!("call {}", self.calls.len()).as_str());
                self.calls.push(call.clone());
                let to = USERS.iter().enumerate().filter(|(index, _)| (a >> index) & 1 == 1);
                let mut to: Vec<UserId> = to.map(|(_, user)| UserId::from(*user)).collect();
                if to.is_empty() {
                    to.push("dan".into());
                }
                Command::CallInvite { call, to }
            }
            3 | 4 => Command::CallAccept { call },
            5 => Command::CallHangup { call },
            _ => Command::CallDecline { call },
        }
    }

    fn timer(&self, throw: Throw) -> Command {
        let [_, _, _, a, b, ..] = throw;
        let call = self.calls.get(usize::from(a) % self.calls.len().max(1)).cloned();
        Command::Due(match (a % 4, call) {
            (0, _) => Timer::Idle,
            (1, _) => Timer::Transition,
            (2, Some(call)) => Timer::Ring { call },
            _ => Timer::Publish { session: self.some_session(a), flowing: b < 128 },
        })
    }

    fn router(&self, throw: Throw) -> Command {
        let [_, _, _, a, b, ..] = throw;
        let generation = self.cell.router_generation + u64::from(b % 3);
        match a % 8 {
            // Mostly there is one.
            0..4 if self.cell.router.is_none() || a < 64 => Command::RouterMade {
                node: ["one", "two"][usize::from(b % 2)].into(),
                name: format!("router {generation}").into(),
                generation,
            },
            4 => Command::RouterDropped,
            _ => {
                let some = self.cell.duties.iter().skip(usize::from(b % 2));
                let done = some.map(|(duty, owed)| (duty.clone(), owed.version - u64::from(b % 5 == 0)));
                Command::DutiesDone { done: done.collect() }
            }
        }
    }

    /// A new report, which may come to pass later, or one of the earlier ones again.
    fn report(&mut self, throw: Throw) -> MediaReport {
        let [_, who, whom, a, b, c, ..] = throw;
        let chosen = usize::from(b) % self.reports.len().max(1);
        if c < 90
            && let Some(report) = self.reports.get(chosen)
        {
            return report.clone();
        }
        let user = UserId::from(USERS[usize::from(who % 4)]);
        let what = match a % 9 {
            0 | 1 => MediaFact::ParticipantJoined,
            2..5 => MediaFact::AudioStarted,
            5 | 6 => MediaFact::AudioStopped,
            7 => MediaFact::RoomExited,
            _ if a < 32 => MediaFact::RoomFinished,
            _ => MediaFact::AudioStarted,
        };
        if what == MediaFact::ParticipantJoined {
            self.incarnation += 1;
        }
        self.sequence += 1;
        let known = &self.peers[usize::from(who % 4)];
        let peer = known.last().filter(|_| whom % 8 == 3).cloned();
        let exact = !whom.is_multiple_of(3);
        let at = (self.now.0 + u64::from(b) * 6).saturating_sub(1_500);
        let report = MediaReport {
            what,
            who: (a != 7).then_some(MediaIdentity { user, peer }),
            router: (whom % 16 == 5).then(|| u64::from(b % 4)),
            incarnation: (whom % 4 < 2).then(|| Arc::from(format!("stay {}", self.incarnation))),
            sequence: (whom % 16 < 4).then_some(self.sequence),
            at: Millis(if exact { at } else { at / 1000 * 1000 }),
            resolution_ms: if exact { 0 } else { 1000 },
        };
        self.reports.push(report.clone());
        // Something else comes first, and this one later.
        if c > 200
            && let Some(report) = self.reports.get(chosen)
        {
            return report.clone();
        }
        report
    }
}

fn patch(a: u8, b: u8) -> Map<String, serde_json::Value> {
    let value = match b % 4 {
        0 => json!(null),
        1 => json!({ "inner": a % 3, "gone": null }),
        2 => json!("text"),
        _ => json!(a % 4),
    };
    let name = ["mood", "hand", "badge"][usize::from(a % 3)];
    Map::from_iter([(name.to_owned(), value)])
}
