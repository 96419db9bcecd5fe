//! The strokes of a figure. What they look like is a style sheet's: that of the page, or, for a
//! file of its own, one with plain colours that every program understands.

use std::fmt::Write as _;

use crate::verb::report::html;

/// Width of every figure, in its own units; a page scales it.
pub const WIDTH: f64 = 440.0;

/// The style of figures. `var(--name)` is a colour of [`COLOURS`].
const STYLE: &str = include_str!("figure.css");

/// Colours by name: in light and in dark. They differ in brightness, so that a print in black and
/// white tells them apart.
pub const COLOURS: &[(&str, &str, &str)] = &[
    ("paper", "#ffffff", "#15181c"),
    ("ink", "#1b1f24", "#e6e9ed"),
    ("dim", "#59636e", "#a3adb8"),
    ("rule", "#dfe3e8", "#2e343b"),
    ("up", "#14609e", "#6cb4f0"),
    ("down", "#f3c08a", "#7a4a14"),
    ("edge", "#8f4d07", "#f0a95c"),
    ("band", "#c6d9ea", "#264863"),
    ("h1", "#e4eaf0", "#252c34"),
    ("h2", "#b9cde0", "#2f4a63"),
    ("h3", "#7fa8cc", "#3f739f"),
    ("h4", "#3c78ad", "#69a8dc"),
    ("h5", "#0b3d6b", "#cde6fb"),
];

/// The style of figures in a page, which has the colours as variables.
pub fn style() -> &'static str {
    STYLE
}

/// The variables of a page's colours: in light, or in dark.
pub fn variables(dark: bool) -> String {
    COLOURS
        .iter()
        .map(|(name, light, night)| format!("--{name}:{};", if dark { night } else { light }))
        .collect()
}

/// Where text is, relative to its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A figure in the making.
#[derive(Debug, Default)]
pub struct Svg {
    body: String,
}

/// A figure.
#[derive(Debug)]
pub struct Figure {
    /// The name of its file, without its ending.
    pub name: String,
    /// Its title.
    pub title: String,
    height: f64,
    body: String,
}

impl Figure {
    /// As part of a page.
    pub fn inline(&self) -> String {
        self.whole("", "")
    }

    /// As a file of its own, in light colours.
    pub fn alone(&self) -> String {
        let mut style = STYLE.to_owned();
        for (name, light, _) in COLOURS {
            style = style.replace(&format!("var(--{name})"), light);
        }
        let paper = "<rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n";
        let size = format!(" width=\"{}\" height=\"{}\"", WIDTH * 2.0, self.height * 2.0);
        self.whole(&size, &format!("<style>\n{style}</style>\n{paper}"))
    }

    fn whole(&self, size: &str, head: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\"{size} class=\"figure\" \
             role=\"img\" aria-label=\"{}\">\n{head}{}</svg>\n",
            self.height,
            html::text(&self.title),
            self.body
        )
    }
}

impl Svg {
    /// A figure of that name, with its title above what was drawn.
    pub fn finish(mut self, name: &str, title: &str, height: f64) -> Figure {
        self.text((0.0, 15.0), Anchor::Start, "title", title);
        Figure { name: name.to_owned(), title: title.to_owned(), height, body: self.body }
    }

    /// Words; `y` is their base line.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let words = html::text(words);
        let _ =
            writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor} class=\"{class}\">{words}</text>");
    }

    /// Words from below to above, at the left edge, around a middle.
    pub fn upright(&mut self, y: f64, words: &str) {
        let words = html::text(words);
        let _ = writeln!(
            self.body,
            "<text transform=\"translate(11 {y:.1}) rotate(-90)\" text-anchor=\"middle\" class=\"dim\">{words}</text>"
        );
    }

    /// A path.
    pub fn path(&mut self, class: &str, d: &str) {
        if !d.is_empty() {
            let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{d}\"/>");
        }
    }

    /// A line.
    pub fn line(&mut self, class: &str, (x, y): (f64, f64), (to_x, to_y): (f64, f64)) {
        self.path(class, &format!("M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}"));
    }

    /// A place that says its values when a pointer is over it.
    pub fn says(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), words: &str) {
        let words = html::text(words);
        let _ = writeln!(
            self.body,
            "<rect class=\"says\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
             <title>{words}</title></rect>"
        );
    }
}

/// The part of a path that is a bar, from its upper left corner.
pub fn bar((x, y): (f64, f64), width: f64, height: f64) -> String {
    format!("M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z")
}

/// The path through points.
pub fn through(points: &[(f64, f64)]) -> String {
    let mut out = String::new();
    for (place, (x, y)) in points.iter().enumerate() {
        let _ = write!(out, "{}{x:.1} {y:.1}", if place == 0 { "M" } else { "L" });
    }
    out
}
