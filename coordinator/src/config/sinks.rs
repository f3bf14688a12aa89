//! `[[app.sinks]]`: who is told of what happens in an app's rooms.

use std::sync::Arc;
use std::time::Duration;

use ledger::Filter;
use ledger::sink::Secret as SigningSecret;
use url::Url;

use super::error::Fault;
use super::keys;
use super::section::Section;

/// One `[[app.sinks]]`.
#[derive(Debug, Clone)]
pub struct SinkConfig {
    /// Its name within the app.
    pub name: Arc<str>,
    /// Where events go.
    pub kind: SinkKind,
    /// Which events.
    pub events: Filter,
    /// Whether the events of a room come one after the other.
    pub ordered: bool,
    /// Longest wait for one delivery.
    pub timeout: Duration,
    /// Most deliveries at a time.
    pub concurrency: usize,
    /// An event that cannot be delivered for so long is given up.
    pub give_up: Duration,
}

/// Where events go.
#[derive(Debug, Clone)]
pub enum SinkKind {
    /// To a URL.
    Webhook {
        /// Which.
        url: Url,
        /// What each is signed with.
        secrets: Vec<SigningSecret>,
    },
    /// Into a stream in Redis.
    Stream {
        /// About so many events are kept.
        cap: usize,
    },
}

/// Longest name of a sink, in bytes.
const NAME_BYTES: usize = 63;
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy)]
enum Word {
    Webhook,
    Stream,
}

/// Reads an app's sinks.
pub(super) fn read(section: &mut Section<'_>) -> Vec<SinkConfig> {
    let mut sinks: Vec<SinkConfig> = Vec::new();
    for section in section.tables("sinks", keys::SINK) {
        let place = section.place_of("name");
        let Some(sink) = read_one(&section) else { continue };
        if sinks.iter().any(|other| other.name == sink.name) {
            section.note(&place, "name", Fault::Conflict(format!("{:?} is given twice", sink.name)));
        }
        sinks.push(sink);
    }
    sinks
}

fn read_one(section: &Section<'_>) -> Option<SinkConfig> {
    let right = "1 to 63 of a-z A-Z 0-9 . _ -";
    let fits = |text: &str| {
        (1..=NAME_BYTES).contains(&text.len())
            && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-'))
    };
    let name = section.parsed("name", right, |text| fits(text).then(|| text.to_owned()));
    if section.text("name").is_none() {
        section.missing("name", "what the sink is called in lists and metrics");
    }
    let events = match section.texts("events") {
        None => Filter::all(),
        Some(given) => match Filter::new(given.iter().map(|pattern| pattern.value.as_str())) {
            Ok(filter) => filter,
            Err(error) => {
                let place = section.place_of("events");
                let fault = Fault::BadValue {
                    found: Some(format!("{:?}", error.0)),
                    right: "family.name, family.* or *".to_owned(),
                };
                section.note(&place, "events", fault);
                Filter::all()
            }
        },
    };
    let words = [("webhook", Word::Webhook), ("stream", Word::Stream)];
    let kind = match section.word("kind", &words).unwrap_or(Word::Webhook) {
        Word::Webhook => webhook(section),
        Word::Stream => Some(SinkKind::Stream {
            cap: section.integer("stream_cap", 1..=10_000_000, "events").unwrap_or(100_000),
        }),
    };
    let hours: u32 = section.integer("give_up_hours", 1..=720, "hours").unwrap_or(24);
    Some(SinkConfig {
        name: name?.into(),
        kind: kind?,
        events,
        ordered: section.boolean("ordered").unwrap_or(true),
        timeout: section.millis("timeout_ms", 100..=60_000).unwrap_or(Duration::from_secs(10)),
        concurrency: section.integer("concurrency", 1..=1_000, "").unwrap_or(32),
        give_up: HOUR * hours,
    })
}

fn webhook(section: &Section<'_>) -> Option<SinkKind> {
    let right = "an http or https URL without user, password or fragment";
    let is_plain = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none()
    };
    // It may hold a token: it is never repeated.
    let given = section.secret("url");
    let url = given.as_ref().and_then(|given| Url::parse(given.value.expose()).ok()).filter(is_plain);
    match (&given, &url) {
        (None, _) => section.missing("url", "where the webhook posts to"),
        (Some(given), None) => {
            let fault = Fault::BadValue { found: None, right: right.to_owned() };
            section.note(&given.place, "url", fault);
        }
        (Some(_), Some(_)) => {}
    }
    let listed = section.secrets("secrets");
    if listed.is_empty() {
        section
            .missing("secrets", "one or more keys that the webhook is signed with, each `whsec_` and base64");
    }
    let mut secrets = Vec::new();
    for secret in &listed {
        match SigningSecret::parse(secret.value.expose()) {
            Ok(secret) => secrets.push(secret),
            Err(error) => {
                let fault = Fault::BadValue { found: None, right: format!("keys of which {error}") };
                section.note(&secret.place, "secrets", fault);
            }
        }
    }
    Some(SinkKind::Webhook { url: url?, secrets })
}
