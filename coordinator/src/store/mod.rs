//! The connections to Redis, and the proof that it is one we can trust.

pub mod append_file;
pub mod index;
pub mod proof;
pub mod replicas;
mod sentinels;

use fred::clients::SubscriberClient;
use fred::error::{Error, ErrorKind};
use fred::interfaces::EventInterface as _;
use fred::prelude::{Builder, Client, ClientLike, Config as RedisConfig, ReconnectPolicy, TcpConfig};
use fred::types::config::{ReconnectError, UnresponsiveConfig};
use std::time::Duration;

use crate::config::Redis;

/// Pauses between attempts to reach Redis again.
const RECONNECT_MIN_MS: u32 = 50;
const RECONNECT_MAX_MS: u32 = 1_000;
/// At start-up Redis may be a moment late.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
/// Messages that the subscriber holds for a reader who is late; the oldest is dropped, and the next
/// heartbeat repairs what it carried.
const SUBSCRIBER_BACKLOG: usize = 8_192;

/// Why Redis cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is not one.
    #[error("redis.url cannot be used")]
    Url(#[source] Error),
    /// No connection, or no answer.
    #[error("Redis at {url} cannot be reached: start it, or correct redis.url")]
    Unreachable {
        /// The URL without its password.
        url: String,
        /// What the client library said.
        source: Error,
    },
    /// It answers, but is not fit.
    #[error("Redis at {url} cannot be used:\n{}", problems.iter().map(|it| format!("  - {it}")).collect::<Vec<_>>().join("\n"))]
    Unfit {
        /// The URL without its password.
        url: String,
        /// What is wrong and how to mend it.
        problems: Vec<proof::Unfit>,
    },
}

fn builder(redis: &Redis) -> Result<Builder, StoreError> {
    let config = RedisConfig::from_url(redis.url.expose()).map_err(StoreError::Url)?;
    let mut builder = Builder::from_config(config);
    with_timeouts(&mut builder, redis);
    Ok(builder)
}

/// Errors of a server that is not the one to talk to: who is, is asked again.
fn elsewhere(redis: &Redis) -> Vec<ReconnectError> {
    let mut errors = vec![ReconnectError::Loading, ReconnectError::ReadOnly];
    if redis.url.is_sentinel() {
        // A primary that its replicas and Sentinels cannot reach may have been replaced; it does not know.
        errors.extend([ReconnectError::MasterDown, ReconnectError::NoReplicas]);
    }
    errors
}

fn with_timeouts(builder: &mut Builder, redis: &Redis) {
    let timeout = redis.command_timeout;
    builder
        .with_connection_config(|connection| {
            connection.connection_timeout = timeout.max(Duration::from_millis(250));
            connection.internal_command_timeout = timeout.max(Duration::from_millis(250));
            // A script is never repeated behind our back: whether it ran is for its caller to find out.
            connection.max_command_attempts = 1;
            connection.reconnect_errors = elsewhere(redis);
            connection.tcp = TcpConfig { nodelay: Some(true), ..TcpConfig::default() };
            connection.unresponsive = UnresponsiveConfig {
                max_timeout: Some(timeout * 2),
                interval: (timeout / 2).max(Duration::from_millis(50)),
            };
        })
        .with_performance_config(|performance| {
            performance.default_command_timeout = timeout;
            performance.broadcast_channel_capacity = SUBSCRIBER_BACKLOG;
        })
        .set_policy(ReconnectPolicy::new_exponential(0, RECONNECT_MIN_MS, RECONNECT_MAX_MS, 2));
}

/// Connects for commands. Returns once the first connection stands; later losses are mended by itself.
pub async fn connect(redis: &Redis) -> Result<Client, StoreError> {
    let client = builder(redis)?.build().map_err(StoreError::Url)?;
    // `init` listens for the connection before it begins: listening after `connect` may be too late, for ever.
    let connected = tokio::time::timeout(PATIENCE, client.init()).await;
    match connected {
        Ok(Ok(_)) => Ok(client),
        Ok(Err(source)) => Err(StoreError::Unreachable { url: redis.url.to_string(), source }),
        Err(_) => {
            let source = Error::new(ErrorKind::Timeout, "no answer within 5 s");
            Err(StoreError::Unreachable { url: redis.url.to_string(), source })
        }
    }
}

async fn ask(redis: &Redis) -> Result<(Client, String), StoreError> {
    let client = connect(redis).await?;
    match client.info(None).await {
        Ok(info) => Ok((client, info)),
        Err(source) => {
            _ = client.quit().await;
            Err(StoreError::Unreachable { url: redis.url.to_string(), source })
        }
    }
}

/// Tries for a while: at start-up Redis, or the way to it, may be slow. A wrong password stays one.
pub(crate) async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let give_up = crate::clock::instant() + PATIENCE;
    loop {
        match attempt().await {
            Err(StoreError::Unreachable { source, .. })
                if *source.kind() != ErrorKind::Auth && crate::clock::instant() < give_up =>
            {
                tracing::debug!(
                    error = &source as &dyn std::error::Error,
                    "Redis does not answer; trying again"
                );
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Connects for pub/sub; subscriptions are made again after each reconnect.
pub async fn connect_subscriber(redis: &Redis) -> Result<SubscriberClient, StoreError> {
    patiently(|| async {
        let client = builder(redis)?.build_subscriber_client().map_err(StoreError::Url)?;
        let unreachable = |source| StoreError::Unreachable { url: redis.url.to_string(), source };
        client.init().await.map_err(unreachable)?;
        drop(client.manage_subscriptions());
        drop(client.error_rx());
        Ok(client)
    })
    .await
}

/// Connects and proves the server fit; `dev` relaxes the append-only file.
pub async fn prove(redis: &Redis, dev: bool) -> Result<(Client, proof::Server), StoreError> {
    let (client, info) = patiently(|| ask(redis)).await?;
    let by_sentinels = redis.url.is_sentinel();
    let mut proved = proof::prove(&info, dev, by_sentinels);
    if by_sentinels && proved.is_ok() {
        proved = sentinels::prove(redis, &client).await.map_or(proved, |unfit| Err(vec![unfit]));
    }
    match proved {
        Ok(server) => Ok((client, server)),
        Err(problems) => Err(StoreError::Unfit { url: redis.url.to_string(), problems }),
    }
}
