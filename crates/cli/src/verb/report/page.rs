//! The page: its head, its sections in order, its figures.

use super::facts::Facts;
use super::figures::{Figure, svg};
use super::sections::{self, Section};
use super::{html, number, sentence};

/// The style of the page.
const STYLE: &str = include_str!("page.css");

/// A page and its figures.
#[derive(Debug)]
pub struct Page {
    /// The page.
    pub html: String,
    /// Its figures.
    pub figures: Vec<Figure>,
}

impl Page {
    /// The page of a recording.
    pub fn of(facts: &Facts) -> Page {
        let sections = sections::all(facts);
        let mut html = head(facts);
        html += &format!("<p class=\"answer\">{}</p>\n", html::prose(&sentence::answer(facts)));
        html += &sections::about(facts);
        for section in &sections {
            html += &section.html();
        }
        html += "<footer><p>Hover over a figure to see its values. Sizes are in binary units: 1 MiB is \
                 1,048,576 bytes.</p></footer>\n</main>\n</body>\n</html>\n";
        Page { html, figures: sections.into_iter().flat_map(Section::figures).collect() }
    }
}

fn head(facts: &Facts) -> String {
    let of = match facts.seconds() {
        Some(seconds) if facts.reach.is_part => format!("the last {}", number::span(seconds)),
        _ => "report".to_owned(),
    };
    let title = html::text(&format!("{}: {of}", html::cut(&facts.place, 200)));
    // Nothing is loaded and no script is run, whatever the recording holds.
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n\
         :root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{STYLE}{figures}</style>\n\
         </head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        light = svg::variables(false),
        dark = svg::variables(true),
        figures = svg::style(),
    )
}
