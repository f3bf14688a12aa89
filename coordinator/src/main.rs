//! The `coordinator` binary: reads its command line and does what it says.

use clap::Parser as _;
use coordinator::auth::{MintRequest, TokenRole, Verifier};
use coordinator::cli::{Cli, Command, Serve, Token, duration};
use coordinator::config::{Config, LogFormat, Overrides};
use coordinator::media::MediaServers;
use coordinator::{clock, dev, error, http, serve, store};
use key_prefix::{AppCode, RoomId, UserId};
use media_bridge::ClockMs;
use redis_scripts::Scripts;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::io::AsyncReadExt as _;

/// Most of a command's work is many small texts that live for a moment.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Keys => print(&key_prefix::markdown()),
        Command::Errors { typescript: false } => print(&error::markdown()),
        Command::Errors { typescript: true } => print(&error::typescript()),
        Command::Reference => print(&Config::reference()),
        Command::Openapi => print(http::api::document()),
        Command::Calls => print(&http::api::markdown()),
        Command::Token(token) => mint(&token).and_then(|token| print(&format!("{token}\n"))),
        Command::Serve(flags) => run(serve_with(*flags)),
        Command::Check(flags) => run(check(*flags)),
        Command::Dev(flags) => run(async move { Ok(dev::run(flags).await?) }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&*failure);
            ExitCode::FAILURE
        }
    }
}

fn run(task: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(task)
}

#[expect(clippy::print_stdout, reason = "this is what was asked for")]
fn print(text: &str) -> Result<(), Failure> {
    print!("{text}");
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the process ends, and this says why")]
fn complain(failure: &dyn std::error::Error) {
    eprintln!("coordinator: {failure}");
    let mut source = failure.source();
    while let Some(cause) = source {
        eprintln!("  because: {cause}");
        source = cause.source();
    }
}

fn load(config: Option<&std::path::Path>, overrides: &Overrides) -> Result<Config, Failure> {
    Ok(Config::load(config, overrides, std::env::vars_os())?)
}

async fn serve_with(flags: Serve) -> Result<(), Failure> {
    let config = load(flags.config.as_deref(), &flags.overrides())?;
    log_as(config.telemetry.log);
    let parent_gone = async move {
        if !flags.exit_with_stdin {
            std::future::pending::<()>().await;
        }
        let mut ignored = Vec::new();
        _ = tokio::io::stdin().read_to_end(&mut ignored).await;
    };
    Ok(serve::serve(config, parent_gone).await?)
}

async fn check(flags: Serve) -> Result<(), Failure> {
    let config = load(flags.config.as_deref(), &flags.overrides())?;
    let keys = serve::keys(&config)?;
    let (client, server) = store::prove(&config.redis, config.dev).await?;
    let ledger = serve::open_ledger(&config).await?;
    ledger::facts::prove(&ledger, &Scripts::new(client), &keys, config.ledger.lanes).await?;
    print(&format!(
        "configuration: good, {} app(s)\nkey prefix: {}\nRedis: {} {}, append-only file {}\nledger: {}\n",
        config.apps.len(),
        keys.prefix(),
        server.kind,
        server.version,
        if server.append_only { "on" } else { "off" },
        config.ledger.url,
    ))?;
    let now: ClockMs = Arc::new(|| i64::try_from(clock::unix_millis()).unwrap_or(i64::MAX));
    let (said, all_work) = MediaServers::new(&config, &keys.prefix().to_string(), &now)?.prove().await;
    print(&said)?;
    if all_work { Ok(()) } else { Err("a media server cannot be used".into()) }
}

fn mint(token: &Token) -> Result<String, Failure> {
    let overrides = Overrides { dev: token.dev, ..Overrides::default() };
    let config = load(token.config.as_deref(), &overrides)?;
    let role = match token.role.as_deref() {
        None => TokenRole::Guest,
        Some(name) => TokenRole::of_name(name).ok_or("--role must be guest, host or monitor")?,
    };
    let user = UserId::new(&token.user)?;
    let request = MintRequest {
        app: AppCode::new(&token.app)?,
        user,
        role,
        room: token.room.as_deref().map(RoomId::new).transpose()?,
        name: None,
        auth_version: None,
        admin: false,
        ttl: duration(&token.ttl).ok_or("--ttl must be a number and s, m, h or d, such as 1h")?,
    };
    Ok(Verifier::new(&config.apps).mint(&request, clock::unix_seconds())?)
}

fn log_as(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("DAIS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,rtc=warn,webrtc=warn,fred=warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    match format {
        LogFormat::Json => {
            builder.json().flatten_event(true).with_current_span(true).with_span_list(false).init();
        }
        LogFormat::Pretty => builder.init(),
    }
}
