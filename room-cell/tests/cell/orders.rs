//! Somebody speaks, goes and comes back, and the media server's reports of both stays arrive in every order,
//! and twice. Whatever the order: what is left over from the first stay neither confirms nor frees the seat of
//! the second.

use room_cell::{
    Actor, Command, Event, MediaFact, MediaIdentity, MediaReport, Millis, PeerId, Refusal, Role, Sitter,
    Speaking,
};
use std::sync::Arc;

use crate::room::{Room, START, down, member, report, up};

/// The six facts, with when they happen. The first stay ends at 8.5 s at the latest, the second mic session
/// begins at 11 s.
const FACTS: [(MediaFact, u64); 6] = [
    (MediaFact::ParticipantJoined, 1_000),
    (MediaFact::AudioStarted, 7_400),
    (MediaFact::AudioStopped, 8_100),
    (MediaFact::RoomExited, 8_400),
    (MediaFact::ParticipantJoined, 11_300),
    (MediaFact::AudioStarted, 12_600),
];
/// The first four belong to the first stay.
const FIRST_STAY: usize = 4;
const OUT: u64 = 8_500;
const BACK: u64 = 10_600;
const UP_AGAIN: u64 = 11_000;

/// How the user goes and comes back.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// Off the seat, and up again.
    Seat,
    /// Out of the room, and in again.
    Room,
    /// The page is loaded anew: another connection takes the place of the first, and goes up again.
    Page,
    /// The page is loaded anew, and the seat goes on where nothing has freed it.
    Kept,
}

/// How the vendor reports.
#[derive(Debug, Clone, Copy)]
struct Vendor {
    /// Names the participant's incarnation.
    incarnations: bool,
    /// Numbers what it says.
    sequences: bool,
    /// Names the connection.
    peers: bool,
    resolution_ms: u64,
    /// Error of its clock that is left after correction.
    error_ms: i64,
}

const EXACT: Vendor =
    Vendor { incarnations: false, sequences: false, peers: false, resolution_ms: 0, error_ms: 0 };

impl Vendor {
    fn says(self, fact: usize, way: Way) -> MediaReport {
        let (what, at) = FACTS[fact];
        let second = fact >= FIRST_STAY;
        let at = START.saturating_add(at).saturating_add_signed(self.error_ms);
        let unit = self.resolution_ms.max(1);
        let peer = if second && way != Way::Seat { "bob2" } else { "bob1" };
        MediaReport {
            what,
            who: Some(MediaIdentity { user: "bob".into(), peer: self.peers.then(|| PeerId::from(peer)) }),
            router: None,
            incarnation: self.incarnations.then(|| Arc::from(if second { "second" } else { "first" })),
            sequence: self.sequences.then_some(fact as u64),
            at: Millis(at / unit * unit),
            resolution_ms: self.resolution_ms,
        }
    }
}

/// Every order of the numbers below six.
fn orders() -> Vec<[usize; 6]> {
    fn extend(order: &mut Vec<usize>, all: &mut Vec<[usize; 6]>) {
        if let Ok(whole) = <[usize; 6]>::try_from(order.as_slice()) {
            all.push(whole);
            return;
        }
        for next in 0..6 {
            if !order.contains(&next) {
                order.push(next);
                extend(order, all);
                order.pop();
            }
        }
    }
    let mut all = Vec::new();
    extend(&mut Vec::new(), &mut all);
    all
}

/// A room in which the user has gone up for the first time.
fn begun() -> Room {
    let mut room = Room::open();
    room.joins("ann1", Role::Host);
    let bob = room.joins("bob1", Role::Guest);
    room.later(2_000);
    room.does(&bob, up("first"));
    room
}

/// When those reports of the first stay arrive that come before any of the second.
#[derive(Debug, Clone, Copy)]
enum First {
    /// At its end.
    AtOnce,
    /// When the user is back, but has not gone up again.
    Between,
    /// After the second mic session has begun, like the rest.
    Late,
}

