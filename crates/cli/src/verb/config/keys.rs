//! What `thermocline config` prints: every key with unit, default, range and source.

use std::fmt::Write;

use thermocline_core::config::Config;
use thermocline_core::config::schema::Field;

/// A TOML file with every key at its default, each with its explanation; keys without a default are
/// commented out.
pub fn annotated() -> String {
    let mut out = String::new();
    for (section, fields) in Config::sections() {
        let optional = section == "scope";
        let header = if optional { format!("# [[{section}]]") } else { format!("[{section}]") };
        let _ = writeln!(out, "{header}");
        for field in fields {
            for line in wrap(&field.doc, 100) {
                let _ = writeln!(out, "# {line}");
            }
            let _ = writeln!(out, "# {}", facts(&field));
            let set = field.default != "unset" && !optional;
            let value = if field.default == "unset" { "..." } else { &field.default };
            let _ = writeln!(out, "{}{} = {value}", if set { "" } else { "# " }, field.name);
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn facts(field: &Field) -> String {
    let unit = if field.unit.is_empty() { String::new() } else { format!("Unit: {}. ", field.unit) };
    let restart = if field.reloads { "" } else { " Needs a restart." };
    format!("{unit}Allowed: {}. Source: {}.{restart}", field.range, field.source)
}

pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}

/// Markdown tables of every key, for the book.
pub fn markdown() -> String {
    let mut out = String::new();
    for (section, fields) in Config::sections() {
        let header = if section == "scope" { format!("[[{section}]]") } else { format!("[{section}]") };
        let _ = write!(
            out,
            "## `{header}`\n\n| key | unit | default | allowed | meaning | source | reloads |\n|---|---|---|---|---|---|---|\n"
        );
        for f in fields {
            let cell = |s: &str| s.replace('|', "\\|");
            let _ = writeln!(
                out,
                "| `{}` | {} | `{}` | {} | {} | {} | {} |",
                f.name,
                cell(f.unit),
                cell(&f.default),
                cell(&f.range),
                cell(&f.doc),
                cell(f.source),
                if f.reloads { "yes" } else { "no" }
            );
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotated_file_is_the_defaults() {
        let parsed = thermocline_front::config::parse(&annotated(), "annotated.toml", |_| {})
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(parsed, Config::default());
    }

    /// The keys that a reload cannot change, by section.
    fn restarts() -> String {
        let mut out = "| section | keys |\n|---|---|\n".to_owned();
        for (section, fields) in Config::sections() {
            let keys = fields.iter().filter(|field| !field.reloads);
            let keys: Vec<String> = keys.map(|field| format!("`{}`", field.name)).collect();
            if !keys.is_empty() {
                let all = if keys.len() == fields.len() { "all: " } else { "" };
                let _ = writeln!(out, "| `[{section}]` | {all}{} |", keys.join(", "));
            }
        }
        out
    }

    #[test]
    fn the_book_names_what_needs_a_restart() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/configuration.md");
        let chapter = std::fs::read_to_string(path).unwrap();
        let (before, rest) = chapter.split_once("<!-- restarts -->\n").unwrap();
        let (_, after) = rest.split_once("<!-- end -->").unwrap();
        let fresh = format!("{before}<!-- restarts -->\n{}<!-- end -->{after}", restarts());
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, &fresh).unwrap();
        }
        let bless = "BLESS=1 cargo test --release -p thermocline --bin thermocline restart";
        assert!(fresh == chapter, "docs/src/configuration.md is stale; refresh it with: {bless}");
    }

    #[test]
    fn the_books_table_of_keys_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/config-keys.md");
        let book = std::fs::read_to_string(path).unwrap_or_default();
        let replay = "cargo run -p thermocline -- config --markdown > docs/src/config-keys.md";
        assert!(book.contains(&markdown()), "docs/src/config-keys.md is stale; run `{replay}`");
    }
}
