//! RFC 9457 problem documents: the one form in which an HTTP caller is refused.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use std::borrow::Cow;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

use crate::error::{ApiError, ErrorCode};

/// The media type of a problem.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// A refusal, with the status that it has where it is not the one of its code.
#[derive(Debug)]
pub struct Problem {
    error: ApiError,
    status: StatusCode,
    challenge: Option<&'static str>,
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Self {
        let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { error, status, challenge: None }
    }
}

impl Problem {
    /// A fault of the request that HTTP has a status for and the protocol no code of its own.
    pub fn of_request(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { error: ApiError::bad_request(message), status, challenge: None }
    }

    /// The caller has to prove who it is, and how: `challenge` is the `WWW-Authenticate` of the answer.
    pub fn unauthenticated(challenge: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        let error = ApiError::new(ErrorCode::Unauthenticated, message);
        Self { challenge: Some(challenge), ..error.into() }
    }

    /// The same under another status.
    #[must_use]
    pub const fn under(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// What is refused.
    pub const fn error(&self) -> &ApiError {
        &self.error
    }

    /// The status of the answer.
    pub const fn status(&self) -> StatusCode {
        self.status
    }
}

/// Body of a refusal.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// Always `about:blank`: the code says which kind of problem it is.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: &'static str,
    /// The status in words.
    #[schema(value_type = String)]
    title: &'static str,
    /// The status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong, and where.
    #[schema(value_type = String)]
    detail: Cow<'static, str>,
    /// The error code of the wire protocol.
    #[schema(schema_with = codes)]
    code: &'static str,
    /// Whether the same request may succeed later.
    retryable: bool,
    /// Finds the request in the log.
    request_id: String,
    /// When to try again, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
}

fn codes() -> Object {
    let codes = ErrorCode::ALL.iter().map(|code| code.as_str());
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(codes)).build()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { error, status, challenge } = self;
        let request_id = uuid::Uuid::now_v7().to_string();
        if error.code == ErrorCode::Internal {
            tracing::error!(request = request_id, message = %error.message, "a request failed");
        } else {
            tracing::debug!(
                request = request_id, status = status.as_u16(), code = error.code.as_str(),
                message = %error.message, "refused"
            );
        }
        let pause = error.retry_after;
        let body = ProblemBody {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: error.message,
            code: error.code.as_str(),
            retryable: error.code.is_retryable(),
            request_id,
            retry_after_ms: pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
        };
        let text = serde_json::to_string(&body).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_TYPE)], text).into_response();
        let headers = response.headers_mut();
        if let Some(pause) = pause {
            // In whole seconds, and never sooner than it should be.
            let seconds = u64::try_from(pause.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(challenge) = challenge {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn read(problem: Problem) -> (StatusCode, http::HeaderMap, serde_json::Value) {
        let (parts, body) = problem.into_response().into_parts();
        let body = axum::body::to_bytes(body, 10_000).await.unwrap();
        (parts.status, parts.headers, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_problem_has_the_members_of_its_standard_and_ours() {
        let error = ApiError::store_unavailable().after(Duration::from_millis(1_200));
        let (status, headers, body) = read(error.into()).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            (&headers["content-type"], &headers["retry-after"]),
            (&PROBLEM_TYPE.parse().unwrap(), &HeaderValue::from(2))
        );
        assert!(body["requestId"].as_str().is_some_and(|id| id.len() == 36), "{body}");
        let mut rest = body;
        rest["requestId"] = "".into();
        assert_eq!(
            rest,
            serde_json::json!({
                "type": "about:blank", "title": "Service Unavailable", "status": 503,
                "detail": "the store is out of reach", "code": "STORE_UNAVAILABLE", "retryable": true,
                "requestId": "", "retryAfterMs": 1200,
            })
        );
    }

    #[tokio::test]
    async fn a_status_may_differ_from_that_of_the_code() {
        let conflict = Problem::from(ApiError::new(ErrorCode::VersionConflict, "it is 8"));
        let (status, headers, body) = read(conflict.under(StatusCode::PRECONDITION_FAILED)).await;
        assert_eq!(
            (status.as_u16(), &body["status"], &body["code"]),
            (412, &412.into(), &"VERSION_CONFLICT".into())
        );
        assert!(!headers.contains_key("retry-after") && body.get("retryAfterMs").is_none());
    }
}
