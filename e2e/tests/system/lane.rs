//! What is written of a room in its lane, against the cell that is stored.

use e2e::resp::Value as Reply;
use e2e::servers::RedisServer;
use e2e::token::APP;
use e2e::wait;
use key_prefix::{KeyKind, Keys, Prefix, RoomKey};
use room_cell::{Cell, Event, LeaveReason, UserId};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::stored::of_room;

/// One committed command.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The id that its caller gave, or one that the owner made.
    pub(crate) id: String,
    /// The word for the command.
    pub(crate) command: String,
    /// `name/incarnation` of who committed it.
    pub(crate) owner: String,
    /// The fencing token that it was committed under.
    pub(crate) token: u64,
    /// The version that it made.
    pub(crate) version: u64,
    /// When, by Redis's clock.
    pub(crate) at: u64,
    pub(crate) events: Vec<Event>,
}

/// Every command of a room, and its cell, as they stood at one moment.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) entries: Vec<Entry>,
    pub(crate) cell: Cell,
}

const READ: &str = "return { redis.call('XRANGE', KEYS[5], '-', '+'), redis.call('XRANGE', KEYS[1], '-', '+'), \
                    redis.call('HMGET', KEYS[2], 'cv', 'status'), redis.call('HGETALL', KEYS[3]), \
                    redis.call('HGETALL', KEYS[4]) }";

impl Past {
    pub(crate) async fn read(redis: &RedisServer, room: &str) -> Self {
        let route = RoomKey::from_route(&format!("{APP}\0{room}")).expect("a room");
        let keys = Keys::new(Prefix::parse("test").expect("a prefix"));
        let (lane, kept) =
            (keys.lane(&route).to_string(), keys.lane_kept(key_prefix::lane_of(route.route())).to_string());
        let [record, cell, peers] =
            [KeyKind::Room, KeyKind::Cell, KeyKind::Peers].map(|kind| of_room(kind, room));
        let found = redis.command(&["EVAL", READ, "5", &lane, &record, &cell, &peers, &kept]).await;
        let [kept, lane, record, cell, peers] = found.items() else { panic!("{found:?}") };
        let pairs = |of: &Reply| -> Vec<(String, String)> {
            of.texts().chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        };
        let version = record.items()[0].number().and_then(|cv| u64::try_from(cv).ok()).expect("a version");
        let status = record.items()[1].text();
        let cell = Cell::read(version, &status, &pairs(cell), &pairs(peers)).expect("a stored cell");
        // What the ledger took is kept for longer than a test.
        let entries = kept.items().iter().chain(lane.items());
        let fields = entries.map(|item| BTreeMap::from_iter(pairs(&item.items()[1])));
        let of_room = fields.filter(|fields| fields["room"] == route.route() && fields["kind"] == "cell");
        Self { entries: of_room.map(|fields| entry(&fields)).collect(), cell }
    }

    /// Reads it again and again until it `fits`.
    pub(crate) async fn wait(
        redis: &RedisServer,
        room: &str,
        within: Duration,
        fits: impl Fn(&Self) -> bool,
    ) -> Self {
        let told = |past: &Self| -> Vec<String> {
            past.entries.iter().map(|entry| format!("{} {:?}", entry.version, entry.events)).collect()
        };
        wait::eventually(within, || async {
            let past = Self::read(redis, room).await;
            if fits(&past) { Ok(past) } else { Err(told(&past)) }
        })
        .await
    }

    /// Entries of the command that its caller named so.
    pub(crate) fn of_id(&self, id: &str) -> Vec<&Entry> {
        self.entries.iter().filter(|entry| entry.id == id).collect()
    }

    /// Every event with the entry that it is of.
    pub(crate) fn events(&self) -> impl Iterator<Item = (&Entry, &Event)> {
        self.entries.iter().flat_map(|entry| entry.events.iter().map(move |event| (entry, event)))
    }

    /// Who left, and why.
    pub(crate) fn left(&self) -> Vec<(String, LeaveReason)> {
        let left = self.events().filter_map(|(_, event)| match event {
            Event::Left { user, reason, .. } => Some((user.to_string(), *reason)),
            _ => None,
        });
        left.collect()
    }

    /// Positions follow each other, the events give the stored cell again, whatever began has ended once or goes
    /// on, and nobody sits who is not there. Returns how often versions leapt.
    pub(crate) fn assert_sound(&self) -> usize {
        let (mut replayed, mut token, mut leaps) = (Cell::default(), 0, 0);
        for entry in &self.entries {
            assert!(entry.token >= token, "an older token after a newer one: {entry:?}");
            token = entry.token;
            assert!(entry.version > replayed.version, "a version given twice: {entry:?}");
            if entry.version != replayed.version + 1 {
                leaps += 1;
                replayed.version = entry.version - 1;
            }
            replayed.advance(&entry.events);
        }
        leaps += usize::from(self.cell.version != replayed.version);
        replayed.version = self.cell.version;
        assert_eq!(replayed, self.cell, "what was logged is not what is stored");
        self.assert_ended_once();
        for (number, seat) in &self.cell.seats {
            let Some(sitter) = &seat.sitter else { continue };
            assert_eq!(self.cell.peers.get(&sitter.peer), Some(&sitter.user), "nobody sits on {number}");
        }
        leaps
    }

    fn assert_ended_once(&self) {
        let (mut present, mut seated) = (BTreeSet::<UserId>::new(), BTreeSet::new());
        for (entry, event) in self.events() {
            let is_new = match event {
                Event::Joined { peer, arrived: true, .. } => present.insert(peer.user.clone()),
                Event::Joined { peer, arrived: false, .. } => present.contains(&peer.user),
                Event::Left { user, .. } => present.remove(user),
                Event::SeatTaken { session, .. } => seated.insert(session.clone()),
                Event::SeatFreed { session, .. } => seated.remove(session),
                _ => true,
            };
            assert!(is_new, "begun or ended twice: {event:?} of {entry:?}");
        }
        assert!(present.iter().eq(self.cell.users.keys()), "{present:?} have no ending");
        let sitters = self.cell.seats.values().filter_map(|seat| Some(seat.sitter.as_ref()?.session.clone()));
        assert_eq!(seated, sitters.collect(), "mic sessions without an ending");
    }
}

fn entry(fields: &BTreeMap<String, String>) -> Entry {
    let logged: Value = serde_json::from_str(&fields["entry"]).expect("an entry is JSON");
    let number = |field: &str| fields[field].parse().expect("a number");
    Entry {
        id: logged["id"].as_str().expect("an id").to_owned(),
        command: logged["command"].as_str().expect("a command").to_owned(),
        owner: fields["owner"].clone(),
        token: number("token"),
        version: number("cv"),
        at: number("at"),
        events: serde_json::from_value(logged["events"].clone()).expect("events"),
    }
}
