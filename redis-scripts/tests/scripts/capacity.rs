//! As much as the wrappers promise for one call: Lua cannot unpack more than some 8,000 values.

use key_prefix::RoomKey;
use redis_scripts::{
    Acknowledged, Beat, CellChanges, Commit, Committed, Committing, Enqueue, Enqueued, Heartbeat, HeldRoom,
    Keep, Look, OwnedReport, RedisMillis, ReplyTo, SettingsUpdate, Touch, Touched, Updated,
};

use crate::world::{HORIZON, MADE, NO_LIMIT, OWNER_TTL, World, room};

on_both! {
    async fn a_heartbeat_of_2000_rooms(world: &World) {
        let me = world.register("a").await;
        let rooms: Vec<RoomKey> = (0..2000).map(|n| room(&format!("r{n}"))).collect();
        let mut owned = Vec::new();
        for room in &rooms {
            let token = world.own_room(&me, room).await;
            owned.push(HeldRoom { room: room.clone(), token, look: Look::Whole, heard: Some(RedisMillis::new(1)) });
        }
        let with = Heartbeat {
            me: &me,
            owner_ttl: OWNER_TTL,
            fields: &[],
            history: "",
            owned: &owned,
            in_all: 2000,
            watched: &rooms,
        };
        let Beat::Ok { owned, watched, .. } = world.scripts.heartbeat(&world.keys, with).await.unwrap() else {
            panic!("superseded")
        };
        assert_eq!((owned.len(), watched.len()), (2000, 2000));
        assert!(owned.iter().all(|report| matches!(report, OwnedReport::StandsAt { .. })));
        let watches = world.redis(&["SCARD", &world.keys.instance_watches(&me).to_string()]).await.number();
        assert_eq!(watches, Some(2000));
        world.redis(&["FLUSHALL"]).await;
    }

    async fn a_touch_of_5000_users_of_one_room(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let users: Vec<String> = (0..5000).map(|n| format!("u{n}")).collect();
        let users: Vec<&str> = users.iter().map(String::as_str).collect();
        let presence = world.names.presence.to_string();
        let mut add = vec!["ZADD", &presence];
        for user in &users {
            add.extend(["5", user]);
        }
        world.redis(&add).await;
        let touch = [Touch { room: &world.room, token, users: &users }];
        assert_eq!(world.scripts.touch(&world.keys, &me, HORIZON, &touch).await.unwrap(), Touched::Ok { users: 5000 });
        assert_eq!(world.redis(&["ZCOUNT", &presence, "-inf", "5"]).await.number(), Some(0));
    }

    async fn a_commit_of_1000_commands_and_5000_peers(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        world.redis(&["PERSIST", &world.names.owner.to_string()]).await;
        let names: Vec<String> = (0..5000).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let ids: Vec<String> = (0..1000).map(|n| format!("c{n}")).collect();
        let mut commands = Vec::new();
        for id in &ids {
            let work = Enqueue { payload: id, ..world.enqueue(&me, 1000) };
            let Enqueued::Ok { entry, .. } = world.scripts.enqueue(&world.keys, work).await.unwrap() else {
                panic!("not appended")
            };
            commands.push((id, entry));
        }
        let commands: Vec<_> = commands
            .iter()
            .map(|(id, entry)| Committing {
                entry: Some("{}"),
                answer: "{}",
                keep: Some(Keep { caller: "ann", id, digest: "d" }),
                reply: Some(ReplyTo { instance: me.as_str(), number: "7" }),
                inbox: Some(Acknowledged { entry, aside: None }),
                deadline: None,
            })
            .collect();
        let changes = CellChanges {
            set: names.iter().map(|name| (*name, "{}")).collect(),
            peers_set: names.iter().map(|name| (*name, "{}")).collect(),
            users_in: names.clone(),
            ..CellChanges::default()
        };
        let committed = world.scripts.commit(&world.keys, world.commit(&me, token, 1, &commands, &changes)).await;
        assert!(matches!(committed, Ok(Committed::Ok { cv, .. }) if cv.as_u64() == 1001), "{committed:?}");
        let standing = world.standing().await;
        assert!(standing.whole);
        assert_eq!((standing.state.peers.len(), standing.state.presence.len()), (5000, 5000));
        assert_eq!(world.scripts.inbox_read(&world.names, None, 10).await.unwrap(), []);

        let changes = CellChanges {
            removed: names.clone(),
            peers_removed: names.clone(),
            users_out: names,
            ..CellChanges::default()
        };
        let with = Commit { batch: "b2", ..world.commit(&me, token, 1001, &[MADE], &changes) };
        let committed = world.scripts.commit(&world.keys, with).await;
        assert!(matches!(committed, Ok(Committed::Ok { cv, .. }) if cv.as_u64() == 1002), "{committed:?}");
        let standing = world.standing().await;
        assert!(standing.whole && standing.state.peers.is_empty());
    }

    async fn an_update_of_5000_settings(world: &World) {
        let me = world.register("a").await;
        world.own(&me).await;
        let fields: Vec<String> = (0..5000).map(|n| format!("f{n}")).collect();
        let patch: Vec<_> = fields.iter().map(|field| (field.as_str(), "{}".to_owned())).collect();
        let with = SettingsUpdate {
            me: &me, room: &world.room, keys: &world.names, by: None, if_version: None, max_bytes: 100, patch: &patch,
            route_json: &world.route_json(), message: r#""settings":{},"by":null"#, lane_limit: NO_LIMIT,
        };
        let updated = world.scripts.settings_update(&world.keys, with).await.unwrap();
        assert!(matches!(updated, Updated::Ok { .. }));
        assert!(world.standing().await.whole);
    }
}
