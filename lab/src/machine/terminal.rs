//! The interactive guest: our terminal, in raw mode, becomes the guest's.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use crate::machine::channel::{Reader, Sink};
use crate::{Error, Result};

/// Our terminal in raw mode. Dropping this restores its previous mode.
pub(crate) struct RawTerminal {
    before: Option<Termios>,
    /// `rows N cols N`, as stty takes it.
    pub(crate) size: String,
}

impl RawTerminal {
    /// Switches our standard input to raw mode if it is a terminal.
    pub(crate) fn enter() -> Result<RawTerminal> {
        let input = io::stdin();
        if !isatty(&input) {
            return Ok(RawTerminal { before: None, size: stty(0, 0) });
        }
        let failed =
            |error: rustix::io::Errno| Error::file("set up the terminal", "/dev/stdin")(error.into());
        let before = tcgetattr(&input).map_err(failed)?;
        let size = tcgetwinsize(&input).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&input, OptionalActions::Now, &raw).map_err(failed)?;
        Ok(RawTerminal { before: Some(before), size: stty(size.ws_row, size.ws_col) })
    }

    /// Connects the guest's terminal to ours. The thread that reads ours ends only with the
    /// process, because nothing interrupts it.
    pub(crate) fn join(&self, guest: UnixStream) -> Result<Reader> {
        let mut to_guest = guest.try_clone().map_err(Error::file("use", "the guest's terminal"))?;
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = io::stdin().read(&mut buffer) {
                if to_guest.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        });
        let sink: Sink = Box::new(io::stdout());
        Ok(Reader::start(guest, Some(sink)))
    }
}

/// A terminal's size for stty. A terminal that does not know its size reports 0 and gets the usual
/// one.
fn stty(rows: u16, columns: u16) -> String {
    let or = |value: u16, usual: u16| if value == 0 { usual } else { value };
    format!("rows {} cols {}", or(rows, 24), or(columns, 80))
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // If the terminal is gone, the error cannot be reported.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}
