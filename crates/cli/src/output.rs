//! What the command says: results on standard output, everything else on standard error.
//!
//! Neither ever panics, as the standard macros do: a daemon whose terminal has gone away or whose log has filled the disk
//! has settings to put back.

use std::fmt::{Arguments, Display};
use std::io::{self, ErrorKind, Write};
use std::sync::Once;

use anyhow::Context;

use crate::escape;

/// Tells a line on standard error.
macro_rules! tell {
    ($($words:tt)*) => {
        $crate::output::tell_text(format_args!("{}\n", format_args!($($words)*)))
    };
}
pub(crate) use tell;

/// Tells text on standard error. Where nobody can be told, nothing else is to be done about it.
pub fn tell_text(text: Arguments<'_>) {
    // In one piece, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(escape::text(&text.to_string()).as_bytes());
}

/// Draws on a terminal: what commands it is left in, so that nothing from outside may be in the text.
pub fn draw(text: Arguments<'_>) {
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// Prints a result, as it stands, on standard output. A reader that has gone away wants no more of it.
///
/// # Errors
/// It cannot be written, as on a full disk.
pub fn print(text: impl Display) -> anyhow::Result<()> {
    put(&escape::text(&text.to_string()))
}

/// Prints text in colours, unless something from outside is in it that commands terminals: then without.
///
/// # Errors
/// As [`fn@print`].
pub fn print_painted(plain: &str, painted: &str) -> anyhow::Result<()> {
    let safe = escape::text(plain);
    put(if safe == plain { painted } else { &safe })
}

fn put(text: &str) -> anyhow::Result<()> {
    write(&mut io::stdout().lock(), text).context("cannot print the result; write it elsewhere, or make room")
}

/// Prints a line of many. That it cannot be written is told once and stops nobody.
pub fn print_line(line: &str) {
    static TOLD: Once = Once::new();
    if let Err(error) = write(&mut io::stdout().lock(), &escape::text(&format!("{line}\n"))) {
        TOLD.call_once(|| tell!("lines are lost, standard output cannot be written: {error}"));
    }
}

fn write(out: &mut impl Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_away_is_no_error_and_a_full_disk_is() {
        assert!(write(&mut Fails(ErrorKind::BrokenPipe), "text").is_ok());
        assert!(write(&mut Fails(ErrorKind::StorageFull), "text").is_err());
    }
}
