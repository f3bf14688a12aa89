//! A room to put commands to, and the people who do.

use std::sync::Arc;

use room_cell::{
    Actor, Cell, Command, Devices, Event, Joining, Limits, MediaFact, MediaIdentity, MediaReport, Millis,
    PeerId, Refusal, Role, Rules, UserId, decide,
};
use serde_json::Map;

use crate::coverage::event;

pub(crate) const START: u64 = 1_700_000_000_000;

pub(crate) fn rules() -> Rules {
    Rules {
        devices: Devices::Replace,
        publish_deadline_ms: 15_000,
        ring_ms: 45_000,
        transition_ms: 15_000,
        clock_tolerance_ms: 1_000,
        external_media: false,
        live_list: true,
    }
}

#[derive(Clone)]
pub(crate) struct Room {
    pub(crate) cell: Cell,
    pub(crate) rules: Rules,
    pub(crate) now: Millis,
}

impl Room {
    /// Nothing is there yet.
    pub(crate) fn nowhere() -> Self {
        Self { cell: Cell::default(), rules: rules(), now: Millis(START) }
    }

    /// An active room of four seats that `ann` made.
    pub(crate) fn open() -> Self {
        let mut room = Self::nowhere();
        room.does(&outside("ann", Role::Host), create(4));
        room
    }

    /// An external media server has a router for it.
    pub(crate) fn has_router(&mut self) {
        let made = Command::RouterMade { node: "one".into(), name: "router".into(), generation: 1 };
        self.does(&Actor::Owner, made);
    }

    /// Decides, and takes in what comes of it.
    pub(crate) fn tries(&mut self, actor: &Actor, command: Command) -> Result<Vec<Event>, Refusal> {
        let order = command.validate(actor.clone(), &Limits::default()).expect("within limits");
        let events = decide(&self.cell, &order, &self.rules, self.now)?;
        self.cell.advance(&events);
        Ok(events)
    }

    #[track_caller]
    pub(crate) fn does(&mut self, actor: &Actor, command: Command) -> Vec<Event> {
        self.tries(actor, command).unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    #[track_caller]
    pub(crate) fn refuses(&mut self, actor: &Actor, command: Command) -> Refusal {
        let before = self.cell.clone();
        let Err(refusal) = self.tries(actor, command) else { panic!("not refused") };
        assert_eq!(before, self.cell);
        refusal
    }

    /// Somebody joins with a connection of this id; the name of the user is what stands before its number.
    #[track_caller]
    pub(crate) fn joins(&mut self, peer: &str, role: Role) -> Actor {
        let user = peer.trim_end_matches(char::is_numeric);
        self.does(&outside(user, role), Command::Join(joining(peer, role)));
        member(peer, role)
    }

    pub(crate) fn later(&mut self, ms: u64) {
        self.now = self.now.after(ms);
    }

    /// Does what has fallen due.
    pub(crate) fn timers(&mut self) -> Vec<Event> {
        let due = self.cell.due(self.now);
        due.into_iter().flat_map(|timer| self.does(&Actor::Owner, Command::Due(timer))).collect()
    }

    /// The media server says something of a user, now and exactly.
    pub(crate) fn hears(&mut self, user: &str, what: MediaFact) -> Result<Vec<Event>, Refusal> {
        let at = self.now;
        self.tries(&Actor::Media, Command::Media(report(user, what, at)))
    }
}

pub(crate) fn report(user: &str, what: MediaFact, at: Millis) -> MediaReport {
    MediaReport {
        what,
        who: Some(MediaIdentity { user: user.into(), peer: None }),
        router: None,
        incarnation: None,
        sequence: None,
        at,
        resolution_ms: 0,
    }
}

pub(crate) fn up(session: &str) -> Command {
    Command::MicUp { user: None, seat: None, session: session.into() }
}

pub(crate) const fn down() -> Command {
    Command::MicDown { user: None, session: None }
}

pub(crate) fn kick(user: &str, ban_seconds: Option<u64>) -> Command {
    Command::Kick { user: user.into(), reason: None, ban_seconds }
}

/// Names of the events, in order.
pub(crate) fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(event).collect()
}

pub(crate) fn create(seats: u16) -> Command {
    Command::Create { seats, capacity: None, auto_close: false }
}

/// What a peer is called at the media server.
pub(crate) fn called(peer: &str) -> Arc<str> {
    format!("{peer} there").into()
}

pub(crate) fn joining(peer: &str, role: Role) -> Box<Joining> {
    Box::new(Joining {
        peer: peer.into(),
        role,
        name: None,
        avatar: None,
        attributes: Map::new(),
        device: None,
        media: Some(called(peer)),
        resume: Arc::from(format!("digest of {peer}")),
        resumes: None,
        away: Vec::new(),
    })
}

/// A user with a token, whose connection is not a member.
pub(crate) fn outside(user: &str, max_role: Role) -> Actor {
    Actor::User { user: user.into(), max_role, peer: None }
}

/// A user through a connection of theirs.
pub(crate) fn member(peer: &str, max_role: Role) -> Actor {
    let user = UserId::from(peer.trim_end_matches(char::is_numeric));
    Actor::User { user, max_role, peer: Some(PeerId::from(peer)) }
}