/// The user's two stays; `arrivals` are facts in the order in which they arrive.
fn lives(room: &Room, way: Way, vendor: Vendor, arrivals: &[usize], first: First) {
    let told = || format!("{way:?} {vendor:?} {arrivals:?} {first:?}");
    let mut room = room.clone();
    let at = |room: &mut Room, ms: u64| room.now = Millis(START + ms);
    let early = arrivals.iter().take_while(|fact| **fact < FIRST_STAY).count();
    let (at_once, between) = match first {
        First::AtOnce => (early, early),
        First::Between => (0, early),
        First::Late => (0, 0),
    };
    let mut bob = member("bob1", Role::Guest);
    at(&mut room, OUT);
    for fact in &arrivals[..at_once] {
        let arrived = room.tries(&Actor::Media, Command::Media(vendor.says(*fact, way)));
        stays(&room, &arrived, told);
    }
    if way == Way::Seat && room.cell.seat_of("bob").is_some() {
        room.does(&bob, down());
    }
    if way == Way::Room {
        room.does(&bob, Command::Leave);
    }
    at(&mut room, BACK);
    if way != Way::Seat {
        bob = room.joins("bob2", Role::Guest);
    }
    if way == Way::Page && room.cell.seat_of("bob").is_some() {
        room.does(&bob, down());
    }
    for fact in &arrivals[at_once..between] {
        let arrived = room.tries(&Actor::Media, Command::Media(vendor.says(*fact, way)));
        stays(&room, &arrived, told);
    }
    at(&mut room, UP_AGAIN);
    if room.cell.seat_of("bob").is_none() {
        room.does(&bob, up("second"));
    }
    at(&mut room, 13_000);
    let sitter = room.cell.seat_of("bob").map(|(_, sitter)| sitter.clone()).expect("seated");
    let mut heard = speaks(&sitter);
    assert!(!heard || way == Way::Kept, "before anything of it was said: {}", told());
    for fact in &arrivals[between..] {
        let arrived = room.tries(&Actor::Media, Command::Media(vendor.says(*fact, way)));
        stays(&room, &arrived, told);
        heard |= *fact == 5;
        let (_, now) = room.cell.seat_of("bob").unwrap_or_else(|| panic!("thrown off: {}", told()));
        assert_eq!(now.session, sitter.session, "{}", told());
        assert_eq!(speaks(now), heard, "after {fact} of {}", told());
    }
}

fn speaks(sitter: &Sitter) -> bool {
    matches!(sitter.speaking, Speaking::Publishing { .. })
}

/// A report never changes who is present (I-9).
fn stays(room: &Room, arrived: &Result<Vec<Event>, Refusal>, told: impl Fn() -> String) {
    let stale = arrived
        .as_ref()
        .err()
        .is_none_or(|refusal| matches!(refusal, Refusal::StaleReport | Refusal::NobodyConcerned));
    assert!(stale && room.cell.users.contains_key("bob"), "{arrived:?}: {}", told());
}

#[test]
fn i_7_i_8_every_order_of_reports_with_each_one_repeated() {
    let room = begun();
    for (incarnations, sequences) in [(false, false), (true, false), (true, true), (false, true)] {
        let vendor = Vendor { incarnations, sequences, ..EXACT };
        for order in orders() {
            for repeated in 0..6 {
                for place in repeated + 1..=6 {
                    let mut arrivals = order.to_vec();
                    arrivals.insert(place, order[repeated]);
                    lives(&room, Way::Seat, vendor, &arrivals, First::AtOnce);
                    lives(&room, Way::Seat, vendor, &arrivals, First::Between);
                    lives(&room, Way::Seat, vendor, &arrivals, First::Late);
                }
            }
        }
    }
}

