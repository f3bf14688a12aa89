//! Events as they come of commands: decided, logged as the coordinator logs them, read back, told.

mod pages;
mod random;
mod recovered;
mod room;
mod transcripts;
