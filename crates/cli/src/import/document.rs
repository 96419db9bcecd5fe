//! YAML, which includes JSON, as a tree that records the line of every part.

use saphyr_parser::{Event, Parser};

/// Maximum nesting depth, and maximum number of parts, of a document.
const DEPTH_MAX: usize = 64;
const PARTS_MAX: usize = 100_000;

/// A part of a document, and the line on which it begins. For a block of text it is that of its
/// first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Keys with their lines, in order.
    Map(Vec<(String, usize, Node)>),
    List(Vec<Node>),
    /// A value as written.
    Scalar(String),
}

impl Node {
    /// Keys, their lines and values; empty if it is not a map.
    pub(super) fn entries(&self) -> &[(String, usize, Node)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key. As in memtierd, case does not matter.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|(name, ..)| name.eq_ignore_ascii_case(key)).map(|(_, _, node)| node)
    }

    /// The items of a list; of anything else, itself.
    pub(super) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// A value as written.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// A short form, for messages.
    pub(super) fn shown(&self) -> String {
        let joined = |parts: Vec<String>| parts.join(", ");
        match &self.value {
            Value::Scalar(text) => text.trim().to_owned(),
            Value::List(items) => format!("[{}]", joined(items.iter().map(Node::shown).collect())),
            Value::Map(entries) => {
                let entries = entries.iter().map(|(key, _, node)| format!("{key}: {}", node.shown()));
                format!("{{{}}}", joined(entries.collect()))
            }
        }
    }
}

/// An unfinished part: its line, and its contents so far.
enum Open {
    Map(usize, Vec<(String, usize, Node)>, Option<(String, usize)>),
    List(usize, Vec<Node>),
}

/// Parses the first document of a text. The text's first line has number `first`.
///
/// # Errors
/// It is not YAML, or exceeds the limits; the message names the line.
pub(super) fn parse(text: &str, first: usize) -> Result<Node, String> {
    let (mut open, mut parts) = (Vec::new(), 0);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| {
            let line = e.marker().line().saturating_add(first).saturating_sub(1);
            format!("line {line}: not YAML: {}", e.info())
        })?;
        let line = span.start.line().max(1) - 1 + first;
        parts += 1;
        if parts > PARTS_MAX || open.len() > DEPTH_MAX {
            return Err(format!("line {line}: it is larger, or deeper, than a configuration can be"));
        }
        let done = match event {
            Event::MappingStart(..) => {
                open.push(Open::Map(line, Vec::new(), None));
                continue;
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(line, Vec::new()));
                continue;
            }
            Event::Alias(_) => return Err(format!("line {line}: aliases are not taken; write it out")),
            Event::Scalar(text, ..) => Node { line, value: Value::Scalar(text.into_owned()) },
            Event::MappingEnd | Event::SequenceEnd => match open.pop() {
                Some(Open::Map(line, entries, _)) => Node { line, value: Value::Map(entries) },
                Some(Open::List(line, items)) => Node { line, value: Value::List(items) },
                None => continue,
            },
            _ => continue,
        };
        match open.last_mut() {
            None => return Ok(done),
            Some(Open::List(_, items)) => items.push(done),
            Some(Open::Map(_, entries, key)) => match key.take() {
                Some((name, line)) => entries.push((name, line, done)),
                None => *key = Some((done.shown(), done.line)),
            },
        }
    }
    Err(format!("line {first}: there is nothing in it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_knows_its_line() {
        let text = "a: 1\nb:\n  - x\n  - c: 2\nd: |\n  e: 3\n  f: 4\n";
        let node = parse(text, 1).unwrap();
        assert_eq!(node.get("A").unwrap().line, 1);
        assert_eq!(node.get("b").unwrap().items()[1].get("c").unwrap().line, 4);
        let inner = node.get("d").unwrap();
        assert_eq!(parse(inner.text().unwrap(), inner.line).unwrap().get("f").unwrap().line, 7);
        assert_eq!(parse("{\"a\":\n [1, 2]}", 1).unwrap().get("a").unwrap().items()[1].line, 2);
    }

    #[test]
    fn what_is_no_document_is_refused_with_its_line() {
        assert!(parse("a: [1\nb", 1).unwrap_err().starts_with("line "));
        assert!(parse("", 3).unwrap_err().starts_with("line 3"));
        assert!(parse("a: &x 1\nb: *x\n", 1).unwrap_err().contains("line 2: aliases"));
        let deep = "[".repeat(100) + &"]".repeat(100);
        let told = parse(&deep, 1).unwrap_err();
        assert!(told.contains("deeper"), "{told}");
    }
}
