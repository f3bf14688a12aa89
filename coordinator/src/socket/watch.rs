//! Rooms watched from here, whoever owns them: host cards, and monitors.

use key_prefix::RoomKey;
use redis_scripts::{Read, WatchedReport};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use socketioxide::socket::Sid;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::dispatch::{Answer, Asking, raw};
use super::media::{self, Listening};
use super::requests::Watch;
use super::{Client, Delivery};
use crate::error::{ApiError, ErrorCode};
use crate::media::Placed;
use crate::node::Node;
use crate::paths::{Astray, Class as _, Fanout, Owner};
use crate::room::gateway;
use crate::room::names::{RoomNames, json_string};
use crate::room::snapshot::Remote;

/// As what a client gets the changes of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum View {
    /// `card:update`
    Card,
    /// The events that members get.
    Monitor,
}

#[derive(Debug)]
struct Watched {
    names: Arc<RoomNames>,
    /// The newest settings and cell version that was passed on.
    passed: (u64, u64),
    /// Up to these versions everybody who watches has been told: a message that comes behind a snapshot with the
    /// same in it is not passed on again.
    told: (u64, u64),
    audience: HashMap<(Sid, View), Watcher>,
}

#[derive(Debug)]
struct Watcher {
    client: Client,
    listens: Option<Listening>,
}

/// Rooms watched from here and by whom.
#[derive(Debug, Default)]
pub struct Watches {
    rooms: Mutex<HashMap<RoomKey, Watched>>,
    pub(super) listing: Mutex<super::lists::Listing>,
}

/// What a fanout message says of itself.
#[derive(Debug, Deserialize)]
struct Envelope {
    room: String,
    of: Counter,
    to: u64,
    /// Never there: events go to clients by the room's owner.
    #[serde(default)]
    event: Option<IgnoredAny>,
    #[serde(default)]
    seats: Option<IgnoredAny>,
    #[serde(default)]
    joined: Option<IgnoredAny>,
    #[serde(default)]
    call: Option<IgnoredAny>,
}

/// A fanout message that changes nothing: how loud people are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Loud {
    room: String,
    levels: Box<RawValue>,
}

