//! The settings of a classroom room.
//!
//! | setting | type | default |
//! | --- | --- | --- |
//! | `autoTransitionEnabled` | boolean | `true` |
//! | `vad.threshold` | number, 0 to 1 | 0.5 |
//! | `vad.prefixPaddingMs` | integer, 0 to 5,000 | 300 |
//! | `vad.silenceDurationMs` | integer, 0 to 10,000 | 500 |
//! | `noiseReduction` | `off`, `near_field`, `far_field` | `off` |
//! | `realtimeModelVersion` | string, 1 to 64 bytes | `v1.0` |
//! | `custom` | any object, up to `limits.custom_bytes` | `{}` |
//!
//! `null` for a known setting means its default.

use serde_json::{Map, Value, json};
use std::sync::LazyLock;

use super::{check_depth, kind};
use crate::error::ApiError;

/// Names of the settings, in the order of the documentation.
pub const NAMES: [&str; 5] =
    ["autoTransitionEnabled", "vad", "noiseReduction", "realtimeModelVersion", "custom"];

const NOISE_REDUCTION: [&str; 3] = ["off", "near_field", "far_field"];
const MODEL_VERSION_BYTES: usize = 64;

/// The default of a setting.
pub fn default_of(name: &str) -> Value {
    match name {
        "autoTransitionEnabled" => json!(true),
        "vad" => json!({ "threshold": 0.5, "prefixPaddingMs": 300, "silenceDurationMs": 500 }),
        "noiseReduction" => json!("off"),
        "realtimeModelVersion" => json!("v1.0"),
        _ => json!({}),
    }
}

/// The settings that a room is made with, as JSON by name.
pub fn defaults() -> &'static [(&'static str, String)] {
    static DEFAULTS: LazyLock<Vec<(&'static str, String)>> =
        LazyLock::new(|| NAMES.iter().map(|name| (*name, default_of(name).to_string())).collect());
    &DEFAULTS
}

/// A patch whose known settings have the right types and ranges, with `null` replaced by defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingsPatch(Map<String, Value>);

impl SettingsPatch {
    /// The settings of a room that is made with it, as JSON by name.
    pub fn over_defaults(&self) -> Vec<(&'static str, String)> {
        let made = |name: &'static str| {
            let mut value = default_of(name);
            if let Some(change) = self.0.get(name) {
                room_cell::patch::apply(&mut value, change);
            }
            (name, value.to_string())
        };
        NAMES.iter().copied().map(made).collect()
    }

    /// Checks a raw patch. `max_depth` bounds nesting.
    pub fn validate(raw: Map<String, Value>, max_depth: usize) -> Result<Self, ApiError> {
        if raw.is_empty() {
            return Err(ApiError::bad_request("`settings` changes nothing"));
        }
        let mut patch = Map::new();
        for (name, value) in raw {
            let checked = check(&name, value, max_depth)?;
            patch.insert(name, checked);
        }
        Ok(Self(patch))
    }

    /// What it changes.
    pub const fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The same, as the script takes it: a patch by setting.
    pub fn by_setting(&self) -> Vec<(&str, String)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.to_string())).collect()
    }
}

fn check(name: &str, value: Value, max_depth: usize) -> Result<Value, ApiError> {
    if value.is_null() && NAMES.contains(&name) {
        return Ok(default_of(name));
    }
    match name {
        "autoTransitionEnabled" if value.is_boolean() => Ok(value),
        "autoTransitionEnabled" => Err(wrong(name, "a boolean", &value)),
        "vad" => vad(value),
        "noiseReduction" => match value.as_str() {
            Some(mode) if NOISE_REDUCTION.contains(&mode) => Ok(value),
            _ => Err(wrong(name, "`off`, `near_field` or `far_field`", &value)),
        },
        "realtimeModelVersion" => match value.as_str() {
            Some(version) if (1..=MODEL_VERSION_BYTES).contains(&version.len()) => Ok(value),
            _ => Err(wrong(name, "a string of 1 to 64 bytes", &value)),
        },
        "custom" if value.is_object() => check_depth("settings.custom", &value, max_depth).map(|()| value),
        "custom" => Err(wrong(name, "an object", &value)),
        _ => Err(ApiError::bad_request(format!("`settings.{}` is not a setting", shown(name)))),
    }
}

