//! By HTTP, as Standard Webhooks has it.

use async_trait::async_trait;
use redis_scripts::RedisMillis;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use std::error::Error;
use std::time::{Duration, UNIX_EPOCH};

use super::signature::{Secret, signatures};
use super::{Delivery, Outcome, Sink};

const CONNECT: Duration = Duration::from_secs(5);
/// Most of an answer's body that is read: nothing in it is of use, but a connection that is read to its end can be used
/// again.
const MOST_BYTES: usize = 4 << 10;
/// Longest time for that.
const DRAIN: Duration = Duration::from_millis(200);
/// Longest text that is kept of what went wrong.
const MOST_TEXT: usize = 300;

/// What a webhook needs to know.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// Where to.
    pub url: Url,
    /// Keys that it is signed with, each for itself: more than one while receivers change from one to the next.
    pub secrets: Vec<Secret>,
    /// Longest time for everything from connecting to the head of the answer.
    pub deadline: Duration,
    /// Certificates, as PEM, that are trusted beside those that everybody trusts.
    pub ca: Option<Vec<u8>>,
}

impl WebhookOptions {
    /// The usual deadline.
    pub const DEADLINE: Duration = Duration::from_secs(10);
}

/// Why there is no such webhook.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Its URL is of no use.
    #[error("the URL is not http or https with a host, or holds a password")]
    Url,
    /// It is not to be signed.
    #[error("there is no secret")]
    NoSecret,
    /// The certificates cannot be read, or there is no TLS to be had.
    #[error("TLS")]
    Tls(#[source] reqwest::Error),
}

/// Posts events to one URL.
#[derive(Debug)]
pub struct WebhookSink {
    client: Client,
    url: Url,
    secrets: Vec<Secret>,
    deadline: Duration,
}

impl WebhookSink {
    /// # Errors
    ///
    /// With these options nothing could ever be delivered.
    pub fn new(options: WebhookOptions) -> Result<Self, WebhookError> {
        let WebhookOptions { url, secrets, deadline, ca } = options;
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        if !is_http || !url.username().is_empty() || url.password().is_some() {
            return Err(WebhookError::Url);
        }
        if secrets.is_empty() {
            return Err(WebhookError::NoSecret);
        }
        // Somebody else may have chosen the same provider already.
        _ = rustls::crypto::ring::default_provider().install_default();
        let trusted = ca.map(|pem| reqwest::Certificate::from_pem_bundle(&pem)).transpose();
        let client = Client::builder()
            .connect_timeout(CONNECT.min(deadline))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("dais/", env!("CARGO_PKG_VERSION")))
            .tls_certs_merge(trusted.map_err(WebhookError::Tls)?.unwrap_or_default())
            .build()
            .map_err(WebhookError::Tls)?;
        Ok(Self { client, url, secrets, deadline })
    }

    async fn post(&self, delivery: &Delivery) -> Result<Response, reqwest::Error> {
        let timestamp = delivery.at.as_u64() / 1_000;
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &delivery.id)
            .header("webhook-timestamp", timestamp)
            .header(
                "webhook-signature",
                signatures(&self.secrets, &delivery.id, timestamp, &delivery.payload),
            )
            .body(delivery.payload.clone());
        request.send().await
    }

    fn outcome(&self, status: StatusCode, headers: &HeaderMap, at: RedisMillis) -> Outcome {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if status.is_success() {
            return Outcome::Delivered;
        }
        if status == StatusCode::GONE {
            return Outcome::Never { why: "the receiver is gone for good (410)".to_owned() };
        }
        let number = status.as_u16();
        let why = match header(LOCATION) {
            Some(location) if status.is_redirection() => {
                format!("redirected ({number}) to {}, which is not followed", self.place(location))
            }
            _ => format!("the receiver answered {number}"),
        };
        Outcome::Again {
            why: short(&why),
            after: header(RETRY_AFTER).and_then(|value| retry_after(value, at)),
        }
    }

    /// A place to which somebody was sent, without what may be nobody's business.
    fn place(&self, location: &str) -> String {
        let Ok(mut place) = self.url.join(location) else { return "no URL".to_owned() };
        place.set_query(None);
        place.set_fragment(None);
        _ = place.set_username("");
        _ = place.set_password(None);
        place.into()
    }
}

#[async_trait]
impl Sink for WebhookSink {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        match tokio::time::timeout(self.deadline, self.post(delivery)).await {
            Ok(Ok(mut response)) => {
                let outcome = self.outcome(response.status(), response.headers(), delivery.at);
                _ = tokio::time::timeout(DRAIN.min(self.deadline), drain(&mut response)).await;
                outcome
            }
            Ok(Err(error)) => Outcome::again(short(&told(error))),
            Err(_) => Outcome::again(format!("no answer within {:?}", self.deadline)),
        }
    }

    fn deadline(&self) -> Duration {
        self.deadline + DRAIN.min(self.deadline)
    }
}

/// Reads a body to its end, if that is near: what it says makes no difference.
async fn drain(response: &mut Response) {
    let mut bytes = 0;
    while bytes <= MOST_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        bytes += chunk.len();
    }
}

/// Seconds, or a date by the receiver's clock, which is taken for Redis's.
fn retry_after(value: &str, at: RedisMillis) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(Duration::from_millis(at.as_u64())))
}

/// What went wrong, without the URL, whose query may be a secret.
fn told(error: reqwest::Error) -> String {
    let kind = if error.is_connect() { "cannot connect" } else { "the call failed" };
    let error = error.without_url();
    let mut root: &dyn Error = &error;
    while let Some(source) = root.source() {
        root = source;
    }
    format!("{kind}: {root}")
}

fn short(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(url: &str) -> Result<WebhookSink, WebhookError> {
        let secret = Secret::parse("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz").expect("24 bytes");
        WebhookSink::new(WebhookOptions {
            url: Url::parse(url).expect("a URL"),
            secrets: vec![secret],
            deadline: WebhookOptions::DEADLINE,
            ca: None,
        })
    }

    #[test]
    fn only_plain_http_urls_are_taken() {
        assert!(sink("https://example.org/hook?key=1").is_ok());
        for url in ["ftp://example.org/", "https://ann:secret@example.org/", "data:text/plain,x"] {
            assert!(matches!(sink(url), Err(WebhookError::Url)), "{url}");
        }
    }

    #[test]
    fn an_answer_is_judged_by_its_head() {
        let sink = sink("https://example.org/hook").expect("a sink");
        let at = RedisMillis::new(1_764_504_000_000);
        let judged = |status: u16, headers: &[(reqwest::header::HeaderName, &str)]| {
            let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().expect("a value")));
            sink.outcome(StatusCode::from_u16(status).expect("a status"), &headers.collect(), at)
        };
        assert_eq!(judged(204, &[]), Outcome::Delivered);
        assert!(matches!(judged(410, &[]), Outcome::Never { .. }));
        for status in [100, 300, 400, 401, 404, 409, 422, 500, 503] {
            assert!(matches!(judged(status, &[]), Outcome::Again { after: None, .. }), "{status}");
        }
        let after = |value: &str| match judged(503, &[(RETRY_AFTER, value)]) {
            Outcome::Again { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        assert_eq!(after("Sun, 30 Nov 2025 12:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(after("Sun, 30 Nov 2025 11:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(after("soon"), None);
        let redirect = judged(307, &[(LOCATION, "/other?token=secret#part")]);
        let why = "redirected (307) to https://example.org/other, which is not followed";
        assert_eq!(redirect, Outcome::again(why));
    }
}
