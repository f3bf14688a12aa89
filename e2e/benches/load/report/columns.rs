//! The figures that are told of a run; what a run does not have is not a number.

use std::time::Duration;

use crate::figures::{Figures, Limit};

/// Its name, its digits after the point, its figure.
pub(super) type Column = (&'static str, usize, fn(&Figures) -> f64);

pub(super) const COLUMNS: [Column; 35] = [
    ("CPU us/op", 1, |it| it.each_us(it.server())),
    ("CPU %", 1, |it| percent(it.server(), it.wall)),
    ("owner us/op", 1, |it| it.of_instance(it.instances.first())),
    ("other us/op", 1, |it| it.of_instance(it.instances.last())),
    ("Redis us/op", 1, |it| it.each_us(it.redis)),
    ("Redis %", 1, |it| percent(it.redis, it.wall)),
    ("scripts/op", 2, |it| it.each(it.scripts)),
    ("commands/op", 1, |it| it.each(it.commands.values().sum())),
    ("events/op", 1, |it| it.each(it.sent.events)),
    ("frames/op", 1, |it| it.each(it.sent.frames)),
    ("event bytes", 0, |it| as_f64(it.sent.bytes) / as_f64(it.sent.events)),
    ("commits/op", 2, |it| it.commits.commits / it.divisor()),
    ("batch", 1, |it| it.commits.batch()),
    ("op/s", 0, Figures::rate),
    ("p50 ms", 2, |it| wait_ms(&it.acks, 5_000)),
    ("p99 ms", 2, |it| wait_ms(&it.acks, 9_900)),
    ("p99.9 ms", 2, |it| wait_ms(&it.acks, 9_990)),
    ("max ms", 2, |it| wait_ms(&it.acks, 10_000)),
    ("delivery p50 ms", 2, |it| wait_ms(&it.deliveries, 5_000)),
    ("delivery p99 ms", 2, |it| wait_ms(&it.deliveries, 9_900)),
    ("delivery p99.9 ms", 2, |it| wait_ms(&it.deliveries, 9_990)),
    ("delivery max ms", 2, |it| wait_ms(&it.deliveries, 10_000)),
    ("longest command ms", 2, |it| watched(it, |it| it.longest.as_secs_f64() * 1e3)),
    ("PING p50 ms", 2, |it| watched(it, |it| wait_ms(&it.answers, 5_000))),
    ("PING p99 ms", 2, |it| watched(it, |it| wait_ms(&it.answers, 9_900))),
    ("PING max ms", 2, |it| watched(it, |it| wait_ms(&it.answers, 10_000))),
    ("floor us/op", 2, |it| it.floor_us().unwrap_or(f64::NAN)),
    ("x floor", 2, |it| it.floor_us().map_or(f64::NAN, |floor| it.each_us(it.server()) / floor)),
    ("% of script rate", 1, |it| it.script_rate().map_or(f64::NAN, |rate| it.rate() / rate * 100.0)),
    // What Redis would take, had it nothing else to do.
    ("Redis-bound op/s", 0, |it| 1e6 / it.each_us(it.redis)),
    ("RSS MiB", 0, |it| as_f64(it.resident.end) / 1024.0 / 1024.0),
    ("RSS KiB/op", 1, Figures::growth_kib),
    ("load us/op", 1, |it| it.each_us(it.own)),
    ("load %", 0, |it| percent(it.own, it.wall)),
    ("others %", 0, |it| percent(it.others, it.wall)),
];

impl Figures {
    /// Operations to divide a cost by.
    fn divisor(&self) -> f64 {
        if self.is_mixed { f64::NAN } else { as_f64(self.operations) }
    }

    fn each(&self, count: u64) -> f64 {
        as_f64(count) / self.divisor()
    }

    fn each_us(&self, sum: Duration) -> f64 {
        sum.as_secs_f64() * 1e6 / self.divisor()
    }

    /// Of one of two.
    fn of_instance(&self, used: Option<&Duration>) -> f64 {
        if self.instances.len() != 2 { f64::NAN } else { used.map_or(f64::NAN, |used| self.each_us(*used)) }
    }

    fn rate(&self) -> f64 {
        as_f64(self.operations) / self.wall.as_secs_f64()
    }

    const fn script_rate(&self) -> Option<f64> {
        match self.limit {
            Some(Limit::ScriptRate(rate)) => Some(rate),
            _ => None,
        }
    }

    fn floor_us(&self) -> Option<f64> {
        match self.limit {
            Some(Limit::Frame(floor)) => Some(floor.as_secs_f64() * 1e6),
            _ => None,
        }
    }

    /// What the resident set grew by for each operation; after a rest, where there was one.
    fn growth_kib(&self) -> f64 {
        let end = self.resident.rested.unwrap_or(self.resident.end);
        as_f64(end.saturating_sub(self.resident.begin)) / 1024.0 / self.divisor()
    }
}

/// The wait that so many of ten thousand did not exceed.
fn wait_ms(sorted: &[Duration], of_ten_thousand: usize) -> f64 {
    let rank = (sorted.len() * of_ten_thousand).div_ceil(10_000).max(1);
    sorted.get(rank - 1).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
}

fn watched(figures: &Figures, figure: impl Fn(&crate::watch::Watched) -> f64) -> f64 {
    figures.watched.as_ref().map_or(f64::NAN, figure)
}

/// Of one processor.
fn percent(used: Duration, wall: Duration) -> f64 {
    used.as_secs_f64() / wall.as_secs_f64() * 100.0
}

#[expect(clippy::cast_precision_loss, reason = "figures of a bench are far below 2^52")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}
