//! Limits and addresses of the embedded SFU.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::ops::RangeInclusive;

/// An address to listen on, and the one clients are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MediaAddress {
    /// Bound by each room's socket; a concrete address, never a wildcard.
    pub bind: IpAddr,
    /// Written into candidates. Differs from `bind` behind a one-to-one NAT.
    pub advertise: IpAddr,
}

impl MediaAddress {
    /// An address clients reach as it is.
    #[must_use]
    pub fn direct(address: IpAddr) -> Self {
        Self { bind: address, advertise: address }
    }

    /// Loopback and the address of the default route's interface.
    ///
    /// Finding the latter sends nothing: a datagram socket is connected, and asked for its own address.
    #[must_use]
    pub fn local() -> Vec<Self> {
        let mut addresses = vec![Self::direct(IpAddr::V4(Ipv4Addr::LOCALHOST))];
        let outward = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
            socket.connect((Ipv4Addr::new(203, 0, 113, 1), 9))?;
            socket.local_addr()
        });
        if let Ok(outward) = outward
            && !outward.ip().is_loopback()
            && !outward.ip().is_unspecified()
        {
            addresses.push(Self::direct(outward.ip()));
        }
        addresses
    }
}

/// Configuration of an [`EmbeddedSfu`](crate::EmbeddedSfu). Every limit is enforced with an error that names its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedConfig {
    /// Each room binds one UDP socket on each of these.
    pub addresses: Vec<MediaAddress>,
    /// Ports to take the rooms' sockets from; `None` lets the system choose.
    pub ports: Option<RangeInclusive<u16>>,
    /// Routers at once.
    pub max_rooms: usize,
    /// Grants in one room at once.
    pub max_peers_per_room: usize,
    /// Tracks one peer may send.
    pub max_tracks_per_peer: usize,
    /// Sections of one subscribing connection.
    pub max_subscriptions_per_peer: usize,
    /// Largest offer, in bytes.
    pub max_sdp_bytes: usize,
    /// What one peer may send, in bits per second over a second; what exceeds it is dropped and counted.
    pub max_bitrate_bps: u64,
    /// What one peer may send, in packets per second; what exceeds it is dropped and counted.
    pub max_packets_per_second: u64,
    /// How long a call waits for the room.
    pub answer_deadline_ms: u64,
    /// A connection that is not established by then is closed.
    pub connect_deadline_ms: u64,
    /// Without a packet or a check for so long, a connection has failed.
    pub failed_after_ms: u64,
    /// Audio counts as stopped after so long without a packet. Opus with DTX sends one every 400 ms.
    pub silence_after_ms: u64,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self {
            addresses: MediaAddress::local(),
            ports: None,
            max_rooms: 200,
            max_peers_per_room: 100,
            max_tracks_per_peer: 4,
            max_subscriptions_per_peer: 128,
            max_sdp_bytes: 256 * 1024,
            max_bitrate_bps: 4_000_000,
            max_packets_per_second: 2_000,
            answer_deadline_ms: 5_000,
            connect_deadline_ms: 20_000,
            failed_after_ms: 15_000,
            silence_after_ms: 3_000,
        }
    }
}
