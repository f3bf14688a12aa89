//! The whole system under test: real servers, real coordinators, real clients, all on this machine.
//!
//! | module | starts |
//! | --- | --- |
//! | [`servers`] | a private Redis 7, Valkey or Redis 6.2 |
//! | [`databases`] | a private PostgreSQL or MariaDB, or a file of SQLite |
//! | [`small_disk`] | a file system of a few megabytes that can be filled |
//! | [`coordinator`] | one coordinator process with a configuration of its own |
//! | [`cluster`] | several of them on one Redis |
//! | [`sentinels`] | a primary, two replicas and the three Sentinels that watch them |
//! | [`proxy`] | what stands between a coordinator and its Redis, and can hold or cut it |
//! | [`driver`] | many official Socket.IO clients, in one Node.js process |
//! | [`browser`] | pages of a headless Chromium |
//! | [`janus`] | a Janus, with clients that send plain RTP |
//! | [`livekit`] | a LiveKit |
//! | [`vendors`] | a stand-in for TRTC and Agora |
//! | [`coturn`] | a TURN server |
//!
//! Everything is a [`process::Process`]: it gets a port that the system chose, is waited for by what it says,
//! can be stopped, continued and killed, and ends with the value that stands for it, or with the test process
//! however that ends. Nothing here sleeps for a fixed time; [`wait::eventually`] is the one place that polls.
//!
//! The functions panic with a message that says what to do, because a test can do nothing else with an error.
//! When the test panics, everything that its processes said is kept under `target/e2e-logs/{test}/`.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use e2e::{cluster::Cluster, driver::Driver};
//!
//! let cluster = Cluster::start(2).await;
//! let driver = Driver::start().await;
//! let token = cluster.token("ann", "host");
//! let joined = driver.join("ann", &cluster[0].url(), &token, "math-101").await.expect("joined");
//! assert_eq!(joined["ack"]["room"]["peerCount"], 1);
//! # }
//! ```

pub mod browser;
pub mod callback;
pub mod cluster;
pub mod coordinator;
pub mod coturn;
pub mod databases;
pub mod driver;
pub mod http;
pub mod janus;
pub mod livekit;
pub mod metrics;
pub mod place;
pub mod process;
pub mod proxy;
pub mod resp;
pub mod sentinels;
pub mod servers;
pub mod small_disk;
pub mod streams;
pub mod token;
pub mod vendors;
pub mod wait;

mod json_lines;
mod log;
mod spawn;