fn vad(value: Value) -> Result<Value, ApiError> {
    let Value::Object(fields) = value else { return Err(wrong("vad", "an object", &value)) };
    let mut checked = Map::new();
    for (name, value) in fields {
        let path = format!("vad.{}", shown(&name));
        let range = match name.as_str() {
            "threshold" => None,
            "prefixPaddingMs" => Some(5_000),
            "silenceDurationMs" => Some(10_000),
            _ => return Err(ApiError::bad_request(format!("`settings.{path}` is not a setting"))),
        };
        let value = if value.is_null() { default_of("vad")[name.as_str()].clone() } else { value };
        match range {
            None if value.as_f64().is_some_and(|it| (0.0..=1.0).contains(&it)) => {}
            None => return Err(wrong(&path, "a number from 0 to 1", &value)),
            Some(max) if value.as_u64().is_some_and(|it| it <= max) => {}
            Some(max) => return Err(wrong(&path, &format!("an integer from 0 to {max}"), &value)),
        }
        checked.insert(name, value);
    }
    Ok(Value::Object(checked))
}

fn wrong(name: &str, expected: &str, found: &Value) -> ApiError {
    let found = match found {
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{:?}", shown(text)),
        other => kind(other).to_owned(),
    };
    ApiError::bad_request(format!("`settings.{name}` must be {expected}, not {found}"))
}

/// At most 40 characters of a name that somebody sent.
fn shown(name: &str) -> String {
    name.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn validate(raw: Value) -> Result<SettingsPatch, String> {
        let Value::Object(raw) = raw else { panic!("an object") };
        SettingsPatch::validate(raw, 8).map_err(|error| error.message.into_owned())
    }

    #[test]
    fn defaults_are_themselves_valid() {
        let all: Map<String, Value> =
            NAMES.iter().map(|name| ((*name).to_owned(), default_of(name))).collect();
        assert!(SettingsPatch::validate(all, 8).is_ok());
    }

    #[test]
    fn each_setting_is_checked_by_type_and_range() {
        for good in [
            json!({"autoTransitionEnabled": false}),
            json!({"vad": {"threshold": 0}}),
            json!({"vad": {"threshold": 1, "prefixPaddingMs": 5000, "silenceDurationMs": 10000}}),
            json!({"noiseReduction": "far_field"}),
            json!({"realtimeModelVersion": "v2"}),
            json!({"custom": {"any": [1, {"deep": null}]}}),
        ] {
            assert!(validate(good.clone()).is_ok(), "{good}");
        }
        for (bad, message) in [
            (json!({}), "`settings` changes nothing"),
            (
                json!({"autoTransitionEnabled": 1}),
                "`settings.autoTransitionEnabled` must be a boolean, not 1",
            ),
            (json!({"vad": 3}), "`settings.vad` must be an object, not 3"),
            (
                json!({"vad": {"threshold": 1.01}}),
                "`settings.vad.threshold` must be a number from 0 to 1, not 1.01",
            ),
            (
                json!({"vad": {"prefixPaddingMs": 5001}}),
                "`settings.vad.prefixPaddingMs` must be an integer from 0 to 5000, not 5001",
            ),
            (
                json!({"vad": {"silenceDurationMs": 1.5}}),
                "`settings.vad.silenceDurationMs` must be an integer from 0 to 10000, not 1.5",
            ),
            (json!({"vad": {"other": 1}}), "`settings.vad.other` is not a setting"),
            (
                json!({"noiseReduction": "on"}),
                "`settings.noiseReduction` must be `off`, `near_field` or `far_field`, not \"on\"",
            ),
            (
                json!({"realtimeModelVersion": ""}),
                "`settings.realtimeModelVersion` must be a string of 1 to 64 bytes, not \"\"",
            ),
            (json!({"custom": []}), "`settings.custom` must be an object, not a list"),
            (json!({"unknown": 1}), "`settings.unknown` is not a setting"),
        ] {
            assert_eq!(validate(bad.clone()), Err(message.to_owned()), "{bad}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nest = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert!(validate(json!({ "custom": nest(8) })).is_ok());
        assert_eq!(
            validate(json!({ "custom": nest(9) })),
            Err("`settings.custom` is nested 9 deep, at most 8 is allowed".to_owned())
        );
    }

    #[test]
    fn null_means_the_default() {
        let patch =
            validate(json!({"vad": {"threshold": null}, "noiseReduction": null, "custom": null})).unwrap();
        assert_eq!(
            Value::Object(patch.fields().clone()),
            json!({"vad": {"threshold": 0.5}, "noiseReduction": "off", "custom": {}})
        );
    }

    proptest! {
        #[test]
        fn any_object_is_taken_or_refused(name in "[a-zA-Z.]{0,12}", number in any::<f64>(), text in ".{0,80}") {
            for value in [json!(number), json!(text), json!({ &name: number }), json!([text])] {
                _ = validate(json!({ &name: value.clone() }));
                _ = validate(json!({ "vad": value }));
            }
        }
    }
}
