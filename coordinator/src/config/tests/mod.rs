//! What is accepted, what is refused and in which words.

mod faults;
mod properties;
mod values;

use std::ffi::OsString;

use super::{Config, ConfigError, Overrides};

/// The least a configuration needs outside `--dev`.
const LEAST: &str = r#"[instance]
id = "a-1"
[redis]
key_prefix = "t"
[[app]]
code = "school"
secret = "0123456789abcdef0123456789abcdef"
"#;

fn vars(given: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    given.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn read(text: &str) -> Result<Config, ConfigError> {
    Config::from_text("dais.toml", text, &Overrides::default(), [])
}

fn read_with(text: &str, given: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::from_text("dais.toml", text, &Overrides::default(), vars(given))
}

/// The messages of an error, one a line.
fn messages(result: Result<Config, ConfigError>) -> String {
    result.map(|config| format!("accepted: {config:?}")).unwrap_or_else(|error| error.to_string())
}
