//! A room whose commands are logged, and what is told of each.

use key_prefix::{AppCode, RoomId, RoomKey};
use redis_scripts::{CellVersion, FenceToken, RedisMillis, SettingsVersion};
use room_cell::{
    Actor, Cell, Command, Devices, Joining, Limits, MediaFact, MediaIdentity, MediaReport, Millis, Role,
    Rules, decide,
};
use serde_json::{Value, json};

use crate::entry::{Change, Entry};
use crate::events::{self, BusinessEvent};

pub(super) const START: u64 = 1_764_504_000_000;
const TOKEN: u64 = 1_764_503_990_000;

pub(super) struct Room {
    pub(super) cell: Cell,
    pub(super) rules: Rules,
    pub(super) now: u64,
    pub(super) sv: u64,
    commands: u32,
}

impl Room {
    pub(super) fn nowhere() -> Self {
        let rules = Rules {
            devices: Devices::Replace,
            publish_deadline_ms: 15_000,
            ring_ms: 45_000,
            transition_ms: 15_000,
            clock_tolerance_ms: 1_000,
            external_media: false,
            live_list: true,
        };
        Self { cell: Cell::default(), rules, now: START, sv: 1, commands: 0 }
    }

    /// An open room of four seats that `ann`, a host, made.
    pub(super) fn open() -> Self {
        let mut room = Self::nowhere();
        room.does(&host("ann"), create());
        room
    }

    /// Does a command, and tells what the outside learns of it; nothing if it is refused.
    pub(super) fn tries(&mut self, actor: &Actor, command: Command) -> Option<Vec<BusinessEvent>> {
        self.commands += 1;
        let order = command.validate(actor.clone(), &Limits::default()).expect("within limits");
        let events = decide(&self.cell, &order, &self.rules, Millis(self.now)).ok()?;
        if events.is_empty() {
            return Some(Vec::new());
        }
        self.cell.advance(&events);
        let id = format!("command-{}", self.commands);
        let body = json!({ "id": id, "actor": actor, "command": "some", "events": events });
        Some(events::of(&self.cell_entry(&body)).expect("a body as it is logged"))
    }

    #[track_caller]
    pub(super) fn does(&mut self, actor: &Actor, command: Command) -> Vec<BusinessEvent> {
        self.tries(actor, command).expect("it is not refused")
    }

    #[track_caller]
    pub(super) fn joins(&mut self, user: &str, role: Role) -> Vec<BusinessEvent> {
        let peer = format!("{user}-{}", self.commands);
        let actor = Actor::User { user: user.into(), max_role: role, peer: None };
        self.does(&actor, join(&peer, role))
    }

    /// Somebody who is present, with their newest connection.
    #[track_caller]
    pub(super) fn member(&self, user: &str) -> Actor {
        let peer = self.cell.users.get(user).and_then(|it| it.newest()).expect("they are present");
        Actor::User { user: user.into(), max_role: peer.max_role, peer: Some(peer.peer.clone()) }
    }

    #[track_caller]
    pub(super) fn hears(&mut self, user: &str, what: MediaFact) -> Vec<BusinessEvent> {
        let who = Some(MediaIdentity { user: user.into(), peer: None });
        let at = Millis(self.now);
        let report =
            MediaReport { what, who, router: None, incarnation: None, sequence: None, at, resolution_ms: 0 };
        self.does(&Actor::Media, Command::Media(report))
    }

    pub(super) const fn later(&mut self, ms: u64) {
        self.now += ms;
    }

    pub(super) fn cell_entry(&self, body: &Value) -> Entry {
        self.entry(Change::Cell { cv: CellVersion::new(self.cell.version) }, body)
    }

    pub(super) fn state_entry(&self) -> Entry {
        let (cv, sv) = (CellVersion::new(self.cell.version), SettingsVersion::new(self.sv));
        self.entry(Change::State { cv, sv }, &json!({}))
    }

    pub(super) fn entry(&self, change: Change, body: &Value) -> Entry {
        let (app, room) = (AppCode::new("school").expect("a code"), RoomId::new("maths-1").expect("an id"));
        Entry {
            entry: format!("{}-0", self.now),
            room: RoomKey::new(app, room),
            change,
            token: FenceToken::new(TOKEN),
            owner: "a/1764503980000".to_owned(),
            at: RedisMillis::new(self.now),
            body: body.to_string(),
            answer: None,
        }
    }
}

pub(super) fn host(user: &str) -> Actor {
    Actor::User { user: user.into(), max_role: Role::Host, peer: None }
}

pub(super) const fn create() -> Command {
    Command::Create { seats: 4, capacity: Some(50), auto_close: true }
}

pub(super) fn join(peer: &str, role: Role) -> Command {
    let joining = Joining {
        peer: peer.into(),
        role,
        name: None,
        avatar: None,
        attributes: serde_json::Map::new(),
        device: None,
        media: None,
        resume: peer.into(),
        resumes: None,
        away: Vec::new(),
    };
    Command::Join(Box::new(joining))
}

pub(super) fn up(session: &str) -> Command {
    Command::MicUp { user: None, seat: None, session: session.into() }
}

pub(super) const fn down() -> Command {
    Command::MicDown { user: None, session: None }
}

pub(super) fn kinds(events: &[BusinessEvent]) -> Vec<&'static str> {
    events.iter().map(|event| event.kind).collect()
}

pub(super) fn json(event: &BusinessEvent) -> Value {
    serde_json::from_str(&event.payload).expect("JSON")
}

/// The kind of each event with what it tells beside where it comes from.
pub(super) fn told(events: &[BusinessEvent]) -> Vec<(&'static str, Value)> {
    let told = events.iter().map(|event| {
        let mut data = json(event)["data"].clone();
        let fields = data.as_object_mut().expect("an object");
        for origin in ["app", "room", "version", "token", "command", "by"] {
            fields.remove(origin);
        }
        (event.kind, data)
    });
    told.collect()
}
