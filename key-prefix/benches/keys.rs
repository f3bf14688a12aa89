//! What it costs to name what a room has in Redis.
//!
//! `cargo bench -p key-prefix` tells how long, `make bench-instructions` how many instructions.

use divan::Bencher;
use key_prefix::{AppCode, Keys, Prefix, RoomId, RoomKey, lane_of};

fn main() {
    divan::main();
}

/// Instructions are counted in here alone.
#[inline(never)]
fn measured<T>(path: impl FnOnce() -> T) -> T {
    path()
}

fn room() -> RoomKey {
    RoomKey::new(AppCode::new("school").expect("an app code"), RoomId::new("math-101").expect("a room id"))
}

#[divan::bench]
fn keys_of_a_room(bencher: Bencher<'_, '_>) {
    let (keys, room) = (Keys::new(Prefix::dev()), room());
    bencher.bench_local(|| measured(|| keys.room(&room)));
}

#[divan::bench]
fn route_of_a_room(bencher: Bencher<'_, '_>) {
    let app = AppCode::new("school").expect("an app code");
    let id = RoomId::new("math-101").expect("a room id");
    bencher
        .with_inputs(|| (app.clone(), id.clone()))
        .bench_local_values(|(app, id)| measured(|| RoomKey::new(app, id)));
}

#[divan::bench]
fn lane_of_a_room(bencher: Bencher<'_, '_>) {
    let room = room();
    bencher.bench_local(|| measured(|| lane_of(room.route())));
}
