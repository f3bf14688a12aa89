//! Which web pages may talk to this instance, and where a request really comes from.
//!
//! One rule for WebSocket, polling and HTTP: a request without `Origin` is not from a page and passes; the
//! request's own origin, that of `public_url` and those of `[http] allowed_origins` pass; everything else
//! gets 403, so that a page elsewhere cannot even open a socket in a visitor's name. `X-Forwarded-*` counts
//! only from a trusted proxy; where a chain of them disagrees about scheme or host, the nearest is believed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use super::problem::Problem;
use crate::config::{AddressBlock, AllowedOrigins, Http, WebOrigin};
use crate::error::{ApiError, ErrorCode};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Longest chain of forwarders looked at.
const MAX_HOPS: usize = 32;

/// The rule, as configured.
#[derive(Debug, Clone)]
pub struct OriginPolicy {
    allowed: AllowedOrigins,
    public: Option<WebOrigin>,
    proxies: Vec<AddressBlock>,
}

/// What the rule says of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No page sent it, or a page of this very origin: nothing to add.
    Same,
    /// A page of another origin that is let in by name.
    Listed(HeaderValue),
    /// A page of whatever origin, all being let in.
    Any,
    /// A page that is not let in.
    Refused,
}

/// The address a request came from, in the request's extensions once the guard has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl OriginPolicy {
    /// Makes the rule; `public` is the origin of this instance's public URL.
    pub fn new(http: &Http, public: Option<WebOrigin>) -> Self {
        OriginPolicy { allowed: http.allowed_origins.clone(), public, proxies: http.trusted_proxies.clone() }
    }

    /// Judges the headers of a request that came over a connection from `peer`.
    pub fn judge(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Verdict {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(given) = origins.next() else { return Verdict::Same };
        let parsed = given.to_str().ok().and_then(|text| text.parse::<WebOrigin>().ok());
        let parsed = parsed.filter(|_| origins.next().is_none());
        if let Some(origin) = &parsed
            && (self.public.as_ref() == Some(origin) || self.own(headers, peer).as_ref() == Some(origin))
        {
            return Verdict::Same;
        }
        match (&self.allowed, parsed) {
            (AllowedOrigins::Any, _) => Verdict::Any,
            (AllowedOrigins::Listed(listed), Some(origin)) if listed.contains(&origin) => {
                Verdict::Listed(given.clone())
            }
            _ => Verdict::Refused,
        }
    }

    /// The origin under which the client reached us: what a trusted proxy says, else `Host` over plain HTTP.
    fn own(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<WebOrigin> {
        let forwarded = |name: &HeaderName| {
            let value = headers
                .get_all(name)
                .iter()
                .next_back()
                .filter(|_| peer.is_some_and(|peer| self.trusts(peer)));
            value.and_then(|value| value.to_str().ok()?.rsplit(',').next().map(str::trim))
        };
        let scheme = match forwarded(&FORWARDED_PROTO) {
            None | Some("http" | "ws") => "http",
            Some("https" | "wss") => "https",
            Some(_) => return None,
        };
        let host = forwarded(&FORWARDED_HOST).or_else(|| headers.get(header::HOST)?.to_str().ok())?;
        WebOrigin::new(scheme, host).ok()
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|block| block.contains(address))
    }

    /// The address of the client: followed through `X-Forwarded-For` from its end for as long as the address
    /// that said so is a trusted proxy.
    pub fn client_address(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let mut address = peer.to_canonical();
        let said = headers.get_all(&FORWARDED_FOR).iter().rev();
        let hops = said.flat_map(|value| value.to_str().unwrap_or_default().rsplit(','));
        for hop in hops.take(MAX_HOPS) {
            if !self.trusts(address) {
                break;
            }
            let Some(next) = forwarded_address(hop.trim()) else { break };
            address = next;
        }
        address
    }
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn forwarded_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    address.ok().map(|address| address.to_canonical())
}

/// Middleware: judges each request, answers preflights, and leaves the [`ClientAddress`] in the extensions.
///
/// Has to be the outermost layer, around Socket.IO too: `router.layer(middleware::from_fn_with_state(policy,
/// guard))` after all others. Needs `ConnectInfo<SocketAddr>` in the extensions; without it no proxy is
/// trusted.
pub async fn guard(State(policy): State<Arc<OriginPolicy>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    if let Some(peer) = peer {
        let address = policy.client_address(request.headers(), peer);
        request.extensions_mut().insert(ClientAddress(address));
    }
    let verdict = policy.judge(request.headers(), peer);
    let preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match verdict {
        Verdict::Refused => refusal(),
        Verdict::Listed(_) | Verdict::Any if preflight => permission(request.headers()),
        Verdict::Same | Verdict::Listed(_) | Verdict::Any => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    match verdict {
        Verdict::Same | Verdict::Refused => return response,
        Verdict::Any => {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        }
        Verdict::Listed(origin) => {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
    let exposed = HeaderValue::from_static("etag, retry-after");
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    response
}

fn refusal() -> Response {
    let message =
        "This page's origin is not let in here. The operator can add it to allowed_origins in [http].";
    Problem::from(ApiError::new(ErrorCode::Forbidden, message)).into_response()
}

/// The answer to a preflight: any header a page asks for may be sent, since none is trusted for being absent.
fn permission(asked: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    let varied = HeaderValue::from_static("access-control-request-method, access-control-request-headers");
    headers.append(header::VARY, varied);
    response
}

#[cfg(test)]
mod tests;
