//! A key that holds another type than the table says: every script refuses before its first write.

use e2e::servers::Flavor;
use key_prefix::{Instance, InstanceName, Key, RedisType, RouterName, lane_lease};
use redis_scripts::{
    Acknowledged, ArchivedLane, CellChanges, CellVersion, Commit, Committing, DueRooms, Enqueue, EventAppend,
    FenceToken, GuestUpdate, Heartbeat, HeldLane, HeldRoom, HoldLanes, Keep, LevelsTo, Look, Notify, Offer,
    Reap, RedisMillis, Register, Release, Restore, SCRIPTS, ScriptError, SessionOpen, SettingsUpdate,
    SettingsVersion, Sweep, Touch,
};
use std::time::Duration;

use crate::world::{APP, HORIZON, NO_LIMIT, OWNER_TTL, World, token_of};

const LEASE: &str = "reaper";
const LANE: u16 = 3;
const LIFE: Duration = Duration::from_secs(60);
const COMMAND: Keep<'static> = Keep { caller: "ann", id: "c1", digest: "d1" };
const EVENT: &str = "e1";

fn router() -> RouterName {
    RouterName::new("abc234").expect("a good name")
}

/// A room of `a` with one peer, watched by `b`, with work of `b` in its inbox; `a` leads the reaper, and holds a
/// lane with an entry.
struct Scene {
    a: Instance,
    b: Instance,
    token: FenceToken,
    lease: FenceToken,
    lane: HeldLane,
}

/// `pin` of a room that is not there.
const BIRTH: &str = "pin that makes the room";

impl Scene {
    async fn set(world: &World) -> Self {
        world.redis(&["FLUSHALL"]).await;
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = token_of(&world.pin_seated(&a).await.expect("pinned"));
        world.scripts.watch(&world.keys, &b, &world.room).await.expect("watched");
        world.scripts.enqueue(&world.keys, world.enqueue(&b, 10)).await.expect("appended");
        world.redis(&["XADD", &world.keys.lane_at(LANE).to_string(), "*", "entry", "{}"]).await;
        let mut leases = Vec::new();
        for name in [LEASE, &lane_lease(LANE)] {
            let led = world.scripts.lease_acquire(&world.keys, name, &a, LIFE).await.expect("an answer");
            let redis_scripts::Acquired::Ok { token, .. } = led else { panic!("{led:?}") };
            leases.push(token);
        }
        Self { a, b, token, lease: leases[0], lane: HeldLane { lane: LANE, token: leases[1] } }
    }

    async fn set_for(world: &World, script: &str) -> Self {
        let scene = Self::set(world).await;
        if script == BIRTH {
            world.redis(&["DEL", &world.names.room.to_string()]).await;
        }
        scene
    }

