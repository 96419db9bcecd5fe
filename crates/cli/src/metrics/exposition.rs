//! The text that is scraped: Prometheus' format 0.0.4 and OpenMetrics 1.0. They differ in the names
//! of counters and in the end of the text.

use std::fmt::Write;

use thermocline_core::statistics::Kind;

use super::Family;

/// How families are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format.
    Prometheus,
    /// OpenMetrics.
    OpenMetrics,
}

impl Format {
    /// The header `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Families as text, without the end marker.
    pub fn text(self, families: &[Family]) -> String {
        let mut out = String::new();
        for family in families {
            let name = match (self, family.kind) {
                (Format::OpenMetrics, Kind::Counter) => {
                    family.name.strip_suffix("_total").unwrap_or(&family.name)
                }
                _ => &family.name,
            };
            let _ = writeln!(out, "# HELP {name} {}", escaped(&family.help, self == Format::OpenMetrics));
            let _ = writeln!(out, "# TYPE {name} {}", family.kind.word());
            for (labels, value) in &family.values {
                let _ = writeln!(out, "{}{} {value}", family.name, labelled(labels));
            }
        }
        out
    }

    /// The text after the last family.
    pub const fn end(self) -> &'static str {
        match self {
            Format::Prometheus => "",
            Format::OpenMetrics => "# EOF\n",
        }
    }
}

fn labelled(labels: &[(&'static str, String)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)));
    format!("{{{}}}", labels.collect::<Vec<_>>().join(","))
}

/// Escapes line breaks and, if `quoted`, quotes.
fn escaped(text: &str, quoted: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quoted { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_written_by_their_rules() {
        let family = |name: &str, kind, labels| Family {
            name: name.to_owned(),
            help: "Says \"so\\\".".to_owned(),
            kind,
            values: vec![(labels, 1.5)],
        };
        let scope = vec![("scope", "a\"b\\c\nd".to_owned()), ("node", "0".to_owned())];
        let families = [
            family("thermocline_a_total", Kind::Counter, scope),
            family("thermocline_b", Kind::Gauge, Vec::new()),
        ];
        let prometheus = "# HELP thermocline_a_total Says \"so\\\\\".\n# TYPE thermocline_a_total counter\n\
            thermocline_a_total{scope=\"a\\\"b\\\\c\\nd\",node=\"0\"} 1.5\n\
            # HELP thermocline_b Says \"so\\\\\".\n# TYPE thermocline_b gauge\nthermocline_b 1.5\n";
        assert_eq!(Format::Prometheus.text(&families), prometheus);
        let open = Format::OpenMetrics.text(&families);
        assert!(open.starts_with(
            "# HELP thermocline_a Says \\\"so\\\\\\\".\n# TYPE thermocline_a counter\nthermocline_a_total{"
        ));
        assert_eq!((Format::OpenMetrics.end(), Format::Prometheus.end()), ("# EOF\n", ""));
    }
}
