//! What the SFU counts.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A reading of an [`EmbeddedSfu`](crate::EmbeddedSfu)'s counters; all but `rooms` and `connections` only grow.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct SfuStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Counter,)*
        }

        impl Counters {
            pub(super) fn read(&self) -> SfuStats {
                SfuStats { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Routers now.
    rooms,
    /// Peer connections now.
    connections,
    /// Datagrams taken from sockets.
    datagrams_received,
    /// Datagrams that belong to no connection.
    datagrams_unknown,
    /// Datagrams over their peer's bitrate or packet rate, dropped.
    datagrams_over_budget,
    /// Datagrams the system would not take, dropped.
    datagrams_unsent,
    /// RTP packets that arrived on a known track of somebody permitted to send it.
    packets_received,
    /// RTP packets handed to a subscriber's connection.
    packets_forwarded,
    /// RTP packets of no known track, or not permitted, dropped.
    packets_refused,
    /// Key frames asked of publishers.
    keyframes_requested,
    /// Events dropped because nobody took them in time.
    events_dropped,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }
}
