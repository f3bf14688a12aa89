//! The heartbeat: renews the instance and every lease, and repairs what was missed since the last one.

use fred::clients::SubscriberClient;
use fred::interfaces::{ClientLike as _, PubsubInterface as _};
use key_prefix::{ChannelKind, RoomKey};
use redis_scripts::{Beat, Heartbeat, HeldRoom, Look, OwnedReport, RedisMillis, ScriptError, Touch};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::{Fatal, Node, register};
use crate::clock::Moment;
use crate::config::App;
use crate::room::lease::LeaseTerm;
use crate::room::work::{Present, RoomHandle, Work};

/// Leases renewed in one call: Redis does nothing else for so long, which is to be under 2 ms.
const CHUNK: usize = 50;
/// Rooms of one beat that are looked at as a whole, about; the rest has its turn at the next ones.
const CHECKED: usize = 1_000;
/// An actor that has not come round for so many lives of an owner key hangs: its lease is not renewed. One that has nothing
/// to do comes round when its lease would have run out.
const HUNG_TTLS: u32 = 2;
/// Heartbeats after which a canary that did not come back is missed.
const FOLLOWED: u32 = 2;
/// Users in one `touch` call.
const TOUCHED: usize = 2_000;

struct Held {
    room: RoomKey,
    handle: RoomHandle,
    term: Arc<LeaseTerm>,
    known: (u64, u64),
}

/// Beats until the instance ends.
pub async fn run(node: Arc<Node>, subscriber: SubscriberClient) {
    let lease = &node.config.lease;
    let mut every = tokio::time::interval(lease.heartbeat);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut memory = Memory::default();
    let _still = node.still.clone().drop_guard();
    loop {
        tokio::select! {
            () = node.ending.cancelled() => return,
            () = node.leaving.cancelled() => return,
            _ = every.tick() => {}
        }
        follow(&node, &subscriber);
        loop {
            match beat(&node, &mut memory).await {
                Ok(()) => {
                    node.metrics.heartbeats.with_label_values(&["ok"]).inc();
                    break;
                }
                Err(error) => {
                    node.metrics.heartbeats.with_label_values(&["failed"]).inc();
                    tracing::debug!(error = &error as &dyn std::error::Error, "heartbeat");
                    node.store_answered(false);
                    node.metrics.ready.set(i64::from(node.readiness().is_ok()));
                    tokio::select! {
                        () = node.ending.cancelled() => return,
                        () = node.leaving.cancelled() => return,
                        () = tokio::time::sleep(lease.retry_pause()) => {}
                    }
                }
            }
        }
        memory.turn += 1;
        node.metrics.ready.set(i64::from(node.readiness().is_ok()));
    }
}

/// A subscription may stand at a server that is not the primary any more, and hear nothing: it is made anew.
fn follow(node: &Arc<Node>, subscriber: &SubscriberClient) {
    let is_up = *node.store_up.borrow();
    let patience = FOLLOWED * node.config.lease.heartbeat;
    if !node.config.redis.url.is_sentinel() || !is_up || !node.canary.is_missed(Moment::now(), patience) {
        return;
    }
    tracing::warn!("what this instance publishes does not come back: it subscribes anew");
    let (node, subscriber) = (Arc::clone(node), subscriber.clone());
    // Leases are renewed meanwhile, however long that takes.
    tokio::spawn(async move {
        let anew = tokio::time::timeout(node.config.lease.heartbeat, subscriber.force_reconnection()).await;
        if let Ok(Err(error)) = anew {
            tracing::debug!(error = &error as &dyn std::error::Error, "the subscription is not made anew");
        }
    });
}

/// When each actor was last seen to come round.
#[derive(Debug, Default)]
struct Pulses(HashMap<u64, (u64, Moment)>);

