//! One request after another: a bounded queue for each connection, worked off by a task that lives only
//! while there is something in it.

use socketioxide::SocketIo;
use socketioxide::adapter::LocalAdapter;
use socketioxide::extract::{AckSender, Event, SocketRef};
use socketioxide::handler::{FromMessageParts as _, MessageHandler};
use socketioxide::socket::Socket;
use socketioxide_core::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::{Client, Connection, dispatch};
use crate::error::{ApiError, ErrorCode};
use crate::node::Node;

/// Requests of one connection that may wait; more are refused.
const QUEUE: usize = 64;
/// Requests over its allowance after which a connection is closed, if none within it came in between.
const FLOOD: u32 = 500;

/// Requests of one connection that wait for the one before.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Request>,
    is_running: bool,
    refused_in_a_row: u32,
}

/// One request as it came.
pub(super) struct Request {
    pub event: String,
    pub body: Value,
    pub ack: AckSender,
    pub socket: Arc<Socket<LocalAdapter>>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({})", self.event)
    }
}

/// Takes every event of one connection.
///
/// The socket keeps this for as long as it is, so it must not keep the socket.
#[derive(Debug, Clone)]
pub(super) struct Inbound {
    node: Arc<Node>,
    connection: Arc<Connection>,
}

impl Inbound {
    pub(super) const fn new(node: Arc<Node>, connection: Arc<Connection>) -> Self {
        Self { node, connection }
    }
}

impl MessageHandler<LocalAdapter, SocketIo> for Inbound {
    fn call(&self, socket: Arc<Socket<LocalAdapter>>, mut body: Value, ack_id: Option<i64>) {
        let Ok(ack) = AckSender::<LocalAdapter>::from_message_parts(&socket, &mut body, &ack_id);
        let Ok(Event(event)) =
            <Event as socketioxide::handler::FromMessageParts<LocalAdapter>>::from_message_parts(
                &socket, &mut body, &ack_id,
            )
        else {
            return;
        };
        self.take(Request { event, body, ack, socket });
    }
}

impl Inbound {
    fn take(&self, request: Request) {
        let connection = &self.connection;
        let refusal = connection.allowance.take().err().map(|wait| (wait, "too many requests"));
        let mut queue = connection.queue();
        let refusal = refusal.or_else(|| {
            (queue.waiting.len() >= QUEUE)
                .then_some((Duration::from_millis(200), "too many requests wait for an answer"))
        });
        if let Some((wait, why)) = refusal {
            queue.refused_in_a_row += 1;
            let is_flood = queue.refused_in_a_row > FLOOD;
            drop(queue);
            self.node.metrics.requests.with_label_values(&["any", ErrorCode::RateLimited.as_str()]).inc();
            if is_flood {
                self.client(&request).disconnect();
                return;
            }
            let error = ApiError::new(ErrorCode::RateLimited, why).after(wait.max(Duration::from_millis(1)));
            dispatch::refuse(request.ack, &error, "");
            return;
        }
        queue.refused_in_a_row = 0;
        let client = (!queue.is_running).then(|| self.client(&request));
        queue.waiting.push_back(request);
        queue.is_running = true;
        drop(queue);
        if let Some(client) = client {
            tokio::spawn(work_off(Arc::clone(&self.node), client));
        }
    }

    fn client(&self, request: &Request) -> Client {
        Client::new(SocketRef::from(Arc::clone(&request.socket)), Arc::clone(&self.connection))
    }
}

async fn work_off(node: Arc<Node>, client: Client) {
    loop {
        let next = {
            let mut queue = client.connection.queue();
            let next = queue.waiting.pop_front();
            if next.is_none() {
                queue.is_running = false;
                queue.waiting.shrink_to_fit();
            }
            next
        };
        match next {
            Some(request) => dispatch::answer(&node, &client, request).await,
            None => return,
        }
    }
}
