//! Where it is asked for: what is acknowledged is on replicas before it is.
//!
//! `WAIT` counts what its own connection wrote, and holds up everything behind it. So it has a connection of its own, on
//! which a message that nobody needs stands for everything that Redis executed before; and everybody who waits at a time
//! waits for one.

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike as _, PubsubInterface as _, ServerInterface as _};
use fred::types::InfoKind;
use redis_scripts::ScriptError;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

use super::proof::field;

/// Waits for one answer at most; there are never more rooms at it.
const WAITING: usize = 65_536;

/// How what waits to be acknowledged waits for replicas.
#[derive(Debug, Clone, Default)]
pub struct Replicas(Option<mpsc::Sender<oneshot::Sender<bool>>>);

impl Replicas {
    /// Waits for so many, for so long, over this connection.
    pub fn over(client: Client, channel: String, count: u32, patience: Duration) -> Self {
        let (ask, asked) = mpsc::channel(WAITING);
        tokio::spawn(answer(client, channel, count, patience, asked));
        Self(Some(ask))
    }

    /// Returns when they have everything that Redis has executed.
    ///
    /// # Errors
    /// They do not say so in time: it may be lost with the primary.
    pub async fn have_it(&self) -> Result<(), ScriptError> {
        let Some(ask) = &self.0 else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        let is_asked = ask.send(reply).await.is_ok();
        if is_asked && answer.await == Ok(true) {
            return Ok(());
        }
        let source = Error::new(ErrorKind::Timeout, "not on enough replicas in time");
        Err(ScriptError::Unavailable { script: "wait", source })
    }
}

async fn answer(
    client: Client,
    channel: String,
    count: u32,
    patience: Duration,
    mut asked: mpsc::Receiver<oneshot::Sender<bool>>,
) {
    let patience = i64::try_from(patience.as_millis()).unwrap_or(i64::MAX).max(1);
    let mut waiting = Vec::new();
    let mut history = None;
    while asked.recv_many(&mut waiting, WAITING).await > 0 {
        let pipeline = client.pipeline();
        let sent = async {
            () = pipeline.publish(&*channel, "").await?;
            () = pipeline.wait(i64::from(count), patience).await?;
            () = pipeline.info(Some(InfoKind::Replication)).await?;
            pipeline.all::<(i64, i64, String)>().await
        };
        let have_it = match sent.await {
            Ok((_, replicas, info)) => {
                // Whoever took the primary's place, or its data as they were, knows nothing of what is waited for.
                let told = field(&info, "master_replid").map(str::to_owned);
                let known = history.replace(told.clone());
                replicas >= i64::from(count) && known.is_none_or(|known| known == told)
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "WAIT");
                false
            }
        };
        for reply in waiting.drain(..) {
            _ = reply.send(have_it);
        }
    }
}
