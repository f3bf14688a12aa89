//! The multi-writer part of a room: its settings and the state of its guests.
//!
//! Both are documents that any instance changes by merge patch (RFC 7396) through Redis alone. Here is
//! what may be in them: [`settings`] and [`guest`] turn a raw patch into a validated one; [`room_cell::patch`]
//! applies and compares documents in memory.

pub mod guest;
pub mod settings;

use serde_json::Value;

use crate::error::ApiError;

/// Deepest nesting of a value, a scalar being 0.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

pub(crate) fn check_depth(what: &str, value: &Value, max: usize) -> Result<(), ApiError> {
    let found = depth(value);
    if found > max {
        return Err(ApiError::bad_request(format!(
            "`{what}` is nested {found} deep, at most {max} is allowed"
        )));
    }
    Ok(())
}

pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
