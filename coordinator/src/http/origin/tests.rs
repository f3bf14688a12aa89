use axum::Router;
use axum::routing::any;
use http::request::Builder;
use proptest::prelude::*;
use tower::ServiceExt;

use super::*;

fn policy(allowed: &[&str], proxies: &[&str]) -> OriginPolicy {
    let allowed_origins = match allowed {
        ["*"] => AllowedOrigins::Any,
        _ => AllowedOrigins::Listed(allowed.iter().map(|origin| origin.parse().unwrap()).collect()),
    };
    let trusted_proxies = proxies.iter().map(|block| block.parse().unwrap()).collect();
    OriginPolicy::new(
        &Http { allowed_origins, trusted_proxies },
        Some("https://dais.example".parse().unwrap()),
    )
}

fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let mut map = HeaderMap::new();
    for (name, value) in given.iter().map(pair) {
        map.append(name, value);
    }
    map
}

const PROXY: &str = "10.0.0.1";
const STRANGER: &str = "192.0.2.1";

#[test]
fn origins_are_judged() {
    let policy = policy(&["https://app.example", "capacitor://localhost"], &["10.0.0.0/8"]);
    let same = Verdict::Same;
    let listed = |origin: &str| Verdict::Listed(HeaderValue::from_str(origin).unwrap());
    let refused = Verdict::Refused;
    for (given, peer, expected) in [
        (vec![("host", "a:7800")], STRANGER, &same),
        (vec![("host", "a:7800"), ("origin", "http://a:7800")], STRANGER, &same),
        (vec![("host", "A:7800"), ("origin", "http://a:7800")], STRANGER, &same),
        (vec![("host", "a:80"), ("origin", "http://a")], STRANGER, &same),
        (vec![("host", "a"), ("origin", "http://a:80")], STRANGER, &same),
        (vec![("host", "[::1]:7800"), ("origin", "http://[::1]:7800")], STRANGER, &same),
        (vec![("host", "a:7800"), ("origin", "http://a:7801")], STRANGER, &refused),
        (vec![("host", "a:7800"), ("origin", "https://a:7800")], STRANGER, &refused),
        (vec![("host", "a:7800"), ("origin", "http://b:7800")], STRANGER, &refused),
        (vec![("host", "a:7800"), ("origin", "http://a.evil.example:7800")], STRANGER, &refused),
        (vec![("origin", "http://a:7800")], STRANGER, &refused),
        (vec![("host", "a"), ("origin", "null")], STRANGER, &refused),
        (vec![("host", "a"), ("origin", "")], STRANGER, &refused),
        (vec![("host", "a"), ("origin", "http://a\u{e9}")], STRANGER, &refused),
        (vec![("host", "a"), ("origin", "http://a"), ("origin", "http://a")], STRANGER, &refused),
        (vec![("host", "a"), ("origin", "https://dais.example")], STRANGER, &same),
        (vec![("host", "a"), ("origin", "http://dais.example")], STRANGER, &refused),
        (vec![("host", "a"), ("origin", "https://app.example")], STRANGER, &listed("https://app.example")),
        (vec![("host", "a"), ("origin", "https://app.example:444")], STRANGER, &refused),
        (
            vec![("host", "a"), ("origin", "capacitor://localhost")],
            STRANGER,
            &listed("capacitor://localhost"),
        ),
        (
            vec![
                ("host", "in"),
                ("origin", "https://out"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "out"),
            ],
            PROXY,
            &same,
        ),
        (vec![("host", "in"), ("origin", "https://in"), ("x-forwarded-proto", "https")], PROXY, &same),
        (vec![("host", "in"), ("origin", "https://in"), ("x-forwarded-proto", "wss")], PROXY, &same),
        (
            vec![
                ("host", "in"),
                ("origin", "https://out"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "out"),
            ],
            STRANGER,
            &refused,
        ),
        (
            vec![
                ("host", "in"),
                ("origin", "https://evil"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "evil, in"),
            ],
            PROXY,
            &refused,
        ),
        (vec![("host", "in"), ("origin", "https://in"), ("x-forwarded-proto", "gopher")], PROXY, &refused),
    ] {
        let peer = peer.parse().ok();
        assert_eq!(&policy.judge(&headers(&given), peer), expected, "{given:?}");
    }
    let forwarded = [("host", "in"), ("origin", "https://in"), ("x-forwarded-proto", "https")];
    assert_eq!(policy.judge(&headers(&forwarded), None), Verdict::Refused);
}

#[test]
fn a_star_lets_everyone_in() {
    let policy = policy(&["*"], &[]);
    for origin in ["https://evil.example", "null", "what"] {
        assert_eq!(policy.judge(&headers(&[("host", "a"), ("origin", origin)]), None), Verdict::Any);
    }
    assert_eq!(policy.judge(&headers(&[("host", "a"), ("origin", "http://a")]), None), Verdict::Same);
}