    /// The keys whose type a script must look at. Left out are those that it only gives an end or deletes,
    /// which is right for any type, and those of single rooms in `heartbeat` and `reap`, of single users in the
    /// scripts for sessions, and of single lanes in those for several, which are passed over; and an instance's marks,
    /// without which its rooms are looked at all the same.
    fn keys(&self, world: &World, script: &str) -> Vec<Key> {
        let (keys, room) = (&world.keys, world.names.clone());
        let incarnation = keys.incarnation_of(&self.a);
        match script {
            "register" => vec![keys.instances(), incarnation],
            "deregister" => vec![keys.instances(), keys.instance(&self.a)],
            "heartbeat" => vec![
                keys.instances(),
                incarnation,
                keys.instance(&self.a),
                keys.instance_rooms(&self.a),
                keys.instance_watches(&self.a),
            ],
            "pin" => vec![
                incarnation,
                keys.instance_rooms(&self.a),
                room.owner,
                room.fence,
                room.room,
                room.settings,
                room.guests,
                room.peers,
                room.presence,
                room.cell,
                room.watchers,
                room.rooms,
                room.inbox,
            ],
            BIRTH => vec![
                incarnation,
                keys.instance_rooms(&self.a),
                room.owner,
                room.fence,
                room.watchers,
                room.rooms,
                room.lane,
                room.inbox,
                keys.due(),
            ],
            "commit" => vec![
                incarnation,
                room.owner,
                room.room,
                room.cell,
                room.peers,
                room.presence,
                room.watchers,
                room.lane,
                room.inbox,
                room.aside,
                keys.due(),
                keys.answer(&world.room, COMMAND.caller, COMMAND.id),
            ],
            "enqueue" => vec![
                room.room,
                room.owner,
                room.inbox,
                keys.due(),
                keys.answer(&world.room, COMMAND.caller, COMMAND.id),
            ],
            "report" => {
                vec![room.room, room.owner, room.inbox, keys.due(), keys.seen(&world.room, EVENT)]
            }
            "levels" => vec![room.owner, room.watchers],
            "router_claim" | "router_find" => vec![keys.router(&router())],
            "inbox_read" => vec![room.inbox],
            "answer" => vec![keys.answer(&world.room, COMMAND.caller, COMMAND.id)],
            // Whatever is there stays.
            "answers_restore" => vec![],
            "timeline" => vec![room.lane],
            "event_append" => vec![keys.events(APP)],
            "due" => vec![keys.lease(LEASE), keys.due(), keys.instances()],
            "offer" => vec![keys.lease(LEASE)],
            "sessions_open" | "sessions_close" | "sessions_touch" => vec![],
            "sessions_of" => vec![keys.instances(), keys.sessions(APP, "ann")],
            "notify" => vec![keys.instances()],
            "touch" => vec![incarnation, keys.due(), room.owner, room.presence],
            "release" => vec![
                keys.instance_rooms(&self.a),
                room.owner,
                room.room,
                room.peers,
                room.presence,
                room.inbox,
                keys.due(),
            ],
            "restore" => vec![incarnation, room.owner, room.room, room.rooms, keys.due(), room.lane],
            "settings_update" => {
                vec![room.room, room.settings, room.owner, room.watchers, room.fence, room.cell, room.lane]
            }
            "guest_update" => vec![
                room.room,
                room.guests,
                room.presence,
                room.owner,
                room.watchers,
                room.fence,
                room.cell,
                room.lane,
            ],
            "read" => {
                vec![room.room, room.settings, room.guests, room.peers, room.presence, room.cell, room.owner]
            }
            "watch" => vec![
                room.watchers,
                keys.instance_watches(&self.b),
                room.room,
                room.settings,
                room.guests,
                room.peers,
                room.presence,
                room.cell,
                room.owner,
            ],
            "unwatch" => vec![room.watchers, keys.instance_watches(&self.b)],
            "lease_acquire" => vec![keys.lease(LEASE), keys.lease_fence(LEASE)],
            "lease_renew" | "lease_release" => vec![keys.lease(LEASE)],
            "lanes_hold" => vec![keys.instances()],
            "lanes_read" => vec![],
            "lanes_archived" => vec![keys.checkpoints()],
            "lanes_kept" => vec![keys.lane_kept(LANE), keys.checkpoints()],
            "facts" => vec![keys.facts()],
            "instances" => vec![keys.instances()],
            "remains" => vec![keys.instance_rooms(&self.a), keys.instance_watches(&self.b)],
            "reap" => vec![
                keys.lease(LEASE),
                keys.instances(),
                keys.instance(&self.b),
                keys.instance_rooms(&self.b),
                keys.instance_watches(&self.b),
                keys.due(),
            ],
            "sweep" => vec![keys.lease(LEASE), room.rooms],
            unknown => panic!("what are the keys of {unknown}?"),
        }
    }

