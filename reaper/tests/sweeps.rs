//! Real servers, several candidates, instances that die.

use e2e::servers::{Flavor, Fsync, RedisServer, ServerOptions};
use e2e::wait::{SOON, until};
use fred::clients::SubscriberClient;
use fred::interfaces::{ClientLike, EventInterface, PubsubInterface};
use fred::types::config::Config;
use fred::types::{Builder, Message};
use key_prefix::{AppCode, ChannelKind, Instance, InstanceName, Keys, Prefix, RoomId, RoomKey};
use reaper::{Cause, Event, LEASE, Reaper, Timing};
use redis_scripts::{
    Birth, CellChanges, CellVersion, FenceToken, Pin, Register, Registered, Scripts, SettingsVersion,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::broadcast::Receiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const TIMING: Timing = Timing {
    interval: Duration::from_millis(100),
    failover_wait: Duration::from_millis(600),
    owner_ttl: Duration::from_millis(300),
    room_life: Duration::from_secs(3600),
};
const APP: &str = "school";

/// Runs each check on both servers.
macro_rules! on_both {
    ($(async fn $name:ident($world:ident: &mut World) $body:block)*) => {$(
        #[cfg(test)]
        mod $name {
            use super::*;

            async fn check($world: &mut World) $body

            #[tokio::test]
            async fn redis() {
                check(&mut World::start(Flavor::Redis).await).await;
            }

            #[tokio::test]
            async fn valkey() {
                check(&mut World::start(Flavor::Valkey).await).await;
            }
        }
    )*};
}

struct World {
    server: RedisServer,
    scripts: Scripts,
    keys: Keys,
}

struct Candidate {
    me: Instance,
    events: Arc<Mutex<Vec<Event>>>,
    disturb: watch::Sender<u64>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Candidate {
    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has(&self, fits: impl Fn(&Event) -> bool) -> bool {
        self.events().iter().any(fits)
    }

    async fn comes(&self, what: &str, fits: impl Fn(&Event) -> bool) {
        until(what, SOON, || async { self.has(&fits) }).await;
    }

    /// The token of the term that it is in.
    fn leads(&self) -> Option<FenceToken> {
        self.events().iter().rev().find_map(|event| match event {
            Event::Elected { token } => Some(Some(*token)),
            Event::Deposed { .. } => Some(None),
            _ => None,
        })?
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.expect("a reaper does not panic");
    }
}

impl World {
    async fn start(flavor: Flavor) -> Self {
        let server = ServerOptions::new(flavor).aof(Some(Fsync::Always)).start().await;
        let scripts = Scripts::new(server.client().await);
        Self { server, scripts, keys: Keys::new(Prefix::parse("dev/reaper").expect("a good prefix")) }
    }

    async fn register(&self, name: &str) -> Instance {
        let name = InstanceName::new(name).expect("a good name");
        let owner_ttl = Duration::from_secs(15);
        let with = Register { name: &name, address: "here:1", owner_ttl, fields: &[] };
        match self.scripts.register(&self.keys, with).await.expect("an answer") {
            Registered::Ok { instance, .. } => instance,
            held => panic!("{held:?}"),
        }
    }

    async fn candidate(&self, name: &str) -> Candidate {
        let me = self.register(name).await;
        let events = Arc::new(Mutex::new(Vec::new()));
        let (disturb, disturbances) = watch::channel(0);
        let started = Instant::now();
        let shutdown = CancellationToken::new();
        let heard = Arc::clone(&events);
        let reaper = Reaper {
            scripts: Scripts::new(self.server.client().await),
            keys: self.keys.clone(),
            me: me.clone(),
            apps: vec![AppCode::new(APP).expect("a good app")],
            timing: TIMING,
            clock: Arc::new(move || started.elapsed()),
            disturbances,
            events: Arc::new(move |event| heard.lock().unwrap_or_else(PoisonError::into_inner).push(event)),
        };
        let task = tokio::spawn(reaper::run(reaper, shutdown.clone()));
        Candidate { me, events, disturb, shutdown, task }
    }

    async fn pin(&self, me: &Instance, room: &RoomKey) {
        let changes =
            CellChanges { peers_set: vec![("p", "{}")], users_in: vec!["ann"], ..CellChanges::default() };
        let with = Pin {
            me,
            room,
            owner_ttl: Duration::from_secs(600),
            floor: FenceToken::default(),
            renew: true,
            birth: Some(Birth {
                settings: &[],
                changes: &changes,
                commands: &[],
                due: None,
                entry: "",
                sv: SettingsVersion::new(1),
                cv: CellVersion::new(0),
                lane_limit: u64::MAX,
            }),
            open_only: false,
            deadline: None,
        };
        self.scripts.pin(&self.keys, with).await.expect("pinned");
    }

    async fn redis(&self, arguments: &[&str]) -> e2e::resp::Value {
        self.server.command(arguments).await
    }

    async fn exists(&self, key: &key_prefix::Key) -> bool {
        self.redis(&["EXISTS", &key.to_string()]).await.number() == Some(1)
    }

    /// Makes the room due, long ago.
    async fn falls_due(&self, room: &RoomKey) {
        self.redis(&["ZADD", &self.keys.due().to_string(), "1", room.route()]).await;
    }

    /// What `instance` is told on its sync channel.
    async fn sync_channel(&self, instance: &Instance) -> (SubscriberClient, Receiver<Message>) {
        let config = Config::from_url(&self.server.url()).expect("a good URL");
        let client = Builder::from_config(config).build_subscriber_client().expect("a good configuration");
        client.init().await.expect("a running server");
        let messages = client.message_rx();
        let channel = self.keys.channel(ChannelKind::Sync, instance).to_string();
        client.subscribe(channel).await.expect("a subscription");
        (client, messages)
    }

    /// A heartbeat of `instance`.
    async fn beat(&self, instance: &Instance, score: u64) {
        self.redis(&["ZADD", &self.keys.instances().to_string(), &score.to_string(), instance.as_str()])
            .await;
    }
}

fn room(id: &str) -> RoomKey {
    RoomKey::new(AppCode::new(APP).expect("a good app"), RoomId::new(id).expect("a good room"))
}

fn reaped(instance: &Instance) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Reaped { instance: dead, .. } if dead == instance)
}

