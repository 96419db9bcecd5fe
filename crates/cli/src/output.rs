//! The command's output: results on standard output, everything else on standard error.
//!
//! Unlike the standard macros it never panics: a daemon has settings to restore even if its
//! terminal has gone away or its log has filled the disk. After [`detach`] it does not wait either:
//! a terminal stopped by Ctrl-S, or a reader that has stopped reading, delays neither moves nor the
//! end of the daemon. What it tells then has fields, if it goes to the journal.

mod detached;
mod journal;
mod said;

use std::fmt::{Arguments, Display};
use std::io::{self, ErrorKind, Write};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use anyhow::Context;

use crate::escape;
use detached::Detached;
use journal::Journal;
pub use said::{Priority, Said};

/// How long the process waits at its end for each stream to be written.
const SETTLE_BOUND: Duration = Duration::from_secs(1);

/// The daemon's standard output and standard error.
static STREAMS: OnceLock<Streams> = OnceLock::new();

#[derive(Debug)]
struct Streams {
    lines: Detached<String>,
    told: Detached<Said>,
}

/// From here on separate threads write lines and messages, and callers do not wait.
///
/// # Errors
/// The threads cannot be started.
pub fn detach() -> anyhow::Result<()> {
    let start = || -> io::Result<Streams> {
        let journal = Journal::of_stderr();
        let told = move |said: &Said| {
            // The journal knows for sure whose a stream's lines are, and of a datagram only while
            // its sender lives: the last lines of a run have no fields.
            let journal = journal.as_ref().filter(|_| !said.fields.is_empty());
            if journal.is_none_or(|journal| journal.send(said).is_err()) {
                write_told(&said.text);
            }
        };
        Ok(Streams {
            lines: Detached::start("stdout", |line: &String| write_line(line))?,
            told: Detached::start("stderr", told)?,
        })
    };
    // It is empty, because only the daemon's start calls this.
    let _ = STREAMS.set(start().context("cannot start the threads that write what is said")?);
    Ok(())
}

/// Waits for a short time until everything is written.
pub fn settle() {
    if let Some(Streams { lines, told }) = STREAMS.get() {
        lines.settle(SETTLE_BOUND);
        told.settle(SETTLE_BOUND);
    }
}

/// Writes a line to standard error.
macro_rules! tell {
    ($($words:tt)*) => {
        $crate::output::tell_text(format_args!("{}\n", format_args!($($words)*)))
    };
}
pub(crate) use tell;

/// Writes text to standard error. Errors are ignored, because there is nowhere to report them.
pub fn tell_text(text: Arguments<'_>) {
    put_said(Said::new(text.to_string()));
}

/// Writes a line to standard error, or to the journal with its fields.
pub fn say(mut said: Said) {
    said.text.push('\n');
    put_said(said);
}

fn put_said(mut said: Said) {
    said.text = escape::text(&said.text).into_owned();
    match STREAMS.get() {
        Some(streams) => streams.told.put(said),
        None => write_told(&said.text),
    }
}

fn write_told(text: &str) {
    // In one write, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// How many bytes are kept of an overlong line in an error: from its beginning, and from its end.
const LINE_BYTES: [usize; 2] = [800, 200];

/// Shortens long lines, in which a file is quoted, by their middle.
pub fn shortened(text: &str) -> String {
    let shorten = |line: &str| match line.len() > LINE_BYTES.iter().sum() {
        true => {
            let (first, last) = (line.floor_char_boundary(LINE_BYTES[0]), line.len() - LINE_BYTES[1]);
            format!("{} ... {}", &line[..first], &line[line.ceil_char_boundary(last)..])
        }
        false => line.to_owned(),
    };
    text.split('\n').map(shorten).collect::<Vec<_>>().join("\n")
}

/// Draws on a terminal. Control sequences are not escaped, so the text must contain nothing from
/// outside.
pub fn draw(text: Arguments<'_>) {
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// Prints a result on standard output. It is no error if the reader has gone away.
///
/// # Errors
/// It cannot be written, as on a full disk.
pub fn print(text: impl Display) -> anyhow::Result<()> {
    put(&escape::text(&text.to_string()))
}

/// Prints one result of several. Returns whether the reader is still there.
///
/// # Errors
/// As [`fn@print`].
pub fn print_while_read(text: &str) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(escape::text(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("cannot print the result"),
    }
}

/// Prints text in colours. If the text contains control characters from outside, they are escaped
/// and the colours are left out.
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

/// Prints one line of many. A failure is reported once and ends nothing.
pub fn print_line(line: &str) {
    let text = escape::text(&format!("{line}\n")).into_owned();
    match STREAMS.get() {
        Some(streams) => streams.lines.put(text),
        None => write_line(&text),
    }
}

fn write_line(text: &str) {
    static TOLD: Once = Once::new();
    if let Err(error) = write(&mut io::stdout().lock(), text) {
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

    #[test]
    fn of_long_lines_of_an_error_beginning_and_end_are_told() {
        let long = format!("in x.toml: \"{}\" is no name", "é".repeat(100_000));
        let told = shortened(&format!("{long}\nhelp\n"));
        assert!(told.len() < 1100 && told.starts_with("in x.toml: \"é"), "{}", told.len());
        assert!(told.ends_with("é\" is no name\nhelp\n"), "{told}");
        let short = "one\ntwo\n\nthree";
        assert_eq!(shortened(short), short);
    }

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