impl Loud {
    fn read(message: &str) -> Option<(RoomKey, Self)> {
        let loud = serde_json::from_str::<Self>(message).ok()?;
        Some((RoomKey::from_route(&loud.room).ok()?, loud))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Counter {
    Settings,
    Cell,
}

impl Envelope {
    fn read(message: &str) -> Result<(RoomKey, Self), Astray> {
        #[derive(Deserialize)]
        struct Event {
            event: String,
        }
        if let Ok(envelope) = serde_json::from_str::<Self>(message)
            && envelope.event.is_none()
        {
            let room = RoomKey::from_route(&envelope.room).map_err(|_| Astray::Malformed)?;
            return Ok((room, envelope));
        }
        let named = serde_json::from_str::<Event>(message).map_err(|_| Astray::Malformed)?;
        // Messages of this channel name no event, so a name is one of the owner's or of nobody's.
        Err(Owner::arriving(&named.event).map_or(Astray::Malformed, |_| Astray::OwnerPath))
    }

    /// The events that it is to monitors: one for each kind of part in it, as to members.
    fn monitored(&self) -> Vec<Fanout> {
        if self.of == Counter::Settings {
            return vec![Fanout::MonitoredUpdate];
        }
        let parts = [
            (self.seats.is_some(), Fanout::MonitoredMic),
            (self.joined.is_some(), Fanout::MonitoredPresence),
            (self.call.is_some(), Fanout::MonitoredCall),
        ];
        let classes: Vec<_> = parts.into_iter().filter_map(|(is_in, class)| is_in.then_some(class)).collect();
        if classes.is_empty() { vec![Fanout::MonitoredUpdate] } else { classes }
    }
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, HashMap<RoomKey, Watched>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rooms that the heartbeat keeps watching.
    pub fn rooms(&self) -> Vec<RoomKey> {
        self.lock().keys().cloned().collect()
    }

    fn add(&self, node: &Node, room: &RoomKey, client: &Client, view: View) -> Arc<RoomNames> {
        let mut rooms = self.lock();
        let watched = rooms.entry(room.clone()).or_insert_with(|| Watched {
            names: Arc::new(RoomNames::new(room.clone(), &node.store.keys)),
            passed: (0, 0),
            told: (0, 0),
            audience: HashMap::new(),
        });
        let watcher = Watcher { client: client.clone(), listens: None };
        watched.audience.entry((client.sid(), view)).or_insert(watcher);
        Arc::clone(&watched.names)
    }

    /// Notes that a snapshot of these versions was given out; says whether more was passed on since.
    fn given(&self, room: &RoomKey, snapshot: (u64, u64)) -> bool {
        let mut rooms = self.lock();
        let Some(watched) = rooms.get_mut(room) else { return true };
        let is_newest = watched.passed.0 <= snapshot.0 && watched.passed.1 <= snapshot.1;
        watched.passed = (watched.passed.0.max(snapshot.0), watched.passed.1.max(snapshot.1));
        // A room that was made anew begins anew.
        watched.told = (watched.told.0.min(snapshot.0), watched.told.1.min(snapshot.1));
        is_newest
    }

    /// Whether a connection monitors a room.
    pub(super) fn monitors(&self, room: &RoomKey, sid: Sid) -> bool {
        self.lock().get(room).is_some_and(|watched| watched.audience.contains_key(&(sid, View::Monitor)))
    }

    /// What a monitor is called in a router that it was let into before.
    pub(super) fn listens_as(&self, room: &RoomKey, sid: Sid, at: &Placed) -> Option<Arc<str>> {
        let rooms = self.lock();
        rooms.get(room)?.audience.get(&(sid, View::Monitor))?.listens.as_ref()?.name_at(at)
    }

    /// Notes that a monitor was let into the room's router: it is put out when it no longer monitors the room.
    pub(super) fn listens(&self, room: &RoomKey, sid: Sid, at: Placed, name: Arc<str>) {
        let mut rooms = self.lock();
        let watcher = rooms.get_mut(room).and_then(|it| it.audience.get_mut(&(sid, View::Monitor)));
        let is_known =
            |it: &Option<Listening>| it.as_ref().and_then(|it| it.name_at(&at)) == Some(Arc::clone(&name));
        match watcher.map(|watcher| &mut watcher.listens) {
            Some(listens) if is_known(listens) => {}
            Some(listens) => *listens = Some(Listening::new(at, name)),
            // Gone meanwhile.
            None => drop(Listening::new(at, name)),
        }
    }

    /// Takes a client out; the rooms that nobody watches any more are given up.
    fn take_out(&self, room: &RoomKey, sid: Sid, views: &[View]) -> (bool, bool) {
        let mut rooms = self.lock();
        let Entry::Occupied(mut entry) = rooms.entry(room.clone()) else { return (false, false) };
        let audience = &mut entry.get_mut().audience;
        let before = audience.len();
        for view in views {
            audience.remove(&(sid, *view));
        }
        let was_there = audience.len() < before;
        let is_last = audience.is_empty();
        if is_last {
            entry.remove();
        }
        (was_there, is_last)
    }

    /// A connection that watched these rooms is gone.
    pub fn remove(&self, node: &Node, sid: Sid, rooms: &[RoomKey]) {
        for room in rooms {
            if self.take_out(room, sid, &[View::Card, View::Monitor]).1 {
                give_up(node, room.clone());
            }
        }
    }

    /// A connection no longer monitors these rooms; their cards it keeps.
    pub fn stop_monitoring(&self, node: &Node, sid: Sid, rooms: &[RoomKey]) {
        for room in rooms {
            if self.take_out(room, sid, &[View::Monitor]).1 {
                give_up(node, room.clone());
            }
        }
    }

    /// Passes on how loud people are to who watches their room here: each client is told once, or not at all.
    fn pass_levels_on(&self, room: &RoomKey, levels: &RawValue) -> bool {
        let rooms = self.lock();
        let Some(watched) = rooms.get(room) else { return false };
        let Ok(body) = RawValue::from_string(format!(r#"{},"levels":{levels}}}"#, watched.names.event_head))
        else {
            return false;
        };
        for ((sid, view), Watcher { client, .. }) in &watched.audience {
            let is_told = *view == View::Card && watched.audience.contains_key(&(*sid, View::Monitor));
            if !is_told {
                client.send(Fanout::WatchedSpeakers, &body);
            }
        }
        true
    }

    /// Passes a fanout message on to who watches its room here.
    pub fn pass_on(&self, node: &Node, message: &str) {
        let fanout = |outcome| node.metrics.fanout.with_label_values(&[outcome]).inc();
        if let Some((room, loud)) = Loud::read(message) {
            fanout(if self.pass_levels_on(&room, &loud.levels) { "delivered" } else { "nobody" });
            return;
        }
        let (room, envelope) = match Envelope::read(message) {
            Ok(read) => read,
            Err(Astray::Malformed) => {
                fanout("malformed");
                return;
            }
            Err(Astray::OwnerPath) => {
                node.metrics.skipped.with_label_values(&[Astray::OwnerPath.label()]).inc();
                return;
            }
        };
        let mut slow = Vec::new();
        {
            let mut rooms = self.lock();
            let Some(watched) = rooms.get_mut(&room) else {
                fanout("nobody");
                node.metrics.skipped.with_label_values(&["no_local_room"]).inc();
                return;
            };
            let (passed, told) = match envelope.of {
                Counter::Settings => (&mut watched.passed.0, &mut watched.told.0),
                Counter::Cell => (&mut watched.passed.1, &mut watched.told.1),
            };
            if envelope.to <= *told {
                fanout("repeated");
                return;
            }
            *told = envelope.to;
            *passed = (*passed).max(envelope.to);
            let head = r#"{"room":"#.len() + watched.names.route_json.len();
            let Some(tail) = message.get(head..) else { return };
            let Ok(body) = RawValue::from_string(format!("{}{tail}", watched.names.event_head)) else {
                return;
            };
            let monitored = envelope.monitored();
            for ((_, view), Watcher { client, .. }) in &watched.audience {
                let classes = match view {
                    View::Card => &[Fanout::Card][..],
                    View::Monitor => &monitored,
                };
                if classes.iter().any(|class| client.send(*class, &body) == Delivery::QueueFull) {
                    slow.push(client.clone());
                }
            }
        }
        fanout("delivered");
        for client in slow {
            node.metrics.skipped.with_label_values(&["queue_full"]).inc();
            client.disconnect();
        }
    }

    /// What the heartbeat says of a watched room. If something was missed, everybody gets a snapshot.
    pub async fn repair(&self, node: &Node, room: &RoomKey, report: WatchedReport) {
        let (sv, cv) = (report.sv.as_u64(), report.cv.as_u64());
        let missed = self.lock().get(room).is_some_and(|it| sv > it.passed.0 || cv > it.passed.1);
        if !missed {
            return;
        }
        let Ok(Read::Ok(standing)) = node.store.scripts.read_room(&node.store.keys, room).await else {
            return;
        };
        let Ok(remote) = Remote::read(standing) else { return };
        let Ok(snapshot) = serde_json::to_string(&remote.snapshot(room.app(), room.room())) else { return };
        let (sv, cv) = (remote.room.sv.as_u64(), remote.cell().version);
        let mut rooms = self.lock();
        let Some(watched) = rooms.get_mut(room) else { return };
        let passed = watched.passed;
        // What was passed on meanwhile may be newer than what was read.
        watched.passed = (passed.0.max(sv), passed.1.max(cv));
        watched.told = (watched.told.0.max(sv), watched.told.1.max(cv));
        node.metrics.fanout.with_label_values(&["repaired"]).inc();
        for (of, from, to) in [("settings", passed.0, sv), ("cell", passed.1, cv)] {
            if from >= to {
                continue;
            }
            let head = &watched.names.event_head;
            let body = format!(r#"{head},"of":"{of}","from":{from},"to":{to},"snapshot":{snapshot}}}"#);
            let Ok(body) = RawValue::from_string(body) else { continue };
            for ((_, view), Watcher { client, .. }) in &watched.audience {
                let class = match (view, of) {
                    (View::Card, _) => Fanout::Card,
                    (View::Monitor, "settings") => Fanout::MonitoredUpdate,
                    (View::Monitor, _) => Fanout::MonitoredPresence,
                };
                client.send(class, &body);
            }
        }
    }
}

fn give_up(node: &Node, room: RoomKey) {
    let store = node.store.clone();
    tokio::spawn(async move {
        if let Err(error) = store.scripts.unwatch(&store.keys, &store.me, &room).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "still noted as a watcher");
        }
    });
}

/// Puts the client into the audience, then reads the room, so that nothing falls between.
async fn begin(asking: &Asking, room: &RoomKey, view: View) -> Result<Option<String>, ApiError> {
    const READS: usize = 3;
    let node = &asking.node;
    node.watches.add(node, room, &asking.client, view);
    let (store, mut snapshot) = (&node.store, None);
    let mut recovered = false;
    for _ in 0..READS {
        match store.timed("watch", store.scripts.watch(&store.keys, &store.me, room)).await {
            Ok(Read::Ok(standing)) => {
                let remote = Remote::read(standing).map_err(|error| {
                    tracing::error!(error = &error as &dyn std::error::Error, "the room cannot be read");
                    ApiError::new(ErrorCode::Internal, "the room cannot be read")
                })?;
                let versions = (remote.room.sv.as_u64(), remote.cell().version);
                snapshot = serde_json::to_string(&remote.snapshot(room.app(), room.room())).ok();
                if node.watches.given(room, versions) {
                    break;
                }
            }
            Ok(Read::Missing) if !recovered && gateway::recover(node, room).await? => recovered = true,
            Ok(Read::Missing) => {
                end(asking, room, &[view]);
                return Ok(None);
            }
            Err(error) => {
                end(asking, room, &[view]);
                return Err(error.into());
            }
        }
    }
    if !asking.client.is_connected() {
        end(asking, room, &[view]);
    }
    Ok(snapshot)
}

fn end(asking: &Asking, room: &RoomKey, views: &[View]) -> bool {
    let (was_there, is_last) = asking.node.watches.take_out(room, asking.client.sid(), views);
    if is_last {
        give_up(&asking.node, room.clone());
    }
    was_there
}

pub(super) async fn watch(asking: &Asking, body: Watch) -> Answer {
    asking.require_watcher()?;
    let limit = asking.node.config.limits.watch_rooms;
    let rooms: Vec<RoomKey> =
        body.rooms.into_iter().map(|room| asking.room(room)).collect::<Result<_, _>>()?;
    {
        let mut watched = asking.connection().watched();
        let more = watched.iter().chain(&rooms).collect::<HashSet<_>>().len();
        if more > limit {
            return Err(ApiError::bad_request(format!(
                "{more} rooms would be watched, at most {limit} are allowed"
            )));
        }
        watched.extend(rooms.iter().cloned());
    }
    let read = futures_util::future::join_all(rooms.iter().map(|room| begin(asking, room, View::Card))).await;
    let mut cards = Vec::with_capacity(rooms.len());
    for (room, snapshot) in rooms.iter().zip(read) {
        match snapshot {
            Ok(Some(snapshot)) => cards.push(snapshot),
            Ok(None) => {
                asking.connection().watched().remove(room);
                cards.push(format!(r#"{{"id":{},"error":"ROOM_NOT_FOUND"}}"#, json_string(room.room())));
            }
            Err(error) => {
                let mut watched = asking.connection().watched();
                for room in &rooms {
                    end(asking, room, &[View::Card]);
                    watched.remove(room);
                }
                return Err(error);
            }
        }
    }
    raw(format!(r#"{{"ok":true,"rooms":[{}]}}"#, cards.join(",")))
}

pub(super) async fn unwatch(asking: &Asking, body: Watch) -> Answer {
    asking.require_watcher()?;
    for room in body.rooms {
        let room = asking.room(room)?;
        end(asking, &room, &[View::Card]);
        let monitors = asking
            .node
            .watches
            .lock()
            .get(&room)
            .is_some_and(|watched| watched.audience.contains_key(&(asking.client.sid(), View::Monitor)));
        if !monitors {
            asking.connection().watched().remove(&room);
        }
    }
    raw(r#"{"ok":true}"#.to_owned())
}

/// `room:join` as a monitor: seen by nobody, at any instance.
pub(super) async fn monitor(asking: &Asking, room: RoomKey) -> Answer {
    asking.connection().watched().insert(room.clone());
    match begin(asking, &room, View::Monitor).await {
        Ok(Some(snapshot)) => {
            // Where a server is asked for it, this must not wait: the monitor asks by itself.
            let grant = match asking.app.media_kind.filter(|kind| kind.grants_by_itself()) {
                Some(_) => media::listen(asking, &room).await.ok(),
                None => None,
            };
            let grant = serde_json::to_string(&grant).unwrap_or_else(|_| "null".to_owned());
            let identity = asking.connection().identity();
            let me = format!(
                r#"{{"peer":{},"user":{},"role":"monitor"}}"#,
                json_string(asking.client.sid().as_str()),
                json_string(identity.user.as_str())
            );
            let now = asking.node.redis_clock.now_ms();
            let heartbeat = asking.app.heartbeat.as_millis();
            raw(format!(
                r#"{{"ok":true,"self":{me},"room":{snapshot},"media":{grant},"messages":{{"lastSeq":0}},"serverTime":{now},"heartbeatMs":{heartbeat}}}"#
            ))
        }
        Ok(None) => {
            asking.connection().watched().remove(&room);
            Err(ApiError::new(ErrorCode::RoomNotFound, "there is no such room"))
        }
        Err(error) => {
            asking.connection().watched().remove(&room);
            Err(error)
        }
    }
}

/// Ends monitoring; `false` if the client does not monitor the room.
pub(super) fn stop_monitoring(asking: &Asking, room: &RoomKey) -> bool {
    end(asking, room, &[View::Monitor])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &str) -> Result<Vec<Fanout>, Astray> {
        Envelope::read(message).map(|(_, envelope)| envelope.monitored())
    }

    #[test]
    fn monitors_get_the_names_that_members_get() {
        let cell =
            |parts: &str| read(&format!(r#"{{"room":"a\u0000b","of":"cell","from":1,"to":2{parts}}}"#));
        assert_eq!(cell(r#","joined":[],"left":[],"peerCount":0"#), Ok(vec![Fanout::MonitoredPresence]));
        assert_eq!(
            cell(r#","seats":[],"joined":[],"left":[]"#),
            Ok(vec![Fanout::MonitoredMic, Fanout::MonitoredPresence])
        );
        assert_eq!(cell(r#","call":{"id":"c"}"#), Ok(vec![Fanout::MonitoredCall]));
        assert_eq!(cell(r#","locked":true"#), Ok(vec![Fanout::MonitoredUpdate]));
        let settings = r#"{"room":"a\u0000b","of":"settings","from":1,"to":2,"settings":{}}"#;
        assert_eq!(read(settings), Ok(vec![Fanout::MonitoredUpdate]));
    }

    #[test]
    fn what_only_the_owner_tells_is_dropped_on_the_fanout() {
        let strays = [
            r#"{"room":"a\u0000b","event":"mic:update","seats":[]}"#,
            r#"{"room":"a\u0000b","of":"cell","from":1,"to":2,"event":"message:new"}"#,
            r#"{"event":"room:closed"}"#,
        ];
        for stray in strays {
            assert_eq!(read(stray), Err(Astray::OwnerPath), "{stray}");
        }
        let malformed = [
            "",
            "[]",
            r#"{"room":"a\u0000b","of":"votes","to":2}"#,
            r#"{"room":"a","of":"cell","to":2}"#,
            r#"{"room":"a\u0000b","event":"call:incoming"}"#,
        ];
        for stray in malformed {
            assert_eq!(read(stray), Err(Astray::Malformed), "{stray}");
        }
    }
}
