//! `/i/{instance}/…`: one public name and a path-routing proxy suffice to reach each instance.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, Uri, header};
use std::sync::Arc;

use crate::error::{ApiError, ErrorCode};
use crate::node::Node;

/// What a path says about the instance that it is for.
#[derive(Debug, PartialEq, Eq)]
enum Target<'a> {
    /// Nothing.
    Any,
    /// An instance, and the path there.
    Named(&'a str, &'a str),
}

fn target(path: &str) -> Target<'_> {
    let Some(rest) = path.strip_prefix("/i/") else { return Target::Any };
    match rest.find('/') {
        Some(end) => Target::Named(&rest[..end], &rest[end..]),
        None => Target::Named(rest, "/"),
    }
}

/// Takes `/i/{instance}` off the path of a request for this instance; refuses one for another.
pub async fn strip(State(node): State<Arc<Node>>, mut request: Request, next: Next) -> Response {
    let me = node.store.me.name();
    let Target::Named(name, rest) = target(request.uri().path()) else { return next.run(request).await };
    if name != me {
        return refuse(&format!("this is instance {me}, and the path is for another"));
    }
    let rest = match request.uri().query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    };
    match rest.parse::<Uri>() {
        Ok(uri) => {
            *request.uri_mut() = uri;
            next.run(request).await
        }
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

fn refuse(message: &str) -> Response {
    let error = ApiError::new(ErrorCode::WrongInstance, message.to_owned());
    problem(&error)
}

/// An RFC 9457 problem document with the code of the wire protocol.
pub(super) fn problem(error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": error.message,
        "code": error.code.as_str(),
        "retryable": error.code.is_retryable(),
    });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_instance() {
        assert_eq!(target("/socket.io/"), Target::Any);
        assert_eq!(target("/i/a/socket.io/"), Target::Named("a", "/socket.io/"));
        assert_eq!(target("/i/a"), Target::Named("a", "/"));
        assert_eq!(target("/i/"), Target::Named("", "/"));
        assert_eq!(target("/instances/"), Target::Any);
    }
}
