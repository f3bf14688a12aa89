//! As much as the wrappers promise for one call: Lua cannot unpack more than some 8,000 values.

use key_prefix::RoomKey;
use redis_scripts::{
    Beat, Changed, Heartbeat, HeldRoom, Leave, OwnedReport, SettingsUpdate, Touch, Touched, Updated,
};

use crate::world::{OWNER_TTL, World, peer, room};

on_both! {
    async fn a_heartbeat_of_2000_rooms(world: &World) {
        let me = world.register("a").await;
        let rooms: Vec<RoomKey> = (0..2000).map(|n| room(&format!("r{n}"))).collect();
        let mut owned = Vec::new();
        for room in &rooms {
            let token = world.own_room(&me, room).await;
            owned.push(HeldRoom { room: room.clone(), token, check: true });
        }
        let with = Heartbeat { me: &me, owner_ttl: OWNER_TTL, fields: &[], owned: &owned, watched: &rooms };
        let Beat::Ok { owned, watched, .. } = world.scripts.heartbeat(&world.keys, with).await.unwrap() else {
            panic!("superseded")
        };
        assert_eq!((owned.len(), watched.len()), (2000, 2000));
        assert!(owned.iter().all(|report| matches!(report, OwnedReport::Held { .. })));
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
        assert_eq!(world.scripts.touch(&world.keys, &me, &touch).await.unwrap(), Touched::Ok { users: 5000 });
        assert_eq!(world.redis(&["ZCOUNT", &presence, "-inf", "5"]).await.number(), Some(0));
    }

    async fn a_leave_of_9000_peers_at_once(world: &World) {
        let me = world.register("a").await;
        let pinned = world.pin_with(&me, |pin| pin.peer = Some(peer("stays", "host"))).await.unwrap();
        let token = crate::world::token_of(&pinned);
        let names: Vec<String> = (0..9000).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (peers, presence) = (world.names.peers.to_string(), world.names.presence.to_string());
        let (mut add_peers, mut add_users) = (vec!["HSET", &peers], vec!["ZADD", &presence]);
        for name in &names {
            add_peers.extend([name, "{}"]);
            add_users.extend(["5", name]);
        }
        world.redis(&add_peers).await;
        world.redis(&add_users).await;
        world.redis(&["HSET", &world.names.room.to_string(), "peers_n", "9001", "users_n", "9001"]).await;
        let route_json = world.route_json();
        let with = Leave {
            me: &me, keys: &world.names, token, peers: &names, users: &names, route_json: &route_json, fanout: "",
        };
        let left = world.scripts.leave(&world.keys, with).await.unwrap();
        assert!(matches!(left, Changed::Ok { peer_count: 1, .. }), "{left:?}");
        assert!(world.standing().await.whole);
    }

    async fn an_update_of_5000_settings(world: &World) {
        let me = world.register("a").await;
        world.own(&me).await;
        let fields: Vec<String> = (0..5000).map(|n| format!("f{n}")).collect();
        let patch: Vec<_> = fields.iter().map(|field| (field.as_str(), "{}".to_owned())).collect();
        let with = SettingsUpdate {
            me: &me, keys: &world.names, if_version: None, max_bytes: 100, patch: &patch,
            route_json: &world.route_json(), message: r#""settings":{},"by":null"#,
        };
        let updated = world.scripts.settings_update(&world.keys, with).await.unwrap();
        assert!(matches!(updated, Updated::Ok { .. }));
        assert!(world.standing().await.whole);
    }
}
