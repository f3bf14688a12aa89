//! The system as its users have it: real coordinators, Redis, browsers and official clients.

mod bad_input;
mod browsers;
mod clients;
mod convergence;
mod faults;
mod identity;
mod isolation;
mod lifecycle;
mod limits;
mod lost_keys;
mod origins;
mod outages;
mod proof;
mod reconnects;
mod run;
mod stored;
mod watching;
