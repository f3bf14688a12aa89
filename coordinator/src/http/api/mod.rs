//! The HTTP API for an app's back ends, and the callbacks of media servers. Any instance takes any call.
//!
//! Each call is one `call::Call`: its route, and all that the OpenAPI document at `/openapi.json` and the
//! manual's page say of it. What the calls ask of rooms goes through [`crate::room::gateway`], which finds the
//! room's owner. Every refusal is a problem document ([`super::problem`]), those of the router as well.

mod bodies;
mod call;
mod callback_shapes;
mod callbacks;
mod caller;
mod commands;
mod input;
mod janus_socket;
mod openapi;
mod outbox;
mod reading;
mod rooms;
mod shapes;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::extract::Request;
use axum::routing::{any, get};
use http::{StatusCode, header};
use std::sync::Arc;

use super::problem::Problem;
use crate::node::Node;
use call::Call;

pub use openapi::{document, markdown};

/// Every call, in the order of the documentation.
fn calls() -> Vec<Call> {
    [rooms::calls(), reading::calls(), commands::calls(), outbox::calls(), callbacks::calls()]
        .into_iter()
        .flatten()
        .collect()
}

/// The API, its document, and problems for whatever else is asked below its paths.
pub fn routes() -> Router<Arc<Node>> {
    let served = calls().into_iter().map(Call::route);
    let router = served.fold(Router::new(), |router, (path, route)| router.route(path, route));
    let router = router
        .route("/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], document())))
        .method_not_allowed_fallback(wrong_method);
    ["/v1", "/v1/{*rest}", "/rtc", "/rtc/{*rest}"]
        .into_iter()
        .fold(router, |router, path| router.route(path, any(unknown_path)))
}

async fn wrong_method(request: Request) -> Problem {
    let message = format!("{} is no method of this path; `Allow` says which are", request.method());
    Problem::of_request(StatusCode::METHOD_NOT_ALLOWED, message)
}

async fn unknown_path() -> Problem {
    Problem::of_request(
        StatusCode::NOT_FOUND,
        "there is no such path; /openapi.json lists those that there are",
    )
}
