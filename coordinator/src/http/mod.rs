//! The two HTTP listeners: the public one that clients and browsers reach, and the one for operations.

pub mod api;
pub mod console;
pub mod health;
pub mod instance_path;
pub mod lean;
pub mod origin;
pub mod problem;

use axum::Router;
use axum::ServiceExt as _;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use axum::serve::ListenerExt as _;
use socketioxide::SocketIo;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tower::ServiceBuilder;

use crate::node::Node;
use crate::socket::handshake;
use origin::OriginPolicy;

/// Where Socket.IO is served.
const SOCKET_PATH: &str = "/socket.io";
/// Largest body of an HTTP request that is not Socket.IO's, in bytes.
pub(crate) const BODY_BYTES: usize = 64 * 1024;

/// Serves clients until `ending`.
pub async fn serve_public(
    node: Arc<Node>,
    listener: TcpListener,
    ending: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<SocketIo> {
    let limits = &node.config.limits;
    let (socket_io, io) = SocketIo::builder()
        .req_path(SOCKET_PATH)
        .max_payload(u64::try_from(limits.max_event_bytes).unwrap_or(u64::MAX))
        .ws_max_message_size(limits.max_event_bytes)
        .ws_max_frame_size(limits.max_event_bytes)
        .max_buffer_size(limits.outgoing_queue)
        .connect_timeout(limits.handshake_timeout)
        .ws_read_buffer_size(1024)
        .build_layer();
    handshake::serve(&io, &node);
    let policy = Arc::new(OriginPolicy::new(&node.config.http, node.config.instance.public_origin()));
    let routes = Router::new()
        .merge(health::routes())
        .merge(console::routes())
        .merge(api::routes())
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(Arc::clone(&node));
    let service = ServiceBuilder::new()
        .layer(from_fn_with_state(policy, origin::guard))
        .layer(from_fn_with_state(Arc::clone(&node), instance_path::strip))
        // Outside the router, which would note the URI once more.
        .map_request(lean::lean)
        .layer(socket_io)
        .service(routes);
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(error = &error as &dyn std::error::Error, "TCP_NODELAY");
        }
    });
    let service = service.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, service).with_graceful_shutdown(ending).await {
            tracing::error!(error = &error as &dyn std::error::Error, "the public listener ended");
        }
    });
    Ok(io)
}

/// Serves operations until `ending`.
pub fn serve_admin(
    node: Arc<Node>,
    listener: TcpListener,
    ending: impl Future<Output = ()> + Send + 'static,
) {
    let routes = Router::new()
        .merge(health::routes())
        .route("/metrics", get(health::metrics))
        .layer(from_fn(no_pages))
        .with_state(node);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(ending).await {
            tracing::error!(error = &error as &dyn std::error::Error, "the operations listener ended");
        }
    });
}

/// No web page may reach the operations listener through its visitor's browser.
async fn no_pages(request: axum::extract::Request, next: axum::middleware::Next) -> axum::response::Response {
    use axum::response::IntoResponse as _;
    if request.headers().contains_key(http::header::ORIGIN) {
        return (http::StatusCode::FORBIDDEN, "the operations listener is not for web pages").into_response();
    }
    next.run(request).await
}
