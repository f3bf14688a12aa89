//! Who a client is: tokens, the keys that prove them, and what they allow.
//!
//! Nothing here reads a clock: the time is handed in. No error, log line or debug output holds a token or a
//! key.

mod claims;
mod error;
mod keys;
mod mint;
mod verify;

#[cfg(test)]
mod tests;

pub use claims::{Identity, TokenRole};
pub use error::AuthError;
pub use keys::{KeyAlgorithm, KeyError, TokenKey};
pub use mint::{MintError, MintRequest};
pub use verify::{LEEWAY_S, MAX_TOKEN_BYTES, Verifier};
