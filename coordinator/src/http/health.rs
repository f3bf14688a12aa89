//! `/healthz`, `/readyz`, `/metrics`.

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use http::{StatusCode, header};
use std::sync::Arc;

use crate::node::Node;

/// Health and readiness, on both listeners.
pub fn routes() -> Router<Arc<Node>> {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz))
}

/// The process answers: that is all that liveness may depend on.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether new clients should come here.
async fn readyz(State(node): State<Arc<Node>>) -> impl IntoResponse {
    match node.readiness() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// The metrics, in the text format.
pub async fn metrics(State(node): State<Arc<Node>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], node.metrics.exposition())
}
