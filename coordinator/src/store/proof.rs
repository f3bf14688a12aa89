//! Proof, from what `INFO` says, that a server keeps what it acknowledges.

use std::fmt;

/// Oldest Redis that will do: 7.0 replicates scripts by their effects and has what they call.
const REDIS_MIN: (u32, u32) = (7, 0);
/// Oldest Valkey that will do.
const VALKEY_MIN: (u32, u32) = (7, 2);

/// A server that is fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `redis` or `valkey`.
    pub kind: &'static str,
    /// Its version, as it says.
    pub version: String,
    /// Whether the append-only file is on.
    pub append_only: bool,
}

/// The first Valkey that leaves nothing of a half-written script in its append-only file.
const VALKEY_WHOLE: [u32; 3] = [9, 1, 2];

impl Server {
    /// Whether it may execute half of a script at its second start after it was killed over it.
    pub fn may_bring_back_halves(&self) -> bool {
        let version: Vec<u32> = self.version.split('.').map_while(|part| part.parse().ok()).collect();
        self.append_only && (self.kind != "valkey" || version.as_slice() < VALKEY_WHOLE.as_slice())
    }
}

/// What is wrong with a server, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// It says no version that can be read.
    UnknownVersion,
    /// It is too old.
    TooOld {
        /// `redis` or `valkey`.
        kind: &'static str,
        /// What it says.
        found: String,
        /// What is needed.
        needed: (u32, u32),
    },
    /// It is part of a cluster.
    Cluster,
    /// It may throw keys away.
    Eviction {
        /// Its policy.
        policy: String,
    },
    /// It keeps nothing on disk.
    NoAppendOnlyFile,
    /// A Sentinel may name another master while it still takes writes.
    NoMinReplicas,
    /// It takes writes for as long as its Sentinels wait before they name another, or longer.
    LagTooLong {
        /// `min-replicas-max-lag`, in milliseconds.
        max_lag_ms: u64,
        /// `down-after-milliseconds`.
        down_after_ms: u64,
    },
    /// It, or its Sentinels, do not tell how long they wait.
    LagUnknown {
        /// What they said.
        why: String,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVersion => {
                write!(f, "its version cannot be read from INFO: allow INFO for this user (ACL `+info`)")
            }
            Self::TooOld { kind, found, needed: (major, minor) } => {
                write!(f, "it is {kind} {found}; {kind} {major}.{minor} or newer is needed: upgrade it")
            }
            Self::Cluster => write!(
                f,
                "it is a Redis Cluster node (cluster_enabled:1): use a standalone server, or one managed by Sentinel; \
                 to scale further, run several Dais, each with a Redis of its own"
            ),
            Self::Eviction { policy } => {
                write!(
                    f,
                    "its maxmemory-policy is {policy}, so it may throw rooms away: set `maxmemory-policy noeviction`"
                )
            }
            Self::NoAppendOnlyFile => {
                write!(f, "its append-only file is off, so a restart loses every room: set `appendonly yes`")
            }
            Self::NoMinReplicas => {
                write!(
                    f,
                    "Sentinels may name another master while this one, cut off, still takes writes: set \
                     `min-replicas-to-write 1` or more, and `min-replicas-max-lag` below the Sentinels' \
                     `down-after-milliseconds`"
                )
            }
            Self::LagTooLong { max_lag_ms, down_after_ms } => write!(
                f,
                "cut off from its replicas it takes writes for `min-replicas-max-lag` = {max_lag_ms} ms, and its Sentinels \
                 name another after `down-after-milliseconds` = {down_after_ms}: make the first less than the second"
            ),
            Self::LagUnknown { why } => write!(
                f,
                "whether it stops taking writes before its Sentinels name another cannot be told ({why}): allow \
                 `CONFIG GET` to the user of redis.url, and `SENTINEL MASTER` to that of the Sentinels"
            ),
        }
    }
}

pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Reads `INFO`. `dev` relaxes the append-only file; behind Sentinels an old master must stop by itself.
pub fn prove(info: &str, dev: bool, by_sentinels: bool) -> Result<Server, Vec<Unfit>> {
    let mut problems = Vec::new();
    let (kind, found, needed) = match field(info, "valkey_version") {
        Some(found) => ("valkey", Some(found), VALKEY_MIN),
        None => ("redis", field(info, "redis_version"), REDIS_MIN),
    };
    match found.and_then(version) {
        None => problems.push(Unfit::UnknownVersion),
        Some(parsed) if parsed < needed => {
            problems.push(Unfit::TooOld { kind, found: found.unwrap_or_default().to_owned(), needed });
        }
        Some(_) => {}
    }
    let in_cluster =
        field(info, "cluster_enabled") == Some("1") || field(info, "redis_mode") == Some("cluster");
    if in_cluster {
        problems.push(Unfit::Cluster);
    }
    match field(info, "maxmemory_policy") {
        Some("noeviction") | None => {}
        Some(policy) => problems.push(Unfit::Eviction { policy: policy.to_owned() }),
    }
    let append_only = field(info, "aof_enabled") == Some("1");
    if !append_only && !dev {
        problems.push(Unfit::NoAppendOnlyFile);
    }
    // The field is there only where both settings are.
    if by_sentinels && field(info, "min_slaves_good_slaves").is_none() {
        problems.push(Unfit::NoMinReplicas);
    }
    if problems.is_empty() {
        return Ok(Server { kind, version: found.unwrap_or_default().to_owned(), append_only });
    }
    Err(problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n# Memory\r\n\
                        maxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\n# Cluster\r\ncluster_enabled:0\r\n";

    #[test]
    fn a_fit_server_is_named() {
        let server = prove(GOOD, false, false).unwrap();
        assert_eq!((server.kind, server.version.as_str(), server.append_only), ("redis", "7.0.15", true));
        let valkey = GOOD.replace("redis_version:7.0.15", "redis_version:7.2.4\r\nvalkey_version:9.1.2");
        let valkey = prove(&valkey, false, false).unwrap();
        assert_eq!(valkey.kind, "valkey");
        assert!(server.may_bring_back_halves() && !valkey.may_bring_back_halves());
        let older = |version: &str| Server { version: version.to_owned(), ..valkey.clone() };
        assert!(["8.1.4", "9.1.1", "9.1", ""].into_iter().all(|it| older(it).may_bring_back_halves()));
        assert!(["9.1.10", "9.2.0", "10.0.0"].into_iter().all(|it| !older(it).may_bring_back_halves()));
    }

    #[test]
    fn each_fault_is_named_with_its_cure() {
        let found = |from: &str, to: &str, dev| prove(&GOOD.replace(from, to), dev, false).unwrap_err();
        assert_eq!(
            found("7.0.15", "6.2.5", true),
            [Unfit::TooOld { kind: "redis", found: "6.2.5".into(), needed: (7, 0) }]
        );
        assert_eq!(found("cluster_enabled:0", "cluster_enabled:1", true), [Unfit::Cluster]);
        assert_eq!(
            found("noeviction", "allkeys-lru", true),
            [Unfit::Eviction { policy: "allkeys-lru".into() }]
        );
        assert_eq!(found("aof_enabled:1", "aof_enabled:0", false), [Unfit::NoAppendOnlyFile]);
        assert!(
            prove(&GOOD.replace("aof_enabled:1", "aof_enabled:0"), true, false).is_ok(),
            "dev goes without"
        );
        assert_eq!(found("redis_version", "other", true), [Unfit::UnknownVersion]);
        assert_eq!(prove(GOOD, true, true).unwrap_err(), [Unfit::NoMinReplicas]);
        let guarded = format!("{GOOD}# Replication\r\nmin_slaves_good_slaves:0\r\n");
        assert!(prove(&guarded, false, true).is_ok());
        assert!(Unfit::Cluster.to_string().contains("standalone"));
    }

    proptest! {
        #[test]
        fn any_text_is_read(info in "(redis_version:.{0,8}\r\n|cluster_enabled:.\r\n|.{0,40}\n){0,8}", dev: bool, sentinels: bool) {
            _ = prove(&info, dev, sentinels);
        }
    }
}
