//! The heartbeat: renews the instance and every lease, and repairs what was missed since the last one.

use fred::clients::SubscriberClient;
use fred::interfaces::{ClientLike as _, PubsubInterface as _};
use key_prefix::{ChannelKind, RoomKey};
use redis_scripts::{Beat, Heartbeat, HeldRoom, OwnedReport, ScriptError, Touch};
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
/// Rooms of one beat whose sizes are compared; the rest has its turn at the next ones.
const CHECKED: usize = 1_000;
/// An actor that has not come round for so many lives of an owner key hangs: its lease is not renewed.
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
    let mut turn = 0;
    let mut pulses = Pulses::default();
    loop {
        tokio::select! {
            () = node.ending.cancelled() => return,
            () = node.leaving.cancelled() => return,
            _ = every.tick() => {}
        }
        follow(&node, &subscriber);
        loop {
            match beat(&node, turn, &mut pulses).await {
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
        turn += 1;
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

async fn beat(node: &Arc<Node>, turn: usize, pulses: &mut Pulses) -> Result<(), ScriptError> {
    let rooms: Vec<(HeldRoom, Held)> = held_rooms(node, turn, pulses);
    let watched = node.watches.rooms();
    let mut fields = register::record(&node.config, &node.public_url);
    fields.push(("address", node.address.clone()));
    fields.push(("draining", u8::from(node.is_draining()).to_string()));
    let mut owned_chunks = rooms.chunks(CHUNK);
    let mut watched_chunks = watched.chunks(CHUNK);
    let mut is_first = true;
    loop {
        let (owned, watched) = (owned_chunks.next(), watched_chunks.next());
        if !is_first && owned.is_none() && watched.is_none() {
            break;
        }
        let (owned, watched) = (owned.unwrap_or_default(), watched.unwrap_or_default());
        let leases: Vec<HeldRoom> = owned.iter().map(|(room, _)| room.clone()).collect();
        let fields = if is_first { fields.as_slice() } else { &[] };
        is_first = false;
        // A lease lasts from before its renewal is sent, so that it never claims more than Redis granted.
        let sent = Moment::now();
        let store = &node.store;
        let with = Heartbeat { me: &store.me, owner_ttl: store.owner_ttl, fields, owned: &leases, watched };
        match store.timed("heartbeat", store.scripts.heartbeat(&store.keys, with)).await? {
            Beat::Ok { now, owned: reports, watched: stands } => {
                node.redis_clock.heard(now.as_u64(), Moment::now().since(sent));
                for ((_, held), report) in owned.iter().zip(reports) {
                    report_to(held, report, sent);
                }
                for (room, stands) in watched.iter().zip(stands) {
                    node.watches.repair(node, room, stands).await;
                }
            }
            Beat::Superseded { .. } => node.fail(&Fatal::Superseded),
        }
    }
    node.store_answered(true);
    let number = node.canary.next(Moment::now());
    let channel = node.store.keys.channel(ChannelKind::Canary, &node.store.me).to_string();
    if let Err(error) = node.store.scripts.client().publish::<(), _, _>(channel, number.to_string()).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "the canary was not published");
    }
    Ok(())
}

fn held_rooms(node: &Node, turn: usize, pulses: &mut Pulses) -> Vec<(HeldRoom, Held)> {
    let (now, patience) = (Moment::now(), HUNG_TTLS * node.store.owner_ttl);
    let mut actors = HashSet::new();
    let mut rooms: Vec<(HeldRoom, Held)> = node
        .rooms
        .all()
        .into_iter()
        .filter_map(|(room, handle)| {
            let (token, term) = handle.standing().held()?;
            actors.insert(handle.id());
            // An idle actor comes round because it is asked to; a full mailbox needs no asking.
            _ = handle.tell(Work::Pulse);
            if !pulses.lives(handle.id(), handle.standing().turns(), now, patience) {
                node.metrics.hung_rooms.inc();
                tracing::error!(%room, "the room's actor hangs; its lease is not renewed");
                return None;
            }
            let known = handle.standing().versions();
            let held = Held { room: room.clone(), handle, term, known };
            Some((HeldRoom { room, token, check: false }, held))
        })
        .collect();
    pulses.forget_others(&actors);
    let turns = rooms.len().div_ceil(CHECKED).max(1);
    for (n, (room, _)) in rooms.iter_mut().enumerate() {
        room.check = n % turns == turn % turns;
    }
    rooms
}

fn report_to(held: &Held, report: OwnedReport, sent: Moment) {
    let work = match report {
        OwnedReport::Held { sv, cv, inbox } => {
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
                return;
            }
            Work::StandsAt { sv: stands.0, cv: stands.1 }
        }
        OwnedReport::Damaged => {
            held.term.renewed(sent);
            Work::Damaged
        }
        OwnedReport::Unowned | OwnedReport::Taken => Work::LeaseGone,
    };
    if held.handle.tell(work).is_err() {
        tracing::debug!(room = %held.room, "the room is too busy to be told, or gone");
    }
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
}