impl Pulses {
    /// Whether an actor lives, its turns being counted to `turns` now. One that stands still for `patience` does not.
    fn lives(&mut self, actor: u64, turns: u64, now: Moment, patience: Duration) -> bool {
        let seen = self.0.entry(actor).or_insert((turns, now));
        if seen.0 != turns {
            *seen = (turns, now);
        }
        now.since(seen.1) < patience
    }

    fn forget_others(&mut self, actors: &HashSet<u64>) {
        self.0.retain(|actor, _| actors.contains(actor));
    }
}

/// What one beat keeps for the next.
#[derive(Debug, Default)]
struct Memory {
    turn: u64,
    pulses: Pulses,
    /// Which history of its data Redis told at the last whole beat.
    history: String,
    /// Marks of rooms that had no news, by actor.
    heard: HashMap<u64, RedisMillis>,
    /// Actors that had news. What they were told may be lost, or may not be done yet.
    again: HashMap<u64, Look>,
}

impl Memory {
    fn look(&self, actor: u64, turns: u64) -> Look {
        if actor % turns == self.turn % turns {
            return Look::Whole;
        }
        self.again.get(&actor).copied().unwrap_or(Look::IfMarked)
    }

    /// Notes what was reported of an actor's room, and whether it is to be looked at again.
    fn note(&mut self, actor: u64, report: OwnedReport, again: Option<Look>) {
        match again {
            Some(look) => _ = self.again.insert(actor, look),
            None => _ = self.again.remove(&actor),
        }
        if let (OwnedReport::StandsAt { mark: Some(mark), .. }, None) = (report, again) {
            self.heard.insert(actor, mark);
        }
    }

    fn forget_others(&mut self, actors: &HashSet<u64>) {
        self.pulses.forget_others(actors);
        self.again.retain(|actor, _| actors.contains(actor));
    }
}

async fn beat(node: &Arc<Node>, memory: &mut Memory) -> Result<(), ScriptError> {
    let rooms: Vec<(HeldRoom, Held)> = held_rooms(node, memory);
    let watched = node.watches.rooms();
    let mut fields = register::record(&node.config, &node.public_url);
    fields.push(("address", node.address.clone()));
    fields.push(("draining", u8::from(node.is_draining()).to_string()));
    let mut owned_chunks = rooms.chunks(CHUNK);
    let mut watched_chunks = watched.chunks(CHUNK);
    let mut history = None;
    loop {
        let (owned, watched) = (owned_chunks.next(), watched_chunks.next());
        let is_first = history.is_none();
        if !is_first && owned.is_none() && watched.is_none() {
            break;
        }
        if node.leaving.is_cancelled() {
            return Ok(());
        }
        let (owned, watched) = (owned.unwrap_or_default(), watched.unwrap_or_default());
        let leases: Vec<HeldRoom> = owned.iter().map(|(room, _)| room.clone()).collect();
        let fields = if is_first { fields.as_slice() } else { &[] };
        // A lease lasts from before its renewal is sent, so that it never claims more than Redis granted.
        let sent = Moment::now();
        let store = &node.store;
        let with = Heartbeat {
            me: &store.me,
            owner_ttl: store.owner_ttl,
            fields,
            history: &memory.history,
            owned: &leases,
            in_all: rooms.len(),
            watched,
        };
        match store.timed("heartbeat", store.lifeline.heartbeat(&store.keys, with)).await? {
            Beat::Ok { now, history: told, owned: reports, watched: stands } => {
                history.get_or_insert(told);
                node.redis_clock.heard(now.as_u64(), Moment::now().since(sent));
                for ((_, held), report) in owned.iter().zip(reports) {
                    memory.note(held.handle.id(), report, report_to(held, report, sent));
                }
                for (room, stands) in watched.iter().zip(stands) {
                    node.watches.repair(node, room, stands).await;
                }
            }
            Beat::Superseded { .. } => {
                node.fail(&Fatal::Superseded);
                return Ok(());
            }
        }
    }
    // What the first chunk was told: where another history began since, all rooms are looked at by the next beat.
    memory.history = history.unwrap_or_default();
    node.store_answered(true);
    tokio::spawn(publish_canary(Arc::clone(node)));
    Ok(())
}

