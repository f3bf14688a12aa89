mod callbacks;
mod server;

use serde_json::Value;

const KEY: &str = "devkey";
const SECRET: &str = "secret";

/// An object with some fields set.
fn with(mut object: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        object[name] = value.clone();
    }
    object
}
