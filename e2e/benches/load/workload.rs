//! What is done to a server, and what it cost.

use std::time::Duration;
use tokio::time::{Instant, sleep};

use crate::callbacks::callbacks;
use crate::client::Client;
use crate::crowd::{
    change_settings, connect, cycle_mics, delivered, fill_rooms, join, leave, lock_seats, tokens,
};
use crate::figures::{Begun, Figures, resident};
use crate::server::{Kind, Needs, Server};

/// How long idle connections and rooms are left alone before memory is read again.
const SETTLE: Duration = Duration::from_secs(5);
const WARM_ROOMS: usize = 300;
const WARM_CHANGES: usize = 2_000;
/// Hosts, each of a room, whose commands come to an instance that does not own it.
const HOSTS_ELSEWHERE: usize = 20;
/// Longer than any measurement.
const NEVER: Duration = Duration::from_hours(24);

/// One workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// 3,000 connections that do nothing.
    Idle,
    /// 5,000 joins, each into a room of its own.
    JoinOwn,
    /// 5,000 joins into 500 rooms.
    JoinTen,
    /// 1,000 joins into one room.
    JoinOne,
    /// 10,000 changes in 200 rooms of ten.
    Settings,
    /// 9,600 commands of 64 people in one room, who take seats, confirm and leave them.
    MicOne,
    /// The same by 1,000 people, each in a room of their own: 12,000 commands, or 8,000 where nothing is confirmed.
    MicRooms,
    /// 4,000 seats locked or unlocked by 20 hosts at an instance that does not own their rooms.
    Elsewhere,
    /// 1,000 of these, one after the other.
    ElsewhereAlone,
    /// 24,000 callbacks, 2,000 a second, to one of three instances, each of which has a third of the 60 rooms.
    Callbacks,
    /// 5,000 rooms with one person in each, ten rooms to a connection.
    HeldRoom,
    /// 5,000 rooms that everybody has left again.
    IdleRoom,
}

impl Workload {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        Self::Idle,
        Self::JoinOwn,
        Self::JoinTen,
        Self::JoinOne,
        Self::Settings,
        Self::MicOne,
        Self::MicRooms,
        Self::Elsewhere,
        Self::ElsewhereAlone,
        Self::Callbacks,
        Self::HeldRoom,
        Self::IdleRoom,
    ];

    /// As it is called in the tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::JoinOwn => "join_own",
            Self::JoinTen => "join_ten",
            Self::JoinOne => "join_one",
            Self::Settings => "settings",
            Self::MicOne => "mic_one",
            Self::MicRooms => "mic_rooms",
            Self::Elsewhere => "elsewhere",
            Self::ElsewhereAlone => "elsewhere_1",
            Self::Callbacks => "callbacks",
            Self::HeldRoom => "held_room",
            Self::IdleRoom => "idle_room",
        }
    }

    /// Whether this server can do it: the peer has eight seats in a room, takes no seat command elsewhere nor any
    /// callback, and keeps no room that is empty.
    pub(crate) const fn is_known_to(self, kind: Kind) -> bool {
        let is_ours = matches!(
            self,
            Self::MicOne | Self::Elsewhere | Self::ElsewhereAlone | Self::Callbacks | Self::IdleRoom
        );
        matches!(kind, Kind::Dais) || !is_ours
    }

    fn needs(self) -> Needs {
        match self {
            Self::MicOne => Needs { seats: 64, ..Needs::default() },
            Self::Elsewhere | Self::ElsewhereAlone => Needs { instances: 2, ..Needs::default() },
            Self::Callbacks => Needs { instances: 3, ..Needs::default() },
            Self::HeldRoom | Self::IdleRoom => Needs { idle: NEVER, ..Needs::default() },
            _ => Needs::default(),
        }
    }

    /// Measures it on a fresh server.
    pub(crate) async fn run(self, kind: Kind) -> Figures {
        let server = Server::start(kind, self.needs()).await;
        let confirms = kind == Kind::Dais;
        match self {
            Self::Idle => idle(&server, 3_000).await,
            Self::JoinOwn => joins(&server, 5_000, 5_000).await,
            Self::JoinTen => joins(&server, 5_000, 500).await,
            Self::JoinOne => joins(&server, 1_000, 1).await,
            Self::Settings => settings(&server, 200, 10, 10_000).await,
            Self::MicOne => mics(&server, 64, 1, 50, confirms).await,
            Self::MicRooms => mics(&server, 1_000, 1_000, 4, confirms).await,
            Self::Elsewhere => elsewhere(&server, 4_000, HOSTS_ELSEWHERE).await,
            Self::ElsewhereAlone => elsewhere(&server, 1_000, 1).await,
            Self::Callbacks => callbacks(&server).await,
            Self::HeldRoom => filled(&server, 500, 10, true).await,
            Self::IdleRoom => filled(&server, 500, 10, false).await,
        }
    }
}

