//! `coordinator serve`: an instance from its first look at Redis to its last lease released.

use fred::interfaces::ClientLike as _;
use key_prefix::{ChannelKind, Instance, Keys, Prefix, RoomKey};
use ledger::Ledger;
use media_bridge::{
    ClockMs, EmbeddedConfig, EmbeddedSfu, MediaEvent, MediaEventKind, MediaKind, MediaSignal,
};
use redis_scripts::Scripts;
use room_cell::{MediaFact, MediaIdentity, MediaReport, Millis};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::callbacks::levels::{Level, Speaker};
use crate::config::{Config, Role};
use crate::media::MediaServers;
use crate::metrics::Metrics;
use crate::node::{Fatal, Node, Parts, archiving, drain, heartbeat, outgoing, reaping, register};
use crate::room::names::key_of;
use crate::room::work::Work;
use crate::socket::{lists, sessions};
use crate::store::replicas::Replicas;
use crate::{http, store, sync};

/// Signals of the media server that may wait to be handled.
const MEDIA_SIGNALS: usize = 4_096;
/// At start-up the ledger may be a moment late.
const LEDGER_PATIENCE: Duration = Duration::from_secs(10);
const LEDGER_PAUSE: Duration = Duration::from_millis(200);
/// After a drain, open connections have so long to hear that they should move.
const FAREWELL: Duration = Duration::from_millis(250);

