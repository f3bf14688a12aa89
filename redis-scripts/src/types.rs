//! Numbers that Redis hands out. They are compared and passed on, never calculated with.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The number as Redis gave it.
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The bare number, for wire formats.
            pub const fn as_u64(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A fencing token: grows with each change of a lease's holder, and is never given twice.
    FenceToken
);
number!(
    /// Version of a room's cell, `cv`.
    CellVersion
);
number!(
    /// Version of a room's settings and guest states, `sv`.
    SettingsVersion
);
number!(
    /// Unix milliseconds by Redis's clock.
    RedisMillis
);

/// How far versions leap when a room is written anew: no number is ever given twice, and clients see a gap.
const LEAP: u64 = 1_000_000;

macro_rules! version {
    ($name:ident) => {
        impl $name {
            /// The version after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// The version that a room written anew goes on from.
            #[must_use]
            pub const fn leap(self) -> Self {
                Self(self.0 + LEAP)
            }
        }
    };
}

version!(CellVersion);
version!(SettingsVersion);