/// Over the connection that everything else goes over: the heartbeat's own proves nothing of that one.
async fn publish_canary(node: Arc<Node>) {
    let number = node.canary.next(Moment::now());
    let channel = node.store.keys.channel(ChannelKind::Canary, &node.store.me).to_string();
    if let Err(error) = node.store.scripts.client().publish::<(), _, _>(channel, number.to_string()).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "the canary was not published");
    }
}

fn held_rooms(node: &Node, memory: &mut Memory) -> Vec<(HeldRoom, Held)> {
    let (now, patience) = (Moment::now(), HUNG_TTLS * node.store.owner_ttl);
    let mut actors = HashSet::new();
    let mut rooms: Vec<(HeldRoom, Held)> = node
        .rooms
        .all()
        .into_iter()
        .filter_map(|(room, handle)| {
            let (token, term) = handle.standing().held()?;
            actors.insert(handle.id());
            if !memory.pulses.lives(handle.id(), handle.standing().turns(), now, patience) {
                node.metrics.hung_rooms.inc();
                tracing::error!(%room, "the room's actor hangs; its lease is not renewed");
                return None;
            }
            let known = handle.standing().versions();
            let held = Held { room: room.clone(), handle, term, known };
            Some((HeldRoom { room, token, look: Look::IfMarked, heard: None }, held))
        })
        .collect();
    memory.forget_others(&actors);
    let turns = rooms.len().div_ceil(CHECKED).max(1) as u64;
    // If this beat is not answered, Redis tells the same marks again.
    let mut heard = std::mem::take(&mut memory.heard);
    for (room, held) in &mut rooms {
        room.look = memory.look(held.handle.id(), turns);
        room.heard = heard.remove(&held.handle.id());
    }
    rooms
}

/// Tells the actor, and says what is to be looked at again by the next beat.
fn report_to(held: &Held, report: OwnedReport, sent: Moment) -> Option<Look> {
    let (work, again) = match report {
        OwnedReport::Held => {
            held.term.renewed(sent);
            return None;
        }
        OwnedReport::StandsAt { sv, cv, inbox, .. } => {
            held.term.renewed(sent);
            if inbox > 0 && held.handle.tell(Work::Inbox).is_err() {
                tracing::debug!(room = %held.room, "the room is too busy for its inbox");
            }
            let stands = (sv.as_u64(), cv.as_u64());
            let now = held.handle.standing().versions();
            // Ahead of what memory has now: something was missed. Behind what it had before: data was lost.
            let is_ahead = stands.0 > now.0 || stands.1 > now.1;
            let is_behind = stands.0 < held.known.0 || stands.1 < held.known.1;
            if !is_ahead && !is_behind {
                return (inbox > 0).then_some(Look::Versions);
            }
            (Work::StandsAt { sv: stands.0, cv: stands.1 }, Look::Versions)
        }
        OwnedReport::Damaged => {
            held.term.renewed(sent);
            (Work::Damaged, Look::Whole)
        }
        OwnedReport::Unowned | OwnedReport::Taken => (Work::LeaseGone, Look::Versions),
    };
    if held.handle.tell(work).is_err() {
        tracing::debug!(room = %held.room, "the room is too busy to be told, or gone");
    }
    Some(again)
}

