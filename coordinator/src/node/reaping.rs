//! The reaper inside an instance that has the role.

use std::sync::Arc;
use std::time::Duration;

use super::Node;
use crate::clock::Moment;

/// Stands for the reaper's leadership until the instance ends.
pub async fn run(node: Arc<Node>) {
    let lease = &node.config.lease;
    let told = Arc::clone(&node);
    let reaper = reaper::Reaper {
        scripts: node.store.scripts.clone(),
        keys: node.store.keys.clone(),
        me: node.store.me.clone(),
        apps: node.config.apps.iter().map(|app| app.code.clone()).collect(),
        timing: reaper::Timing {
            interval: lease.heartbeat,
            owner_ttl: lease.owner_ttl(),
            failover_wait: lease.failover_wait,
            room_life: node.store.room_life,
        },
        clock: Arc::new(|| Duration::from_millis(Moment::now().parts().0)),
        disturbances: node.disturbances.subscribe(),
        events: Arc::new(move |event: reaper::Event| note(&told, &event)),
    };
    reaper::run(reaper, node.ending.clone()).await;
}

fn note(node: &Node, event: &reaper::Event) {
    let count = |action, by: usize| {
        node.metrics.reaper.with_label_values(&[action]).inc_by(u64::try_from(by).unwrap_or(u64::MAX));
    };
    match event {
        reaper::Event::Elected { token } => {
            tracing::info!(token = token.as_u64(), "leading the reaper");
            count("elected", 1);
        }
        reaper::Event::Deposed { .. } => count("deposed", 1),
        reaper::Event::Reaped { instance, rooms, watches } => {
            tracing::warn!(%instance, rooms, watches, "cleared a dead instance");
            count("reaped_instances", 1);
            count("reaped_rooms", *rooms);
            count("reaped_watches", *watches);
        }
        reaper::Event::Swept { ended, dropped, .. } => {
            count("ended_rooms", *ended);
            count("dropped_rooms", *dropped);
        }
        reaper::Event::Offered { rooms } => count("offered_rooms", *rooms),
        reaper::Event::Unavailable => count("unavailable", 1),
        reaper::Event::Failed => count("failed", 1),
        reaper::Event::Disturbed { .. } => count("disturbed", 1),
    }
}
