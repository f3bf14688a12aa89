//! HTTP to media servers: one client for all, bounded in time and size.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Client, RequestBuilder, StatusCode};

use crate::MediaError;

/// Largest answer that is read.
const MOST_BYTES: usize = 4 << 20;
const CONNECT: Duration = Duration::from_secs(2);

/// A client with a deadline for each call.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client,
    deadline: Duration,
}

/// What a server answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Http {
    /// # Errors
    /// `Unavailable` if there is no TLS to be had.
    pub(crate) fn new(deadline: Duration) -> Result<Self, MediaError> {
        // Somebody else may have chosen the same provider already.
        _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(CONNECT.min(deadline))
            .timeout(deadline)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| MediaError::unavailable(error.without_url().to_string()))?;
        Ok(Self { client, deadline })
    }

    /// For making requests.
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request and reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// `Timeout`, `Unavailable`; neither says the URL, which may hold what is nobody's business.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Answer, MediaError> {
        let answer = self.send_for_at_most(MOST_BYTES, request).await?;
        answer.ok_or_else(|| MediaError::unavailable("the answer is too large"))
    }

    /// The same for an answer that is of use only up to a size, in bytes; `None`: it is larger.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) async fn send_for_at_most(
        &self,
        most: usize,
        request: RequestBuilder,
    ) -> Result<Option<Answer>, MediaError> {
        let failed = |error: reqwest::Error| {
            if error.is_timeout() && !error.is_connect() {
                let after_ms = u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX);
                return MediaError::Timeout { after_ms };
            }
            let kind = if error.is_connect() { "cannot connect" } else { "the call failed" };
            MediaError::unavailable(kind)
        };
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > most {
                return Ok(None);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Some(Answer { status, body: body.into() }))
    }
}
