//! `[redis]`: the store.

use std::fmt;
use std::time::Duration;

use url::Url;

use super::error::Fault;
use super::lease::Lease;
use super::secret::Secret;
use super::section::Section;

/// `[redis]`.
#[derive(Debug, Clone)]
pub struct Redis {
    /// The one URL to connect with; `sentinels` are already worked into it.
    pub url: RedisUrl,
    /// Prefix as configured; whether the policy allows it is for the `key-prefix` crate to say.
    pub key_prefix: String,
    /// Longest wait for one command.
    pub command_timeout: Duration,
    /// What is acknowledged is on so many replicas first; 0: on none.
    pub wait_replicas: u32,
    /// Readiness turns red when Redis has been out of reach for so long.
    pub unready_after: Duration,
}

/// A checked URL of a Redis or of its Sentinels. Display leaves credentials out.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    whole: Secret,
    shown: String,
    sentinel: bool,
    tls: bool,
}

impl RedisUrl {
    /// Checks a URL; the error says what would be right.
    pub fn parse(text: &str) -> Result<Self, RedisUrlError> {
        let url = Url::parse(text).map_err(|_| RedisUrlError::NotAUrl)?;
        let (sentinel, tls) = match url.scheme() {
            "redis" => (false, false),
            "rediss" => (false, true),
            "redis-sentinel" => (true, false),
            "rediss-sentinel" => (true, true),
            "redis-cluster" | "rediss-cluster" => return Err(RedisUrlError::Cluster),
            _ => return Err(RedisUrlError::Scheme),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(RedisUrlError::Host)?;
        let database = url.path().trim_start_matches('/');
        if !database.is_empty() && database.parse::<u8>().is_err() {
            return Err(RedisUrlError::Database);
        }
        if url.fragment().is_some() {
            return Err(RedisUrlError::Query);
        }
        let mut named = false;
        for (key, value) in url.query_pairs() {
            match &*key {
                "node" if sentinel && host_and_port(&value) => {}
                "sentinelServiceName" if sentinel && !value.is_empty() => named = true,
                "sentinelUsername" | "sentinelPassword" if sentinel => {}
                _ => return Err(RedisUrlError::Query),
            }
        }
        if sentinel && !named {
            return Err(RedisUrlError::Service);
        }
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let shown = format!("{}://{host}{port}{}", url.scheme(), url.path().trim_end_matches('/'));
        Ok(RedisUrl { whole: Secret::new(text), shown, sentinel, tls })
    }

    /// The same credentials, database and TLS, by way of Sentinels given as `host:port`.
    fn by_sentinels(&self, sentinels: &[String], service: &str) -> Result<Self, RedisUrlError> {
        if self.sentinel {
            return Err(RedisUrlError::SentinelsTwice);
        }
        let [first, others @ ..] = sentinels else { return Err(RedisUrlError::Host) };
        let url = Url::parse(self.expose()).map_err(|_| RedisUrlError::NotAUrl)?;
        let user_info = match (url.username(), url.password()) {
            ("", None) => String::new(),
            (user, None) => format!("{user}@"),
            (user, Some(password)) => format!("{user}:{password}@"),
        };
        let scheme = if self.tls { "rediss-sentinel" } else { "redis-sentinel" };
        let service: String = url::form_urlencoded::byte_serialize(service.as_bytes()).collect();
        let mut whole = format!("{scheme}://{user_info}{first}{}?sentinelServiceName={service}", url.path());
        for node in others {
            whole.push_str("&node=");
            whole.push_str(node);
        }
        RedisUrl::parse(&whole)
    }

    /// The URL with its credentials, for the client library.
    pub fn expose(&self) -> &str {
        self.whole.expose()
    }

    /// Whether it names Sentinels.
    pub fn is_sentinel(&self) -> bool {
        self.sentinel
    }

    /// Whether it asks for TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// What is wrong with a Redis URL, and what would be right. The URL itself is never in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedisUrlError {
    /// Not a URL at all.
    #[error("a URL such as redis://user:password@host:6379/0")]
    NotAUrl,
    /// Another scheme.
    #[error("a URL that begins with redis://, rediss://, redis-sentinel:// or rediss-sentinel://")]
    Scheme,
    /// A Redis Cluster.
    #[error("a standalone Redis or one behind Sentinels; a Redis Cluster cannot serve")]
    Cluster,
    /// No host.
    #[error("a URL with a host")]
    Host,
    /// A path that is no database number.
    #[error("a URL whose path is a database number, 0 to 255, or nothing")]
    Database,
    /// Parameters that mean nothing here.
    #[error(
        "a URL without parameters; with Sentinels these: node=host:port, sentinelServiceName, sentinelUsername, sentinelPassword"
    )]
    Query,
    /// Sentinels without the master's name.
    #[error("a Sentinel URL with ?sentinelServiceName=… in it")]
    Service,
    /// Sentinels in the URL and in the list.
    #[error("a redis:// or rediss:// URL where `sentinels` are listed as well")]
    SentinelsTwice,
}