#[test]
fn client_addresses_are_followed_through_trusted_proxies_only() {
    let policy = policy(&[], &["10.0.0.0/8", "fd00::/8"]);
    for (said, peer, expected) in [
        (vec![], STRANGER, STRANGER),
        (vec!["1.1.1.1"], STRANGER, STRANGER),
        (vec!["1.1.1.1"], PROXY, "1.1.1.1"),
        (vec!["1.1.1.1"], "::ffff:10.0.0.1", "1.1.1.1"),
        (vec!["6.6.6.6, 1.1.1.1"], PROXY, "1.1.1.1"),
        (vec!["6.6.6.6, 1.1.1.1, 10.0.0.2"], PROXY, "1.1.1.1"),
        (vec!["6.6.6.6, 1.1.1.1", "10.0.0.2"], PROXY, "1.1.1.1"),
        (vec!["1.1.1.1:4711"], PROXY, "1.1.1.1"),
        (vec!["[2001:db8::1]:4711"], PROXY, "2001:db8::1"),
        (vec!["[2001:db8::1]"], PROXY, "2001:db8::1"),
        (vec!["2001:db8::1"], "fd00::1", "2001:db8::1"),
        (vec!["unknown"], PROXY, PROXY),
        (vec!["6.6.6.6, unknown, 10.0.0.2"], PROXY, "10.0.0.2"),
        (vec![""], PROXY, PROXY),
        (vec!["10.0.0.3, 10.0.0.2"], PROXY, "10.0.0.3"),
    ] {
        let mut map = HeaderMap::new();
        for value in &said {
            map.append(FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        let found = policy.client_address(&map, peer.parse().unwrap());
        assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{said:?} by {peer}");
    }
}

async fn answer(policy: OriginPolicy, request: Builder) -> Response {
    let seen = |request: Request| async move {
        request.extensions().get::<ClientAddress>().map(|address| address.0.to_string()).unwrap_or_default()
    };
    let guarded = Router::new()
        .route("/socket.io/", any(seen))
        .layer(axum::middleware::from_fn_with_state(Arc::new(policy), guard));
    let mut request = request.uri("/socket.io/").header("host", "a:7800").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711))));
    guarded.oneshot(request).await.unwrap()
}

fn header_of<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn strangers_get_403_for_every_kind_of_request() {
    for request in [
        Request::get("/").header("upgrade", "websocket").header("connection", "upgrade"),
        Request::get("/"),
        Request::post("/"),
        Request::options("/").header("access-control-request-method", "POST"),
    ] {
        let response =
            answer(policy(&["https://app.example"], &[]), request.header("origin", "https://evil.example"))
                .await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(header_of(&response, "content-type"), Some("application/problem+json"));
        assert_eq!(header_of(&response, "vary"), Some("origin"));
        assert_eq!(header_of(&response, "access-control-allow-origin"), None);
        let body = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((problem["code"].as_str(), problem["status"].as_u64()), (Some("FORBIDDEN"), Some(403)));
    }
}

#[tokio::test]
async fn listed_origins_get_their_headers() {
    let request = Request::get("/").header("origin", "https://app.example");
    let response = answer(policy(&["https://app.example"], &[]), request).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header_of(&response, "access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(header_of(&response, "access-control-allow-credentials"), Some("true"));
    assert_eq!(header_of(&response, "vary"), Some("origin"));
}

#[tokio::test]
async fn preflights_of_listed_origins_are_answered_here() {
    let request = Request::options("/")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "PATCH")
        .header("access-control-request-headers", "authorization, if-match");
    let response = answer(policy(&["https://app.example"], &[]), request).await;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    assert_eq!(header_of(&response, "access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(header_of(&response, "access-control-allow-headers"), Some("authorization, if-match"));
    assert!(header_of(&response, "access-control-allow-methods").unwrap().contains("PATCH"));
}

#[tokio::test]
async fn a_star_gives_no_credentials() {
    let response =
        answer(policy(&["*"], &[]), Request::get("/").header("origin", "https://evil.example")).await;
    assert_eq!(header_of(&response, "access-control-allow-origin"), Some("*"));
    assert_eq!(header_of(&response, "access-control-allow-credentials"), None);
}

#[tokio::test]
async fn own_pages_and_programs_pass_and_the_address_is_left_behind() {
    for request in [Request::get("/"), Request::get("/").header("origin", "http://a:7800")] {
        let response = answer(policy(&[], &["10.0.0.1"]), request.header("x-forwarded-for", "1.1.1.1")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(header_of(&response, "access-control-allow-origin"), None);
        let body = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
        assert_eq!(&body[..], b"1.1.1.1");
    }
}

proptest! {
    #[test]
    fn any_headers_are_judged(origin: Vec<u8>, host: Vec<u8>, forwarded in "[ -~]{0,60}", peer: IpAddr) {
        let policy = policy(&["https://app.example"], &["0.0.0.0/0", "::/0"]);
        let mut map = HeaderMap::new();
        for (name, value) in [
            (header::ORIGIN, &origin[..]),
            (header::HOST, &host[..]),
            (FORWARDED_FOR, forwarded.as_bytes()),
            (FORWARDED_HOST, forwarded.as_bytes()),
            (FORWARDED_PROTO, forwarded.as_bytes()),
        ] {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                map.append(name, value);
            }
        }
        policy.judge(&map, Some(peer));
        policy.client_address(&map, peer);
    }

    #[test]
    fn no_header_moves_the_address_of_an_untrusted_peer(said in "[0-9a-f.:, \\[\\]]{0,60}", peer: IpAddr) {
        let policy = policy(&[], &[]);
        prop_assert_eq!(policy.client_address(&headers(&[("x-forwarded-for", &said)]), peer), peer.to_canonical());
    }
}
