//! What stands where on the page: groups of workloads, columns, limits and aims.

/// Workloads of a kind, by the beginnings of their names; the longest decides.
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) beginnings: &'static [&'static str],
    /// Columns that only this kind has use for, after those of all.
    pub(super) columns: &'static [&'static str],
}

pub(super) const GROUPS: [Group; 6] = [
    Group {
        title: "Connections and joins",
        beginnings: &["idle", "join", "held_room"],
        columns: &["CPU %", "events/op", "commits/op", "batch", "RSS KiB/op"],
    },
    Group {
        title: "Changes in a room",
        beginnings: &["settings", "mic"],
        columns: &["events/op", "commits/op", "batch"],
    },
    Group {
        title: "Messages",
        beginnings: &["broadcast"],
        columns: &["delivery p50 ms", "delivery p99 ms", "delivery p99.9 ms"],
    },
    Group {
        title: "Across instances",
        beginnings: &["redirect", "settings_elsewhere", "elsewhere", "callbacks"],
        columns: &["owner us/op", "other us/op", "delivery p50 ms", "delivery p99 ms", "delivery p99.9 ms"],
    },
    Group {
        title: "Instances that die, and upkeep",
        beginnings: &["takeover", "heartbeat", "reap", "join_calm", "join_during"],
        columns: &["max ms", "Redis %", "longest command ms", "PING p99 ms", "PING max ms"],
    },
    Group {
        title: "With growth",
        beginnings: &["join_at_", "settings_at_", "join_on_", "settings_on_"],
        columns: &[],
    },
];
/// Those of no group.
pub(super) const OTHERS: Group = Group { title: "Others", beginnings: &[], columns: &[] };

/// What is done with ever more rooms; the names of the workloads end in their number.
pub(super) const WITH_ROOMS: [&str; 2] = ["join_at", "settings_at"];
/// The same with ever more instances.
pub(super) const WITH_INSTANCES: [&str; 2] = ["join_on", "settings_on"];

pub(super) const CPU: &str = "CPU us/op";
pub(super) const OTHER_PROGRAMS: &str = "others %";
/// Quantiles that the chart of waits shows.
pub(super) const WAITS: [&str; 3] = ["p50 ms", "p99 ms", "p99.9 ms"];

/// What every table tells, as far as it was measured.
pub(super) const COLUMNS: [&str; 9] =
    [CPU, "Redis us/op", "scripts/op", "commands/op", "op/s", "p50 ms", "p99 ms", "p99.9 ms", "RSS MiB"];
/// Columns with the ratio to the peer beside them.
pub(super) const COMPARED: [&str; 4] = [CPU, "p99 ms", "delivery p99 ms", "RSS KiB/op"];

/// A figure, and the limit that it is held against.
pub(super) struct Bounded {
    pub(super) workload: &'static str,
    pub(super) column: &'static str,
    pub(super) limit: &'static str,
}

const fn bounded(workload: &'static str, column: &'static str, limit: &'static str) -> Bounded {
    Bounded { workload, column, limit }
}

/// A rate of scripts with about as many at once as there are joins.
const SCRIPTS: &str = "script_50_connections";

pub(super) const BOUNDED: [Bounded; 8] = [
    bounded("join_own", "op/s", SCRIPTS),
    bounded("join_ten", "op/s", SCRIPTS),
    bounded("join_one", "op/s", SCRIPTS),
    bounded("settings", "op/s", SCRIPTS),
    bounded("broadcast_one_paced", CPU, "frame_one_paced"),
    bounded("broadcast_one_full", CPU, "frame_one_full"),
    bounded("broadcast_50_paced", CPU, "frame_50_paced"),
    bounded("broadcast_50_full", CPU, "frame_50_full"),
];

