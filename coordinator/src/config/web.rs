//! Web origins, public URLs and address blocks.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use key_prefix::InstanceName;

/// Why a text is no origin, URL or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
    /// No `scheme://`.
    #[error("no scheme")]
    Scheme,
    /// No host, or one with characters a host cannot have.
    #[error("no usable host")]
    Host,
    /// Not a port.
    #[error("no usable port")]
    Port,
    /// More than may stand there.
    #[error("a path, query or user where none may be")]
    TooMuch,
    /// Not an address block.
    #[error("no address or block")]
    Block,
}

/// Scheme, host and port of a page, in the form in which browsers send them: lower case, default ports left
/// out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WebOrigin {
    scheme: String,
    host: String,
    port: Option<u16>,
}

impl WebOrigin {
    /// Makes the origin of a scheme and an authority (`host` or `host:port`).
    pub fn new(scheme: &str, authority: &str) -> Result<Self, WebError> {
        let begins = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
        if !begins || !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) {
            return Err(WebError::Scheme);
        }
        let scheme = scheme.to_ascii_lowercase();
        let (host, port) = split_authority(authority)?;
        let port = port.filter(|port| Some(*port) != default_port(&scheme));
        Ok(WebOrigin { scheme, host, port })
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    }
}

fn split_authority(authority: &str) -> Result<(String, Option<u16>), WebError> {
    if authority.contains(['/', '?', '#', '@', '\\']) {
        return Err(WebError::TooMuch);
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']').ok_or(WebError::Host)?;
            let address: std::net::Ipv6Addr = address.parse().map_err(|_| WebError::Host)?;
            let port = match after {
                "" => None,
                _ => Some(after.strip_prefix(':').ok_or(WebError::Host)?),
            };
            (format!("[{address}]"), port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host.to_ascii_lowercase(), Some(port)),
            None => (authority.to_ascii_lowercase(), None),
        },
    };
    let named = !host.starts_with('[');
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if host.is_empty() || host.len() > 255 || (named && !host.bytes().all(plain)) {
        return Err(WebError::Host);
    }
    let digits = |port: &&str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = match port {
        None => None,
        Some(port) => {
            Some(Some(port).filter(digits).and_then(|port| port.parse().ok()).ok_or(WebError::Port)?)
        }
    };
    Ok((host, port))
}

impl FromStr for WebOrigin {
    type Err = WebError;

    fn from_str(text: &str) -> Result<Self, WebError> {
        let (scheme, authority) = text.split_once("://").ok_or(WebError::Scheme)?;
        WebOrigin::new(scheme, authority)
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

const INSTANCE: &str = "{instance}";

/// Where clients reach an instance: a URL in which `{instance}` stands for the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Checks the text; a trailing slash is dropped.
    pub fn parse(text: &str) -> Result<Self, WebError> {
        let text = text.trim_end_matches('/');
        let (scheme, rest) = text.split_once("://").ok_or(WebError::Scheme)?;
        if !matches!(scheme, "http" | "https") {
            return Err(WebError::Scheme);
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        WebOrigin::new(scheme, &authority.replace(INSTANCE, "i"))?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:@".contains(&b);
        if !path.replace(INSTANCE, "i").bytes().all(plain) {
            return Err(WebError::TooMuch);
        }
        Ok(PublicUrl(text.to_owned()))
    }

    /// The URL of one instance, without a trailing slash.
    pub fn of_instance(&self, id: &InstanceName) -> String {
        self.0.replace(INSTANCE, id.as_str())
    }

    /// The origin of that URL.
    pub fn origin_of_instance(&self, id: &InstanceName) -> WebOrigin {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("http", &self.0));
        let authority = rest.split('/').next().unwrap_or(rest);
        let filled = authority.replace(INSTANCE, id.as_str());
        // Checked by `parse` and, for the id, by `suits`.
        WebOrigin::new(scheme, &filled).unwrap_or_else(|_| WebOrigin {
            scheme: scheme.to_owned(),
            host: filled.to_ascii_lowercase(),
            port: None,
        })
    }

    /// Whether the id can stand where the URL puts it: within a host name it has to be (part of) a label.
    pub fn suits(&self, id: &InstanceName) -> bool {
        let rest = self.0.split_once("://").map_or(&*self.0, |(_, rest)| rest);
        let in_host = rest.split('/').next().is_some_and(|authority| authority.contains(INSTANCE));
        let id = id.as_str();
        let label = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        !in_host || (label && !id.starts_with('-') && !id.ends_with('-'))
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A block of addresses, as `10.0.0.0/8`, `fd00::/8` or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBlock {
    base: IpAddr,
    bits: u8,
}

impl AddressBlock {
    /// Whether the address lies in the block; an IPv4 address written as IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                same(base.to_bits().into(), address.to_bits().into(), self.bits + 96)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => same(base.to_bits(), address.to_bits(), self.bits),
            _ => false,
        }
    }
}

/// Whether the first `bits` of 128 agree.
fn same(a: u128, b: u128, bits: u8) -> bool {
    (a ^ b).checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
}

impl FromStr for AddressBlock {
    type Err = WebError;

    fn from_str(text: &str) -> Result<Self, WebError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let base: IpAddr = address.parse().map_err(|_| WebError::Block)?;
        let all: u8 = if base.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => all,
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => {
                bits.parse().map_err(|_| WebError::Block)?
            }
            Some(_) => return Err(WebError::Block),
        };
        if bits > all {
            return Err(WebError::Block);
        }
        Ok(AddressBlock { base, bits })
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}
