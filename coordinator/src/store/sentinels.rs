//! Behind Sentinels an old primary must stop taking writes before another is made: what both sides are set to.

use fred::clients::{Client, SentinelClient};
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike as _, ConfigInterface as _, SentinelInterface as _};
use fred::types::Builder;
use fred::types::config::{Config as RedisConfig, SentinelConfig, Server, ServerConfig};
use std::collections::HashMap;

use super::proof::Unfit;
use super::with_timeouts;
use crate::config::Redis;

/// What keeps an old primary from taking writes for longer than its Sentinels wait.
pub(super) async fn prove(redis: &Redis, client: &Client) -> Option<Unfit> {
    match ask(redis, client).await {
        Ok((max_lag_ms, down_after_ms)) if max_lag_ms < down_after_ms => None,
        Ok((max_lag_ms, down_after_ms)) => Some(Unfit::LagTooLong { max_lag_ms, down_after_ms }),
        Err(error) => Some(Unfit::LagUnknown { why: error.to_string() }),
    }
}

async fn ask(redis: &Redis, client: &Client) -> Result<(u64, u64), Error> {
    const MAX_LAG: &str = "min-replicas-max-lag";
    let said: HashMap<String, String> = client.config_get(MAX_LAG).await?;
    let max_lag_ms = number(&said, MAX_LAG)?.saturating_mul(1_000);
    let config = RedisConfig::from_url(redis.url.expose())?;
    let ServerConfig::Sentinel { hosts, service_name, username, password } = config.server else {
        return Err(Error::new(ErrorKind::Config, "no Sentinels are named"));
    };
    // One that is out of reach says nothing; the most impatient of the others counts.
    let mut down_after_ms = Err(Error::new(ErrorKind::Sentinel, "no Sentinel answers"));
    for Server { host, port, .. } in hosts {
        let (username, password, tls) = (username.clone(), password.clone(), config.tls.clone());
        let one = SentinelConfig { host: host.to_string(), port, username, password, tls };
        match down_after(redis, one, &service_name).await {
            Ok(ms) => down_after_ms = Ok(down_after_ms.map_or(ms, |least: u64| least.min(ms))),
            Err(error) if down_after_ms.is_err() => down_after_ms = Err(error),
            Err(_) => {}
        }
    }
    Ok((max_lag_ms, down_after_ms?))
}

async fn down_after(redis: &Redis, sentinel: SentinelConfig, service: &str) -> Result<u64, Error> {
    let mut builder = Builder::default_centralized();
    builder.set_sentinel_config(sentinel);
    with_timeouts(&mut builder, redis);
    let client: SentinelClient = builder.build_sentinel_client()?;
    client.init().await?;
    let said: Result<HashMap<String, String>, Error> = client.master(service).await;
    _ = client.quit().await;
    number(&said?, "down-after-milliseconds")
}

fn number(said: &HashMap<String, String>, name: &str) -> Result<u64, Error> {
    let found = said.get(name).and_then(|value| value.parse().ok());
    found.ok_or_else(|| Error::new(ErrorKind::Parse, format!("{name} is not told")))
}
