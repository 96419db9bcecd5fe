//! The sections of the page, in order. Each says what it knows, and what is unknown and why.

mod cost;
mod decisions;
mod memory;
mod moves;
mod plan;
mod sources;

use super::facts::Facts;
use super::figures::Figure;
use super::html::{self, Set, Table};
use super::number::{count, span};

/// A section.
#[derive(Debug)]
pub struct Section {
    id: &'static str,
    title: &'static str,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    /// Finished HTML.
    Html(String),
    /// Figures side by side, and what stands beside them.
    Figures(Vec<Figure>, String),
}

impl Section {
    fn new(id: &'static str, title: &'static str) -> Section {
        Section { id, title, parts: Vec::new() }
    }

    /// Adds a paragraph, in which backticks enclose code.
    fn says(&mut self, words: &str) {
        self.parts.push(Part::Html(format!("<p>{}</p>\n", html::prose(words))));
    }

    /// Adds a paragraph that stands back.
    fn notes(&mut self, words: &str) {
        self.parts.push(Part::Html(format!("<p class=\"dim\">{}</p>\n", html::prose(words))));
    }

    fn table(&mut self, id: &str, table: &Table) {
        self.parts.push(Part::Html(table.html(id)));
    }

    /// Adds a table that is folded away.
    fn folded(&mut self, id: &str, words: &str, table: &Table) {
        let summary = html::text(words);
        let folded = format!("<details><summary>{summary}</summary>\n{}</details>\n", table.html(id));
        self.parts.push(Part::Html(folded));
    }

    fn list(&mut self, items: &[String]) {
        let items: String = items.iter().map(|item| format!("<li>{}</li>\n", html::prose(item))).collect();
        self.parts.push(Part::Html(format!("<ul>\n{items}</ul>\n")));
    }

    fn draws(&mut self, figures: Vec<Figure>) {
        if !figures.is_empty() {
            self.parts.push(Part::Figures(figures, String::new()));
        }
    }

    /// Adds a figure with a table beside it.
    fn draws_beside(&mut self, figure: Figure, id: &str, table: &Table) {
        let table = format!("<div>\n{}</div>\n", table.html(id));
        self.parts.push(Part::Figures(vec![figure], table));
    }

    /// The section as HTML.
    pub fn html(&self) -> String {
        let mut out = format!("<section id=\"{}\">\n<h2>{}</h2>\n", self.id, html::text(self.title));
        for part in &self.parts {
            match part {
                Part::Html(html) => out += html,
                Part::Figures(figures, beside) => {
                    let drawn =
                        figures.iter().map(|figure| format!("<figure>\n{}</figure>\n", figure.inline()));
                    out += &format!("<div class=\"row\">\n{}{beside}</div>\n", drawn.collect::<String>());
                }
            }
        }
        out + "</section>\n"
    }

    /// Its figures.
    pub fn figures(self) -> impl Iterator<Item = Figure> {
        self.parts.into_iter().flat_map(|part| match part {
            Part::Html(_) => Vec::new(),
            Part::Figures(figures, _) => figures,
        })
    }
}

/// All sections.
pub fn all(facts: &Facts) -> Vec<Section> {
    vec![
        moves::flows(facts),
        memory::held(facts),
        memory::heat(facts),
        decisions::refusals(facts),
        decisions::reasons(facts),
        cost::cost(facts),
        sources::sources(facts),
        plan::plan(facts),
    ]
}

/// Letters of a setting that are shown.
const SETTING_MAX: usize = 120;

/// Letters that are shown of when it was.
const REACH_MAX: usize = 400;

/// What was recorded, by what, and what of it is missing.
pub fn about(facts: &Facts) -> String {
    let mut table = Table::new(&[("", Set::Words), ("", Set::Words)]);
    let setting = |key: &str| facts.setting(key).map(|words| html::cut(words, SETTING_MAX).into_owned());
    let unknown = || "unknown".to_owned();
    let by = match (&facts.imported, setting("program"), setting("verb")) {
        (Some(format), program, _) => {
            format!("{}, imported from {format}", program.unwrap_or_else(unknown))
        }
        (None, Some(program), Some(verb)) => format!("{program}, `{verb}`"),
        (None, program, _) => program.unwrap_or_else(unknown),
    };
    table.row(["recorded by".to_owned(), by]);
    let rule = facts.config.as_ref().map(|config| config.rule.name.text().to_owned());
    table.row(["rule".to_owned(), rule.unwrap_or_else(|_| unknown())]);
    for (key, name) in [("scenario", "scenario"), ("seed", "seed"), ("kernel", "kernel")] {
        if let Some(value) = setting(key).filter(|value| !value.is_empty()) {
            table.row([name.to_owned(), value]);
        }
    }
    let covers = match (facts.seconds(), &facts.untimed) {
        (Some(seconds), _) => format!("{} in {} steps", span(seconds), count(facts.digest.steps)),
        (None, times) => format!("an order and no time: {}", times.as_deref().unwrap_or("unknown")),
    };
    table.row(["covers".to_owned(), covers]);
    for (name, words) in [("shown", &facts.reach.shown), ("reaches", &facts.reach.until)] {
        if let Some(words) = words {
            table.row([name.to_owned(), html::cut(words, REACH_MAX).into_owned()]);
        }
    }
    let mut out = table.html("about");
    let lost = sources::missing(facts);
    if !lost.is_empty() {
        out += &format!("<p><strong>Not all of it is here:</strong> {}</p>\n", html::prose(&lost.join("; ")));
    }
    out
}
