//! What a Socket.IO session keeps of the request that opened it: as little as it needs.
//!
//! The session holds its request for as long as it lives. Header values and the URI are slices of the connection's
//! read buffer, which they would keep alive: 16 KiB for each idle client.

use axum::extract::Request;
use http::header::SEC_WEBSOCKET_KEY;
use http::{HeaderMap, HeaderValue, Uri};
use hyper::upgrade::OnUpgrade;

/// A request that a session keeps, on memory of its own; any other as it came.
pub fn lean(request: Request) -> Request {
    let uri = request.uri();
    let has_session = uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("sid=")));
    // A session that began with polling keeps the request that made it a WebSocket, too.
    let is_kept = !has_session || request.headers().contains_key(SEC_WEBSOCKET_KEY);
    if !is_kept || !uri.path().starts_with(super::SOCKET_PATH) {
        return request;
    }
    let Ok(own_uri) = uri.to_string().parse::<Uri>() else { return request };
    let (mut parts, body) = request.into_parts();
    parts.uri = own_uri;
    let mut headers = HeaderMap::new();
    let key = parts.headers.get(SEC_WEBSOCKET_KEY);
    if let Some(key) = key.and_then(|key| HeaderValue::from_bytes(key.as_bytes()).ok()) {
        headers.insert(SEC_WEBSOCKET_KEY, key);
    }
    parts.headers = headers;
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    parts.extensions.clear();
    if let Some(upgrade) = upgrade {
        parts.extensions.insert(upgrade);
    }
    Request::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn request(uri: &str) -> Request {
        http::Request::builder()
            .uri(uri)
            .header(SEC_WEBSOCKET_KEY, "a key")
            .header("cookie", "much")
            .extension(1_u32)
            .body(Body::empty())
            .unwrap()
    }

    #[test]
    fn a_session_keeps_what_it_needs() {
        let kept = lean(request("/socket.io/?EIO=4&transport=websocket"));
        assert_eq!(kept.uri(), "/socket.io/?EIO=4&transport=websocket");
        assert_eq!(kept.headers().len(), 1);
        assert_eq!(kept.headers()[SEC_WEBSOCKET_KEY], "a key");
        assert!(kept.extensions().get::<u32>().is_none());
    }

    #[test]
    fn other_requests_stay_as_they_are() {
        for (uri, is_upgrade) in
            [("/socket.io/?EIO=4&transport=polling&sid=x", false), ("/v1/apps/a/rooms", true)]
        {
            let mut polled = request(uri);
            if !is_upgrade {
                polled.headers_mut().remove(SEC_WEBSOCKET_KEY);
            }
            let headers = polled.headers().clone();
            let same = lean(polled);
            assert_eq!((same.headers(), same.extensions().get::<u32>()), (&headers, Some(&1)), "{uri}");
        }
        let upgraded = lean(request("/socket.io/?EIO=4&transport=websocket&sid=x"));
        assert_eq!(upgraded.headers().len(), 1);
    }
}