#[test]
fn i_8_every_order_for_every_vendor_whose_clock_is_off_and_every_way_back() {
    let room = begun();
    for order in orders() {
        // Everything comes a second time, the last first.
        let arrivals: Vec<usize> = order.iter().chain(order.iter().rev()).copied().collect();
        for first in [First::AtOnce, First::Between, First::Late] {
            for way in [Way::Seat, Way::Room, Way::Page, Way::Kept] {
                for (incarnations, peers) in [(false, false), (true, false), (false, true)] {
                    for resolution_ms in [0, 1_000] {
                        for error_ms in [-900, 0, 900] {
                            let vendor =
                                Vendor { incarnations, peers, resolution_ms, error_ms, sequences: false };
                            lives(&room, way, vendor, &arrivals, first);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn i_8_a_clock_off_by_more_than_the_tolerance_frees_no_seat_of_who_came_back() {
    let room = begun();
    for order in orders() {
        for error_ms in [-1_500, 1_500] {
            let vendor = Vendor { error_ms, ..EXACT };
            lives(&room, Way::Seat, vendor, &order, First::Late);
            lives(&room, Way::Room, Vendor { incarnations: true, ..vendor }, &order, First::AtOnce);
        }
    }
}

#[test]
fn who_is_back_at_once_is_not_mistaken_for_who_they_were() {
    for early in 0..=3 {
        let mut room = Room::open();
        let bob = room.joins("bob1", Role::Guest);
        room.later(5_000);
        room.does(&bob, up("first"));
        room.later(1_000);
        let first = [MediaFact::AudioStarted, MediaFact::AudioStopped, MediaFact::RoomExited];
        let reports = first.map(|what| report("bob", what, room.now));
        room.later(10);
        for report in reports.iter().take(early).cloned() {
            let _ = room.tries(&Actor::Media, Command::Media(report));
        }
        if room.cell.seat_of("bob").is_some() {
            room.does(&bob, down());
        }
        room.later(200);
        room.does(&bob, up("second"));
        for report in reports.iter().skip(early).cloned() {
            assert_eq!(room.refuses(&Actor::Media, Command::Media(report)), Refusal::StaleReport);
        }
        room.later(200);
        room.hears("bob", MediaFact::AudioStarted).expect("it is new");
        let (_, sitter) = room.cell.seat_of("bob").expect("seated");
        assert!(matches!(sitter.speaking, Speaking::Publishing { .. }));
    }
}

#[test]
fn a_speaker_moved_to_another_seat_is_not_thrown_off() {
    let moved = Command::MicMove { user: Some("bob".into()), seat: 3, flowing: false };
    for live_list in [true, false] {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut room = Room::open();
            room.rules.live_list = live_list;
            let ann = room.joins("ann1", Role::Host);
            let bob = room.joins("bob1", Role::Guest);
            room.does(&bob, up("mic"));
            let said = |room: &mut Room, what, incarnation: &str, at| {
                let mut report = report("bob", what, at);
                report.incarnation = Some(incarnation.into());
                room.tries(&Actor::Media, Command::Media(report))
            };
            let begun = room.now;
            said(&mut room, MediaFact::AudioStarted, "one", begun).expect("new");
            room.later(5_000);
            room.does(&ann, moved.clone());
            // What is left over from before the move, and an earlier connection that ends.
            for arrival in order {
                let (what, incarnation, at) = [
                    (MediaFact::ParticipantJoined, "one", begun),
                    (MediaFact::AudioStarted, "one", begun),
                    (MediaFact::RoomExited, "zero", room.now),
                ][arrival];
                let _ = said(&mut room, what, incarnation, at);
            }
            let (seat, sitter) = room.cell.seat_of("bob").expect("seated");
            assert_eq!((seat, sitter.session.as_str()), (3, "mic"));
            room.later(1_000);
            let now = room.now;
            said(&mut room, MediaFact::AudioStarted, "one", now).expect("the same incarnation goes on");
            let (_, sitter) = room.cell.seat_of("bob").expect("seated");
            assert!(matches!(sitter.speaking, Speaking::Publishing { .. }));
        }
    }
}

#[test]
fn a_mover_who_publishes_anew_is_confirmed_in_either_order() {
    for swapped in [false, true] {
        let mut room = Room::open();
        room.joins("ann1", Role::Host);
        let bob = room.joins("bob1", Role::Guest);
        room.does(&bob, up("mic"));
        room.hears("bob", MediaFact::AudioStarted).expect("new");
        room.later(3_000);
        room.does(&member("bob1", Role::Guest), Command::MicMove { user: None, seat: 2, flowing: false });
        let stopped = report("bob", MediaFact::AudioStopped, room.now.after(100));
        let started = report("bob", MediaFact::AudioStarted, room.now.after(300));
        room.later(500);
        let mut arrivals = [stopped, started];
        if swapped {
            arrivals.reverse();
        }
        for report in arrivals {
            let _ = room.tries(&Actor::Media, Command::Media(report));
        }
        let (seat, sitter) = room.cell.seat_of("bob").expect("seated");
        assert_eq!(seat, 2);
        assert!(matches!(sitter.speaking, Speaking::Publishing { .. }));
    }
}
