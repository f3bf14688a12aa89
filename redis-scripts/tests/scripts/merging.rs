//! The merge patch of RFC 7396, in Lua, against a reference in Rust.

use e2e::servers::Flavor;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis_scripts::{SettingsUpdate, Updated};
use serde_json::{Map, Value, json};

use crate::world::{NO_LIMIT, World};

fn reference(target: Option<Value>, patch: Value) -> Value {
    let Value::Object(patch) = patch else { return patch };
    let mut merged = match target {
        Some(Value::Object(target)) => target,
        _ => Map::new(),
    };
    for (name, change) in patch {
        if change.is_null() {
            merged.remove(&name);
        } else {
            let changed = reference(merged.remove(&name), change);
            merged.insert(name, changed);
        }
    }
    Value::Object(merged)
}

/// Names that often meet, and that look like what they are not.
fn name() -> impl Strategy<Value = String> {
    let likely = [
        "a",
        "b",
        "c",
        "",
        "\"",
        "\\",
        "\\\"",
        "a\":1,\"b",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "null",
        "é",
        "🎓",
        "\u{1}",
    ];
    prop_oneof![8 => prop::sample::select(likely.to_vec()).prop_map(str::to_owned), 1 => ".{0,6}"]
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        2 => name().prop_map(Value::from),
        1 => Just(json!([])),
        1 => Just(json!({})),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            4 => prop::collection::vec((name(), inner), 0..6).prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

async fn merge(world: &World, target: &str, patch: String) -> String {
    let settings = world.names.settings.to_string();
    world.redis(&["HSET", &settings, "custom", target]).await;
    let me = "a/1".parse().expect("an instance");
    let with = SettingsUpdate {
        me: &me,
        room: &world.room,
        by: None,
        keys: &world.names,
        if_version: None,
        max_bytes: usize::MAX >> 1,
        patch: &[("custom", patch)],
        route_json: &world.route_json(),
        message: r#""settings":{},"by":null"#,
        lane_limit: NO_LIMIT,
    };
    let updated = world.scripts.settings_update(&world.keys, with).await.expect("an answer");
    assert!(matches!(updated, Updated::Ok { .. }), "{updated:?}");
    world.redis(&["HGET", &settings, "custom"]).await.text()
}

fn matches_the_reference(flavor: Flavor) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let world = runtime.block_on(async {
        let world = World::start(flavor).await;
        let me = world.register("a").await;
        world.own(&me).await;
        world
    });
    let config = Config { cases: 400, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&(document(), document()), |(target, patch)| {
        let merged = runtime.block_on(merge(&world, &target.to_string(), patch.to_string()));
        let expected = reference(Some(target), patch).to_string();
        let read = |text: &str| {
            serde_json::from_str::<Value>(text)
                .map_err(|error| TestCaseError::fail(format!("{error}: {text}")))
        };
        prop_assert_eq!(read(&merged)?, read(&expected)?);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    runtime.block_on(async move { drop(world) });
}

#[test]
fn a_merge_in_lua_is_the_merge_of_the_rfc_on_redis() {
    matches_the_reference(Flavor::Redis);
}

#[test]
fn a_merge_in_lua_is_the_merge_of_the_rfc_on_valkey() {
    matches_the_reference(Flavor::Valkey);
}

on_both! {
    async fn what_a_patch_does_not_name_keeps_its_bytes(world: &World) {
        let me = world.register("a").await;
        world.own(&me).await;
        let cases = [
            (r#"{"a":[],"b":{},"c":123456789012345678901234567890}"#, r#"{"d":1}"#,
             r#"{"a":[],"b":{},"c":123456789012345678901234567890,"d":1}"#),
            (r#"{"a":1.0,"b":1e400,"c":-0}"#, r#"{"c":null}"#, r#"{"a":1.0,"b":1e400}"#),
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a"]"#, r#"{"a":{"b":null}}"#, r#"{"a":{}}"#),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            (r#"{"":1,"\"":{"\\":2}}"#, r#"{"\"":{"\\":null,"":[]}}"#, r#"{"":1,"\"":{"":[]}}"#),
            (r#"{"é🎓":"a\"]}\\"}"#, r#"{"x":"\\"}"#, r#"{"é🎓":"a\"]}\\","x":"\\"}"#),
        ];
        for (target, patch, expected) in cases {
            assert_eq!(merge(world, target, patch.to_owned()).await, expected, "{target} + {patch}");
        }
    }

    async fn a_deep_document_is_merged(world: &World) {
        let me = world.register("a").await;
        world.own(&me).await;
        let deep = |leaf: &str| format!("{}{leaf}{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        assert_eq!(merge(world, &deep("1"), deep("2")).await, deep("2"));
    }
}
