//! The command line.

use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::{Overrides, Secret};

/// Coordinates live media rooms beside an external WebRTC media server.
#[derive(Debug, Parser)]
#[command(name = "coordinator", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the binary does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Everything on this machine: a private Redis, two instances, the embedded media server, the console.
    Dev(Dev),
    /// An instance.
    Serve(Box<Serve>),
    /// Proves configuration and Redis; says what is wrong; exits with 1.
    Check(Box<Serve>),
    /// Prints a token for a user.
    Token(Token),
    /// Prints the table of every Redis key.
    Keys,
    /// Prints the table of every error code.
    Errors {
        /// As the client's package holds it.
        #[arg(long)]
        typescript: bool,
    },
    /// Prints a documented dais.toml.
    Reference,
    /// Prints the OpenAPI document of the HTTP API.
    Openapi,
    /// Prints every call of the HTTP API with an example.
    Calls,
}

/// `dev`
#[derive(Debug, Args)]
pub struct Dev {
    /// Where the first instance listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7800")]
    pub listen: SocketAddr,
    /// Where the second instance listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7810")]
    pub second_listen: SocketAddr,
    /// Folder for Redis's files.
    #[arg(long, default_value = ".data")]
    pub data: PathBuf,
}

/// `serve` and `check`
#[derive(Debug, Args)]
pub struct Serve {
    /// The configuration; dais.toml if it is there.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Relaxes what a single machine need not have, and assumes what is not given.
    #[arg(long)]
    pub dev: bool,
    /// `instance.listen`
    #[arg(long)]
    pub listen: Option<String>,
    /// `instance.admin_listen`
    #[arg(long)]
    pub admin_listen: Option<String>,
    /// `instance.id`
    #[arg(long)]
    pub instance_id: Option<String>,
    /// `instance.public_url`
    #[arg(long)]
    pub public_url: Option<String>,
    /// `redis.url`
    #[arg(long)]
    pub redis_url: Option<String>,
    /// `redis.key_prefix`
    #[arg(long)]
    pub key_prefix: Option<String>,
    /// `ledger.url`
    #[arg(long)]
    pub ledger_url: Option<String>,
    /// End when standard input ends: for a process that must not outlive its parent.
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,
}

impl Serve {
    /// The flags, as they override file and environment.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            dev: self.dev,
            listen: self.listen.clone(),
            admin_listen: self.admin_listen.clone(),
            instance_id: self.instance_id.clone(),
            public_url: self.public_url.clone(),
            key_prefix: self.key_prefix.clone(),
            redis_url: self.redis_url.clone().map(Secret::new),
            ledger_url: self.ledger_url.clone().map(Secret::new),
        }
    }
}

/// `token`
#[derive(Debug, Args)]
pub struct Token {
    /// The app's code.
    #[arg(long)]
    pub app: String,
    /// The user.
    #[arg(long)]
    pub user: String,
    /// The highest role that it allows: guest, host or monitor.
    #[arg(long)]
    pub role: Option<String>,
    /// Limits it to one room.
    #[arg(long)]
    pub room: Option<String>,
    /// How long it lasts: a number and s, m, h or d.
    #[arg(long, default_value = "1h")]
    pub ttl: String,
    /// The configuration; dais.toml if it is there.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Use what `--dev` assumes.
    #[arg(long)]
    pub dev: bool,
}

/// Reads a number with a unit: `90s`, `15m`, `1h`, `7d`.
pub fn duration(text: &str) -> Option<std::time::Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    number.checked_mul(seconds).filter(|it| *it > 0).map(std::time::Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("1h"), Some(std::time::Duration::from_secs(3_600)));
        assert_eq!(duration("90s"), Some(std::time::Duration::from_secs(90)));
        for bad in ["", "h", "1", "1x", "-1h", "0s", "é", "99999999999999999999d"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
