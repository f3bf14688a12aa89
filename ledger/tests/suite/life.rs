//! Random lives of a room, as its lane has them.

use key_prefix::{AppCode, RoomId, RoomKey};
use ledger::{Change, Entry, KeptAnswer, RoomState};
use redis_scripts::{CellVersion, FenceToken, RedisMillis, SettingsVersion};
use room_cell::{
    Actor, Command, Devices, Joining, Limits, MicSession, Millis, PeerId, Role, Rules, UserId, decide, patch,
};
use serde_json::{Map, Value, json};

pub(crate) const START: u64 = 1_700_000_000_000;
const USERS: [&str; 3] = ["ann", "bob", "cat 🐈"];

/// The app of every room.
pub(crate) const APP: &str = "school";

pub(crate) fn room(id: &str) -> RoomKey {
    RoomKey::new(AppCode::new(APP).expect("a code"), RoomId::new(id).expect("an id"))
}

/// What one room came to, and everything that it committed on the way.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) room: RoomKey,
    pub(crate) state: RoomState,
    pub(crate) sv: u64,
    pub(crate) token: u64,
    pub(crate) now: u64,
    pub(crate) entries: Vec<Entry>,
    dice: u64,
    sessions: u64,
}

impl Life {
    pub(crate) fn new(id: &str, seed: u64) -> Self {
        Self {
            room: room(id),
            state: RoomState::default(),
            sv: 0,
            token: 1,
            now: START,
            entries: Vec::new(),
            dice: seed,
            sessions: 0,
        }
    }

    /// A room that was made, with its settings.
    pub(crate) fn open(id: &str, seed: u64) -> Self {
        let mut life = Self::new(id, seed);
        life.settings(&json!({ "custom": {}, "noiseReduction": "off" }));
        assert!(life.does(&Actor::Backend, Command::Create { seats: 4, capacity: None, auto_close: false }));
        life
    }

    pub(crate) fn cv(&self) -> u64 {
        self.state.cell.version
    }

