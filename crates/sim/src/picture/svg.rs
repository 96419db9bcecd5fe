//! The strokes that pictures are made of.

use std::fmt::Write as _;

/// A picture in the making; lengths are in pixels.
#[derive(Debug)]
pub(crate) struct Svg {
    width: f64,
    body: String,
}

/// Where the text is, relative to its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The mark of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Dot,
    Square,
    Triangle,
    Diamond,
    Cross,
}

impl Svg {
    /// An empty picture that is `width` wide.
    pub fn new(width: f64) -> Svg {
        Svg { width, body: String::new() }
    }

    /// The text of the picture, `height` high.
    pub fn finish(self, height: f64) -> String {
        let Svg { width, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }

    /// Words; `y` is their base line.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, words: &str) {
        self.words((x, y), anchor, "", words);
    }

    /// Words in bold.
    pub fn bold(&mut self, (x, y): (f64, f64), anchor: Anchor, words: &str) {
        self.words((x, y), anchor, " font-weight=\"bold\"", words);
    }

    fn words(&mut self, (x, y): (f64, f64), anchor: Anchor, style: &str, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let words = plain(words);
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{style}>{words}</text>"
        );
    }

    /// A line of this grey (0 black, 255 white), width and dash pattern (empty: solid).
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), grey: u8, width: f64, dash: &str) {
        self.path(&[from, to], grey, width, dash);
    }

    /// Lines from point to point.
    pub fn path(&mut self, points: &[(f64, f64)], grey: u8, width: f64, dash: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"{dash}/>",
            points.join(" "),
            colour(grey)
        );
    }

    /// The area between these corners, without a border.
    pub fn area(&mut self, corners: &[(f64, f64)], fill: u8) {
        let points: Vec<String> = corners.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, "<polygon points=\"{}\" fill=\"{}\"/>", points.join(" "), colour(fill));
    }

    /// A rectangle with a border.
    pub fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: u8, stroke: u8) {
        let (fill, stroke) = (colour(fill), colour(stroke));
        let width = width.max(0.0);
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\" \
             stroke=\"{stroke}\"/>"
        );
    }

    /// A mark, filled black or white.
    pub fn mark(&mut self, (x, y): (f64, f64), mark: Mark, filled: bool) {
        let fill = colour(if filled { 0 } else { 255 });
        let corners: &[(f64, f64)] = match mark {
            Mark::Dot => {
                let _ = writeln!(
                    self.body,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"#000000\" \
                     stroke-width=\"1.5\"/>"
                );
                return;
            }
            Mark::Cross => {
                self.line((x - 4.0, y - 4.0), (x + 4.0, y + 4.0), 0, 1.8, "");
                self.line((x - 4.0, y + 4.0), (x + 4.0, y - 4.0), 0, 1.8, "");
                return;
            }
            Mark::Square => &[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)],
            Mark::Triangle => &[(0.0, -5.0), (4.6, 3.6), (-4.6, 3.6)],
            Mark::Diamond => &[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)],
        };
        self.polygon((x, y), corners, &fill);
    }

    /// The tip of an arrow that points to the right, or to the left.
    pub fn tip(&mut self, (x, y): (f64, f64), right: bool, filled: bool) {
        let (tip, base) = if right { (8.0, -2.0) } else { (-8.0, 2.0) };
        let fill = colour(if filled { 0 } else { 255 });
        self.polygon((x, y), &[(tip, 0.0), (base, -5.0), (base, 5.0)], &fill);
    }

    fn polygon(&mut self, (x, y): (f64, f64), corners: &[(f64, f64)], fill: &str) {
        let points: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        let _ = writeln!(
            self.body,
            "<polygon points=\"{}\" fill=\"{fill}\" stroke=\"#000000\" stroke-width=\"1.5\"/>",
            points.join(" ")
        );
    }

    /// A value's spread: a line with ends.
    pub fn spread(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.line(from, to, 0, 1.5, "");
        let (dx, dy) = if (from.1 - to.1).abs() < 1e-9 { (0.0, 3.0) } else { (3.0, 0.0) };
        for (x, y) in [from, to] {
            self.line((x - dx, y - dy), (x + dx, y + dy), 0, 1.5, "");
        }
    }
}

fn colour(grey: u8) -> String {
    format!("#{grey:02x}{grey:02x}{grey:02x}")
}

fn plain(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}

/// Whether every tag is closed, in order, text has no mark-up of its own, and every colour is a
/// grey.
#[cfg(test)]
pub(crate) fn well_formed(svg: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for part in svg.split('<').skip(1) {
        let Some((tag, words)) = part.split_once('>') else { return false };
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) if open.pop() != Some(name) => return false,
            (false, false) => open.push(name),
            _ => {}
        }
        let entities = words.matches("&amp;").count() + words.matches("&lt;").count();
        if words.matches('&').count() != entities || tag.matches('"').count() % 2 != 0 {
            return false;
        }
    }
    let grey = |digits: &str| digits.get(..6).is_some_and(|d| d[..2] == d[2..4] && d[..2] == d[4..]);
    open.is_empty() && svg.starts_with("<svg ") && svg.split("\"#").skip(1).all(grey) && !svg.contains("NaN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_well_formed_and_grey() {
        let mut svg = Svg::new(100.0);
        svg.text((0.0, 0.0), Anchor::Start, "a < b & c");
        for mark in [Mark::Dot, Mark::Square, Mark::Triangle, Mark::Diamond, Mark::Cross] {
            svg.mark((10.0, 10.0), mark, true);
        }
        let svg = svg.finish(50.0);
        assert!(well_formed(&svg) && svg.contains(">a &lt; b &amp; c<"), "{svg}");
        for wrong in ["<svg ><g></svg>", "<svg >a & b</svg>", "<svg fill=\"#ff0000\"></svg>"] {
            assert!(!well_formed(wrong), "{wrong}");
        }
    }
}
