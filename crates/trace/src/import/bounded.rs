//! JSON whose texts and numbers are short: a parser keeps each in memory, however long it is.

use std::io::{self, BufRead, Read};

/// Longest text or number, in bytes.
const TOKEN_BYTES_MAX: usize = 1 << 16;

/// Passes on what it reads, until a text or number is too long.
pub struct Bounded<R> {
    input: R,
    in_text: bool,
    escaped: bool,
    /// Bytes of the text or number so far.
    bytes: usize,
}

impl<R: BufRead> Bounded<R> {
    /// Of this input.
    pub fn new(input: R) -> Bounded<R> {
        Bounded { input, in_text: false, escaped: false, bytes: 0 }
    }

    fn see(&mut self, byte: u8) {
        self.bytes += 1;
        match (self.in_text, self.escaped, byte) {
            (true, true, _) => self.escaped = false,
            (true, false, b'\\') => self.escaped = true,
            (true, false, b'"') => (self.in_text, self.bytes) = (false, 0),
            (true, false, _) => {}
            (false, _, b'"') => (self.in_text, self.bytes) = (true, 0),
            (false, _, b',' | b':' | b'[' | b']' | b'{' | b'}' | b' ' | b'\n' | b'\r' | b'\t') => {
                self.bytes = 0
            }
            (false, ..) => {}
        }
    }
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(to)?;
        for byte in &to[..read] {
            self.see(*byte);
            if self.bytes > TOKEN_BYTES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a text or number is longer than {TOKEN_BYTES_MAX} bytes"),
                ));
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn read(text: String) -> bool {
        let mut all = String::new();
        Bounded::new(BufReader::new(text.as_bytes())).read_to_string(&mut all).is_ok() && all == text
    }

    #[test]
    fn only_what_is_long_in_one_piece_is_refused() {
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        let short = "x".repeat(TOKEN_BYTES_MAX - 1);
        assert!(read(format!("[\"{short}\",\"{short}\", 1]")));
        assert!(read(" ".repeat(1 << 18)));
        assert!(!read(format!("\"{long}\"")));
        assert!(!read(format!("\"a,b\\\"{long}\"")));
        assert!(!read("1".repeat(TOKEN_BYTES_MAX + 1)));
    }
}
