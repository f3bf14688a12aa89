//! `lease_acquire`, `lease_renew`, `lease_release`: leases that are not a room's.

use key_prefix::{Instance, Keys};
use std::time::Duration;

use crate::instance::ms;
use crate::reply::MalformedReply;
use crate::script::{Call, LEASE_ACQUIRE, LEASE_RELEASE, LEASE_RENEW, ScriptError, Scripts};
use crate::{FenceToken, RedisMillis};

/// What `lease_acquire` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// The caller holds it.
    Ok {
        /// Its token.
        token: FenceToken,
        /// Redis's time.
        now: RedisMillis,
    },
    /// Another holds it.
    Held {
        /// `name/incarnation`.
        holder: String,
        /// Until it ends, unless renewed.
        remaining: Duration,
    },
}

/// What `lease_renew` and `lease_release` answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// Done.
    Ok,
    /// The lease was not the caller's.
    Lost {
        /// What the key holds.
        held: String,
    },
}

impl Scripts {
    /// Takes the lease `name` if it is free or the caller's.
    pub async fn lease_acquire(
        &self,
        keys: &Keys,
        name: &str,
        holder: &Instance,
        ttl: Duration,
    ) -> Result<Acquired, ScriptError> {
        let call =
            Call::keys([&keys.lease(name), &keys.lease_fence(name)]).text(holder.as_str()).number(ms(ttl));
        self.read(&LEASE_ACQUIRE, call, |code, reply| match code {
            "ok" => Ok(Acquired::Ok { token: reply.token()?, now: reply.millis()? }),
            "held" => Ok(Acquired::Held {
                holder: reply.text()?,
                remaining: Duration::from_millis(reply.number()?),
            }),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Renews the lease `name`.
    pub async fn lease_renew(
        &self,
        keys: &Keys,
        name: &str,
        holder: &Instance,
        token: FenceToken,
        ttl: Duration,
    ) -> Result<Renewed, ScriptError> {
        let call =
            Call::keys([&keys.lease(name)]).text(holder.as_str()).number(token.as_u64()).number(ms(ttl));
        self.read(&LEASE_RENEW, call, |code, reply| match code {
            "ok" => Ok(Renewed::Ok),
            "lost" => Ok(Renewed::Lost { held: reply.text()? }),
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Gives up the lease `name`.
    pub async fn lease_release(
        &self,
        keys: &Keys,
        name: &str,
        holder: &Instance,
        token: FenceToken,
    ) -> Result<Renewed, ScriptError> {
        let call = Call::keys([&keys.lease(name)]).text(holder.as_str()).number(token.as_u64());
        self.read(&LEASE_RELEASE, call, |code, reply| match code {
            "ok" => Ok(Renewed::Ok),
            "lost" => Ok(Renewed::Lost { held: reply.text()? }),
            code => MalformedReply::code(code),
        })
        .await
    }
}
