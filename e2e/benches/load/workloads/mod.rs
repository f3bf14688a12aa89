//! What is done to a server.

pub(crate) mod broadcast;
mod callbacks;
mod commands;
mod elsewhere;
mod growth;
mod reap;
mod rooms;
mod takeover;

use futures_util::future::LocalBoxFuture;
use std::time::Duration;

use crate::crowd::commands::change_settings;
use crate::crowd::{connect, join, leave, tokens};
use crate::figures::Figures;
use crate::server::{Kind, Needs, Server};

/// How long idle connections and rooms are left alone before memory is read again.
const SETTLE: Duration = Duration::from_secs(5);
/// Longer than any measurement.
const NEVER: Duration = Duration::from_hours(24);

/// How much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// Enough to measure.
    Full,
    /// Enough to see that it works.
    Quick,
}

impl Size {
    /// One of two counts.
    pub(crate) const fn of(self, full: usize, quick: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }

    fn rest(self) -> Duration {
        if self == Self::Full { SETTLE } else { Duration::from_millis(100) }
    }

    /// Lets a server compile, allocate and cache what it will.
    async fn warm(self, server: &Server) {
        let rooms = self.of(300, 10);
        let clients = connect(&server.address(), &tokens("warm", rooms * 2)).await;
        join(&clients, "warm", rooms).await;
        change_settings(&clients, "warm", rooms, self.of(2_000, 20)).await;
        leave(&clients, "warm", rooms).await;
    }
}

type Run = for<'a> fn(&'a mut Server, Size) -> LocalBoxFuture<'a, Vec<Figures>>;

/// One workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    /// As it is called in the tables.
    pub(crate) name: &'static str,
    /// What the peer does not know, or where it has nothing to be compared.
    is_ours: bool,
    /// Not repeated: it takes long, and is compared with nothing of its round.
    pub(crate) is_once: bool,
    needs: fn(Size) -> Needs,
    run: Run,
}

impl Workload {
    const fn new(name: &'static str, run: Run) -> Self {
        Self { name, is_ours: false, is_once: false, needs: |_| Needs::USUAL, run }
    }

    const fn ours(self) -> Self {
        Self { is_ours: true, ..self }
    }

    const fn once(self) -> Self {
        Self { is_once: true, ..self }
    }

    const fn needs(self, needs: fn(Size) -> Needs) -> Self {
        Self { needs, ..self }
    }

    /// Whether this server can do it.
    pub(crate) const fn is_known_to(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Dais) || !self.is_ours
    }

    /// Measures it on a fresh server.
    pub(crate) async fn run(&self, kind: Kind, size: Size) -> Vec<Figures> {
        let mut server = Server::start(kind, (self.needs)(size)).await;
        (self.run)(&mut server, size).await
    }
}

const fn two_instances(_: Size) -> Needs {
    Needs { instances: 2, ..Needs::USUAL }
}

const fn kept_rooms(_: Size) -> Needs {
    Needs { idle: NEVER, ..Needs::USUAL }
}

fn many_rooms(size: Size) -> Needs {
    Needs { idle: NEVER, heartbeat: growth::heartbeat(size), ..Needs::USUAL }
}

fn short_beats(size: Size) -> Needs {
    Needs { instances: 2, heartbeat: takeover::heartbeat(size), ..Needs::USUAL }
}

