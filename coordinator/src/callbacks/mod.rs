//! What media servers report, on its way from the app that it was sent to into the inboxes of the rooms that it is
//! about.
//!
//! A callback is proved and read by its vendor's reader ([`readers`]); what it names is found ([`routers`]); its
//! events go to the rooms' inboxes in order ([`intake`]), but for levels, which are told and forgotten ([`levels`]).

pub mod intake;
pub mod levels;
pub mod readers;
pub mod routers;
