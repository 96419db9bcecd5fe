//! Rows in columns, fitted to a width: columns that have no room are left out, the least important
//! first.

use ratatui::text::Span;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading.
    pub title: &'static str,
    /// Its width, in cells.
    pub width: usize,
    /// Whether its text stands at the right, as numbers do.
    pub right: bool,
    /// Columns of a higher rank are left out first; rank 0 always stays.
    pub rank: u8,
    /// Whether it takes the width that is left.
    pub grows: bool,
}

impl Column {
    /// A column of numbers.
    pub const fn number(title: &'static str, width: usize, rank: u8) -> Column {
        Column { title, width, right: true, rank, grows: false }
    }

    /// A column of words.
    pub const fn words(title: &'static str, width: usize, rank: u8) -> Column {
        Column { title, width, right: false, rank, grows: false }
    }

    /// The same column, taking the width that is left.
    pub const fn growing(self) -> Column {
        Column { grows: true, ..self }
    }
}

/// A row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The text of each column.
    pub cells: Vec<String>,
    /// Whether it shows that something is wrong.
    pub bad: bool,
}

/// The columns that fit into `width`, each with its place and its width.
pub fn fit(columns: &[Column], width: usize) -> Vec<(usize, usize)> {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let needed = |kept: &[usize]| kept.iter().map(|i| columns[*i].width + 1).sum::<usize>();
    while needed(&kept) > width + 1 {
        let Some(most) =
            kept.iter().copied().filter(|i| columns[*i].rank > 0).max_by_key(|i| columns[*i].rank)
        else {
            break;
        };
        kept.retain(|i| *i != most);
    }
    let left = (width + 1).saturating_sub(needed(&kept));
    let grower = kept.iter().copied().find(|i| columns[*i].grows);
    let wide = |i: usize| columns[i].width + if grower == Some(i) { left } else { 0 };
    kept.into_iter().map(|i| (i, wide(i))).collect()
}

/// The line of these cells.
pub fn line<'a>(columns: &[Column], fitted: &[(usize, usize)], cell: impl Fn(usize) -> &'a str) -> String {
    let mut out = String::new();
    for (n, (i, width)) in fitted.iter().enumerate() {
        if n > 0 {
            out.push(' ');
        }
        out.push_str(&padded(cell(*i), *width, columns[*i].right));
    }
    out
}

/// Text of exactly `width` cells; what is cut off ends in `~`.
fn padded(text: &str, width: usize, right: bool) -> String {
    let text = cut(text, width);
    let gap = " ".repeat(width.saturating_sub(cells(&text)));
    if right { gap + &text } else { text + &gap }
}

/// How many cells a text takes.
fn cells(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { Span::raw(text).width() }
}

/// Text of at most `width` cells; what is cut off ends in `~`.
pub fn cut(text: &str, width: usize) -> String {
    if cells(text) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        if cells(&out) + cells(c.encode_utf8(&mut [0; 4])) >= width {
            break;
        }
        out.push(c);
    }
    if width > 0 {
        out.push('~');
    }
    out
}

/// Text in lines of at most `width` cells, broken between words where that is possible.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut out = Vec::new();
    for line in text.lines() {
        let mut now = String::new();
        for word in line.split(' ') {
            if !now.is_empty() && cells(&now) + 1 + cells(word) > width {
                out.push(std::mem::take(&mut now));
            } else if !now.is_empty() {
                now.push(' ');
            }
            now.push_str(word);
        }
        out.push(now);
    }
    out.into_iter().map(|line| cut(&line, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] =
        [Column::words("name", 4, 0).growing(), Column::number("n", 3, 1), Column::words("why", 5, 2)];

    #[test]
    fn what_matters_least_goes_first_and_the_rest_uses_the_width() {
        assert_eq!(fit(&COLUMNS, 20), [(0, 10), (1, 3), (2, 5)]);
        assert_eq!(fit(&COLUMNS, 13), [(0, 9), (1, 3)]);
        assert_eq!(fit(&COLUMNS, 2), [(0, 4)]);
        let cells = ["database", "7", "cold"];
        assert_eq!(line(&COLUMNS, &fit(&COLUMNS, 8), |i| cells[i]), "dat~   7");
    }

    #[test]
    fn wide_characters_take_two_cells() {
        assert_eq!(padded("数据库", 5, false), "数据~");
        assert_eq!(padded("é", 3, true), "  é");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three\nfour", 7), ["one two", "three", "four"]);
        assert_eq!(wrapped("immeasurable", 5), ["imme~"]);
    }
}
