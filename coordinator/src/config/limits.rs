//! `[http]`, `[limits]` and `[telemetry]`.

use std::time::Duration;

use super::error::Fault;
use super::section::Section;
use super::web::{AddressBlock, WebOrigin};

/// Web pages let in beside the instance's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// Any page, without credentials (`["*"]`).
    Any,
    /// These.
    Listed(Vec<WebOrigin>),
}

/// `[http]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Web origins let in beside the instance's own.
    pub allowed_origins: AllowedOrigins,
    /// Proxies whose forwarding headers are believed.
    pub trusted_proxies: Vec<AddressBlock>,
}

/// `[limits]`. Sizes in bytes, rates per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections of this instance.
    pub connections: u32,
    /// A connection that has not signed in by then is closed.
    pub handshake_timeout: Duration,
    /// Largest event or request body.
    pub max_event_bytes: usize,
    /// Events of one connection.
    pub events_per_second: u32,
    /// Events a connection that was quiet may send at once.
    pub events_burst: u32,
    /// Admissions of this instance.
    pub joins_per_second: u32,
    /// Admissions at once after quiet.
    pub joins_burst: u32,
    /// Rooms one connection may be in.
    pub rooms_per_connection: usize,
    /// Rooms one connection may watch.
    pub watch_rooms: usize,
    /// Users with guest state in one room.
    pub guests_per_room: usize,
    /// Deepest nesting of JSON.
    pub json_depth: usize,
    /// `custom` of a room's settings.
    pub custom_bytes: usize,
    /// The state of one guest, `custom` included.
    pub guest_custom_bytes: usize,
    /// Attributes of a peer.
    pub attributes_bytes: usize,
    /// Packets waiting for one client before it is cut off.
    pub outgoing_queue: usize,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Pretty,
}

/// `[telemetry]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Telemetry {
    /// Form of the log.
    pub log: LogFormat,
}

pub(super) fn read_http(section: &Section<'_>) -> Http {
    let any = section.texts("allowed_origins").unwrap_or_default();
    let allowed_origins = if any.iter().any(|origin| origin.value == "*") {
        if any.len() > 1 {
            let fault = Fault::Conflict("\"*\" stands for all origins; let it stand alone".to_owned());
            section.note(&section.place_of("allowed_origins"), "allowed_origins", fault);
        }
        AllowedOrigins::Any
    } else {
        let right =
            "scheme://host or scheme://host:port as browsers send it (ASCII, no path), or [\"*\"] alone";
        let listed = section.parsed_list("allowed_origins", right, |text| text.parse().ok());
        AllowedOrigins::Listed(listed.unwrap_or_default())
    };
    let right = "an address or a block, such as 10.0.0.0/8 or fd00::/8";
    let trusted_proxies =
        section.parsed_list("trusted_proxies", right, |text| text.parse().ok()).unwrap_or_default();
    Http { allowed_origins, trusted_proxies }
}

pub(super) fn read(section: &Section<'_>) -> Limits {
    let count = |key: &str, range, default: usize| section.integer(key, range, "").unwrap_or(default);
    let bytes = |key: &str, default: usize| section.integer(key, 64..=1_048_576, "bytes").unwrap_or(default);
    let connections = section.integer("connections", 1..=10_000_000, "").unwrap_or(10_000);
    let events_per_second = section.integer("events_per_second", 1..=100_000, "a second").unwrap_or(50);
    let joins_per_second = section
        .integer("joins_per_second", 1..=1_000_000, "a second")
        .unwrap_or((connections / 20).clamp(1, 1_000_000));
    let limits = Limits {
        connections,
        handshake_timeout: section
            .millis("handshake_timeout_ms", 100..=600_000)
            .unwrap_or(Duration::from_secs(10)),
        max_event_bytes: section.integer("max_event_bytes", 1_024..=16_777_216, "bytes").unwrap_or(65_536),
        events_per_second,
        events_burst: section
            .integer("events_burst", u64::from(events_per_second)..=1_000_000, "(from events_per_second)")
            .unwrap_or(events_per_second * 2),
        joins_per_second,
        joins_burst: section.integer("joins_burst", 1..=1_000_000, "").unwrap_or(joins_per_second),
        rooms_per_connection: count("rooms_per_connection", 1..=1_000, 16),
        watch_rooms: count("watch_rooms", 1..=10_000, 200),
        guests_per_room: count("guests_per_room", 1..=1_000_000, 10_000),
        json_depth: count("json_depth", 2..=64, 16),
        custom_bytes: bytes("custom_bytes", 16_384),
        guest_custom_bytes: bytes("guest_custom_bytes", 4_096),
        attributes_bytes: bytes("attributes_bytes", 2_048),
        outgoing_queue: count("outgoing_queue", 16..=65_536, 256),
    };
    let whole = limits.max_event_bytes;
    for (key, part) in [
        ("custom_bytes", limits.custom_bytes),
        ("guest_custom_bytes", limits.guest_custom_bytes),
        ("attributes_bytes", limits.attributes_bytes),
    ] {
        if part > whole {
            let fault =
                Fault::Conflict(format!("{part} bytes never fit into max_event_bytes, which is {whole}"));
            section.note(&section.place_of(key), key, fault);
        }
    }
    limits
}

pub(super) fn read_telemetry(section: &Section<'_>, dev: bool) -> Telemetry {
    let assumed = if dev { LogFormat::Pretty } else { LogFormat::Json };
    let log = section.word("log", &[("json", LogFormat::Json), ("pretty", LogFormat::Pretty)]);
    Telemetry { log: log.unwrap_or(assumed) }
}
