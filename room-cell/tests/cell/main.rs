//! The room cell as its owner uses it: tables for each state machine, every order of a media server's reports,
//! and long random lives of a small room.

mod asking;
mod call;
mod checks;
mod coverage;
mod life;
mod limits;
mod media;
mod moderation;
mod orders;
mod presence;
mod random;
mod room;
mod router;
mod seats;
mod stored;
