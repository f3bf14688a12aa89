//! JSON merge patch (RFC 7396) in memory: apply one, and find the one between two documents.

use serde_json::{Map, Value};

/// Applies `patch` to `target`.
pub fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(document) = target {
        apply_fields(document, fields);
    }
}

/// Applies the fields of an object patch to a document.
pub fn apply_fields(document: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, change) in patch {
        if change.is_null() {
            document.remove(name);
        } else {
            apply(document.entry(name).or_insert(Value::Null), change);
        }
    }
}

/// The patch that makes `to` of `from`; empty if they are equal.
pub fn between(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, new) in to {
        match (from.get(name), new) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                patch.insert(name.clone(), Value::Object(between(old, new)));
            }
            _ => {
                patch.insert(name.clone(), new.clone());
            }
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!({"a": "b"}), json!({"a": "b"})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut found = target.clone();
            apply(&mut found, &patch);
            assert_eq!(found, result, "{target} with {patch}");
        }
    }

    fn document() -> impl Strategy<Value = Map<String, Value>> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,4}".prop_map(Value::from),
            Just(json!([])),
        ];
        let value = leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-d]", value, 0..5).prop_map(|fields| fields.into_iter().collect())
    }

    proptest! {
        #[test]
        fn the_patch_between_two_documents_leads_from_one_to_the_other(from in document(), to in document()) {
            let patch = between(&from, &to);
            let mut found = from.clone();
            apply_fields(&mut found, &patch);
            prop_assert_eq!(&found, &to);
            prop_assert_eq!(patch.is_empty(), from == to);
        }
    }
}
