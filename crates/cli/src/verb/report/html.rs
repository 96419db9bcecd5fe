//! HTML: text from a recording becomes text on the page, whatever it is.

use std::borrow::Cow;

use crate::escape;

/// Text for HTML or SVG, between tags or in an attribute in quotes.
pub fn text(words: &str) -> String {
    let mut out = String::with_capacity(words.len() + 8);
    for c in escape::name(words).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // What XML allows nowhere.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The same, with what stands between backticks as code.
pub fn prose(words: &str) -> String {
    let mut out = String::new();
    let mut in_code = false;
    let whole = words.matches('`').count().is_multiple_of(2);
    for part in words.split_inclusive('`') {
        let (part, ends) = part.strip_suffix('`').map_or((part, false), |part| (part, true));
        out += &text(part);
        if ends && whole {
            out += if in_code { "</code>" } else { "<code>" };
            in_code = !in_code;
        } else if ends {
            out.push('`');
        }
    }
    out
}

/// Text of at most so many characters; what is cut off is shown as dots.
pub fn cut(words: &str, most: usize) -> Cow<'_, str> {
    match words.char_indices().nth(most) {
        None => Cow::Borrowed(words),
        Some((place, _)) => Cow::Owned(format!("{}...", &words[..place])),
    }
}

/// How a column of a table is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Words.
    Words,
    /// Numbers, at the right.
    Number,
}

/// A table. Cells are text, in which backticks enclose code.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Set)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new(columns: &[(&'static str, Set)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Adds a row of any number of cells.
    pub fn cells(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as HTML, named by `id`; wide ones scroll by themselves.
    pub fn html(&self, id: &str) -> String {
        let class = |set: Set| if set == Set::Number { " class=\"n\"" } else { "" };
        let mut out = format!("<div class=\"wide\"><table id=\"{}\">\n<thead><tr>", text(id));
        for (name, set) in &self.columns {
            out += &format!("<th scope=\"col\"{}>{}</th>", class(*set), text(name));
        }
        out += "</tr></thead>\n<tbody>\n";
        for row in &self.rows {
            out += "<tr>";
            for (cell, (_, set)) in row.iter().zip(&self.columns) {
                out += &format!("<td{}>{}</td>", class(*set), prose(cell));
            }
            out += "</tr>\n";
        }
        out + "</tbody></table></div>\n"
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_becomes_mark_up(words in any::<String>()) {
            let html = text(&words);
            prop_assert!(!html.contains(['<', '>', '"', '\'', '\n']), "{}", html);
            let entities = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
            let known: usize = entities.iter().map(|entity| html.matches(entity).count()).sum();
            prop_assert_eq!(html.matches('&').count(), known);
        }

        #[test]
        fn prose_has_only_whole_code(words in "[a-z`<&]{0,40}") {
            let html = prose(&words);
            prop_assert_eq!(html.matches("<code>").count(), html.matches("</code>").count());
            let bare = html.replace("<code>", "").replace("</code>", "");
            prop_assert!(!bare.contains('<'), "{}", bare);
        }
    }

    #[test]
    fn code_stands_between_backticks() {
        assert_eq!(prose("set `a<b` to 1"), "set <code>a&lt;b</code> to 1");
        assert_eq!(prose("one ` only"), "one ` only");
        assert_eq!((cut("é12", 3).as_ref(), cut("é123", 3).as_ref()), ("é12", "é12..."));
    }
}