/// Lets a server compile, allocate and cache what it will.
async fn warm(server: &Server) {
    let clients = connect(&server.address(), &tokens("warm", WARM_ROOMS * 2)).await;
    join(&clients, "warm", WARM_ROOMS).await;
    change_settings(&clients, "warm", WARM_ROOMS, WARM_CHANGES).await;
    leave(&clients, "warm", WARM_ROOMS).await;
}

async fn idle(server: &Server, count: usize) -> Figures {
    let tokens = tokens("idle", count);
    let begun = Begun::now(server).await;
    let clients = connect(&server.address(), &tokens).await;
    let waits = clients.iter().map(Client::opened_in).collect();
    let mut figures = begun.end(server, Instant::now(), waits, &clients).await;
    sleep(SETTLE).await;
    figures.resident.rested = Some(resident(server));
    figures
}

async fn joins(server: &Server, count: usize, rooms: usize) -> Figures {
    warm(server).await;
    let clients = connect(&server.address(), &tokens("user", count)).await;
    let begun = Begun::now(server).await;
    let acks = join(&clients, "room", rooms).await;
    let acked = Instant::now();
    let in_room = |at: usize| (count - at % rooms).div_ceil(rooms);
    let last = delivered("everybody sees everybody", &clients, |at, client| {
        client.seen().peers.get() == in_room(at) as u64
    })
    .await;
    begun.end(server, last.map_or(acked, |last| last.max(acked)), acks, &clients).await
}

async fn settings(server: &Server, rooms: usize, members: usize, changes: usize) -> Figures {
    warm(server).await;
    let clients = connect(&server.address(), &tokens("user", rooms * members)).await;
    join(&clients, "room", rooms).await;
    delivered("everybody sees everybody", &clients, |_, client| client.seen().peers.get() == members as u64)
        .await;
    for client in &clients {
        client.seen().events.set(0);
    }
    let begun = Begun::now(server).await;
    let acks = change_settings(&clients, "room", rooms, changes).await;
    let acked = Instant::now();
    let version = |at: usize| clients[at].seen().version.get();
    let last = delivered("everybody has the last settings", &clients, |at, client| {
        client.seen().version.get() == version(at % rooms)
    })
    .await;
    begun.end(server, last.map_or(acked, |last| last.max(acked)), acks, &clients).await
}

/// `members` people over so many rooms, each of whom takes a seat and leaves it again so many times.
async fn mics(server: &Server, members: usize, rooms: usize, cycles: usize, confirms: bool) -> Figures {
    warm(server).await;
    let clients = connect(&server.address(), &tokens("user", members)).await;
    join(&clients, "room", rooms).await;
    delivered("everybody sees everybody", &clients, |_, client| {
        client.seen().peers.get() == (members / rooms) as u64
    })
    .await;
    cycle_mics(&clients, "room", rooms, 1, confirms).await;
    for client in &clients {
        client.seen().events.set(0);
        client.seen().seats.set(0);
    }
    let begun = Begun::now(server).await;
    let (acks, version) = cycle_mics(&clients, "room", rooms, cycles, confirms).await;
    let acked = Instant::now();
    let commands = (acks.len() / members) as u64;
    let last = delivered("everybody sees the last change", &clients, |_, client| {
        // In a room of one's own each command is told for itself.
        if rooms == members {
            client.seen().seats.get() >= commands
        } else {
            client.seen().cell.get() >= version
        }
    })
    .await;
    begun.end(server, last.map_or(acked, |last| last.max(acked)), acks, &clients).await
}

/// Hosts at the second instance, of rooms at the first with a member in each.
async fn elsewhere(server: &Server, commands: usize, in_flight: usize) -> Figures {
    warm(server).await;
    let members = connect(&server.address(), &tokens("user", HOSTS_ELSEWHERE)).await;
    join(&members, "room", HOSTS_ELSEWHERE).await;
    let hosts = connect(&server.other_address(), &tokens("host", HOSTS_ELSEWHERE)).await;
    lock_seats(&hosts, &members, "room", HOSTS_ELSEWHERE * 16, HOSTS_ELSEWHERE).await;
    for member in &members {
        member.seen().events.set(0);
    }
    let begun = Begun::now(server).await;
    let waits = lock_seats(&hosts, &members, "room", commands, in_flight).await;
    begun.end(server, Instant::now(), waits, &members).await
}

/// Rooms that stay loaded, with one person in each or with none. One room for each connection comes before
/// them, so that what a connection itself comes to need is not counted.
async fn filled(server: &Server, connections: usize, each: usize, stays: bool) -> Figures {
    let clients = connect(&server.address(), &tokens("user", connections)).await;
    fill_rooms(&clients, "first", 1, stays).await;
    sleep(SETTLE).await;
    let begun = Begun::now(server).await;
    let waits = fill_rooms(&clients, "room", each, stays).await;
    let mut figures = begun.end(server, Instant::now(), waits, &clients).await;
    sleep(SETTLE).await;
    figures.resident.rested = Some(resident(server));
    figures
}