/// Why an instance could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The key prefix is none.
    #[error("redis.key_prefix cannot be used")]
    Prefix(#[from] key_prefix::PrefixError),
    /// A listener cannot be opened.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Redis cannot be used.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// The name is held.
    #[error(transparent)]
    Register(#[from] register::RegisterError),
    /// The ledger cannot be used.
    #[error("the ledger at {url} cannot be used: {}", source.remedy())]
    Ledger {
        /// The URL without what is secret.
        url: String,
        /// Why.
        source: ledger::OpenError,
    },
    /// This instance, its Redis and its ledger do not belong together.
    #[error("this instance cannot join the cluster")]
    Facts(#[from] ledger::facts::FactsError),
    /// The metrics cannot be registered.
    #[error("metrics")]
    Metrics(#[from] prometheus::Error),
    /// A media server cannot be used.
    #[error("a media server cannot be used")]
    Media(#[from] media_bridge::MediaError),
    /// Nothing can be delivered.
    #[error("a webhook cannot be used")]
    Webhook(#[from] ledger::sink::WebhookError),
    /// Signals cannot be had.
    #[error("signals")]
    Signals(#[source] std::io::Error),
    /// Going on would be wrong.
    #[error("the instance had to end")]
    Fatal(#[from] Fatal),
}

/// The names under the configured prefix.
pub fn keys(config: &Config) -> Result<Keys, key_prefix::PrefixError> {
    let prefix = match config.redis.key_prefix.as_str() {
        "" if config.dev => Prefix::dev(),
        text => Prefix::parse(text)?,
    };
    Ok(Keys::new(prefix))
}

/// Runs an instance until it is told to end, by a signal or by `parent_gone`.
pub async fn serve(config: Config, parent_gone: impl Future<Output = ()>) -> Result<(), ServeError> {
    let keys = keys(&config)?;
    let (public, admin) = (bind(config.instance.listen).await?, bind(config.instance.admin_listen).await?);
    let (client, server) = store::prove(&config.redis, config.dev).await?;
    tracing::info!(
        kind = server.kind,
        version = server.version,
        append_only = server.append_only,
        "Redis is fit"
    );
    store::append_file::watch(client.clone(), &server);
    let scripts = Scripts::new(client);
    let ledger = open_ledger(&config).await?;
    agree(&ledger, &scripts, &keys, &config).await?;

    let listen = local(&public, config.instance.listen)?;
    let admin_listen = local(&admin, config.instance.admin_listen)?;
    let address = reachable(listen);
    let public_url = config.instance.public_base().unwrap_or_else(|| format!("http://{address}"));
    let (me, now) = register::register(&scripts, &keys, &config, &address, &public_url).await?;
    let lifeline = Scripts::new(store::connect(&config.redis).await?);
    let subscriber = store::connect_subscriber(&config.redis).await?;
    let replicas = replicas(&config, &keys, &me).await?;

    let (signals, heard) = mpsc::channel(MEDIA_SIGNALS);
    let clock = Arc::new(crate::clock::RedisClock::default());
    clock.heard(now, Duration::ZERO);
    let now: ClockMs = {
        let clock = Arc::clone(&clock);
        Arc::new(move || i64::try_from(clock.now_ms()).unwrap_or(i64::MAX))
    };
    let embedded = embedded(&config, &now, signals)?;
    let media = Arc::new(MediaServers::new(&config, &keys.prefix().to_string(), &now)?);
    let metrics = Metrics::new()?;
    let node = Node::new(Parts {
        config,
        scripts,
        lifeline,
        keys,
        me,
        public_url,
        address,
        metrics,
        embedded,
        media,
        ledger,
        clock,
        replicas,
    });
    node.media.watch(&node.config, &node.ending);
    sync::listen(Arc::clone(&node), subscriber.clone()).await?;
    tokio::spawn(heartbeat::run(Arc::clone(&node), subscriber.clone()));
    tokio::spawn(heartbeat::touch(Arc::clone(&node)));
    tokio::spawn(lists::digest(Arc::clone(&node)));
    tokio::spawn(sessions::expiry::watch(Arc::clone(&node)));
    tokio::spawn(sessions::record::keep(Arc::clone(&node)));
    tokio::spawn(sessions::notices::deliver(Arc::clone(&node)));
    tokio::spawn(hear_media(Arc::clone(&node), heard));
    if node.config.instance.has(Role::Reaper) {
        tokio::spawn(reaping::run(Arc::clone(&node)));
    }
    let (archived, delivered) = (CancellationToken::new(), CancellationToken::new());
    let outgoing = match node.config.instance.has(Role::Outbox) {
        true => {
            let dispatcher = outgoing::dispatcher(&node)?;
            Some(tokio::spawn(outgoing::run(Arc::clone(&node), dispatcher, delivered.clone())))
        }
        false => None,
    };
    let archiver = node
        .config
        .instance
        .has(Role::Archiver)
        .then(|| tokio::spawn(archiving::run(Arc::clone(&node), archived.clone())));

    let ending = |node: &Arc<Node>| node.ending.clone().cancelled_owned();
    let io =
        http::serve_public(Arc::clone(&node), public, ending(&node)).await.map_err(ServeError::Signals)?;
    http::serve_admin(Arc::clone(&node), admin, ending(&node));
    tracing::info!(
        instance = node.store.me.as_str(),
        %listen,
        %admin_listen,
        public_url = node.public_url,
        prefix = %node.store.keys.prefix(),
        "ready"
    );

    let ended = until_told(&node, parent_gone).await?;
    if let Some(fatal) = ended {
        node.ending.cancel();
        return Err(fatal.into());
    }
    let deadline = crate::clock::instant() + node.config.instance.drain;
    tokio::select! {
        done = drain::drain(&node, deadline) => tracing::info!(
            rooms = done.rooms, members = done.members, left_behind = done.left_behind, "drained"
        ),
        // A second signal, or something that must not go on: at once.
        _ = until_told(&node, std::future::pending()) => tracing::warn!("ending at once"),
    }
    // What was committed here is archived before the lanes are given up.
    archived.cancel();
    if let Some(archiver) = archiver {
        _ = tokio::time::timeout_at(deadline.max(crate::clock::instant() + FAREWELL), archiver).await;
    }
    // What is in hand is delivered; the rest is for others, or for later.
    delivered.cancel();
    if let Some(outgoing) = outgoing {
        _ = tokio::time::timeout_at(deadline.max(crate::clock::instant() + FAREWELL), outgoing).await;
    }
    tokio::time::sleep(FAREWELL).await;
    io.close().await;
    node.ending.cancel();
    if let Some(embedded) = &node.embedded {
        embedded.shutdown().await;
    }
    _ = subscriber.quit().await;
    _ = node.store.lifeline.client().quit().await;
    _ = node.store.scripts.client().quit().await;
    Ok(())
}

/// Opens the ledger, and waits a while for one that is just starting.
pub async fn open_ledger(config: &Config) -> Result<Ledger, ServeError> {
    let options = ledger::Options { deadline: config.ledger.timeout, ..ledger::Options::default() };
    let give_up = crate::clock::instant() + LEDGER_PATIENCE;
    let mut is_told = false;
    loop {
        match Ledger::open(config.ledger.url.expose(), &options).await {
            Ok(ledger) => return Ok(ledger),
            Err(ledger::OpenError::Ledger(error))
                if error.is_unavailable() && crate::clock::instant() < give_up =>
            {
                if !std::mem::replace(&mut is_told, true) {
                    let (error, remedy) = (&error as &dyn std::error::Error, error.remedy());
                    tracing::warn!(error, remedy, patience = ?LEDGER_PATIENCE, "the ledger is waited for");
                }
                tokio::time::sleep(LEDGER_PAUSE).await;
            }
            Err(source) => return Err(ServeError::Ledger { url: config.ledger.url.to_string(), source }),
        }
    }
}

/// Proves that this instance, its Redis and its ledger belong together.
pub async fn agree(
    ledger: &Ledger,
    scripts: &Scripts,
    keys: &Keys,
    config: &Config,
) -> Result<(), ServeError> {
    let give_up = crate::clock::instant() + LEDGER_PATIENCE;
    let fresh = uuid::Uuid::now_v7().simple().to_string();
    loop {
        match ledger::facts::agree(ledger, scripts, keys, config.ledger.lanes, &fresh).await {
            Ok(id) => {
                tracing::info!(id, url = %config.ledger.url, "the ledger is fit");
                return Ok(());
            }
            Err(error) if error.is_unavailable() && crate::clock::instant() < give_up => {
                tracing::debug!(error = &error as &dyn std::error::Error, "the facts cannot be read");
                tokio::time::sleep(LEDGER_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn replicas(config: &Config, keys: &Keys, me: &Instance) -> Result<Replicas, ServeError> {
    let (redis, count) = (&config.redis, config.redis.wait_replicas);
    if count == 0 {
        return Ok(Replicas::default());
    }
    let channel = keys.channel(ChannelKind::Canary, me).to_string();
    // Redis says that it is too late before the client stops listening.
    Ok(Replicas::over(store::connect(redis).await?, channel, count, redis.command_timeout / 2))
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}

fn local(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, ServeError> {
    listener.local_addr().map_err(|source| ServeError::Listen { address, source })
}

/// Host and port under which other machines can tell this process from others.
fn reachable(listen: SocketAddr) -> String {
    if !listen.ip().is_unspecified() {
        return listen.to_string();
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}:{}", listen.port())
}

fn embedded(
    config: &Config,
    now: &ClockMs,
    signals: mpsc::Sender<MediaSignal>,
) -> Result<Option<EmbeddedSfu>, ServeError> {
    if !config.media.iter().any(|media| media.kind() == MediaKind::Embedded) {
        return Ok(None);
    }
    Ok(Some(EmbeddedSfu::new(EmbeddedConfig::default(), Arc::clone(now), signals)?))
}

async fn until_told(node: &Node, parent_gone: impl Future<Output = ()>) -> Result<Option<Fatal>, ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let mut fatal = node.fatal.subscribe();
    tokio::select! {
        _ = terminate.recv() => Ok(None),
        _ = interrupt.recv() => Ok(None),
        () = parent_gone => Ok(None),
        why = fatal.wait_for(Option::is_some) => Ok(why.ok().and_then(|why| why.clone())),
    }
}

const fn fact(kind: &MediaEventKind) -> (MediaFact, &'static str) {
    match kind {
        MediaEventKind::ParticipantJoined => (MediaFact::ParticipantJoined, "participant_joined"),
        MediaEventKind::AudioStarted => (MediaFact::AudioStarted, "audio_started"),
        MediaEventKind::AudioStopped => (MediaFact::AudioStopped, "audio_stopped"),
        MediaEventKind::RoomExited { .. } => (MediaFact::RoomExited, "room_exited"),
        MediaEventKind::RoomFinished => (MediaFact::RoomFinished, "room_finished"),
    }
}

/// What a room is told of an event of its embedded router.
fn report_of(event: MediaEvent) -> Option<(RoomKey, Work)> {
    let room = key_of(&event.room)?;
    let report = MediaReport {
        what: fact(&event.kind).0,
        who: event.peer.map(|it| MediaIdentity { user: it.user.into(), peer: Some(it.peer.into()) }),
        router: None,
        incarnation: event.session,
        sequence: None,
        at: Millis(u64::try_from(event.at_ms).unwrap_or(0)),
        resolution_ms: 0,
    };
    Some((room, Work::Media(Box::new(report), event.generation?.0)))
}

/// Passes what the media server says on to the rooms.
async fn hear_media(node: Arc<Node>, mut signals: mpsc::Receiver<MediaSignal>) {
    loop {
        let signal = tokio::select! {
            () = node.ending.cancelled() => return,
            signal = signals.recv() => signal,
        };
        let told = match signal {
            Some(MediaSignal::Event(event)) => {
                tracing::debug!(?event, "media");
                node.metrics.media_events.with_label_values(&[fact(&event.kind).1]).inc();
                report_of(event)
            }
            Some(MediaSignal::TracksChanged { room, subscribers }) => {
                let peers = subscribers.iter().map(|peer| Arc::clone(&peer.peer)).collect();
                key_of(&room).map(|room| (room, Work::Tracks(peers)))
            }
            Some(MediaSignal::Level { room, peer, level }) => {
                if let Some(room) = key_of(&room) {
                    node.levels.hear(&node, &room, [Level { who: Speaker::User(peer.user), level }]);
                }
                continue;
            }
            None => return,
        };
        if let Some((room, work)) = told
            && let Some(handle) = node.rooms.find(&room)
            && handle.tell(work).is_err()
        {
            node.metrics.skipped.with_label_values(&["mailbox_full"]).inc();
        }
    }
}
