//! The heartbeat: renews the instance and every lease, and repairs what was missed since the last one.

use fred::interfaces::PubsubInterface as _;
use key_prefix::{ChannelKind, RoomKey};
use redis_scripts::{Beat, Heartbeat, HeldRoom, OwnedReport, ScriptError, Touch};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::{Fatal, Node, register};
use crate::clock::Moment;
use crate::room::lease::LeaseTerm;
use crate::room::work::{Present, RoomHandle, Work};

/// Leases renewed in one call.
const CHUNK: usize = 500;
/// Rooms of one beat whose sizes are compared; the rest has its turn at the next ones.
const CHECKED: usize = 1_000;
/// Users in one `touch` call.
const TOUCHED: usize = 2_000;

struct Held {
    room: RoomKey,
    handle: RoomHandle,
    term: Arc<LeaseTerm>,
    known: (u64, u64),
}

/// Beats until the instance ends.
pub async fn run(node: Arc<Node>) {
    let lease = &node.config.lease;
    let mut every = tokio::time::interval(lease.heartbeat);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut turn = 0;
    loop {
        tokio::select! {
            () = node.ending.cancelled() => return,
            () = node.leaving.cancelled() => return,
            _ = every.tick() => {}
        }
        loop {
            match beat(&node, turn).await {
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
                        () = tokio::time::sleep(lease.retry_pause()) => {}
                    }
                }
            }
        }
        turn += 1;
        node.metrics.ready.set(i64::from(node.readiness().is_ok()));
    }
}

async fn beat(node: &Arc<Node>, turn: usize) -> Result<(), ScriptError> {
    let rooms: Vec<(HeldRoom, Held)> = held_rooms(node, turn);
    let watched = node.watches.rooms();
    let mut fields = register::record(&node.config, &node.public_url);
    fields.push(("address", node.address.clone()));
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
                node.redis_clock.heard(now.as_u64());
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

fn held_rooms(node: &Node, turn: usize) -> Vec<(HeldRoom, Held)> {
    let mut rooms: Vec<(HeldRoom, Held)> = node
        .rooms
        .all()
        .into_iter()
        .filter_map(|(room, handle)| {
            let (token, term) = handle.standing().held()?;
            let known = handle.standing().versions();
            let held = Held { room: room.clone(), handle, term, known };
            Some((HeldRoom { room, token, check: false }, held))
        })
        .collect();
    let turns = rooms.len().div_ceil(CHECKED).max(1);
    for (n, (room, _)) in rooms.iter_mut().enumerate() {
        room.check = n % turns == turn % turns;
    }
    rooms
}

fn report_to(held: &Held, report: OwnedReport, sent: Moment) {
    let work = match report {
        OwnedReport::Held { sv, cv } => {
            held.term.renewed(sent);
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
    for present in chunk {
        for part in present.users.chunks(TOUCHED) {
            let users: Vec<&str> = part.iter().map(|user| &**user).collect();
            let touch = [Touch { room: &present.room, token: present.token, users: &users }];
            if part.len() == TOUCHED && store.scripts.touch(&store.keys, &store.me, &touch).await.is_err() {
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
    if let Err(error) = store.timed("touch", store.scripts.touch(&store.keys, &store.me, &touches)).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "touch");
    }
}