/// What is compared with an aim.
pub(super) enum Measure {
    /// The figure divided by the peer's.
    OfPeer,
    /// The figure divided by a limit.
    OfLimit(&'static str),
    /// The figure itself.
    Absolute,
    /// The figure at the largest size divided by that at the smallest.
    Growth,
}

/// Which way is better.
pub(super) enum Bound {
    AtMost,
    AtLeast,
}

/// Something that was asked for, before it was measured.
pub(super) struct Aim {
    pub(super) work: &'static str,
    pub(super) workload: &'static str,
    pub(super) column: &'static str,
    pub(super) measure: Measure,
    pub(super) bound: Bound,
    pub(super) must: f64,
    pub(super) stretch: Option<f64>,
}

const fn aim(
    work: &'static str,
    workload: &'static str,
    column: &'static str,
    measure: Measure,
    must: f64,
    stretch: Option<f64>,
) -> Aim {
    Aim { work, workload, column, measure, bound: Bound::AtMost, must, stretch }
}

const fn at_least(aim: Aim) -> Aim {
    Aim { bound: Bound::AtLeast, ..aim }
}

/// One call, and the heartbeats that come between.
const ONE_CALL: f64 = 1.05;
/// For how long a killed owner holds its rooms in the workloads that kill it: three heartbeats of a second.
const LEASE_MS: f64 = 3_000.0;
/// What flat is, where a machine drifts by as much.
const FLAT: f64 = 1.25;

pub(super) const AIMS: [Aim; 26] = {
    use Measure::{Absolute, Growth, OfLimit, OfPeer};
    [
        aim("join, own room", "join_own", CPU, OfPeer, 1.0 / 3.0, Some(0.2)),
        aim("join, own room", "join_own", "scripts/op", Absolute, ONE_CALL, None),
        aim("join, rooms of ten", "join_ten", CPU, OfPeer, 1.0 / 3.0, Some(0.2)),
        aim("1,000 joins of one room", "join_one", CPU, OfPeer, 0.05, Some(0.02)),
        aim("1,000 joins of one room", "join_one", "p99 ms", OfPeer, 0.1, None),
        aim("settings in a room of ten", "settings", CPU, OfPeer, 0.5, Some(1.0 / 3.0)),
        aim("settings in a room of ten", "settings", "p99 ms", OfPeer, 1.0 / 3.0, None),
        aim("message to 500, paced", "broadcast_one_paced", CPU, OfLimit("frame_one_paced"), 1.4, Some(1.0)),
        aim("message to 500, saturated", "broadcast_one_full", CPU, OfLimit("frame_one_full"), 1.2, None),
        aim("message to 500, saturated", "broadcast_one_full", CPU, OfPeer, 0.5, Some(0.25)),
        aim("settings from elsewhere", "settings_elsewhere_1", "delivery p99 ms", OfPeer, 1.0 / 3.0, None),
        aim("settings from elsewhere", "settings_elsewhere_1", "delivery p50 ms", OfPeer, 1.0, Some(0.5)),
        aim("settings from elsewhere", "settings_elsewhere_1", CPU, OfPeer, 1.0 / 3.0, None),
        aim(
            "settings from elsewhere, 16 at once",
            "settings_elsewhere_16",
            "delivery p99 ms",
            OfPeer,
            1.0 / 3.0,
            None,
        ),
        aim("idle joined connection", "idle_joined", "RSS KiB/op", Absolute, 18.0, Some(11.0)),
        at_least(aim("join rate", "join_own", "op/s", OfLimit(SCRIPTS), 0.5, Some(0.8))),
        at_least(aim("join rate, or a processor full", "join_own", "CPU %", Absolute, 100.0, None)),
        aim("heartbeat of 100,000 rooms", "heartbeat_100000", "longest command ms", Absolute, 2.0, None),
        aim("heartbeat of 100,000 rooms", "heartbeat_100000", "Redis %", Absolute, 10.0, Some(4.0)),
        aim("takeover of a room", "takeover_1", "max ms", Absolute, LEASE_MS + 200.0, None),
        aim("takeover of 1,000 rooms", "takeover_1000", "max ms", Absolute, LEASE_MS + 1_000.0, None),
        aim("takeover of 10,000 rooms", "takeover_10000", "max ms", Absolute, LEASE_MS + 2_000.0, None),
        aim("joins, 100 to 100,000 rooms", "join_at", CPU, Growth, FLAT, None),
        aim("settings, 100 to 100,000 rooms", "settings_at", CPU, Growth, FLAT, None),
        aim("joins, 1 to 8 instances", "join_on", CPU, Growth, FLAT, None),
        aim("settings, 1 to 8 instances", "settings_on", CPU, Growth, FLAT, None),
    ]
};
