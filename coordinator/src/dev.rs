//! `coordinator dev`: a private Redis and two instances beside each other, all ended with this process.
//!
//! The console follows redirects, so a page that came from one instance opens its connection to the other,
//! which to a browser is another origin. Both addresses are therefore chosen before either instance starts,
//! and each is told to let in the pages of these two and of nobody else: a page of any other server on this
//! machine stays as foreign as one from the Internet.

use serde::Deserialize;
use std::fs::{File, TryLockError};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::cli::Dev;

/// Servers that will do, the first that is there is taken.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];
const STARTING: Duration = Duration::from_secs(20);

/// Why `dev` could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// Something of the operating system.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// No Redis is installed.
    #[error("no redis-server was found: run `deploy/setup.sh run`, which installs one")]
    NoRedis,
    /// Two Redis servers must not write the same files.
    #[error("{} is in use by another `coordinator dev`: end that one, or give another folder with --data", folder.display())]
    FolderInUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A process ended that should go on.
    #[error("{what} ended: {status}")]
    Ended {
        /// Which.
        what: &'static str,
        /// How.
        status: std::process::ExitStatus,
    },
    /// An instance did not become ready.
    #[error("instance {id} was not ready within {} s; its log is above", STARTING.as_secs())]
    NotReady {
        /// Which.
        id: &'static str,
    },
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> DevError {
    let what = what.into();
    move |source| DevError::Io { what, source }
}

#[derive(Debug, Deserialize)]
struct Ready {
    message: String,
    #[serde(default)]
    public_url: String,
}

/// Starts everything, says where it is, and waits until it is told to end.
pub async fn run(flags: Dev) -> Result<(), DevError> {
    let password = uuid::Uuid::new_v4().simple().to_string();
    let port = free_port().map_err(io("no free port"))?;
    let _ours = take_folder(&flags.data)?;
    let places = [take_place(flags.listen)?, take_place(flags.second_listen)?];
    let origins = origins_of(&places);
    let [first, second] = places;
    let mut redis = start_redis(&flags.data.join("redis"), port, &password).await?;
    let redis_url = format!("redis://:{password}@127.0.0.1:{port}");
    wait_for_redis(&mut redis, port).await?;
    let ledger_url = format!("sqlite://{}", flags.data.join("ledger.db").display());
    let urls = [("DAIS_REDIS__URL", redis_url), ("DAIS_LEDGER__URL", ledger_url)];
    let mut first = start_instance("a", first, &urls, &origins).await?;
    let mut second = start_instance("b", second, &urls, &origins).await?;
    announce(&first.public_url, &second.public_url);

    let mut terminate = signal(SignalKind::terminate()).map_err(io("signals"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(io("signals"))?;
    let ended = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        status = redis.wait() => Some(("Redis", status)),
        status = first.child.wait() => Some(("instance a", status)),
        status = second.child.wait() => Some(("instance b", status)),
    };
    // Their standard input ends with this: they hand their rooms back and go. Redis goes last.
    for instance in [&mut first, &mut second] {
        drop(instance.stdin.take());
        _ = tokio::time::timeout(STARTING, instance.child.wait()).await;
    }
    if let Some(pid) = redis.id().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)) {
        _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        _ = tokio::time::timeout(STARTING, redis.wait()).await;
    }
    match ended {
        None => Ok(()),
        Some((what, status)) => Err(DevError::Ended { what, status: status.map_err(io(what))? }),
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Held for as long as the folder is ours; the system lets go of it however this process ends.
fn take_folder(data: &Path) -> Result<File, DevError> {
    std::fs::create_dir_all(data).map_err(io(format!("cannot make {}", data.display())))?;
    let lock = File::create(data.join("lock")).map_err(io(format!("cannot write in {}", data.display())))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(DevError::FolderInUse { folder: data.to_owned() }),
        Err(TryLockError::Error(source)) => Err(io(format!("cannot lock {}", data.display()))(source)),
    }
}

/// An address for an instance, held until it starts: the wanted one, or where that is taken a free port beside.
fn take_place(wanted: SocketAddr) -> Result<Place, DevError> {
    let held = TcpListener::bind(wanted)
        .or_else(|_| TcpListener::bind(SocketAddr::new(wanted.ip(), 0)))
        .map_err(io(format!("cannot listen on {wanted}")))?;
    let address = held.local_addr().map_err(io(format!("cannot listen on {wanted}")))?;
    Ok(Place { held, address })
}

struct Place {
    held: TcpListener,
    address: SocketAddr,
}

