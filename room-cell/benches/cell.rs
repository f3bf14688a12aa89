//! What it costs an owner to execute a command, and to find what must be stored.
//!
//! A path is what the owner does for one command: validate, decide, advance a copy of the cell. Its argument is how many
//! people are in the room. `cargo bench -p room-cell` tells how long, `make bench-instructions` how many instructions.

use divan::Bencher;
use room_cell::{
    Actor, Cell, Changes, Command, Devices, Joining, Limits, Millis, Role, Rules, changes, decide,
};

/// People in the room.
const PEOPLE: [usize; 3] = [1, 10, 1_000];
const NOW: Millis = Millis(1_700_000_000_000);
const RULES: Rules = Rules {
    devices: Devices::Replace,
    publish_deadline_ms: 15_000,
    ring_ms: 45_000,
    transition_ms: 15_000,
    clock_tolerance_ms: 1_000,
    external_media: false,
    live_list: true,
};

fn main() {
    divan::main();
}

/// Instructions are counted in here alone.
#[inline(never)]
fn measured<T>(path: impl FnOnce() -> T) -> T {
    path()
}

fn execute(cell: &Cell, actor: Actor, command: Command) -> Cell {
    let order = command.validate(actor, &Limits::default()).expect("a command within limits");
    let events = decide(cell, &order, &RULES, NOW).expect("a command that is not refused");
    let mut after = cell.clone();
    after.advance(&events);
    after
}

fn user(number: usize) -> Actor {
    let peer = Some(format!("peer-{number:04}").as_str().into());
    Actor::User { user: format!("user-{number:04}").as_str().into(), max_role: Role::Host, peer }
}

fn joining(number: usize) -> Command {
    Command::Join(Box::new(Joining {
        peer: format!("peer-{number:04}").as_str().into(),
        role: if number == 0 { Role::Host } else { Role::Guest },
        name: Some("Somebody".into()),
        avatar: None,
        attributes: serde_json::Map::new(),
        device: None,
        media: None,
        resume: "0123456789abcdef0123456789abcdef".into(),
        resumes: None,
        away: Vec::new(),
    }))
}

fn mic_up() -> Command {
    Command::MicUp { user: None, seat: None, session: "mic-session".into() }
}

/// An active room of eight seats, all free.
fn room_of(people: usize) -> Cell {
    let create = Command::Create { seats: 8, capacity: None, auto_close: false };
    let made = execute(&Cell::default(), user(0), create);
    (0..people).fold(made, |cell, number| execute(&cell, user(number), joining(number)))
}

fn each(bencher: Bencher<'_, '_>, cell: &Cell, who: usize, command: impl Fn() -> Command) {
    bencher
        .with_inputs(|| (user(who), command()))
        .bench_local_values(|(actor, command)| measured(|| execute(cell, actor, command)));
}

#[divan::bench(args = PEOPLE)]
fn join(bencher: Bencher<'_, '_>, people: usize) {
    each(bencher, &room_of(people), people, || joining(people));
}

#[divan::bench(args = PEOPLE)]
fn leave(bencher: Bencher<'_, '_>, people: usize) {
    each(bencher, &room_of(people), people / 2, || Command::Leave);
}

#[divan::bench(args = PEOPLE)]
fn mic_is_taken(bencher: Bencher<'_, '_>, people: usize) {
    each(bencher, &room_of(people), people / 2, mic_up);
}

#[divan::bench(args = PEOPLE)]
fn mic_is_confirmed(bencher: Bencher<'_, '_>, people: usize) {
    let cell = execute(&room_of(people), user(people / 2), mic_up());
    each(bencher, &cell, people / 2, || Command::MicConfirm { session: "mic-session".into() });
}

#[divan::bench(args = PEOPLE)]
fn mic_is_given_back(bencher: Bencher<'_, '_>, people: usize) {
    let cell = execute(&room_of(people), user(people / 2), mic_up());
    each(bencher, &cell, people / 2, || Command::MicDown { user: None, session: None });
}

#[divan::bench(args = PEOPLE)]
fn changes_of_a_join(bencher: Bencher<'_, '_>, people: usize) {
    let before = room_of(people);
    let after = execute(&before, user(people), joining(people));
    bencher.bench_local(|| -> Changes { measured(|| changes(&before, &after)) });
}

#[divan::bench(args = PEOPLE)]
fn changes_of_a_mic(bencher: Bencher<'_, '_>, people: usize) {
    let before = room_of(people);
    let after = execute(&before, user(people / 2), mic_up());
    bencher.bench_local(|| -> Changes { measured(|| changes(&before, &after)) });
}