/// All of them, in the order in which they are measured.
pub(crate) const ALL: &[Workload] = &[
    Workload::new("idle", |server, size| Box::pin(rooms::idle(server, size, size.of(5_000, 50)))),
    Workload::new("join_own", |server, size| {
        Box::pin(rooms::joins(server, size, size.of(3_000, 50), size.of(3_000, 50)))
    }),
    Workload::new("join_ten", |server, size| {
        Box::pin(rooms::joins(server, size, size.of(3_000, 50), size.of(300, 5)))
    }),
    Workload::new("join_one", |server, size| Box::pin(rooms::joins(server, size, size.of(1_000, 50), 1))),
    Workload::new("settings", |server, size| {
        Box::pin(commands::settings(server, size, size.of(200, 5), 10, size.of(5_000, 100)))
    }),
    Workload::new("broadcast_one", |server, size| {
        Box::pin(broadcast::broadcast(server, size, broadcast::ONE))
    }),
    Workload::new("broadcast_50", |server, size| {
        Box::pin(broadcast::broadcast(server, size, broadcast::FIFTY))
    }),
    Workload::new("mic_one", |server, size| {
        Box::pin(commands::mics(server, size, size.of(64, 8), 1, size.of(50, 2)))
    })
    .ours()
    .once()
    .needs(|_| Needs { seats: 64, ..Needs::USUAL }),
    Workload::new("mic_rooms", |server, size| {
        Box::pin(commands::mics(server, size, size.of(1_000, 20), size.of(1_000, 20), size.of(4, 2)))
    })
    .once(),
    Workload::new("redirects", |server, size| Box::pin(elsewhere::redirects(server, size)))
        .needs(two_instances),
    Workload::new("settings_elsewhere_1", |server, size| Box::pin(elsewhere::settings(server, size, 1)))
        .needs(two_instances),
    Workload::new("settings_elsewhere_16", |server, size| Box::pin(elsewhere::settings(server, size, 16)))
        .needs(two_instances),
    Workload::new("elsewhere_1", |server, size| {
        Box::pin(elsewhere::locks(server, size, size.of(1_000, 40), 1))
    })
    .ours()
    .once()
    .needs(two_instances),
    Workload::new("elsewhere", |server, size| {
        Box::pin(elsewhere::locks(server, size, size.of(4_000, 80), 20))
    })
    .ours()
    .once()
    .needs(two_instances),
    Workload::new("takeover_1", |server, _| Box::pin(takeover::takeover(server, 1)))
        .once()
        .needs(short_beats),
    Workload::new("takeover_100", |server, size| Box::pin(takeover::takeover(server, size.of(100, 10))))
        .once()
        .needs(short_beats),
    Workload::new("takeover_1000", |server, size| Box::pin(takeover::takeover(server, size.of(1_000, 20))))
        .once()
        .needs(short_beats),
    Workload::new("takeover_10000", |server, size| {
        Box::pin(takeover::with_bystanders(server, size.of(10_000, 20)))
    })
    .ours()
    .once()
    .needs(short_beats),
    Workload::new("reap_10000", |server, size| Box::pin(reap::reap(server, size)))
        .ours()
        .once()
        .needs(short_beats),
    Workload::new("join_during_reap", |server, size| Box::pin(reap::with_bystanders(server, size)))
        .ours()
        .once()
        .needs(short_beats),
    Workload::new("rooms_100", |server, size| Box::pin(growth::rooms(server, size, 100)))
        .ours()
        .once()
        .needs(many_rooms),
    Workload::new("rooms_1000", |server, size| Box::pin(growth::rooms(server, size, 1_000)))
        .ours()
        .once()
        .needs(many_rooms),
    Workload::new("rooms_10000", |server, size| Box::pin(growth::rooms(server, size, 10_000)))
        .ours()
        .once()
        .needs(many_rooms),
    Workload::new("rooms_100000", |server, size| Box::pin(growth::rooms(server, size, 100_000)))
        .ours()
        .once()
        .needs(many_rooms),
    Workload::new("instances_1", |server, size| Box::pin(growth::instances(server, size))).ours().once(),
    Workload::new("instances_2", |server, size| Box::pin(growth::instances(server, size)))
        .ours()
        .once()
        .needs(two_instances),
    Workload::new("instances_4", |server, size| Box::pin(growth::instances(server, size)))
        .ours()
        .once()
        .needs(|_| Needs { instances: 4, ..Needs::USUAL }),
    Workload::new("instances_8", |server, size| Box::pin(growth::instances(server, size)))
        .ours()
        .once()
        .needs(|_| Needs { instances: 8, ..Needs::USUAL }),
    Workload::new("callbacks", |server, size| Box::pin(callbacks::callbacks(server, size)))
        .ours()
        .once()
        .needs(|_| Needs { instances: 3, ..Needs::USUAL }),
    Workload::new("held_room", |server, size| Box::pin(rooms::filled(server, size, true)))
        .once()
        .needs(kept_rooms),
    Workload::new("idle_room", |server, size| Box::pin(rooms::filled(server, size, false)))
        .ours()
        .once()
        .needs(kept_rooms),
];