    async fn call(&self, world: &World, script: &str) -> Result<(), ScriptError> {
        let (scripts, keys, room) = (&world.scripts, &world.keys, &world.names);
        let (me, token, route_json) = (&self.a, self.token, world.route_json());
        let held = [HeldRoom { room: world.room.clone(), token, look: Look::Whole, heard: None }];
        let patch = [("custom", r#"{"a":1}"#.to_owned())];
        match script {
            "register" => {
                let name = InstanceName::new("a").expect("a good name");
                let with = Register { name: &name, address: "a:1", owner_ttl: OWNER_TTL, fields: &[] };
                scripts.register(keys, with).await.map(drop)
            }
            "deregister" => scripts.deregister(keys, me, LIFE).await,
            "heartbeat" => {
                let fields = [("public_url", "u".to_owned())];
                let watched = std::slice::from_ref(&world.room);
                let with = Heartbeat {
                    me,
                    owner_ttl: OWNER_TTL,
                    fields: &fields,
                    history: "",
                    owned: &held,
                    in_all: 1,
                    watched,
                };
                scripts.heartbeat(keys, with).await.map(drop)
            }
            "pin" | BIRTH => world.pin_with(me, |_| {}).await.map(drop),
            "commit" => {
                let entry = scripts.inbox_read(room, None, 1).await.ok().and_then(|mut found| found.pop());
                let entry = entry.map_or_else(|| "1-1".to_owned(), |found| found.entry);
                let commands = [Committing {
                    entry: Some("{}"),
                    keep: Some(COMMAND),
                    inbox: Some(Acknowledged { entry: &entry, aside: Some("test") }),
                    ..Committing::default()
                }];
                let changes = CellChanges {
                    set: vec![("seat:1", "{}")],
                    peers_set: vec![("p2", "{}")],
                    users_in: vec!["bob"],
                    ..CellChanges::default()
                };
                let fanout = ["{}".to_owned()];
                let with = Commit { fanout: &fanout, ..world.commit(me, token, 2, &commands, &changes) };
                scripts.commit(keys, with).await.map(drop)
            }
            "enqueue" => {
                let with = Enqueue { keep: Some(COMMAND), ..world.enqueue(me, 10) };
                scripts.enqueue(keys, with).await.map(drop)
            }
            "report" => scripts.report(keys, world.report(me, &[(EVENT, "{}")])).await.map(drop),
            "levels" => scripts.levels(keys, room, LevelsTo::Watchers(me), "{}").await.map(drop),
            "router_claim" => scripts.router_claim(keys, &router(), &world.room, 7, LIFE).await.map(drop),
            "router_find" => scripts.router_find(keys, &router()).await.map(drop),
            "inbox_read" => scripts.inbox_read(room, None, 10).await.map(drop),
            "answer" => scripts.answer(keys, &world.room, COMMAND.caller, COMMAND.id).await.map(drop),
            "answers_restore" => scripts.answers_restore(keys, &world.room, []).await.map(drop),
            "event_append" => {
                let (id, kind, room, payload) = ("e1", "mic.ended", "math-101", "{}");
                let with = EventAppend { app: APP, id, kind, room, payload, cap: 10, life: LIFE };
                scripts.event_append(keys, with).await.map(drop)
            }
            "timeline" => scripts.timeline(keys, &world.room, None, 10, 10).await.map(drop),
            "due" => {
                let with = DueRooms { lease: LEASE, me, token: self.lease, owner_ttl: OWNER_TTL, limit: 10 };
                scripts.due(keys, with).await.map(drop)
            }
            "offer" => {
                let with = Offer { lease: LEASE, me, token: self.lease, offers: &[(&world.room, me)] };
                scripts.offer(keys, with).await.map(drop)
            }
            "sessions_open" => {
                let session = SessionOpen { app: APP, user: "ann", socket: "s1", json: "{}" };
                scripts.sessions_open(keys, me, &[session]).await
            }
            "sessions_close" => scripts.sessions_close(keys, me, &[(APP, "ann", "s1")]).await,
            "sessions_touch" => scripts.sessions_touch(keys, &[(APP, "ann")], LIFE).await,
            "sessions_of" => scripts.sessions_of(keys, APP, "ann").await.map(drop),
            "notify" => {
                let with = Notify { app: APP, users: &["ann"], event: "e", body: "{}", except: None };
                scripts.notify(keys, with).await.map(drop)
            }
            "touch" => {
                let touch = [Touch { room: &world.room, token, users: &["ann"] }];
                scripts.touch(keys, me, HORIZON, &touch).await.map(drop)
            }
            "release" => {
                let with = Release {
                    me,
                    room: &world.room,
                    keys: room,
                    token,
                    life: LIFE,
                    only_empty: false,
                    due: None,
                };
                scripts.release(keys, with).await.map(drop)
            }
            "restore" => {
                let with = Restore {
                    me,
                    entry: "{}",
                    room: &world.room,
                    keys: room,
                    token,
                    seen: Some(SettingsVersion::new(1)),
                    sv: SettingsVersion::new(2),
                    cv: CellVersion::new(3),
                    created_at: RedisMillis::new(1),
                    settings: &[],
                    guests: &[],
                    changes: &CellChanges::default(),
                    batch: "",
                    due: None,
                };
                scripts.restore(keys, with).await.map(drop)
            }
            "settings_update" => {
                let with = SettingsUpdate {
                    me,
                    room: &world.room,
                    keys: room,
                    by: Some("ann"),
                    if_version: None,
                    max_bytes: 1000,
                    patch: &patch,
                    route_json: &route_json,
                    message: r#""settings":{},"by":null"#,
                    lane_limit: NO_LIMIT,
                };
                scripts.settings_update(keys, with).await.map(drop)
            }
            "guest_update" => {
                let with = GuestUpdate {
                    me,
                    room: &world.room,
                    keys: room,
                    by: Some("ann"),
                    if_version: None,
                    max_bytes: 1000,
                    max_guests: 10,
                    user: "ann",
                    present: true,
                    patch: "{}",
                    route_json: &route_json,
                    message: r#""guests":{},"by":null"#,
                    lane_limit: NO_LIMIT,
                };
                scripts.guest_update(keys, with).await.map(drop)
            }
            "read" => scripts.read_room(keys, &world.room).await.map(drop),
            "watch" => scripts.watch(keys, &self.b, &world.room).await.map(drop),
            "unwatch" => scripts.unwatch(keys, &self.b, &world.room).await,
            "lease_acquire" => scripts.lease_acquire(keys, LEASE, me, LIFE).await.map(drop),
            "lease_renew" => scripts.lease_renew(keys, LEASE, me, self.lease, LIFE).await.map(drop),
            "lease_release" => scripts.lease_release(keys, LEASE, me, self.lease).await.map(drop),
            "lanes_hold" => {
                let floor = FenceToken::default();
                let with =
                    HoldLanes { me, ttl: LIFE, owner_ttl: OWNER_TTL, floor, takes: true, held: &[self.lane] };
                scripts.lanes_hold(keys, with).await.map(drop)
            }
            "lanes_read" => scripts.lanes_read(keys, &[LANE], 10, 10).await.map(drop),
            "lanes_archived" => {
                let (_, read) = scripts.lanes_read(keys, &[LANE], 10, 10).await?;
                let entries = read[0].entries.iter().map(|it| it.id.as_str()).collect();
                let archived = [ArchivedLane { held: self.lane, batches: 1, entries }];
                scripts.lanes_archived(keys, me, (LIFE, 10), &archived).await.map(drop)
            }
            "lanes_kept" => scripts.lanes_kept(keys, LANE, None, 10).await.map(drop),
            "facts" => scripts.facts(keys, &[("lanes", "64")]).await.map(drop),
            "instances" => scripts.instances(keys).await.map(drop),
            "remains" => {
                scripts.remains(keys, me).await?;
                scripts.remains(keys, &self.b).await.map(drop)
            }
            "reap" => {
                let score = world.redis(&["TYPE", &keys.instances().to_string()]).await.text();
                let score = if score == "zset" { self.score(world).await } else { RedisMillis::new(1) };
                let (lease, dead) = (LEASE, &self.b);
                let with = Reap {
                    lease,
                    me,
                    token: self.lease,
                    dead,
                    score,
                    chunk: 10,
                    life: LIFE,
                    cleared: 0,
                    apps: &[],
                };
                scripts.reap(keys, with).await.map(drop)
            }
            "sweep" => {
                let with =
                    Sweep { lease: LEASE, me, token: self.lease, app: APP, after: "", limit: 10, life: LIFE };
                scripts.sweep(keys, with).await.map(drop)
            }
            unknown => panic!("how is {unknown} called?"),
        }
    }

    async fn score(&self, world: &World) -> RedisMillis {
        let score =
            world.redis(&["ZSCORE", &world.keys.instances().to_string(), self.b.as_str()]).await.text();
        RedisMillis::new(score.parse().expect("a score"))
    }
}

async fn every_script_refuses_every_wrong_type(flavor: Flavor) {
    let world = World::start(flavor).await;
    for script in SCRIPTS.iter().map(|script| script.name()).chain([BIRTH]) {
        let scene = Scene::set_for(&world, script).await;
        scene
            .call(&world, script)
            .await
            .unwrap_or_else(|error| panic!("{script} as it should be: {error:?}"));
        for at in 0..scene.keys(&world, script).len() {
            // A new scene has new incarnations, and so new keys.
            let scene = Scene::set_for(&world, script).await;
            let key = &scene.keys(&world, script)[at];
            let kind = world.keys.kind_of(&key.bytes()).expect("a key of the table");
            let name = key.to_string();
            world.redis(&["DEL", &name]).await;
            let wrong = if kind.row().redis_type == RedisType::String { "SADD" } else { "SET" };
            world.redis(&[wrong, &name, "x"]).await;
            let before = world.keyspace().await;
            let answer = scene.call(&world, script).await;
            assert!(matches!(answer, Err(ScriptError::WrongType { .. })), "{script}, {name:?}: {answer:?}");
            assert_eq!(
                world.keyspace().await,
                before,
                "{script} wrote, although {name:?} has the wrong type"
            );
        }
    }
}

#[tokio::test]
async fn every_script_refuses_every_wrong_type_on_redis() {
    every_script_refuses_every_wrong_type(Flavor::Redis).await;
}

#[tokio::test]
async fn every_script_refuses_every_wrong_type_on_valkey() {
    every_script_refuses_every_wrong_type(Flavor::Valkey).await;
}
