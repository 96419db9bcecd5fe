//! Lines of a text, numbered, none of them longer than memory allows.

use std::borrow::Cow;
use std::io::BufRead;

use super::ImportError;

/// Longest line, in bytes; the tools write some hundreds.
const LINE_BYTES_MAX: usize = 1 << 16;

/// Reads lines.
pub struct Lines<'a> {
    input: &'a mut dyn BufRead,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    /// The lines of an input.
    pub fn new(input: &'a mut dyn BufRead) -> Lines<'a> {
        Lines { input, line: Vec::new(), number: 0 }
    }

    /// Something is wrong in the line read last.
    pub fn flaw(&self, what: impl Into<String>) -> ImportError {
        ImportError::flaw(self.number, what)
    }

    /// The next line without its end; `None` after the last. Bytes that are no UTF-8, which names
    /// of programs may have, are replaced.
    ///
    /// # Errors
    /// The line has no end, is too long, or cannot be read.
    pub fn next_line(&mut self) -> Result<Option<Cow<'_, str>>, ImportError> {
        self.line.clear();
        self.number += 1;
        loop {
            let bytes = match self.input.fill_buf() {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                filled => filled?,
            };
            if bytes.is_empty() && self.line.is_empty() {
                self.number -= 1;
                return Ok(None);
            }
            if bytes.is_empty() {
                return Err(self.flaw(
                    "the text ends in the middle of this line; if it is whole, end it with a line break",
                ));
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let more = end.unwrap_or(bytes.len());
            if self.line.len() + more > LINE_BYTES_MAX {
                return Err(self.flaw(format!(
                    "it is longer than {LINE_BYTES_MAX} bytes, which no line of such a text is"
                )));
            }
            self.line.extend_from_slice(&bytes[..more]);
            self.input.consume(more + usize::from(end.is_some()));
            if end.is_some() {
                let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
                return Ok(Some(String::from_utf8_lossy(line)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor};

    use super::*;

    #[test]
    fn lines_are_numbered_and_a_last_one_without_an_end_is_a_flaw() {
        let mut text = BufReader::with_capacity(3, Cursor::new(b"one\n\ntw\xffo\r\nthr".to_vec()));
        let mut lines = Lines::new(&mut text);
        for (number, wanted) in [(1, "one"), (2, ""), (3, "tw\u{fffd}o")] {
            assert_eq!(lines.next_line().unwrap().unwrap(), wanted);
            assert_eq!(lines.number, number);
        }
        let error = lines.next_line().unwrap_err().to_string();
        assert!(error.starts_with("line 4: "), "{error}");
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let mut endless = BufReader::new(std::io::repeat(b'x'));
        let error = Lines::new(&mut endless).next_line().unwrap_err().to_string();
        assert!(error.contains("longer than 65536 bytes"), "{error}");
    }
}
