//! Each script against a real Redis 7 and a real Valkey: success, every reply code of its header, wrong token,
//! wrong incarnation, expired lease, applied twice, wrong key type.

/// Runs each check on both servers, and then looks whether every key that it left is in the table of keys.
macro_rules! on_both {
    ($(async fn $name:ident($world:ident: &World) $body:block)*) => {$(
        #[cfg(test)]
        mod $name {
            use super::*;

            async fn check($world: &World) $body

            async fn run(flavor: e2e::servers::Flavor) {
                let world = World::start(flavor).await;
                check(&world).await;
                world.keys_match_the_table().await;
            }

            #[tokio::test]
            async fn redis() {
                run(e2e::servers::Flavor::Redis).await;
            }

            #[tokio::test]
            async fn valkey() {
                run(e2e::servers::Flavor::Valkey).await;
            }
        }
    )*};
}

mod archiving;
mod capacity;
mod committing;
mod due;
mod events;
mod heartbeat;
mod holding;
mod inboxes;
mod lanes;
mod leases;
mod listener;
mod media;
mod merging;
mod pinning;
mod reaping;
mod registration;
mod releasing;
mod sessions;
mod settings;
mod touching;
mod watching;
mod world;
mod wrong_types;