/// The origins of the pages of both instances, as `DAIS_HTTP__ALLOWED_ORIGINS` takes them.
fn origins_of(places: &[Place]) -> String {
    let origins = places.iter().flat_map(|Place { address, .. }| {
        [format!("http://{address}"), format!("http://localhost:{}", address.port())]
    });
    origins.collect::<Vec<_>>().join(",")
}

/// A command whose process ends with this one, even if this one is killed. What a terminal sends to all that
/// run in it reaches this process alone, which ends the others in their order.
fn bound_to_us(program: &str) -> Command {
    let mut command = if Path::new("/usr/bin/setpriv").exists() {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args(["--pdeathsig", "TERM", "--", program]);
        command
    } else {
        Command::new(program)
    };
    command.process_group(0).kill_on_drop(true);
    command
}

fn redis_program() -> Option<&'static str> {
    let path = std::env::var_os("PATH")?;
    SERVERS.into_iter().find(|name| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

async fn start_redis(data: &Path, port: u16, password: &str) -> Result<Child, DevError> {
    let program = redis_program().ok_or(DevError::NoRedis)?;
    tokio::fs::create_dir_all(data).await.map_err(io(format!("cannot make {}", data.display())))?;
    let folder = std::path::absolute(data).map_err(io("the data folder"))?;
    // The configuration goes over standard input: the password is in no argument and no file.
    let mut redis = bound_to_us(program)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(io(format!("cannot start {program}")))?;
    let config = format!(
        "bind 127.0.0.1\nport {port}\nrequirepass {password}\ndir {:?}\nappendonly yes\nappendfsync everysec\n\
         save \"\"\nmaxmemory-policy noeviction\ndaemonize no\nlogfile \"\"\n",
        folder.to_string_lossy()
    );
    if let Some(mut stdin) = redis.stdin.take() {
        stdin.write_all(config.as_bytes()).await.map_err(io("cannot configure Redis"))?;
    }
    Ok(redis)
}

async fn wait_for_redis(redis: &mut Child, port: u16) -> Result<(), DevError> {
    let deadline = crate::clock::instant() + STARTING;
    loop {
        if let Some(status) = redis.try_wait().map_err(io("Redis"))? {
            return Err(DevError::Ended { what: "Redis", status });
        }
        match tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            Ok(_) => return Ok(()),
            Err(error) if crate::clock::instant() > deadline => {
                return Err(io("Redis does not listen")(error));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

struct Started {
    child: Child,
    /// Held open: the instance ends when it closes. (Waiting for a child closes the one that it has itself.)
    stdin: Option<ChildStdin>,
    public_url: String,
}

async fn start_instance(
    id: &'static str,
    Place { held, address }: Place,
    urls: &[(&str, String)],
    origins: &str,
) -> Result<Started, DevError> {
    let program = std::env::current_exe().map_err(io("this program"))?;
    drop(held);
    let mut child = Command::new(program)
        .args(["serve", "--dev", "--exit-with-stdin", "--instance-id", id, "--admin-listen", "127.0.0.1:0"])
        .args(["--listen", &address.to_string()])
        .envs(urls.iter().map(|(name, url)| (name, url)))
        .env("DAIS_HTTP__ALLOWED_ORIGINS", origins)
        .env("DAIS_TELEMETRY__LOG", "json")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(io(format!("cannot start instance {id}")))?;
    let (ready, is_ready) = oneshot::channel();
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(pass_log(id, stdout, ready));
    }
    let stdin = child.stdin.take();
    match tokio::time::timeout(STARTING, is_ready).await {
        Ok(Ok(public_url)) => Ok(Started { child, stdin, public_url }),
        _ => Err(DevError::NotReady { id }),
    }
}

#[expect(clippy::print_stdout, reason = "the log of the instances is what `dev` shows")]
async fn pass_log(id: &'static str, stdout: tokio::process::ChildStdout, ready: oneshot::Sender<String>) {
    let mut ready = Some(ready);
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let said = serde_json::from_str::<Ready>(&line).ok().filter(|said| said.message == "ready");
        if let (Some(said), Some(_)) = (said, &ready)
            && let Some(ready) = ready.take()
        {
            _ = ready.send(said.public_url);
        }
        println!("{id} {line}");
    }
}

#[expect(clippy::print_stdout, reason = "this is what was asked for")]
fn announce(first: &str, second: &str) {
    println!();
    println!("  Dais is running: open {first}/console/");
    println!("  a second instance is beside it: {second}/console/");
    println!();
}
