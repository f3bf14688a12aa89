//! One event of about 200 bytes to everybody in a room: an operation is its delivery to one of them.

use std::time::Duration;

use super::Size;
use crate::client::Client;
use crate::crowd::changes::{self, Change, SENDERS};
use crate::crowd::{acquainted, connect, join_with_hosts, restart, tokens};
use crate::figures::{Begun, Figures};
use crate::server::Server;

/// Rooms, and how much is said in them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hall {
    pub(crate) rooms: usize,
    pub(crate) members: usize,
    /// Changes in a second, in each room.
    pub(crate) rate: u32,
    /// Changes at once, in all rooms, flat out.
    in_flight: usize,
    /// Changes in all, flat out.
    changes: usize,
}

/// One room of 500.
pub(crate) const ONE: Hall = Hall { rooms: 1, members: 500, rate: 60, in_flight: 8, changes: 400 };
/// 50 rooms of 100.
pub(crate) const FIFTY: Hall = Hall { rooms: 50, members: 100, rate: 10, in_flight: 32, changes: 1_500 };

const ROOM: &str = "hall";
const SECONDS: usize = 4;

impl Hall {
    /// As large as it is to be now.
    pub(crate) const fn sized(self, size: Size) -> Self {
        let rooms = size.of(self.rooms, self.rooms.div_ceil(10));
        let changes = self.changes / size.of(1, 50);
        Self { rooms, members: size.of(self.members, 10), changes, ..self }
    }

    /// Between two changes, in whichever rooms.
    pub(crate) fn every(&self) -> Duration {
        Duration::from_secs(1) / (self.rate * u32::try_from(self.rooms).expect("a few"))
    }

    /// Changes in a second, in all rooms.
    pub(crate) const fn per_second(&self) -> usize {
        self.rate as usize * self.rooms
    }
}

/// At a fixed rate, whatever the answers take; then as many as the server takes.
pub(super) async fn broadcast(server: &Server, size: Size, hall: Hall) -> Vec<Figures> {
    let name = if hall.rooms == 1 { "one" } else { "50" };
    let hall = hall.sized(size);
    let clients = filled(server, &hall).await;

    let paced = |count| changes::paced(&clients, ROOM, hall.rooms, hall.every(), count);
    let before = paced(hall.per_second()).await;
    let work = paced(hall.per_second() * size.of(SECONDS, 1));
    let at_pace = measured(server, &hall, &clients, &before, work).await;

    let in_flight = hall.in_flight.min(clients.len());
    let flat_out = |count| changes::flat_out(&clients, ROOM, hall.rooms, in_flight, count);
    let before = flat_out(hall.changes / 10).await;
    let full = measured(server, &hall, &clients, &before, flat_out(hall.changes)).await;
    vec![at_pace.of(format!("broadcast_{name}_paced")), full.of(format!("broadcast_{name}_full"))]
}

async fn filled(server: &Server, hall: &Hall) -> Vec<Client> {
    let clients = connect(&server.address(), &tokens("user", hall.rooms * hall.members)).await;
    join_with_hosts(&clients, ROOM, hall.rooms, SENDERS).await;
    acquainted(&clients, hall.rooms).await;
    clients
}

async fn measured(
    server: &Server,
    hall: &Hall,
    clients: &[Client],
    before: &[Change],
    work: impl Future<Output = Vec<Change>>,
) -> Figures {
    changes::settled(clients, hall.rooms, before).await;
    restart(clients);
    let begun = Begun::now(server).await;
    let changes = work.await;
    let last = changes::settled(clients, hall.rooms, &changes).await;
    let acks = changes.iter().map(|change| change.took).collect();
    let figures = begun.end(server, last, acks, clients).await;
    let deliveries = changes::deliveries(clients, hall.rooms, &changes);
    figures.counted(deliveries.len() as u64).delivered(deliveries)
}
