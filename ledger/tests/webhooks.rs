//! Webhooks against receivers that do all that receivers do.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use hmac::{Hmac, KeyInit, Mac};
use ledger::sink::{Delivery, Outcome, Secret, Sink, WebhookOptions, WebhookSink};
use redis_scripts::RedisMillis;
use sha2::Sha256;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const KEYS: [&[u8]; 2] = [b"012345678901234567890123", b"abcdefghijklmnopqrstuvwxyz012345"];
const DEADLINE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(400);
const PAYLOAD: &str = r#"{"type":"mic.ended","data":{"user":"ann 🐈"}}"#;

/// What is accepted here ends with the test.
struct Receiver {
    url: String,
    task: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    async fn serves(router: Router) -> Self {
        let (listener, url) = listen().await;
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, task }
    }

    /// One that does with each connection whatever it likes.
    async fn does<F: Future<Output = ()> + Send + 'static>(what: fn(TcpStream) -> F) -> Self {
        let (listener, url) = listen().await;
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(what(stream));
            }
        });
        Self { url, task }
    }

    async fn gets(&self, deadline: Duration) -> Outcome {
        sink(&self.url, deadline, None).deliver(&delivery()).await
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/hook?key=secret", listener.local_addr().expect("an address"));
    (listener, url)
}

fn secrets() -> Vec<Secret> {
    let secrets =
        KEYS.map(|key| Secret::parse(&format!("whsec_{}", STANDARD.encode(key))).expect("a secret"));
    secrets.into()
}

fn sink(url: &str, deadline: Duration, ca: Option<Vec<u8>>) -> WebhookSink {
    let url = url.parse().expect("a URL");
    WebhookSink::new(WebhookOptions { url, secrets: secrets(), deadline, ca }).expect("a sink")
}

fn delivery() -> Delivery {
    Delivery {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        app: "school".to_owned(),
        kind: "mic.ended".to_owned(),
        payload: PAYLOAD.to_owned(),
        at: RedisMillis::new(1_764_504_000_999),
    }
}

async fn answering(status: u16, headers: &[(&'static str, &'static str)], body: Body) -> Receiver {
    let answer = Arc::new(Mutex::new(Some(body)));
    let headers = headers.to_vec();
    let handler = move || async move {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(name, value);
        }
        let body = answer.lock().expect("nobody panics").take().unwrap_or_default();
        response.body(body).expect("a response")
    };
    Receiver::serves(Router::new().route("/hook", post(handler))).await
}

fn again(outcome: Outcome) -> String {
    match outcome {
        Outcome::Again { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn it_is_signed_with_each_secret_as_standard_webhooks_has_it() {
    type Seen = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;
    let seen: Seen = Arc::default();
    let handler = |State(seen): State<Seen>, headers: HeaderMap, body: Bytes| async move {
        seen.lock().expect("nobody panics").push((headers, body));
        StatusCode::NO_CONTENT
    };
    let receiver =
        Receiver::serves(Router::new().route("/hook", post(handler)).with_state(Arc::clone(&seen))).await;
    assert_eq!(receiver.gets(DEADLINE).await, Outcome::Delivered);
    let seen = seen.lock().unwrap();
    let [(headers, body)] = &seen[..] else { panic!("{seen:?}") };
    let header = |name: &str| headers[name].to_str().expect("text");
    assert_eq!(body, PAYLOAD);
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("webhook-id"), delivery().id);
    assert_eq!(header("webhook-timestamp"), "1764504000", "seconds");
    let signed = format!("{}.1764504000.{PAYLOAD}", delivery().id);
    let signatures: Vec<&str> = header("webhook-signature").split(' ').collect();
    let expected = KEYS.map(|key| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key");
        mac.update(signed.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    });
    assert_eq!(signatures, expected);
}

#[tokio::test]
async fn one_that_accepts_and_never_answers_is_left_after_the_deadline() {
    let receiver = Receiver::does(|stream| async move {
        let _stream = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let started = std::time::Instant::now();
    assert_eq!(again(receiver.gets(SHORT).await), "no answer within 400ms");
    assert!(started.elapsed() >= SHORT);
}

#[tokio::test]
async fn one_that_answers_just_before_the_deadline_has_it() {
    // The deadline is shorter than the usual one, and what is left of it longer than a busy machine takes.
    let deadline = Duration::from_secs(3);
    let handler = move || async move {
        let almost = tokio::time::timeout(deadline.mul_f64(0.8), std::future::pending::<()>()).await;
        assert!(almost.is_err());
        StatusCode::OK
    };
    let receiver = Receiver::serves(Router::new().route("/hook", post(handler))).await;
    assert_eq!(receiver.gets(deadline).await, Outcome::Delivered);
}

#[tokio::test]
async fn a_success_counts_though_the_connection_is_reset_after_its_head() {
    let receiver = Receiver::does(|mut stream| async move {
        let mut request = [0; 4096];
        let mut read = 0;
        while !String::from_utf8_lossy(&request[..read]).contains(r#""data""#) {
            read += stream.read(&mut request[read..]).await.expect("a request");
        }
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nhalf";
        stream.write_all(head).await.expect("somebody reads");
        stream.set_zero_linger().expect("a socket");
    })
    .await;
    assert_eq!(receiver.gets(DEADLINE).await, Outcome::Delivered);
}

#[tokio::test]
async fn a_body_that_never_ends_is_not_read_on() {
    let forever = || {
        let chunks =
            futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 512])));
        Body::from_stream(chunks)
    };
    let slow = || {
        let first = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"x"))]);
        Body::from_stream(first.chain(futures_util::stream::pending()))
    };
    let started = std::time::Instant::now();
    for body in [forever(), slow()] {
        assert_eq!(answering(200, &[], body).await.gets(DEADLINE).await, Outcome::Delivered);
    }
    assert_eq!(again(answering(500, &[], slow()).await.gets(DEADLINE).await), "the receiver answered 500");
    assert!(started.elapsed() < DEADLINE, "nobody waits for what makes no difference");
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_named_without_its_query() {
    let elsewhere = "https://elsewhere.example/in?token=secret";
    let receiver = answering(302, &[("location", elsewhere)], Body::empty()).await;
    let why = again(receiver.gets(DEADLINE).await);
    assert_eq!(why, "redirected (302) to https://elsewhere.example/in, which is not followed");
}