/// A named host or an address, and a port.
fn host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    super::web::WebOrigin::new("redis", text).is_ok()
        && !host.is_empty()
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

pub(super) fn read(section: &Section<'_>, dev: bool, lease: &Lease) -> Option<Redis> {
    let url = match section.secret("url") {
        None => RedisUrl::parse("redis://127.0.0.1:6379").ok(),
        Some(given) => match RedisUrl::parse(given.value.expose()) {
            Ok(url) => Some(url),
            Err(error) => {
                section.note(&given.place, "url", Fault::BadValue { found: None, right: error.to_string() });
                None
            }
        },
    };
    let sentinels =
        section.parsed_list("sentinels", "host:port", |text| host_and_port(text).then(|| text.to_owned()));
    let service = section.parsed("sentinel_service", "a name that is not empty", |text| {
        (!text.is_empty() && !text.contains(char::is_control)).then(|| text.to_owned())
    });
    let url = match (url, sentinels) {
        (Some(url), Some(sentinels)) => {
            match url.by_sentinels(&sentinels, service.as_deref().unwrap_or("mymaster")) {
                Ok(url) => Some(url),
                Err(error) => {
                    let right = match error {
                        RedisUrlError::Host => "a list of at least one host:port".to_owned(),
                        error => error.to_string(),
                    };
                    section.note(
                        &section.place_of("sentinels"),
                        "sentinels",
                        Fault::BadValue { found: None, right },
                    );
                    None
                }
            }
        }
        (url, None) => {
            if service.is_some() {
                let fault = Fault::Conflict("goes with `sentinels`, which are not given".to_owned());
                section.note(&section.place_of("sentinel_service"), "sentinel_service", fault);
            }
            url
        }
        (None, Some(_)) => None,
    };
    let key_prefix = match section.text("key_prefix") {
        Some(prefix) => Some(prefix.value),
        None if dev => Some("dev".to_owned()),
        None => {
            section
                .missing("key_prefix", "say which stage and branch these keys belong to, such as \"prod\"");
            None
        }
    };
    let bound = lease.command_timeout_bound();
    let command_timeout = section.millis("command_timeout_ms", 10..=60_000);
    if let Some(given) = command_timeout.filter(|given| *given > bound) {
        let fault = Fault::Conflict(format!(
            "{} ms are more than (self_fence - heartbeat) / 2 = ({} - {}) / 2 = {} ms: a lease could run out while its renewal waits",
            given.as_millis(),
            lease.self_fence.as_millis(),
            lease.heartbeat.as_millis(),
            bound.as_millis()
        ));
        section.note(&section.place_of("command_timeout_ms"), "command_timeout_ms", fault);
    }
    Some(Redis {
        url: url?,
        key_prefix: key_prefix?,
        command_timeout: command_timeout.unwrap_or(bound.min(Duration::from_secs(1))),
        wait_replicas: section.integer("wait_replicas", 0..=16, "").unwrap_or_default(),
        unready_after: section.millis("unready_after_ms", 100..=600_000).unwrap_or(Duration::from_secs(3)),
    })
}
