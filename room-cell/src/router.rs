//! The room at an external media server: its router, and what must still be done there.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::id::{Millis, PeerId, UserId};

/// The room's media object on one media server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterRecord {
    /// Name of the media server.
    pub node: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
    /// Grows with each router of the room; no two have the same.
    pub generation: u64,
    /// Since when.
    pub since: Millis,
}

/// Something that must be done at a media server, whoever owns the room by then.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "duty", rename_all = "snake_case")]
pub enum Duty {
    /// Bring a peer to what it may do as the cell stands now.
    Permit {
        /// Whose.
        user: UserId,
        /// Which.
        peer: PeerId,
    },
    /// Put out who is no longer in the room.
    Remove {
        /// What they are called there.
        name: Arc<str>,
    },
    /// End a router that is the room's no more.
    Close {
        /// Name of its media server.
        node: Arc<str>,
        /// Its name there.
        name: Arc<str>,
        /// Its generation.
        generation: u64,
    },
}

impl Duty {
    /// That a router must be ended.
    pub(crate) fn close(router: &RouterRecord) -> Self {
        Self::Close {
            node: Arc::clone(&router.node),
            name: Arc::clone(&router.name),
            generation: router.generation,
        }
    }

    /// Whether it is about somebody in the present router.
    pub(crate) const fn is_of_people(&self) -> bool {
        matches!(self, Self::Permit { .. } | Self::Remove { .. })
    }
}

/// Since when a duty is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// First owed then.
    pub since: Millis,
    /// Cell version that owed it last: what was begun for an earlier one does not settle it.
    pub version: u64,
}