#[tokio::test]
async fn failures_are_tried_again_when_the_receiver_wants_it_and_never_if_it_is_gone() {
    let busy = answering(503, &[("retry-after", "7")], Body::empty()).await.gets(DEADLINE).await;
    let why = "the receiver answered 503".to_owned();
    assert_eq!(busy, Outcome::Again { why, after: Some(Duration::from_secs(7)) });
    assert!(matches!(answering(410, &[], Body::empty()).await.gets(DEADLINE).await, Outcome::Never { .. }));
    for status in [400, 404, 500] {
        again(answering(status, &[], Body::empty()).await.gets(DEADLINE).await);
    }
}

#[tokio::test]
async fn nobody_there_and_nonsense_are_failures_that_do_not_show_the_url() {
    let (listener, url) = listen().await;
    drop(listener);
    let nobody = again(sink(&url, DEADLINE, None).deliver(&delivery()).await);
    assert!(nobody.starts_with("cannot connect: "), "{nobody}");
    let nonsense = Receiver::does(|mut stream| async move {
        _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await;
    })
    .await;
    let nonsense = again(nonsense.gets(DEADLINE).await);
    assert!(nonsense.starts_with("the call failed: "), "{nonsense}");
    for why in [nobody, nonsense] {
        assert!(!why.contains("secret") && !why.contains("/hook"), "{why}");
    }
}

#[tokio::test]
async fn a_certificate_must_be_trusted_and_not_expired() {
    for (from, to, expected) in [(2020, 2021, "expired"), (2020, 4096, "")] {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        certificate.not_before = rcgen::date_time_ymd(from, 1, 1);
        certificate.not_after = rcgen::date_time_ymd(to, 1, 1);
        let certificate = certificate.self_signed(&key).unwrap();
        let (url, task) = over_tls(&certificate, &key).await;
        let trusted = Some(certificate.pem().into_bytes());
        let outcome = sink(&url, DEADLINE, trusted).deliver(&delivery()).await;
        if expected.is_empty() {
            assert_eq!(outcome, Outcome::Delivered);
        } else {
            let why = again(outcome);
            assert!(why.to_lowercase().contains(expected), "{why}");
        }
        again(sink(&url, DEADLINE, None).deliver(&delivery()).await);
        task.abort();
    }
}

/// A receiver that is content with everything, over TLS.
async fn over_tls(certificate: &rcgen::Certificate, key: &rcgen::KeyPair) -> (String, JoinHandle<()>) {
    _ = rustls::crypto::ring::default_provider().install_default();
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private.into())
        .expect("a certificate");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = vec![0; 4096];
            _ = stream.read(&mut request).await;
            _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            _ = stream.shutdown().await;
        }
    });
    (format!("https://localhost:{port}/"), task)
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let connections = Arc::new(Mutex::new(std::collections::HashSet::new()));
    let handler =
        |State(seen): State<Arc<Mutex<std::collections::HashSet<u16>>>>,
         axum::extract::ConnectInfo(from): axum::extract::ConnectInfo<std::net::SocketAddr>| async move {
            seen.lock().expect("nobody panics").insert(from.port());
            "taken".into_response()
        };
    let router = Router::new().route("/hook", post(handler)).with_state(Arc::clone(&connections));
    let (listener, url) = listen().await;
    let service = router.into_make_service_with_connect_info::<std::net::SocketAddr>();
    let task = tokio::spawn(async move { axum::serve(listener, service).await.expect("it serves") });
    let sink = sink(&url, DEADLINE, None);
    for _ in 0..20 {
        assert_eq!(sink.deliver(&delivery()).await, Outcome::Delivered);
    }
    assert_eq!(connections.lock().unwrap().len(), 1);
    task.abort();
}
