//! Pages of other origins, and the proxies whose word about origins counts.

use e2e::cluster::Cluster;
use e2e::driver::{Driver, Failure};
use e2e::{http, place};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::browsers::{Pages, unhurried};

const TRANSPORTS: [&str; 2] = ["websocket", "polling"];

/// A website that is none of ours: a page with the official client in it.
struct Website {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Website {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        Self { address, server }
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Website {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let (kind, body) = if head.starts_with(b"GET /client.js ") {
        let client = place::repository().join("e2e/node/node_modules/socket.io-client/dist/socket.io.min.js");
        ("text/javascript", fs::read_to_string(client).expect("the drivers' packages are installed"))
    } else {
        ("text/html", "<!doctype html><title>Elsewhere</title><script src=/client.js></script>".to_owned())
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
}

/// `a` lets nobody in, `b` this origin, `c` any.
async fn three_doors(origin: &str) -> Cluster {
    Cluster::start_with(3, |options| match options.id() {
        "b" => unhurried(options).texts("http", "allowed_origins", &["https://other.example", origin]),
        "c" => unhurried(options).texts("http", "allowed_origins", &["*"]),
        _ => unhurried(options),
    })
    .await
}

#[tokio::test]
async fn a_page_of_another_origin_is_refused_by_default_and_let_in_by_name() {
    let website = Website::start().await;
    let cluster = three_doors(&website.origin()).await;
    let pages = Pages::start().await;
    pages.open("page", &website.origin()).await;
    pages.truth("page", "typeof io === 'function'").await;
    for (coordinator, is_open) in cluster.coordinators.iter().zip([false, true, true]) {
        let (url, id) = (coordinator.url(), coordinator.id());
        let token = cluster.token("ann", "host");
        for transport in TRANSPORTS {
            let joins = format!(
                "new Promise((done) => {{ \
                   const socket = io({url:?}, {{ transports: [{transport:?}], reconnection: false, \
                     forceNew: true, auth: {{ token: {token:?} }} }}); \
                   socket.on('connect_error', () => done('refused')); \
                   socket.on('connect', async () => {{ \
                     const ack = await socket.emitWithAck('room:join', {{ room: 'hall-{id}' }}); \
                     socket.disconnect(); done(ack.ok ? 'joined' : ack.error.code); }}); }})"
            );
            let outcome = pages.value("page", &joins).await;
            assert_eq!(outcome, if is_open { "joined" } else { "refused" }, "{id} over {transport}");
        }
        // Without a preflight, and with one.
        for init in ["{}", "{ method: 'GET', headers: { 'X-Anything': '1' } }"] {
            let fetches = format!("fetch('{url}/healthz', {init}).then((it) => it.status, () => 'refused')");
            let outcome = pages.value("page", &fetches).await;
            assert_eq!(outcome, if is_open { json!(200) } else { json!("refused") }, "{id}, {init}");
        }
    }
}

/// The status of a refused handshake, or 200.
fn status_of(connected: Result<Value, Failure>) -> Value {
    connected.map_or_else(|refused| refused.details["status"].clone(), |_| json!(200))
}

#[tokio::test]
async fn the_origin_decides_over_every_transport() {
    let origin = "http://pages.example:8080";
    let (cluster, driver) = (three_doors(origin).await, Driver::start().await);
    let token = cluster.token("ann", "host");
    let cases = [
        (None, [200, 200, 200]),
        (Some(origin), [403, 200, 200]),
        (Some("https://other.example"), [403, 200, 200]),
        (Some("http://pages.example"), [403, 403, 200]),
        (Some("https://pages.example:8080"), [403, 403, 200]),
        (Some("http://pages.example:8080.evil.example"), [403, 403, 200]),
        (Some("null"), [403, 403, 200]),
    ];
    for (origin, statuses) in cases {
        for (coordinator, status) in cluster.coordinators.iter().zip(statuses) {
            let case = format!("{origin:?} at {}", coordinator.id());
            let headers = origin.map_or_else(|| json!({}), |origin| json!({ "Origin": origin }));
            for transport in TRANSPORTS {
                let fields = json!({ "transports": [transport], "headers": headers });
                let connected = driver.connect_with("ann", &coordinator.url(), &token, fields).await;
                assert_eq!(status_of(connected), status, "{case} over {transport}");
            }
            let plain: Vec<_> = origin.iter().map(|origin| ("origin", *origin)).collect();
            let answer = http::request("GET", &format!("{}/healthz", coordinator.url()), &plain, "").await;
            let answer = answer.unwrap();
            assert_eq!(answer.status, status, "{case} over HTTP");
            let permitted = answer.header("access-control-allow-origin");
            let expected = match (coordinator.id(), origin) {
                _ if status == 403 => None,
                ("c", Some(_)) => Some("*"),
                (_, origin) => origin,
            };
            assert_eq!(permitted, expected, "{case}");
        }
    }
    // One's own pages need no permission.
    let url = cluster[0].url();
    let own =
        http::request("GET", &format!("{url}/console/instance"), &[("origin", &url)], "").await.unwrap();
    assert_eq!(own.status, 200);
}

#[tokio::test]
async fn a_proxy_is_believed_about_the_origin_only_if_it_is_trusted() {
    let cluster = Cluster::start_with(2, |options| {
        let trusted = if options.id() == "b" { "127.0.0.0/8" } else { "10.0.0.0/8" };
        options.texts("http", "trusted_proxies", &[trusted])
    })
    .await;
    let driver = Driver::start().await;
    let token = cluster.token("ann", "host");
    let said = |origin: &str, proto: &str, host: &str| {
        json!({ "Origin": origin, "X-Forwarded-Proto": proto, "X-Forwarded-Host": host,
                "X-Forwarded-For": "203.0.113.7" })
    };
    let cases = [
        (said("https://dais.example", "https", "dais.example"), 200),
        (said("https://dais.example", "http", "dais.example"), 403),
        (said("https://dais.example", "https", "other.example"), 403),
        // The last of a chain is what the trusted one heard itself.
        (said("https://dais.example", "http, https", "evil.example, dais.example"), 200),
        (said("https://evil.example", "https", "evil.example, dais.example"), 403),
    ];
    for (headers, at_trusting) in cases {
        for (coordinator, status) in cluster.coordinators.iter().zip([403, at_trusting]) {
            let case = format!("{headers} at {}", coordinator.id());
            for transport in TRANSPORTS {
                let fields = json!({ "transports": [transport], "headers": headers });
                let connected = driver.connect_with("ann", &coordinator.url(), &token, fields).await;
                assert_eq!(status_of(connected), status, "{case} over {transport}");
            }
            let fields = json!({ "url": format!("{}/healthz", coordinator.url()), "method": "GET", "headers": headers });
            assert_eq!(driver.http(fields).await.unwrap()["status"], status, "{case} over HTTP");
        }
    }
}

#[tokio::test]
async fn only_dev_gives_out_tokens() {
    let cluster = Cluster::start(1).await;
    let url = format!("{}/console/token", cluster[0].url());
    let json = [("content-type", "application/json")];
    let asked = http::request("POST", &url, &json, r#"{"user":"ann","role":"host"}"#).await.unwrap();
    assert_eq!(asked.status, 404, "{}", asked.body);
}
