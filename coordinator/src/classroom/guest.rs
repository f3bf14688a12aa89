//! The state of one guest.
//!
//! | field | type | default | who may change it |
//! | --- | --- | --- | --- |
//! | `handRaised` | boolean | `false` | the user, hosts |
//! | `micAllowed` | boolean | `true` | hosts |
//! | `videoAllowed` | boolean | `true` | hosts |
//! | `stage` | boolean | `false` | hosts |
//! | `custom` | any object | `{}` | the user, hosts |
//!
//! Only what was set is stored; `null` takes a field back to its default.

use serde_json::{Map, Value};

use super::{check_depth, kind};
use crate::error::{ApiError, ErrorCode};

/// Fields that only a host may change.
const OF_HOSTS: [&str; 3] = ["micAllowed", "videoAllowed", "stage"];
/// All boolean fields with their defaults.
const FLAGS: [(&str, bool); 4] =
    [("handRaised", false), ("micAllowed", true), ("videoAllowed", true), ("stage", false)];

/// A patch of one guest's state whose fields have the right types.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestPatch(Map<String, Value>);

impl GuestPatch {
    /// Checks a raw patch, by a host or by the user itself.
    pub fn validate(raw: Map<String, Value>, by_host: bool, max_depth: usize) -> Result<Self, ApiError> {
        if raw.is_empty() {
            return Err(ApiError::bad_request("`state` changes nothing"));
        }
        for (name, value) in &raw {
            let is_flag = FLAGS.iter().any(|(flag, _)| flag == name);
            if !is_flag && name != "custom" {
                let name: String = name.chars().take(40).collect();
                return Err(ApiError::bad_request(format!("`state.{name}` is not a field of a guest")));
            }
            if !by_host && OF_HOSTS.contains(&name.as_str()) {
                return Err(ApiError::new(
                    ErrorCode::Forbidden,
                    format!("only a host may change `state.{name}`"),
                ));
            }
            let fits = value.is_null() || if is_flag { value.is_boolean() } else { value.is_object() };
            if !fits {
                let expected = if is_flag { "a boolean" } else { "an object" };
                let found = kind(value);
                return Err(ApiError::bad_request(format!("`state.{name}` must be {expected}, not {found}")));
            }
            check_depth("state.custom", value, max_depth)?;
        }
        Ok(Self(raw))
    }

    /// What it changes.
    pub const fn fields(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// A flag of a guest's state, by its default where it was never set.
pub fn flag(state: Option<&Value>, name: &str) -> bool {
    let default = FLAGS.iter().any(|(flag, default)| *flag == name && *default);
    state.and_then(|state| state.get(name)).and_then(Value::as_bool).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn validate(raw: Value, by_host: bool) -> Result<GuestPatch, ApiError> {
        let Value::Object(raw) = raw else { panic!("an object") };
        GuestPatch::validate(raw, by_host, 8)
    }

    #[test]
    fn a_guest_changes_its_own_fields_and_a_host_all() {
        for own in
            [json!({"handRaised": true}), json!({"custom": {"mood": "happy"}}), json!({"handRaised": null})]
        {
            assert!(validate(own.clone(), false).is_ok(), "{own}");
        }
        for field in OF_HOSTS {
            let error = validate(json!({ field: true }), false).unwrap_err();
            assert_eq!(error.code, ErrorCode::Forbidden, "{field}");
            assert!(validate(json!({ field: true }), true).is_ok());
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        for (bad, message) in [
            (json!({}), "`state` changes nothing"),
            (json!({"hand": true}), "`state.hand` is not a field of a guest"),
            (json!({"handRaised": 1}), "`state.handRaised` must be a boolean, not a number"),
            (json!({"custom": []}), "`state.custom` must be an object, not a list"),
        ] {
            assert_eq!(validate(bad, true).unwrap_err().message, message);
        }
    }

    #[test]
    fn what_was_never_set_has_its_default() {
        assert!(flag(None, "micAllowed"));
        assert!(!flag(None, "handRaised"));
        assert!(!flag(Some(&json!({"micAllowed": false})), "micAllowed"));
    }
}
