//! Compressed bytes, decompressed up to the damage: what comes before it is passed on.

use std::io::{self, BufRead, Read};

use flate2::{Decompress, FlushDecompress, Status};

/// Decompresses zlib.
pub struct Inflate<'a> {
    input: &'a mut dyn BufRead,
    state: Decompress,
    failed: Option<io::Error>,
    ended: bool,
}

impl<'a> Inflate<'a> {
    /// Of this input.
    pub fn new(input: &'a mut dyn BufRead) -> Inflate<'a> {
        Inflate { input, state: Decompress::new(true), failed: None, ended: false }
    }

    /// Whether something follows the compressed bytes, all of which have been read.
    pub fn is_followed(&mut self) -> io::Result<bool> {
        Ok(!self.input.fill_buf()?.is_empty())
    }
}

impl Read for Inflate<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        while !self.ended && !to.is_empty() {
            let bytes = self.input.fill_buf()?;
            let (read, written) = (self.state.total_in(), self.state.total_out());
            let result = self.state.decompress(bytes, to, FlushDecompress::None);
            let (nothing_left, read) = (bytes.is_empty(), (self.state.total_in() - read) as usize);
            self.input.consume(read);
            let written = (self.state.total_out() - written) as usize;
            let failed = match result {
                Ok(Status::StreamEnd) => {
                    self.ended = true;
                    return Ok(written);
                }
                Ok(_) if written > 0 => return Ok(written),
                Ok(_) if nothing_left => io::Error::new(io::ErrorKind::UnexpectedEof, "it is cut there"),
                Ok(_) if read > 0 => continue,
                Ok(_) => io::Error::new(io::ErrorKind::InvalidData, "it cannot be decompressed"),
                Err(error) => io::Error::new(io::ErrorKind::InvalidData, error),
            };
            if written > 0 {
                self.failed = Some(failed);
                return Ok(written);
            }
            return Err(failed);
        }
        Ok(0)
    }
}