/// Notes who is connected, for the rooms of this instance, until the instance ends.
pub async fn touch(node: Arc<Node>) {
    let shortest = node.config.apps.iter().map(|app| app.heartbeat).min();
    let mut every = tokio::time::interval(shortest.unwrap_or(Duration::from_secs(10)));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = node.ending.cancelled() => return,
            _ = every.tick() => {}
        }
        let rooms = node.rooms.all();
        let (to, mut present) = mpsc::channel(rooms.len().max(1));
        for (_, handle) in rooms {
            // A room whose mailbox is full is not touched this time; its people are touched the next.
            _ = handle.tell(Work::Present(to.clone()));
        }
        drop(to);
        let deadline = crate::clock::instant() + node.config.lease.heartbeat;
        let mut chunk: Vec<Present> = Vec::new();
        let mut users = 0;
        while let Ok(Some(next)) = tokio::time::timeout_at(deadline, present.recv()).await {
            if users + next.users.len() > TOUCHED {
                send_touch(&node, &std::mem::take(&mut chunk)).await;
                users = 0;
            }
            users += next.users.len();
            chunk.push(next);
        }
        send_touch(&node, &chunk).await;
    }
}

async fn send_touch(node: &Node, chunk: &[Present]) {
    let store = &node.store;
    let horizon = node.config.apps.iter().map(App::people_horizon).max().unwrap_or_default();
    for present in chunk {
        for part in present.users.chunks(TOUCHED) {
            let users: Vec<&str> = part.iter().map(|user| &**user).collect();
            let touch = [Touch { room: &present.room, token: present.token, users: &users }];
            if part.len() == TOUCHED
                && store.scripts.touch(&store.keys, &store.me, horizon, &touch).await.is_err()
            {
                return;
            }
        }
    }
    let rest: Vec<(&Present, Vec<&str>)> = chunk
        .iter()
        .map(|present| {
            let whole = present.users.len() / TOUCHED * TOUCHED;
            (present, present.users[whole..].iter().map(|user| &**user).collect())
        })
        .filter(|(_, users): &(_, Vec<&str>)| !users.is_empty())
        .collect();
    let touches: Vec<Touch<'_>> = rest
        .iter()
        .map(|(present, users)| Touch { room: &present.room, token: present.token, users })
        .collect();
    if touches.is_empty() {
        return;
    }
    if let Err(error) =
        store.timed("touch", store.scripts.touch(&store.keys, &store.me, horizon, &touches)).await
    {
        tracing::debug!(error = &error as &dyn std::error::Error, "touch");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_that_stands_still_is_not_renewed() {
        let at = |ms| Moment::from_parts(ms, ms);
        let patience = Duration::from_secs(30);
        let mut pulses = Pulses::default();
        assert!(pulses.lives(1, 5, at(0), patience));
        assert!(pulses.lives(1, 5, at(29_000), patience));
        assert!(!pulses.lives(1, 5, at(30_000), patience), "hung");
        assert!(pulses.lives(1, 6, at(31_000), patience), "it came round after all");
        pulses.forget_others(&HashSet::from([2]));
        assert!(pulses.0.is_empty());
    }

    #[test]
    fn each_room_has_its_turn_and_one_with_news_is_looked_at_until_it_has_none() {
        let mut memory = Memory { turn: 4, ..Memory::default() };
        let looks = |memory: &Memory| (0..3).map(|actor| memory.look(actor, 3)).collect::<Vec<_>>();
        assert_eq!(looks(&memory), [Look::IfMarked, Look::Whole, Look::IfMarked]);
        let mark = RedisMillis::new(7);
        let stands_at = |mark| {
            let (sv, cv) = (redis_scripts::SettingsVersion::new(1), redis_scripts::CellVersion::new(1));
            OwnedReport::StandsAt { sv, cv, inbox: 0, mark }
        };
        memory.note(0, stands_at(Some(mark)), Some(Look::Versions));
        assert!(memory.heard.is_empty(), "there is something left to do");
        memory.turn += 1;
        assert_eq!(looks(&memory), [Look::Versions, Look::IfMarked, Look::Whole]);
        memory.note(0, stands_at(Some(mark)), None);
        assert_eq!(memory.heard, HashMap::from([(0, mark)]));
        assert_eq!(memory.look(0, 3), Look::IfMarked);
        memory.note(2, OwnedReport::Damaged, Some(Look::Whole));
        memory.forget_others(&HashSet::from([0]));
        assert!(memory.again.is_empty(), "its actor has ended");
    }
}
