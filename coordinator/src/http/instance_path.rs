//! `/i/{instance}/…`: one public name and a path-routing proxy suffice to reach each instance.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::Uri;
use std::sync::Arc;

use super::problem::Problem;
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
        let message = format!("this is instance {me}, and the path is for another");
        return Problem::from(ApiError::new(ErrorCode::WrongInstance, message)).into_response();
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
        Err(_) => {
            let message = "what follows the instance is no path";
            Problem::from(ApiError::bad_request(message)).into_response()
        }
    }
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
