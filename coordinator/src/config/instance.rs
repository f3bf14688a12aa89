//! `[instance]`: who this process is and where it listens.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use key_prefix::InstanceName;

use super::error::Fault;
use super::section::Section;
use super::web::{PublicUrl, WebOrigin};

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Connections and rooms.
    Signaling,
    /// RTC callbacks.
    Callbacks,
    /// Candidate for the reaper's leadership.
    Reaper,
    /// Moves lanes into the ledger.
    Archiver,
    /// Delivers outgoing events.
    Outbox,
}

const ROLES: [(&str, Role); 5] = [
    ("signaling", Role::Signaling),
    ("callbacks", Role::Callbacks),
    ("reaper", Role::Reaper),
    ("archiver", Role::Archiver),
    ("outbox", Role::Outbox),
];

/// `[instance]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Name, stable over restarts.
    pub id: InstanceName,
    /// Public listener; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Operations listener; port 0 takes a free one.
    pub admin_listen: SocketAddr,
    /// Where clients reach this instance; without it the listener's address is all there is.
    pub public_url: Option<PublicUrl>,
    /// What this process does.
    pub roles: BTreeSet<Role>,
    /// Longest graceful stop.
    pub drain: Duration,
}

impl Instance {
    /// Whether this process has the role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// The public URL of this instance, its id filled in and without a trailing slash.
    pub fn public_base(&self) -> Option<String> {
        self.public_url.as_ref().map(|url| url.of_instance(&self.id))
    }

    /// The web origin of the public URL.
    pub fn public_origin(&self) -> Option<WebOrigin> {
        self.public_url.as_ref().map(|url| url.origin_of_instance(&self.id))
    }
}

pub(super) fn read(section: &Section<'_>, dev: bool, host_name: Option<&str>) -> Option<Instance> {
    let id = section.parsed("id", "1 to 63 of a-z A-Z 0-9 . _ -, not beginning with a dot", name);
    let id = match (id, section.text("id")) {
        (Some(id), _) => Some(id),
        (None, Some(_)) => None,
        (None, None) => {
            let assumed = if dev { Some("dev") } else { host_name };
            let assumed = assumed.and_then(name);
            if assumed.is_none() {
                section.missing("id", "the host has no name that could serve; give the instance one");
            }
            assumed
        }
    };
    let address = |key: &str, default: SocketAddr| {
        section
            .parsed(key, "address:port, such as 0.0.0.0:7800 or [::1]:7800", |text| text.parse().ok())
            .unwrap_or(default)
    };
    let any = if dev { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    let listen = address("listen", SocketAddr::from((any, 7800)));
    let admin_listen = address("admin_listen", SocketAddr::from((Ipv4Addr::LOCALHOST, 7801)));
    if listen == admin_listen && listen.port() != 0 {
        let fault =
            Fault::Conflict(format!("{listen} is also `listen`; the operations listener needs its own"));
        section.note(&section.place_of("admin_listen"), "admin_listen", fault);
    }
    let public_url = section.parsed(
        "public_url",
        "http:// or https://, a host, perhaps a port and a path; `{instance}` stands for the id",
        |text| PublicUrl::parse(text).ok(),
    );
    if let (Some(url), Some(id)) = (&public_url, &id)
        && !url.suits(id)
    {
        let fault = Fault::Conflict(format!(
            "`{{instance}}` is part of the host name, so the id {id:?} must consist of letters, digits and inner hyphens"
        ));
        section.note(&section.place_of("public_url"), "public_url", fault);
    }
    let roles = section
        .parsed_list("roles", "signaling, callbacks, reaper, archiver or outbox", |text| {
            ROLES.iter().find(|(name, _)| *name == text).map(|(_, role)| *role)
        })
        .map_or_else(|| ROLES.iter().map(|(_, role)| *role).collect(), BTreeSet::from_iter);
    if roles.is_empty() {
        section.note(
            &section.place_of("roles"),
            "roles",
            Fault::BadValue { found: Some("an empty list".into()), right: "at least one role".into() },
        );
    }
    let drain = section.millis("drain_ms", 0..=3_600_000).unwrap_or(Duration::from_secs(30));
    Some(Instance { id: id?, listen, admin_listen, public_url, roles, drain })
}

fn name(text: &str) -> Option<InstanceName> {
    // `.` and `..` would vanish from `/i/{instance}/`.
    InstanceName::new(text).ok().filter(|_| !text.starts_with('.'))
}
