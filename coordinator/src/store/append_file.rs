//! The append-only file after a start of Redis.
//!
//! A Redis that is killed while it writes what a script did leaves half of that at the end of the file. It starts without that
//! half, but may leave it in the file, and its beginning unended; so with the start after that the half is executed,
//! though nobody was ever told that it is done. A file that is written anew has nothing of it.

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike as _, EventInterface as _, ServerInterface as _};
use fred::types::InfoKind;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;

use super::proof::{Server, field};

/// Between questions whether Redis has loaded its file.
const PAUSE: Duration = Duration::from_millis(100);

/// What is to be done about the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// It was written anew since Redis started, or is being, or there is none.
    Nothing,
    /// It is still being loaded.
    Patience,
    /// It is as it was found.
    Rewrite,
}

/// Has the file written anew after each start of Redis, for as long as the connection is there.
pub fn watch(client: Client, server: &Server) {
    if !server.may_bring_back_halves() {
        return;
    }
    let mut connected = client.reconnect_rx();
    tokio::spawn(async move {
        loop {
            if let Err(error) = renew(&client).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "Redis does not write its append-only file anew. Killed twice, it may do half of what it was doing: allow \
                     BGREWRITEAOF, or run `redis-check-aof --fix` before each start"
                );
            }
            if matches!(connected.recv().await, Err(RecvError::Closed)) {
                return;
            }
        }
    });
}

async fn renew(client: &Client) -> Result<(), Error> {
    loop {
        let asked = async {
            let info: String = client.info(Some(InfoKind::Persistence)).await?;
            match need(&info) {
                Need::Rewrite => {
                    let _: String = client.bgrewriteaof().await?;
                    tracing::info!("Redis was started: its append-only file is written anew");
                    Ok::<_, Error>(Need::Nothing)
                }
                need => Ok(need),
            }
        };
        match asked.await {
            Ok(Need::Patience | Need::Rewrite) => {}
            Ok(Need::Nothing) => return Ok(()),
            // The instance ends.
            Err(error) if *error.kind() == ErrorKind::Canceled => return Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::IO | ErrorKind::Timeout) => {}
            // Another instance was faster.
            Err(error) if error.details().contains("in progress") => return Ok(()),
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn need(info: &str) -> Need {
    let is = |name: &str, value: &str| field(info, name) == Some(value);
    if is("loading", "1") {
        Need::Patience
    } else if is("aof_enabled", "1")
        && is("aof_rewrites", "0")
        && is("aof_rewrite_in_progress", "0")
        && is("aof_rewrite_scheduled", "0")
    {
        Need::Rewrite
    } else {
        Need::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_anew_once_after_a_start() {
        let started = "# Persistence\r\nloading:0\r\naof_enabled:1\r\naof_rewrite_in_progress:0\r\n\
                       aof_rewrite_scheduled:0\r\naof_rewrites:0\r\n";
        let after = |from: &str, to: &str| need(&started.replace(from, to));
        assert_eq!(need(started), Need::Rewrite);
        assert_eq!(after("loading:0", "loading:1"), Need::Patience);
        for (from, to) in [
            ("aof_enabled:1", "aof_enabled:0"),
            ("in_progress:0", "in_progress:1"),
            ("scheduled:0", "scheduled:1"),
            ("aof_rewrites:0", "aof_rewrites:1"),
        ] {
            assert_eq!(after(from, to), Need::Nothing, "{to}");
        }
        assert_eq!(need(""), Need::Nothing);
    }
}
