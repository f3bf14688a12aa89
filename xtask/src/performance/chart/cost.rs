//! Processor time of an operation beside the peer's, as a multiple of the peer's median.

use std::fmt::Write as _;

use super::super::load::{Load, Server};
use super::super::plan::CPU;
use super::super::spread::{Spread, number};
use super::super::table::groups;
use super::{Chart, LEFT, WIDTH, class};

const TOP: f64 = 52.0;
const ROW: f64 = 40.0;
const BAR: f64 = 12.0;
/// For the figure behind the longest bar.
const RIGHT: f64 = 110.0;

pub(super) fn chart(load: &Load) -> Option<Chart> {
    let workloads = groups(load).into_iter().flat_map(|(_, workloads)| workloads);
    let rows: Vec<(&str, Spread, Spread)> = workloads
        .filter_map(|name| {
            let peer = load.figure(name, Server::Peer, CPU).filter(|peer| peer.median > 0.0)?;
            Some((name, load.figure(name, Server::Dais, CPU)?, peer))
        })
        .collect();
    let most = |(_, dais, peer): &(&str, Spread, Spread)| dais.highest.max(peer.highest) / peer.median;
    let longest = rows.iter().map(most).reduce(f64::max)?;
    let scale = (WIDTH - LEFT - RIGHT) / longest;

    let mut words = String::from("Medians, with the lowest and the highest as a line.");
    for (name, dais, peer) in &rows {
        let (dais, peer) = (number(dais.median), number(peer.median));
        _ = write!(words, " {name}: {dais} us, the Node.js server {peer} us.");
    }
    let height = ROW.mul_add(f64::from(u16::try_from(rows.len()).ok()?), TOP + 8.0);
    let mut chart = Chart::new("Processor time of the server for an operation", words, height);
    chart.legend(&[Server::Dais, Server::Peer]);
    chart.line((LEFT + scale, TOP - 8.0), (LEFT + scale, height - 8.0), "grid");
    chart.text(LEFT + scale, TOP - 14.0, "quiet middle", "the Node.js server = 1");
    let mut y = TOP;
    for (name, dais, peer) in &rows {
        chart.text(LEFT - 12.0, y + BAR + 5.0, "end", name);
        for (server, cost, top) in [(Server::Dais, dais, y), (Server::Peer, peer, y + BAR + 2.0)] {
            let relative = cost.over(peer.median);
            chart.bar(LEFT, top, relative.median * scale, BAR, class(server));
            let middle = top + BAR / 2.0;
            let (from, to) = (LEFT + relative.lowest * scale, LEFT + relative.highest * scale);
            chart.line((from, middle), (to, middle), "spread");
            let figure = format!("{} us", number(cost.median));
            chart.text(to.max(LEFT + relative.median * scale) + 6.0, top + BAR - 1.5, "quiet", &figure);
        }
        y += ROW;
    }
    Some(chart)
}
