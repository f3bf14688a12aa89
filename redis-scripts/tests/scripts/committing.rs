//! `commit`: what a room's owner decided, written as a whole or not at all.

use key_prefix::ChannelKind;
use redis_scripts::{
    Acknowledged, CellChanges, CellVersion, Commit, Committed, Committing, Enqueue, Enqueued, Keep, Pinned,
    RedisMillis, Repeat, ReplyTo, ScriptError,
};
use serde_json::json;

use crate::listener::Listener;
use crate::world::{MADE, PEER, World, other_than, token_of};

const KEEP: Keep<'static> = Keep { caller: "ann", id: "c1", digest: "d1" };

async fn commit(world: &World, with: Commit<'_>) -> Committed {
    world.scripts.commit(&world.keys, with).await.expect("an answer")
}

fn cv(committed: &Committed) -> u64 {
    match committed {
        Committed::Ok { cv, .. } => cv.as_u64(),
        refused => panic!("not committed: {refused:?}"),
    }
}

fn texts(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    let mut texts: Vec<_> = pairs.iter().map(|(field, json)| (field.as_str(), json.as_str())).collect();
    texts.sort_unstable();
    texts
}

on_both! {
    async fn everything_of_a_commit_is_written(world: &World) {
        let me = world.register("a").await;
        let token = token_of(&world.pin_seated(&me).await.unwrap());
        let changes = CellChanges {
            status: Some("closing"),
            set: vec![("seat:1", r#"{"locked":true}"#), ("ban:eve", "{}")],
            removed: vec!["room", "never-there"],
            peers_set: vec![("p2", PEER), ("p3", PEER)],
            peers_removed: vec!["p1", "never-there"],
            users_in: vec!["bob"],
            users_out: vec!["ann"],
        };
        let commands = [Committing { answer: "{}", ..Committing::default() }, MADE, MADE];
        let due = Some(RedisMillis::new(123));
        let with = Commit { due, ..world.commit(&me, token, 2, &commands, &changes) };
        let committed = commit(world, with).await;
        let Committed::Ok { cv, now } = committed else { panic!("{committed:?}") };
        assert_eq!(cv.as_u64(), 4, "one for each command with events");
        let standing = world.standing().await;
        assert!(standing.whole);
        let state = standing.state;
        assert_eq!((state.status.as_str(), state.cv, state.batch.as_str(), state.committed_at), ("closing", cv, "b1", now));
        assert_eq!(texts(&state.cell), [("ban:eve", "{}"), ("seat:1", r#"{"locked":true}"#)]);
        assert_eq!(texts(&state.peers), [("p2", PEER), ("p3", PEER)]);
        assert_eq!(state.presence, [("bob".to_owned(), now)]);
        assert_eq!(world.due().await, Some(123));

        // Nothing falls due any more, and nothing else changes.
        let none = CellChanges::default();
        let with = Commit { batch: "b2", ..world.commit(&me, token, 4, &[MADE], &none) };
        assert_eq!(self::cv(&commit(world, with).await), 5);
        assert_eq!(world.due().await, None);
        assert_eq!(world.standing().await.state.status, "closing");
    }

    async fn i_6_the_count_is_the_size_of_the_peer_set(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let mut cv = 1;
        for (round, user) in ["ann", "bob", "bob", "cid"].into_iter().enumerate() {
            cv = world.join(&me, token, cv, user).await;
            assert_eq!(cv, 2 + round as u64);
        }
        let said = world.redis(&["HMGET", &world.names.room.to_string(), "peers_n", "users_n"]).await.texts();
        assert_eq!(said, ["3", "3"]);
        let gone = CellChanges { peers_removed: vec!["ann", "ann"], users_out: vec!["ann"], ..CellChanges::default() };
        let with = Commit { batch: "leave", ..world.commit(&me, token, cv, &[MADE], &gone) };
        commit(world, with).await;
        let standing = world.standing().await;
        assert!(standing.whole);
        assert_eq!((standing.state.peers.len(), standing.state.presence.len()), (2, 2));
    }

    async fn i_1_a_wrong_token_or_an_ended_lease_commits_nothing(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let changes = CellChanges { set: vec![("x", "1")], ..CellChanges::default() };
        let before = world.keyspace().await;
        let held = format!("{a} {token}");
        for (who, with) in [(&a, other_than(token)), (&b, token)] {
            let lost = commit(world, world.commit(who, with, 1, &[MADE], &changes)).await;
            assert_eq!(lost, Committed::Lost { held: held.clone() });
        }
        assert_eq!(world.keyspace().await, before);
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        let lost = commit(world, world.commit(&a, token, 1, &[MADE], &changes)).await;
        assert_eq!(lost, Committed::Lost { held: String::new() }, "an expired lease");
        let newer = world.own(&b).await;
        let before = world.keyspace().await;
        let lost = commit(world, world.commit(&a, token, 1, &[MADE], &changes)).await;
        assert_eq!(lost, Committed::Lost { held: format!("{b} {newer}") });
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_1_a_superseded_incarnation_commits_nothing(world: &World) {
        let a = world.register("a").await;
        let token = world.own(&a).await;
        let again = world.register("a").await;
        let before = world.keyspace().await;
        let refused = commit(world, world.commit(&a, token, 1, &[MADE], &CellChanges::default())).await;
        assert_eq!(refused, Committed::Superseded { by: again.incarnation() });
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_3_a_room_that_lost_keys_is_missing(world: &World) {
        let me = world.register("a").await;
        for lost in [&world.names.room, &world.names.cell, &world.names.peers, &world.names.presence] {
            let token = token_of(&world.pin_seated(&me).await.unwrap());
            world.redis(&["DEL", &lost.to_string()]).await;
            let before = world.keyspace().await;
            let changes = CellChanges { set: vec![("x", "1")], ..CellChanges::default() };
            let refused = commit(world, world.commit(&me, token, 2, &[MADE], &changes)).await;
            assert_eq!(refused, Committed::Missing, "{lost:?}");
            assert_eq!(world.keyspace().await, before);
            world.redis(&["FLUSHALL"]).await;
        }
    }

    async fn i_13_a_batch_sent_again_is_done_once_and_answered_as_the_first_time(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let changes = CellChanges { set: vec![("x", "1")], ..CellChanges::default() };
        let commands = [Committing { keep: Some(KEEP), answer: "{}", ..MADE }, MADE];
        let first = commit(world, world.commit(&me, token, 1, &commands, &changes)).await;
        assert_eq!(cv(&first), 3);
        let before = world.keyspace().await;
        world.clock_passes(u64::try_from(world.now_ms().await).unwrap()).await;
        assert_eq!(commit(world, world.commit(&me, token, 1, &commands, &changes)).await, first);
        assert_eq!(world.keyspace().await, before);
        // Also one in which nothing had events.
        let silent = [Committing { answer: "{}", keep: Some(Keep { id: "c2", ..KEEP }), ..Committing::default() }];
        let none = CellChanges::default();
        let silent = || Commit { batch: "b2", ..world.commit(&me, token, 3, &silent, &none) };
        let first = commit(world, silent()).await;
        assert_eq!((cv(&first), commit(world, silent()).await), (3, first));
    }

    async fn i_13_a_redis_that_fell_back_or_went_ahead_is_noticed(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        world.join(&me, token, 1, "ann").await;
        let before = world.keyspace().await;
        let none = CellChanges::default();
        let behind = commit(world, world.commit(&me, token, 3, &[MADE], &none)).await;
        assert_eq!(behind, Committed::Behind { cv: CellVersion::new(2) });
        let ahead = commit(world, world.commit(&me, token, 1, &[MADE], &none)).await;
        assert_eq!(ahead, Committed::Ahead { cv: CellVersion::new(2) });
        assert_eq!(world.keyspace().await, before);
    }

    async fn i_13_an_answered_command_is_not_executed_again(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let first = [Committing { keep: Some(KEEP), answer: "{\"seat\":1,\n\"x\":2}", ..MADE }];
        commit(world, world.commit(&me, token, 1, &first, &CellChanges::default())).await;
        let left = world.ttl_ms(&world.keys.answer(&world.room, KEEP.caller, KEEP.id)).await;
        assert!((86_000_000..=86_400_000).contains(&left), "{left}");
        let kept = world.scripts.answer(&world.keys, &world.room, "ann", "c1").await.unwrap();
        assert_eq!(kept, Some(("d1".to_owned(), "{\"seat\":1,\n\"x\":2}".to_owned())));
        assert_eq!(world.scripts.answer(&world.keys, &world.room, "ann", "c2").await.unwrap(), None);

        let before = world.keyspace().await;
        let commands = [
            MADE,
            Committing { keep: Some(Keep { digest: "other", ..KEEP }), ..MADE },
            Committing { deadline: Some(RedisMillis::new(1)), ..MADE },
            Committing { keep: Some(KEEP), deadline: Some(RedisMillis::new(1)), ..MADE },
            Committing { deadline: Some(RedisMillis::new(u64::pow(2, 52))), keep: Some(Keep { caller: "bob", ..KEEP }), ..MADE },
        ];
        let changes = CellChanges { set: vec![("x", "1")], ..CellChanges::default() };
        let with = Commit { batch: "b2", ..world.commit(&me, token, 2, &commands, &changes) };
        let answered = Repeat::Answered { digest: "d1".to_owned(), answer: "{\"seat\":1,\n\"x\":2}".to_owned() };
        let repeats = vec![(1, answered.clone()), (2, Repeat::Late), (3, answered)];
        assert_eq!(commit(world, with).await, Committed::Again { repeats });
        assert_eq!(world.keyspace().await, before);
        // Without them the rest goes.
        let rest = [commands[0], commands[4]];
        let with = Commit { batch: "b3", ..world.commit(&me, token, 2, &rest, &changes) };
        assert_eq!(cv(&commit(world, with).await), 4);
    }

    async fn i_13_an_answer_that_is_not_to_be_kept_is_looked_for_all_the_same(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        let refused = Keep { digest: "", ..KEEP };
        let looking = [Committing { keep: Some(refused), answer: "{}", ..Committing::default() }];
        let none = CellChanges::default();
        assert_eq!(cv(&commit(world, world.commit(&me, token, 1, &looking, &none)).await), 1);
        assert_eq!(world.scripts.answer(&world.keys, &world.room, KEEP.caller, KEEP.id).await.unwrap(), None);
        let kept = [Committing { keep: Some(KEEP), answer: "7", ..MADE }];
        commit(world, Commit { batch: "b2", ..world.commit(&me, token, 1, &kept, &none) }).await;
        let again = commit(world, Commit { batch: "b3", ..world.commit(&me, token, 2, &looking, &none) }).await;
        let answered = Repeat::Answered { digest: KEEP.digest.to_owned(), answer: "7".to_owned() };
        assert_eq!(again, Committed::Again { repeats: vec![(0, answered)] });
    }

    async fn i_14_each_command_with_events_is_in_the_lane_once_and_in_order(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let first = world.own(&a).await;
        let named = |entry| Committing { entry: Some(entry), ..Committing::default() };
        let commands = [named(r#"{"n":1}"#), Committing { answer: "{}", ..Committing::default() }, named(r#"{"n":2}"#)];
        let none = CellChanges::default();
        commit(world, world.commit(&a, first, 1, &commands, &none)).await;
        commit(world, world.commit(&a, first, 1, &commands, &none)).await;
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        let second = world.own(&b).await;
        let third = [named(r#"{"n":3}"#)];
        let with = Commit { batch: "b2", ..world.commit(&b, second, 3, &third, &none) };
        let Committed::Ok { now, .. } = commit(world, with).await else { panic!("not committed") };
        let mut lane = world.scripts.timeline(&world.keys, &world.room, None, 100, 100).await.unwrap().entries;
        lane.reverse();
        let found: Vec<_> =
            lane.iter().map(|it| (it.version(), it.token, it.owner.as_str(), it.entry.as_str())).collect();
        let (a, b) = (a.as_str(), b.as_str());
        assert_eq!(found, [
            (1, first, a, r#"{"events":[]}"#),
            (2, first, a, r#"{"n":1}"#),
            (3, first, a, r#"{"n":2}"#),
            (4, second, b, r#"{"n":3}"#),
        ]);
        assert!(lane.iter().all(|it| it.kind == "cell"));
        assert_eq!(lane[3].at, now);
    }

    async fn i_5_watchers_get_the_messages_as_they_are_and_askers_their_answers(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let mut listener = Listener::start(world).await;
        let (none, fanout) = (CellChanges::default(), [r#"{"of":"cell","n":1}"#.to_owned(), r#"{"n":2}"#.to_owned()]);
        let with = Commit { fanout: &fanout, ..world.commit(&a, token, 1, &[MADE], &none) };
        commit(world, with).await;
        assert_eq!(listener.published(world).await, [], "nobody watches, nobody asked");

        world.scripts.watch(&world.keys, &b, &world.room).await.unwrap();
        let asked = |number, answer| Committing {
            answer,
            reply: Some(ReplyTo { instance: b.as_str(), number }),
            ..Committing::default()
        };
        let commands = [asked("17", r#"{"ok":true}"#), asked("18", "")];
        let with = Commit { fanout: &fanout, batch: "b2", ..world.commit(&a, token, 2, &commands, &none) };
        commit(world, with).await;
        let channel = |kind| world.keys.channel(kind, &b).to_string();
        let (reply, watched) = (channel(ChannelKind::Reply), channel(ChannelKind::Fanout));
        assert_eq!(listener.published(world).await, [
            (reply.clone(), json!({ "number": "17", "answer": { "ok": true } })),
            (reply, json!({ "number": "18", "answer": null })),
            (watched.clone(), json!({ "of": "cell", "n": 1 })),
            (watched, json!({ "n": 2 })),
        ]);
    }

    async fn i_13_an_entry_leaves_the_inbox_with_its_commit_and_poison_is_set_aside(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let mut entries = Vec::new();
        for payload in ["one", "two", "three"] {
            let with = Enqueue { payload, keep: Some(Keep { id: payload, ..KEEP }), ..world.enqueue(&b, 10) };
            let appended = world.scripts.enqueue(&world.keys, with).await.unwrap();
            let Enqueued::Ok { entry, .. } = appended else { panic!("{appended:?}") };
            entries.push(entry);
        }
        let from = |at: usize, aside| Committing {
            inbox: Some(Acknowledged { entry: &entries[at], aside }),
            ..Committing::default()
        };
        let (none, commands) = (CellChanges::default(), [from(0, None), from(1, Some("no JSON"))]);
        commit(world, world.commit(&a, token, 1, &commands, &none)).await;
        let left = world.scripts.inbox_read(&world.names, None, 10).await.unwrap();
        assert_eq!(left.iter().map(|it| it.payload.as_str()).collect::<Vec<_>>(), ["three"]);
        let aside = world.redis(&["XRANGE", &world.names.aside.to_string(), "-", "+"]).await;
        let fields = aside.items()[0].items()[1].texts();
        assert_eq!(fields[..4], ["entry", &entries[1], "reason", "no JSON"]);
        assert!(fields.windows(2).any(|pair| pair == ["payload", "two"]));
        let life = world.ttl_ms(&world.names.aside).await;
        assert!((604_000_000..=604_800_000).contains(&life), "{life}");

        // What is not there any more stops nothing, what is no entry at all stops everything.
        let with = Commit { batch: "b2", ..world.commit(&a, token, 1, &commands, &none) };
        commit(world, with).await;
        let bad = [MADE, Committing { inbox: Some(Acknowledged { entry: "bad", aside: None }), ..MADE }];
        let before = world.keyspace().await;
        let with = Commit { batch: "b3", ..world.commit(&a, token, 1, &bad, &none) };
        let refused = world.scripts.commit(&world.keys, with).await;
        assert!(matches!(refused, Err(ScriptError::Failed { .. })), "{refused:?}");
        assert_eq!(world.keyspace().await, before);
    }

    async fn what_is_set_aside_is_bounded(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        world.redis(&["PERSIST", &world.names.owner.to_string()]).await;
        let mut entries = Vec::new();
        for _ in 0..1010 {
            let appended = world.scripts.enqueue(&world.keys, world.enqueue(&me, 2000)).await.unwrap();
            let Enqueued::Ok { entry, .. } = appended else { panic!("{appended:?}") };
            entries.push(entry);
        }
        let aside = |entry| Committing {
            inbox: Some(Acknowledged { entry, aside: Some("test") }),
            ..Committing::default()
        };
        let commands: Vec<_> = entries.iter().map(|entry| aside(entry)).collect();
        commit(world, world.commit(&me, token, 1, &commands, &CellChanges::default())).await;
        let length = world.redis(&["XLEN", &world.names.aside.to_string()]).await.number();
        assert_eq!(length, Some(1000));
    }

    async fn i_13_an_answer_of_an_unanswered_commit_is_found_by_the_next_owner(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = world.own(&a).await;
        let commands = [Committing { keep: Some(KEEP), answer: "1", ..MADE }];
        commit(world, world.commit(&a, token, 1, &commands, &CellChanges::default())).await;
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        let Pinned::Owned { token, state, committed_at, .. } = world.pin(&b).await else { panic!("not owned") };
        assert_eq!((state.cv.as_u64(), state.batch.as_str(), committed_at), (2, "b1", state.committed_at));
        let none = CellChanges::default();
        let with = Commit { batch: "b2", ..world.commit(&b, token, 2, &commands, &none) };
        assert!(matches!(commit(world, with).await, Committed::Again { repeats } if repeats.len() == 1));
    }

    async fn a_script_that_the_server_forgot_is_loaded_again(world: &World) {
        let me = world.register("a").await;
        let token = world.own(&me).await;
        for round in 1..=3 {
            world.redis(&["SCRIPT", "FLUSH"]).await;
            assert_eq!(world.join(&me, token, round, "ann").await, round + 1);
        }
    }
}
