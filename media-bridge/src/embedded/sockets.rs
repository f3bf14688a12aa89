//! A room's sockets, and whom a datagram belongs to.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use tokio::net::UdpSocket;

use super::config::EmbeddedConfig;

struct Entry {
    socket: UdpSocket,
    /// What clients were told, and what the WebRTC stack believes it is bound to.
    advertised: SocketAddr,
}

/// One UDP socket on each configured address.
pub(super) struct Sockets {
    entries: Vec<Entry>,
    /// The entry to look at first, so that a flood of one does not silence the others.
    first: usize,
}

impl Sockets {
    /// Binds them; `cursor` spreads rooms over the configured ports.
    pub(super) fn bind(config: &EmbeddedConfig, cursor: &AtomicUsize) -> io::Result<Self> {
        let entries = config
            .addresses
            .iter()
            .map(|address| {
                let socket = match &config.ports {
                    None => std::net::UdpSocket::bind((address.bind, 0))?,
                    Some(ports) => {
                        let ports: Vec<u16> = ports.clone().collect();
                        let first = cursor.fetch_add(1, Ordering::Relaxed);
                        (0..ports.len())
                            .map(|nth| ports[(first + nth) % ports.len()])
                            .find_map(|port| std::net::UdpSocket::bind((address.bind, port)).ok())
                            .ok_or_else(|| io::Error::from(io::ErrorKind::AddrInUse))?
                    }
                };
                socket.set_nonblocking(true)?;
                let advertised = SocketAddr::new(address.advertise, socket.local_addr()?.port());
                Ok(Entry { socket: UdpSocket::from_std(socket)?, advertised })
            })
            .collect::<io::Result<Vec<_>>>()?;
        if entries.is_empty() {
            return Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
        }
        Ok(Self { entries, first: 0 })
    }

    pub(super) fn advertised(&self) -> impl Iterator<Item = SocketAddr> {
        self.entries.iter().map(|entry| entry.advertised)
    }

    /// Waits until a datagram may be there.
    pub(super) async fn readable(&self) {
        poll_fn(|cx| {
            let any = self.entries.iter().any(|entry| entry.socket.poll_recv_ready(cx).is_ready());
            if any { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// A datagram, where it came from and where to, if one is there.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Option<(usize, SocketAddr, SocketAddr)> {
        let count = self.entries.len();
        self.first = (self.first + 1) % count;
        (0..count).map(|nth| &self.entries[(self.first + nth) % count]).find_map(|entry| {
            let (length, from) = entry.socket.try_recv_from(buffer).ok()?;
            Some((length, from, entry.advertised))
        })
    }

    /// Sends without waiting; false if the datagram could not be sent.
    pub(super) fn send(&self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> bool {
        self.entries
            .iter()
            .find(|entry| entry.advertised == from)
            .is_some_and(|entry| entry.socket.try_send_to(datagram, to).is_ok())
    }
}

/// Tells by user name fragment, and from then on by address, which connection a datagram is for.
#[derive(Debug)]
pub(super) struct Demux<Id> {
    by_ufrag: HashMap<String, Id>,
    by_address: HashMap<(SocketAddr, SocketAddr), Id>,
}

impl<Id> Default for Demux<Id> {
    fn default() -> Self {
        Self { by_ufrag: HashMap::new(), by_address: HashMap::new() }
    }
}

/// Remote addresses remembered for one connection.
const ADDRESSES_MAX: usize = 32;

impl<Id: Copy + Eq> Demux<Id> {
    /// Takes note of a connection's user name fragment, instead of any it had.
    pub(super) fn expect(&mut self, ufrag: &str, id: Id) {
        self.by_ufrag.retain(|_, other| *other != id);
        self.by_ufrag.insert(ufrag.to_owned(), id);
    }

    pub(super) fn forget(&mut self, id: Id) {
        self.by_ufrag.retain(|_, other| *other != id);
        self.by_address.retain(|_, other| *other != id);
    }

    pub(super) fn route(&mut self, local: SocketAddr, remote: SocketAddr, datagram: &[u8]) -> Option<Id> {
        if let Some(ufrag) = binding_request_ufrag(datagram) {
            let id = *self.by_ufrag.get(ufrag)?;
            let known = self.by_address.get(&(local, remote)) == Some(&id);
            if !known && self.by_address.values().filter(|other| **other == id).count() < ADDRESSES_MAX {
                self.by_address.insert((local, remote), id);
            }
            return Some(id);
        }
        self.by_address.get(&(local, remote)).copied()
    }
}

const STUN_HEADER: usize = 20;
const STUN_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const STUN_USERNAME: u16 = 0x0006;

/// The first half of the user name of a STUN binding request: the fragment of whoever is to receive it.
fn binding_request_ufrag(datagram: &[u8]) -> Option<&str> {
    if datagram.get(..2)? != [0x00, 0x01] || datagram.get(4..8)? != STUN_COOKIE {
        return None;
    }
    let mut rest = datagram.get(STUN_HEADER..)?;
    while let [kind_high, kind_low, length_high, length_low, tail @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*length_high, *length_low]));
        let value = tail.get(..length)?;
        if u16::from_be_bytes([*kind_high, *kind_low]) == STUN_USERNAME {
            return std::str::from_utf8(value).ok()?.split(':').next();
        }
        rest = tail.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(username: &str) -> Vec<u8> {
        let mut datagram = vec![0, 1, 0, 0];
        datagram.extend(STUN_COOKIE);
        datagram.extend([7; 12]);
        datagram.extend([0x80, 0x22, 0, 3, b'a', b'b', b'c', 0]);
        datagram.extend([0, 6, 0, u8::try_from(username.len()).unwrap()]);
        datagram.extend(username.as_bytes());
        datagram.resize(datagram.len().next_multiple_of(4), 0);
        datagram
    }

    #[test]
    fn a_check_binds_an_address_to_a_connection() {
        let (local, remote) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let mut demux = Demux::default();
        demux.expect("ours", 5);
        assert_eq!(demux.route(local, remote, &[128, 0]), None);
        assert_eq!(demux.route(local, remote, &request("other:theirs")), None);
        assert_eq!(demux.route(local, remote, &request("ours:theirs")), Some(5));
        assert_eq!(demux.route(local, remote, &[128, 0]), Some(5));
        demux.forget(5);
        assert_eq!(demux.route(local, remote, &[128, 0]), None);
    }

    #[test]
    fn one_connection_cannot_fill_the_table() {
        let local = "127.0.0.1:1".parse().unwrap();
        let mut demux = Demux::default();
        demux.expect("ours", 5);
        for port in 1..1000 {
            let remote = SocketAddr::from(([127, 0, 0, 1], port));
            assert_eq!(demux.route(local, remote, &request("ours:x")), Some(5));
        }
        assert_eq!(demux.by_address.len(), ADDRESSES_MAX);
    }

    #[test]
    fn truncated_checks_are_no_checks() {
        let whole = request("ours:theirs");
        for length in 0..whole.len() - 1 {
            assert_eq!(binding_request_ufrag(&whole[..length]), None, "{length}");
        }
    }
}
