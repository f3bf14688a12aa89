//! The `dais.toml` of one process under test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::{place, token};

/// Tests run with a short heartbeat, so that what takes a lease takes under a second.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// What is written into the file, and what the process gets beside it.
#[derive(Debug, Clone)]
pub struct CoordinatorOptions {
    id: String,
    redis_url: String,
    values: BTreeMap<&'static str, BTreeMap<String, String>>,
    extra: String,
    environment: Vec<(String, String)>,
    entrance: Vec<String>,
}

impl CoordinatorOptions {
    /// An instance of this id on this Redis: ports that the system chooses, a heartbeat of 200 ms, the app `demo`
    /// with [`token::SECRET`], the embedded media server.
    pub fn new(id: &str, redis_url: &str) -> Self {
        let options = Self {
            id: id.to_owned(),
            redis_url: redis_url.to_owned(),
            values: BTreeMap::new(),
            extra: String::new(),
            environment: Vec::new(),
            entrance: Vec::new(),
        };
        options
            .text("instance", "id", id)
            .text("instance", "listen", "127.0.0.1:0")
            .text("instance", "admin_listen", "127.0.0.1:0")
            .text("redis", "url", redis_url)
            .text("redis", "key_prefix", "test")
            .heartbeat(HEARTBEAT)
            .text("app", "code", token::APP)
            .text("app", "secret", token::SECRET)
            .value("app", "auto_create", true)
            .text("media", "name", "local")
            .text("media", "kind", "embedded")
            .text("telemetry", "log", "json")
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A number or a flag of a section: `instance`, `redis`, `lease`, `ledger`, `app`, `media`, `http`, `limits`, `telemetry`.
    #[must_use]
    pub fn value(self, section: &'static str, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.literal(section, key, value.into().to_string())
    }

    /// A text of a section.
    #[must_use]
    pub fn text(self, section: &'static str, key: &str, text: &str) -> Self {
        self.literal(section, key, quoted(text))
    }

    /// A list of texts of a section.
    #[must_use]
    pub fn texts(self, section: &'static str, key: &str, texts: &[&str]) -> Self {
        let texts: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
        self.literal(section, key, format!("[{}]", texts.join(", ")))
    }

    fn literal(mut self, section: &'static str, key: &str, literal: String) -> Self {
        self.values.entry(section).or_default().insert(key.to_owned(), literal);
        self
    }

    /// Without this key, so that its default holds; without its last key, a section is not there.
    #[must_use]
    pub fn without(mut self, section: &'static str, key: &str) -> Self {
        if let Some(values) = self.values.get_mut(section) {
            values.remove(key);
            if values.is_empty() {
                self.values.remove(section);
            }
        }
        self
    }

    /// Another key prefix.
    #[must_use]
    pub fn key_prefix(self, prefix: &str) -> Self {
        self.text("redis", "key_prefix", prefix)
    }

    /// Another heartbeat; the owner key lives for three.
    #[must_use]
    pub fn heartbeat(self, heartbeat: Duration) -> Self {
        self.value("lease", "heartbeat_ms", millis(heartbeat))
    }

    /// Another grace period for lost connections.
    #[must_use]
    pub fn grace(self, grace: Duration) -> Self {
        self.value("app", "grace_ms", millis(grace))
    }

    /// Another time until an empty room is released.
    #[must_use]
    pub fn idle(self, idle: Duration) -> Self {
        self.value("app", "idle_ms", millis(idle))
    }

    /// More TOML at the end of the file, such as a second `[[app]]`.
    #[must_use]
    pub fn toml(mut self, toml: &str) -> Self {
        self.extra.push('\n');
        self.extra.push_str(toml);
        self
    }

    /// A variable of the process's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Started by another program with these arguments, such as [`SmallDisk::entrance`](crate::small_disk::SmallDisk::entrance).
    #[must_use]
    pub fn through(mut self, entrance: Vec<String>) -> Self {
        self.entrance = entrance;
        self
    }

    pub(super) fn entrance(&self) -> &[String] {
        &self.entrance
    }

    pub(super) fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// The file. Without another word the ledger is a SQLite file beside the cluster's Redis.
    pub fn render(&self) -> String {
        let mut toml = String::new();
        let mut all = self.values.clone();
        let prefix = all.get("redis").and_then(|redis| redis.get("key_prefix")).cloned().unwrap_or_default();
        let ledger = quoted(&place::ledger_url(&self.redis_url, &prefix));
        all.entry("ledger").or_default().entry("url".to_owned()).or_insert(ledger);
        for (section, values) in &all {
            let header = if matches!(*section, "app" | "media") {
                format!("[[{section}]]")
            } else {
                format!("[{section}]")
            };
            _ = writeln!(toml, "{header}");
            for (key, literal) in values {
                _ = writeln!(toml, "{key} = {literal}");
            }
            toml.push('\n');
        }
        toml + &self.extra
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A JSON string is a TOML basic string as well.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_each_section_once_and_what_was_changed() {
        let options = CoordinatorOptions::new("a", "redis://127.0.0.1:1")
            .grace(Duration::from_millis(250))
            .texts("http", "allowed_origins", &["http://x"])
            .without("media", "kind")
            .toml("[[app]]\ncode = \"other\"\n");
        let file = options.render();
        for line in [
            "[instance]\nadmin_listen = \"127.0.0.1:0\"\nid = \"a\"\n",
            "grace_ms = 250\n",
            "heartbeat_ms = 200\n",
            "allowed_origins = [\"http://x\"]\n",
            "[[media]]\nname = \"local\"\n\n",
            "[[app]]\ncode = \"other\"\n",
        ] {
            assert!(file.contains(line), "{line:?} in\n{file}");
        }
    }
}
