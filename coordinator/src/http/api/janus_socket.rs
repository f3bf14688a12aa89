//! `GET /rtc/janus/{app}` as a WebSocket: where Janus's `wsevh` connects.
//!
//! It can send no header of its choice, so that it proves itself by the subprotocol. Each message is taken as the body
//! of a callback would be, one after another, and nothing is answered: while the rooms cannot take them no more is
//! read, and Janus keeps the rest.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::callbacks::{JANUS, Receiver};
use crate::config::Login;
use crate::error::ApiError;
use crate::http::problem::Problem;
use crate::node::Node;

/// Silence for so long is asked whether it is one; twice as long, and the connection is over.
const SILENCE: Duration = Duration::from_secs(30);

/// Takes the connection.
pub(super) async fn connect(
    State(node): State<Arc<Node>>,
    path: Result<Path<String>, PathRejection>,
    mut request: Request,
) -> Result<Response, Problem> {
    let Path(app) = path.map_err(|_| ApiError::bad_request("the path is not UTF-8"))?;
    let receiver = Receiver::of(&node, &app, &JANUS)?;
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let key = accept_key(request.headers()).zip(upgrade);
    let Some((accept, upgrade)) = key else {
        let message = "events come by POST, or over a WebSocket of version 13";
        let mut response = Problem::of_request(StatusCode::UPGRADE_REQUIRED, message).into_response();
        response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        return Ok(response);
    };
    let login = receiver.app.callbacks.janus.clone();
    let proof = login.and_then(|login| Some((proved(request.headers(), &login)?, basic(&login)?)));
    let Some((protocol, headers)) = proof else {
        return Err(receiver.refused("the subprotocol".to_owned()));
    };
    tokio::spawn(async move {
        let upgraded = match upgrade.await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no WebSocket after all");
                return;
            }
        };
        let config = WebSocketConfig::default()
            .max_message_size(Some(JANUS.most_bytes))
            .max_frame_size(Some(JANUS.most_bytes));
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, Some(config)).await;
        tracing::info!(app = %receiver.app.code, "Janus sends its events over a WebSocket");
        tokio::select! {
            () = node.leaving.cancelled() => {}
            () = node.ending.cancelled() => {}
            () = read(&receiver, &headers, socket) => {}
        }
        tracing::info!(app = %receiver.app.code, "Janus's WebSocket is closed");
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
        (header::SEC_WEBSOCKET_PROTOCOL, protocol),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

/// Reads until the connection is over, or sends what makes no sense on a WebSocket.
async fn read<S>(receiver: &Receiver, headers: &HeaderMap, mut socket: WebSocketStream<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut is_asked = false;
    loop {
        let message = match tokio::time::timeout(SILENCE, socket.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(error))) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "Janus's WebSocket failed");
                return;
            }
            Ok(None) => return,
            Err(_) if is_asked => return,
            Err(_) => {
                is_asked = true;
                if socket.send(Message::Ping(Vec::new().into())).await.is_err() {
                    return;
                }
                continue;
            }
        };
        is_asked = false;
        let body = match &message {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return,
            _ => continue,
        };
        if let Err(problem) = receiver.take_at_last(headers, body).await {
            tracing::warn!(
                app = %receiver.app.code, reason = %problem.error().message,
                "a message of Janus is not taken"
            );
        }
    }
}

/// The answer to the key of a WebSocket handshake; `None`: this is none.
fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let says = |name, word: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(word)))
    };
    let is_one = says(header::CONNECTION, "upgrade")
        && says(header::UPGRADE, "websocket")
        && says(header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_one)?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}

/// The subprotocol that proves the sender, if it is among those offered.
fn proved(headers: &HeaderMap, login: &Login) -> Option<HeaderValue> {
    let right = format!("dais.{}.{}", login.name, login.secret.expose());
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|it| it.to_str().ok());
    let mut offered = offered.flat_map(|value| value.split(',')).map(str::trim);
    let found = offered.find(|one| bool::from(one.as_bytes().ct_eq(right.as_bytes())))?;
    HeaderValue::from_str(found).ok()
}

/// The headers of a callback that is proved.
fn basic(login: &Login) -> Option<HeaderMap> {
    let credentials = STANDARD.encode(format!("{}:{}", login.name, login.secret.expose()));
    let mut value = HeaderValue::from_str(&format!("Basic {credentials}")).ok()?;
    value.set_sensitive(true);
    Some(HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        of.iter().map(|(name, text)| (header::HeaderName::from_static(name), value(text))).collect()
    }

    #[test]
    fn a_handshake_is_answered_as_the_standard_says() {
        // RFC 6455, section 1.3.
        let right = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        assert_eq!(accept_key(&headers(&right)).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for without in 0..right.len() {
            let mut some = right.to_vec();
            some.remove(without);
            assert_eq!(accept_key(&headers(&some)), None, "{some:?}");
        }
    }

    #[test]
    fn the_subprotocol_proves_the_sender() {
        let login = Login { name: "janus".to_owned(), secret: Secret::new("0123456789abcdef") };
        let offered = |text| proved(&headers(&[("sec-websocket-protocol", text)]), &login);
        let right = "dais.janus.0123456789abcdef";
        assert_eq!(offered(right).unwrap(), right);
        assert_eq!(offered("other, dais.janus.0123456789abcdef").unwrap(), right);
        for wrong in
            ["", "dais", "dais.janus.", "dais.janus.0123456789abcdeF", "dais.janus.0123456789abcdef."]
        {
            assert_eq!(offered(wrong), None, "{wrong}");
        }
        assert_eq!(proved(&HeaderMap::new(), &login), None);
    }
}
