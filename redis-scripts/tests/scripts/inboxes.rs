//! `enqueue` and `inbox_read`: work for the owner, from whoever does not own the room.

use key_prefix::ChannelKind;
use redis_scripts::{CellChanges, Committing, Enqueue, Enqueued, InboxEntry, Keep, OwnedKeep, RedisMillis};
use serde_json::json;

use crate::listener::Listener;
use crate::world::{MADE, OWNER_TTL, World};

const KEEP: Keep<'static> = Keep { caller: "ann", id: "c1", digest: "d1" };

async fn enqueue(world: &World, with: Enqueue<'_>) -> Enqueued {
    world.scripts.enqueue(&world.keys, with).await.expect("an answer")
}

async fn read(world: &World, after: Option<&str>, limit: usize) -> Vec<InboxEntry> {
    world.scripts.inbox_read(&world.names, after, limit).await.expect("an answer")
}

fn entry(enqueued: Enqueued) -> String {
    match enqueued {
        Enqueued::Ok { entry, .. } => entry,
        refused => panic!("not appended: {refused:?}"),
    }
}

on_both! {
    async fn i_13_what_is_appended_is_read_in_order_with_all_that_came_with_it(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        assert_eq!(read(world, None, 10).await, []);
        let with = Enqueue {
            payload: r#"{"kick":"eve"}"#,
            keep: Some(KEEP),
            number: Some("42"),
            deadline: Some(RedisMillis::new(99)),
            ..world.enqueue(&b, 10)
        };
        let first = entry(enqueue(world, with).await);
        let second = entry(enqueue(world, world.enqueue(&b, 10)).await);
        let all = read(world, None, 10).await;
        let at = RedisMillis::new(first.split('-').next().unwrap().parse().unwrap());
        let keep = OwnedKeep { caller: "ann".to_owned(), id: "c1".to_owned(), digest: "d1".to_owned() };
        assert_eq!(keep.as_keep(), KEEP);
        assert_eq!(all[0], InboxEntry {
            entry: first.clone(),
            at,
            payload: r#"{"kick":"eve"}"#.to_owned(),
            keep: Some(keep),
            reply: Some((b.to_string(), "42".to_owned())),
            deadline: Some(RedisMillis::new(99)),
        });
        assert_eq!((all.len(), all[1].entry.as_str(), all[1].payload.as_str()), (2, second.as_str(), "{}"));
        assert!(all[1].keep.is_none() && all[1].reply.is_none() && all[1].deadline.is_none());
        assert_eq!(read(world, Some(&first), 10).await, all[1..]);
        assert_eq!(read(world, None, 1).await, all[..1]);
    }

    async fn i_5_the_owner_is_told_on_its_own_channel_unless_it_asks_itself(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        let mut listener = Listener::start(world).await;
        let appended = enqueue(world, world.enqueue(&b, 10)).await;
        let Enqueued::Ok { entry, owner } = appended else { panic!("{appended:?}") };
        assert_eq!(owner, a.as_str());
        let sync = world.keys.channel(ChannelKind::Sync, &a).to_string();
        let message = json!({ "room": world.room.route(), "inbox": entry });
        assert_eq!(listener.published(world).await, [(sync, message)]);
        assert!(world.mark(&a).await.is_some());
        world.unmark(&a).await;
        enqueue(world, world.enqueue(&a, 10)).await;
        assert_eq!(listener.published(world).await, []);
        assert!(world.mark(&a).await.is_some(), "it may get no answer");
    }

    async fn i_13_work_for_a_room_falls_due_when_nobody_owns_it(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        world.own(&a).await;
        let before = world.now_ms().await;
        enqueue(world, world.enqueue(&b, 10)).await;
        let due = world.due().await.unwrap();
        let ttl = i64::try_from(OWNER_TTL.as_millis()).unwrap();
        assert!(due > before && due <= world.now_ms().await + ttl, "when the lease ends, unless it is renewed");
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        let appended = enqueue(world, world.enqueue(&b, 10)).await;
        assert!(matches!(appended, Enqueued::Ok { owner, .. } if owner.is_empty()));
        assert!(world.due().await.unwrap() <= world.now_ms().await, "now");
        world.redis(&["ZADD", &world.keys.due().to_string(), "7", world.room.route()]).await;
        enqueue(world, world.enqueue(&b, 10)).await;
        assert_eq!(world.due().await, Some(7), "never later than it is");
    }

    async fn every_refusal_appends_nothing(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let before = world.keyspace().await;
        assert_eq!(enqueue(world, world.enqueue(&b, 10)).await, Enqueued::Missing { owner: String::new() });
        assert_eq!(world.keyspace().await, before);

        let token = world.own(&a).await;
        let commands = [Committing { keep: Some(KEEP), answer: "{}", ..MADE }];
        let none = CellChanges::default();
        let with = world.commit(&a, token, 1, &commands, &none);
        world.scripts.commit(&world.keys, with).await.unwrap();
        entry(enqueue(world, world.enqueue(&b, 1)).await);
        let before = world.keyspace().await;
        assert_eq!(enqueue(world, world.enqueue(&b, 1)).await, Enqueued::Full { length: 1 });
        let again = Enqueue { keep: Some(Keep { digest: "d2", ..KEEP }), ..world.enqueue(&b, 10) };
        let answered = Enqueued::Answered { digest: "d1".to_owned(), answer: "{}".to_owned() };
        assert_eq!(enqueue(world, again).await, answered);
        assert_eq!(world.keyspace().await, before);
    }

    async fn an_entry_that_nobody_can_read_comes_without_a_payload(world: &World) {
        let inbox = world.names.inbox.to_string();
        let strange: [&[u8]; 5] = [b"XADD", inbox.as_bytes(), b"5-1", b"payload", b"\xff\xfe"];
        world.server.command(&strange).await;
        world.redis(&["XADD", &inbox, "6-1", "payload", "{}", "deadline", "soon"]).await;
        world.redis(&["XADD", &inbox, "7-1", "what", "{}"]).await;
        let read = read(world, None, 10).await;
        let found: Vec<_> =
            read.iter().map(|it| (it.entry.as_str(), it.at.as_u64(), it.payload.as_str())).collect();
        assert_eq!(found, [("5-1", 5, ""), ("6-1", 6, ""), ("7-1", 7, "")]);
    }
}
