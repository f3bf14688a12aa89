//! Random lives of a room, of which stretches are lost: what is told of them adds up.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use room_cell::{Actor, Cell, Command, GoneReason, MediaFact, MicSession, Role, Timer};

use super::room::{Room, create, join, json};
use crate::events::{self, BusinessEvent};
use crate::state::RoomState;

const CASES: u32 = 400;
const STEPS: usize = 120;
const USERS: [&str; 3] = ["ann", "bob", "cat"];

/// One throw of the dice for each choice that a step has.
type Throw = [u8; 6];

#[test]
fn i_25_every_user_joined_and_mic_started_has_exactly_one_ending() {
    let config =
        Config { cases: CASES, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[25; 32]));
    let lives = (any::<bool>(), prop::collection::vec(any::<Throw>(), STEPS));
    let mut totals = [0; 3];
    let counted = std::cell::RefCell::new(&mut totals);
    let outcome = runner.run(&lives, |(external, steps)| {
        let mut life = Life::new(external);
        let lived = steps.into_iter().try_for_each(|throw| life.step(throw));
        lived.and_then(|()| life.end()).map_err(TestCaseError::fail)?;
        let mut totals = counted.borrow_mut();
        for (total, count) in totals.iter_mut().zip(life.counts) {
            *total += count;
        }
        Ok(())
    });
    outcome.unwrap_or_else(|problem| panic!("{problem}"));
    assert!(totals.iter().all(|total| *total > 1_000), "stays, sessions, recovered: {totals:?}");
}

struct Life {
    room: Room,
    /// The cell up to which the log reaches, where it has a hole.
    lost: Option<Cell>,
    present: BTreeSet<String>,
    speaking: BTreeSet<(String, String)>,
    is_open: bool,
    sessions: u32,
    /// Stays, mic sessions, and what was told though nobody logged it.
    counts: [usize; 3],
}

impl Life {
    fn new(external: bool) -> Self {
        let mut room = Room::nowhere();
        room.rules.external_media = external;
        Self {
            room,
            lost: None,
            present: BTreeSet::new(),
            speaking: BTreeSet::new(),
            is_open: false,
            sessions: 0,
            counts: [0; 3],
        }
    }

    fn step(&mut self, throw: Throw) -> Result<(), String> {
        self.room.later(u64::from(throw[5]) * 40);
        match throw[0] {
            0..6 if self.lost.is_none() => self.lost = Some(self.room.cell.clone()),
            0..40 => self.recover()?,
            _ => {}
        }
        for timer in self.room.cell.due(room_cell::Millis(self.room.now)) {
            self.put(&Actor::Owner, Command::Due(timer))?;
        }
        let (actor, command) = self.choose(throw);
        self.put(&actor, command)
    }

    fn end(&mut self) -> Result<(), String> {
        self.recover()?;
        let heard = self.room.cell.seats.values().filter_map(|seat| seat.sitter.as_ref());
        let heard = heard.filter(|it| it.heard_by(room_cell::Millis(self.room.now)).is_some());
        let speaking: BTreeSet<_> = heard.map(|it| (it.session.to_string(), it.user.to_string())).collect();
        let present: BTreeSet<_> = self.room.cell.users.keys().map(ToString::to_string).collect();
        if (&present, &speaking) != (&self.present, &self.speaking) {
            return Err(format!("{present:?} {speaking:?}, told {:?} {:?}", self.present, self.speaking));
        }
        Ok(())
    }

    fn put(&mut self, actor: &Actor, command: Command) -> Result<(), String> {
        let told = self.room.tries(actor, command).unwrap_or_default();
        if self.lost.is_some() { Ok(()) } else { self.hear(&told) }
    }

    fn recover(&mut self) -> Result<(), String> {
        let Some(before) = self.lost.take() else { return Ok(()) };
        let state = |cell: &Cell| RoomState { cell: cell.clone(), ..RoomState::default() };
        let (before, after) = (state(&before), state(&self.room.cell));
        let told = events::between(&self.room.state_entry(), &before, &after);
        self.counts[2] += told.len();
        self.hear(&told)
    }