on_both! {
    async fn the_dead_are_cleared_and_their_peers_stay(world: &mut World) {
        let dead = world.register("dead").await;
        let rooms: Vec<_> = (0..250).map(|n| room(&format!("r{n}"))).collect();
        for room in &rooms {
            world.pin(&dead, room).await;
        }
        world.scripts.watch(&world.keys, &dead, &rooms[0]).await.unwrap();
        let leader = world.candidate("leader").await;
        leader.comes("the dead instance is cleared", reaped(&dead)).await;
        assert!(leader.has(|event| matches!(event, Event::Reaped { rooms: 250, watches: 1, .. })), "in three chunks");
        for room in &rooms {
            let names = world.keys.room(room);
            assert!(!world.exists(&names.owner).await && world.exists(&names.peers).await);
        }
        assert!(!leader.has(reaped(&leader.me)), "nobody reaps itself");
        leader.stop().await;
        assert!(!world.exists(&world.keys.lease(LEASE)).await, "given up at the end");
    }

    async fn who_beats_is_left_alone(world: &mut World) {
        let (alive, dead) = (world.register("alive").await, world.register("dead").await);
        let (kept, cleared) = (room("kept"), room("cleared"));
        world.pin(&alive, &kept).await;
        world.pin(&dead, &cleared).await;
        let leader = world.candidate("leader").await;
        let scores = std::cell::Cell::new(1);
        until("the dead one is cleared", SOON, || async {
            scores.set(scores.get() + 1);
            world.beat(&alive, scores.get()).await;
            leader.has(reaped(&dead))
        })
        .await;
        assert!(!leader.has(reaped(&alive)));
        assert!(world.exists(&world.keys.room(&kept).owner).await);
        leader.stop().await;
    }

    async fn when_the_leader_goes_another_takes_over(world: &mut World) {
        let first = world.candidate("first").await;
        first.comes("an election", |event| matches!(event, Event::Elected { .. })).await;
        let second = world.candidate("second").await;
        let token = first.leads().expect("elected");
        // Without a goodbye, as a killed process: the lease ends by itself.
        first.task.abort();
        second.comes("another election", |event| matches!(event, Event::Elected { token: newer } if *newer > token)).await;
        second.stop().await;

        let third = world.candidate("third").await;
        third.comes("a third election", |event| matches!(event, Event::Elected { .. })).await;
        third.stop().await;
    }

    async fn i_18_a_superseded_leader_clears_nothing(world: &mut World) {
        let leader = world.candidate("leader").await;
        leader.comes("an election", |event| matches!(event, Event::Elected { .. })).await;
        let token = leader.leads().expect("elected");
        // What a pause longer than the lease comes to: the lease is another's when the leader goes on.
        let usurper = world.register("usurper").await;
        let newer = token.as_u64() + 1;
        world.redis(&["SET", &world.keys.lease(LEASE).to_string(), &format!("{usurper} {newer}")]).await;
        let dead = world.register("dead").await;
        let cleared = room("r");
        world.pin(&dead, &cleared).await;
        leader.comes("the end of the term", |event| matches!(event, Event::Deposed { .. })).await;
        assert_eq!(leader.leads(), None);
        let before = leader.events().len();
        // Longer than it would have taken a leader to find the dead one.
        until("a failover wait is over", SOON, {
            let started = Instant::now();
            move || async move { started.elapsed() > 2 * TIMING.failover_wait }
        })
        .await;
        assert_eq!(leader.events().len(), before, "it does nothing at all");
        assert!(world.exists(&world.keys.room(&cleared).owner).await);
        leader.stop().await;
        let held = world.redis(&["GET", &world.keys.lease(LEASE).to_string()]).await.text();
        assert_eq!(held, format!("{usurper} {newer}"), "it gives up nothing that is another's");
    }

    async fn i_23_losing_redis_ends_nothing_and_the_observer_counts_anew(world: &mut World) {
        let dead = world.register("dead").await;
        world.pin(&dead, &room("r")).await;
        let leader = world.candidate("leader").await;
        leader.comes("an election", |event| matches!(event, Event::Elected { .. })).await;
        world.server.kill().await;
        leader.comes("an outage", |event| *event == Event::Unavailable).await;
        world.server.restart().await;
        leader.comes("the dead one is cleared all the same", reaped(&dead)).await;
        leader.stop().await;
    }

    async fn who_is_told_of_a_disturbance_counts_anew(world: &mut World) {
        let leader = world.candidate("leader").await;
        leader.comes("an election", |event| matches!(event, Event::Elected { .. })).await;
        leader.comes("a round", |event| matches!(event, Event::Swept { .. })).await;
        leader.disturb.send_modify(|count| *count += 1);
        leader.comes("a disturbance", |event| *event == Event::Disturbed { cause: Cause::Told }).await;
        leader.stop().await;
    }

    async fn i_17_rooms_that_nobody_owns_get_an_end_and_leave_the_index(world: &mut World) {
        let owner = world.register("owner").await;
        let (unowned, gone) = (room("unowned"), room("gone"));
        for room in [&unowned, &gone] {
            world.pin(&owner, room).await;
            world.redis(&["DEL", &world.keys.room(room).owner.to_string()]).await;
        }
        world.redis(&["DEL", &world.keys.room(&gone).room.to_string()]).await;
        let leader = world.candidate("leader").await;
        leader.comes("a sweep", |event| matches!(event, Event::Swept { ended: 1, dropped: 1, .. })).await;
        let left = world.redis(&["PTTL", &world.keys.room(&unowned).room.to_string()]).await.number();
        assert!(left.is_some_and(|left| left > 0));
        leader.stop().await;
    }

    async fn a_due_room_without_an_owner_is_offered_until_somebody_adopts_it(world: &mut World) {
        let (owner, idle) = (world.register("owner").await, world.register("idle").await);
        let (unowned, owned) = (room("unowned"), room("owned"));
        for room in [&unowned, &owned] {
            world.pin(&owner, room).await;
            world.falls_due(room).await;
        }
        world.redis(&["DEL", &world.keys.room(&unowned).owner.to_string()]).await;
        world.redis(&["HSET", &world.keys.instance(&idle).to_string(), "roles", "callbacks,signaling"]).await;
        world.redis(&["HSET", &world.keys.instance(&owner).to_string(), "roles", "signaling", "draining", "1"]).await;
        let (_hears, mut told) = world.sync_channel(&idle).await;
        let (_hears_too, mut told_not) = world.sync_channel(&owner).await;
        let leader = world.candidate("leader").await;
        let scores = std::cell::Cell::new(u64::pow(2, 50));
        for round in 1..=2 {
            until("an offer", SOON, || async {
                // It lives, by a clock that is ahead.
                scores.set(scores.get() + 1);
                world.beat(&idle, scores.get()).await;
                leader.events().iter().filter(|it| **it == Event::Offered { rooms: 1 }).count() >= round
            })
            .await;
            let message = told.recv().await.unwrap().value.as_str().unwrap().into_owned();
            assert_eq!(message, r#"{"room":"school\u0000unowned","adopt":true}"#);
        }
        assert!(!leader.has(|event| matches!(event, Event::Offered { rooms } if *rooms != 1)), "one is owned");
        assert!(told_not.try_recv().is_err(), "who drains is offered nothing");

        world.pin(&idle, &unowned).await;
        world.falls_due(&unowned).await;
        let looked_at = || async {
            let due = world.redis(&["ZSCORE", &world.keys.due().to_string(), unowned.route()]).await;
            due.number().is_some_and(|due| due > 1)
        };
        let before = leader.events().iter().filter(|it| matches!(it, Event::Offered { .. })).count();
        until("the room is looked at", SOON, looked_at).await;
        let after = leader.events().iter().filter(|it| matches!(it, Event::Offered { .. })).count();
        assert_eq!(after, before, "it has an owner");
        leader.stop().await;
    }

    async fn i_18_a_superseded_leader_offers_nothing(world: &mut World) {
        let leader = world.candidate("leader").await;
        leader.comes("an election", |event| matches!(event, Event::Elected { .. })).await;
        let usurper = world.register("usurper").await;
        world.redis(&["SET", &world.keys.lease(LEASE).to_string(), &format!("{usurper} 99999999999999")]).await;
        let (taker, due) = (world.register("taker").await, room("due"));
        world.redis(&["HSET", &world.keys.instance(&taker).to_string(), "roles", "signaling"]).await;
        world.pin(&taker, &due).await;
        world.redis(&["DEL", &world.keys.room(&due).owner.to_string()]).await;
        world.falls_due(&due).await;
        leader.comes("the end of the term", |event| matches!(event, Event::Deposed { .. })).await;
        leader.stop().await;
        let score = world.redis(&["ZSCORE", &world.keys.due().to_string(), due.route()]).await;
        assert_eq!(score.number(), Some(1), "nobody looked at it");
    }

    async fn a_dry_run_lists_and_clears_nothing(world: &mut World) {
        let (quiet, alive) = (world.register("quiet").await, world.register("alive").await);
        world.pin(&quiet, &room("r")).await;
        world.beat(&quiet, 1_000).await;
        let wait = Duration::from_secs(25);
        for _twice in 0..2 {
            let findings = reaper::dry_run(&world.scripts, &world.keys, wait).await.unwrap();
            assert_eq!(findings.len(), 1);
            assert_eq!((&findings[0].instance, findings[0].remains.rooms), (&quiet, 1));
            assert!(findings[0].quiet > wait);
        }
        assert_ne!(alive, quiet);
        assert!(world.exists(&world.keys.room(&room("r")).owner).await);
    }
}
