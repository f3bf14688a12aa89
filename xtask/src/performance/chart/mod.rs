//! Charts as SVG: text stays text, colours follow the reader's scheme, and each says in words what it shows.

mod cost;
mod growth;
mod waits;

use std::fmt::Write as _;

use super::load::{Load, Server};

/// A chart of a run; none if the run has nothing for it.
type Draw = fn(&Load) -> Option<Chart>;

/// Charts by name.
pub(super) const CHARTS: [(&str, Draw); 4] = [
    ("cost", cost::chart),
    ("waits", waits::chart),
    ("rooms", growth::rooms),
    ("instances", growth::instances),
];

/// Ink for light and for dark surroundings; the surface itself is the page's.
const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#1f2328}\
.quiet{fill:#59636e}\
.end{text-anchor:end}.middle{text-anchor:middle}\
.grid{stroke:#d1d9e0}\
.spread{stroke:#1f2328}\
.dais{fill:#0969da}.peer{fill:#bc4c00}\
.long{stroke-dasharray:9 4}.short{stroke-dasharray:3 3}\
path.dais,line.dais{fill:none;stroke:#0969da;stroke-width:2}\
path.peer,line.peer{fill:none;stroke:#bc4c00;stroke-width:2}\
@media(prefers-color-scheme:dark){\
text{fill:#f0f6fc}\
.quiet{fill:#9198a1}\
.grid{stroke:#3d444d}\
.spread{stroke:#f0f6fc}\
.dais{fill:#4493f8}.peer{fill:#f0883e}\
path.dais,line.dais{stroke:#4493f8}\
path.peer,line.peer{stroke:#f0883e}}";

const WIDTH: f64 = 860.0;

/// One drawing.
pub(super) struct Chart {
    title: &'static str,
    description: String,
    height: f64,
    body: String,
}

impl Chart {
    fn new(title: &'static str, description: impl Into<String>, height: f64) -> Self {
        Self { title, description: description.into(), height, body: String::new() }
    }

    /// What a page says in place of the drawing.
    pub(super) const fn title(&self) -> &'static str {
        self.title
    }

    /// The file.
    pub(super) fn svg(&self) -> String {
        let Self { title, description, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{}</title>\n<desc id=\"description\">{}</desc>\n<style>{STYLE}</style>\n{body}</svg>\n",
            escaped(title),
            escaped(description)
        )
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = escaped(text);
        _ = writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>");
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        let width = width.max(1.0);
        _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        );
    }

    fn dot(&mut self, x: f64, y: f64, radius: f64, class: &str) {
        _ = writeln!(self.body, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" class=\"{class}\"/>");
    }

    fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        _ = writeln!(self.body, "<path d=\"M{}\" class=\"{class}\"/>", points.join("L"));
    }

    /// Who is which colour, at the top.
    fn legend(&mut self, servers: &[Server]) {
        let mut x = LEFT;
        for &server in servers {
            self.bar(x, 10.0, 12.0, 12.0, class(server));
            self.text(x + 18.0, 20.5, "", name(server));
            x += 80.0;
        }
    }
}

/// Where names end and figures begin.
const LEFT: f64 = 190.0;

const fn class(server: Server) -> &'static str {
    match server {
        Server::Dais => "dais",
        Server::Peer => "peer",
    }
}

const fn name(server: Server) -> &'static str {
    match server {
        Server::Dais => "Dais",
        Server::Peer => "the Node.js server",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Position of a value between two others on a logarithmic scale, from 0 to 1.
fn logarithmic(value: f64, lowest: f64, highest: f64) -> f64 {
    ((value.ln() - lowest.ln()) / (highest.ln() - lowest.ln())).clamp(0.0, 1.0)
}

/// Powers of ten from the one at or below `lowest` to the one at or above `highest`; at least two.
fn decades(lowest: f64, highest: f64) -> Vec<f64> {
    let mut decade = 10_f64.powf(lowest.log10().floor());
    let mut decades = vec![decade];
    while decade < highest || decades.len() < 2 {
        decade *= 10.0;
        decades.push(decade);
    }
    decades
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performance::SAMPLE;

    #[test]
    fn a_chart_says_in_words_what_it_shows() {
        let chart = cost::chart(&Load::parse(SAMPLE).unwrap()).unwrap();
        let svg = chart.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("join_own: 25 us, the Node.js server 150 us."), "{svg}");
        assert!(svg.contains("prefers-color-scheme:dark"));
        // Of Dais alone: there is nothing beside it.
        assert!(!svg.contains("settings"));
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let nothing = Load::parse(r#"{"runs": []}"#).unwrap();
        assert!(CHARTS.iter().all(|(_, draw)| draw(&nothing).is_none()));
        assert!(growth::rooms(&Load::parse(SAMPLE).unwrap()).is_none());
    }

    #[test]
    fn scales_hold_all_values() {
        assert_eq!(decades(0.3, 40.0), [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(decades(5.0, 5.0), [1.0, 10.0]);
        assert!((logarithmic(10.0, 1.0, 100.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn names_cannot_break_the_drawing() {
        assert_eq!(escaped("a<b & c>"), "a&lt;b &amp; c&gt;");
    }
}