    /// Splitmix64.
    fn throw(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.dice ^ (self.dice >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    /// Lives until it has committed so many entries more.
    pub(crate) fn lives(&mut self, entries: usize) {
        let enough = self.entries.len() + entries;
        while self.entries.len() < enough {
            self.step();
        }
    }

    pub(crate) fn step(&mut self) {
        self.now += self.throw(2_000);
        let who = usize::try_from(self.throw(3)).expect("small");
        let whom = UserId::from(USERS[usize::try_from(self.throw(3)).expect("small")]);
        let actor = self.actor(who);
        let command = match self.throw(20) {
            0..5 => self.join(who),
            5 => Command::Leave,
            6..9 => self.up(),
            9 => Command::MicDown { user: None, session: None },
            10 => Command::Kick { user: whom, reason: Some("noise".into()), ban_seconds: Some(60) },
            11 => Command::Unban { user: whom },
            12 => Command::SetRole { user: whom, role: Role::Host },
            13 => Command::MicRequest { seat: None, withdraw: false },
            14 => Command::SeatLock { seat: 2, locked: self.throw(2) == 0, force: false },
            15 if self.throw(4) == 0 => Command::Close { reason: Some("over".into()) },
            15 | 16 => Command::SetSeats { count: 2 + u16::try_from(self.throw(4)).expect("small") },
            17 => {
                let value = self.throw(5);
                return self.settings(
                    &json!({ "custom": { "level": value, "gone": null }, "noiseReduction": "off" }),
                );
            }
            _ => {
                let value = if self.throw(4) == 0 { Value::Null } else { json!({ "score": self.throw(9) }) };
                return self.guests(&Map::from_iter([(USERS[who].to_owned(), value)]));
            }
        };
        if self.state.cell.status.word() == "closed" {
            self.does(&Actor::Backend, Command::Reopen { seats: None, capacity: None, auto_close: None });
            return;
        }
        self.does(&actor, command);
    }

    fn actor(&self, who: usize) -> Actor {
        let user = UserId::from(USERS[who]);
        let peer = self.state.cell.users.get(&user).and_then(|it| it.newest()).map(|peer| peer.peer.clone());
        Actor::User { user, max_role: Role::Host, peer }
    }

    fn join(&mut self, who: usize) -> Command {
        self.sessions += 1;
        let peer = PeerId::from(format!("{who}-{}", self.sessions).as_str());
        Command::Join(Box::new(Joining {
            resume: format!("digest of {peer}").into(),
            peer,
            role: Role::Host,
            name: Some("Ann-Sophie".into()),
            avatar: None,
            attributes: Map::new(),
            device: None,
            media: None,
            resumes: None,
            away: Vec::new(),
        }))
    }

    fn up(&mut self) -> Command {
        self.sessions += 1;
        Command::MicUp {
            user: None,
            seat: None,
            session: MicSession::from(format!("mic-{}", self.sessions).as_str()),
        }
    }

    /// Commits a command, if the cell lets it and anything comes of it.
    pub(crate) fn does(&mut self, actor: &Actor, command: Command) -> bool {
        let rules = Rules {
            devices: Devices::Allow,
            publish_deadline_ms: 15_000,
            ring_ms: 45_000,
            transition_ms: 15_000,
            clock_tolerance_ms: 1_000,
            external_media: false,
            live_list: true,
        };
        let order = command.validate(actor.clone(), &Limits::default()).expect("within limits");
        let Ok(events) = decide(&self.state.cell, &order, &rules, Millis(self.now)) else { return false };
        if events.is_empty() {
            return false;
        }
        let before = self.cv();
        self.state.cell.advance(&events);
        if before == 0 {
            self.state.created_at = RedisMillis::new(self.now);
        }
        let id = format!("command-{}", self.entries.len());
        let body = json!({ "id": id, "actor": actor, "command": "some", "events": events });
        let answer = KeptAnswer {
            caller: "ann".to_owned(),
            id,
            digest: "0123".to_owned(),
            answer: json!({ "ok": true, "version": self.cv() }).to_string(),
        };
        let change = Change::Cell { cv: CellVersion::new(self.cv()) };
        self.commit(change, body.to_string(), Some(answer));
        true
    }

    pub(crate) fn settings(&mut self, settings: &Value) {
        let patch = settings.as_object().cloned().expect("an object");
        patch::apply_fields(&mut self.state.settings, &patch);
        self.sv += 1;
        let change = Change::Settings { sv: SettingsVersion::new(self.sv) };
        self.commit(change, json!({ "settings": settings, "by": "ann" }).to_string(), None);
    }

    pub(crate) fn guests(&mut self, patch: &Map<String, Value>) {
        patch::apply_fields(&mut self.state.guests, patch);
        self.sv += 1;
        let change = Change::Guest { sv: SettingsVersion::new(self.sv) };
        self.commit(change, json!({ "guests": patch, "by": "ann" }).to_string(), None);
    }

    /// Somebody else owns the room from now on.
    pub(crate) fn changes_hands(&mut self) {
        self.token += 1;
    }

    /// Redis lost the room: its owner wrote it again, further on.
    pub(crate) fn is_restored(&mut self) {
        self.state.cell.version += 1_000_000;
        self.sv += 1_000_000;
        let change = Change::State { cv: CellVersion::new(self.cv()), sv: SettingsVersion::new(self.sv) };
        self.commit(change, self.state.to_body(), None);
    }

    fn commit(&mut self, change: Change, body: String, answer: Option<KeptAnswer>) {
        self.entries.push(Entry {
            entry: format!("{}-{}", self.now, self.entries.len()),
            room: self.room.clone(),
            change,
            token: FenceToken::new(self.token),
            owner: format!("a/{}", self.token),
            at: RedisMillis::new(self.now),
            body,
            answer,
        });
    }
}