    /// A receiver that keeps account.
    fn hear(&mut self, told: &[BusinessEvent]) -> Result<(), String> {
        for event in told {
            let data = &json(event)["data"];
            let text = |field: &str| data[field].as_str().unwrap_or_default().to_owned();
            let holds = match event.kind {
                "room.created" | "room.reopened" => !std::mem::replace(&mut self.is_open, true),
                "room.closed" => {
                    std::mem::replace(&mut self.is_open, false)
                        && self.present.is_empty()
                        && self.speaking.is_empty()
                }
                "user.joined" => {
                    self.counts[0] += 1;
                    self.present.insert(text("user"))
                }
                "user.left" => self.present.remove(&text("user")),
                "mic.started" => {
                    self.counts[1] += 1;
                    self.present.contains(&text("user"))
                        && self.speaking.insert((text("session"), text("user")))
                }
                "mic.ended" => {
                    self.present.contains(&text("user"))
                        && self.speaking.remove(&(text("session"), text("user")))
                }
                _ => true,
            };
            if !holds {
                return Err(format!("{} among {told:?}", event.payload));
            }
        }
        Ok(())
    }

    fn choose(&mut self, throw: Throw) -> (Actor, Command) {
        let [_, what, who, a, b, _] = throw;
        let user = USERS[usize::from(who) % USERS.len()];
        let is_present = self.room.cell.users.contains_key(user);
        match self.room.cell.status.word() {
            "absent" => return (Actor::Backend, create()),
            "creating" if a < 64 => return (Actor::Owner, Command::CreateFailed),
            "creating" => return (Actor::Owner, Command::Created),
            "closing" => return (Actor::Owner, Command::Ended),
            "closed" => {
                let reopen = Command::Reopen { seats: None, capacity: None, auto_close: None };
                return (Actor::Backend, reopen);
            }
            _ => {}
        }
        if what < 10 {
            return (Actor::Owner, self.rare(a, b));
        }
        if !is_present || what < 30 {
            return self.joins(user);
        }
        let member = self.room.member(user);
        let command = match what {
            30..50 => Command::Leave,
            50..60 => {
                Command::Kick { user: USERS[usize::from(a) % 3].into(), reason: None, ban_seconds: Some(1) }
            }
            60..70 => Command::MicMuteAll { muted: a < 128, except: Vec::new() },
            70..130 => {
                self.sessions += 1;
                Command::MicUp { user: None, seat: None, session: self.session(self.sessions) }
            }
            130..170 => {
                Command::MicConfirm { session: self.session(self.sessions.saturating_sub(u32::from(b % 3))) }
            }
            170..190 => Command::MicDown { user: None, session: None },
            190..215 => Command::MicMove { user: None, seat: u16::from(a % 4) + 1, flowing: b < 128 },
            215..225 => Command::CallInvite { call: format!("c{a}").as_str().into(), to: vec!["cat".into()] },
            225..230 => Command::SetSeats { count: u16::from(a % 4) + 1 },
            _ => return (Actor::Media, self.report(user, a)),
        };
        (member, command)
    }

    fn session(&self, number: u32) -> MicSession {
        format!("mic-{number}").as_str().into()
    }

    fn joins(&self, user: &str) -> (Actor, Command) {
        let actor = Actor::User { user: user.into(), max_role: Role::Host, peer: None };
        (actor, join(&format!("{user}-{}", self.room.now), Role::Host))
    }

    fn report(&self, user: &str, throw: u8) -> Command {
        let what = match throw {
            0..150 => MediaFact::AudioStarted,
            150..220 => MediaFact::AudioStopped,
            _ => MediaFact::RoomExited,
        };
        Command::Media(room_cell::MediaReport {
            what,
            who: Some(room_cell::MediaIdentity { user: user.into(), peer: None }),
            router: None,
            incarnation: None,
            sequence: None,
            at: room_cell::Millis(self.room.now),
            resolution_ms: 0,
        })
    }

    fn rare(&self, a: u8, b: u8) -> Command {
        let peers = || self.room.cell.peers.keys().take(usize::from(b % 3)).cloned().collect();
        match a {
            0..60 => Command::RouterMade {
                node: "one".into(),
                name: "router".into(),
                generation: self.room.cell.router_generation + 1,
            },
            60..120 => Command::Gone { peers: peers(), reason: GoneReason::InstanceLost },
            120..160 => Command::Close { reason: None },
            160..200 => Command::Shift { by_ms: u64::from(b) },
            _ => Command::Due(Timer::Publish { session: self.session(self.sessions), flowing: b < 128 }),
        }
    }
}
